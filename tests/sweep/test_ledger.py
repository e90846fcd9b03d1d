"""The ledger's line of a run, from what its folder holds."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ace_ray.pipeline.monitoring.timing import STATES
from ace_ray.storage.object_store import LocalStore
from ace_ray.sweep.ledger import (
    LEDGER,
    CostRecord,
    cost_record,
    read_ledger,
    still_valid,
    write_ledger,
)
from ace_ray.sweep.runs import SweepRun

TIMING = {
    "device": "gpu",
    "devices": 2,
    "loads": [{"how": "fresh"}],
    "device_s": {"load": 60.0, "warm_up": 4.0, "generation": 800.0, "tool": 30.0, "idle": 6.0},
}


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(str(tmp_path))


def run(**more: Any) -> SweepRun:
    plan: Any = SimpleNamespace(run_id="r1")
    return SweepRun("step 5", 5, "/c/step_5", plan, parameters=7, **more)


def put(store: LocalStore, *, timing: Any = TIMING, **changes: Any) -> None:
    summary = {
        "complete": True,
        "why": "",
        "scored": 500,
        "declared": 500,
        "tokens": {"prompt": 1000, "completion": 50},
        "timing": timing,
    }
    store.put("r1/summary.json", json.dumps({**summary, **changes}).encode())


def test_a_whole_run(store: LocalStore) -> None:
    put(store)
    line = cost_record(run(), store, 3.6)
    assert asdict(line) == {
        "label": "step 5",
        "step": 5,
        "source": "/c/step_5",
        "run_id": "r1",
        "state": "complete",
        "note": "",
        "engine": "fresh",
        "device": "gpu",
        "devices": 2,
        "parameters": 7,
        "seconds": TIMING["device_s"],
        "entries": 500,
        "tokens": {"prompt": 1000, "completion": 50},
        "cost": 0.9,
        "per_1000": {"device_s": 1800.0, "cost": 1.8},
    }


DEATHS = ["h:1: an earlier one", "h:2: the swap to r1 failed: the weights are others"]
NOTHING_DONE = {
    "state": "complete",
    "engine": "",
    "cost": 0.0,
    "seconds": dict.fromkeys(STATES, 0.0),
}


def loads(*how: str, **more: Any) -> dict[str, Any]:
    return {"timing": {**TIMING, "loads": [{"how": one} for one in how], **more}}


@pytest.mark.parametrize(
    ("summary", "price", "expected"),
    [
        ({}, None, {"cost": None, "per_1000": {"device_s": 1800.0, "cost": None}}),
        ({}, 0.0, {"cost": 0.0}),
        (
            {"complete": False, "why": "3 of 500 rows have no verdict", "scored": 497},
            None,
            {"state": "incomplete", "note": "3 of 500 rows have no verdict", "entries": 497},
        ),
        ({"complete": False, "scored": 0}, 1.0, {"per_1000": {}, "cost": 0.25}),
        ({"timing": {}}, 1.0, NOTHING_DONE),
        ({"timing": {"loads": None, "device_s": None}}, 1.0, NOTHING_DONE),
        # How the weights came is how they came last; a restart says why.
        (loads("fresh", "swapped"), None, {"engine": "swapped"}),
        (loads("restarted", engine_deaths=DEATHS), None, {"note": DEATHS[-1]}),
    ],
)
def test_a_run_with_a_summary(
    store: LocalStore, summary: dict[str, Any], price: float | None, expected: dict[str, Any]
) -> None:
    put(store, **summary)
    line = asdict(cost_record(run(), store, price))
    assert {key: line[key] for key in expected} == expected


@pytest.mark.parametrize(
    ("sweep_run", "state", "note"),
    [
        (run(), "pending", ""),
        (SweepRun("step 5", 5, "/c/step_5", refused="torn"), "refused", "torn"),
        (SweepRun("step 5", 5, "/c/step_5", awaited="being written"), "pending", "being written"),
    ],
)
def test_a_run_that_has_not_begun(
    store: LocalStore, sweep_run: SweepRun, state: str, note: str
) -> None:
    line = cost_record(sweep_run, store, 1.0)
    assert (line.state, line.note, line.run_id) == (state, note, sweep_run.run_id)
    assert (line.engine, line.cost, line.seconds) == ("", None, {})


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b"null", b"\xff", b"3", b'{"a": 1}'])
def test_a_summary_that_is_none(store: LocalStore, content: bytes) -> None:
    store.put("r1/summary.json", content)
    assert cost_record(run(), store, 1.0).state == "pending"


class TestKept:
    def line(self, store: LocalStore, name: str, step: int, **changes: Any) -> CostRecord:
        store.put(f"{name}/_SUCCESS", b"")
        line = CostRecord(f"step {step}", step, f"/c/step_{step}", name, "complete")
        return replace(line, **changes)

    def test_finished_runs_that_are_no_part_of_this_call(self, store: LocalStore) -> None:
        gone, still = self.line(store, "r1", 1), self.line(store, "r2", 2)
        assert still_valid([gone, still], [still], store) == [gone]
        store.delete("r1/_SUCCESS")
        assert still_valid([gone, still], [still], store) == []

    def test_not_what_was_never_whole(self, store: LocalStore) -> None:
        failed = self.line(store, "r1", 1, state="failed")
        assert still_valid([failed], [], store) == []

    def test_not_what_its_checkpoint_was_before_it_changed(self, store: LocalStore) -> None:
        before, after = self.line(store, "r1", 1), self.line(store, "r2", 1)
        assert still_valid([before], [after], store) == []
        # A folder that is falling apart does not take the result along.
        torn = replace(after, run_id="", state="refused")
        assert still_valid([before], [torn], store) == [before]

    def test_it_is_read_as_it_was_written(self, store: LocalStore) -> None:
        assert read_ledger(store) == ([], set())
        lines = [self.line(store, "r1", 1), CostRecord("a", None, "s", "r")]
        write_ledger(store, lines, {3, 1})
        assert read_ledger(store) == (lines, {1, 3})


def test_the_file(store: LocalStore) -> None:
    lines = [CostRecord("a", None, "s", "r"), CostRecord("b\ud800", 3, "s", "", note="«x»")]
    write_ledger(store, lines)
    tree = json.loads(store.get(LEDGER) or b"")
    assert tree["schema_version"] == 1
    assert tree["runs"] == [asdict(line) for line in lines]
