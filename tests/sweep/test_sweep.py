"""A whole sweep, with scripted lanes in place of processes."""

from __future__ import annotations

import json
import logging
import math
import os
import re
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from ace_ray.config.schema import EarlyConfig
from ace_ray.errors import UserError
from ace_ray.pipeline.planning.manifest import make_manifest
from ace_ray.storage.object_store import LocalStore
from ace_ray.storage.stored import as_json
from ace_ray.sweep import sweep as module
from ace_ray.sweep.comparisons import Shares
from ace_ray.sweep.config import SweepConfig, load_sweep
from ace_ray.sweep.ledger import write_ledger
from ace_ray.sweep.packing import Lane, Machine
from ace_ray.sweep.runs import SweepEntry, is_finished
from ace_ray.sweep.show import remaining_line
from ace_ray.sweep.sweep import Sweep

Script = Callable[["FakeLane"], None]


class FakeLane:
    """A `LaneProcess` that does what the test's script says when the sweep waits for it."""

    def __init__(self, setup: Setup, lane: Lane, specs: list[Any], devices: Any, room: Any) -> None:
        self.lane, self.specs, self.devices, self.room = lane, specs, devices, room
        self.labels = [run.label for run in lane.runs]
        self.code: int | None = None
        self.stopping = self.closed = False
        self.signals: list[int] = []
        self.reports: list[dict[str, Any]] = []
        self._setup = setup
        setup.started.append(self)
        setup.during_start()

    def wait(self, seconds: float) -> None:
        assert self.code is None
        self._setup.most_at_once = max(self._setup.most_at_once, len(self._setup.at_work()))
        # Lanes side by side end in the order in which they began.
        self._setup.at_work()[0].end()

    def signal(self, number: signal.Signals) -> None:
        self.stopping = True
        self.signals.append(number)

    def events(self) -> list[dict[str, Any]]:
        return self.reports

    def close(self) -> None:
        assert not self.closed
        self.closed = True

    def end(self) -> None:
        self.code = 0
        self._setup.script(self)

    def complete(self, run: SweepEntry) -> None:
        self._setup.put(run, complete=True).put("_SUCCESS", b"")
        self.tell(run, code=0)

    def leave(self, run: SweepEntry) -> None:
        self._setup.put(run, complete=False)
        self.tell(run, code=75)

    def tell(self, run: SweepEntry, **fields: Any) -> None:
        self.reports.append({"run_id": run.run_id, **fields})


def complete_all(lane: FakeLane) -> None:
    for run in lane.lane.runs:
        lane.complete(run)


