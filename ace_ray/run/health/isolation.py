"""Which rows were being worked on when a process died, and with whom they may run again.

A process that dies takes many rows along and does not say which one did it. So the rows that it was
working on become suspects: each runs again in a group that has its process to itself, alone if they
are few, else with about as many others as there are groups. Those whose group's process dies, too,
run alone.

A row that is a group by itself when its process dies again, of no cause outside of it, has failed a
trial. Each is in another process, which must have done something else before (`EngineWorker`).
After `TRIALS` of them the row is set aside until all others are done; then new processes try it
once more. Only a row that fails then, too, is quarantined.

What several rows share and an engine does once for them, a preparation, is in the book as one row
(`shared_id`) while it is at work, and they are not: they go where it goes, and end as it ends.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

FEW = 16
"""Rows that run alone at once after their process died; more of them run in small groups first."""

TRIALS = 3
"""Failed trials after which a row waits for all others to be done."""

MOST_ALONE = 4
"""Deaths of any cause with a row alone after which this command does not try it again: what kills
from outside each time cannot be told from a row that does so without a trace."""

OPEN = 0
"""The group of all rows that are no suspects."""

Kind = Literal["engine", "checker", "writer"]
"""Of a process of a run."""
KINDS: tuple[Kind, ...] = ("engine", "checker", "writer")

End = Literal["", "set_aside", "quarantined", "given_up"]


@dataclass(frozen=True, slots=True)
class Suspect:
    """``group`` rows may run together, and with no others; those in `OPEN` are cleared."""

    deaths: int
    group: int
    alone: bool = False
    """Whether it is all of its group."""
    trials: int = 0
    """Failed ones: deaths with it alone, of no cause outside."""
    deaths_alone: int = 0
    """Of any cause."""
    end: End = ""
    """Why this pass does not try it any more; "": it does."""
    stored: int = 0
    """Deaths that its stored row counts among its attempts, since it was set aside."""

    @property
    def cleared(self) -> bool:
        """It has lived through its work. Kept, since a process that dies before the row has passed
        on makes Ray repeat it, and its attempts go on counting."""
        return self.group == OPEN and not self.end

    @property
    def unstored(self) -> int:
        """Deaths that no stored row counts yet."""
        return self.deaths - self.stored


def grouped(
    rows: Iterable[dict[str, Any]], suspects: Mapping[str, Suspect]
) -> tuple[list[tuple[dict[str, Any], Suspect]], dict[int, list[dict[str, Any]]]]:
    """Those of ``rows`` that this pass does not try any more, and group -> rows."""
    ended = []
    groups: dict[int, list[dict[str, Any]]] = {}
    for row in rows:
        suspect = suspects.get(row["row_id"])
        if suspect is not None and suspect.end:
            ended.append((row, suspect))
        else:
            groups.setdefault(suspect.group if suspect else OPEN, []).append(row)
    return ended, groups


_SHARED = "shared "


def shared_id(row: Mapping[str, Any]) -> str:
    """In the book, of what ``row`` shares with others; "" if it shares nothing."""
    if row["shares"] < 0:
        return ""
    return f"{_SHARED}{row['run']} {row['shares']} {row['sample']} {row['repeat']}"


def of_rows(
    rows: Iterable[Mapping[str, Any]], known: Mapping[str, Suspect]
) -> dict[str, tuple[Suspect, bool]]:
    """Row -> what decides with whom it may run, and whether that is what it shares with others."""
    found: dict[str, tuple[Suspect, bool]] = {}
    for row in rows:
        own, shared = known.get(row["row_id"]), known.get(shared_id(row))
        if own is not None and shared is not None:
            first = own.end or (not shared.end and (not own.cleared or shared.cleared))
            one, other = (own, shared) if first else (shared, own)
            # Both have cost the row attempts.
            found[row["row_id"]] = replace(one, stored=one.stored - other.unstored), not first
        elif own is not None:
            found[row["row_id"]] = own, False
        elif shared is not None:
            found[row["row_id"]] = shared, True
    return found


def ended_columns(suspect: Suspect, process: str, *, shared: bool = False) -> dict[str, str]:
    """Status, class and message of a row that a pass does not try any more. ``process``: what died
    of it, "engine" or "checker". ``shared``: of what it shares with others."""
    what = "what this row shares with others" if shared else "this row"
    died = f"{suspect.deaths} {process}s died while they worked on {what}"
    alone = f"{suspect.deaths_alone} of them on it alone"
    name = PREPARATION_KILLED if shared else f"{process.capitalize()}Killed"
    if suspect.end == "quarantined":
        return {
            "status": "quarantined",
            "error_class": name,
            "error": f"{died}, {alone}, the last one after all other rows were done",
        }
    if suspect.end == "set_aside":
        return {
            "status": "infra_error",
            "error_class": name,
            "error": f"{died}, {alone}; it is tried once more after all other rows",
        }
    return {
        "status": "infra_error",
        "error_class": KILLED_FROM_OUTSIDE,
        "error": f"{died}, {alone}, and nothing shows that the row was the cause",
    }


KILLED_FROM_OUTSIDE = "KilledFromOutside"
"""Of a row that is given up in this command, and owed to the next one."""

PREPARATION_KILLED = "PreparationKilled"
"""Of rows that share a preparation which engines have died on."""

SHARED: Literal["shared"] = "shared"

SET_ASIDE: dict[str | None, Kind | Literal["shared"]] = {
    "EngineKilled": "engine",
    "CheckerKilled": "checker",
    PREPARATION_KILLED: SHARED,
}
"""Class of a row that waits for all others -> what it has killed; `SHARED`: what it shares with
others has killed engines."""


def set_aside(attempts: int) -> Suspect:
    """A row that an earlier command has set aside, after so many attempts."""
    return Suspect(
        attempts, OPEN, trials=TRIALS, deaths_alone=TRIALS, end="set_aside", stored=attempts
    )


class Suspects:
    """The book of one kind of process (engine workers, or checkers). Plain Python."""

    def __init__(self, earlier: Mapping[str, Suspect] | None = None) -> None:
        # What those that were cleared have cost is in their stored rows by now; it is forgotten of
        # one whose result was lost as the pass broke off. What was given up from outside decides
        # nothing for a row that shares it and comes again on its own account.
        self.known = {
            row: s
            for row, s in (earlier or {}).items()
            if not s.cleared and not (s.end == "given_up" and row.startswith(_SHARED))
        }
        self._held: dict[str, dict[str, None]] = {}
        first = max((s.group for s in self.known.values()), default=0) + 1
        self._groups = itertools.count(first)
        for row_id, suspect in self.known.items():
            if suspect.end == "set_aside":
                self.known[row_id] = replace(
                    suspect, group=next(self._groups), alone=True, end="", stored=suspect.deaths
                )

    @property
    def held(self) -> int:
        """Rows that processes are working on."""
        return sum(len(rows) for rows in self._held.values())

    def among(self, ids: Iterable[str]) -> dict[str, Suspect]:
        """Those of ``ids`` that are suspects, or were."""
        if not self.known:
            return {}
        return {row_id: self.known[row_id] for row_id in ids if row_id in self.known}

    def enter(self, process: str, ids: Iterable[str]) -> None:
        """``process`` works on ``ids`` from now on."""
        self._held.setdefault(process, {}).update(dict.fromkeys(ids))

    def leave(self, process: str, ids: Iterable[str]) -> None:
        """The rows are done with; a suspect that lives through it is cleared."""
        held = self._held.get(process, {})
        for row_id in ids:
            held.pop(row_id, None)
            suspect = self.known.get(row_id)
            if suspect is not None and not suspect.end:
                self.known[row_id] = Suspect(suspect.deaths, OPEN, stored=suspect.stored)

    def died(
        self, process: str, held: Iterable[str] | None = None, *, outside: bool = False
    ) -> bool:
        """``process`` is gone; ``held`` is what it was working on, where it could still say so.

        ``outside``: the cause lies outside of the process and its rows. Returns whether a row has
        come to its end by this.
        """
        noted = self._held.pop(process, {})
        rows = list(noted if held is None else held)
        before = self.among(rows)
        if len(rows) == 1 and before and before[rows[0]].alone:
            after = self.known[rows[0]] = self._after_one_alone(before[rows[0]], outside)
            return bool(after.end)
        # Two deaths lead to rows that are alone, however many there were.
        known = any(not suspect.cleared for suspect in before.values())
        size = 1 if known or len(rows) <= FEW else math.isqrt(len(rows) - 1) + 1
        for start in range(0, len(rows), size):
            group, members = next(self._groups), rows[start : start + size]
            for row_id in members:
                suspect = before.get(row_id, Suspect(0, group))
                self.known[row_id] = replace(
                    suspect, deaths=suspect.deaths + 1, group=group, alone=len(members) == 1
                )
        return False

    def _after_one_alone(self, suspect: Suspect, outside: bool) -> Suspect:
        trials, alone = suspect.trials + (not outside), suspect.deaths_alone + 1
        end: End = ""
        if trials > TRIALS:
            end = "quarantined"
        elif trials == TRIALS and not outside:
            end = "set_aside"
        elif alone - trials >= MOST_ALONE:
            end = "given_up"
        return replace(
            suspect,
            deaths=suspect.deaths + 1,
            trials=trials,
            deaths_alone=alone,
            end=end,
            group=OPEN if end else next(self._groups),
        )
