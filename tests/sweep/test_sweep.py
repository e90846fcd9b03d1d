"""The sweep itself, with lanes that do as they are told instead of processes."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from ace_ray.config.schema import EarlyConfig
from ace_ray.errors import UserError
from ace_ray.pipeline.evaluate import plan_run
from ace_ray.pipeline.planning.plan import make_manifest
from ace_ray.pipeline.summary import as_json
from ace_ray.storage.object_store import LocalStore, Unreachable
from ace_ray.sweep import runs as runs_module
from ace_ray.sweep import sweep as module
from ace_ray.sweep.comparisons import Shares
from ace_ray.sweep.config import SweepConfig, load_sweep
from ace_ray.sweep.ledger import write_ledger
from ace_ray.sweep.packing import Lane, Machine
from ace_ray.sweep.runs import SweepRun, is_finished
from ace_ray.sweep.sweep import Sweep

Script = Callable[["FakeLane"], None]


class FakeLane:
    """In place of a `LaneProcess`: scripted its part when it is waited for, and ends."""

    def __init__(self, setup: Setup, lane: Lane, specs: list[Any], devices: Any, say: Any) -> None:
        self.lane, self.specs, self.devices, self.say = lane, specs, devices, say
        self.labels = [run.label for run in lane.runs]
        self.code: int | None = None
        self.stopping = False
        self.signals: list[int] = []
        self.told: list[dict[str, Any]] = []
        self.closed = False
        self.room: dict[str, Any] = {}
        self._setup = setup
        setup.started.append(self)
        setup.during_start()

    # What a `LaneProcess` does

    def wait(self, seconds: float) -> None:
        assert self.code is None
        self._setup.most_at_once = max(self._setup.most_at_once, len(self._setup.at_work()))
        # Lanes side by side end in the order that they began.
        self._setup.at_work()[0].end()

    def signal(self, number: signal.Signals) -> None:
        self.stopping = True
        self.signals.append(number)

    def events(self) -> list[dict[str, Any]]:
        assert self.code is not None
        return self.told

    def close(self) -> None:
        assert not self.closed
        self.closed = True

    # What it is told to do

    def end(self) -> None:
        self.code = 0
        self._setup.script(self)

    def complete(self, run: SweepRun) -> None:
        store = self._setup.put(run, complete=True)
        store.put("_SUCCESS", b"")
        self.tell(run, code=0)

    def leave(self, run: SweepRun) -> None:
        self._setup.put(run, complete=False)
        self.tell(run, code=75)

    def tell(self, run: SweepRun, **what: Any) -> None:
        self.told.append({"run_id": run.run_id, **what})


def complete_all(lane: FakeLane) -> None:
    for run in lane.lane.runs:
        lane.complete(run)


class Setup:
    """A folder of checkpoints, a sweep's config, and the lanes that were started."""

    def __init__(self, tmp_path: Path, make_checkpoint: Callable[..., Path]) -> None:
        self.tmp_path, self._make_checkpoint = tmp_path, make_checkpoint
        self.checkpoints = tmp_path / "run"
        self.machine = Machine(0)
        self.started: list[FakeLane] = []
        self.said: list[str] = []
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
        self._make_checkpoint(self.checkpoints / name, *values)

    def save(self, *steps: int) -> None:
        for step in steps:
            self.make(f"step_{step}", float(step), 1.0)

    def tear(self, step: int) -> None:
        weights = self.checkpoints / f"step_{step}" / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-1])

    def stop(self) -> None:
        """Ends a watch."""
        (self.tmp_path / "stop").touch()

    def in_turn(self, *turns: Sequence[Callable[[], object]]) -> None:
        """All runs come through; after the first lane come the first actions, and so on."""
        left = list(turns)

        def script(lane: FakeLane) -> None:
            complete_all(lane)
            for action in left.pop(0) if left else ():
                action()

        self.script = script

    def config(self, **changes: Any) -> SweepConfig:
        self.options |= changes
        path = self.tmp_path / "sweep.yaml"
        path.write_text(yaml.safe_dump({k: v for k, v in self.options.items() if v is not None}))
        return load_sweep(str(path))

    def sweep(self, **changes: Any) -> Sweep:
        return Sweep(self.config(**changes), self.said.append)

    def run(self, **changes: Any) -> int:
        """Of a call of its own."""
        self.started.clear()
        self.said.clear()
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

    def put(self, run: SweepRun, *, complete: bool) -> LocalStore:
        """A run's folder as its lane would leave it."""
        assert run.plan is not None
        store = self.folder.child(run.run_id)
        store.put("run.json", as_json(make_manifest(run.plan, {})))
        summary = {"complete": complete, "why": "" if complete else "rows are missing"}
        tokens = {"prompt": 1, "completion": 1}
        store.put("summary.json", as_json({**summary, "scored": 1, "tokens": tokens, "timing": {}}))
        return store


@pytest.fixture
def setup(
    tmp_path: Path, make_checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Setup]:
    setup = Setup(tmp_path, make_checkpoint)
    monkeypatch.setattr("ace_ray.sweep.checkpoints.LEAST_POLL_S", 0.01)

    def made(lane: Lane, specs: list[Any], devices: Any, *, say: Any, room: Any) -> FakeLane:
        fake = FakeLane(setup, lane, specs, devices, say)
        fake.room = room
        return fake

    monkeypatch.setattr(module, "LaneProcess", made)
    monkeypatch.setattr(Sweep, "_find_machine", lambda self: setup.machine)
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield setup
    assert {number: signal.getsignal(number) for number in before} == before