class Setup:
    """A folder of checkpoints, the config of a sweep, and the lanes that were started."""

    def __init__(
        self, tmp_path: Path, make_checkpoint: Callable[..., Path], log_lines: list[str]
    ) -> None:
        self.tmp_path, self.make_at, self.log_lines = tmp_path, make_checkpoint, log_lines
        self.checkpoints = tmp_path / "run"
        self.machine = Machine(0)
        self.started: list[FakeLane] = []
        self.script: Script = complete_all
        self.during_start: Callable[[], None] = lambda: None
        self.most_at_once = 0
        self.options: dict[str, Any] = {
            "checkpoints": str(self.checkpoints),
            "benchmarks": [{"name": "acebench", "languages": ["en"]}],
            "backend": "fake",
            "limit": 1,
            "sweep_id": "sweep",
            "output": str(tmp_path / "out"),
            "settle_s": 0,
        }

    def make(self, name: str, *values: float) -> None:
        self.make_at(self.checkpoints / name, *values)

    def save(self, *steps: int) -> None:
        for step in steps:
            self.make(f"step_{step}", float(step), 1.0)

    def tear(self, step: int) -> None:
        """Cut the weights of a checkpoint off."""
        weights = self.checkpoints / f"step_{step}" / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-1])

    def stop(self) -> None:
        """End a watch."""
        (self.tmp_path / "stop").touch()

    def in_turn(self, *turns: Sequence[Callable[[], object]]) -> None:
        """Complete all runs; after the first lane call the first actions, and so on."""
        queue = list(turns)

        def script(lane: FakeLane) -> None:
            complete_all(lane)
            for action in queue.pop(0) if queue else ():
                action()

        self.script = script

    def config(self, **changes: Any) -> SweepConfig:
        self.options |= changes
        path = self.tmp_path / "sweep.yaml"
        path.write_text(yaml.safe_dump({k: v for k, v in self.options.items() if v is not None}))
        return load_sweep(str(path))

    def sweep(self, **changes: Any) -> Sweep:
        return Sweep(self.config(**changes))

    def run(self, **changes: Any) -> int:
        """Call the sweep once; return the exit code."""
        self.started.clear()
        self.log_lines.clear()
        code = self.sweep(**changes).run()
        assert all(lane.closed for lane in self.started)
        return code

    def at_work(self) -> list[FakeLane]:
        return [lane for lane in self.started if lane.code is None]

    @property
    def lanes(self) -> list[list[str]]:
        return [lane.labels for lane in self.started]

    @property
    def folder(self) -> LocalStore:
        return LocalStore(str(self.tmp_path / "out" / "sweep"))

    def ledger(self) -> dict[str, dict[str, Any]]:
        tree = json.loads(self.folder.get("ledger.json") or b"")
        return {line["label"]: line for line in tree["runs"]}

    def states(self) -> dict[str, str]:
        return {label: line["state"] for label, line in self.ledger().items()}

    def put(self, run: SweepEntry, *, complete: bool, **more: Any) -> LocalStore:
        """Write the folder of a run as its lane would."""
        assert run.plan is not None
        store = self.folder.child(run.run_id)
        store.put("run.json", as_json(make_manifest(run.plan, {})))
        summary = {"complete": complete, "why": "" if complete else "rows are missing", "scored": 1}
        tokens = {"prompt": 1, "completion": 1}
        store.put("summary.json", as_json({**summary, "tokens": tokens, "timing": {}, **more}))
        return store


@pytest.fixture
def setup(
    tmp_path: Path,
    make_checkpoint: Callable[..., Path],
    log_lines: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Setup]:
    setup = Setup(tmp_path, make_checkpoint, log_lines)
    monkeypatch.setattr("ace_ray.sweep.checkpoints.LEAST_POLL_S", 0.01)

    def make_lane(lane: Lane, specs: list[Any], devices: Any, *, echo: Any, room: Any) -> FakeLane:
        return FakeLane(setup, lane, specs, devices, room)

    monkeypatch.setattr(module, "LaneProcess", make_lane)
    monkeypatch.setattr(module, "Machine", lambda gpus: setup.machine)
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield setup
    assert {number: signal.getsignal(number) for number in before} == before


def scripted(**by_label: Callable[[FakeLane, SweepEntry], object]) -> Script:
    """Return a script that calls a function for some runs, and completes the others."""

    def script(lane: FakeLane) -> None:
        for run in lane.lane.runs:
            by_label.get(run.label.replace(" ", "_"), FakeLane.complete)(lane, run)

    return script


def die(lane: FakeLane, run: SweepEntry) -> None:
    lane.code = -9


