"""Agent verdicts on the published rows, and on whatever a result file can hold."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from ace_ray.benchmarks.acebench.categories import AGENT

from ace_ray.benchmarks.acebench.check.agent import check_agent
from ace_ray.benchmarks.acebench.check.agent_strict import paths
from ace_ray.benchmarks.acebench.data.loader import MINI, load
from ace_ray.benchmarks.acebench.gold import gold_state, mangled_state
from ace_ray.parsing.literals import render
from ace_ray.types import RULE_SETS, Entry


def proves_itself(entries: list[Entry]) -> None:
    for entry in entries:
        for path in paths(entry.gold["mile_stone"]):
            assert all(step.name for step in path), entry.id
            good = check_agent(entry, gold_state(entry), [render([step]) for step in path])
            bad = check_agent(entry, mangled_state(entry), [])
            for rule in RULE_SETS:
                assert good[rule].metrics == {"end_to_end": 1, "process_accuracy": 1}, entry.id
                assert not bad[rule].valid, entry.id


def test_gold_paths_and_states_of_the_official_set(shared_data: Path) -> None:
    entries = load(shared_data, categories=AGENT)
    assert len(entries) == 100
    proves_itself(entries)
    lengths = Counter(len(paths(e.gold["mile_stone"])) for e in entries)
    assert lengths == {1: 90, 2: 8, 3: 2}


def test_the_official_process_of_a_wrong_end_state(shared_data: Path) -> None:
    for entry in load(shared_data, categories=AGENT):
        milestones = entry.gold["mile_stone"]
        for path in milestones if isinstance(milestones[0], list) else [milestones]:
            assert check_agent(entry, [], path)["official"].metrics["process_accuracy"] == 1
            half = check_agent(entry, [], path[: len(path) // 2])["official"]
            assert half.metrics["process_accuracy"] < 1


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"BaseApi": [value]}
    return value


HOSTILE: list[Any] = [
    None, float("nan"), 10**4000, "x" * 1_000_000, [None], [{}, {}], [{"BaseApi": None}],
    [{str(i): {}} for i in range(5_000)],
    [{"BaseApi": {"wifi": nested(400), "logged_in": nested(400)}}] * 2,
    ["[f(" + "a," * 1_000 + ")]"] * 100, ["[login_device()]"] * 2_000,
]  # fmt: skip


@pytest.mark.nightly
@pytest.mark.parametrize("value", HOSTILE, ids=range(len(HOSTILE)))
def test_any_json_value_gets_a_verdict(value: Any) -> None:
    for entry in load(MINI, languages=["en"], categories=["agent_multi_step"])[:2]:
        steps = [{"calls": value, "observations": value, "errors": value}]
        for given in (
            {"result": value, "process": value},
            {"result": [], "process": [], "end": value, "steps": value},
            {"result": value, "process": value, "end": value, "steps": steps},
        ):
            found = check_agent(entry, **given)
            assert not found["strict"].valid
            for rule in RULE_SETS:
                # [{}, {}]: the official rules compare no class, and nothing was wrong before
                assert not found[rule].valid or given["result"] == [{}, {}]
                assert len(found[rule].error) < 500
                assert 0 <= found[rule].metrics["process_accuracy"] <= 1
                json.dumps(found[rule].metrics)