def scripted(**by_label: Callable[[FakeLane, SweepRun], None]) -> Script:
    """Each run as told by its step, complete where nothing is said; a lane ends with the first
    that raises."""

    def script(lane: FakeLane) -> None:
        for run in lane.lane.runs:
            do = by_label.get(run.label.replace(" ", "_"))
            try:
                lane.complete(run) if do is None else do(lane, run)
            except Died:
                lane.code = -9
                return

    return script


class Died(Exception):
    pass


def die(lane: FakeLane, run: SweepRun) -> None:
    raise Died


def end_early(lane: FakeLane) -> None:
    lane.code = 75


def incomplete_all(lane: FakeLane) -> None:
    for run in lane.lane.runs:
        lane.leave(run)


def outage(setup: Setup, monkeypatch: pytest.MonkeyPatch, *, times: int) -> list[int]:
    """Once a lane has run, nobody can tell so many times what is finished; the times left."""
    left = list(range(times))
    finished = is_finished
    monkeypatch.setattr(module, "AGAIN_S", 0.0)

    def asks(*arguments: Any, **named: Any) -> bool:
        if setup.started and left:
            left.pop()
            raise UserError("the store is away")
        return finished(*arguments, **named)

    monkeypatch.setattr(module, "is_finished", asks)
    return left