class TestResuming:
    def test_a_sweep_evaluates_what_is_pending(self, setup: Setup) -> None:
        setup.save(30, 4, 100)
        assert setup.run() == 0
        assert setup.lanes == [["step 4", "step 30", "step 100"]]
        assert setup.states() == dict.fromkeys(("step 4", "step 30", "step 100"), "complete")
        (lane,) = setup.started
        assert [spec["run_id"] for spec in lane.specs] == [run.run_id for run in lane.lane.runs]
        assert [Path(spec["config"]["model"]["source"]).name for spec in lane.specs] == [
            *("step_4", "step_30", "step_100")
        ]
        assert all(spec["config"]["output"] == setup.folder.root for spec in lane.specs)
        before = setup.ledger()
        # Options that say how runs are evaluated may change.
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("ACE_RAY_END_TIME", "1")  # has passed, but nothing is left to evaluate
            assert setup.run(workers=2, drain_timeout_s=1.0, price_per_hour=None) == 0
        assert setup.lanes == []
        assert setup.ledger() == before
        setup.folder.delete(f"{before['step 30']['run_id']}/_SUCCESS")
        setup.save(40)
        assert setup.run() == 0
        assert setup.lanes == [["step 30", "step 40"]]
        saved = load_sweep(str(setup.tmp_path / "out" / "sweep" / "sweep.json"))
        setup.started.clear()
        again = Sweep(saved)
        assert (again.run(), again.uri, setup.lanes) == (0, setup.folder.root, [])

    def test_a_lane_learns_durations_from_the_nearest_finished_run(self, setup: Setup) -> None:
        setup.save(10, 30)
        assert setup.run(every=1) == 0
        assert [spec["config"]["durations_from"] for spec in setup.started[0].specs] == [None] * 2
        ids = {label: line["run_id"] for label, line in setup.ledger().items()}
        for steps, earlier in (((40, 50), "step 30"), ((5,), "step 10")):
            setup.save(*steps)
            assert setup.run() == 0
            uris = {spec["config"]["durations_from"] for spec in setup.started[0].specs}
            assert uris == {setup.folder.child(ids[earlier]).root}

    def test_a_sweep_grows_with_its_runs_and_does_not_shrink(self, setup: Setup) -> None:
        setup.save(1)
        assert setup.run() == 0
        before = setup.ledger()
        assert setup.run(limit=2) == 0
        assert setup.lanes == [["step 1"]]
        assert setup.ledger()["step 1"]["run_id"] == before["step 1"]["run_id"]
        assert json.loads(setup.folder.get("sweep.json") or b"")["grown"][0]["keys"] == ["limit"]
        with pytest.raises(UserError, match=r"limit differ; the run of step 1 cannot grow"):
            setup.run(limit=1)
        with pytest.raises(UserError, match=r"\(sampling differ"):
            setup.run(limit=2, sampling={"max_tokens": 7})

    def test_results_outlive_their_checkpoints(self, setup: Setup) -> None:
        setup.save(10, 20, 30, 40)
        assert setup.run(every=2) == 0
        assert setup.lanes == [["step 10", "step 30"]]
        before = setup.ledger()
        # The trainer keeps the last few checkpoints; the interval counts the deleted ones, too.
        for step in (10, 20):
            shutil.rmtree(setup.checkpoints / f"step_{step}")
        setup.save(50, 60)
        setup.tear(30)
        assert setup.run() == 0
        assert setup.lanes == [["step 50"]]
        assert list(setup.ledger()) == ["step 10", "step 30", "step 50"]
        assert setup.ledger().items() >= before.items()
        setup.folder.delete(f"{before['step 10']['run_id']}/_SUCCESS")
        setup.run()
        assert list(setup.ledger()) == ["step 30", "step 50"]

    def test_a_sweep_that_lost_its_lease_writes_nothing(self, setup: Setup) -> None:
        def script(lane: FakeLane) -> None:
            complete_all(lane)
            setup.folder.put("lease.json", b'{"holder": "another"}')

        setup.script = script
        setup.save(1)
        assert setup.run() == 75
        assert setup.folder.get("ledger.json") is None
        assert any("taken over this run" in line for line in setup.log_lines)


