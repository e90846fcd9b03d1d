"""Both verdicts on agent rows, and the causes of errors."""

import json
from copy import deepcopy
from typing import Any

import pytest

from ace_ray.benchmarks.acebench.check.agent import check_agent
from ace_ray.benchmarks.acebench.check.agent_strict import calls_made, paths
from ace_ray.parsing.literals import Call
from ace_ray.types import Entry, Verdict

TO: dict[str, Any] = {"to": {}, "text": {}}
NAME: dict[str, Any] = {"name": {}}
FUNCTIONS = [
    {"name": "login", "parameters": {"type": "dict", "properties": {}, "required": []}},
    {"name": "send", "parameters": {"properties": TO, "required": ["to", "text"]}},
    {"name": "view", "arguments": {"properties": NAME}},
]
END: list[dict[str, Any]] = [
    {"BaseApi": {"wifi": True, "logged_in": False}},
    {"MessageApi": {"inbox": {"1": {"text": "hi"}, "2": {"text": "yo"}}, "orders": [1, 2]}},
]
STEPS = ["[login()]", "[view(name='Eve')]", "[send(to='Eve', text='Domino's')]"]
RIGHT = ["[login()]", "[view(name='Eve')]", "[send(to='Eve', text=\"Domino's\")]"]
COUNT, ATTRIBUTES, CRASH = "wrong number of class", "class attributes wrong", "official_crash"


def judged(
    result: Any, process: Any = (), path: Any = None, gold: Any = None, **options: Any
) -> dict[str, Verdict]:
    answer = {"ground_truth": gold or END, "mile_stone": path or STEPS}
    entry = Entry("acebench", "agent_multi_step", "en", "x", {"function": FUNCTIONS}, answer)
    process = list(process) if isinstance(process, tuple) else process
    verdicts = check_agent(entry, result, process, **options)
    for verdict in verdicts.values():
        assert verdict.valid == (verdict.error_type == "") == (verdict.metrics["end_to_end"] == 1)
        assert verdict.valid == (verdict.error == "")
    return verdicts


def changed(value: Any, *path_keys: Any) -> Any:
    """Return the gold state with another value at a place."""
    state = deepcopy(END)
    target: Any = state
    for key in path_keys[:-1]:
        target = target[key]
    target[path_keys[-1]] = value
    return state


INBOX, ORDERS = (1, "MessageApi", "inbox"), (1, "MessageApi", "orders")


@pytest.mark.parametrize(
    ("state", "kind", "valid"),
    [
        (END[::-1], "", True),
        ([{**END[0], **END[1]}], COUNT, True),
        ([*END, END[0]], COUNT, False),
        (changed([2, 1], *ORDERS), ATTRIBUTES, False),
        (changed({"text": "more"}, *INBOX, "3"), "", False),
        # The first of two entries with the same name counts.
        ([changed([], *ORDERS)[1], END[1]], ATTRIBUTES, False),
        # A renamed class gets the verdict of the class before.
        ([{"Other": {"wifi": None}}, END[1]], "", False),
        ([{"BaseApi": {"wifi": None}}, {"Other": {}}], ATTRIBUTES, False),
    ],
    ids=["other order", "one entry", "class twice", "order of a list", "further message",
         "same class first", "renamed first class", "renamed last class"],
)  # fmt: skip
def test_end_states(state: Any, kind: str, valid: bool) -> None:
    verdicts = judged(state)
    assert (verdicts["official"].error_type, verdicts["strict"].valid) == (kind, valid)


def test_end_states_on_which_upstream_raises() -> None:
    crashes: list[tuple[Any, str]] = [
        (None, "TypeError"),
        (changed(["wifi"], 0, "BaseApi"), "AttributeError"),
        (changed(None, *INBOX), "TypeError"),
    ]
    for state, raised in crashes:
        verdicts = judged(state)
        assert verdicts["official"].error == f"the official evaluator raises {raised}"
        assert (verdicts["official"].error_type, verdicts["strict"].valid) == (CRASH, False)


def test_names_and_true_end_states() -> None:
    # Names are compared as sets of keys; attributes are the first key's.
    gold = [{"BaseApi": {"wifi": True}, "X": {"y": 1}}]
    assert judged([{"X": {"wifi": True}, "BaseApi": 1}], gold=gold)["official"].valid
    # The strict rules take the true end state, and know the misspelt names of gold states.
    assert judged([], end=END)["strict"].valid
    assert not judged(END, end=[])["strict"].valid
    misspelt = [{"BaseAPI": END[0]["BaseApi"]}, {"Reminderpi": {"n": None}}]
    assert judged([END[0], {"ReminderApi": {"n": None}}], gold=misspelt)["strict"].valid


def test_strict_accepts_a_message_that_gold_deletes_without_need() -> None:
    gold, kept = ([{"MessageApi": {"inbox": dict.fromkeys(n, "")}}] for n in ("15", "145"))
    path = ["[get_latest_message_id()]", "[delete_message(message_id=4)]", "[login()]"]
    answer = {"ground_truth": gold, "mile_stone": path}
    for number, valid in {18: False, 19: True}.items():
        name = f"agent_multi_step_{number}"
        entry = Entry("acebench", "agent_multi_step", "en", name, {"function": FUNCTIONS}, answer)
        verdict = check_agent(entry, kept, ["[login()]"])["strict"]
        assert (verdict.valid, verdict.metrics["process_accuracy"]) == (valid, float(valid))


