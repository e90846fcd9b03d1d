"""Isolate the rows that were at work when a process died, and decide which ones are quarantined.

A process that dies does not say which of its rows was the cause. So these rows are isolated: each
runs again in a group that has a process to itself. A few rows run alone at once; more of them run
in groups, about as many groups as rows in a group. When a group's process dies, too, its rows run
alone.

A row that runs alone when its process dies, without a cause outside, has failed a trial. Each trial
is in another process, which must have done something else before (`EngineWorker`). After `TRIALS`
failed ones the row is set aside until all others are done; then new processes try it once more. A
row that fails then, too, is quarantined.

A preparation is work that an engine does once for several rows. While it is at work, it counts as
one row here (`shared_id`) and its rows do not: they go where it goes, and end as it ends.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from ace_ray.storage.rows import KILLED_FROM_OUTSIDE, PREPARATION_KILLED

# Maximum rows that run alone at once after their process died; more of them form groups first.
FEW = 16

# Failed trials after which a row waits for all others to be done.
TRIALS = 3

# Deaths of any cause with a row alone after which this command gives the row up: a kill from
# outside each time looks like a row that kills without a trace.
MOST_ALONE = 4

# The group of all rows that are not isolated.
OPEN = 0

End = Literal["", "set_aside", "quarantined", "given_up"]


@dataclass(frozen=True, slots=True)
class IsolatedRow:
    """The state of a row. Only rows of the same ``group`` may run together; `OPEN` ones are
    released."""

    deaths: int
    group: int
    alone: bool = False
    """It is the only row of its group."""
    trials: int = 0
    """Failed trials: deaths with it alone, without a cause outside."""
    deaths_alone: int = 0
    """Deaths of any cause with it alone."""
    end: End = ""
    """Why this pass does not try it again; "": it does."""
    stored: int = 0
    """Deaths that its stored row counts as attempts, since it was set aside."""

    @property
    def released(self) -> bool:
        """Return whether it has ended without a death. The row is kept: Ray repeats it when the
        process dies before the row has left it, and its attempts go on counting."""
        return self.group == OPEN and not self.end

    @property
    def unstored(self) -> int:
        """Number of deaths that its stored row does not count."""
        return self.deaths - self.stored


def grouped(
    rows: Iterable[dict[str, Any]], isolated: Mapping[str, IsolatedRow]
) -> tuple[list[tuple[dict[str, Any], IsolatedRow]], dict[int, list[dict[str, Any]]]]:
    """Split ``rows`` into those that this pass does not try again, and the others by group."""
    ended = []
    groups: dict[int, list[dict[str, Any]]] = {}
    for row in rows:
        isolated_row = isolated.get(row["row_id"])
        if isolated_row is not None and isolated_row.end:
            ended.append((row, isolated_row))
        else:
            groups.setdefault(isolated_row.group if isolated_row else OPEN, []).append(row)
    return ended, groups


_SHARED = "shared "


def shared_id(row: Mapping[str, Any]) -> str:
    """Return the id of the preparation that ``row`` shares with others; "" for none."""
    if row["shares"] < 0:
        return ""
    return f"{_SHARED}{row['run']} {row['shares']} {row['sample']} {row['repeat']}"


def of_rows(
    rows: Iterable[Mapping[str, Any]], known: Mapping[str, IsolatedRow]
) -> dict[str, tuple[IsolatedRow, bool]]:
    """Map each row to the state that decides with which rows it may run, and to whether that is the
    state of its preparation."""
    by_row: dict[str, tuple[IsolatedRow, bool]] = {}
    for row in rows:
        own, shared = known.get(row["row_id"]), known.get(shared_id(row))
        if own is not None and shared is not None:
            first = own.end or (not shared.end and (not own.released or shared.released))
            one, other = (own, shared) if first else (shared, own)
            # Deaths of both count as attempts of the row.
            by_row[row["row_id"]] = replace(one, stored=one.stored - other.unstored), not first
        elif own is not None:
            by_row[row["row_id"]] = own, False
        elif shared is not None:
            by_row[row["row_id"]] = shared, True
    return by_row


def ended_columns(row: IsolatedRow, process: str, *, shared: bool = False) -> dict[str, str]:
    """Return status, class and message of a row that a pass does not try again.

    ``process`` is the kind that died, "engine" or "checker"; ``shared``: its preparation was the
    cause."""
    what = "the preparation that this row shares with others" if shared else "this row"
    died = f"{row.deaths} {process}s crashed while working on {what}"
    alone = f"{row.deaths_alone} of them while working on it alone"
    name = PREPARATION_KILLED if shared else f"{process.capitalize()}Killed"
    if row.end == "quarantined":
        return {
            "status": "quarantined",
            "error_class": name,
            "error": f"{died}, {alone}, the last one after all other rows were done",
        }
    if row.end == "set_aside":
        return {
            "status": "infra_error",
            "error_class": name,
            "error": f"{died}, {alone}; it is retried after all other rows",
        }
    return {
        "status": "infra_error",
        "error_class": KILLED_FROM_OUTSIDE,
        "error": f"{died}, {alone}, but the row may not be the cause",
    }


def set_aside(attempts: int) -> IsolatedRow:
    """Return the state of a row that an earlier command set aside, after ``attempts``."""
    return IsolatedRow(
        attempts, OPEN, trials=TRIALS, deaths_alone=TRIALS, end="set_aside", stored=attempts
    )


class Isolation:
    """The isolated rows of one kind of process (engine workers, or checkers)."""

    def __init__(self, earlier: Mapping[str, IsolatedRow] | None = None) -> None:
        # Released rows are dropped: their stored rows count the attempts. A preparation that was
        # given up is dropped, too: its rows are tried again by this command.
        self.rows = {
            row: s
            for row, s in (earlier or {}).items()
            if not s.released and not (s.end == "given_up" and row.startswith(_SHARED))
        }
        self._at_work: dict[str, dict[str, None]] = {}
        first = max((s.group for s in self.rows.values()), default=0) + 1
        self._groups = itertools.count(first)
        for row_id, row in self.rows.items():
            if row.end == "set_aside":
                self.rows[row_id] = replace(
                    row, group=next(self._groups), alone=True, end="", stored=row.deaths
                )

    @property
    def at_work(self) -> int:
        """Number of rows that processes work on."""
        return sum(len(rows) for rows in self._at_work.values())

    def among(self, ids: Iterable[str]) -> dict[str, IsolatedRow]:
        """Return the known states of ``ids``."""
        if not self.rows:
            return {}
        return {row_id: self.rows[row_id] for row_id in ids if row_id in self.rows}

    def enter(self, process: str, ids: Iterable[str]) -> None:
        """Note that ``process`` begins to work on ``ids``."""
        self._at_work.setdefault(process, {}).update(dict.fromkeys(ids))

    def leave(self, process: str, ids: Iterable[str]) -> None:
        """Note that ``process`` has ended ``ids``, and release the isolated ones."""
        at_work = self._at_work.get(process, {})
        for row_id in ids:
            at_work.pop(row_id, None)
            row = self.rows.get(row_id)
            if row is not None and not row.end:
                self.rows[row_id] = IsolatedRow(row.deaths, OPEN, stored=row.stored)

    def moved(self, process: str) -> None:
        """Note that the node of ``process`` is gone, which is not its rows' fault: they run again
        with others. A row that loses its node twice is left to `died`: it may be the cause."""
        at_work = self._at_work.get(process, {})
        for row_id in list(at_work):
            if row_id not in self.rows:
                self.rows[row_id] = IsolatedRow(1, OPEN, stored=1)
                del at_work[row_id]

    def died(
        self, process: str, at_work: Iterable[str] | None = None, *, outside: bool = False
    ) -> bool:
        """Note that ``process`` died, and isolate its rows. Return whether a row has come to its
        end by this.

        Args:
            at_work: rows at work by the process's last message; None: those that it entered.
            outside: the cause lies outside of the process and its rows.
        """
        noted = self._at_work.pop(process, {})
        rows = list(noted if at_work is None else at_work)
        before = self.among(rows)
        if len(rows) == 1 and before and before[rows[0]].alone:
            after = self.rows[rows[0]] = self._after_one_alone(before[rows[0]], outside)
            return bool(after.end)
        # Rows of a group that dies, too, run alone, however many they are.
        was_isolated = any(not row.released for row in before.values())
        size = 1 if was_isolated or len(rows) <= FEW else math.isqrt(len(rows) - 1) + 1
        for start in range(0, len(rows), size):
            group, members = next(self._groups), rows[start : start + size]
            for row_id in members:
                row = before.get(row_id, IsolatedRow(0, group))
                self.rows[row_id] = replace(
                    row, deaths=row.deaths + 1, group=group, alone=len(members) == 1
                )
        return False

    def _after_one_alone(self, row: IsolatedRow, outside: bool) -> IsolatedRow:
        trials, alone = row.trials + (not outside), row.deaths_alone + 1
        end: End = ""
        if trials > TRIALS:
            end = "quarantined"
        elif trials == TRIALS and not outside:
            end = "set_aside"
        elif alone - trials >= MOST_ALONE:
            end = "given_up"
        return replace(
            row,
            deaths=row.deaths + 1,
            trials=trials,
            deaths_alone=alone,
            end=end,
            group=OPEN if end else next(self._groups),
        )