class TestCandidates:
    def test_labels_and_the_reference_may_change(self, setup: Setup) -> None:
        source = str(setup.make_at(setup.tmp_path / "m", 1.0))
        models: list[dict[str, Any]] = [{}, {"sampling": {"max_tokens": 64}}]
        shared = {"checkpoints": None, "model": {"source": source}}
        assert setup.run(**shared, models=models, reference="m") == 0
        assert sorted(setup.lanes) == [["m"], ["max_tokens=64"]], "a lane has one sampling"
        specs = [spec for lane in setup.started for spec in lane.specs]
        limits = {spec["label"]: spec["config"]["sampling"]["max_tokens"] for spec in specs}
        assert limits == {"m": 1200, "max_tokens=64": 64}
        before = json.loads(setup.folder.get("sweep.json") or b"")
        models[1]["label"] = "short"
        assert setup.run(models=models, reference="short") == 0
        assert (setup.lanes, set(setup.states())) == ([], {"m", "short"})
        after = json.loads(setup.folder.get("sweep.json") or b"")
        assert (before["config"]["reference"], after["config"]["reference"]) == ("m", "short")
        assert {**before, "config": 0} == {**after, "config": 0}
        with pytest.raises(UserError, match="reference: no model has the label 'shot'; did"):
            setup.sweep(reference="shot")
        with pytest.raises(UserError, match=r"b .* is the same model as m "):
            setup.sweep(models=[{}, {"label": "b"}])


def decide(lane: FakeLane, value: Callable[[SweepEntry], float] = lambda run: 0.5) -> None:
    """End all runs of a lane as decided, or as complete if they are told not to stop."""
    for run, spec in zip(lane.lane.runs, lane.specs, strict=True):
        stops = spec["config"]["early"]["stop"]
        headline = {"outcome": "better", "value": {"estimate": value(run)}}
        early = {"stopped": stops, "headlines": {"acebench/official": headline}}
        store = lane._setup.put(run, complete=not stops, early=early)
        if not stops:
            store.put("_SUCCESS", b"")
        lane.tell(run, code=0)


