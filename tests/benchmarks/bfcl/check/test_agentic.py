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
        (["new york", "I do not know"], "agentic:answer_not_found"),
        (["anew york"], "agentic:answer_not_found"),
        (["new yorks"], "agentic:answer_not_found"),
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
    said = Answer("In New York", ())
    assert check_agentic([call, said], ["new york"])["official"].valid
    assert check_agentic([call], ["new york"])["official"].error_type == "agentic:no_last_message"
    broken = Answer("", (ToolCall("f", '{"city": "new york"'),))
    assert check_agentic([broken], ["new york"])["official"].valid


def test_hostile_messages():
    for text in ("(" * 100_000, "\0" * 1000, "\ud800", "new york " * 100_000, "a" * 10_000_000):
        check_agentic([Answer(text)], ["New York", "(((", ""])
