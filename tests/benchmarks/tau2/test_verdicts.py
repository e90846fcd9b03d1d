"""The parts of a reward under both rule sets, with the accidents that tell them apart."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from ace_ray.benchmarks.tau2.benchmark import Tau2
from ace_ray.benchmarks.tau2.tasks import call, gold_episode, silent_episode
from ace_ray.benchmarks.tau2.verdicts import (
    Judged,
    Replayed,
    is_told,
    official_parts,
    strict_parts,
    verdicts,
)
from ace_ray.types import Entry, Episode
from tests.benchmarks.tau2.scripted import entry_of, made

FINE = Replayed(same=True, same_by_value=True)


def turn(role: str, text: str = "", *calls: tuple[str, Any], failed: bool = False) -> list[Any]:
    message: dict[str, Any] = {"role": role, "content": text}
    if not calls:
        return [message]
    message["tool_calls"] = [
        {"id": str(i), "name": name, "arguments": json.dumps(given)}
        for i, (name, given) in enumerate(calls)
    ]
    results = [
        {"role": "tool", "id": str(i), "requestor": role, "content": "x", "error": failed}
        for i in range(len(calls))
    ]
    return [message, *results]


def parts(criteria: dict[str, Any], *turns: list[Any], solo: bool = False) -> tuple[float, float]:
    judged = Judged("user_stop", True, [message for one in turns for message in one])
    return (
        official_parts(criteria, judged, FINE).reward,
        strict_parts(criteria, judged, FINE, solo=solo).reward,
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
        (action(a=1, b=2), {}, (1, 0)),  # none is
        (action(a=1), {"a": 1, "b": 2}, (0, 0)),
        (action(a=1), {"a": 1.0}, (1, 1)),
        (action(a=1), {"a": "1"}, (0, 0)),
        (action(["a"], a=1, b=2), {"a": 1, "b": 3}, (1, 1)),
        (action(["a"], a=1, b=2), {"b": 2}, (0, 0)),
        (action([], a=1), {"a": 9, "z": 1}, (1, 1)),
    ],
)
def test_actions(criteria: Any, given: Any, expected: tuple[int, int]) -> None:
    assert parts(criteria, turn("assistant", "", ("f", given))) == expected


def test_who_calls_and_whether_it_failed_counts_strictly() -> None:
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
        ("1628", "That is $1,628.", (1, 1)),
        ("1628", "That is $1,628.00", (1, 1)),
        ("1628", "That is $1,628.50", (1, 0)),
        ("327", "$327.00", (1, 1)),
        ("41.64", "It costs 41.64.", (1, 1)),
        ("41.6", "It costs 41.60", (1, 1)),
        ("1,628", "1,628", (0, 1)),  # upstream takes the commas out of the text alone
        ("Delta", "the delta flight", (1, 1)),
        ("on  time", "It is on time", (0, 1)),
        ("five", "fiverr", (1, 0)),
    ],
)
def test_what_is_said(info: str, text: str, expected: tuple[int, int]) -> None:
    assert parts(told(info), turn("assistant", text)) == expected


def test_a_text_beside_calls_is_not_heard() -> None:
    assert parts(told("42"), turn("assistant", "42", ("f", {}))) == (1, 0)
    assert parts(told("42"), turn("user", "42")) == (0, 0)


def test_numbers_of_their_own() -> None:
    assert is_told("", "anything")
    assert is_told("0", "0")
    assert is_told("0", "0.00")
    assert not is_told("0", "0.5")
    assert not is_told("5", "3.5")
    assert not is_told("3", "3.5")
    assert is_told("3", "3.")
    assert is_told("-5", "it is -5 now")
    assert is_told("12", "12%")
    assert not is_told("12", "a12")
    assert is_told("12", "#12")
    assert not is_told("1234", "1,2345")
    assert is_told("a.b", "see a.b")
    assert not is_told("a.b", "see aab")


def test_by_upstreams_hash_and_by_value() -> None:
    criteria = {"actions": [], "reward_basis": ["DB"]}
    judged = Judged("user_stop", True, [])
    replay = Replayed(same=False, same_by_value=True)
    assert official_parts(criteria, judged, replay).reward == 0
    assert strict_parts(criteria, judged, replay, solo=False).reward == 1


@pytest.fixture(scope="module")
def benchmark(package: object) -> Tau2:
    return made(domains=["airline", "retail", "telecom", "telecom_solo", "mock"])


@pytest.mark.nightly
def test_gold_paths_score_and_mangled_ones_do_not(benchmark: Tau2) -> None:
    for name in ("airline", "retail", "telecom", "telecom_solo"):
        entries = [one for one in benchmark.dataset() if one.category == name][::10]
        for entry in entries:
            gold = benchmark.verdicts(entry, gold_episode(benchmark.scenario(entry), entry))
            assert all(verdict.valid for verdict in gold.values()), entry.id
            if benchmark.verdicts(entry, silent_episode(entry))["official"].valid:
                continue
            episode = gold_episode(benchmark.scenario(entry), entry)
            nothing = {**(entry.gold or {}), "actions": [], "communicate_info": []}
            undone = gold_episode(benchmark.scenario(entry), replace(entry, gold=nothing))
            assert not benchmark.verdicts(entry, undone)["official"].valid, entry.id
            for how in ("max_steps", "agent_error", "context"):
                ended = {**episode.state, "ended": how, "stopped": False}
                verdict = benchmark.verdicts(entry, Episode(state=ended))["official"]
                assert (verdict.valid, verdict.error_type) == (False, how)


@pytest.mark.nightly
def test_the_metrics_are_the_parts_of_the_reward(benchmark: Tau2) -> None:
    entry = entry_of(benchmark, "retail", "0")
    verdict = benchmark.verdicts(entry, silent_episode(entry))["official"]
    assert verdict.error_type == "db_mismatch"
    assert verdict.metrics == {"db": 0.0, "communicate": 1.0}
    entry = entry_of(benchmark, "telecom")
    verdict = benchmark.verdicts(entry, silent_episode(entry))["official"]
    assert verdict.error_type == "assertion_failed"
    assert verdict.metrics == {"env_assertion": 0.0}


def test_a_task_without_actions_and_assertions_has_no_db_part(benchmark: Tau2) -> None:
    entry = entry_of(benchmark, "retail", "0")
    criteria = {"communicate_info": ["42"], "reward_basis": ["DB", "ENV_ASSERTION", "COMMUNICATE"]}
    entry = replace(entry, gold=criteria)
    for verdict in benchmark.verdicts(entry, silent_episode(entry)).values():
        assert verdict.error_type == "not_communicated"
        assert verdict.metrics == {"communicate": 0.0}
    entry = replace(entry, gold={**criteria, "actions": []})
    verdict = benchmark.verdicts(entry, silent_episode(entry))["official"]
    assert verdict.metrics == {"db": 1.0, "env_assertion": 1.0, "communicate": 0.0}


def test_a_result_that_was_not_given_has_no_reward(benchmark: Tau2) -> None:
    entry = entry_of(benchmark, "retail", "0")
    episode = gold_episode(benchmark.scenario(entry), entry)
    result = next(m for m in episode.state["trajectory"] if m["role"] == "tool")
    result["content"] = "made up"
    verdict = benchmark.verdicts(entry, episode)["official"]
    assert (verdict.valid, verdict.error_type) == (False, "replay_failed")


@pytest.mark.parametrize("fault", ["no result", "another's", "twice", "not at once", "a user"])
def test_a_record_that_upstream_does_not_replay_has_no_reward(benchmark: Tau2, fault: str) -> None:
    entry = entry_of(benchmark, "telecom_solo")
    trajectory = list(gold_episode(benchmark.scenario(entry), entry).state["trajectory"])
    at = next(place for place, m in enumerate(trajectory) if m["role"] == "tool")
    if fault == "no result":
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


def test_amounts_count_by_value_strictly(benchmark: Tau2) -> None:
    """A gold call with 2 where the database gets 2.0: other texts, other hashes."""
    entry = entry_of(benchmark, "airline")
    scenario = benchmark.scenario(entry)
    given = {
        "reservation_id": "EHGLP3",
        "total_baggages": 1,
        "nonfree_baggages": 0,
        "payment_id": "gift_card_9562694",
    }
    same = {**given, "total_baggages": 1.0}
    gold = {"action_id": "1", "name": "update_reservation_baggages", "arguments": given}
    criteria = {"actions": [gold], "reward_basis": ["DB"]}
    entry = replace(entry, gold=criteria)
    trajectory = list(call(scenario, "assistant", "1", "update_reservation_baggages", same))
    assert not trajectory[1]["error"], trajectory[1]
    state = {"trajectory": trajectory, "ended": "user_stop", "stopped": True}
    found = benchmark.verdicts(entry, Episode(state=state))
    assert (found["official"].valid, found["strict"].valid) == (False, True)


def test_a_number_that_was_there_counts_by_value(benchmark: Tau2) -> None:
    """A record that is set to what it was, as 5.0 in place of 5; the gold path leaves it alone."""
    entry = replace(entry_of(benchmark, "airline"), gold={"actions": [], "reward_basis": ["DB"]})
    scenario = benchmark.scenario(entry)
    asked = {"requestor": "assistant", "arguments": {"reservation_id": "EHGLP3"}, "last": True}
    details = scenario.call("get_reservation_details", asked)
    held = json.loads(str(details.value))
    for bags, expected in ((0.0, (False, True)), (1.0, (False, False))):
        given = {
            "reservation_id": "EHGLP3",
            "total_baggages": int(held["total_baggages"]) + bags,
            "nonfree_baggages": 0,
            "payment_id": "gift_card_9562694",
        }
        fresh = benchmark.scenario(entry)
        trajectory = list(call(fresh, "assistant", "1", "update_reservation_baggages", given))
        assert not trajectory[1]["error"], trajectory[1]
        state = {"trajectory": trajectory, "ended": "user_stop", "stopped": True}
        found = benchmark.verdicts(entry, Episode(state=state))
        assert (found["official"].valid, found["strict"].valid) == expected


def test_a_state_of_nobodys_is_no_end(benchmark: Tau2) -> None:
    entry: Entry = entry_of(benchmark, "airline")
    sources = benchmark._sources["airline"]
    states: list[Any] = [None, {}, [], {"ended": "user_stop!"}]
    for state in states:
        found = verdicts(entry, state, sources, solo=False)
        assert not any(verdict.valid for verdict in found.values())
