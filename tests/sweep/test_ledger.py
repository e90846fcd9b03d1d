"""The ledger of a sweep: state and cost of each run, from the files of its folder."""

import json
from dataclasses import asdict
from types import SimpleNamespace
from typing import Any

import pytest

from ace_ray.pipeline.monitoring.timing import STATES
from ace_ray.storage.object_store import LocalStore
from ace_ray.sweep import ledger
from ace_ray.sweep.runs import SweepEntry

SECONDS = {"load": 60.0, "warm_up": 4.0, "generation": 800.0, "tool": 30.0, "idle": 6.0}
TIMING = {"device": "gpu", "devices": 2, "loads": [{"how": "fresh"}], "device_s": SECONDS}
LOADS = [{"how": "fresh"}, {"how": "restarted"}]
DEATHS = ["h:1: an earlier one", "h:2: the swap to r1 failed: the weights are others"]
NOTHING_DONE = {"state": "complete", "engine": "", "seconds": dict.fromkeys(STATES, 0)}
PLANNED: Any = SimpleNamespace(run_id="r1", rows=range(500))
RUN = SweepEntry("step 5", 5, "/c/step_5", PLANNED, parameters=7)


@pytest.mark.parametrize(
    ("changes", "price", "expected"),
    [
        (
            {},
            3.6,
            {
                "state": "complete",
                "note": "",
                "seconds": SECONDS,
                "entries": 500,
                "tokens": {"prompt": 1000, "completion": 50},
                "cost": 0.9,
                "per_1000": {"device_s": 1800.0, "cost": 1.8},
            },
        ),
        ({}, None, {"cost": None, "per_1000": {"device_s": 1800.0, "cost": None}}),
        ({}, 0.0, {"cost": 0.0, "rows_left": 0}),
        ({"timing": {**TIMING, "device": "endpoint"}}, 3.6, {"cost": None}),
        (
            {"complete": False, "why": "3 of 500 rows have no verdict", "scored": 497},
            None,
            {"state": "incomplete", "note": "3 of 500 rows have no verdict", "rows_left": 3},
        ),
        ({"complete": False, "scored": 0}, 1.0, {"per_1000": {}, "cost": 0.25}),
        ({"timing": {"loads": None, "device_s": None}}, 1.0, {**NOTHING_DONE, "cost": None}),
        (
            {"timing": {**TIMING, "loads": LOADS, "engine_deaths": DEATHS}},
            None,
            {"engine": "restarted", "note": DEATHS[-1]},
        ),
    ],
)
def test_the_line_of_a_run_comes_from_its_summary(local, changes, price, expected) -> None:
    tokens = {"prompt": 1000, "completion": 50}
    summary = {"complete": True, "why": "", "scored": 500, "declared": 500, "tokens": tokens}
    local.put("r1/summary.json", json.dumps({**summary, "timing": TIMING, **changes}).encode())
    line = asdict(ledger.cost_record(RUN, local, price))
    assert {key: line[key] for key in expected} == expected


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b"\xff", b'{"a": 1}'])
def test_a_damaged_summary_makes_a_run_pending(local: LocalStore, content: bytes) -> None:
    local.put("r1/summary.json", content)
    assert ledger.cost_record(RUN, local, 1.0).state == "pending"


def test_a_damaged_ledger_is_made_again(local: LocalStore) -> None:
    assert ledger.read_ledger(local) == ([], set())
    local.put(ledger.LEDGER, b'{"runs": [{"a": 1}]}')
    assert ledger.read_ledger(local) == ([], set())