class TestToTheEnd:
    def test_all_in_one_lane(self, setup: Setup) -> None:
        setup.save(30, 4, 100)
        assert setup.run() == 0
        assert setup.lanes == [["step 4", "step 30", "step 100"]]
        assert setup.states() == dict.fromkeys(("step 4", "step 30", "step 100"), "complete")
        (lane,) = setup.started
        assert lane.say is None
        assert [spec["run_id"] for spec in lane.specs] == [run.run_id for run in lane.lane.runs]
        assert [Path(spec["config"]["model"]["source"]).name for spec in lane.specs] == [
            "step_4",
            "step_30",
            "step_100",
        ]
        assert all(spec["config"]["output"] == setup.folder.root for spec in lane.specs)

    @pytest.mark.nightly
    def test_a_finished_sweep_starts_nothing(self, setup: Setup) -> None:
        setup.save(1, 2)
        setup.run()
        before = setup.ledger()
        assert setup.run() == 0
        assert setup.lanes == []
        assert setup.ledger() == before

    @pytest.mark.nightly
    def test_only_what_is_pending(self, setup: Setup) -> None:
        setup.save(1, 2, 3)
        setup.run()
        run_id = setup.started[0].lane.runs[1].run_id
        setup.folder.delete(f"{run_id}/_SUCCESS")
        setup.save(4)
        assert setup.run() == 0
        assert setup.lanes == [["step 2", "step 4"]]

    @pytest.mark.nightly
    def test_which_are_taken_may_change(self, setup: Setup) -> None:
        setup.save(1, 2, 3, 4)
        assert setup.run(**{"from": 4}) == 0
        assert setup.lanes == [["step 4"]]
        assert setup.run(**{"from": None}, every=3) == 0
        assert setup.lanes == [["step 1"]]
        assert setup.run(every=1, to=2, price_per_hour=3, swap=False) == 0
        assert setup.lanes == [["step 2"]]

    def test_how_it_runs_may_change(self, setup: Setup) -> None:
        setup.save(1)
        setup.run()
        assert setup.run(workers=2, grace_s=1.0, concurrency=3, max_attempts=1) == 0
        assert setup.lanes == []

    def test_a_finished_one_that_falls_apart_stands_once(self, setup: Setup) -> None:
        """A cleaner has got half of it; its result is there."""
        setup.save(1, 2)
        setup.run()
        before = setup.ledger()
        setup.tear(1)
        assert setup.run() == 0
        assert setup.ledger() == before
        tree = json.loads(setup.folder.get("ledger.json") or b"")
        assert len(tree["runs"]) == 2
        # One that was never whole is refused as ever.
        setup.save(3)
        setup.tear(3)
        assert setup.run() == 1

    @pytest.mark.nightly
    def test_finished_runs_stay_in_the_ledger(self, setup: Setup) -> None:
        """Their checkpoints were removed, or others are asked for."""
        setup.save(1, 2, 3)
        setup.run()
        before = setup.ledger()
        shutil.rmtree(setup.checkpoints / "step_1")
        assert setup.run(**{"from": 3}) == 0
        assert setup.ledger() == before
        assert setup.run() == 0
        assert list(setup.ledger()) == ["step 1", "step 2", "step 3"]
        # Those whose runs were removed do not.
        setup.folder.delete(f"{before['step 1']['run_id']}/_SUCCESS")
        setup.run()
        assert list(setup.ledger()) == ["step 2", "step 3"]

    def test_every_counts_from_the_first_that_there_ever_was(self, setup: Setup) -> None:
        setup.save(10, 20, 30, 40)
        assert setup.run(every=2) == 0
        assert setup.lanes == [["step 10", "step 30"]]
        # The trainer keeps the last few.
        for step in (10, 20):
            shutil.rmtree(setup.checkpoints / f"step_{step}")
        setup.save(50, 60)
        assert setup.run() == 0
        assert setup.lanes == [["step 50"]]
        assert list(setup.ledger()) == ["step 10", "step 30", "step 50"]

    @pytest.mark.nightly
    @pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b'{"runs": [{"a": 1}]}'])
    def test_a_ledger_that_is_none_is_made_anew(self, setup: Setup, content: bytes) -> None:
        setup.save(1)
        setup.run()
        setup.folder.put("ledger.json", content)
        assert setup.run() == 0
        assert setup.states() == {"step 1": "complete"}

    def test_one_process_at_a_time(self, setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("ace_ray.storage.lease.BEAT_S", 0.1)
        other = setup.sweep

        def script(lane: FakeLane) -> None:
            with pytest.raises(UserError, match="is being written by process"):
                other().run()
            complete_all(lane)

        setup.script = script
        setup.save(1)
        assert setup.run() == 0
        assert len(setup.started) == 1
        assert setup.folder.get("lease.json") is None

    def test_a_sweep_that_was_taken_over_writes_no_more(self, setup: Setup) -> None:
        def script(lane: FakeLane) -> None:
            complete_all(lane)
            setup.folder.put("lease.json", b'{"holder": "another"}')

        setup.script = script
        setup.save(1)
        assert setup.run() == 75
        assert setup.folder.get("ledger.json") is None
        assert any("taken over this run" in line for line in setup.said)

    def test_a_saved_config_goes_on(self, setup: Setup) -> None:
        setup.save(1)
        setup.run(**{"from": 0})
        saved = setup.tmp_path / "out" / "sweep" / "sweep.json"
        again = Sweep(load_sweep(str(saved)), setup.said.append)
        setup.started.clear()
        assert again.run() == 0
        assert (again.uri, setup.lanes) == (setup.folder.root, [])


def decide(
    setup: Setup, lane: FakeLane, value: Callable[[SweepRun], float], outcome: str = "better"
) -> None:
    """All runs of a lane end as stopped ones, or, where they are told to go on, whole."""
    for run, spec in zip(lane.lane.runs, lane.specs, strict=True):
        early = spec["config"]["early"]
        store = setup.put(run, complete=not early["stop"])
        tree = json.loads(store.get("summary.json") or b"")
        headline = {"outcome": outcome, "value": {"estimate": value(run)}}
        tree["early"] = {"stopped": early["stop"], "headlines": {"acebench/official": headline}}
        store.put("summary.json", as_json(tree))
        if not early["stop"]:
            store.put("_SUCCESS", b"")
        lane.tell(run, code=0)


class TestEarly:
    """Nobody decides here: what runs are told, and which are finished."""

    def early(self, **more: Any) -> dict[str, Any]:
        return {"early": {"against": "previous", **more}}

    @pytest.mark.nightly
    def test_each_is_told_its_reference_and_its_share(self, setup: Setup) -> None:
        setup.save(10, 20, 30)
        sweep = setup.sweep(**self.early())
        found = {run.label: sweep.comparisons.early_of(run) or {} for run in sweep.runs}
        ids = {run.label: run.run_id for run in sweep.runs}
        assert found["step 10"]["against"] is None
        assert found["step 20"]["against"].endswith(ids["step 10"])
        assert found["step 30"]["against"].endswith(ids["step 20"])
        assert [found[f"step {n}"]["alpha"] for n in (20, 30)] == pytest.approx([0.0225] * 2)
        sweep = setup.sweep(**self.early(against="baseline"))
        found = {run.label: sweep.comparisons.early_of(run) or {} for run in sweep.runs}
        assert found["step 30"]["against"].endswith(ids["step 10"])
        with pytest.raises(UserError, match="is not a run"):
            setup.sweep(**self.early(against=str(setup.tmp_path)))
        reference = setup.put(sweep.runs[0], complete=True).root
        sweep = setup.sweep(**self.early(against=reference))
        found = {run.label: sweep.comparisons.early_of(run) or {} for run in sweep.runs}
        assert {one["against"] for one in found.values()} == {reference}
        assert [one["alpha"] for one in found.values()] == pytest.approx([0.05 * 0.9 / 3] * 3)

    @pytest.mark.nightly
    def test_shares_are_given_once_and_never_more_than_all(self, setup: Setup) -> None:
        setup.script = lambda lane: decide(setup, lane, lambda run: 0.5)
        kept: dict[str, Any] = {}
        for call, steps in enumerate(([30, 40], [50], [10, 20], [60, 70, 80], [90])):
            setup.save(*steps)
            assert setup.run(**self.early()) == 0
            tree = json.loads(setup.folder.get("early.json") or b"")
            assert tree["shares"].items() >= kept.items(), call
            kept = tree["shares"]
        alphas = [one["alpha"] for one in kept.values() if one["against"]]
        assert len(alphas) == 7, "the first is compared with nothing, nor one that came before it"
        assert 0.045 < sum(alphas) <= 0.05
        setup.folder.put("early.json", b"{}x")
        with pytest.raises(UserError, match="records how alpha was shared"):
            setup.sweep()

    def test_calls_and_watches_share_one_alpha(self, setup: Setup) -> None:
        for first in (False, True):
            shares, config = Shares(), EarlyConfig(against="baseline")
            names = [f"run-{number}" for number in range(60)]
            for count, watched in ((11, first), (30, not first), (45, first), (60, not first)):
                shares.give(config, names[:count], setup.folder, watched=watched)
            given = [one.alpha for one in shares.shares.values() if one.against is not None]
            assert len(given) == 59
            assert min(given) > 0
            assert sum(given) <= 0.05

    @pytest.mark.nightly
    def test_where_more_may_come_the_shares_are_those_of_a_series(self, setup: Setup) -> None:
        setup.save(*range(10, 400, 10))
        sweep = setup.sweep(**self.early(), watch=True, stop_file=str(setup.tmp_path / "stop"))
        found = [sweep.comparisons.early_of(run) or {} for run in sweep.runs]
        shares = [one["alpha"] for one in found if one["against"]]
        assert len(shares) == 38
        assert shares[0] == pytest.approx(0.05 * 6 / 3.14159265**2)
        assert shares == sorted(shares, reverse=True)
        assert 0.045 < sum(shares) < 0.05

    @pytest.mark.nightly
    def test_decided_ones_are_finished_and_named_ones_completed(self, setup: Setup) -> None:
        setup.save(10, 20, 30)
        setup.script = lambda lane: decide(setup, lane, lambda run: 0.9 if run.step == 20 else 0.5)
        assert setup.run(**self.early()) == 0
        assert setup.lanes == [["step 10", "step 20", "step 30"]]
        assert set(setup.states().values()) == {"decided"}
        assert setup.run() == 0
        assert setup.lanes == []
        setup.started.clear()
        assert Sweep(setup.config(), setup.said.append, ["step 30"]).run() == 0
        assert setup.lanes == [["step 30"]]
        assert Sweep(setup.config(), setup.said.append, ["all"]).run() == 0
        assert set(setup.states().values()) == {"complete"}
        with pytest.raises(UserError, match="has no run 'step 3'"):
            Sweep(setup.config(), setup.said.append, ["step 3"])

    @pytest.mark.nightly
    def test_at_its_end_each_is_looked_at_again_under_its_share(
        self, setup: Setup, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        seen: dict[str, Any] = {}

        def look(plan: Any, store: Any, say: Any) -> bool:
            if plan.config.early.alpha == seen.setdefault("bad", 0.0):
                raise UserError("cannot be read")
            seen[store.root.rsplit("/", 1)[-1]] = plan.config.early
            return True

        monkeypatch.setattr("ace_ray.sweep.comparisons.decide_again", look)
        setup.save(10, 20, 30)
        setup.script = lambda lane: decide(setup, lane, lambda run: 0.5)
        assert setup.run(**self.early()) == 0
        sweep = setup.sweep(**self.early())
        ids = {run.label: run.run_id for run in sweep.runs}
        assert seen.keys() == {"bad", ids["step 20"], ids["step 30"]}
        assert seen[ids["step 30"]].against.endswith(ids["step 20"])
        assert seen[ids["step 30"]].alpha == pytest.approx(0.0225)
        assert any("step 30: its comparison was updated" in said for said in setup.said)
        seen["bad"] = seen[ids["step 30"]].alpha
        setup.said.clear()
        assert setup.run(**self.early()) == 0
        assert any("step 20: its comparison cannot be updated" in said for said in setup.said)

    @pytest.mark.nightly
    def test_what_others_are_compared_with_begins_first(self, setup: Setup) -> None:
        """Though its lane is the shorter one, and longer ones begin first."""
        setup.save(10, 20, 30)
        setup._make_checkpoint(setup.tmp_path / "base", 5.0, 1.0)
        source = str(setup.tmp_path / "base")
        model = {"source": source, "label": "base", "engine": {"default": "x"}}
        assert setup.sweep(models=[model]).lanes()[0].runs[0].label == "step 10"
        setup.script = lambda lane: decide(setup, lane, lambda run: 0.5)
        assert setup.run(models=[model], **self.early(against="baseline")) == 0
        assert setup.lanes == [["base"], ["step 10", "step 20", "step 30"]]

    @pytest.mark.parametrize("slots", [1, 2])
    def test_lanes_that_await_each_other_come_through(self, setup: Setup, slots: int) -> None:
        """A chain that changes its engine twice."""
        setup.machine = Machine(0, slots=slots)
        sources = [setup.tmp_path / name for name in "abcd"]
        for number, source in enumerate(sources):
            setup._make_checkpoint(source, float(number), 1.0)
        models = [
            {"source": str(source), "label": source.name, "engine": {"default": f"{at % 2}"}}
            for at, source in enumerate(sources)
        ]
        setup.script = lambda lane: decide(setup, lane, lambda run: 0.5)
        early = self.early()
        assert setup.run(checkpoints=None, models=models, **early) == 0
        assert sorted(setup.lanes) == [["a", "c"], ["b", "d"]]
        assert set(setup.states().values()) == {"decided"}


class TestWhatFails:
    @pytest.mark.nightly
    @pytest.mark.parametrize(
        ("steps", "bad", "attempts", "note", "lanes"),
        [
            (
                [1, 2, 3],
                lambda lane, run: lane.tell(run, broken="w holds NaN"),
                3,
                "w holds NaN",
                [["step 1", "step 2", "step 3"]],
            ),
            (
                [2],
                lambda lane, run: lane.tell(run, failed="no such option"),
                3,
                "no such option",
                [["step 2"]],
            ),
            *(
                (
                    [2],
                    die,
                    attempts,
                    f"incomplete after {attempts} attempts",
                    [["step 2"]] * attempts,
                )
                for attempts in (1, 2, 3)
            ),
            (
                [2, 3],
                FakeLane.leave,
                2,
                "incomplete after 2 attempts",
                [["step 2", "step 3"], ["step 2"]],
            ),
        ],
        ids=["broken", "failed", "dies", "dies twice", "dies three times", "incomplete"],
    )
    def test_one_run(
        self,
        setup: Setup,
        monkeypatch: pytest.MonkeyPatch,
        steps: list[int],
        bad: Any,
        attempts: int,
        note: str,
        lanes: Any,
    ) -> None:
        """It is reported, the others go on, and the next call tries it again."""
        setup.script = scripted(step_2=bad)
        setup.save(*steps)
        monkeypatch.setattr(module, "LANE_ATTEMPTS", attempts)
        assert setup.run() == 1
        assert setup.lanes == lanes
        complete = {f"step {step}": "complete" for step in steps}
        assert setup.states() == complete | {"step 2": "failed"}
        assert setup.ledger()["step 2"]["note"] == note
        assert f"step 2: {note}" in setup.said
        setup.script = complete_all
        assert setup.run() == 0
        assert setup.lanes == [["step 2"]]
        assert setup.states() == complete

    def test_a_lane_of_several_that_fails_goes_on_one_by_one(self, setup: Setup) -> None:
        def script(lane: FakeLane) -> None:
            if "step 2" in lane.labels:
                for run in lane.lane.runs:
                    lane.tell(run, failed="no kernel image")
            else:
                complete_all(lane)

        setup.script = script
        setup.save(1, 2, 3)
        assert setup.run() == 1
        assert setup.lanes[0] == ["step 1", "step 2", "step 3"]
        assert sorted(setup.lanes[1:]) == [["step 1"], ["step 2"], ["step 3"]]
        assert setup.states() == {"step 1": "complete", "step 2": "failed", "step 3": "complete"}

    def test_what_was_whole_before_its_lane_failed_stays_so(self, setup: Setup) -> None:
        def script(lane: FakeLane) -> None:
            for run in lane.lane.runs:
                if run.label == "step 1":
                    lane.complete(run)
                lane.tell(run, failed="the cluster refuses")

        setup.script = script
        setup.save(1, 2)
        assert setup.run() == 1
        assert setup.lanes == [["step 1", "step 2"], ["step 2"]]
        assert setup.states() == {"step 1": "complete", "step 2": "failed"}

    def test_one_that_comes_through_in_the_end(self, setup: Setup) -> None:
        left = [1, 2]

        def dies_twice(lane: FakeLane, run: SweepRun) -> None:
            if left:
                left.pop()
                raise Died
            lane.complete(run)

        setup.script = scripted(step_1=dies_twice)
        setup.save(1)
        assert setup.run() == 0
        assert len(setup.lanes) == 3

    @pytest.mark.nightly
    def test_one_that_kills_its_lane_takes_nobody_along(
        self, setup: Setup, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Nobody else's attempts are used up by it, and nobody waits behind it for ever."""
        monkeypatch.setattr(module, "LANE_ATTEMPTS", 2)
        setup.script = scripted(step_2=die)
        setup.save(*range(1, 7))
        assert setup.run() == 1
        assert setup.states() == {
            f"step {n}": "failed" if n == 2 else "complete" for n in range(1, 7)
        }
        assert [labels for labels in setup.lanes if "step 2" in labels] == [
            [f"step {n}" for n in range(1, 7)],
            ["step 2"],
        ]
        assert ["step 3", "step 4", "step 5", "step 6"] in setup.lanes
        assert len(setup.lanes) == 3

    def test_the_ledger_cannot_be_written_for_a_while(
        self, setup: Setup, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        refused = [1, 2]
        write = write_ledger

        def refuses(*arguments: Any) -> None:
            if refused:
                refused.pop()
                raise UserError("the store is away")
            write(*arguments)

        monkeypatch.setattr(module, "write_ledger", refuses)
        setup.save(1, 2, 3)
        assert setup.run(swap=False) == 0
        assert sum("the store is away" in line for line in setup.said) == 2
        assert set(setup.states().values()) == {"complete"}

    def test_one_that_another_process_made_whole(self, setup: Setup) -> None:
        """The run's own lease was held: it is no failure of this checkpoint."""
        others: list[SweepRun] = []

        def fails_first(lane: FakeLane, run: SweepRun) -> None:
            lane.tell(run, failed="the run is being written by process 1")
            others.append(run)

        def meanwhile(lane: FakeLane, run: SweepRun) -> None:
            for other in others:
                setup.put(other, complete=True).put("_SUCCESS", b"")
            lane.complete(run)

        setup.script = scripted(step_1=fails_first, step_2=meanwhile)
        setup.save(1, 2)
        assert setup.run(swap=False) == 0
        assert "step 1: the run is being written by process 1" in setup.said
        assert setup.states() == {"step 1": "complete", "step 2": "complete"}

    def test_the_store_is_away_between_two_lanes(
        self, setup: Setup, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        left = outage(setup, monkeypatch, times=3)
        setup.save(1, 2)
        assert setup.run(swap=False) == 0
        assert left == []
        assert set(setup.states().values()) == {"complete"}

    @pytest.mark.nightly
    def test_the_store_is_away_for_too_long(
        self, setup: Setup, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        left = outage(setup, monkeypatch, times=10**6)
        setup.save(1, 2)
        assert setup.run(swap=False, store_patience_s=0.05) == 75
        assert any("the same command continues the sweep" in line for line in setup.said)
        left.clear()
        assert setup.run() == 0

    def test_a_cluster_that_is_small_for_a_while_fails_nobody(
        self, setup: Setup, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "LATER_S", 0.1)
        began: list[float] = []

        def script(lane: FakeLane) -> None:
            began.append(time.monotonic())
            if len(began) < 3:
                for run in lane.lane.runs:
                    lane.tell(run, later="workers: 2 do not fit")
            else:
                complete_all(lane)

        setup.script = script
        setup.save(1, 2)
        assert setup.run() == 0
        # They stay together, and have all of their attempts.
        assert setup.lanes == [["step 1", "step 2"]] * 3
        assert began[1] - began[0] >= 0.1
        assert began[2] - began[1] >= 0.1

    def test_and_one_that_stays_small_is_left_to_the_next_call(
        self, setup: Setup, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "LATER_S", 0.0)
        monkeypatch.setattr(module, "LANE_ATTEMPTS", 2)
        setup.script = scripted(step_1=lambda lane, run: lane.tell(run, later="they do not fit"))
        setup.save(1, 2)
        assert setup.run(swap=False) == 75
        assert sorted(setup.lanes) == [["step 1"], ["step 1"], ["step 2"]]
        assert setup.states() == {"step 1": "pending", "step 2": "complete"}
        assert setup.ledger()["step 1"]["note"] == "they do not fit"
        assert "step 1: postponed: they do not fit" in setup.said
        setup.script = complete_all
        assert setup.run() == 0
        assert setup.ledger()["step 1"]["note"] == ""

    def test_what_ends_the_sweep_ends_its_lanes(
        self, setup: Setup, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        setup.machine = Machine(0, slots=3)
        boom = RuntimeError("a defect")

        def fails(*arguments: Any) -> None:
            raise boom

        monkeypatch.setattr(module, "write_ledger", fails)
        setup.save(1, 2, 3)
        with pytest.raises(RuntimeError, match="a defect"):
            setup.run(swap=False)
        first, *others = setup.started
        assert first.signals == []
        assert [lane.signals for lane in others] == [[signal.SIGTERM]] * 2
        assert all(lane.closed for lane in setup.started)


class TestRefused:
    @pytest.mark.nightly
    def test_a_torn_checkpoint(self, setup: Setup) -> None:
        setup.save(1, 2, 3)
        setup.tear(2)
        assert setup.run() == 1
        assert setup.lanes == [["step 1", "step 3"]]
        assert setup.states() == {"step 1": "complete", "step 2": "refused", "step 3": "complete"}
        assert (
            "truncated" in setup.ledger()["step 2"]["note"]
            or "ends beyond" in (setup.ledger()["step 2"]["note"])
        )
        setup.save(2)
        assert setup.run() == 0
        assert setup.lanes == [["step 2"]]
        assert set(setup.states().values()) == {"complete"}

    def test_one_model_listed_twice(self, setup: Setup) -> None:
        setup.save(1)
        model = {"source": str(setup.checkpoints / "step_1")}
        with pytest.raises(UserError, match="is the same model as step_1") as error:
            setup.sweep(checkpoints=None, models=[model, {**model, "label": "again"}])
        assert error.value.where.startswith("again (")
        with pytest.raises(UserError, match="is the same model as step_1"):
            setup.sweep(checkpoints=str(setup.checkpoints), models=[model])

    def test_equal_weights_of_two_steps_are_two_runs(self, setup: Setup) -> None:
        for step in (1, 2):
            setup.make(f"step_{step}", 5.0)
        assert setup.run() == 0
        assert setup.lanes == [["step 1", "step 2"]]
        ids = {line["run_id"] for line in setup.ledger().values()}
        assert len(ids) == 2

    @pytest.mark.parametrize(
        "changes",
        [
            {"limit": 2},
            {"sampling": {"seed": 3}},
            {"benchmarks": [{"name": "acebench", "languages": ["zh"]}]},
            {"pattern": "step*"},
            {"engine": {"default": "x"}},
        ],
    )
    def test_a_folder_of_another_config(self, setup: Setup, changes: dict[str, Any]) -> None:
        setup.save(1)
        setup.run()
        held = {item.path: item.etag for item in setup.folder.list()}
        with pytest.raises(UserError, match="belongs to a sweep with another config") as error:
            setup.run(**changes)
        assert f"({next(iter(changes))} differ)" in error.value.what
        assert setup.lanes == []
        assert {item.path: item.etag for item in setup.folder.list()} == held

    def test_nothing_is_written_before_it_runs(self, setup: Setup) -> None:
        setup.save(1)
        sweep = setup.sweep()
        assert [[run.label for run in lane.runs] for lane in sweep.lanes()] == [["step 1"]]
        assert not (setup.tmp_path / "out").exists()


class TestPlaces:
    def test_lanes_see_gpus_of_their_own(self, setup: Setup) -> None:
        setup.machine = Machine(4)
        setup.save(1, 2, 3, 4)
        assert setup.run() == 0
        assert setup.most_at_once == 4
        assert sorted(lane.devices[0] for lane in setup.started) == [0, 1, 2, 3]

    def test_a_cluster_hands_them_out_itself(self, setup: Setup) -> None:
        setup.machine = Machine(2, shared=True)
        setup.save(1, 2, 3)
        assert setup.run(swap=False) == 0
        assert setup.most_at_once == 2
        assert [lane.devices for lane in setup.started] == [None] * 3

    def test_lanes_know_what_the_cluster_is_to_hold(self, setup: Setup) -> None:
        nodes = ({"CPU": 8.0, "GPU": 2.0}, {"CPU": 8.0, "GPU": 2.0})
        setup.machine = Machine(4, shared=True, nodes=nodes)
        setup.save(1, 2, 3)
        assert setup.run(swap=False, workers=1) == 0
        first, *_, last = setup.started
        assert first.room == {"shared": True, "gpus": [1]}
        assert last.room["gpus"] == [1, 1, 1]

    def test_in_a_cluster_it_is_told_what_it_may_take(self, setup: Setup) -> None:
        setup.machine = Machine(4, shared=True)
        setup.save(1)
        model = {"source": str(setup.checkpoints / "step_1"), "engine": {"default": "[a()]"}}
        setup.run(limit=9, models=[model])
        assert [lane.specs[0]["config"]["workers"] for lane in setup.started] == [2, 2]
        assert setup.most_at_once == 2


class TestStopping:
    @pytest.mark.nightly
    @pytest.mark.parametrize(
        ("signals", "ends", "state", "note"),
        [
            ([signal.SIGTERM], end_early, "pending", ""),
            ([signal.SIGINT], end_early, "pending", ""),
            ([signal.SIGTERM, signal.SIGINT], end_early, "pending", ""),
            ([signal.SIGTERM], complete_all, "complete", ""),
            ([signal.SIGTERM], incomplete_all, "incomplete", "rows are missing"),
        ],
    )
    def test_lanes_are_told_and_none_begins(
        self,
        setup: Setup,
        monkeypatch: pytest.MonkeyPatch,
        signals: list[signal.Signals],
        ends: Script,
        state: str,
        note: str,
    ) -> None:
        """What ends whole all the same is whole, and no attempt is counted."""
        monkeypatch.setattr(module, "LANE_ATTEMPTS", 1)

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

    def test_while_a_lane_begins(self, setup: Setup) -> None:
        setup.during_start = lambda: os.kill(os.getpid(), signal.SIGTERM)
        setup.save(1, 2)
        assert setup.run(swap=False) == 75
        (lane,) = setup.started
        assert lane.signals == [signal.SIGTERM]

    def test_one_that_does_not_listen_is_killed(
        self, setup: Setup, monkeypatch: pytest.MonkeyPatch
    ) -> None:
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

    @pytest.mark.timeout(60)
    def test_while_it_watches_it_stops_at_once(self, setup: Setup) -> None:
        setup.save(1)

        def say(line: str) -> None:
            if line.startswith("watching") and setup.started:
                threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()

        assert Sweep(setup.config(watch=True, settle_s=0), say).run() == 75
        assert setup.states() == {"step 1": "complete"}


def refuses(where: str) -> Callable[..., None]:
    def plan(*_: Any) -> None:
        raise UserError("not these", where=where)

    return plan


class TestWatching:
    @pytest.fixture(autouse=True)
    def watch(self, setup: Setup) -> None:
        setup.options |= {"watch": True, "stop_file": str(setup.tmp_path / "stop")}

    @pytest.mark.nightly
    def test_what_comes_is_evaluated(self, setup: Setup) -> None:
        setup.save(1, 2)
        setup.in_turn([partial(setup.save, 3)], [partial(setup.save, 4)], [setup.stop])
        assert setup.run() == 0
        assert setup.lanes == [["step 1", "step 2"], ["step 3"], ["step 4"]]
        assert set(setup.states().values()) == {"complete"}

    @pytest.mark.parametrize("steps", [(), (1, 2)])
    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"categories": ["Atom"]}, "did you mean 'atom'?"),
            ({"data": "/nowhere"}, "'/nowhere' is neither mini"),
            ({"user": "sam"}, "did you mean 'same'?"),
            ({"ids": ["nobody"]}, "acebench has no entry 'nobody'"),
        ],
    )
    def test_a_mistake_in_the_config_ends_it_before_it_waits(
        self, setup: Setup, steps: tuple[int, ...], changes: dict[str, Any], words: str
    ) -> None:
        setup.save(*steps)
        with pytest.raises(UserError, match=re.escape(words)):
            setup.sweep(benchmarks=[{"name": "acebench", **changes}], settle_s=60)

    @pytest.mark.parametrize("settle_s", [0, 60])
    def test_a_context_that_holds_no_prompt_ends_it_before_it_waits(
        self, setup: Setup, settle_s: int
    ) -> None:
        setup.save(1, 2)
        with pytest.raises(UserError, match="no prompt fits"):
            setup.sweep(engine={"max_model_len": 8}, settle_s=settle_s)

    def test_a_mistake_that_only_the_checkpoints_show_ends_it_before_it_waits(
        self, setup: Setup, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "plan_of_checkpoint", refuses("model.tool_parser"))
        setup.save(1, 2)
        with pytest.raises(UserError, match=r"model\.tool_parser: not these"):
            setup.sweep(settle_s=60)
        # An error about a file of the checkpoint says nothing about the config.
        monkeypatch.setattr(
            module, "plan_of_checkpoint", refuses(f"{setup.checkpoints}/step_1/config.json")
        )
        shutil.rmtree(setup.checkpoints / "step_2")
        setup.sweep(settle_s=60)

    def test_a_preview_plans_what_is_there(self, setup: Setup) -> None:
        setup.save(1, 2)
        (setup.checkpoints / "step_3").mkdir()
        (setup.checkpoints / "step_3" / "config.json").write_text("{}")
        sweep = Sweep(setup.config(settle_s=60), setup.said.append, preview=True)
        assert [run.label for run in sweep.runs if run.plan] == ["step 1", "step 2"]
        assert (
            sweep.runs[-1].awaited
            == "waiting for the checkpoint to be complete: the tokenizer is missing"
        )

    def test_the_stop_file_and_the_last_checkpoint_at_once(self, setup: Setup) -> None:
        setup.save(1)
        setup.in_turn([partial(setup.save, 2), setup.stop])
        assert setup.run(settle_s=0.05) == 0
        assert setup.lanes == [["step 1"], ["step 2"]]

    def test_a_torn_one_that_becomes_whole(self, setup: Setup) -> None:
        setup.save(1, 2)
        setup.tear(2)
        setup.in_turn([partial(setup.save, 2)], [setup.stop])
        assert setup.run() == 0
        assert setup.lanes == [["step 1"], ["step 2"]]
        assert any(line.startswith("step 2: refused") for line in setup.said)
        assert setup.states() == {"step 1": "complete", "step 2": "complete"}

    def test_one_that_lacks_a_file_is_waited_for(self, setup: Setup) -> None:
        setup.save(1, 2)
        (setup.checkpoints / "step_2" / "tokenizer.json").unlink()
        setup.in_turn([partial(setup.save, 2)], [setup.stop])
        assert setup.run() == 0
        assert not any("refused" in line for line in setup.said)
        assert setup.lanes == [["step 1"], ["step 2"]]

    def test_and_refused_when_nobody_goes_on_with_it(self, setup: Setup) -> None:
        setup.save(1, 2)
        (setup.checkpoints / "step_2" / "tokenizer.json").unlink()
        setup.in_turn([setup.stop])
        assert setup.run() == 1
        assert setup.states() == {"step 1": "complete", "step 2": "refused"}
        assert (
            setup.ledger()["step 2"]["note"]
            == "the checkpoint is incomplete: the tokenizer is missing"
        )

    def test_weights_that_change_are_another_run(self, setup: Setup) -> None:
        setup.save(1)
        setup.in_turn([partial(setup.make, "step_1", 7.0, 7.0)], [setup.stop])
        assert setup.run() == 0
        assert setup.lanes == [["step 1"], ["step 1"]]
        assert len({lane.lane.runs[0].run_id for lane in setup.started}) == 2
        assert setup.states() == {"step 1": "complete"}

    def test_a_copy_of_a_listed_model_is_refused_while_others_go_on(self, setup: Setup) -> None:
        setup.save(1)
        model = {"source": str(setup.checkpoints / "step_1")}
        aside = setup.checkpoints.rename(setup.tmp_path / "aside")
        setup.checkpoints.mkdir()
        (aside / "step_1").rename(setup.checkpoints / "step_1")
        setup.in_turn([partial(setup.save, 2)], [setup.stop])
        assert setup.run(models=[model], settle_s=0.05) == 1
        assert setup.lanes == [["step_1"], ["step 2"]]
        assert setup.states() == {"step_1": "complete", "step 1": "refused", "step 2": "complete"}
        assert "is the same model as step_1" in setup.ledger()["step 1"]["note"]

    @pytest.mark.parametrize(
        ("name", "why"),
        [
            ("final", "the name 'final' contains no step number"),
            ("step_01", "step_01 and step_1 both have step 1"),
        ],
    )
    def test_an_invalid_name_is_refused_while_others_go_on(
        self, setup: Setup, name: str, why: str
    ) -> None:
        setup.save(1)
        invalid = partial(setup.make, name, 1.0)
        setup.in_turn([invalid, partial(setup.save, 2)], [partial(setup.save, 3)], [setup.stop])
        assert setup.run() == 1
        assert setup.lanes == [["step 1"], ["step 2"], ["step 3"]]
        assert setup.states() == {name: "refused", **{f"step {n}": "complete" for n in (1, 2, 3)}}
        assert setup.ledger()[name]["note"] == why
        assert setup.said.count(f"{name}: refused: {why}") == 1
        # A call that begins with it is refused as a whole: now it is the user's to mend.
        with pytest.raises(UserError, match=r"contains no step number|both have step 1"):
            setup.sweep()

    def test_one_that_cannot_be_planned_for_a_while(
        self, setup: Setup, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """S3 is away between the look and the plan: it is no fault of the checkpoint."""
        setup.save(1)
        left = [1, 2]
        plan = plan_run

        def away(config: Any) -> Any:
            if left and setup.started:
                left.pop()
                raise Unreachable("S3 cannot be reached")
            return plan(config)

        monkeypatch.setattr(runs_module, "plan_run", away)
        setup.in_turn([partial(setup.save, 2)], [setup.stop])
        assert setup.run() == 0
        assert left == []
        assert "step 2 cannot be planned now: S3 cannot be reached" in setup.said
        assert setup.lanes == [["step 1"], ["step 2"]]
        assert set(setup.states().values()) == {"complete"}

    def test_a_stop_file_on_s3(self, setup: Setup, s3: Any) -> None:
        setup.save(1)
        stop = partial(s3.client.put_object, Bucket=s3.bucket, Key="stop/here", Body=b"")
        setup.in_turn([partial(setup.save, 2)], [stop])
        assert setup.run(stop_file=f"s3://{s3.bucket}/stop/here") == 0
        assert setup.lanes == [["step 1"], ["step 2"]]

    def test_what_comes_while_a_lane_runs_is_not_left_to_its_end(self, setup: Setup) -> None:
        setup.machine = Machine(0, slots=2)

        def wait(lane: FakeLane, seconds: float) -> None:
            """Each lane goes on until there is another one beside it."""
            if not (setup.checkpoints / "step_2").exists():
                setup.save(2)
            if len(setup.started) == 2:
                for running in setup.at_work():
                    running.end()
                setup.stop()

        setup.save(1)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(FakeLane, "wait", wait)
            assert setup.run() == 0
        assert setup.lanes == [["step 1"], ["step 2"]]

    def test_what_came_one_by_one_while_a_lane_ran_shares_an_engine(self, setup: Setup) -> None:
        left = [2, 3, 4]

        def wait(lane: FakeLane, seconds: float) -> None:
            time.sleep(0.02)
            if left:
                setup.save(left.pop(0))
            else:
                setup.stop()
                lane.end()

        setup.save(1)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(FakeLane, "wait", wait)
            assert setup.run() == 0
        assert setup.lanes == [["step 1"], ["step 2", "step 3", "step 4"]]

    def test_one_that_is_being_written_at_the_end_is_left_to_the_next_call(
        self, setup: Setup
    ) -> None:
        setup.save(1)

        def goes_on() -> None:
            for n in range(200):
                if stop.is_set():
                    return
                setup.make("step_2", *[float(n)] * (n + 1))
                time.sleep(0.01)

        stop = threading.Event()
        writer = threading.Thread(target=goes_on)

        setup.in_turn([writer.start, partial(time.sleep, 0.05), setup.stop])
        assert setup.run(settle_s=0.3) == 75
        stop.set()
        writer.join()
        assert setup.states() == {"step 1": "complete", "step 2": "pending"}
        assert setup.ledger()["step 2"]["note"] == "it was still being written when the watch ended"

    def test_a_store_that_is_away_at_the_end(
        self, setup: Setup, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The last checkpoint may be there, and nobody can tell."""
        setup.save(1)

        def away(*arguments: Any) -> Any:
            raise UserError("the store is away")

        def last() -> None:
            setup.save(2)
            setup.stop()
            monkeypatch.setattr("ace_ray.sweep.checkpoints.find_checkpoints", away)

        setup.in_turn([last])
        assert setup.run(settle_s=0.05) == 75
        assert any("the last checkpoints could not be listed" in line for line in setup.said)
