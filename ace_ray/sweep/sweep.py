"""``ace-ray sweep``: many models, each an ordinary run in the sweep's folder."""

from __future__ import annotations

import json
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import ace_ray
from ace_ray.config import RunConfig
from ace_ray.errors import UserError
from ace_ray.records import digest
from ace_ray.run.evaluate import check_lasting
from ace_ray.run.summary import COMPLETE, FAILED, INCOMPLETE, as_json
from ace_ray.store import open_store
from ace_ray.sweep.checkpoints import Checkpoint, find_checkpoints
from ace_ray.sweep.config import SweepConfig, SweepModel
from ace_ray.sweep.ledger import Account, account, write_ledger
from ace_ray.sweep.machine import find_machine
from ace_ray.sweep.packing import Lane, Machine, check_sizes, lanes
from ace_ray.sweep.processes import LaneProcess
from ace_ray.sweep.runs import SweepRun, is_finished, run_of_checkpoint, run_of_model
from ace_ray.sweep.watching import Watching

SWEEP = "sweep.json"
LOOK_S = 1.0
END_S = 60.0
"""After the grace period, for lanes that were told to stop to end by themselves."""

_WHICH = ("every", "last", "from", "to", "watch", "watch_s", "until_step", "stop_file", "poll_s")
_HOW = ("settle_s", "price_per_hour", "gpu_memory_gib", "lane_attempts", "swap")
"""Options that may change between two calls of one sweep: which models, and how."""

_RUN_HOW = (
    "workers", "worker_cpus", "checkers", "sandboxes", "concurrency", "rows_per_block",
    "rows_per_part", "max_attempts", "stall_s", "start_timeout_s", "store_patience_s", "grace_s",
    "store", "output",
)  # fmt: skip
"""Those of its runs."""


