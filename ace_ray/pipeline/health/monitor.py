"""The driver's health monitor: a thread that ends failed runs and kills frozen processes."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, InitVar, dataclass, field
from typing import Any

import psutil

from ace_ray.config.schema import ENDPOINT, RunConfig
from ace_ray.errors import RunFailed
from ace_ray.pipeline.end_time import closing_s
from ace_ray.pipeline.health.crash_cause import death_of
from ace_ray.pipeline.health.heartbeat import NAMES, ProcessInfo, began_at
from ace_ray.pipeline.monitoring.tally import Progress, Tally
from ace_ray.pipeline.monitoring.utilization import Utilization
from ace_ray.storage.lease import LeaseLost
from ace_ray.util import log
from ace_ray.util.signals import TIME_LIMIT, Interrupts

POLL_S = 1.0
# Minimum time without a heartbeat (one every 2 s) after which a process counts as frozen.
FROZEN_S = 30.0

# Time without an answer of the coordinator after which the cluster counts as gone.
COORDINATOR_S = 60.0

# Maximum number of lines about engines that died since the tally was last read.
DEATH_LINES = 5

# If all rows so far failed with the same exception, and they are at least this many, it is a bug.
BUG_ROWS = 32

# Time after the grace period for the graph to store its rows.
END_S = 30.0


@dataclass(eq=False)
class HealthMonitor:
    """Context manager that reads the coordinator's tally once a second while a graph runs.

    It ends the run if no engine starts, if the coordinator is gone, or if the lease is lost, which
    makes this driver the only one of the run. (``lost`` returns the reason, or "".) It kills frozen
    processes. After a stop request it lets rows in flight end."""

    coordinator: Any
    config: RunConfig
    interrupts: Interrupts
    lost: Callable[[], str]
    _: KW_ONLY
    rows: int
    had_success: bool
    rows_end_at: InitVar[float | None] = None
    utilization: Utilization = field(default_factory=Utilization)

    def __post_init__(self, rows_end_at: float | None) -> None:
        self._rows_end_at = math.inf if rows_end_at is None else rows_end_at
        self._latest = Tally()
        self._progress: Progress | None = None
        self._answered_at = time.monotonic()
        # Time at which the engines began to start, or at which an elastic run last had an engine.
        self._engine_at = math.inf
        # The summary needs the other half of the closing time.
        self._stopped_at = self._rows_end_at + closing_s(self._rows_end_at - self._answered_at) / 2
        self._drain_until: float | None = None
        # Number of engine deaths that were already printed.
        self._deaths_reported = 0
        # Frozen process -> whether it was killed; False if it no longer existed.
        self._frozen: dict[ProcessInfo, bool] = {}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="health monitor", daemon=True)

    def __enter__(self) -> HealthMonitor:
        self.interrupts.abort_at(None)  # from now on `_loop` looks at the time
        self.interrupts.drainable = True
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.interrupts.drainable = False
        self._over.set()
        self._thread.join(timeout=10)

    def start_timer(self) -> None:
        """Start the timeout `start_timeout_s` and the progress lines."""
        engine = "endpoint worker" if self.config.backend == ENDPOINT else "engine"
        self._progress = Progress(self.rows, engine)
        self._answered_at = self._engine_at = time.monotonic()

    def _timeout_s(self, limit_s: float) -> float:
        """Return the timeout of a call: ``limit_s``, or less near the time limit."""
        return min(limit_s, max(3.0, self._rows_end_at - time.monotonic()))

    def refresh(self) -> Tally:
        """Return the coordinator's tally, or the last known tally if the coordinator is silent."""
        import ray

        with suppress(Exception):  # the cluster may be gone; use the latest tally
            read = self.coordinator.read.remote()
            self._latest = ray.get(read, timeout=self._timeout_s(30.0))
            self._answered_at = time.monotonic()
        return self._latest

    def last_look(self) -> Tally:
        """Return the coordinator's final tally, and print the engine crashes that were not printed
        yet. On a busy machine, the last tally that `_loop` has read may be old."""
        tally = self.refresh()
        self.utilization.count_time(tally)
        self.utilization.end()
        self._tell_deaths(tally)
        return tally

    def _loop(self) -> None:
        try:
            while not self._over.wait(POLL_S):
                tally = self.refresh()
                if self._over.is_set():
                    return
                self.utilization.count_time(tally)
                self.interrupts.repeat_abort()
                self._tell_deaths(tally)
                if self._progress is not None:
                    self._progress.show(tally)
                self._stop_if_asked(tally)
                if (error := self._reason_to_end(tally)) is not None:
                    self.interrupts.abort(error)
                self._end_frozen(tally)
        except Exception as error:  # noqa: BLE001 - nothing else might end the run
            if not self._over.is_set():  # else the cluster is gone, as intended
                self.interrupts.abort(error)

    def _stop_if_asked(self, tally: Tally) -> None:
        now_s, grace = time.monotonic(), self.config.drain_timeout_s
        at_limit = now_s > self._rows_end_at
        if at_limit:
            # Rows that still run take longer than expected, and are handed back.
            self.interrupts.is_interrupted, grace = True, 0.0
        if not self.interrupts.is_interrupted:
            return
        if not tally.workers:  # nothing is in flight
            line = f"{TIME_LIMIT}: {self.rows - tally.stored} rows are left" if at_limit else ""
            self.interrupts.abort(KeyboardInterrupt(line))
        elif self._drain_until is None:
            self._drain_until = now_s + grace + END_S
            self.coordinator.drain.remote(grace)
            line = f"finishing rows in flight ({grace:g} s); Ctrl-C again to stop now"
            log.warning("the time limit is reached: the run stops" if at_limit else line)
        elif now_s > min(self._drain_until, self._stopped_at):
            line = "rows in flight did not stop in time and stay pending"
            self.interrupts.abort(_transient_error(line))

    def _tell_deaths(self, tally: Tally) -> None:
        """Print at most `DEATH_LINES` lines about engine crashes that were not printed yet."""
        import ray

        new = tally.deaths[self._deaths_reported :]
        self._deaths_reported += len(new)
        for line in new[:DEATH_LINES]:
            engine_log: Sequence[str] = ()
            with suppress(Exception):  # the cluster may be gone
                reply = self.coordinator.pop_death_log.remote(line)
                engine_log = ray.get(reply, timeout=self._timeout_s(30.0))
            log.warning(f"engine worker {line}", event="engine_died", engine_log=engine_log)
        if len(new) > DEATH_LINES:
            line = f"and {len(new) - DEATH_LINES} more engine workers crashed"
            log.warning(line, event="engine_died")

    def _end_frozen(self, tally: Tally) -> None:
        limit = max(FROZEN_S, self.config.engine_stall_timeout_s)
        for process, silent in tally.silent.items():
            if self._over.is_set():
                return
            if silent > limit and process not in self._frozen:
                # A process that `_kill` does not find was removed after its work, or is restarting.
                self._frozen[process] = _kill(self.coordinator, process, self._timeout_s(60.0))
                if self._frozen[process]:
                    line = f"{NAMES[process.kind]} {process.name} does not respond and is killed"
                    log.warning(line)

    def _find_gone(self, tally: Tally) -> ProcessInfo | None:
        """Return a process that starts too slowly or died long ago without a successor, or None."""
        limit_s = self.config.start_timeout_s
        killed = {process: s for process, s in tally.silent.items() if self._frozen.get(process)}
        late = [process for process, age in (tally.starting | killed).items() if age > limit_s]
        if tally.stored < self.rows:
            # Rows of an engine that was removed may still be on their way to the store.
            limit_s += self.config.store_retry_timeout_s
            late += [p for p, s in tally.silent.items() if p in self._frozen and s > limit_s]
        # In an elastic run other engines get the rows of a lost engine.
        is_elastic = self.config.worker_range
        return next((p for p in late if p.kind != "engine" or not is_elastic), None)

    def _reason_to_end(self, tally: Tally) -> LeaseLost | RunFailed | None:
        now_s, limit_s = time.monotonic(), self.config.start_timeout_s
        if lost := self.lost():
            return LeaseLost(lost)
        if (silent := now_s - self._answered_at) > COORDINATOR_S:
            return _transient_error(f"the run's coordinator has not answered for {silent:.0f} s")
        engines = {process for process in tally.silent if process.kind == "engine"}
        if engines - self._frozen.keys() or (tally.workers and not self.config.worker_range):
            self._engine_at = now_s
        if now_s - self._engine_at > limit_s:
            limit = f"{limit_s:g} s (start_timeout_s)"
            if not tally.workers:
                return RunFailed(f"no engine started within {limit}", resumable=True)
            return _transient_error(f"no engine is left, and no new one started within {limit}")
        if (gone := self._find_gone(tally)) is not None:
            name = f"{NAMES[gone.kind]} {gone.name}"
            return _transient_error(f"the {name} is gone and was not replaced")
        if not self.had_success and (bug := tally.bug(BUG_ROWS)) is not None:
            return RunFailed(bug.line)
        if tally.no_progress:
            return RunFailed(tally.failure, resumable=True)
        if tally.failure and not tally.workers:
            again = self.had_success and not tally.store_failed
            return RunFailed(tally.failure, resumable=self.had_success, again=again)
        return None


