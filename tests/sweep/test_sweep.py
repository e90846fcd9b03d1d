"""The sweep itself, with lanes that do as they are told instead of processes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from ace_ray.errors import UserError
from ace_ray.run.evaluate import plan_run
from ace_ray.run.planning.plan import make_manifest
from ace_ray.run.summary import as_json
from ace_ray.store import LocalStore, Unreachable
from ace_ray.sweep import runs as runs_module
from ace_ray.sweep import sweep as module
from ace_ray.sweep.config import load_sweep
from ace_ray.sweep.ledger import write_ledger
from ace_ray.sweep.packing import Lane, Machine
from ace_ray.sweep.runs import SweepRun, is_finished
from ace_ray.sweep.sweep import Sweep

Play = Callable[["FakeLane"], None]


class FakeLane:
    """In place of a `LaneProcess`: plays its part when it is waited for, and ends."""

    def __init__(self, stage: Stage, lane: Lane, specs: list[Any], devices: Any, say: Any) -> None:
        self.lane, self.specs, self.devices, self.say = lane, specs, devices, say
        self.labels = [run.label for run in lane.runs]
        self.code: int | None = None
        self.asked = False
        self.signals: list[int] = []
        self.told: list[dict[str, Any]] = []
        self.closed = False
        self.room: dict[str, Any] = {}
        self._stage = stage
        stage.started.append(self)
        stage.during_start()

    # What a `LaneProcess` does

    def wait(self, seconds: float) -> None:
        assert self.code is None
        self._stage.most_at_once = max(self._stage.most_at_once, len(self._stage.at_work()))
        # Lanes side by side end in the order that they began.
        self._stage.at_work()[0].end()

    def signal(self, number: signal.Signals) -> None:
        self.asked = True
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
        self._stage.play(self)

    def complete(self, run: SweepRun) -> None:
        store = self._stage.put(run, complete=True)
        store.put("_SUCCESS", b"")
        self.tell(run, code=0)

    def tell(self, run: SweepRun, **what: Any) -> None:
        self.told.append({"run_id": run.run_id, **what})


def all_well(lane: FakeLane) -> None:
    for run in lane.lane.runs:
        lane.complete(run)


class Stage:
    """A folder of checkpoints, a sweep's config, and the lanes that were started."""

    def __init__(self, tmp_path: Path, make_checkpoint: Callable[..., Path]) -> None:
        self.tmp_path, self._make = tmp_path, make_checkpoint
        self.checkpoints = tmp_path / "run"
        self.machine = Machine(0, None)
        self.started: list[FakeLane] = []
        self.said: list[str] = []
        self.play: Play = all_well
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
            "poll_s": 0.01,
        }

    def save(self, *steps: int, **more: Any) -> None:
        for step in steps:
            self._make(self.checkpoints / f"step_{step}", float(step), 1.0, **more)

    def tear(self, step: int) -> None:
        weights = self.checkpoints / f"step_{step}" / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-1])

    def sweep(self, **changes: Any) -> Sweep:
        self.options |= changes
        path = self.tmp_path / "sweep.yaml"
        path.write_text(yaml.safe_dump({k: v for k, v in self.options.items() if v is not None}))
        return Sweep(load_sweep(str(path)), self.said.append)

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
def stage(
    tmp_path: Path, make_checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Stage]:
    stage = Stage(tmp_path, make_checkpoint)

    def made(lane: Lane, specs: list[Any], devices: Any, *, say: Any, room: Any) -> FakeLane:
        fake = FakeLane(stage, lane, specs, devices, say)
        fake.room = room
        return fake

    monkeypatch.setattr(module, "LaneProcess", made)
    monkeypatch.setattr(Sweep, "_find_machine", lambda self: stage.machine)
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield stage
    assert {number: signal.getsignal(number) for number in before} == before


def plays(**by_label: Callable[[FakeLane, SweepRun], None]) -> Play:
    """Each run as told by its step, complete where nothing is said; a lane ends with the first
    that raises."""

    def play(lane: FakeLane) -> None:
        for run in lane.lane.runs:
            do = by_label.get(run.label.replace(" ", "_"))
            try:
                lane.complete(run) if do is None else do(lane, run)
            except Died:
                lane.code = -9
                return

    return play


class Died(Exception):
    pass


def die(lane: FakeLane, run: SweepRun) -> None:
    raise Died


def outage(stage: Stage, monkeypatch: pytest.MonkeyPatch, *, times: int) -> list[int]:
    """Once a lane has run, nobody can tell so many times what is finished; the times left."""
    left = list(range(times))
    finished = is_finished
    monkeypatch.setattr(module, "AGAIN_S", 0.0)

    def asks(*arguments: Any) -> bool:
        if stage.started and left:
            left.pop()
            raise UserError("the store is away")
        return finished(*arguments)

    monkeypatch.setattr(module, "is_finished", asks)
    return left


