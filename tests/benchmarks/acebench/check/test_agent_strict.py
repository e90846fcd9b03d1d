"""The strict verdict on agent rows, and the causes of errors."""

from __future__ import annotations

from typing import Any

import pytest

from ace_ray.benchmarks.acebench.check.agent import check_agent
from ace_ray.benchmarks.acebench.check.agent_strict import escaped, made, paths, same_value
from ace_ray.parsing.literals import Call
from ace_ray.types import Entry, Verdict

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


def entry(steps: Any = None, gold: Any = None) -> Entry:
    answer = {"ground_truth": gold or GOLD, "mile_stone": steps or STEPS}
    data = {"function": FUNCTIONS}
    return Entry("acebench", "agent_multi_step", "en", "agent_multi_step_0", data, answer)


def strict(result: Any, process: Any = (), **given: Any) -> Verdict:
    target = entry(given.pop("gold_steps", None), given.pop("gold", None))
    found = check_agent(target, result, list(process), **given)["strict"]
    assert found.valid == (found.error_type == "") == (found.metrics["end_to_end"] == 1)
    return found


def process(*texts: str, **given: Any) -> float:
    return strict([], texts, **given).metrics["process_accuracy"]


@pytest.mark.parametrize(
    "state",
    [
        None,
        [None],
        {"BaseApi": {"wifi": True}},
        END[:1],
        [*END, END[0]],
        [{"BaseApi": {"wifi": 1}}, END[1]],
        [{"BaseApi": {"wifi": True, "more": 1}}, END[1]],
        [END[0], {"ReminderApi": {"reminder_list": {"1": {"n": 1, "m": 1}}}}],
    ],
)
def test_a_state_that_differs_in_anything_is_wrong(state: Any) -> None:
    assert not strict(state).valid


def test_classes_are_matched_by_their_real_names_in_any_order() -> None:
    assert strict(END).valid
    assert strict(END[::-1]).valid
    assert strict([{**END[0], **END[1]}]).valid


def test_the_true_end_state_comes_before_the_recorded_one() -> None:
    assert strict([], end=END).valid
    assert not strict(END, end=[]).valid
    found = check_agent(entry(), [], [], end=END)
    assert found["official"].error_type == "wrong number of class"


@pytest.mark.parametrize(
    ("value", "gold", "same"),
    [
        (1, 1.0, True),
        (1, True, False),
        ("1", 1, False),
        (None, False, False),
        ([1, 2], [2, 1], False),
        ({"a": [1]}, {"a": [1.0]}, True),
        ({"a": 1}, {"a": 1, "b": None}, False),
        ({}, [], False),
        (float("nan"), 1, False),
    ],
)
def test_values_are_equal_as_json(value: Any, gold: Any, same: bool) -> None:
    assert same_value(value, gold) is same


def test_the_process_counts_calls_one_by_one_until_the_first_mismatch() -> None:
    assert process(*RIGHT) == 1
    assert process() == 0
    assert process(*RIGHT[:2]) == 2 / 3
    assert process(*RIGHT, "[view(name='x')]") == 1
    assert process(RIGHT[0], RIGHT[2], RIGHT[1]) == 1 / 3
    assert process("[view(name='x')]", *RIGHT) == 0
    assert process(RIGHT[0], RIGHT[0], *RIGHT[1:]) == 1 / 3
    # Of a right end state too: the definition knows no exception.
    assert strict(END).metrics == {"end_to_end": 1, "process_accuracy": 0}


def test_spaces_quotes_and_batches_do_not_matter() -> None:
    assert process(' [ login( ) , view(name = "Eve") ]', RIGHT[2]) == 1
    assert process(*RIGHT, gold_steps=["[login(), view(name='Eve')]", STEPS[2]]) == 1
    assert process(RIGHT[0], gold_steps=["[login(), view(name='Eve')]"]) == 1 / 2
    assert process("Now:\n[login()]", "```\n[view(name='Eve')]\n```") == 2 / 3


def test_arguments_must_be_the_same() -> None:
    for step in ("[view()]", "[view(name='eve')]", "[view(name='Eve', more=1)]", "[view('Eve')]"):
        assert process(RIGHT[0], step) == 1 / 3


def test_what_is_no_call_does_not_match() -> None:
    assert process("[login(", *RIGHT) == 0
    assert process(*RIGHT[:2], STEPS[2]) == 2 / 3  # a naive apostrophe of the model's
    assert process("[]", gold_steps=["no call at all"]) == 0


def test_the_best_alternative_counts() -> None:
    ways = [STEPS, [STEPS[1], STEPS[2]]]
    assert process(RIGHT[1], gold_steps=ways) == 1 / 2
    assert process(RIGHT[0], gold_steps=ways) == 1 / 3


@pytest.mark.parametrize(
    ("text", "call"),
    [
        ("[f(a='Domino's')] ", Call("f", {"a": "Domino's"})),
        ("[f(a='Don't, he's off', b=1)]", Call("f", {"a": "Don't, he's off", "b": 1})),
        ("[f(a='x's', b=[{'k': 'y's'}])]", Call("f", {"a": "x's", "b": [{"k": "y's"}]})),
        ("[f(a='boys'')]", Call("f", {"a": "boys'"})),
        ('[f(a="it\'s")]', Call("f", {"a": "it's"})),
        ("[f(a='it\\'s')]", Call("f", {"a": "it's"})),
    ],
)
def test_milestones_with_naive_apostrophes(text: str, call: Call) -> None:
    assert paths([text]) == [[call]]