class Sweep:
    """One call. Raises `UserError`: it cannot be started as asked; nothing was written."""

    def __init__(self, config: SweepConfig, say: Callable[[str], None]) -> None:
        check_lasting(config.output)
        self._config, self._options, self._say = config, config.options, say
        any_run = config.run_of(SweepModel(source="any"), config.output)
        self._store_options, self._any_run = any_run.store, any_run
        self.sweep_id = self._options.sweep_id or _sweep_id(config)
        self.uri = f"{config.output.rstrip('/')}/{self.sweep_id}"
        self.store = open_store(
            self.uri, endpoint_url=any_run.store.endpoint_url, region=any_run.store.region
        )
        self.runs: list[SweepRun] = [
            run_of_model(config, model, self.uri) for model in self._options.models
        ]
        self._watching = (
            Watching(self._options, self._store_options) if self._options.watch else None
        )
        self._failed: dict[str, str] = {}
        self._alone: set[str] = set()
        self._attempts: Counter[str] = Counter()
        self._running: list[LaneProcess] = []
        self._stop = False
        self._stop_by = 0.0
        """When lanes that were told to stop are killed."""
        self.accounts: list[Account] = []
        """What has come of every run, once it has been gathered."""
        if self._options.checkpoints is not None:
            for checkpoint in self._first_look():
                self._take(checkpoint)
        _check_distinct(self.runs)
        self.machine = self._find_machine()
        check_sizes([run for run in self.runs if run.plan], self.machine)

    @property
    def price_per_hour(self) -> float | None:
        return self._options.price_per_hour

    def lanes(self) -> list[Lane]:
        """How what is left would run now."""
        return self._lanes([run for run in self.runs if self._is_owed(run)])

    def run(self) -> int:
        """Evaluate all models; returns the exit code.

        Raises `UserError` when the folder holds another sweep.
        """
        self._claim()
        with _Signals(self._ask_to_stop):
            try:
                self._work_through()
                while self._watch():
                    self._work_through()
            finally:
                self._end_lanes()
        return self._write_ledger()

    # What there is

    def _first_look(self) -> list[Checkpoint]:
        if self._watching is None:
            return find_checkpoints(self._options, self._store_options)
        return self._watching.look()

    def _take(self, checkpoint: Checkpoint) -> SweepRun:
        """Plan the run of a checkpoint that is new, or has changed."""
        run = run_of_checkpoint(self._config, checkpoint, self.uri)
        # A listed model may be of the same folder, under other engine arguments.
        others = [old for old in self.runs if old.step is None or old.source != run.source]
        self.runs = [*others, run]
        if self._watching is not None:
            self._watching.take(checkpoint)
        if run.refused:
            self._say(f"{run.label}: refused, {run.refused}")
        return run

    def _watch(self) -> bool:
        """Wait for new checkpoints; False when it is time to end."""
        if self._watching is None:
            return False
        self._say(f"watching {self._options.checkpoints} for new checkpoints")
        while not self._stop:
            try:
                if self._take_new(self._watching):
                    return True
            except UserError as error:
                self._say(f"cannot look for checkpoints now: {error}")
            if not self._watching.wait_s:
                self._take_leave(self._watching)
                return False
            self._pause(self._watching.wait_s)
        return False

    def _pause(self, seconds: float) -> None:
        """Sleep until then, or until it is to stop: a signal does not end a sleep."""
        until = time.monotonic() + seconds
        while not self._stop and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, LOOK_S))

    def _take_new(self, watching: Watching) -> bool:
        """Take what has come; whether there is any of it to evaluate. Raises `UserError`: one
        cannot look now."""
        fine = False
        reached = [run.step for run in self.runs if run.step is not None and run.plan]
        for checkpoint in watching.look(max(reached, default=None)):
            run = self._take(checkpoint)
            try:
                _check_distinct(self.runs)
                check_sizes([run] if run.plan else [], self.machine)
                fine |= run.plan is not None
            except UserError as error:
                # At the start this is the user's to mend; now others are being evaluated.
                self.runs[-1] = run.without_plan(str(error))
                self._say(f"{run.label}: refused, {error}")
        return fine

    def _take_leave(self, watching: Watching) -> None:
        for checkpoint in watching.torn():
            self._take(checkpoint)
        for checkpoint in watching.unfinished():
            self._say(f"step {checkpoint.step}: left out, it is being written")

    def _is_owed(self, run: SweepRun) -> bool:
        if run.plan is None or run.run_id in self._failed:
            return False
        return not is_finished(self.store, run.plan)

    # How it runs

    def _work_through(self) -> None:
        """Evaluate what is owed now."""
        waiting = self.lanes()
        while self._running or (waiting and not self._stop):
            self._start(waiting)
            self._wait()
            if self._gather():
                self._note_ledger()
                waiting = self._again(waiting)

    def _end_lanes(self) -> None:
        """None outlives the sweep, whatever ended it: they drain as if it had been told to stop."""
        if self._running and not self._stop:
            self._ask_to_stop(signal.SIGTERM)
        while self._running:
            self._wait()
            self._gather()

    def _find_machine(self) -> Machine:
        if self._any_run.backend == "fake":
            return Machine(0, None)
        return find_machine(self._any_run.worker_cpus + 1.0, self._options.gpu_memory_gib)

    def _lanes(self, runs: Sequence[SweepRun]) -> list[Lane]:
        """Checkpoints in the order of training: neighbours share an engine."""
        ordered = sorted(runs, key=lambda run: -1 if run.step is None else run.step)
        ordered = [replace(run, kin="") if run.run_id in self._alone else run for run in ordered]
        return lanes(ordered, self.machine, swap=self._options.swap)

    def _start(self, waiting: list[Lane]) -> None:
        """Start the first lanes that fit into what is free."""
        for lane in list(waiting):
            if self._stop or not (devices := self._free(lane)):
                continue
            waiting.remove(lane)
            several = len(waiting) + len(self._running) > 0
            name = lane.runs[0].label
            say = (lambda line, name=name: self._say(f"[{name}] {line}")) if several else None
            labels = ", ".join(run.label for run in lane.runs)
            self._say(f"evaluating {labels} on {lane.gpus or 'no'} GPU(s)")
            parts = [{"run_id": run.run_id, "config": _resolved(run, lane)} for run in lane.runs]
            shown = devices if self.machine.gpus and not self.machine.shared else None
            process = LaneProcess(lane, parts, shown, say=say)
            self._running.append(process)
            if self._stop and not process.asked:
                process.signal(signal.SIGTERM)  # it began while the signal came

    def _free(self, lane: Lane) -> list[int]:
        """GPUs for ``lane``, [-1] where they need no numbers, [] when there is no room."""
        if not self.machine.gpus:
            return [-1] if len(self._running) < self.machine.slots else []
        taken = sum(process.lane.gpus for process in self._running)
        if taken + lane.gpus > self.machine.gpus:
            return []
        if self.machine.shared:
            return [-1] * lane.gpus
        used = {device for process in self._running for device in process.devices or ()}
        free = [device for device in range(self.machine.gpus) if device not in used]
        return free[: lane.gpus]

    def _wait(self) -> None:
        """For a lane to end, a little while."""
        if self._running:
            self._running[0].wait(LOOK_S)
        if self._stop and time.monotonic() > self._stop_by:
            for process in self._running:
                process.signal(signal.SIGKILL)

    def _gather(self) -> bool:
        """Take in what lanes have said and which have ended; whether any has."""
        ended = [process for process in self._running if process.code is not None]
        for process in ended:
            self._running.remove(process)
            done = {event["run_id"]: event for event in process.events()}
            runs = process.lane.runs
            # They come one after another: it was at work on the first that it said nothing of.
            last = next((run for run in runs if run.run_id not in done), None)
            for run in runs:
                if run is last or run.run_id in done:
                    self._settle(run, done.get(run.run_id, {}), alone=len(runs) == 1)
            process.close()
        return bool(ended)

    def _settle(self, run: SweepRun, event: dict[str, Any], *, alone: bool) -> None:
        """What becomes of a run that its lane has ended with."""
        if self._stop or event.get("code") == COMPLETE or not self._is_owed(run):
            return
        if "broken" in event or ("failed" in event and alone):
            self._failed[run.run_id] = event.get("broken") or event["failed"]
        elif "failed" in event:
            self._alone.add(run.run_id)  # whose fault it was shows when each runs by itself
            return
        else:
            self._attempts[run.run_id] += 1
            if "code" not in event and not alone:
                self._alone.add(run.run_id)  # here too: others must not go down with it again
                return
            if self._attempts[run.run_id] < self._options.lane_attempts:
                return
            self._failed[run.run_id] = f"not whole after {self._attempts[run.run_id]} attempts"
        self._say(f"{run.label}: {self._failed[run.run_id]}")

    def _again(self, waiting: list[Lane]) -> list[Lane]:
        """Lanes of what is still owed and neither waits nor runs, behind those that wait."""
        taken = {run.run_id for lane in waiting for run in lane.runs}
        taken |= {run.run_id for process in self._running for run in process.lane.runs}
        owed = [run for run in self.runs if run.run_id not in taken and self._is_owed(run)]
        return waiting + (self._lanes(owed) if owed else [])

    def _ask_to_stop(self, number: int) -> None:
        """The first signal drains the lanes, a further one ends them: they know both."""
        if not self._stop:
            self._stop_by = time.monotonic() + self._any_run.grace_s + END_S
        self._stop = True
        for process in self._running:
            process.signal(signal.Signals(number))

    # What lands

    def _claim(self) -> None:
        """Make the folder this sweep's. Raises `UserError` when it holds another."""
        self.store.check_writable()
        raw = self.store.get(SWEEP)
        mine = _identity(self._config)
        if raw is not None:
            try:
                theirs = dict(json.loads(raw)["identity"])
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                raise UserError(
                    f"{SWEEP} cannot be read", where=self.uri, fix="choose another sweep_id"
                ) from error
            if theirs != mine:
                keys = sorted(k for k in {*theirs, *mine} if theirs.get(k) != mine.get(k))
                raise UserError(
                    f"the folder holds a sweep of another config ({', '.join(keys)} differ)",
                    where=self.uri,
                    fix="choose another sweep_id or --output",
                )
            return
        manifest = {
            "schema_version": 1,
            "sweep_id": self.sweep_id,
            "ace_ray_version": ace_ray.__version__,
            "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "identity": mine,
            "config": {
                **self._config.run,
                **self._options.model_dump(mode="json", by_alias=True),
                "sweep_id": self.sweep_id,
            },
        }
        self.store.put(SWEEP, as_json(manifest))

    def _note_ledger(self) -> None:
        """Write it while lanes run. A store that is away now may be back when they end."""
        try:
            self._write_ledger()
        except UserError as error:
            self._say(f"the ledger cannot be written now: {error}")

    def _write_ledger(self) -> int:
        """Write what has come of every run; the exit code."""
        lines: list[Account] = []
        for run in sorted(self.runs, key=lambda run: (run.step is not None, run.step or 0)):
            line = account(run, self.store, self._options.price_per_hour)
            if run.run_id in self._failed:
                line.state, line.note = "failed", self._failed[run.run_id]
            lines.append(line)
        write_ledger(self.store, lines)
        self.accounts = lines
        states = {line.state for line in lines}
        if self._stop or states & {"pending", "incomplete"}:
            return INCOMPLETE
        return FAILED if states & {"failed", "refused"} else COMPLETE