@pytest.mark.parametrize(
    ("process", "path", "official", "strict"),
    [
        (tuple(STEPS), None, 1, 2 / 3),  # the model's apostrophe is not read
        (tuple(RIGHT), None, 2 / 3, 1),
        ((" [login()]\n", "\t[view(name='Eve')]", f"{STEPS[2]} "), None, 1, 2 / 3),
        ((' [ login( ) , view(name = "Eve") ]', RIGHT[2]), None, 0, 1),
        (("Now:\n[login()]", "```\n[view(name='Eve')]\n```"), None, 0, 2 / 3),
        (tuple(RIGHT), ["[login(), view(name='Eve')]", STEPS[2]], 0, 1),
        # The best of alternative paths counts; the official one is rounded.
        (tuple(STEPS[1:2]), [STEPS, STEPS[1:]], 0.5, 1 / 2),
        (tuple(STEPS[:2]), [STEPS, ["[y()]"]], 0.667, 2 / 3),
    ],
    ids=["texts of the key", "calls of the key", "spaces around", "spaces within", "words",
         "two calls in a milestone", "shorter alternative", "other alternative"],
)  # fmt: skip
def test_processes(process: Any, path: Any, official: float, strict: float) -> None:
    verdicts = judged([], process, path)
    accuracies = [verdicts[rules].metrics["process_accuracy"] for rules in ("official", "strict")]
    assert accuracies == [official, strict]


def test_processes_of_right_and_damaged_episodes() -> None:
    # A right end state makes the official process whole.
    for odd in ((), None, [None]):
        verdicts = judged(END, odd)
        assert [verdicts[rules].metrics["process_accuracy"] for rules in verdicts] == [1.0, 0]
    for damaged, raised in ((None, "TypeError"), ([1], "AttributeError"), ({"a": 1}, "KeyError")):
        verdict = judged([], damaged)["official"]
        assert (verdict.error_type, verdict.metrics["process_accuracy"]) == (CRASH, 0.0)
        assert verdict.error.endswith(f"on the process the official evaluator raises {raised}")
    for text, value in {
        "[f(a='Don't, he's off')]": "Don't, he's off",
        "[f(a='boys'')]": "boys'",
        "[f(a=[{'k': 'y's'}])]": [{"k": "y's"}],
    }.items():
        assert paths([text]) == [[Call("f", {"a": value})]]


def step(*calls: Any, observations: Any = (), errors: Any = None) -> dict[str, Any]:
    call_objects = [{"name": name, "arguments": args} for name, args in calls]
    errors = [""] * len(calls) if errors is None else list(errors)
    return {"calls": call_objects, "observations": list(observations), "errors": errors}


LOGIN: tuple[str, dict[str, Any]] = ("login", {})
VIEW, SEND = ("view", {"name": "Eve"}), ("send", {"to": "Eve", "text": "x"})
LAST, FRANK = ("send", {"to": "Eve", "text": "Domino's"}), ("view", {"name": "Frank"})
OTHER: tuple[str, dict[str, Any]] = ("other", {})
UNKNOWN = step(OTHER, errors=["unknown_tool"])


def test_causes_of_errors_are_proven_by_the_calls() -> None:
    causes: dict[str, list[Any]] = {
        "function_call_error": [
            [step(LOGIN), UNKNOWN],
            [UNKNOWN, step(("login", {"x": 1}))],
            ["[login()]", "[login(x=1)]"],
        ],
        "rule_violation": [
            [step(VIEW)],
            [step(LOGIN), step(LAST)],
            [step(LOGIN), step(SEND, observations=[{"status": False}])],
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
            [step(OTHER, VIEW, observations=["x"], errors=["failed"])],  # never ran
            [step(LOGIN), step(VIEW), step(LAST)],
            [None, 5, {"calls": 7}, {"calls": [None, {"name": 3}]}],
        ],
    }
    for expected, episodes in causes.items():
        for steps in episodes:
            texts = bool(steps) and isinstance(steps[0], str)
            verdicts = judged([], steps) if texts else judged([], steps=steps)
            assert verdicts["strict"].error_type == expected, steps
    # A batch ends before its second call.
    results = [
        {"speaker": "agent", "text": "[login()]"},
        step(LOGIN, FRANK, observations=["x"], errors=["failed"]),
        {"speaker": "execution", "text": "no questions", "errors": ["not_a_call"]},
    ]
    calls = calls_made(["[ignored()]"], results)
    called = [(call.call.name, call.error, call.observation) for call in calls]
    assert called == [("login", "failed", "x"), ("view", "not_run", None), ("", "not_a_call", None)]
    # The path that was followed furthest decides. A tool of a path is known, offered or not.
    ways = [["[send(to='a', text='b')]"], ["[login()]", "[view(name='Eve')]"]]
    for verdicts in (
        judged([], ["[login()]", "[view(name='x')]"], ways),
        judged([], ["[secret(x=2)]"], ["[secret(x=1)]"]),
    ):
        assert verdicts["strict"].error_type == "information_mismanagement"


def test_any_json_value_gets_a_verdict() -> None:
    deep: Any = 1
    for _ in range(400):
        deep = {"BaseApi": [deep]}
    value: Any
    for value in (10**4000, "x" * 100_000, [None], [{}, {}], [{"BaseApi": {"wifi": deep}}] * 2):
        steps = [{"calls": value, "observations": value, "errors": value}]
        for arguments in ({}, {"end": value, "steps": value}, {"end": value, "steps": steps}):
            verdicts = judged(value, value, **arguments)
            assert not verdicts["strict"].valid
            assert max(len(verdict.error) for verdict in verdicts.values()) < 500
            json.dumps([verdict.metrics for verdict in verdicts.values()])
    special_entry = Entry("acebench", "special_irrelevant", "en", "x", {}, "")
    with pytest.raises(ValueError, match="special_irrelevant is not an agent category"):
        check_agent(special_entry, [], [])
