"""Measure the time that engine workers spend in each state, and compute a session's timing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from ace_ray.cluster.resources import Resources
from ace_ray.pipeline.monitoring.counts import RunCounts, Tally

State = Literal["load", "warm_up", "generation", "tool", "idle"]
# States of an engine worker, in the order of a sweep's ledger.
STATES: tuple[State, ...] = ("load", "warm_up", "generation", "tool", "idle")


class Clock:
    """Counts the seconds that an engine worker spends in each state.

    ``load``: weights are loaded. ``warm_up``: loaded weights are probed. ``generation``: the engine
    has requests. ``tool``: rows wait for sandboxes or other models. ``idle``: there are no rows."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._since = now()
        self._preparing: State | None = None
        self._at_work = {"row": 0, "call": 0}
        self._spent: dict[State, float] = dict.fromkeys(STATES, 0.0)
        # Completion tokens of the engine since the last `restart`.
        self.output_tokens = 0

    def preparing(self, state: State | None) -> None:
        """Enter the state ``load`` or ``warm_up``. None ends this state."""
        self._count()
        self._preparing = state

    @contextmanager
    def busy(self, what: Literal["row", "call"]) -> Iterator[None]:
        """Count a row in flight, or a request in the engine, until the context ends."""
        self._count()
        self._at_work[what] += 1
        try:
            yield
        finally:
            self._count()
            self._at_work[what] -= 1

    def read(self) -> dict[str, float]:
        """Return the seconds by state since the last `restart`."""
        self._count()
        return {state: round(seconds, 3) for state, seconds in self._spent.items()}

    def restart(self) -> None:
        """Set all seconds and tokens to 0, for another run."""
        self._count()
        self._spent, self.output_tokens = dict.fromkeys(STATES, 0.0), 0

    def _count(self) -> None:
        now = self._now()
        self._spent[self._state()] += now - self._since
        self._since = now

    def _state(self) -> State:
        if self._preparing is not None:
            return self._preparing
        if self._at_work["call"]:
            return "generation"
        return "tool" if self._at_work["row"] else "idle"