def _transient_error(line: str) -> RunFailed:
    return RunFailed(line, resumable=True, again=True)


def _kill(coordinator: Any, process: ProcessInfo, timeout_s: float) -> bool:
    """Send SIGKILL to ``process`` on its node, since a frozen process reads no messages. Return
    False if the process no longer exists; True if it was killed or its node does not answer."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    def kill(coordinator: Any, process: ProcessInfo) -> bool:
        with suppress(psutil.NoSuchProcess):
            running = psutil.Process(process.pid)
            if began_at(running) == process.began:
                # SIGSTOP is an external cause; a process that blocks itself is not.
                stopped = running.status() == psutil.STATUS_STOPPED
                why = "it was stopped by a signal" if stopped else "it did not respond"
                death = death_of(process)._replace(why=f"{why} and was killed", outside=stopped)
                with suppress(Exception):  # kill the process even without the coordinator
                    ray.get(coordinator.update_process.remote(process, death=death), timeout=30)
                running.kill()
                return True
        return False

    node = NodeAffinitySchedulingStrategy(process.node, soft=False)
    try:
        task = ray.remote(kill).options(num_cpus=0, scheduling_strategy=node)
        was_there: bool = ray.get(task.remote(coordinator, process), timeout=timeout_s)
    except Exception:  # noqa: BLE001 - the node and its processes are gone
        return True
    return was_there