class TestToTheEnd:
    def test_all_in_one_lane(self, stage: Stage) -> None:
        stage.save(30, 4, 100)
        assert stage.run() == 0
        assert stage.lanes == [["step 4", "step 30", "step 100"]]
        assert stage.states() == dict.fromkeys(("step 4", "step 30", "step 100"), "complete")
        (lane,) = stage.started
        assert lane.say is None
        assert [spec["run_id"] for spec in lane.specs] == [run.run_id for run in lane.lane.runs]
        assert [Path(spec["config"]["model"]["source"]).name for spec in lane.specs] == [
            "step_4",
            "step_30",
            "step_100",
        ]
        assert all(spec["config"]["output"] == stage.folder.root for spec in lane.specs)

    def test_a_finished_sweep_starts_nothing(self, stage: Stage) -> None:
        stage.save(1, 2)
        stage.run()
        before = stage.ledger()
        assert stage.run() == 0
        assert stage.lanes == []
        assert stage.ledger() == before

    def test_only_what_is_owed(self, stage: Stage) -> None:
        stage.save(1, 2, 3)
        stage.run()
        run_id = stage.started[0].lane.runs[1].run_id
        stage.folder.delete(f"{run_id}/_SUCCESS")
        stage.save(4)
        assert stage.run() == 0
        assert stage.lanes == [["step 2", "step 4"]]

    def test_which_are_taken_may_change(self, stage: Stage) -> None:
        stage.save(1, 2, 3, 4)
        assert stage.run(last=1) == 0
        assert stage.lanes == [["step 4"]]
        assert stage.run(last=None, every=3) == 0
        assert stage.lanes == [["step 1"]]
        assert stage.run(every=1, to=2, price_per_hour=3, lane_attempts=1, swap=False) == 0
        assert stage.lanes == [["step 2"]]

    def test_how_it_runs_may_change(self, stage: Stage) -> None:
        stage.save(1)
        stage.run()
        assert stage.run(workers=2, grace_s=1.0, concurrency=3, max_attempts=1) == 0
        assert stage.lanes == []

    def test_swap_off(self, stage: Stage) -> None:
        stage.save(1, 2)
        assert stage.run(swap=False) == 0
        assert sorted(stage.lanes) == [["step 1"], ["step 2"]]

    def test_models_and_checkpoints(self, stage: Stage) -> None:
        stage.save(1, 2)
        model = {"source": str(stage.checkpoints / "step_1"), "engine": {"default": "[a()]"}}
        assert stage.run(models=[{**model, "label": "mine"}]) == 0
        assert sorted(stage.lanes) == [["mine"], ["step 1", "step 2"]]
        assert stage.states() == dict.fromkeys(("mine", "step 1", "step 2"), "complete")
        # Models first, as they are listed; then checkpoints by step.
        assert list(stage.ledger()) == ["mine", "step 1", "step 2"]

    def test_what_it_says_of_lanes_side_by_side(self, stage: Stage) -> None:
        stage.machine = Machine(0, None, slots=2)

        def talks(lane: FakeLane) -> None:
            lane.say("hello")
            all_well(lane)

        stage.play = talks
        stage.save(1, 2)
        stage.run(swap=False)
        assert stage.most_at_once == 2
        assert {"[step 1] hello", "[step 2] hello"} <= {*stage.said}

    def test_what_only_one_may_have_is_had_one_after_another(
        self, stage: Stage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stage.machine = Machine(0, None, slots=3)
        monkeypatch.setattr(SweepRun, "lock_keys", frozenset(("the cache x",)))
        stage.save(1, 2, 3)
        assert stage.run(swap=False) == 0
        assert stage.most_at_once == 1
        assert set(stage.states().values()) == {"complete"}

    def test_a_finished_one_that_falls_apart_stands_once(self, stage: Stage) -> None:
        """A cleaner has got half of it; its result is there."""
        stage.save(1, 2)
        stage.run()
        before = stage.ledger()
        stage.tear(1)
        assert stage.run() == 0
        assert stage.ledger() == before
        tree = json.loads(stage.folder.get("ledger.json") or b"")
        assert len(tree["runs"]) == 2
        # One that was never whole is refused as ever.
        stage.save(3)
        stage.tear(3)
        assert stage.run() == 1

    def test_finished_runs_stay_in_the_ledger(self, stage: Stage) -> None:
        """Their checkpoints were removed, or others are asked for."""
        stage.save(1, 2, 3)
        stage.run()
        before = stage.ledger()
        shutil.rmtree(stage.checkpoints / "step_1")
        assert stage.run(**{"from": 3}) == 0
        assert stage.ledger() == before
        assert stage.run() == 0
        assert list(stage.ledger()) == ["step 1", "step 2", "step 3"]
        # Those whose runs were removed do not.
        stage.folder.delete(f"{before['step 1']['run_id']}/_SUCCESS")
        stage.run()
        assert list(stage.ledger()) == ["step 2", "step 3"]

    def test_every_counts_from_the_first_that_there_ever_was(self, stage: Stage) -> None:
        stage.save(10, 20, 30, 40)
        assert stage.run(every=2) == 0
        assert stage.lanes == [["step 10", "step 30"]]
        # The trainer keeps the last few.
        for step in (10, 20):
            shutil.rmtree(stage.checkpoints / f"step_{step}")
        stage.save(50, 60)
        assert stage.run() == 0
        assert stage.lanes == [["step 50"]]
        assert list(stage.ledger()) == ["step 10", "step 30", "step 50"]

    @pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b'{"runs": [{"a": 1}]}'])
    def test_a_ledger_that_is_none_is_made_anew(self, stage: Stage, content: bytes) -> None:
        stage.save(1)
        stage.run()
        stage.folder.put("ledger.json", content)
        assert stage.run() == 0
        assert stage.states() == {"step 1": "complete"}

    def test_one_process_at_a_time(self, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("ace_ray.run.storage.lease.BEAT_S", 0.1)
        other = stage.sweep

        def play(lane: FakeLane) -> None:
            with pytest.raises(UserError, match="is being written by process"):
                other().run()
            all_well(lane)

        stage.play = play
        stage.save(1)
        assert stage.run() == 0
        assert len(stage.started) == 1
        assert stage.folder.get("lease.json") is None

    def test_a_sweep_that_was_taken_over_writes_no_more(self, stage: Stage) -> None:
        def play(lane: FakeLane) -> None:
            all_well(lane)
            stage.folder.put("lease.json", b'{"holder": "another"}')

        stage.play = play
        stage.save(1)
        assert stage.run() == 75
        assert stage.folder.get("ledger.json") is None
        assert any("taken this run over" in line for line in stage.said)

    def test_a_saved_config_goes_on(self, stage: Stage) -> None:
        stage.save(1)
        stage.run(**{"from": 0})
        saved = stage.tmp_path / "out" / "sweep" / "sweep.json"
        again = Sweep(load_sweep(str(saved)), stage.said.append)
        stage.started.clear()
        assert again.run() == 0
        assert (again.uri, stage.lanes) == (stage.folder.root, [])


class TestWhatFails:
    def test_broken_weights(self, stage: Stage) -> None:
        stage.play = plays(step_2=lambda lane, run: lane.tell(run, broken="w holds NaN"))
        stage.save(1, 2, 3)
        assert stage.run() == 1
        assert stage.lanes == [["step 1", "step 2", "step 3"]]
        assert stage.states() == {"step 1": "complete", "step 2": "failed", "step 3": "complete"}
        assert stage.ledger()["step 2"]["note"] == "w holds NaN"
        assert "step 2: w holds NaN" in stage.said
        # It is reported, and tried again.
        stage.play = all_well
        assert stage.run() == 0
        assert stage.lanes == [["step 2"]]
        assert stage.states()["step 2"] == "complete"

    def test_a_lane_of_one_that_fails(self, stage: Stage) -> None:
        stage.play = plays(step_1=lambda lane, run: lane.tell(run, failed="no such option"))
        stage.save(1)
        assert stage.run() == 1
        assert stage.lanes == [["step 1"]]
        assert stage.ledger()["step 1"]["note"] == "no such option"

    def test_a_lane_of_several_that_fails_goes_on_one_by_one(self, stage: Stage) -> None:
        def play(lane: FakeLane) -> None:
            if "step 2" in lane.labels:
                for run in lane.lane.runs:
                    lane.tell(run, failed="no kernel image")
            else:
                all_well(lane)

        stage.play = play
        stage.save(1, 2, 3)
        assert stage.run() == 1
        assert stage.lanes[0] == ["step 1", "step 2", "step 3"]
        assert sorted(stage.lanes[1:]) == [["step 1"], ["step 2"], ["step 3"]]
        assert stage.states() == {"step 1": "complete", "step 2": "failed", "step 3": "complete"}

    def test_what_was_whole_before_its_lane_failed_stays_so(self, stage: Stage) -> None:
        def play(lane: FakeLane) -> None:
            for run in lane.lane.runs:
                if run.label == "step 1":
                    lane.complete(run)
                lane.tell(run, failed="the cluster refuses")

        stage.play = play
        stage.save(1, 2)
        assert stage.run() == 1
        assert stage.lanes == [["step 1", "step 2"], ["step 2"]]
        assert stage.states() == {"step 1": "complete", "step 2": "failed"}

    @pytest.mark.parametrize("attempts", [1, 2, 3])
    def test_a_process_that_dies_is_started_again(self, stage: Stage, attempts: int) -> None:
        stage.play = plays(step_1=die)
        stage.save(1)
        assert stage.run(lane_attempts=attempts) == 1
        assert stage.lanes == [["step 1"]] * attempts
        assert stage.ledger()["step 1"]["note"] == f"not whole after {attempts} attempts"

    def test_one_that_comes_through_in_the_end(self, stage: Stage) -> None:
        left = [1, 2]

        def dies_twice(lane: FakeLane, run: SweepRun) -> None:
            if left:
                left.pop()
                raise Died
            lane.complete(run)

        stage.play = plays(step_1=dies_twice)
        stage.save(1)
        assert stage.run() == 0
        assert len(stage.lanes) == 3

    def test_one_that_kills_its_lane_takes_nobody_along(self, stage: Stage) -> None:
        """Nobody else's attempts are used up by it, and nobody waits behind it for ever."""
        stage.play = plays(step_2=die)
        stage.save(*range(1, 7))
        assert stage.run(lane_attempts=2) == 1
        assert stage.states() == {
            f"step {n}": "failed" if n == 2 else "complete" for n in range(1, 7)
        }
        assert [labels for labels in stage.lanes if "step 2" in labels] == [
            [f"step {n}" for n in range(1, 7)],
            ["step 2"],
        ]
        assert ["step 3", "step 4", "step 5", "step 6"] in stage.lanes
        assert len(stage.lanes) == 3

    def test_two_that_kill_their_lane(self, stage: Stage) -> None:
        stage.play = plays(step_2=die, step_4=die)
        stage.save(*range(1, 6))
        assert stage.run() == 1
        failed = {label for label, state in stage.states().items() if state == "failed"}
        assert failed == {"step 2", "step 4"}

    def test_a_machine_on_which_nothing_runs(self, stage: Stage) -> None:
        stage.play = lambda lane: setattr(lane, "code", 75)
        stage.save(1, 2, 3)
        assert stage.run(lane_attempts=2) == 1
        assert set(stage.states().values()) == {"failed"}
        assert len(stage.lanes) <= 3 * 2 + 1

    def test_rows_that_fail_again_and_again(self, stage: Stage) -> None:
        def incomplete(lane: FakeLane, run: SweepRun) -> None:
            stage.put(run, complete=False)
            lane.tell(run, code=75)

        stage.play = plays(step_1=incomplete)
        stage.save(1, 2)
        assert stage.run(lane_attempts=2) == 1
        assert stage.lanes == [["step 1", "step 2"], ["step 1"]]
        line = stage.ledger()["step 1"]
        assert (line["state"], line["note"]) == ("failed", "not whole after 2 attempts")

    def test_the_ledger_cannot_be_written_for_a_while(
        self, stage: Stage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        refused = [1, 2]
        write = write_ledger

        def refuses(*arguments: Any) -> None:
            if refused:
                refused.pop()
                raise UserError("the store is away")
            write(*arguments)

        monkeypatch.setattr(module, "write_ledger", refuses)
        stage.save(1, 2, 3)
        assert stage.run(swap=False) == 0
        assert sum("the store is away" in line for line in stage.said) == 2
        assert set(stage.states().values()) == {"complete"}

    def test_one_that_another_process_made_whole(self, stage: Stage) -> None:
        """The run's own lease was held: it is no failure of this checkpoint."""

        def fails_first(lane: FakeLane, run: SweepRun) -> None:
            lane.tell(run, failed="the run is being written by process 1")
            later.append(run)

        later: list[SweepRun] = []
        stage.play = plays(step_1=fails_first)
        stage.save(1, 2)
        sweep = stage.sweep(swap=False)
        gather = sweep._gather

        def gathers() -> bool:
            found = gather()
            for run in later:
                stage.put(run, complete=True).put("_SUCCESS", b"")
            return found

        sweep._gather = gathers  # type: ignore[method-assign]
        assert sweep.run() == 0
        assert stage.states() == {"step 1": "complete", "step 2": "complete"}

    def test_the_store_is_away_between_two_lanes(
        self, stage: Stage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        left = outage(stage, monkeypatch, times=3)
        stage.save(1, 2)
        assert stage.run(swap=False) == 0
        assert left == []
        assert set(stage.states().values()) == {"complete"}

    def test_the_store_is_away_for_too_long(
        self, stage: Stage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        left = outage(stage, monkeypatch, times=10**6)
        stage.save(1, 2)
        assert stage.run(swap=False, store_patience_s=0.05) == 75
        assert any("the same command goes on with the sweep" in line for line in stage.said)
        left.clear()
        assert stage.run() == 0

    def test_the_last_ledger_cannot_be_written(
        self, stage: Stage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuses(*arguments: Any) -> None:
            raise UserError("the store is away")

        monkeypatch.setattr(module, "write_ledger", refuses)
        stage.save(1)
        assert stage.run(store_patience_s=0.0) == 75

    def test_a_cluster_that_is_small_for_a_while_condemns_nobody(
        self, stage: Stage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "LATER_S", 0.1)
        began: list[float] = []

        def play(lane: FakeLane) -> None:
            began.append(time.monotonic())
            if len(began) < 3:
                for run in lane.lane.runs:
                    lane.tell(run, later="workers: 2 do not fit")
            else:
                all_well(lane)

        stage.play = play
        stage.save(1, 2)
        assert stage.run() == 0
        # They stay together, and have all of their attempts.
        assert stage.lanes == [["step 1", "step 2"]] * 3
        assert began[1] - began[0] >= 0.1
        assert began[2] - began[1] >= 0.1

    def test_and_one_that_stays_small_is_left_to_the_next_call(
        self, stage: Stage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "LATER_S", 0.0)
        stage.play = plays(step_1=lambda lane, run: lane.tell(run, later="they do not fit"))
        stage.save(1, 2)
        assert stage.run(swap=False, lane_attempts=2) == 75
        assert sorted(stage.lanes) == [["step 1"], ["step 1"], ["step 2"]]
        assert stage.states() == {"step 1": "pending", "step 2": "complete"}
        assert stage.ledger()["step 1"]["note"] == "they do not fit"
        assert "step 1: left to a later time, they do not fit" in stage.said
        stage.play = all_well
        assert stage.run() == 0
        assert stage.ledger()["step 1"]["note"] == ""

    def test_what_ends_the_sweep_ends_its_lanes(
        self, stage: Stage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        stage.machine = Machine(0, None, slots=3)
        boom = RuntimeError("a defect")

        def fails(*arguments: Any) -> None:
            raise boom

        monkeypatch.setattr(module, "write_ledger", fails)
        stage.save(1, 2, 3)
        with pytest.raises(RuntimeError, match="a defect"):
            stage.run(swap=False)
        first, *others = stage.started
        assert first.signals == []
        assert [lane.signals for lane in others] == [[signal.SIGTERM]] * 2
        assert all(lane.closed for lane in stage.started)


class TestRefused:
    def test_a_torn_checkpoint(self, stage: Stage) -> None:
        stage.save(1, 2, 3)
        stage.tear(2)
        assert stage.run() == 1
        assert stage.lanes == [["step 1", "step 3"]]
        assert stage.states() == {"step 1": "complete", "step 2": "refused", "step 3": "complete"}
        assert (
            "cut off" in stage.ledger()["step 2"]["note"]
            or "ends after" in (stage.ledger()["step 2"]["note"])
        )
        stage.save(2)
        assert stage.run() == 0
        assert stage.lanes == [["step 2"]]
        assert set(stage.states().values()) == {"complete"}

    def test_all_torn(self, stage: Stage) -> None:
        stage.save(1)
        stage.tear(1)
        assert stage.run() == 1
        assert stage.lanes == []
        assert stage.states() == {"step 1": "refused"}

    def test_an_empty_folder(self, stage: Stage) -> None:
        with pytest.raises(UserError, match="holds no checkpoint"):
            stage.sweep()
        assert stage.folder.list() == []

    def test_one_model_listed_twice(self, stage: Stage) -> None:
        stage.save(1)
        model = {"source": str(stage.checkpoints / "step_1")}
        with pytest.raises(UserError, match="is the same model as step_1") as error:
            stage.sweep(checkpoints=None, models=[model, {**model, "label": "again"}])
        assert error.value.where.startswith("again (")
        with pytest.raises(UserError, match="is the same model as step_1"):
            stage.sweep(checkpoints=str(stage.checkpoints), models=[model])

    def test_equal_weights_of_two_steps_are_two_runs(
        self, stage: Stage, make_checkpoint: Callable[..., Path]
    ) -> None:
        for step in (1, 2):
            make_checkpoint(stage.checkpoints / f"step_{step}", 5.0)
        assert stage.run() == 0
        assert stage.lanes == [["step 1", "step 2"]]
        ids = {line["run_id"] for line in stage.ledger().values()}
        assert len(ids) == 2

    def test_a_model_too_large(self, stage: Stage) -> None:
        stage.machine = Machine(0, 1e-9)
        stage.save(1)
        with pytest.raises(UserError, match="its weights need about"):
            stage.sweep()

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
    def test_a_folder_of_another_config(self, stage: Stage, changes: dict[str, Any]) -> None:
        stage.save(1)
        stage.run()
        held = {item.path: item.etag for item in stage.folder.list()}
        with pytest.raises(UserError, match="holds a sweep of another config") as error:
            stage.run(**changes)
        assert f"({next(iter(changes))} differ)" in error.value.what
        assert stage.lanes == []
        assert {item.path: item.etag for item in stage.folder.list()} == held

    @pytest.mark.parametrize(
        "content", [b"", b"{", b"[]", b"{}", b"3", b'{"identity": 3}', b"\xff"]
    )
    def test_a_folder_of_who_knows(self, stage: Stage, content: bytes) -> None:
        stage.save(1)
        stage.folder.put("sweep.json", content)
        with pytest.raises(UserError, match=r"sweep.json cannot be read"):
            stage.run()
        assert stage.lanes == []

    def test_another_config_has_another_name(self, stage: Stage) -> None:
        stage.save(1)
        stage.options["sweep_id"] = None
        one = stage.sweep().sweep_id
        assert one.startswith("sweep-run-")
        assert stage.sweep(last=1, workers=3).sweep_id == one
        assert stage.sweep(limit=2).sweep_id != one

    def test_nothing_is_written_before_it_runs(self, stage: Stage) -> None:
        stage.save(1)
        sweep = stage.sweep()
        assert [[run.label for run in lane.runs] for lane in sweep.lanes()] == [["step 1"]]
        assert not (stage.tmp_path / "out").exists()


class TestPlaces:
    def test_lanes_see_gpus_of_their_own(self, stage: Stage) -> None:
        stage.machine = Machine(4, None)
        stage.save(1, 2, 3, 4)
        assert stage.run() == 0
        assert stage.most_at_once == 4
        assert sorted(lane.devices[0] for lane in stage.started) == [0, 1, 2, 3]

    def test_gpus_come_back(self, stage: Stage) -> None:
        stage.machine = Machine(2, None)
        stage.save(1, 2, 3, 4, 5)
        assert stage.run(swap=False) == 0
        assert stage.most_at_once == 2
        assert {device for lane in stage.started for device in lane.devices} == {0, 1}

    def test_a_cluster_hands_them_out_itself(self, stage: Stage) -> None:
        stage.machine = Machine(2, None, shared=True)
        stage.save(1, 2, 3)
        assert stage.run(swap=False) == 0
        assert stage.most_at_once == 2
        assert [lane.devices for lane in stage.started] == [None] * 3

    def test_lanes_know_what_the_cluster_held_and_is_to_hold(self, stage: Stage) -> None:
        nodes = ({"CPU": 8.0, "GPU": 2.0}, {"CPU": 8.0, "GPU": 2.0})
        stage.machine = Machine(4, None, shared=True, nodes=nodes)
        stage.save(1, 2, 3)
        assert stage.run(swap=False, workers=1) == 0
        first, *_, last = stage.started
        assert first.room == {"nodes": [*nodes], "gpus": [1]}
        assert last.room["gpus"] == [1, 1, 1]

    def test_gpus_of_this_machine_are_not_asked_for(self, stage: Stage) -> None:
        stage.machine = Machine(4, None)
        stage.save(1)
        stage.run()
        assert stage.started[0].room == {"nodes": [], "gpus": []}

    def test_one_model_on_many_gpus_finds_out_how_many_engines_they_hold(
        self, stage: Stage
    ) -> None:
        stage.machine = Machine(4, None)
        stage.save(1)
        stage.run()
        (lane,) = stage.started
        assert lane.devices == [0, 1, 2, 3]
        assert lane.specs[0]["config"]["workers"] == "auto"

    def test_in_a_cluster_it_is_told_what_it_may_take(self, stage: Stage) -> None:
        stage.machine = Machine(4, None, shared=True)
        stage.save(1)
        model = {"source": str(stage.checkpoints / "step_1"), "engine": {"default": "[a()]"}}
        stage.run(limit=9, models=[model])
        assert [lane.specs[0]["config"]["workers"] for lane in stage.started] == [2, 2]
        assert stage.most_at_once == 2

    def test_slots_of_cpus(self, stage: Stage) -> None:
        stage.machine = Machine(0, None, slots=2, shared=True)
        stage.save(1, 2, 3, 4, 5)
        assert stage.run() == 0
        assert stage.most_at_once == 2
        assert sorted(map(len, stage.lanes)) == [2, 3]


class TestStopping:
    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def test_lanes_are_told_and_none_begins(self, stage: Stage, number: signal.Signals) -> None:
        def play(lane: FakeLane) -> None:
            os.kill(os.getpid(), number)
            assert lane.signals == [number]
            lane.code = 75

        stage.play = play
        stage.save(1, 2)
        assert stage.run(swap=False) == 75
        assert len(stage.lanes) == 1
        assert set(stage.states().values()) == {"pending"}
        stage.play = all_well
        assert stage.run() == 0

    def test_what_ends_whole_all_the_same(self, stage: Stage) -> None:
        def play(lane: FakeLane) -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            all_well(lane)

        stage.play = play
        stage.save(1, 2)
        assert stage.run(swap=False) == 75
        assert sorted(stage.states().values()) == ["complete", "pending"]

    def test_no_attempt_is_counted(self, stage: Stage) -> None:
        def play(lane: FakeLane) -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            for run in lane.lane.runs:
                stage.put(run, complete=False)
                lane.tell(run, code=75)

        stage.play = play
        stage.save(1)
        assert stage.run(lane_attempts=1) == 75
        line = stage.ledger()["step 1"]
        assert (line["state"], line["note"]) == ("incomplete", "rows are missing")

    def test_a_second_signal_is_passed_on(self, stage: Stage) -> None:
        def play(lane: FakeLane) -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGINT)
            assert lane.signals == [signal.SIGTERM, signal.SIGINT]

        stage.play = play
        stage.save(1)
        assert stage.run() == 75

    def test_while_a_lane_begins(self, stage: Stage) -> None:
        stage.during_start = lambda: os.kill(os.getpid(), signal.SIGTERM)
        stage.save(1, 2)
        assert stage.run(swap=False) == 75
        (lane,) = stage.started
        assert lane.signals == [signal.SIGTERM]

    def test_one_that_does_not_listen_is_killed(
        self, stage: Stage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(module, "END_S", -1000.0)

        def wait(lane: FakeLane, seconds: float) -> None:
            if not lane.signals:
                os.kill(os.getpid(), signal.SIGTERM)
            elif lane.signals[-1] == signal.SIGKILL:
                lane.code = -9

        monkeypatch.setattr(FakeLane, "wait", wait)
        stage.save(1)
        assert stage.run() == 75
        assert stage.started[0].signals[:2] == [signal.SIGTERM, signal.SIGKILL]

    @pytest.mark.timeout(60)
    def test_while_it_watches_it_stops_at_once(self, stage: Stage) -> None:
        stage.save(1)

        def say(line: str) -> None:
            if line.startswith("watching") and stage.started:
                threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM)).start()

        sweep = stage.sweep(watch=True, poll_s=600)
        sweep._say = say
        assert sweep.run() == 75
        assert stage.states() == {"step 1": "complete"}


class TestWatching:
    def stop(self, stage: Stage) -> None:
        (stage.tmp_path / "stop").touch()

    @pytest.fixture(autouse=True)
    def watch(self, stage: Stage) -> None:
        stage.options |= {"watch": True, "stop_file": str(stage.tmp_path / "stop")}

    def saves(self, stage: Stage, *steps: int) -> Play:
        """Saves the next step whenever a lane has ended; then the stop file."""
        left = list(steps)

        def play(lane: FakeLane) -> None:
            all_well(lane)
            if left:
                stage.save(left.pop(0))
            else:
                self.stop(stage)

        return play

    def test_what_comes_is_evaluated(self, stage: Stage) -> None:
        stage.save(1, 2)
        stage.play = self.saves(stage, 3, 4)
        assert stage.run() == 0
        assert stage.lanes == [["step 1", "step 2"], ["step 3"], ["step 4"]]
        assert set(stage.states().values()) == {"complete"}

    def test_from_an_empty_folder(self, stage: Stage) -> None:
        timer = threading.Timer(0.1, stage.save, (1,))
        stage.play = self.saves(stage)
        timer.start()
        assert stage.run() == 0
        assert stage.lanes == [["step 1"]]

    def test_the_stop_file_and_the_last_checkpoint_at_once(self, stage: Stage) -> None:
        stage.save(1)

        def play(lane: FakeLane) -> None:
            all_well(lane)
            if not (stage.checkpoints / "step_2").exists():
                stage.save(2)
                self.stop(stage)

        stage.play = play
        assert stage.run(settle_s=0.05) == 0
        assert stage.lanes == [["step 1"], ["step 2"]]

    def test_a_step_ends_it(self, stage: Stage) -> None:
        stage.save(1)
        stage.play = self.saves(stage, 2, 3, 4)
        assert stage.run(stop_file=None, until_step=3) == 0
        assert stage.lanes == [["step 1"], ["step 2"], ["step 3"]]

    def test_a_time_ends_it(self, stage: Stage) -> None:
        stage.save(1)
        assert stage.run(stop_file=None, watch_s=0.05) == 0
        assert stage.lanes == [["step 1"]]

    def test_a_finished_one_is_not_evaluated_again(self, stage: Stage) -> None:
        stage.save(1)
        stage.play = self.saves(stage, 2)
        assert stage.run() == 0
        stage.save(3)
        assert stage.run() == 0
        assert stage.lanes == [["step 3"]]
        assert set(stage.states().values()) == {"complete"}

    def test_a_torn_one_that_becomes_whole(self, stage: Stage) -> None:
        stage.save(1, 2)
        stage.tear(2)

        def play(lane: FakeLane) -> None:
            all_well(lane)
            stage.save(2)
            if lane.labels == ["step 2"]:
                self.stop(stage)

        stage.play = play
        assert stage.run() == 0
        assert stage.lanes == [["step 1"], ["step 2"]]
        assert any(line.startswith("step 2: refused") for line in stage.said)
        assert stage.states() == {"step 1": "complete", "step 2": "complete"}

    def test_one_that_lacks_a_file_is_waited_for(self, stage: Stage) -> None:
        stage.save(1, 2)
        (stage.checkpoints / "step_2" / "tokenizer.json").unlink()

        def play(lane: FakeLane) -> None:
            all_well(lane)
            stage.save(2)
            if lane.labels == ["step 2"]:
                self.stop(stage)

        stage.play = play
        assert stage.run() == 0
        assert not any("refused" in line for line in stage.said)
        assert stage.lanes == [["step 1"], ["step 2"]]

    def test_and_refused_when_nobody_goes_on_with_it(self, stage: Stage) -> None:
        stage.save(1, 2)
        (stage.checkpoints / "step_2" / "tokenizer.json").unlink()
        stage.play = self.saves(stage)
        assert stage.run() == 1
        assert stage.states() == {"step 1": "complete", "step 2": "refused"}
        assert stage.ledger()["step 2"]["note"] == "it is not whole: there is no tokenizer"

    def test_weights_that_change_are_another_run(self, stage: Stage) -> None:
        stage.save(1)
        calls: list[int] = []

        def play(lane: FakeLane) -> None:
            all_well(lane)
            calls.append(1)
            if len(calls) == 1:
                stage._make(stage.checkpoints / "step_1", 7.0, 7.0)
            else:
                self.stop(stage)

        stage.play = play
        assert stage.run() == 0
        assert stage.lanes == [["step 1"], ["step 1"]]
        assert len({lane.lane.runs[0].run_id for lane in stage.started}) == 2
        assert stage.states() == {"step 1": "complete"}

    def test_a_copy_of_a_listed_model_is_refused_while_others_go_on(self, stage: Stage) -> None:
        stage.save(1)
        model = {"source": str(stage.checkpoints / "step_1")}
        aside = stage.checkpoints.rename(stage.tmp_path / "aside")
        stage.checkpoints.mkdir()
        (aside / "step_1").rename(stage.checkpoints / "step_1")

        def play(lane: FakeLane) -> None:
            all_well(lane)
            stage.save(2)
            if "step 2" in lane.labels:
                self.stop(stage)

        stage.play = play
        assert stage.run(models=[model], settle_s=0.05) == 1
        assert stage.lanes == [["step_1"], ["step 2"]]
        assert stage.states() == {"step_1": "complete", "step 1": "refused", "step 2": "complete"}
        assert "is the same model as step_1" in stage.ledger()["step 1"]["note"]

    def test_one_too_large_is_refused_while_others_go_on(self, stage: Stage) -> None:
        stage.machine = Machine(0, 1e-6)
        stage.save(1)

        def play(lane: FakeLane) -> None:
            all_well(lane)
            stage._make(stage.checkpoints / "step_2", *[1.0] * 10_000)
            self.stop(stage)

        stage.play = play
        assert stage.run() == 1
        assert stage.states() == {"step 1": "complete", "step 2": "refused"}
        assert "its weights need about" in stage.ledger()["step 2"]["note"]

    @pytest.mark.parametrize(
        ("name", "why"),
        [
            ("final", "the name 'final' has no step in it"),
            ("step_01", "step_01 and step_1 are both step 1"),
        ],
    )
    def test_an_odd_name_is_refused_while_others_go_on(
        self, stage: Stage, name: str, why: str
    ) -> None:
        stage.save(1)

        def play(lane: FakeLane) -> None:
            all_well(lane)
            if lane.labels == ["step 1"]:
                stage._make(stage.checkpoints / name, 1.0)
                stage.save(2)
            elif lane.labels == ["step 2"]:
                stage.save(3)
            else:
                self.stop(stage)

        stage.play = play
        assert stage.run() == 1
        assert stage.lanes == [["step 1"], ["step 2"], ["step 3"]]
        assert stage.states() == {name: "refused", **{f"step {n}": "complete" for n in (1, 2, 3)}}
        assert stage.ledger()[name]["note"] == why
        assert stage.said.count(f"{name}: refused, {why}") == 1
        # A call that begins with it is refused as a whole: now it is the user's to mend.
        with pytest.raises(UserError, match=r"has no step in it|are both step 1"):
            stage.sweep()

    def test_an_odd_name_that_becomes_a_step(self, stage: Stage) -> None:
        stage.save(1)

        def play(lane: FakeLane) -> None:
            all_well(lane)
            stage._make(stage.checkpoints / "final", 1.0)
            threading.Timer(0.1, rename).start()

        def rename() -> None:
            stage.play = self.saves(stage)
            (stage.checkpoints / "final").rename(stage.checkpoints / "step_2")

        stage.play = play
        assert stage.run() == 0
        assert stage.lanes == [["step 1"], ["step 2"]]
        assert stage.states() == {"step 1": "complete", "step 2": "complete"}

    def test_one_that_cannot_be_planned_for_a_while(
        self, stage: Stage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """S3 is away between the look and the plan: it is no fault of the checkpoint."""
        stage.save(1)
        left = [1, 2]
        plan = plan_run

        def away(config: Any) -> Any:
            if left and stage.started:
                left.pop()
                raise Unreachable("S3 cannot be reached")
            return plan(config)

        monkeypatch.setattr(runs_module, "plan_run", away)
        stage.play = self.saves(stage, 2)
        assert stage.run() == 0
        assert left == []
        assert "step 2 cannot be planned now: S3 cannot be reached" in stage.said
        assert stage.lanes == [["step 1"], ["step 2"]]
        assert set(stage.states().values()) == {"complete"}

    def test_a_stop_file_on_s3(self, stage: Stage, s3: Any) -> None:
        stage.save(1)

        def play(lane: FakeLane) -> None:
            all_well(lane)
            if lane.labels == ["step 1"]:
                stage.save(2)
            else:
                s3.client.put_object(Bucket=s3.bucket, Key="stop/here", Body=b"")

        stage.play = play
        assert stage.run(stop_file=f"s3://{s3.bucket}/stop/here") == 0
        assert stage.lanes == [["step 1"], ["step 2"]]

    @pytest.mark.parametrize("path", ["s3://stop", "gs://b/stop", "s3:///stop"])
    def test_a_stop_file_that_cannot_be(self, stage: Stage, path: str) -> None:
        stage.save(1)
        with pytest.raises(UserError, match=r"names no bucket|no store speaks"):
            stage.sweep(stop_file=path)

    def test_what_comes_while_a_lane_runs_is_not_left_to_its_end(self, stage: Stage) -> None:
        stage.machine = Machine(0, None, slots=2)

        def wait(lane: FakeLane, seconds: float) -> None:
            """Each lane goes on until there is another one beside it."""
            if not (stage.checkpoints / "step_2").exists():
                stage.save(2)
            if len(stage.started) == 2:
                for running in stage.at_work():
                    running.end()
                self.stop(stage)

        stage.save(1)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(FakeLane, "wait", wait)
            assert stage.run() == 0
        assert stage.lanes == [["step 1"], ["step 2"]]

    def test_what_came_one_by_one_while_a_lane_ran_shares_an_engine(self, stage: Stage) -> None:
        left = [2, 3, 4]

        def wait(lane: FakeLane, seconds: float) -> None:
            time.sleep(0.02)
            if left:
                stage.save(left.pop(0))
            else:
                self.stop(stage)
                lane.end()

        stage.save(1)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(FakeLane, "wait", wait)
            assert stage.run() == 0
        assert stage.lanes == [["step 1"], ["step 2", "step 3", "step 4"]]

    def test_one_that_is_being_written_at_the_end_is_left_to_the_next_call(
        self, stage: Stage
    ) -> None:
        stage.save(1)

        def goes_on() -> None:
            for n in range(200):
                if stop.is_set():
                    return
                stage._make(stage.checkpoints / "step_2", *[float(n)] * (n + 1))
                time.sleep(0.01)

        stop = threading.Event()
        writer = threading.Thread(target=goes_on)

        def play(lane: FakeLane) -> None:
            all_well(lane)
            writer.start()
            time.sleep(0.05)
            self.stop(stage)

        stage.play = play
        assert stage.run(settle_s=0.3) == 75
        stop.set()
        writer.join()
        assert stage.states() == {"step 1": "complete", "step 2": "pending"}
        assert stage.ledger()["step 2"]["note"] == "it was being written when the watch ended"

    def test_a_store_that_is_away_at_the_end(
        self, stage: Stage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The last checkpoint may be there, and nobody can tell."""
        stage.save(1)

        def play(lane: FakeLane) -> None:
            all_well(lane)
            stage.save(2)
            self.stop(stage)
            monkeypatch.setattr("ace_ray.sweep.watching.find_checkpoints", away)

        def away(*arguments: Any) -> Any:
            raise UserError("the store is away")

        stage.play = play
        assert stage.run(settle_s=0.05) == 75
        assert any("the last checkpoints could not be looked for" in line for line in stage.said)

    def test_failed_ones_are_not_tried_for_ever(self, stage: Stage) -> None:
        def play(lane: FakeLane) -> None:
            lane.tell(lane.lane.runs[0], broken="NaN")
            self.stop(stage)

        stage.save(1)
        stage.play = play
        assert stage.run() == 1
        assert stage.lanes == [["step 1"]]
