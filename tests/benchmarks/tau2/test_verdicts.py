"""The parts of a reward under both rule sets, with the accidents that tell them apart."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from ace_ray.benchmarks.tau2.benchmark import Tau2
from ace_ray.benchmarks.tau2.gold import call, gold_episode, silent_episode
from ace_ray.benchmarks.tau2.verdicts import (
    Judged,
    Replayed,
    is_told,
    official_parts,
    strict_parts,
)
from ace_ray.types import Episode
from tests.benchmarks.tau2.scripted import entry_of, made


def turn(role: str, text: str = "", *calls: tuple[str, Any], failed: bool = False) -> list[Any]:
    made = [
        {"id": str(i), "name": name, "arguments": json.dumps(given)}
        for i, (name, given) in enumerate(calls)
    ]
    result = {"role": "tool", "requestor": role, "content": "x", "error": failed}
    message = {"role": role, "content": text, **({"tool_calls": made} if made else {})}
    return [message, *({**result, "id": one["id"]} for one in made)]


def parts(
    criteria: dict[str, Any],
    *turns: list[Any],
    solo: bool = False,
    replay: Replayed | None = None,
) -> tuple[float, float]:
    judged = Judged("user_stop", True, [message for one in turns for message in one])
    replay = replay or Replayed(same=True, same_by_value=True)
    return (
        official_parts(criteria, judged, replay).reward,
        strict_parts(criteria, judged, replay, solo=solo).reward,
    )


def action(compare: list[str] | None = None, **arguments: Any) -> dict[str, Any]:
    gold = {"action_id": "1", "name": "f", "arguments": arguments, "requestor": "assistant"}
    if compare is not None:
        gold["compare_args"] = compare
    return {"actions": [gold], "reward_basis": ["ACTION"]}


@pytest.mark.parametrize(
    ("criteria", "given", "expected"),
    [
        (action(a=1, b=2), {"a": 1, "b": 2}, (1, 1)),
        (action(a=1, b=2), {"a": 1}, (1, 0)),  # fewer arguments are compared
        (action(a=1), {"a": 1, "b": 2}, (0, 0)),
        (action(a=1), {"a": 1.0}, (1, 1)),
        (action(a=1), {"a": "1"}, (0, 0)),
        (action(["a"], a=1, b=2), {"a": 1, "b": 3}, (1, 1)),
        (action(["a"], a=1, b=2), {"b": 2}, (0, 0)),
        (action([], a=1), {"a": 9, "z": 1}, (1, 1)),
    ],
)
def test_arguments_of_actions(criteria: Any, given: Any, expected: tuple[int, int]) -> None:
    assert parts(criteria, turn("assistant", "", ("f", given))) == expected


def test_side_and_success_of_a_call_count_strictly() -> None:
    criteria = action(a=1)
    assert parts(criteria, turn("user", "", ("f", {"a": 1}))) == (1, 0)
    assert parts(criteria, turn("user", "", ("f", {"a": 1})), solo=True) == (1, 1)
    assert parts(criteria, turn("assistant", "", ("f", {"a": 1}), failed=True)) == (1, 0)
    assert parts(criteria, turn("assistant", "", ("g", {"a": 1}))) == (0, 0)


def told(info: str) -> dict[str, Any]:
    return {"communicate_info": [info], "reward_basis": ["COMMUNICATE"]}


@pytest.mark.parametrize(
    ("info", "text", "expected"),
    [
        ("4", "You have 4 bags.", (1, 1)),
        ("4", "It is 14:30.", (1, 0)),  # any 4 will do
        ("1628", "That is $1,628.00", (1, 1)),
        ("1628", "That is $1,628.50", (1, 0)),
        ("41.6", "It costs 41.60", (1, 1)),
        ("1,628", "1,628", (0, 1)),  # upstream takes the commas out of the text alone
        ("Delta", "the delta flight", (1, 1)),
        ("on  time", "It is on time", (0, 1)),
    ],
)
def test_what_is_said(info: str, text: str, expected: tuple[int, int]) -> None:
    assert parts(told(info), turn("assistant", text)) == expected


def test_words_and_numbers_of_their_own() -> None:
    assert parts(told("42"), turn("assistant", "42", ("f", {}))) == (1, 0), "not heard by the user"
    assert parts(told("42"), turn("user", "42")) == (0, 0)
    held = [
        ("", "x"),
        ("0", "0.00"),
        ("3", "3."),
        ("-5", "it is -5"),
        ("12", "12%"),
        ("a.b", "a.b"),
    ]
    within = [("0", "0.5"), ("5", "3.5"), ("3", "3.5"), ("12", "a12"), ("1234", "1,2345")]
    assert [is_told(*pair) for pair in held] == [True] * len(held)
    assert [is_told(*pair) for pair in (*within, ("a.b", "aab"))] == [False] * (len(within) + 1)


def test_equal_by_hash_or_by_value() -> None:
    criteria = {"actions": [], "reward_basis": ["DB"]}
    assert parts(criteria, replay=Replayed(same=False, same_by_value=True)) == (0, 1)


@pytest.fixture(scope="module")
def benchmark(package: object) -> Tau2:
    return made(domains=["airline", "retail", "telecom", "telecom_solo", "mock"])


@pytest.mark.nightly
def test_the_metrics_are_the_parts_of_the_reward(benchmark: Tau2) -> None:
    for entry, kind, metrics in (
        (entry_of(benchmark, "retail", "0"), "db_mismatch", {"db": 0.0, "communicate": 1.0}),
        (entry_of(benchmark, "telecom"), "assertion_failed", {"env_assertion": 0.0}),
    ):
        verdict = benchmark.verdicts(entry, silent_episode(entry))["official"]
        assert (verdict.error_type, verdict.metrics) == (kind, metrics)


def test_a_task_without_actions_and_assertions_has_no_db_part(benchmark: Tau2) -> None:
    entry = entry_of(benchmark, "mock")
    criteria = {"communicate_info": ["42"], "reward_basis": ["DB", "ENV_ASSERTION", "COMMUNICATE"]}
    entry = replace(entry, gold=criteria)
    for verdict in benchmark.verdicts(entry, silent_episode(entry)).values():
        assert verdict.error_type == "not_communicated"
        assert verdict.metrics == {"communicate": 0.0}
    entry = replace(entry, gold={**criteria, "actions": []})
    verdict = benchmark.verdicts(entry, silent_episode(entry))["official"]
    assert verdict.metrics == {"db": 1.0, "env_assertion": 1.0, "communicate": 0.0}


FAULTS = ["made up", "no result", "another's", "twice", "not at once", "a user"]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_record_that_upstream_does_not_replay_has_no_reward(benchmark: Tau2, fault: str) -> None:
    entry = entry_of(benchmark, "telecom_solo")
    trajectory = list(gold_episode(benchmark.scenario(entry), entry).state["trajectory"])
    at = next(place for place, m in enumerate(trajectory) if m["role"] == "tool")
    if fault == "made up":
        trajectory[at] = {**trajectory[at], "content": "made up"}
    elif fault == "no result":
        del trajectory[at]
    elif fault == "another's":
        trajectory[at] = {**trajectory[at], "id": "other"}
    elif fault == "twice":
        trajectory.insert(at, trajectory[at])
    elif fault == "not at once":
        trajectory.insert(at, {"role": "assistant", "content": "Wait."})
    else:
        trajectory.insert(0, {"role": "user", "content": "Hi"})
    state = {"trajectory": trajectory, "ended": "agent_stop", "stopped": True}
    verdict = benchmark.verdicts(entry, Episode(state=state))["official"]
    assert (verdict.valid, verdict.error_type) == (False, "replay_failed")


def test_another_end_is_the_error(benchmark: Tau2) -> None:
    entry = entry_of(benchmark, "mock")
    gold = gold_episode(benchmark.scenario(entry), entry)
    assert all(verdict.valid for verdict in benchmark.verdicts(entry, gold).values())
    for how in ("max_steps", "agent_error", "context"):
        ended = {**gold.state, "ended": how, "stopped": False}
        for verdict in benchmark.verdicts(entry, Episode(state=ended)).values():
            assert (verdict.valid, verdict.error_type) == (False, how)
    states: list[Any] = [None, {}, [], {"ended": "user_stop!"}]
    for state in states:
        found = benchmark.verdicts(entry, Episode(state=state))
        assert not any(verdict.valid for verdict in found.values())


@pytest.mark.parametrize(
    ("gold_bags", "bags", "expected"),
    [
        (1, 1.0, (False, True)),  # other texts, other hashes
        (None, 0.0, (False, True)),  # set to what it was, as 5.0 in place of 5
        (None, 1.0, (False, False)),
    ],
)
def test_amounts_count_by_value_strictly(
    benchmark: Tau2, gold_bags: int | None, bags: float, expected: tuple[bool, bool]
) -> None:
    booked, name = {"reservation_id": "EHGLP3"}, "update_reservation_baggages"
    entry = entry_of(benchmark, "airline")
    scenario = benchmark.scenario(entry)
    asked = {"requestor": "assistant", "arguments": booked, "last": True}
    details = scenario.call("get_reservation_details", asked)
    held = int(json.loads(str(details.value))["total_baggages"])
    more = {"nonfree_baggages": 0, "payment_id": "gift_card_9562694"}
    actions = []
    if gold_bags is not None:
        gold = {**booked, "total_baggages": held + gold_bags, **more}
        actions = [{"action_id": "1", "name": name, "arguments": gold}]
    entry = replace(entry, gold={"actions": actions, "reward_basis": ["DB"]})
    given = {**booked, "total_baggages": held + bags, **more}
    trajectory = list(call(scenario, "assistant", "1", name, given))
    assert not trajectory[1]["error"], trajectory[1]
    state = {"trajectory": trajectory, "ended": "user_stop", "stopped": True}
    found = benchmark.verdicts(entry, Episode(state=state))
    assert (found["official"].valid, found["strict"].valid) == expected
