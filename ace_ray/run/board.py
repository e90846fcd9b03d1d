"""The run's notice board: a small actor that workers report to and the driver reads."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import pyarrow as pa
import ray


class Tally:
    """Running counts of a run; plain Python, so that tests need no Ray."""

    def __init__(self) -> None:
        self.done = 0
        self.statuses: Counter[str] = Counter()
        self.prompt_tokens = 0
        self.completion_tokens = 0
        self.groups: dict[tuple[str, str, str], list[int]] = {}
        """(benchmark, language, category) -> [scored, official valid, strict valid]"""
        self.workers: list[dict[str, Any]] = []
        self.failure = ""
        self.deaths: list[str] = []
        self.killed: Counter[str] = Counter()
        """row id -> engines that died while they held it"""
        self.first_ready_at: float | None = None
        self.first_row_at: float | None = None
        self.last_row_at: float | None = None
        self.stored = 0
        self.last_stored_at: float | None = None

    def add(self, rows: list[tuple[Any, ...]]) -> None:
        now = time.time()
        self.first_row_at = self.first_row_at or now
        self.last_row_at = now
        for benchmark, language, category, status, official, strict, prompt, completion in rows:
            self.done += 1
            self.statuses[status] += 1
            self.prompt_tokens += prompt
            self.completion_tokens += completion
            if status == "scored":
                group = self.groups.setdefault((benchmark, language, category), [0, 0, 0])
                group[0] += 1
                group[1] += bool(official)
                group[2] += bool(strict)


class Board:
    """Actor around a `Tally`."""

    def __init__(self, entries: list[Any]) -> None:
        self._tally = Tally()
        self._entries = entries

    def entries(self) -> list[Any]:
        """A list of one ObjectRef, that of the run's entry table (`rows.ENTRIES`).

        Workers ask for it here, since a ref among an actor's constructor arguments would tie the
        actor's restarts to it.
        """
        return self._entries

    def rows(self, rows: list[tuple[Any, ...]]) -> None:
        self._tally.add(rows)

    def stored(self, rows: int) -> None:
        self._tally.stored += rows
        self._tally.last_stored_at = time.time()

    def ready(self, facts: dict[str, Any]) -> None:
        self._tally.workers.append(facts)
        self._tally.first_ready_at = self._tally.first_ready_at or time.time()

    def fail(self, line: str) -> None:
        self._tally.failure = self._tally.failure or line

    def died(self, worker: str, why: str, held: list[str]) -> None:
        self._tally.deaths.append(f"{worker}: {why}")
        self._tally.killed.update(held)

    def killed(self) -> dict[str, int]:
        return dict(self._tally.killed)

    def read(self) -> Tally:
        return self._tally


def start_board(entries: pa.Table) -> Any:
    """The board's actor handle. ``entries`` goes to the object store: one copy per node."""
    # No logical CPU: it must never compete with the pools for a small cluster.
    return ray.remote(Board).options(num_cpus=0).remote([ray.put(entries)])


def fetch_entries(board: Any) -> pa.Table:
    """The entry table, shared by all processes of this node."""
    (ref,) = ray.get(board.entries.remote())
    return ray.get(ref)
