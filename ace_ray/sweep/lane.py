"""Evaluate the runs of one lane: ``python -m ace_ray.sweep.lane SPEC``.

Each lane is a separate process, so that several lanes run side by side and a crash of one does not
end the sweep. (Ray ends a driver whose raylet has crashed.)

SPEC is a JSON file. ``runs`` has the ``run_id`` and the resolved ``config`` of each run. ``events``
is the file for the results. ``parent`` is a pid; the lane ends when that process ends. In a
cluster, ``nodes`` has the resources of each node at the start of the sweep. ``gpus`` has the
GPU counts of this lane and of the lanes beside it; the GPUs of one count are on one node.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rich.console import Console

from ace_ray.cluster import connection
from ace_ray.cluster import resources as cluster
from ace_ray.config.schema import run_config
from ace_ray.errors import COMPLETE, FAILED, INCOMPLETE, RunFailed, UserError
from ace_ray.pipeline.evaluate import plan_run
from ace_ray.pipeline.health.interrupts import Interrupts
from ace_ray.pipeline.health.supervise import die_with
from ace_ray.pipeline.open_run import OpenRun, opened
from ace_ray.pipeline.session import Session, prepare
from ace_ray.storage.object_store import Unreachable
from ace_ray.util import log


def main() -> int:
    spec = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    die_with(spec["parent"])
    events = Path(spec["events"])
    try:
        return run_lane(spec["runs"], events, spec.get("gpus", []))
    except (RunFailed, UserError) as error:
        log.fail(str(error))
        later = _passes(error, spec.get("nodes", []))
        if isinstance(error, RunFailed) and error.resumable and not later:
            return INCOMPLETE
        for run in spec["runs"]:
            _tell(events, run["run_id"], **{"later" if later else "failed": str(error)})
        return INCOMPLETE if later else FAILED
    except KeyboardInterrupt:
        return INCOMPLETE


def _passes(error: Exception, nodes: cluster.Nodes) -> bool:
    """Return whether the runs are not the cause of ``error``: the store is not available, or the
    cluster is smaller than ``nodes``, its size at the start."""
    causes = (error, error.__cause__)
    return any(
        isinstance(cause, Unreachable)
        or (isinstance(cause, cluster.TooSmall) and cause.fits(nodes))
        for cause in causes
    )


def run_lane(specs: list[dict[str, Any]], events: Path, gpus: Sequence[int] = ()) -> int:
    """Evaluate the runs of ``specs`` on one set of engines and return the exit code.

    Each result is a JSON line in ``events``. It has the ``run_id`` and one of: the exit ``code``
    that the run would have had alone, the reason why its weights are ``broken``, the error that
    ``failed`` the lane, or the reason to try again ``later``. Raises what `Session.run` raises.
    """

    def concluded(run: OpenRun) -> None:
        assert run.ended is not None  # set before this call
        code, summary = run.ended
        line = f"{run.plan.run_id}: {summary['scored']} of {summary['declared']} rows scored"
        say(log.Line(line, event="end", run_id=run.plan.run_id, code=code))
        _tell(events, run.plan.run_id, code=code)
        run.lease.release()

    console = Console()
    say = log.say_on(console)
    began = time.time()
    with Interrupts() as interrupts, ExitStack() as stack:
        plans = [plan_run(run_config(spec["config"], where="the sweep")) for spec in specs]
        for spec, plan in zip(specs, plans, strict=True):
            if plan.run_id != spec["run_id"]:
                raise UserError(
                    "has changed since the sweep planned it",
                    where=plan.model.source,
                    fix="run sweep again when the checkpoint is complete",
                )
        prepare()
        stack.enter_context(connection.connecting())
        runs = [
            stack.enter_context(opened(plan, fresh=False, say=say, began=began)) for plan in plans
        ]
        pending = [0 if run.stops else len(run.pending(again=False)) for run in runs]
        for run, rows in zip(runs, pending, strict=True):
            line = f"{run.plan.run_id}: {len(run.plan.rows)} rows declared, {rows} to evaluate"
            say(log.Line(line, event="begin", run_id=run.plan.run_id, pending=rows))
        if gpus and any(pending):
            connection.connect()
            interrupts.install()  # Ray has replaced them
            cluster.grow(gpus, plans[0].config.start_timeout_s, say)
        of_one = {"run_id": runs[0].plan.run_id} if len(runs) == 1 else {}
        with log.known(**of_one):
            Session(runs, interrupts, console, examine=True, concluded=concluded).run()
        for run in runs:
            if run.broken:
                _tell(events, run.plan.run_id, broken=run.broken)
        codes = [FAILED if run.broken else run.ended[0] if run.ended else FAILED for run in runs]
    if all(code == COMPLETE for code in codes):
        return COMPLETE
    return INCOMPLETE if INCOMPLETE in codes else FAILED


def _tell(events: Path, run_id: str, **what: Any) -> None:
    with events.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"run_id": run_id, **what}) + "\n")


if __name__ == "__main__":
    sys.exit(main())
