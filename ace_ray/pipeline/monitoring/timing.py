"""Measure the time that engine workers spend in each state, and compute a session's timing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from statistics import median
from typing import Any, Literal

from ace_ray.cluster.resources import Resources
from ace_ray.pipeline.monitoring.tally import Tally
from ace_ray.pipeline.monitoring.utilization import Use

State = Literal["load", "warm_up", "generation", "tool", "idle"]
# States of an engine worker, in the order of a sweep's ledger.
STATES: tuple[State, ...] = ("load", "warm_up", "generation", "tool", "idle")


class Clock:
    """Counts the seconds that an engine worker spends in each state.

    ``load``: weights are loaded. ``warm_up``: loaded weights are probed. ``generation``: the engine
    has requests. ``tool``: rows wait for sandboxes or other models. ``idle``: there are no rows."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since = clock()
        self._preparing: State | None = None
        self._at_work = {"row": 0, "call": 0}
        self._spent: dict[State, float] = dict.fromkeys(STATES, 0.0)
        # Completion tokens of the engine since the last `restart`.
        self.output_tokens = 0

    def enter_state(self, state: State | None) -> None:
        """Enter the state ``load`` or ``warm_up``. None ends this state."""
        self._count()
        self._preparing = state

    @contextmanager
    def track(self, kind: Literal["row", "call"]) -> Iterator[None]:
        """Count a row in flight, or a request in the engine, until the context ends."""
        self._count()
        self._at_work[kind] += 1
        try:
            yield
        finally:
            self._count()
            self._at_work[kind] -= 1

    def read(self) -> dict[str, float]:
        """Return the seconds by state since the last `restart`."""
        self._count()
        return {state: round(seconds, 3) for state, seconds in self._spent.items()}

    def restart(self) -> None:
        """Set all seconds and tokens to 0, for another run."""
        self._count()
        self._spent, self.output_tokens = dict.fromkeys(STATES, 0.0), 0

    def _count(self) -> None:
        now_s = self._clock()
        self._spent[self._state()] += now_s - self._since
        self._since = now_s

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
    use: Use,
) -> dict[str, Any]:
    """Return the key ``timing`` of the run's summary, in seconds; {} if no pass evaluated the run.

    ``run`` is the run's index in the job. ``tallies`` has one tally for each pass. ``earlier`` is
    the timing of earlier sessions. In the result, ``device_s`` and ``engines`` cover all sessions;
    other keys cover only this session. ``device_s``, the cost of the run, has device seconds by
    state, including devices of served models. ``engines`` lists each different engine once."""
    passes = [tally.runs[run] for tally in tallies if run in tally.runs]
    if not passes or resources is None:
        return {}
    seconds = sum(counts.seconds_until(counts.last_row_at) for counts in passes)
    stored = sum(counts.seconds_until(counts.last_stored_at) for counts in passes)
    ready_at = next((counts.ready_at for counts in passes if counts.ready_at), None)
    end = max((counts.last_row_at for counts in passes if counts.last_row_at), default=0.0)
    rows = sum(counts.ended_rows for counts in passes)
    first = next((counts.first_row_at for counts in passes if counts.first_row_at), None)
    tokens = sum(counts.prompt_tokens + counts.completion_tokens for counts in passes)
    workers = [worker for tally in tallies for worker in tally.workers]
    work = [of_worker for counts in passes for of_worker in counts.spent.items()]
    spent = {state: sum(seconds[state] for _, (seconds, _) in work) for state in STATES}
    # Workers report only when rows end, so the time after their last row is missing.
    spent["idle"] += max(0.0, use.engine_s - sum(spent.values()))
    engines = [*(earlier.get("engines") or []), *(worker["engine"] for worker in workers)]
    ends = {**reached, "worker": tallies[0].begun_at, "engine": ready_at, "row": first}
    return {
        "wall_s": round(time.monotonic() - began, 2),
        "plan_s": round(planned - began, 2),
        "engine_start_s": round(ready_at - planned, 2) if ready_at else None,
        "first_row_s": round(first - began, 2) if first else None,
        "until_first_row_s": _phases(began, plan=planned, **ends),
        "generation_wall_s": round(seconds, 2),
        "until_stored_s": round(stored, 2) if stored else None,
        "rows_evaluated": rows,
        "tokens_per_s": _rate(tokens, seconds),
        "output_tokens_per_s": _rate(sum(n for _, (_, n) in work), spent["generation"]),
        "waits": _waits(use, spent["tool"]),
        "rows_in_flight": use.rows_in_flight(),
        "pace": _pace(use, rows, sum(spent.values()), ready_at or end, end),
        "passes": len(tallies),
        "workers": [_worker(worker, dict(work)) for worker in workers],
        "engines": [facts for at, facts in enumerate(engines) if facts not in engines[:at]],
        "engine_deaths": [death for tally in tallies for death in tally.deaths],
        "loads": [load for counts in passes for load in counts.loads],
        **_device_times(resources, spent, earlier),
    }


