"""The official verdict on agent rows: every rule and quirk on a small gold state."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

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


def changed(place: tuple[Any, ...], value: Any) -> Any:
    state = deepcopy(GOLD)
    target: Any = state
    for key in place[:-1]:
        target = target[key]
    if value is KeyError:
        del target[place[-1]]
    else:
        target[place[-1]] = value
    return state


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        (GOLD, ""),
        (GOLD[::-1], ""),
        ([], COUNT),
        (GOLD[:1], COUNT),
        ([*GOLD, GOLD[0]], COUNT),
        (changed((0, "BaseApi", "wifi"), False), ATTRIBUTES),
        (changed((0, "BaseApi", "wifi"), 1), ""),
        (changed((0, "BaseApi", "wifi"), 1.0), ""),
        (changed((0, "BaseApi", "wifi"), "True"), ATTRIBUTES),
        (changed((0, "BaseApi", "wifi"), KeyError), ""),
        (changed((0, "BaseApi", "more"), 1), ATTRIBUTES),
        (changed((0, "BaseApi"), {}), ""),
        (changed((1, "MessageApi", "orders"), [2, 1]), ATTRIBUTES),
        (changed((1, "MessageApi", "orders"), [1, 2, 3]), ATTRIBUTES),
        (changed((1, "MessageApi", "inbox", "3"), {"message": "more"}), ""),
        (changed((1, "MessageApi", "inbox", "2"), KeyError), ATTRIBUTES),
        (changed((1, "MessageApi", "inbox", "2", "time"), "now"), ATTRIBUTES),
        # Of two entries with the same name the first counts.
        ([GOLD[1], GOLD[1]], ""),
        ([changed((1, "MessageApi", "orders"), [])[1], GOLD[1]], ATTRIBUTES),
    ],
)
def test_states(state: Any, kind: str) -> None:
    assert verdict(state)[0] == kind


def test_a_renamed_class_gets_the_verdict_of_the_class_before() -> None:
    wrong = {"wifi": None}
    assert verdict([{"Other": wrong}, GOLD[1]])[0] == ""
    assert verdict([GOLD[0], {"Other": wrong}])[0] == ""
    assert verdict([{"BaseApi": wrong}, {"Other": {}}])[0] == ATTRIBUTES
    assert verdict([{"Other": wrong}, {"Another": wrong}])[0] == ""
    # Names are compared as sets of keys; attributes are the first key's.
    two = [{"BaseApi": {"wifi": 0}, "X": {}}, GOLD[1]]
    assert verdict(two)[0] == ""
    both = [{"BaseApi": {"wifi": True}, "X": {"y": 1}}]
    assert verdict([{"X": {"wifi": True}, "BaseApi": 1}], gold=both)[0] == ""


@pytest.mark.parametrize(
    ("state", "raised"),
    [
        (None, "TypeError"),
        (7, "TypeError"),
        ("ab", "AttributeError"),
        ({"a": 1, "b": 2}, "AttributeError"),
        ([None, None], "AttributeError"),
        ([["BaseApi"], GOLD[1]], "AttributeError"),
        (changed((0, "BaseApi"), ["wifi"]), "AttributeError"),
        (changed((1, "MessageApi", "inbox"), None), "TypeError"),
        (changed((1, "MessageApi", "inbox"), ["1", "2"]), "TypeError"),
        (changed((1, "MessageApi", "inbox"), "12"), "TypeError"),
    ],
)
def test_where_the_evaluator_raises_the_row_is_invalid(state: Any, raised: str) -> None:
    kind, _, error = verdict(state)
    assert (kind, error) == ("official_crash", f"the official evaluator raises {raised}")


@pytest.mark.parametrize(
    ("process", "accuracy"),
    [
        ((), 0),
        (("[a()]", "[b(x='1')]", "[c()]"), 1),
        ((" [a()]\n", "\t[b(x='1')]", "[c()] "), 1),
        (("[x()]", "[a()]", "[a()]", "[x()]", "[b(x='1')]", "[c()]"), 1),
        (("[a()]", "[c()]"), 1 / 3),  # [b] is looked for to the end, so [c] is never found
        (("[b(x='1')]", "[c()]"), 0),
        (("[a()]", '[b(x="1")]', "[c()]"), 1 / 3),
        (("[a()]", "[b(x= '1')]", "[c()]"), 1 / 3),
        (("[a()]", "[b(x='1')]"), 2 / 3),
        ("[a()]", 0),
    ],
)
def test_the_process_is_a_subsequence_of_texts(process: Any, accuracy: float) -> None:
    assert verdict([], process)[1] == accuracy


def test_the_best_alternative_counts_rounded() -> None:
    alternatives = [["[x()]"], STEPS, ["[a()]", "[y()]"]]
    assert verdict([], ("[a()]", "[b(x='1')]"), steps=alternatives)[1] == 0.667
    assert verdict([], ("[a()]",), steps=alternatives)[1] == 0.5
    assert verdict([], ("[x()]",), steps=alternatives)[1] == 1.0


def test_a_right_end_state_makes_the_process_whole() -> None:
    for process in ((), None, 5, [None]):
        assert verdict(GOLD, process)[:2] == ("", 1.0)


@pytest.mark.parametrize(
    ("process", "raised"), [(None, "TypeError"), ([1], "AttributeError"), ({"a": 1}, "KeyError")]
)
def test_a_process_on_which_the_evaluator_raises(process: Any, raised: str) -> None:
    kind, accuracy, error = verdict([], process)
    assert (kind, accuracy) == ("official_crash", 0.0)
    assert error.endswith(f"on the process the official evaluator raises {raised}")
    # What comes before the odd element may be enough.
    assert verdict([], ["[a()]", "[b(x='1')]", "[c()]", None])[1] == 1
