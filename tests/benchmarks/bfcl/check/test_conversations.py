"""Verdicts on multi-turn conversations and on agentic answers."""

from collections.abc import Sequence
from typing import Any

import pytest

from ace_ray.benchmarks.bfcl.check.conversations import check_agentic, check_multi_turn
from ace_ray.benchmarks.bfcl.data.loader import function_docs
from ace_ray.benchmarks.bfcl.decode.calls import Answer
from ace_ray.benchmarks.bfcl.tools.environment import initial_state_of, open_environment
from ace_ray.benchmarks.bfcl.tools.sources import ToolSources, tool_sources
from ace_ray.types import Entry, ToolCall, Verdict
from tests.benchmarks.bfcl.synthetic_bfcl import DOCS

INFERENCE, TERMINATED = "multi_turn:inference_error", "multi_turn:force_terminated"
STATE = "multi_turn:instance_state_mismatch"
RESPONSE = "multi_turn:execution_response_mismatch"
NO_CALLS = "multi_turn:empty_turn_model_response"
GOLD = [
    ["get_price(item='roll')"],
    [],
    ["set_price(item='roll', price=0.6)", "add_order(customer='Ida', item='roll')"],
]
DATA = {
    "initial_config": {"Bakery": {"prices": {"roll": 0.5}, "orders": [], "open": True}},
    "involved_classes": ["Bakery"],
}
PRICE, SET = "[get_price(item='roll')]", "[set_price(item='roll', price=0.6)]"
ADD = "[add_order(customer='Ida', item='roll')]"
GOOD = [[PRICE, "It costs 0.5."], ["Which one?"], [SET, ADD, "Done."]]


def verdicts(
    turns: Sequence[Sequence[str]], ending: str = "", gold: Any = GOLD
) -> dict[str, Verdict]:
    entry = Entry("bfcl", "multi_turn_base", "en", "multi_turn_base_0", DATA, gold)
    answers = [[Answer(text) for text in turn] for turn in turns]
    return check_multi_turn(entry, answers, ending, ToolSources(), DOCS)


TWICE = f"{PRICE[:-1]}, {PRICE[1:]}"


@pytest.mark.parametrize(
    ("turns", "kind", "passed", "state", "response"),
    [
        pytest.param(GOOD, "", (1, 1, 1), 3, 3, id="key"),
        pytest.param([[TWICE], [], ["[total('x')]", SET, ADD]], "", (1, 1, 1), 3, 3, id="extra"),
        pytest.param([["It costs 0.5."], [], GOOD[2]], NO_CALLS, (0, 1, 1), 3, 2, id="no call"),
        pytest.param(
            [["[total(customer='Ida')]"], [], GOOD[2]], RESPONSE, (0, 1, 1), 3, 2, id="other result"
        ),
        pytest.param(
            [[PRICE], [], [SET, ADD, "[close_day()]"]], STATE, (1, 1, 0), 2, 3, id="other state"
        ),
        pytest.param([[PRICE], []], TERMINATED, (1, 1, 0), 2, 2, id="missing turn"),
        pytest.param([*GOOD, []], TERMINATED, (1, 1, 1), 3, 3, id="turn too many"),
    ],
)
def test_state_results_and_calls_of_each_turn_are_compared(turns, kind, passed, state, response):
    outcome = verdicts(turns)
    assert outcome["official"] == outcome["strict"]
    assert outcome["strict"].error_type == kind
    shares = {"turns_passed": sum(passed), "turns_state": state, "turns_response": response}
    by_turn = {f"turn_{n}": share for n, share in enumerate(passed, start=1)}
    expected = {name: count / 3 for name, count in shares.items()} | by_turn
    assert outcome["strict"].metrics == pytest.approx(expected)


@pytest.mark.parametrize(
    ("turns", "ending", "official", "strict"),
    [
        pytest.param(GOOD, "steps", "", TERMINATED, id="steps in the last turn"),
        pytest.param(GOOD[:2], "steps", TERMINATED, TERMINATED, id="steps before the last turn"),
        pytest.param(GOOD, "context", INFERENCE, INFERENCE, id="context"),
        pytest.param(GOOD, "inference", INFERENCE, INFERENCE, id="inference"),
    ],
)
def test_conversation_that_was_cut_is_wrong(turns, ending, official, strict) -> None:
    outcome = verdicts(turns, ending)
    assert [outcome[rules].error_type for rules in ("official", "strict")] == [official, strict]


def test_records_that_upstream_shares_are_not_shared_under_strict(bfcl_copy) -> None:
    """An insurance paid with a card of the long context: the key's card pays it too."""
    docs, sources = function_docs(bfcl_copy), tool_sources(bfcl_copy)
    config = {"TravelAPI": {"access_token": "a", "booking_record": {"1": {}}}}
    data = {"initial_config": config, "involved_classes": ["TravelAPI"]}
    entry = Entry("bfcl", "multi_turn_long_context", "en", "x_0", data, [["list_all_airports()"]])
    cards = open_environment(sources, initial_state_of(entry, docs)).instances["TravelAPI"]
    card = next(iter(cards.credit_card_list))
    paid = (
        "[list_all_airports(), purchase_insurance(access_token='a', insurance_type='b',"
        f" booking_id='1', insurance_cost=5, card_id={card!r})]"
    )
    outcome = check_multi_turn(entry, [[Answer(paid)]], "", sources, docs)
    assert outcome["official"].valid
    assert outcome["strict"].error_type == STATE
    assert check_multi_turn(entry, [[Answer(paid)]], "", sources, docs) == outcome


CALL = Answer("new york", (ToolCall("f", '{"a": 1}'),))
CUT_CALL = Answer("", (ToolCall("f", '{"city": "new york"'),))


@pytest.mark.parametrize(
    ("answers", "kind"),
    [
        (["{'answer': 'NEW-york', 'context': 'x'}", "[f(a=1)]"], "answer_not_found"),
        (["{'answer': 'new york', 'context': 'x'}", "[f(a=1)]"], ""),
        (["new york", ""], "no_last_message"),
        ([CALL, Answer("In New York", ())], ""),
        ([CALL], "no_last_message"),
        ([CUT_CALL], ""),
    ],
)
def test_last_message_contains_an_answer(answers: Any, kind: str) -> None:
    messages = [Answer(answer) if isinstance(answer, str) else answer for answer in answers]
    outcome = check_agentic(messages, ["New York", "15"])
    assert outcome["official"] == outcome["strict"]
    error = f"agentic:{kind}" if kind else ""
    assert (outcome["official"].valid, outcome["official"].error_type) == (not kind, error)
    for ending in ("context", "deadline"):
        cut = check_agentic(messages, ["15"], ending)["strict"]
        assert cut.error_type == "agentic:inference_error"
