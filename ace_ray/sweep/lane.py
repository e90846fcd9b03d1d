"""A lane: a process that evaluates runs on one set of engines, and the sweep's handle to it.

``python -m ace_ray.sweep.lane SPEC`` is a separate process, so lanes run in parallel, and the
sweep survives the crash of a lane. For example, Ray ends a driver whose raylet has crashed.

SPEC is a JSON file:

- ``runs``: ``run_id``, ``label`` and resolved ``config`` of each run;
- ``events``: the file to which the lane writes JSON lines about its runs;
- ``parent``: a process id; the lane is killed when this process ends;
- ``rows_end_at``: time at which all rows must have ended (`time.monotonic`), null for no limit;
- ``shared``: true for a cluster, which may be too small for a time only (`_is_temporary`);
- ``gpus``: GPU counts of this lane and the running lanes. The GPUs of a count must be on one node.
"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ace_ray.cluster import connection
from ace_ray.cluster.resources import TooSmall, grow
from ace_ray.config.schema import run_config
from ace_ray.errors import COMPLETE, FAILED, INCOMPLETE, RunFailed, UserError
from ace_ray.pipeline.evaluate import plan_run
from ace_ray.pipeline.run_folder import RunFolder, open_folder
from ace_ray.pipeline.session import Session, preload
from ace_ray.storage.object_store import UnreachableStore
from ace_ray.sweep.packing import Lane, device_names
from ace_ray.util import log
from ace_ray.util.signals import Interrupts, die_with
from ace_ray.util.subprocesses import module_command, module_environment


def main() -> int:
    spec = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    die_with(spec["parent"])
    events = Path(spec["events"])
    try:
        return run_lane(spec["runs"], events, spec.get("gpus", []), spec.get("rows_end_at"))
    except (RunFailed, UserError) as error:
        log.fail(str(error))
        later = _is_temporary(error, shared=spec.get("shared", False))
        if isinstance(error, RunFailed) and error.resumable and not later:
            return INCOMPLETE
        for run in spec["runs"]:
            _write_event(events, run["run_id"], **{"later" if later else "failed": str(error)})
        return INCOMPLETE if later else FAILED
    except KeyboardInterrupt:
        if time.monotonic() > (spec.get("rows_end_at") or math.inf):  # no engine has started
            for run in spec["runs"]:
                _write_event(events, run["run_id"], code=INCOMPLETE, rows=0, out_of_time=True)
        return INCOMPLETE


def _is_temporary(error: Exception, *, shared: bool) -> bool:
    """Return whether ``error``, which ended the lane, may be temporary: the store is not available,
    or a ``shared`` cluster has become too small since the sweep checked the sizes."""
    temporary = (UnreachableStore, TooSmall) if shared else UnreachableStore
    return isinstance(error, temporary) or isinstance(error.__cause__, temporary)


def run_lane(
    specs: list[dict[str, Any]],
    events: Path,
    gpus: Sequence[int] = (),
    rows_end_at: float | None = None,
) -> int:
    """Evaluate the runs of ``specs`` on one set of engines and return the exit code.

    When a run ends, add a JSON line to ``events``: its ``run_id``, its exit ``code``, the number of
    ``rows`` that were evaluated, and whether it is ``out_of_time``. For a run whose weights cannot
    be loaded, the line has the reason, ``broken``. If an error ends the lane, `main` adds a line
    with the error for each run: as ``later`` if the error may be temporary, else as ``failed``.
    Raises `UserError` or `RunFailed` if the runs cannot be evaluated."""

    def report_run_end(run: RunFolder) -> None:
        assert run.result is not None  # `Session` calls this function after the run has ended
        code, summary = run.result
        line = f"{run.plan.run_id}: {summary['scored']} of {summary['declared']} rows scored"
        log.info(line, event="end", run_id=run.plan.run_id, code=code)
        late = run.out_of_time or (rows_end_at is not None and time.monotonic() > rows_end_at)
        rows = summary["timing"].get("rows_evaluated", 0)
        _write_event(events, run.plan.run_id, code=code, rows=rows, out_of_time=late)
        run.lease.release()

    began = time.monotonic()
    with Interrupts() as interrupts, ExitStack() as stack:
        plans = [plan_run(run_config(spec["config"], where="the sweep")) for spec in specs]
        for spec, plan in zip(specs, plans, strict=True):
            if plan.run_id != spec["run_id"]:
                raise UserError(
                    "has changed since the sweep planned it",
                    where=plan.model.source,
                    fix="run sweep again when the checkpoint is complete",
                )
        preload()
        stack.enter_context(connection.connect_early())
        runs = [
            stack.enter_context(open_folder(plan, fresh=False, began=began, label=spec["label"]))
            for spec, plan in zip(specs, plans, strict=True)
        ]
        pending = [run.announce() for run in runs]
        if gpus and any(pending):
            connection.connect()
            interrupts.install()  # Ray has replaced the handlers
            grow(gpus, plans[0].config.start_timeout_s)
        of_one = {"run_id": runs[0].plan.run_id} if len(runs) == 1 else {}
        with log.common_fields(**of_one):
            end = rows_end_at
            Session(runs, interrupts, examine=True, rows_end_at=end, concluded=report_run_end).run()
        for run in runs:
            if run.broken:
                _write_event(events, run.plan.run_id, broken=run.broken)
        codes = [FAILED if run.broken else run.result[0] if run.result else FAILED for run in runs]
    return next((code for code in (INCOMPLETE, FAILED) if code in codes), COMPLETE)


def _write_event(events: Path, run_id: str, **fields: Any) -> None:
    with events.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"run_id": run_id, **fields}) + "\n")


class LaneProcess:
    """A running lane. ``devices`` are the GPUs that it may use; None if the cluster assigns GPUs,
    or if there are no GPUs. ``room`` has the keys ``shared`` and ``gpus`` of the lane's spec."""

    def __init__(
        self,
        lane: Lane,
        runs: list[dict[str, Any]],
        devices: list[int] | None,
        *,
        echo: Callable[[str], None] | None,
        room: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        """Start the lane. ``echo`` receives its output lines; if it is None, the terminal does."""
        self.lane, self.devices = lane, devices
        # True after the lane has received a signal.
        self.stopping = False
        self._folder = tempfile.TemporaryDirectory(prefix="ace_ray-lane-")
        self._events = Path(self._folder.name, "events.jsonl")
        self._events.touch()
        spec = Path(self._folder.name, "spec.json")
        parts = {"runs": runs, "events": str(self._events), "parent": os.getpid(), **room}
        spec.write_text(json.dumps(parts), encoding="utf-8")
        env = module_environment()
        if devices is not None:
            env["CUDA_VISIBLE_DEVICES"] = device_names(devices)
        self._process = subprocess.Popen(
            module_command("ace_ray.sweep.lane", str(spec)),
            env=env,
            stdout=subprocess.PIPE if echo else None,
            stderr=subprocess.STDOUT if echo else None,
            text=True,
            errors="replace",
            # The terminal's Ctrl-C does not reach the lane; the sweep sends it once.
            start_new_session=True,
        )
        self._listener: threading.Thread | None = None
        if echo:
            self._listener = threading.Thread(target=self._echo_output, args=(echo,), daemon=True)
            self._listener.start()

    @property
    def code(self) -> int | None:
        """Exit code; None while the lane runs."""
        return self._process.poll()

    def wait(self, seconds: float) -> None:
        """Wait until the lane ends, at most ``seconds``."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)

    def signal(self, number: signal.Signals) -> None:
        self.stopping = True
        self._process.send_signal(number)  # no effect on a lane that has ended

    def events(self) -> list[dict[str, Any]]:
        """Return the events that the lane has written so far."""
        lines = self._events.read_text(encoding="utf-8").splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def close(self) -> None:
        """Print the last output lines of a lane that has ended, and remove the lane's files."""
        if self._listener is not None:
            # With a timeout, since a remaining child process of the lane may keep the pipe open.
            self._listener.join(timeout=5)
        self._folder.cleanup()

    def _echo_output(self, echo: Callable[[str], None]) -> None:
        assert self._process.stdout is not None  # a pipe, since `echo` is given
        for line in self._process.stdout:
            echo(line.rstrip("\n"))


if __name__ == "__main__":
    sys.exit(main())
