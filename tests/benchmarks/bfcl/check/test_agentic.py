import pytest

from ace_ray.benchmarks.bfcl.check.conversations import check_agentic
from ace_ray.benchmarks.bfcl.decode.calls import Answer
from ace_ray.types import ToolCall


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        (["The answer is New York."], ""),
        (["[f(a=1)]", "{'answer': 'NEW-YORK', 'context': 'x'}"], "agentic:answer_not_found"),
        (["{'answer': 'new york', 'context': 'x'}", "[f(a=1)]"], ""),
        (["anew york"], "agentic:answer_not_found"),
        (["$1.5"], ""),
        (["[f(a=1)]"], "agentic:no_last_message"),
        (["new york", ""], "agentic:no_last_message"),
        ([], "agentic:no_last_message"),
    ],
)
def test_the_last_message_contains_an_answer(texts, kind):
    found = check_agentic([Answer(text) for text in texts], ["New York", "15"])
    assert found["official"] == found["strict"]
    assert (found["official"].valid, found["official"].error_type) == (not kind, kind)


def test_native_messages():
    call = Answer("new york", (ToolCall("f", '{"a": 1}'),))
    broken = Answer("", (ToolCall("f", '{"city": "new york"'),))
    for answers, kind in (
        ([call, Answer("In New York", ())], ""),
        ([call], "agentic:no_last_message"),
        ([broken], ""),
    ):
        assert check_agentic(answers, ["new york"])["official"].error_type == kind


def test_hostile_messages():
    for text in ("(" * 100_000, "\0" * 1000, "\ud800", "new york " * 100_000, "a" * 10_000_000):
        check_agentic([Answer(text)], ["New York", "(((", ""])
