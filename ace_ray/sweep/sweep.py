"""Run ``ace-ray sweep``: evaluate many models, each as an ordinary run in the sweep's folder."""

from __future__ import annotations

import math
import signal
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from ace_ray.cluster.resources import max_node_gpus
from ace_ray.errors import COMPLETE, FAILED, INCOMPLETE, UserError
from ace_ray.pipeline.end_time import ends_at, rows_end_at
from ace_ray.pipeline.evaluate import check_config, check_output
from ace_ray.pipeline.planning.prompts import check_chat
from ace_ray.storage.lease import Lease, LeaseLost
from ace_ray.storage.object_store import UnreachableStore, open_store
from ace_ray.storage.session_log import store_log
from ace_ray.storage.stored import SUCCESS
from ace_ray.sweep.checkpoints import Checkpoint, CheckpointWatch, find_checkpoints
from ace_ray.sweep.comparisons import Comparisons
from ace_ray.sweep.config import SweepConfig, claim, sweep_id_of
from ace_ray.sweep.lane import LaneProcess
from ace_ray.sweep.ledger import CostRecord, cost_record, merge_earlier, read_ledger, write_ledger
from ace_ray.sweep.packing import (
    Lane,
    Machine,
    check_sizes,
    find_machine,
    lanes,
    resolve_config,
    time_share,
)
from ace_ray.sweep.runs import (
    SweepEntry,
    check_distinct,
    entry_of_checkpoint,
    entry_of_model,
    is_finished,
    label_runs,
    plan_of_checkpoint,
    sort_by_step,
    unplanned_entry,
)
from ace_ray.util import log
from ace_ray.util.signals import signals_to
from ace_ray.util.suggestions import did_you_mean

LOOK_S = 1.0
# Time after ``drain_timeout_s`` before stopped lanes are killed.
END_S = 60.0
# Backoff after a failed access to the store.
AGAIN_S = 10.0
# Backoff of a lane whose cluster was too small, or whose store did not answer.
LATER_S = 60.0
# Maximum attempts at a run that does not become complete.
LANE_ATTEMPTS = 3
# Time that must be left for another lane of runs that were out of time.
ANOTHER_LANE_S = 60.0

T = TypeVar("T")


class StoreOutage(Exception):
    """The sweep's folder could not be reached within ``store_retry_timeout_s``."""