class TestEarly:
    def test_alpha_is_shared_and_never_exceeded(self, setup: Setup) -> None:
        for first in (False, True):
            shares, config = Shares(), EarlyConfig(reference="baseline")
            names = [f"run-{number}" for number in range(60)]
            for count, watched in ((11, first), (30, not first), (45, first), (60, not first)):
                assert shares.give(config, names[:count], setup.folder, watched=watched)
                alphas = [
                    share.alpha for share in shares.shares.values() if share.against is not None
                ]
                assert len(alphas) == count - 1
                if count == 11 and watched:
                    assert alphas[0] == pytest.approx(0.05 * 6 / math.pi**2)
                    assert alphas == sorted(alphas, reverse=True)
                elif count == 11:
                    assert alphas == pytest.approx([0.9 * 0.05 / 10] * 10)
            assert min(alphas) > 0
            assert 0.045 < sum(alphas) <= 0.05
            assert not shares.give(config, names, setup.folder, watched=first)

    def test_each_run_gets_its_reference_and_share(self, setup: Setup) -> None:
        def early(sweep: Sweep) -> list[dict[str, Any]]:
            return [sweep.comparisons.early_of(run) or {} for run in sweep.runs]

        setup.save(10, 20, 30)
        sweep = setup.sweep(early={"reference": "previous"})
        first, second, _ = (f"{setup.folder.root}/{run.run_id}" for run in sweep.runs)
        assert [entry["reference"] for entry in early(sweep)] == [None, first, second]
        assert [entry["alpha"] for entry in early(sweep)[1:]] == pytest.approx([0.0225] * 2)
        sweep = setup.sweep(early={"reference": "baseline"})
        assert [entry["reference"] for entry in early(sweep)] == [None, first, first]
        with pytest.raises(UserError, match="is not a run"):
            setup.sweep(early={"reference": str(setup.tmp_path)})
        reference = setup.put(sweep.runs[0], complete=True).root
        entries = early(setup.sweep(early={"reference": reference}))
        assert [entry["reference"] for entry in entries] == [reference] * 3
        assert [entry["alpha"] for entry in entries] == pytest.approx([0.015] * 3)

    def test_decided_runs_are_finished_until_they_are_to_be_completed(self, setup: Setup) -> None:
        setup.save(10, 20, 30)
        setup.script = decide
        assert setup.run(early={"reference": "previous"}) == 0
        assert set(setup.states().values()) == {"decided"}
        shares = json.loads(setup.folder.get("early.json") or b"")["shares"]
        assert setup.run() == 0
        assert setup.lanes == []
        assert Sweep(setup.config(), ["step 30"]).run() == 0
        assert setup.lanes == [["step 30"]]
        assert Sweep(setup.config(), ["all"]).run() == 0
        assert set(setup.states().values()) == {"complete"}
        with pytest.raises(UserError, match="has no run 'step 3'"):
            Sweep(setup.config(), ["step 3"])
        setup.save(40)
        assert setup.run() == 0
        assert json.loads(setup.folder.get("early.json") or b"")["shares"].items() > shares.items()
        setup.folder.put("early.json", b"{}x")
        with pytest.raises(UserError, match="unknown how comparisons share alpha"):
            setup.sweep()

    def test_comparisons_are_updated_at_the_end_or_named(self, setup, monkeypatch) -> None:
        def look(plan: Any, store: Any) -> bool:
            if plan.config.early.reference.endswith(first):
                return True  # the reference has more rows now
            raise UserError("cannot be read")

        setup.save(10, 20, 30)
        first = setup.sweep(early={"reference": "previous"}).runs[0].run_id
        monkeypatch.setattr("ace_ray.sweep.comparisons.update_decision", look)
        setup.script = decide
        assert setup.run(early={"reference": "previous"}) == 0
        assert any("step 20: its comparison was updated" in line for line in setup.log_lines)
        assert any("step 30: its comparison cannot be updated" in line for line in setup.log_lines)

    @pytest.mark.parametrize("slots", [1, 2])
    def test_lanes_that_await_each_other_are_evaluated(self, setup: Setup, slots: int) -> None:
        setup.machine = Machine(0, slots=slots)
        models = []
        for number, name in enumerate("abcd"):
            folder = setup.make_at(setup.tmp_path / name, float(number), 1.0)
            engine = {"default": f"{number % 2}"}
            models.append({"source": str(folder), "label": name, "engine": engine})
        setup.script = decide
        assert setup.run(checkpoints=None, models=models, early={"reference": "previous"}) == 0
        assert sorted(setup.lanes) == [["a", "c"], ["b", "d"]]
        assert set(setup.states().values()) == {"decided"}


