"""The strict verdict on agent rows, and the causes of errors."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ace_ray.benchmarks.acebench.check.agent import check_agent
from ace_ray.benchmarks.acebench.check.agent_strict import made, paths, same_value
from ace_ray.parsing.literals import Call
from ace_ray.types import RULE_SETS, Entry, Verdict

FUNCTIONS = [
    {"name": "login", "parameters": {"type": "dict", "properties": {}, "required": []}},
    {
        "name": "send",
        "parameters": {"properties": {"to": {}, "text": {}}, "required": ["to", "text"]},
    },
    {"name": "view", "arguments": {"properties": {"name": {}}}},
]
GOLD = [{"BaseAPI": {"wifi": True}}, {"Reminderpi": {"reminder_list": {"1": {"n": 1}}}}]
END: list[dict[str, Any]] = [
    {"BaseApi": {"wifi": True}},
    {"ReminderApi": {"reminder_list": {"1": {"n": 1}}}},
]
STEPS = ["[login()]", "[view(name='Eve')]", "[send(to='Eve', text='Domino's')]"]
RIGHT = ["[login()]", "[view(name='Eve')]", "[send(to='Eve', text=\"Domino's\")]"]


def entry(steps: Any = None) -> Entry:
    answer = {"ground_truth": GOLD, "mile_stone": steps or STEPS}
    data = {"function": FUNCTIONS}
    return Entry("acebench", "agent_multi_step", "en", "agent_multi_step_0", data, answer)


def strict(result: Any, process: Any = (), gold_steps: Any = None, **given: Any) -> Verdict:
    found = check_agent(entry(gold_steps), result, list(process), **given)["strict"]
    assert found.valid == (found.error_type == "") == (found.metrics["end_to_end"] == 1)
    return found


def process(*texts: str, **given: Any) -> float:
    return strict([], texts, **given).metrics["process_accuracy"]


def test_the_end_state_must_be_the_gold_state() -> None:
    for state in (END, END[::-1], [{**END[0], **END[1]}]):
        assert strict(state).valid
    wrong: list[Any] = [
        [None],
        {"BaseApi": {"wifi": True}},
        [*END, END[0]],
        [{"BaseApi": {"wifi": True, "more": 1}}, END[1]],
        [END[0], {"ReminderApi": {"reminder_list": {"1": {"n": 1, "m": 1}}}}],
    ]
    for state in wrong:
        assert not strict(state).valid, state
    # The true end state comes before the recorded one.
    assert strict([], end=END).valid
    assert not strict(END, end=[]).valid
    found = check_agent(entry(), [], [], end=END)
    assert found["official"].error_type == "wrong number of class"


def test_values_are_equal_as_json() -> None:
    equal: list[tuple[Any, Any]] = [(1, 1.0), ({"a": [1]}, {"a": [1.0]}), (None, None)]
    assert all(same_value(value, gold) for value, gold in equal)
    different: list[tuple[Any, Any]] = [(1, True), (True, 1), ("1", 1), ([1, 2], [2, 1]), ({}, [])]
    different += [([1], [1, 2]), ({"a": 1}, {"a": 1, "b": None})]
    assert not any(same_value(value, gold) for value, gold in different)


def test_the_process_counts_calls_one_by_one_until_the_first_mismatch() -> None:
    assert process(*RIGHT) == process(*RIGHT, "[view(name='x')]") == 1
    assert process() == process("[view(name='x')]", *RIGHT) == process("[login(", *RIGHT) == 0
    assert process(*RIGHT[:2]) == 2 / 3
    assert process(RIGHT[0], RIGHT[2], RIGHT[1]) == 1 / 3
    # Of a right end state too: the definition knows no exception.
    assert strict(END).metrics == {"end_to_end": 1, "process_accuracy": 0}
    # Spaces, quotes, words and batches do not matter; arguments do.
    assert process(' [ login( ) , view(name = "Eve") ]', RIGHT[2]) == 1
    assert process(*RIGHT, gold_steps=["[login(), view(name='Eve')]", STEPS[2]]) == 1
    assert process("Now:\n[login()]", "```\n[view(name='Eve')]\n```") == 2 / 3
    for step in ("[view()]", "[view(name='eve')]", "[view(name='Eve', more=1)]", "[view('Eve')]"):
        assert process(RIGHT[0], step) == 1 / 3
    assert process(*RIGHT[:2], STEPS[2]) == 2 / 3  # a naive apostrophe of the model's
    assert process("[]", gold_steps=["no call at all"]) == 0
    # The best of alternative paths counts.
    ways = [STEPS, [STEPS[1], STEPS[2]]]
    assert process(RIGHT[1], gold_steps=ways) == 1 / 2
    assert process(RIGHT[0], gold_steps=ways) == 1 / 3


def test_milestones_with_naive_apostrophes_are_read() -> None:
    for text, value in {
        "[f(a='Domino's')] ": "Domino's",
        "[f(a='Don't, he's off')]": "Don't, he's off",
        "[f(a='boys'')]": "boys'",
        '[f(a="it\'s")]': "it's",
        "[f(a=[{'k': 'y's'}])]": [{"k": "y's"}],
    }.items():
        assert paths([text]) == [[Call("f", {"a": value})]]


def step(*calls: Any, observations: Any = (), errors: Any = None) -> dict[str, Any]:
    named = [{"name": name, "arguments": args} for name, args in calls]
    errors = [""] * len(calls) if errors is None else list(errors)
    return {"calls": named, "observations": list(observations), "errors": errors}


def test_steps_say_what_was_called() -> None:
    told = [
        {"speaker": "user", "text": "hello", "calls": [], "observations": [], "errors": []},
        step(("login", {}), ("view", {"name": "x"}), observations=[1, 2], errors=["", "failed"]),
        {"speaker": "agent", "text": "[login()]"},
        {"speaker": "execution", "text": "no questions", "errors": ["not_a_call"]},
        # A batch that ended before its second call.
        step(("login", {}), ("view", {}), observations=["x"], errors=["failed"]),
    ]
    found = [(m.call.name, m.error, m.observation) for m in made(["[ignored()]"], told)]
    assert found == [
        ("login", "", 1),
        ("view", "failed", 2),
        ("", "not_a_call", None),
        ("login", "failed", "x"),
        ("view", "not_run", None),
    ]
    for error, n in (("", 1), ("failed", 1), ("bad_arguments", 0), ("unknown_tool", 0)):
        steps = [step(("login", {}), observations=["x"], errors=[error])]
        assert strict([], steps=steps).metrics["process_accuracy"] == n / 3


LOGIN: tuple[str, dict[str, Any]] = ("login", {})
VIEW, SEND = ("view", {"name": "Eve"}), ("send", {"to": "Eve", "text": "x"})
LAST, FRANK = ("send", {"to": "Eve", "text": "Domino's"}), ("view", {"name": "Frank"})
OTHER: tuple[str, dict[str, Any]] = ("other", {})
NO = {"status": False, "message": "not logged in"}
UNKNOWN = step(OTHER, errors=["unknown_tool"])
CAUSES: dict[str, list[Any]] = {
    "function_call_error": [
        [step(LOGIN), UNKNOWN],
        [step(LOGIN), step(("view", {}), errors=["bad_arguments"])],
        [step(LOGIN), {"errors": ["not_a_call"]}],
        [UNKNOWN, step(("login", {"x": 1}))],
        [step(LOGIN), {"speaker": "execution", "calls": [], "errors": []}],
        ["[login()]", "[login(x=1)]"],
        ["[login()]", "[send(to='Eve')]"],
        ["[login()]", "What now?"],
        ["[login()]", "[view(name=open(file='x'))]"],
    ],
    "rule_violation": [
        [step(VIEW)],
        [step(LOGIN), step(LAST)],
        [step(LOGIN), step(SEND, observations=[NO])],
        [step(LOGIN), step(SEND, observations=[{"status": "error"}])],
    ],
    "information_mismanagement": [
        [step(LOGIN), step(OTHER), step(FRANK)],
        [step(LOGIN), step(FRANK), UNKNOWN],
        ["[login()]", "[view(name='Frank')]"],
    ],
    "undetermined": [
        [],
        [UNKNOWN, step(LOGIN)],  # recovered
        [step(LOGIN), step(SEND)],  # other values of a later milestone, not refused
        [step(LOGIN), step(SEND, observations=["not logged in"])],  # words prove nothing
        [step(OTHER, VIEW, observations=["x"], errors=["failed"])],  # never ran
        [step(LOGIN), step(VIEW), step(LAST)],
        [None, 5, {"calls": 7}, {"calls": [None, {"name": 3}]}],
    ],
}


@pytest.mark.parametrize("expected", CAUSES)
def test_causes_of_errors(expected: str) -> None:
    for number, steps in enumerate(CAUSES[expected]):
        texts = bool(steps) and isinstance(steps[0], str)
        found = strict([], steps) if texts else strict([], steps=steps)
        assert found.error_type == expected, number
        assert found.error


def test_the_cause_is_that_of_the_path_followed_furthest() -> None:
    ways = [["[send(to='a', text='b')]"], ["[login()]", "[view(name='Eve')]"]]
    found = strict([], ["[login()]", "[view(name='x')]"], gold_steps=ways)
    assert found.error_type == "information_mismanagement"
    # A tool of a path is known, offered or not.
    found = strict([], ["[secret(x=2)]"], gold_steps=["[secret(x=1)]"])
    assert found.error_type == "information_mismanagement"


def test_any_json_value_gets_a_verdict() -> None:
    deep: Any = 1
    for _ in range(400):
        deep = {"BaseApi": [deep]}
    odd: list[Any] = [None, 10**4000, "x" * 100_000, [None], [{}, {}], [{"BaseApi": None}]]
    for value in [*odd, [{"BaseApi": {"wifi": deep}}] * 2, ["[f(" + "a," * 1_000 + ")]"] * 10]:
        steps = [{"calls": value, "observations": value, "errors": value}]
        for given in ({}, {"end": value, "steps": value}, {"end": value, "steps": steps}):
            found = check_agent(entry(), value, value, **given)
            assert not found["strict"].valid
            for rules in RULE_SETS:
                assert len(found[rules].error) < 500
                assert 0 <= found[rules].metrics["process_accuracy"] <= 1
                json.dumps(found[rules].metrics)
    other = Entry("acebench", "special_irrelevant", "en", "x", {}, "")
    with pytest.raises(ValueError, match="special_irrelevant is not an agent category"):
        check_agent(other, [], [])