class Sweep:
    """An execution of a sweep. If the sweep cannot start, `UserError` is raised before a write."""

    _stop = False
    # Time of the next attempt at the runs in `_later`.
    _not_before = 0.0
    # Time of the last search for checkpoints.
    _looked_at = 0.0
    # Times at which the rows of all runs, and the lanes, must have ended.
    _rows_end_at = _lanes_end_at = math.inf
    # Factor on a run's equal share of the time; it grows if no row ends within a share.
    _share_factor = 1.0
    # Number of rows that this execution has evaluated.
    _rows = 0
    # Number of events of the running lanes.
    _events = 0
    # Time at which lanes are killed after a stop signal.
    _stop_by = 0.0

    def __init__(
        self,
        config: SweepConfig,
        complete: Sequence[str] = (),
        *,
        preview: bool = False,
        began: float | None = None,
    ) -> None:
        """Plan the runs of the listed models and of the checkpoints that exist now.

        ``complete``: labels of runs to evaluate without early stopping; "all" selects every run.
        ``preview``: plan the checkpoints of a watched folder even if they have not settled.
        ``began``: time at which the command began (`time.monotonic`; default: now)."""
        self._began = began or time.monotonic()
        check_output(config.output)
        self._config, self.options = config, config.options
        # The config of one run, to read keys that all runs share.
        self.any_run = any_run = config.any_run
        self.sweep_id = sweep_id_of(config)
        self.uri = f"{config.output.rstrip('/')}/{self.sweep_id}"
        output = open_store(config.output, **any_run.store.model_dump())
        self.store = output.child(self.sweep_id)
        models = self.options.models
        self.runs = label_runs(models, [entry_of_model(config, m, self.uri) for m in models])
        self._before, self._steps = read_ledger(self.store)
        self._watching: CheckpointWatch | None = None
        if self.options.watch:
            self._watching = CheckpointWatch(self.options, any_run.store, steps=self._steps)
        self._running: list[LaneProcess] = []
        self._failed: dict[str, str] = {}
        # Ids of runs that get a lane of their own.
        self._alone: set[str] = set()
        self._attempts: Counter[str] = Counter()
        # Run id -> reasons of its temporary failures, after which it is tried again later.
        self._later: dict[str, list[str]] = {}
        # Ids of runs that have used up their share of the time.
        self._out_of_time: set[str] = set()
        # Lines of the ledger that was written last.
        self.cost_records: list[CostRecord] = []
        if self.options.checkpoints is not None:
            check_config(any_run)
            self._plan_existing(preview=preview)
        check_distinct(self.runs)
        self._check_reference()
        self.comparisons = Comparisons(any_run, self.store)
        self.comparisons.disable_early_stop(complete, self._planned_runs())
        self._give_shares(keep=False)
        self.comparisons.check_reference()
        if any_run.backend == "fake":
            self.machine = Machine(0)
        else:
            cpus = [any_run.worker_cpus + 1.0, *(run.cpus for run in self.runs)]
            self.machine = find_machine(max(cpus))
        check_sizes([run for run in self.runs if run.plan], self.machine)

    @property
    def has_time(self) -> bool:
        """Return whether there is time for a report before the time limit."""
        return time.monotonic() < self._lanes_end_at

    @property
    def seconds_per_row(self) -> float | None:
        """Seconds of this execution per evaluated row; None if no row was evaluated."""
        return (time.monotonic() - self._began) / self._rows if self._rows else None

    @property
    def has_results(self) -> bool:
        """Return whether any run is complete, or stopped early with a decided comparison."""
        return any(line.state in ("complete", "decided") for line in self.cost_records)

    def run(self, noted: Callable[[], None] = lambda: None) -> int:
        """Evaluate all models; return the exit code. ``noted`` is called after each write of the
        ledger while lanes run. It must return at once and must not raise an error.

        Raises `UserError` if the folder has another sweep, another process runs this sweep, or the
        time at which the job must end has passed."""
        self._noted = noted
        self.store.check_writable()
        with Lease.acquire(self.store) as self._lease:
            claim(self.store, self._config, self.sweep_id, self._new_runs())
            self.comparisons.read()  # another call may have added shares since then
            self._give_shares(keep=True)
            # A complete sweep needs no time.
            if self._watching is not None or any(map(self._is_pending, self.runs)):
                limit = self.any_run.time_limit
                end, rows_end = ends_at(limit, self._began), rows_end_at(limit, self._began)
                if end is not None and rows_end is not None:
                    # The lanes, and then the ledger and the report, get equal times to end.
                    self._rows_end_at, self._lanes_end_at = 2 * rows_end - end, rows_end
            with signals_to(self._ask_to_stop), store_log(self.store, self._began):
                try:
                    return self._evaluate()
                except (StoreOutage, LeaseLost) as error:
                    log.warning(f"{error}; the same command continues the sweep")
                    return INCOMPLETE

    def _new_runs(self) -> list[str]:
        """Return the labels of models whose stored run cannot become the planned run."""
        run_ids = {(line.label, line.source): line.run_id for line in self._before}
        return [
            run.label
            for run in self._planned_runs()
            if (run.plan and run.plan.conflict_line)
            or run_ids.get((run.label, run.source)) not in (None, "", run.run_id)
        ]

    def _evaluate(self) -> int:
        """Evaluate and compare all runs, and watch for more. Return the exit code. Raises
        `StoreOutage` if the store does not answer, `LeaseLost` if another process has the sweep."""
        try:
            self._run_pending()
            while self._watch():
                self._run_pending()
            for run in self._planned_runs():
                if not self._stop:
                    self.comparisons.update_comparison(run)
        finally:
            if self._running and not self._stop:
                self._ask_to_stop(signal.SIGTERM)
            while self._running:
                self._wait()
                self._collect_ended()
        return self._retry_store(self._write_ledger)

    def _retry_store(self, ask: Callable[[], T]) -> T:
        """Call ``ask`` and return its result. Retry while the store is not available, at most
        ``store_retry_timeout_s``; then raise `StoreOutage`."""
        until = time.monotonic() + self.any_run.store_retry_timeout_s
        while True:
            try:
                return ask()
            except UserError as error:
                if self._stop or time.monotonic() > until:
                    raise StoreOutage(str(error)) from error
                log.warning(f"the store is not available, retrying: {error}")
                self._pause(AGAIN_S)

    def _check_reference(self) -> None:
        """Raise `UserError` unless the option ``reference`` is the label of a run."""
        labels = [*(run.label for run in self.runs), *(line.label for line in self._before)]
        if (name := self.options.reference) is not None and name not in labels:
            fix = did_you_mean(name, labels)
            raise UserError(f"no model has the label {name!r}", where="reference", fix=fix)

    # Runs

    def _plan_existing(self, *, preview: bool) -> None:
        """Plan the checkpoints that exist now. Raises `UserError` if the folder is empty, or the
        config fits no checkpoint."""
        checkpoints = find_checkpoints(self.options, self.any_run.store, self._steps)
        settled = checkpoints if self._watching is None or preview else self._watching.find_new()
        for checkpoint in settled:
            if checkpoint.lacks and self._watching is not None:
                why = f"waiting for the checkpoint to be complete: {checkpoint.lacks}"
                self._put(unplanned_entry(checkpoint, awaited=why))
            else:
                self._plan_checkpoint(checkpoint)
        planned = any(run.plan for run in self.runs if run.step is not None)
        if not planned or self._watching is not None:
            self._check_with([checkpoint for checkpoint in checkpoints if not checkpoint.lacks])

    def _check_with(self, checkpoints: Sequence[Checkpoint]) -> None:
        """Raise `UserError` if the config fits none of ``checkpoints``, which are complete.

        Errors about a file of a checkpoint are ignored, since a trainer may be writing it."""
        mistakes = []
        for checkpoint in checkpoints:
            try:
                plan = plan_of_checkpoint(self._config, checkpoint, self.uri)
                if self._watching is not None:
                    # Every checkpoint would be refused if the context were too short for a prompt.
                    check_chat(plan)
            except UnreachableStore:
                raise
            except UserError as error:
                mistakes.append((checkpoint, error))
            else:
                return
        for checkpoint, mistake in mistakes:
            if checkpoint.name not in mistake.where:
                raise mistake

    def _invalid_runs(self) -> list[SweepEntry]:
        """Return a refused run for each watched folder whose name gives no unique step."""
        invalid = self._watching.invalid if self._watching is not None else {}
        return [
            SweepEntry(source.rsplit("/", 1)[-1], None, source, refused=why)
            for source, why in invalid.items()
        ]

    def _plan_checkpoint(self, checkpoint: Checkpoint) -> SweepEntry:
        run = entry_of_checkpoint(self._config, checkpoint, self.uri)
        self._put(run)
        if self._watching is not None:
            self._watching.mark_taken(checkpoint)
        if run.refused:
            log.warning(f"{run.label}: refused: {run.refused}")
        return run

    def _put(self, run: SweepEntry) -> None:
        """Add ``run``, and remove an earlier run of the same checkpoint. Keep a run of a model in
        the config with the same source, since that run has its own engine arguments."""
        runs = [old for old in self.runs if old.step is None or old.source != run.source]
        self.runs = [*runs, run]

    def _watch(self) -> bool:
        """Wait for new checkpoints. Return False if the watch or the sweep has ended."""
        if self._watching is None:
            return False
        log.info(f"watching {self.options.checkpoints} for new checkpoints")
        while not self._stop:
            if self._plan_new(self._watching):
                return True
            if not self._watching.wait_s:
                self._end_watch(self._watching)
                return False
            self._pause(self._watching.wait_s)
        return False

    def _pause(self, seconds: float) -> None:
        """Sleep for ``seconds``, or until a signal stops the sweep (signals do not end a sleep)."""
        until = time.monotonic() + seconds
        while not self._stop and (remaining_s := until - time.monotonic()) > 0:
            time.sleep(min(remaining_s, LOOK_S))

    def _plan_new(self, watching: CheckpointWatch) -> bool:
        """Plan the runs of new checkpoints. Return whether any of them can be evaluated."""
        fine = False
        self._looked_at = time.monotonic()
        before = watching.invalid
        try:
            checkpoints = watching.find_new()
        except UserError as error:
            log.warning(f"cannot list checkpoints now: {error}")
            return False
        for folder in self._invalid_runs():
            if folder.source not in before:
                log.warning(f"{folder.label}: refused: {folder.refused}")
        for checkpoint in checkpoints:
            try:
                run = self._plan_checkpoint(checkpoint)
            except UserError as error:
                log.warning(f"step {checkpoint.step} cannot be planned now: {error}")
                continue
            try:
                check_distinct(self.runs)
                check_sizes([run] if run.plan else [], self.machine)
                self._give_shares(keep=True)
                fine |= run.plan is not None
            except UserError as error:
                # At the start of the sweep, this is an error. Now the other runs continue.
                self.runs[-1] = unplanned_entry(checkpoint, refused=str(error))
                log.warning(f"{run.label}: refused: {error}")
        return fine

    def _end_watch(self, watching: CheckpointWatch) -> None:
        """End the watch. Skip checkpoints that are still being written; a later execution of the
        sweep can evaluate them."""
        for checkpoint in watching.list_incomplete():
            self._plan_checkpoint(checkpoint)
        for checkpoint in watching.list_unfinished():
            log.warning(f"step {checkpoint.step}: skipped, because it is still being written")
            why = "it was still being written when the watch ended"
            self._put(unplanned_entry(checkpoint, awaited=why))
        for checkpoint in watching.pending_checkpoints():
            self._put(unplanned_entry(checkpoint, awaited="it could not be planned"))
        if watching.failed:
            log.warning("the last checkpoints could not be listed; run sweep again")

    def _is_pending(self, run: SweepEntry) -> bool:
        """Return whether ``run`` must still be evaluated. Raises `UserError` if the store is not
        available."""
        return run.run_id not in self._failed and self._is_unfinished(run)

    def _is_unfinished(self, run: SweepEntry) -> bool:
        all_rows = run.run_id in self.comparisons.completing
        return run.plan is not None and not is_finished(self.store, run.plan, all_rows=all_rows)

    def _planned_runs(self) -> list[SweepEntry]:
        """Return the planned runs in training order."""
        return sort_by_step(run for run in self.runs if run.plan)

    def _give_shares(self, *, keep: bool) -> None:
        """Give new runs a share of the alpha. Raises `UserError` if the store is not available."""
        watched = self._watching is not None
        self.comparisons.give_shares(self._planned_runs(), watched=watched, keep=keep)

    # Lanes

    def _run_pending(self) -> None:
        """Evaluate the pending runs, and runs of checkpoints that appear in the meantime."""
        self._later.clear()
        waiting = self._retry_store(self.lanes)
        while self._running or (waiting and not self._stop):
            if time.monotonic() > self._rows_end_at and not self._stop:
                # Start no further lanes. Running lanes end by themselves.
                log.warning("the time limit is reached; the same command continues the sweep")
                self._stop, self._stop_by = True, self._lanes_end_at
            self._start(waiting)
            self._wait()
            has_ended = self._collect_ended()
            events = sum(len(process.events()) for process in self._running)
            if has_ended or events > self._events:
                self._note_ledger()
            self._events = events
            if has_ended:
                waiting = self._repack_lanes(waiting)
            watching = self._watching
            if watching is None or self._stop:
                continue
            is_due = time.monotonic() >= self._looked_at + watching.poll_s
            if is_due and self._plan_new(watching):
                # Pack waiting runs again, since new runs may share an engine with them.
                waiting = self._repack_lanes([])

    def lanes(self, skipped: Collection[str] = ()) -> list[Lane]:
        """Pack the pending runs into lanes, except runs whose ids are in ``skipped``. The lane of a
        reference comes before the lanes of runs that are compared with it."""
        ordered = [
            replace(run, swap_group="") if run.run_id in self._alone else run
            for run in sort_by_step(self.runs)
            if run.run_id not in skipped and self._is_pending(run)
        ]
        queue, sorted_lanes = lanes(ordered, self.machine, swap=self.options.swap), []
        while queue:
            first = next(
                (lane for lane in queue if not self.comparisons.has_reference_in(lane, queue)),
                queue[0],
            )
            queue.remove(first)
            sorted_lanes.append(first)
        return sorted_lanes

    def _start(self, waiting: list[Lane]) -> None:
        """Start the waiting lanes that fit on the free GPUs, in order. A lane whose reference run
        is in a waiting lane (`Comparisons.has_reference_in`) starts only if no lane is running."""
        for lane in list(waiting):
            tried = any(run.run_id in self._later for run in lane.runs)
            if self._stop or (tried and time.monotonic() < self._not_before):
                continue
            if not (devices := self._free_gpus(lane)):
                continue
            if self._running and self.comparisons.has_reference_in(lane, waiting):
                continue
            waiting.remove(lane)
            several = len(waiting) + len(self._running) > 0
            name = lane.runs[0].label
            echo = partial(self._print_line, name) if several and not log.is_json() else None
            labels = ", ".join(run.label for run in lane.runs)
            device = f"{lane.gpus} GPU{'s' * (lane.gpus > 1)}" if lane.gpus else "CPU"
            log.info(f"evaluating {labels} on {device}")
            changes = self._retry_store(partial(self._durations_key, lane))
            parts = [
                {
                    "run_id": run.run_id,
                    "label": run.label,
                    "config": resolve_config(run, lane, self.machine)
                    | {"early": self.comparisons.early_of(run), **changes},
                }
                for run in lane.runs
            ]
            gpu_ids = devices if lane.gpus and not self.machine.shared else None
            process = LaneProcess(
                lane, parts, gpu_ids, echo=echo, room=self._lane_fields(lane, waiting)
            )
            self._running.append(process)
            if self._stop and not process.stopping:
                process.signal(signal.SIGTERM)  # the sweep was stopped while the lane started

    def _durations_key(self, lane: Lane) -> dict[str, str]:
        """Return ``durations_from`` for ``lane``: the last finished run before it in training, else
        the first one after it; {} if there is none. A lane plans the order of its rows at once."""
        lines = [*self._before, *self.cost_records]
        finished = {line.run_id for line in lines if line.state == "complete"}
        run_ids = [run.run_id for run in self._planned_runs()]
        index = run_ids.index(lane.runs[0].run_id)
        for run_id in (*reversed(run_ids[:index]), *run_ids[index:]):
            store = self.store.child(run_id)
            if run_id in finished and store.get(SUCCESS) is not None:
                return {"durations_from": store.root}
        return {}

    def _print_line(self, name: str, line: str) -> None:
        """Print an output line of a lane at any log level: the lane has filtered its lines."""
        log.error(f"[{name}] {line}")

    def _free_gpus(self, lane: Lane) -> list[int]:
        """Return the indices of GPUs for ``lane``, or [] if the lane cannot start: too few GPUs are
        free, or a running lane uses its endpoint. -1 means that no particular GPU is assigned."""
        if lane.endpoint and lane.endpoint in (process.lane.endpoint for process in self._running):
            return []
        if not self.machine.gpus:
            return [-1] if len(self._running) < self.machine.slots else []
        if not lane.gpus:  # behind an endpoint
            return [-1]
        busy_gpus = sum(process.lane.gpus for process in self._running)
        if busy_gpus + lane.gpus > self.machine.gpus:
            return []
        if self.machine.shared:
            return [-1] * lane.gpus
        busy_devices = {device for process in self._running for device in process.devices or ()}
        free = [device for device in range(self.machine.gpus) if device not in busy_devices]
        return free[: lane.gpus]

    def _lane_fields(self, lane: Lane, waiting: Sequence[Lane]) -> dict[str, Any]:
        """Return the keys ``shared``, ``gpus`` and ``rows_end_at`` of the lane's spec. ``gpus`` are
        the GPUs that the cluster needs for ``lane`` and the running lanes together."""
        running = [process.lane for process in self._running]
        end: float | None = None
        if self._rows_end_at < math.inf:
            share = self._share_factor * time_share(lane, [*running, *waiting], self.machine)
            end = time.monotonic() + min(1.0, share) * (self._rows_end_at - time.monotonic())
        gpus: list[int] = []
        shared = self.machine.shared  # else a lane sees only its own GPUs
        for count in (n for peer in (*running, lane) for n in peer.gpu_bundles if shared):
            is_on_one_node = count <= max_node_gpus(self.machine.nodes)
            gpus += [count] if is_on_one_node else [1] * count
        return {"shared": shared, "gpus": gpus, "rows_end_at": end}

    def _wait(self) -> None:
        """Wait at most `LOOK_S` for a lane to end. Kill lanes that did not stop in time."""
        if self._running:
            self._running[0].wait(LOOK_S)
        else:
            self._pause(min(LOOK_S, self._not_before - time.monotonic()))
        if self._stop and time.monotonic() > self._stop_by:
            for process in self._running:
                process.signal(signal.SIGKILL)

    def _collect_ended(self) -> bool:
        """Process the results of lanes that have ended. Return whether any lane has ended."""
        processes = [process for process in self._running if process.code is not None]
        for process in processes:
            self._running.remove(process)
            try:
                self._settle_lane(process)
            finally:
                process.close()
        return bool(processes)

    def _settle_lane(self, process: LaneProcess) -> None:
        """Call `_settle_run` for the runs of a lane that has ended, with the events of the lane."""
        events = {event["run_id"]: event for event in process.events()}
        runs = process.lane.runs
        # A lane evaluates its runs in order, so it was evaluating the first run without an event.
        last = next((run for run in runs if run.run_id not in events), None)
        rows = sum(event.get("rows", 0) for event in events.values())
        self._rows += rows
        if not rows and any(event.get("out_of_time") for event in events.values()):
            self._share_factor *= 2
        for run in runs:
            if run is last or run.run_id in events:
                self._settle_run(run, events.get(run.run_id, {}), alone=len(runs) == 1)

    def _settle_run(self, run: SweepEntry, event: dict[str, Any], *, alone: bool) -> None:
        """Decide whether ``run`` has failed or must run again, after its lane has ended.

        ``event`` is the run's event; ``alone`` tells whether the lane had no other run."""
        if self._stop or event.get("code") == COMPLETE:
            return
        if not self._retry_store(lambda: self._is_pending(run)):
            return
        if event.get("out_of_time"):
            self._out_of_time.add(run.run_id)
            return
        if "later" in event:
            tries = self._later.setdefault(run.run_id, [])
            tries.append(event["later"])
            self._not_before = time.monotonic() + LATER_S
            if len(tries) >= LANE_ATTEMPTS:
                log.warning(f"{run.label}: postponed: {tries[-1]}")
            return
        if "broken" in event or ("failed" in event and alone):
            self._failed[run.run_id] = event.get("broken") or event["failed"]
        elif "failed" in event:
            self._alone.add(run.run_id)  # one run per lane shows which run fails
            return
        else:
            self._attempts[run.run_id] += 1
            if "code" not in event and not alone:
                self._alone.add(run.run_id)  # this run may have crashed the lane
                return
            if self._attempts[run.run_id] < LANE_ATTEMPTS:
                return
            self._failed[run.run_id] = f"incomplete after {self._attempts[run.run_id]} attempts"
        log.error(f"{run.label}: {self._failed[run.run_id]}", event="run_failed")

    def _repack_lanes(self, waiting: list[Lane]) -> list[Lane]:
        """Return ``waiting``, and new lanes of the pending runs that are in no lane. Runs that have
        used up their time get new lanes only if ``waiting`` is empty and enough time is left."""
        if not waiting and time.monotonic() + ANOTHER_LANE_S < self._rows_end_at:
            self._out_of_time.clear()
        run_ids = self._out_of_time | {run.run_id for lane in waiting for run in lane.runs}
        run_ids |= {run.run_id for process in self._running for run in process.lane.runs}
        run_ids |= {run_id for run_id, why in self._later.items() if len(why) >= LANE_ATTEMPTS}
        return waiting + self._retry_store(lambda: self.lanes(run_ids))

    def _ask_to_stop(self, number: int) -> None:
        """Send signal ``number`` to the lanes. After the first signal, they finish their rows in
        flight; after a second signal, they end at once."""
        if not self._stop:
            self._stop_by = time.monotonic() + self.any_run.drain_timeout_s + END_S
        self._stop = True
        for process in self._running:
            process.signal(signal.Signals(number))

    # Ledger

    def _note_ledger(self) -> None:
        """Write the ledger while lanes run. If the store is not available, only print a warning."""
        try:
            self._write_ledger()
        except UserError as error:
            log.warning(f"the sweep's ledger cannot be written now; trying again later: {error}")
        else:
            self._noted()

    def _write_ledger(self) -> int:
        """Write the ledger; return the sweep's exit code. Raises `UserError` if the store does not
        answer, and `LeaseLost` if another process has taken over the sweep."""
        self._lease.renew()
        lines: list[CostRecord] = []
        for run in [*self.runs, *self._invalid_runs()]:
            line = cost_record(run, self.store, self.any_run.price_per_hour)
            if line.state == "decided" and run.run_id in self.comparisons.completing:
                line.state = "incomplete"
                line.note = "rows are pending: --complete selected this run"
            # Another process may have completed the run.
            if run.run_id in self._failed and self._is_unfinished(run):
                line.state, line.note = "failed", self._failed[run.run_id]
            elif line.state not in ("complete", "decided") and run.run_id in self._later:
                line.note = self._later[run.run_id][-1]
            lines.append(line)
        lines = merge_earlier(self._before, lines, self.store)
        states = {line.state for line in lines}
        lines.sort(key=lambda line: (line.step is not None, line.step or 0))
        self.cost_records = lines
        write_ledger(self.store, lines, self._steps)
        failed = self._watching is not None and self._watching.failed
        if self._stop or failed or states & {"pending", "incomplete"}:
            return INCOMPLETE
        return FAILED if states & {"failed", "refused"} else COMPLETE