class TestFailures:
    @pytest.mark.parametrize(
        ("steps", "bad", "note", "lanes"),
        [
            ([1, 2, 3], lambda lane, run: lane.tell(run, broken="w holds NaN"), "w holds NaN",
             [["step 1", "step 2", "step 3"]]),
            ([2], lambda lane, run: lane.tell(run, failed="no such option"), "no such option",
             [["step 2"]]),
            ([2], die, "incomplete after 3 attempts", [["step 2"]] * 3),
            ([2, 3], FakeLane.leave, "incomplete after 3 attempts",
             [["step 2", "step 3"], ["step 2"], ["step 2"]]),
        ],
        ids=["broken", "failed", "dies", "incomplete"],
    )  # fmt: skip
    def test_a_failed_run_is_named_and_tried_by_the_next_call(self, setup, steps, bad, note, lanes):
        setup.script = scripted(step_2=bad)
        setup.save(*steps)
        assert setup.run() == 1
        assert setup.lanes == lanes
        complete = {f"step {step}": "complete" for step in steps}
        assert setup.states() == complete | {"step 2": "failed"}
        assert setup.ledger()["step 2"]["note"] == note
        assert f"step 2: {note}" in setup.log_lines
        setup.script = complete_all
        assert setup.run() == 0
        assert setup.lanes == [["step 2"]]
        assert setup.states() == complete

    def test_runs_of_a_failed_lane_are_evaluated_one_by_one(self, setup: Setup) -> None:
        def script(lane: FakeLane) -> None:
            for run in lane.lane.runs:
                fails = run.label != "step 1" and "step 2" in lane.labels
                lane.tell(run, failed="no kernel image") if fails else lane.complete(run)

        setup.script = script
        setup.save(1, 2, 3)
        assert setup.run() == 1
        assert setup.lanes[0] == ["step 1", "step 2", "step 3"]
        assert sorted(setup.lanes[1:]) == [["step 2"], ["step 3"]]
        assert setup.states() == {"step 1": "complete", "step 2": "failed", "step 3": "complete"}

    def test_an_outage_of_the_store_is_waited_for(self, setup, monkeypatch) -> None:
        failures = {is_finished: 3, write_ledger: 2}
        monkeypatch.setattr(module, "AGAIN_S", 0.0)

        def failing(work: Any) -> Any:
            def asks(*arguments: Any, **options: Any) -> Any:
                if setup.started and failures[work]:
                    failures[work] -= 1
                    raise UserError("the store is away")
                return work(*arguments, **options)

            return asks

        for work in failures:
            monkeypatch.setattr(module, work.__name__, failing(work))
        setup.save(1, 2)
        assert setup.run(swap=False) == 0
        assert [*failures.values()] == [0, 0]
        assert sum("the store is away" in line for line in setup.log_lines) == 5
        assert set(setup.states().values()) == {"complete"}

        setup.save(3, 4)
        failures[is_finished] = 10**6
        assert setup.run(store_retry_timeout_s=0.05) == 75
        assert any("the same command continues the sweep" in line for line in setup.log_lines)
        failures[is_finished] = 0
        assert setup.run() == 0

    @pytest.mark.parametrize(("small", "code"), [(2, 0), (3, 75)])
    def test_a_small_cluster_postpones_a_lane_until_the_last_attempt(
        self, setup: Setup, monkeypatch: pytest.MonkeyPatch, small: int, code: int
    ) -> None:
        monkeypatch.setattr(module, "LATER_S", 0.05)
        began: list[float] = []

        def script(lane: FakeLane) -> None:
            began.append(time.monotonic())
            for run in lane.lane.runs:
                if len(began) > small:
                    lane.complete(run)
                else:
                    lane.tell(run, later="workers: 2 do not fit")

        setup.script = script
        setup.save(1, 2)
        assert setup.run() == code
        assert setup.lanes == [["step 1", "step 2"]] * 3, "they stay together"
        assert began[2] - began[1] >= 0.05
        if code:
            assert set(setup.states().values()) == {"pending"}
            assert setup.ledger()["step 1"]["note"] == "workers: 2 do not fit"
            assert "step 1: postponed: workers: 2 do not fit" in setup.log_lines
            setup.script = complete_all
            assert setup.run() == 0
            assert setup.ledger()["step 1"]["note"] == ""


class TestRefused:
    def test_a_folder_of_another_config_is_refused(self, setup: Setup) -> None:
        setup.save(1)
        setup.run()
        etags = {item.path: item.etag for item in setup.folder.list()}
        with pytest.raises(UserError, match=r"another config.*\(pattern differ\)"):
            setup.run(pattern="step*")
        assert setup.lanes == []
        assert {item.path: item.etag for item in setup.folder.list()} == etags


class TestGpus:
    def test_lanes_of_a_cluster_know_its_gpus_and_their_workers(self, setup: Setup) -> None:
        nodes = ({"CPU": 8.0, "GPU": 1.0}, {"CPU": 8.0, "GPU": 1.0})
        setup.machine = Machine(2, shared=True, nodes=nodes)
        setup.save(1, 2, 3)
        assert setup.run(swap=False) == 0
        assert setup.most_at_once == 2
        assert [lane.devices for lane in setup.started] == [None] * 3
        assert [lane.room["gpus"] for lane in setup.started] == [[1], [1, 1], [1, 1]]
        assert setup.started[0].room["shared"]
        assert [lane.specs[0]["config"]["workers"] for lane in setup.started] == [1] * 3


