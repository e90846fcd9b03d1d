"""``python -m ace_ray.sweep.lane SPEC``: the process that evaluates the runs of one lane.

A process of its own, so that several lanes run side by side, and so that what ends one (Ray ends a
driver whose raylet is gone) ends no sweep. SPEC is a JSON file: ``runs`` (``run_id`` and resolved
``config`` of each), ``events`` (the file that is told of them), ``parent`` (a pid: the lane dies
with it); in a cluster ``nodes`` (the resources of each, when the sweep began), and ``gpus`` (those
that this lane and the ones beside it take; each number of them on one node).
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
    """Whether what ended the lane is no fault of its runs: the store is away, or the cluster is
    smaller than it was with ``nodes``, which held them."""
    causes = (error, error.__cause__)
    return any(
        isinstance(cause, Unreachable)
        or (isinstance(cause, cluster.TooSmall) and cause.fits(nodes))
        for cause in causes
    )


def run_lane(specs: list[dict[str, Any]], events: Path, gpus: Sequence[int] = ()) -> int:
    """Evaluate the runs of ``specs`` on one set of engines; returns the exit code.

    What comes of each is a JSON line in ``events``: ``run_id``, and the exit ``code`` it would have
    had alone, or why its weights are ``broken``, or what ``failed`` the lane, or why it can only be
    ``later``. Raises what `Session.run` raises.
    """

    def concluded(run: OpenRun) -> None:
        assert run.ended is not None  # what it was told of
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
            interrupts.install()  # Ray has taken them
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
