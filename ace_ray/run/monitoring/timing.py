"""What a session of a run took, and what its engines' time went into."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ace_ray.run.monitoring.clock import STATES

if TYPE_CHECKING:
    from ace_ray.run.actors.coordinator import Tally
    from ace_ray.run.planning.cluster import Resources


def timing(
    tallies: Sequence[Tally],
    run: int,
    *,
    began: float,
    planned: float,
    resources: Resources | None,
    earlier: Mapping[str, Any],
) -> dict[str, Any]:
    """Of the ``run``-th run of a job: this session's passes, in seconds; {} if there were none.

    ``device_s`` is by state and over all sessions, ``earlier`` ones included: what the run cost.
    What is served beside the engines counts with them, in the states that they are in.
    ``engines`` are the different ones of all sessions (`ace_ray.run.monitoring.facts.engine_facts`).
    """
    shares = [tally.runs[run] for tally in tallies if run in tally.runs]
    if not shares:
        return {}
    seconds = stored = 0.0
    for share in shares:
        ready = share.ready_at or 0.0
        seconds += max(0.0, (share.last_row_at or ready) - ready)
        stored += max(0.0, (share.last_stored_at or ready) - ready)
    ready_at = next((share.ready_at for share in shares if share.ready_at), None)
    first = next((share.first_row_at for share in shares if share.first_row_at), None)
    rows = sum(share.done for share in shares)
    tokens = sum(share.prompt_tokens + share.completion_tokens for share in shares)
    each = _each(resources)
    before = earlier.get("device_s") or {}
    workers = [worker for tally in tallies for worker in tally.workers]
    engines = [*(earlier.get("engines") or []), *(worker["engine"] for worker in workers)]
    return {
        "wall_s": round(time.time() - began, 2),
        "plan_s": round(planned - began, 2),
        "engine_start_s": round(ready_at - planned, 2) if ready_at else None,
        "first_row_s": round(first - began, 2) if first else None,
        "generation_wall_s": round(seconds, 2),
        "until_stored_s": round(stored, 2) if stored else None,
        "rows_evaluated": rows,
        "tokens_per_s": round(tokens / seconds, 1) if seconds else None,
        "rows_per_s": round(rows / seconds, 3) if seconds else None,
        "passes": len(tallies),
        "workers": [
            {key: fact for key, fact in worker.items() if key != "engine"} for worker in workers
        ],
        "engines": [facts for at, facts in enumerate(engines) if facts not in engines[:at]],
        "engine_deaths": [death for tally in tallies for death in tally.deaths],
        "loads": [load for share in shares for load in share.loads],
        "device": "gpu" if resources and resources.worker_gpus else "cpu",
        "devices": round(each * (resources.workers if resources else 1), 3),
        "device_s": {
            state: round(
                float(before.get(state, 0.0))
                + each * sum(spent[state] for share in shares for spent in share.spent.values()),
                3,
            )
            for state in STATES
        },
    }


def _each(resources: Resources | None) -> float:
    """Devices by engine worker: its own, and its share of those of served models."""
    if resources is None:
        return 1.0
    if resources.worker_gpus:
        return resources.worker_gpus + resources.server_gpus / resources.workers
    return resources.worker_cpus + resources.server_cpus / resources.workers