def end_early(lane: FakeLane) -> None:
    lane.code = 75


def leave_all(lane: FakeLane) -> None:
    for run in lane.lane.runs:
        lane.leave(run)


class TestStopping:
    @pytest.mark.parametrize(
        ("signals", "ends", "state", "note"),
        [
            ([signal.SIGTERM, signal.SIGINT], end_early, "pending", ""),
            ([signal.SIGTERM], complete_all, "complete", ""),
            ([signal.SIGINT], leave_all, "incomplete", "rows are missing"),
        ],
        ids=["before the first row", "after the last row", "between rows"],
    )
    def test_signals_reach_the_lanes_and_no_lane_begins(self, setup, signals, ends, state, note):
        def script(lane: FakeLane) -> None:
            for number in signals:
                os.kill(os.getpid(), number)
            assert lane.signals == signals
            ends(lane)

        setup.script = script
        setup.save(1, 2)
        assert setup.run(swap=False) == 75
        assert setup.lanes == [["step 1"]]
        assert setup.states() == {"step 1": state, "step 2": "pending"}
        assert setup.ledger()["step 1"]["note"] == note
        setup.script = complete_all
        assert setup.run() == 0

    def test_a_lane_that_does_not_stop_is_killed(self, setup, monkeypatch) -> None:
        monkeypatch.setattr(module, "END_S", -1000.0)

        def wait(lane: FakeLane, seconds: float) -> None:
            if not lane.signals:
                os.kill(os.getpid(), signal.SIGTERM)
            elif lane.signals[-1] == signal.SIGKILL:
                lane.code = -9

        monkeypatch.setattr(FakeLane, "wait", wait)
        setup.save(1)
        assert setup.run() == 75
        assert setup.started[0].signals[:2] == [signal.SIGTERM, signal.SIGKILL]

    @pytest.mark.parametrize(
        ("rows", "shares"), [(5, [1 / 3, 1 / 2, 1, 1, 1, 1]), (0, [1 / 3, 1, 1, 1, 1, 1])]
    )
    def test_runs_get_equal_times_and_then_the_rest(self, setup, rows, shares) -> None:
        def script(lane: FakeLane) -> None:
            if lane.labels != ["step 1"] or len(setup.started) == 6:
                return complete_all(lane)
            lane.tell(lane.lane.runs[0], code=75, rows=rows, out_of_time=True)

        setup.script = script
        setup.save(1, 2, 3)
        ends = time.monotonic() + 36000 - 2 * 60
        assert setup.run(swap=False, time_limit="10h") == 0
        assert setup.lanes == [["step 1"], ["step 2"], ["step 3"], *[["step 1"]] * 3]
        counts = [(lane.room["rows_end_at"] - ends) / (36000 - 120) + 1 for lane in setup.started]
        assert counts == pytest.approx(shares, abs=0.01)

    def test_a_sweep_that_is_out_of_time_says_what_is_left(self, setup: Setup) -> None:
        headlines = {
            "a": {"outcome": None, "units": 5, "of_units": 9, "rows_to_decide": 2},
            "b": {"outcome": None, "units": 5, "of_units": 9},
            "c": {"outcome": "better"},
        }

        def script(lane: FakeLane) -> None:
            early = {"against": "x", "stopped": False, "headlines": headlines}
            setup.put(lane.lane.runs[0], complete=False, scored=2, early=early)
            lane.tell(lane.lane.runs[0], code=75, rows=2, out_of_time=True)

        setup.script = script
        setup.save(1, 2)
        sweep = setup.sweep(swap=False, time_limit="90s", limit=3, early={"reference": "previous"})
        assert sweep.run() == 75
        needs = {"a": "about 2 more rows", "b": "more rows of its reference"}
        assert [record.undecided for record in sweep.cost_records] == [needs] * 2
        rows = sum(len(run.plan.rows) - 2 for run in sweep.runs if run.plan)
        expected = rf"at most {rows} rows of 2 models are not scored \(about \d+ .+ at this speed\)"
        assert re.fullmatch(expected, remaining_line(sweep))

    @pytest.mark.timeout(60)
    def test_a_watch_stops_at_once(self, setup: Setup) -> None:
        setup.save(1)

        class Stopper(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                if record.getMessage().startswith("watching") and setup.started:
                    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()

        logging.getLogger("ace_ray").addHandler(Stopper())  # `said` removes it
        assert setup.sweep(watch=True).run() == 75
        assert setup.states() == {"step 1": "complete"}


class TestWatching:
    @pytest.fixture(autouse=True)
    def watch(self, setup: Setup) -> None:
        setup.options |= {"watch": True, "stop_file": str(setup.tmp_path / "stop")}

    def test_new_and_repaired_checkpoints_are_evaluated(self, setup: Setup) -> None:
        setup.save(1, 2, 3)
        setup.tear(2)
        (setup.checkpoints / "step_3" / "tokenizer.json").unlink()
        rewrite = partial(setup.make, "step_1", 7.0, 7.0)
        setup.in_turn([partial(setup.save, 2)], [partial(setup.save, 3), rewrite], [setup.stop])
        assert setup.run() == 0
        assert setup.lanes == [["step 1"], ["step 2"], ["step 1", "step 3"]]
        assert any(line.startswith("step 2: refused") for line in setup.log_lines)
        assert not any(line.startswith("step 3: refused") for line in setup.log_lines)
        assert setup.states() == dict.fromkeys(("step 1", "step 2", "step 3"), "complete")
        assert len(json.loads(setup.folder.get("ledger.json") or b"")["runs"]) == 3

    def test_a_mistake_in_the_config_is_found_before_the_watch(self, setup, monkeypatch) -> None:
        wrong = [{"name": "acebench", "categories": ["Atom"]}]
        for steps in ([], [1]):
            setup.save(*steps)
            with pytest.raises(UserError, match=re.escape("did you mean 'atom'?")):
                setup.sweep(benchmarks=wrong, settle_s=60)
        setup.options["benchmarks"] = [{"name": "acebench", "languages": ["en"]}]
        # An error about a file of the checkpoint says nothing about the config.
        for location, raises in (
            ("model.tool_parser", True),
            (f"{setup.checkpoints}/step_1/x", False),
        ):

            def plan(*_: Any, path: str = location) -> None:
                raise UserError("not these", where=path)

            monkeypatch.setattr(module, "plan_of_checkpoint", plan)
            with pytest.raises(UserError, match="not these") if raises else nullcontext():
                setup.sweep(settle_s=60)

    def test_a_copy_and_an_invalid_folder_are_refused_while_others_go_on(self, setup) -> None:
        setup.save(1)
        model = {"source": str(setup.checkpoints / "step_1")}
        invalid, why = partial(setup.make, "final", 1.0), "the name 'final' contains no step number"
        setup.in_turn([invalid, partial(setup.save, 2)], [setup.stop])
        assert setup.run(models=[model], settle_s=0.05) == 1
        assert setup.lanes == [["step_1"], ["step 2"]]
        refused = dict.fromkeys(("step 1", "final"), "refused")
        assert setup.states() == {"step_1": "complete", "step 2": "complete", **refused}
        assert "is the same model as step_1" in setup.ledger()["step 1"]["note"]
        assert setup.log_lines.count(f"final: refused: {why}") == 1
        # The next call is refused as a whole.
        with pytest.raises(UserError, match="contains no step number"):
            setup.sweep()