def timing(
    tallies: Sequence[Tally],
    run: int,
    *,
    began: float,
    planned: float,
    reached: Mapping[str, float],
    resources: Resources | None,
    earlier: Mapping[str, Any],
    use: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the timing of a run, in seconds; {} if no pass evaluated it.

    ``run`` is its index in the job. ``tallies`` has one tally for each pass. ``earlier`` is the
    timing of the run's earlier sessions. ``use``: figures of `utilization.Utilization`. In the
    result, ``device_s`` and ``engines`` cover all sessions; other keys cover only this session.
    ``device_s``, the cost of the run, has device seconds by state, including devices of served
    models. ``engines`` lists each different engine once (`facts.engine_facts`)."""
    counts = [tally.runs[run] for tally in tallies if run in tally.runs]
    if not counts or resources is None:
        return {}
    seconds = sum(one.seconds_until(one.last_row_at) for one in counts)
    stored = sum(one.seconds_until(one.last_stored_at) for one in counts)
    ready_at = next((one.ready_at for one in counts if one.ready_at), None)
    first = next((one.first_row_at for one in counts if one.first_row_at), None)
    rows = sum(one.done for one in counts)
    tokens = sum(one.prompt_tokens + one.completion_tokens for one in counts)
    workers = [worker for tally in tallies for worker in tally.workers]
    made = {name: n for one in counts for name, n in one.output_tokens.items()}
    spent = {s: sum(times[s] for one in counts for times in one.spent.values()) for s in STATES}
    use = use or {}
    # Workers report only when rows end, so the time after their last row is missing.
    spent["idle"] += max(0.0, use.get("engine_s", 0.0) - sum(spent.values()))
    engines = [*(earlier.get("engines") or []), *(worker["engine"] for worker in workers)]
    return {
        "wall_s": round(time.monotonic() - began, 2),
        "plan_s": round(planned - began, 2),
        "engine_start_s": round(ready_at - planned, 2) if ready_at else None,
        "first_row_s": round(first - began, 2) if first else None,
        "until_first_row_s": _phases(
            began,
            plan=planned,
            **reached,
            worker=tallies[0].begun_at,
            engine=ready_at,
            row=first,
        ),
        "generation_wall_s": round(seconds, 2),
        "until_stored_s": round(stored, 2) if stored else None,
        "rows_evaluated": rows,
        "tokens_per_s": round(tokens / seconds, 1) if seconds and tokens else None,
        "output_tokens_per_s": _rate(sum(made.values()), spent["generation"]),
        "waits": _waits(use, spent["tool"]),
        "rows_in_flight": use.get("rows_in_flight"),
        "passes": len(tallies),
        "workers": [_worker(worker, made, counts) for worker in workers],
        "engines": [facts for at, facts in enumerate(engines) if facts not in engines[:at]],
        "engine_deaths": [death for tally in tallies for death in tally.deaths],
        "loads": [load for one in counts for load in one.loads],
        **_device_times(resources, spent, earlier),
    }


def _device_times(
    resources: Resources, spent: Mapping[State, float], earlier: Mapping[str, Any]
) -> dict[str, Any]:
    each, before = _each(resources), earlier.get("device_s") or {}
    return {
        "device": "endpoint" if resources.endpoint else "gpu" if resources.worker_gpus else "cpu",
        "devices": round(each * resources.workers, 3),
        "device_s": {
            state: round(float(before.get(state, 0.0)) + each * spent[state], 3) for state in STATES
        },
        "price_per_hour": earlier.get("price_per_hour"),
    }


def _worker(
    facts: Mapping[str, Any], tokens: Mapping[str, int], counts: Sequence[RunCounts]
) -> dict[str, Any]:
    """Return the facts of an engine worker without its engine's, and the speed of its engine."""
    name = facts["worker"]
    spent = next((one.spent[name] for one in reversed(counts) if name in one.spent), {})
    rate = _rate(tokens.get(name, 0), spent.get("generation", 0.0))
    shown = {key: fact for key, fact in facts.items() if key != "engine"}
    return {**shown, "output_tokens_per_s": rate}


def _rate(tokens: int, seconds: float) -> float | None:
    return round(tokens / seconds, 1) if tokens and seconds else None


def _waits(use: Mapping[str, Any], tool_s: float) -> dict[str, float] | None:
    """Return the shares of the engines' time that were spent waiting, by cause and in total
    (``all``); None if the time is unknown. ``tools``: waits for sandboxes and other models."""
    if not use.get("engine_s"):
        return None
    found = {**use["waited_s"], "tools": tool_s}
    found = {"all": sum(found.values()), **found}
    return {cause: round(min(1.0, s / use["engine_s"]), 4) for cause, s in found.items()}


def _phases(began: float, **ends: float | None) -> dict[str, float]:
    """Return the seconds of each phase. ``ends`` are the ends of the phases, in order.
    Return {} if an end is missing, or is before the previous end as in later runs of a lane."""
    times = [began, *ends.values()]
    known = [at for at in times if at is not None]
    if len(known) < len(times) or known != sorted(known):
        return {}
    return {
        name: round(until - at, 2) for name, at, until in zip(ends, known, known[1:], strict=False)
    }


def _each(resources: Resources) -> float:
    """Return the devices (GPUs, or else CPUs) of an engine worker, including its share of the
    devices of served models. If the candidate is an endpoint, the worker has only this share."""
    if resources.endpoint:  # the cost of an endpoint follows from the tokens
        return (resources.server_gpus or resources.server_cpus) / resources.workers
    if resources.worker_gpus:
        return resources.worker_gpus + resources.server_gpus / resources.workers
    return resources.worker_cpus + resources.server_cpus / resources.workers