class _Signals:
    """SIGINT and SIGTERM go to ``ask``, from the main thread."""

    def __init__(self, ask: Callable[[int], None]) -> None:
        self._ask = ask
        self._before: dict[int, Any] = {}

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, lambda n, frame: self._ask(n))

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


def _identity(config: SweepConfig) -> dict[str, Any]:
    """What makes a sweep this one: all but which of its models are taken, and how."""
    options = config.options.model_dump(mode="json", by_alias=True)
    own = {k: v for k, v in options.items() if k not in (*_WHICH, *_HOW, "sweep_id")}
    run = {k: v for k, v in config.run.items() if k not in _RUN_HOW}
    tree: dict[str, Any] = json.loads(json.dumps({**run, **own}))
    return tree


def _sweep_id(config: SweepConfig) -> str:
    options = config.options
    source = options.checkpoints or options.models[0].source
    stem = re.sub(r"[^a-z0-9._-]+", "-", source.rstrip("/").rsplit("/", 1)[-1].lower())
    return f"sweep-{stem[:60].strip('-.')}-{digest(_identity(config))[:10]}"


def _resolved(run: SweepRun, lane: Lane) -> dict[str, Any]:
    """The config that the lane's process reads."""
    assert run.plan is not None  # only planned runs are in lanes
    config: RunConfig = run.plan.config
    if config.workers == "auto" and lane.gpus:
        config = config.model_copy(update={"workers": max(1, lane.gpus // run.gpus)})
    return config.model_dump(mode="json")


def _check_distinct(runs: Sequence[SweepRun]) -> None:
    """Raise `UserError` when two models are one run: a copy, or one listed twice."""
    seen: dict[str, SweepRun] = {}
    for run in runs:
        if run.plan is None:
            continue
        if run.run_id in seen:
            raise UserError(
                f"is the same model as {seen[run.run_id].label} ({seen[run.run_id].source})",
                where=f"{run.label} ({run.source})",
                fix="list each model once, or leave this copy out",
            )
        seen[run.run_id] = run
