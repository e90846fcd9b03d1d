"""Which rows were being worked on when a process died, and with whom they may run again.

A process that dies takes many rows along and does not say which one did it. So the rows that it was
working on become suspects: each runs again in a group that has its process to itself. A row that is
a group by itself is condemned when its process dies again; the last one left of a larger group is
not, since it may just be the slowest. At most `GROUPS` groups come of one death: with 16 rows or
fewer at work each suspect runs alone at once, and a killer costs two engines; with more, a killer
costs another one each time its group shrinks.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

GROUPS = 16

OPEN = 0
"""The group of all rows that are no suspects."""


@dataclass(frozen=True, slots=True)
class Suspect:
    """``group`` rows may run together, and with no others; those in `OPEN` are cleared."""

    deaths: int
    group: int
    alone: bool = False
    """Whether it is all of its group."""
    condemned: bool = False

    @property
    def cleared(self) -> bool:
        """It has lived through its work. Kept, since a process that dies before the row has passed
        on makes Ray repeat it, and its attempts go on counting."""
        return self.group == OPEN and not self.condemned


def grouped(
    rows: Iterable[dict[str, Any]], suspects: Mapping[str, Suspect]
) -> tuple[list[tuple[dict[str, Any], int]], dict[int, list[dict[str, Any]]]]:
    """The condemned ones of ``rows``, each with the deaths that it cost, and group -> rows."""
    condemned = []
    groups: dict[int, list[dict[str, Any]]] = {}
    for row in rows:
        suspect = suspects.get(row["row_id"])
        if suspect is not None and suspect.condemned:
            condemned.append((row, suspect.deaths))
        else:
            groups.setdefault(suspect.group if suspect else OPEN, []).append(row)
    return condemned, groups


class Suspects:
    """The book of one kind of process (engine workers, or checkers). Plain Python."""

    def __init__(self, earlier: Mapping[str, Suspect] | None = None) -> None:
        # What those that were cleared have cost is in their stored rows by now; it is forgotten of
        # one whose result was lost as the pass broke off.
        self.known = {row: s for row, s in (earlier or {}).items() if not s.cleared}
        self.condemned_in_a_row = 0
        """Since a row last left a process that lived."""
        self._held: dict[str, dict[str, None]] = {}
        first = max((s.group for s in self.known.values()), default=0) + 1
        self._groups = itertools.count(first)

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
            self.condemned_in_a_row = 0
            held.pop(row_id, None)
            if row_id in self.known and not self.known[row_id].condemned:
                self.known[row_id] = Suspect(self.known[row_id].deaths, OPEN)

    def died(self, process: str, held: Iterable[str] | None = None) -> list[str]:
        """``process`` is gone; ``held`` is what it was working on, where it could still say so.

        Returns the rows that are condemned now.
        """
        noted = self._held.pop(process, {})
        rows = list(noted if held is None else held)
        before = self.among(rows)
        if len(rows) == 1 and before and before[rows[0]].alone:
            (row_id,) = rows
            self.known[row_id] = Suspect(before[row_id].deaths + 1, 0, condemned=True)
            self.condemned_in_a_row += 1
            return rows
        size = math.ceil(len(rows) / GROUPS) or 1
        for start in range(0, len(rows), size):
            group, members = next(self._groups), rows[start : start + size]
            for row_id in members:
                deaths = before[row_id].deaths if row_id in before else 0
                self.known[row_id] = Suspect(deaths + 1, group, alone=len(members) == 1)
        return []
