"""The official verdict on agent rows: every rule and quirk on a small gold state."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from ace_ray.benchmarks.acebench.check.agent import official as judge

COUNT, ATTRIBUTES = "wrong number of class", "class attributes wrong"
GOLD: list[dict[str, Any]] = [
    {"BaseApi": {"wifi": True, "logged_in": False}},
    {"MessageApi": {"inbox": {"1": {"message": "hi"}, "2": {"message": "yo"}}, "orders": [1, 2]}},
]
STEPS = ["[a()]", "[b(x='1')] ", "[c()]"]


def verdict(result: Any, process: Any = (), gold: Any = None, steps: Any = None) -> tuple[Any, ...]:
    row = {"ground_truth": gold or GOLD, "mile_stone": steps or STEPS}
    found = judge(row, result, list(process) if isinstance(process, tuple) else process)
    assert found.valid == (found.error_type == "") == (found.metrics["end_to_end"] == 1)
    assert found.valid == (found.error == "")
    return found.error_type, found.metrics["process_accuracy"], found.error


def changed(value: Any, *place: Any) -> Any:
    """Return the gold state with another value at a place; `KeyError` removes it."""
    state = deepcopy(GOLD)
    target: Any = state
    for key in place[:-1]:
        target = target[key]
    target[place[-1]] = value
    if value is KeyError:
        del target[place[-1]]
    return state


WIFI, INBOX, ORDERS = (
    (0, "BaseApi", "wifi"),
    (1, "MessageApi", "inbox"),
    (1, "MessageApi", "orders"),
)
STATES = [
    (GOLD[::-1], ""),
    ([], COUNT),
    ([*GOLD, GOLD[0]], COUNT),
    (changed(False, *WIFI), ATTRIBUTES),
    (changed(1.0, *WIFI), ""),
    (changed(KeyError, *WIFI), ""),
    (changed(1, 0, "BaseApi", "more"), ATTRIBUTES),
    (changed([2, 1], *ORDERS), ATTRIBUTES),
    (changed({"message": "more"}, *INBOX, "3"), ""),
    (changed(KeyError, *INBOX, "2"), ATTRIBUTES),
    (changed("now", *INBOX, "2", "time"), ATTRIBUTES),
    # Of two entries with the same name the first counts.
    ([GOLD[1], GOLD[1]], ""),
    ([changed([], *ORDERS)[1], GOLD[1]], ATTRIBUTES),
    # A renamed class gets the verdict of the class before.
    ([{"Other": {"wifi": None}}, GOLD[1]], ""),
    ([{"BaseApi": {"wifi": None}}, {"Other": {}}], ATTRIBUTES),
]


def test_states() -> None:
    for number, (state, kind) in enumerate(STATES):
        assert verdict(state)[0] == kind, number
    # Names are compared as sets of keys; attributes are the first key's.
    both = [{"BaseApi": {"wifi": True}, "X": {"y": 1}}]
    assert verdict([{"X": {"wifi": True}, "BaseApi": 1}], gold=both)[0] == ""


def test_a_state_on_which_the_evaluator_raises_is_invalid() -> None:
    states: list[tuple[Any, str]] = [
        (None, "TypeError"),
        ([None, None], "AttributeError"),
        (changed(["wifi"], 0, "BaseApi"), "AttributeError"),
        (changed(None, *INBOX), "TypeError"),
        (changed(["1", "2"], *INBOX), "TypeError"),
    ]
    for state, raised in states:
        error = f"the official evaluator raises {raised}"
        assert verdict(state)[::2] == ("official_crash", error), state


PROCESSES: list[tuple[Any, float]] = [
    ((), 0),
    ((" [a()]\n", "\t[b(x='1')]", "[c()] "), 1),
    (("[x()]", "[a()]", "[a()]", "[x()]", "[b(x='1')]", "[c()]"), 1),
    (("[a()]", "[c()]"), 1 / 3),  # [b] is looked for to the end, so [c] is never found
    (("[b(x='1')]", "[c()]"), 0),
    (("[a()]", "[b(x= '1')]", "[c()]"), 1 / 3),
    ("[a()]", 0),
]


def test_the_process_is_a_subsequence_of_texts() -> None:
    for process, accuracy in PROCESSES:
        assert verdict([], process)[1] == accuracy, process


def test_alternatives_and_odd_processes() -> None:
    # The best alternative counts, rounded.
    alternatives = [["[x()]"], STEPS, ["[a()]", "[y()]"]]
    assert verdict([], ("[a()]", "[b(x='1')]"), steps=alternatives)[1] == 0.667
    assert verdict([], ("[a()]",), steps=alternatives)[1] == 0.5
    # A right end state makes the process whole.
    for process in ((), None, 5, [None]):
        assert verdict(GOLD, process)[:2] == ("", 1.0)
    odd: list[tuple[Any, str]] = [
        (None, "TypeError"),
        ([1], "AttributeError"),
        ({"a": 1}, "KeyError"),
    ]
    for process, raised in odd:
        kind, accuracy, error = verdict([], process)
        assert (kind, accuracy) == ("official_crash", 0.0)
        assert error.endswith(f"on the process the official evaluator raises {raised}")
    # What comes before the odd element may be enough.
    assert verdict([], ["[a()]", "[b(x='1')]", "[c()]", None])[1] == 1