def _device_times(
    resources: Resources, spent: Mapping[State, float], earlier: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the keys of `timing` about devices: the GPUs, or else CPUs, of all engines."""
    workers, before = resources.workers, earlier.get("device_s") or {}
    if resources.endpoint:  # the cost of an endpoint follows from the tokens
        device, per_worker = "endpoint", (resources.server_gpus or resources.server_cpus) / workers
    elif resources.worker_gpus:
        device, per_worker = "gpu", resources.worker_gpus + resources.server_gpus / workers
    else:
        device, per_worker = "cpu", resources.worker_cpus + resources.server_cpus / workers
    return {
        "device": device,
        "devices": round(per_worker * workers, 3),
        "device_s": {
            state: round(float(before.get(state, 0.0)) + per_worker * spent[state], 3)
            for state in STATES
        },
        "price_per_hour": earlier.get("price_per_hour"),
    }


def _worker(
    facts: Mapping[str, Any], work: Mapping[str, tuple[Mapping[str, float], int]]
) -> dict[str, Any]:
    """Return ``facts`` of a worker without the key ``engine``, and its output tokens per second."""
    seconds, tokens = work.get(facts["worker"], ({}, 0))
    worker_facts = {key: fact for key, fact in facts.items() if key != "engine"}
    return {**worker_facts, "output_tokens_per_s": _rate(tokens, seconds.get("generation", 0.0))}


def _pace(use: Use, rows: int, engine_s: float, ready_at: float, end: float) -> dict[str, float]:
    """Return ``until_90_s``, the seconds from ``ready_at`` until 90 % of the rows had ended;
    ``last_tenth``, the share of the time until ``end`` after that; ``episodes_per_engine_hour``;
    and ``calls_per_engine``, the median of the model calls in flight; without unknown figures."""
    pace = {"episodes_per_engine_hour": round(3600 * rows / engine_s, 1)} if engine_s else {}
    if use.calls:
        pace["calls_per_engine"] = round(median(use.calls), 1)
    if use.most_rows_at and ready_at < end:  # else the run has no last tenth
        until_s = min(use.most_rows_at, end) - ready_at
        pace["until_90_s"] = round(until_s, 2)
        pace["last_tenth"] = round(1 - until_s / (end - ready_at), 4)
    return pace


def _rate(tokens: int, seconds: float) -> float | None:
    return round(tokens / seconds, 1) if tokens and seconds else None


def _waits(use: Use, tool_s: float) -> dict[str, float] | None:
    """Return the shares of the engines' time that were spent waiting, by cause and in total
    (``all``); None if the time is unknown. ``tools``: waits for sandboxes and other models."""
    if not use.engine_s:
        return None
    waited_s = {**use.waited_s, "tools": tool_s}
    waited_s = {"all": sum(waited_s.values()), **waited_s}
    return {cause: round(min(1.0, s / use.engine_s), 4) for cause, s in waited_s.items()}


def _phases(began: float, **ends: float | None) -> dict[str, float]:
    """Return the seconds of each phase. ``ends`` are the ends of the phases, in order.
    Return {} if an end is missing, or is before the previous end as in later runs of a lane."""
    times = [at for at in (began, *ends.values()) if at is not None]
    if len(times) <= len(ends) or times != sorted(times):
        return {}
    return {name: round(b - a, 2) for name, (a, b) in zip(ends, pairwise(times), strict=True)}