def test_escaping_leaves_what_is_right() -> None:
    for text in ("[f(a='x', b=['y', 'z'], c={'k': 'v'})]", "[f(a='')]", "[f()]"):
        assert escaped(text) == text


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
        step(
            ("login", {}), ("view", {}), observations=["x"], errors=["failed"]
        ),  # a batch that ended
    ]
    found = [(m.call.name, m.error, m.observation) for m in made(["[ignored()]"], told)]
    assert found == [
        ("login", "", 1),
        ("view", "failed", 2),
        ("", "not_a_call", None),
        ("login", "failed", "x"),
        ("view", "not_run", None),
    ]


def test_a_call_that_reached_no_tool_does_not_match() -> None:
    for error, n in (("", 1), ("failed", 1), ("bad_arguments", 0), ("unknown_tool", 0)):
        found = strict([], steps=[step(("login", {}), observations=["x"], errors=[error])])
        assert found.metrics["process_accuracy"] == n / 3
    assert process("[login(**x)]") == 0


LOGIN: tuple[str, dict[str, Any]] = ("login", {})
VIEW, SEND = ("view", {"name": "Eve"}), ("send", {"to": "Eve", "text": "x"})
NO = {"status": False, "message": "not logged in"}
CALL, RULE, INFORMATION, OPEN = (
    "function_call_error",
    "rule_violation",
    "information_mismanagement",
    "undetermined",
)


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([], OPEN),
        ([step(LOGIN)], OPEN),
        ([step(LOGIN), step(("other", {}), errors=["unknown_tool"])], CALL),
        ([step(LOGIN), step(("view", {}), errors=["bad_arguments"])], CALL),
        ([step(LOGIN), {"errors": ["not_a_call"]}], CALL),
        ([step(("other", {}), errors=["unknown_tool"]), step(LOGIN)], OPEN),  # recovered
        ([step(LOGIN), step(("other", {}), errors=["failed"])], OPEN),
        ([step(LOGIN), step(("view", {"name": "Frank"}))], INFORMATION),
        ([step(LOGIN), step(("other", {})), step(("view", {"name": "Frank"}))], INFORMATION),
        ([step(LOGIN), step(("view", {"name": "x"})), step(("o", {}), errors=["unknown_tool"])],
         INFORMATION),
        ([step(("o", {}), errors=["unknown_tool"]), step(("login", {"x": 1}))], CALL),
        ([step(VIEW)], RULE),
        ([step(LOGIN), step(SEND)], OPEN),  # other values of a later milestone, not refused
        ([step(LOGIN), step(SEND, observations=[NO])], RULE),
        ([step(LOGIN), step(SEND, observations=[{"status": "error"}])], RULE),
        ([step(LOGIN), step(SEND, observations=["not logged in"])], OPEN),  # words prove nothing
        ([step(("other", {}), VIEW, observations=["x"], errors=["failed"])], OPEN),  # never ran
        ([step(LOGIN), {"speaker": "execution", "calls": [], "errors": []}], CALL),
        ([step(LOGIN), step(("send", {"to": "Eve", "text": "Domino's"}))], RULE),
        ([step(LOGIN), step(("other", {}), observations=[NO])], OPEN),
        ([step(LOGIN), step(VIEW), step(("send", {"to": "Eve", "text": "Domino's"}))], OPEN),
        ([None, 5, {"calls": 7}, {"calls": [None, {"name": 3}]}], OPEN),
    ],
)  # fmt: skip
def test_causes_of_errors(steps: list[Any], expected: str) -> None:
    found = strict([], steps=steps)
    assert found.error_type == expected
    assert found.error


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["[login()]", "[other()]"], CALL),
        (["[login()]", "[login(x=1)]"], CALL),
        (["[login()]", "[send(to='Eve')]"], CALL),
        (["[login()]", "What now?"], CALL),
        (["[login()]", "[view(name=open(file='x'))]"], CALL),
        (["[login()]", "[view(name='Frank')]"], INFORMATION),
        (["[view(name='Eve')]"], RULE),
        (["[login()]"], OPEN),
    ],
)
def test_causes_from_texts_alone(texts: list[str], expected: str) -> None:
    assert strict([], texts).error_type == expected


def test_a_tool_of_the_path_that_is_not_offered_is_known() -> None:
    assert strict([], ["[secret(x=2)]"], gold_steps=["[secret(x=1)]"]).error_type == INFORMATION


def test_the_path_that_was_followed_furthest_decides() -> None:
    ways = [["[send(to='a', text='b')]"], ["[login()]", "[view(name='Eve')]"]]
    found = strict([], ["[login()]", "[view(name='x')]"], gold_steps=ways)
    assert found.error_type == INFORMATION


def test_another_category_is_refused() -> None:
    other = Entry("acebench", "special_irrelevant", "en", "x", {}, "")
    with pytest.raises(ValueError, match="special_irrelevant is not an agent category"):
        check_agent(other, [], [])
