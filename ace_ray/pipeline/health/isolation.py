"""Isolate the rows that were in flight when a process died, and decide which are quarantined.

After the death of a process it is unknown which of its rows was the cause. So these rows are
isolated: they are divided into groups, and a process runs only one group at a time. (A checker has
one row in flight.) If there are few rows, each row forms a group. Otherwise a group's size is about
the square root of the number of rows. If a process dies while it runs a group, each row of this
group then runs alone.

A row fails a trial if it runs alone when its process dies, and the cause is not external. Each
trial is in a new process, which must first have answered another request (`EngineWorker`). After
`TRIALS` failed trials the row is set aside until all other rows are done. Then new processes try
the row once more. If this trial fails as well, the row is quarantined.

A preparation is work that an engine does once for several rows. While the preparation is in flight,
it counts as one row here (`shared_id`), in place of its rows. The rows are isolated, set aside and
quarantined together with the preparation."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from ace_ray.storage.rows import KILLED_FROM_OUTSIDE, PREPARATION_KILLED

# Maximum number of isolated rows that run alone at once. More rows first form groups.
FEW = 16

# Number of failed trials after which a row is set aside until all other rows are done.
TRIALS = 3

# After this many external deaths while the row ran alone, this command does not try the row again.
# The row may be the cause and leave no trace.
MOST_ALONE = 4

# The group of all rows that are not isolated.
OPEN = 0

End = Literal["", "set_aside", "quarantined", "given_up"]


@dataclass(frozen=True, slots=True)
class IsolatedRow:
    """The state of an isolated row or preparation. Only rows of the same ``group`` may run
    together. Rows that are not isolated, or are released, form the group `OPEN`."""

    deaths: int
    group: int
    alone: bool = False
    """Whether the row is the only one of its group."""
    trials: int = 0
    """Number of failed trials: deaths while the row ran alone, without an external cause."""
    deaths_alone: int = 0
    """Number of deaths of any cause while the row ran alone."""
    end: End = ""
    """Why this pass does not try the row again; "" if it does."""
    stored: int = 0
    """Number of deaths that are included in the stored row's number of attempts."""
    shared: bool = False
    """Whether a row has this state because its preparation has it (`states_by_row`)."""

    @property
    def is_released(self) -> bool:
        """Return whether the row has ended without a death, so that it is no longer isolated. Its
        state is kept, because Ray may repeat the row if the process dies later."""
        return self.group == OPEN and not self.end

    @property
    def unstored_deaths(self) -> int:
        """Number of deaths that are not included in the stored row's number of attempts."""
        return self.deaths - self.stored


_SHARED = "shared "


def shared_id(row: Mapping[str, Any]) -> str:
    """Return the id of the preparation that ``row`` shares with other rows; "" for none."""
    if row["shares"] < 0:
        return ""
    return f"{_SHARED}{row['run']} {row['shares']} {row['sample']} {row['repeat']}"


def states_by_row(
    rows: Iterable[Mapping[str, Any]], states: Mapping[str, IsolatedRow]
) -> dict[str, IsolatedRow]:
    """Return the state of each isolated row. If both a row and its preparation have a state, the
    more restrictive one is returned. ``states`` has the states of rows and preparations by id."""
    by_row: dict[str, IsolatedRow] = {}
    for row in rows:
        row_states = [states[row["row_id"]]] if row["row_id"] in states else []
        if (shared := states.get(shared_id(row))) is not None:
            row_states.append(replace(shared, shared=True))
        if row_states:
            row_states.sort(key=lambda state: (not state.end, state.is_released))
            # Deaths of both count as attempts of the row.
            unstored = sum(state.unstored_deaths for state in row_states[1:])
            by_row[row["row_id"]] = replace(row_states[0], stored=row_states[0].stored - unstored)
    return by_row


def ended_columns(row: IsolatedRow, process: str) -> dict[str, str]:
    """Return the columns ``status``, ``error_class`` and ``error`` of a row that a pass does not
    try again. ``process``: kind of the processes that died, "engine" or "checker"."""
    subject = "the preparation that this row shares with others" if row.shared else "this row"
    died = f"{row.deaths} {process}s crashed while working on {subject}"
    alone = f"{row.deaths_alone} of them while working on it alone"
    killed = PREPARATION_KILLED if row.shared else f"{process.capitalize()}Killed"
    status, name, reason = {
        "quarantined": ("quarantined", killed, ", the last one after all other rows were done"),
        "set_aside": ("infra_error", killed, "; it is retried after all other rows"),
        "given_up": ("infra_error", KILLED_FROM_OUTSIDE, ", but the row may not be the cause"),
    }[row.end]
    return {"status": status, "error_class": name, "error": f"{died}, {alone}{reason}"}


def set_aside(attempts: int) -> IsolatedRow:
    """Return the state of a row that an earlier command set aside, after this many ``attempts``."""
    return IsolatedRow(
        attempts, OPEN, trials=TRIALS, deaths_alone=TRIALS, end="set_aside", stored=attempts
    )


class Isolation:
    """The isolated rows of one kind of process, such as engine workers or checkers."""

    def __init__(self, earlier: Mapping[str, IsolatedRow] | None = None) -> None:
        earlier = earlier or {}
        self._groups = itertools.count(max((row.group for row in earlier.values()), default=0) + 1)
        self.rows: dict[str, IsolatedRow] = {}
        for row_id, row in earlier.items():
            # Drop released rows, since their stored rows count the attempts. Also drop preparations
            # that were given up, since this command tries their rows again.
            if row.is_released or (row.end == "given_up" and row_id.startswith(_SHARED)):
                continue
            if row.end == "set_aside":
                group = next(self._groups)
                row = replace(row, group=group, alone=True, end="", stored=row.deaths)
            self.rows[row_id] = row
        # Actor -> rows in flight in its process.
        self.at_work: dict[str, dict[str, None]] = {}

    def states_of(self, ids: Iterable[str]) -> dict[str, IsolatedRow]:
        """Return the state of each row in ``ids`` that is or was isolated."""
        return {row_id: self.rows[row_id] for row_id in ids if row_id in self.rows}

    def enter(self, process: str, ids: Iterable[str]) -> None:
        """Note that the actor ``process`` begins to work on ``ids``."""
        self.at_work.setdefault(process, {}).update(dict.fromkeys(ids))

    def leave(self, process: str, ids: Iterable[str]) -> None:
        """Note that the actor ``process`` has ended work on ``ids``. Release the isolated ones."""
        at_work = self.at_work.get(process, {})
        for row_id in ids:
            at_work.pop(row_id, None)
            row = self.rows.get(row_id)
            if row is not None and not row.end:
                self.rows[row_id] = IsolatedRow(row.deaths, OPEN, stored=row.stored)

    def isolate(
        self, process: str, at_work: Iterable[str] | None = None, *, outside: bool = False
    ) -> bool:
        """Note that the actor ``process`` died, and isolate its rows. Return whether one of them
        now has an `end`, so that this pass does not try it again.

        Args:
            at_work: rows in flight that the process has reported; None: the rows noted by `enter`.
            outside: whether the cause is external."""
        noted = self.at_work.pop(process, {})
        rows = list(noted if at_work is None else at_work)
        before = self.states_of(rows)
        if len(rows) == 1 and before and before[rows[0]].alone:
            after = self.rows[rows[0]] = self._state_after_trial(before[rows[0]], outside)
            return bool(after.end)
        # If the process of a group dies, its rows all run alone, however many they are.
        was_isolated = any(not row.is_released for row in before.values())
        size = 1 if was_isolated or len(rows) <= FEW else math.isqrt(len(rows) - 1) + 1
        for start in range(0, len(rows), size):
            group, members = next(self._groups), rows[start : start + size]
            for row_id in members:
                row = before.get(row_id, IsolatedRow(0, group))
                self.rows[row_id] = replace(
                    row, deaths=row.deaths + 1, group=group, alone=len(members) == 1
                )
        return False

    def _state_after_trial(self, row: IsolatedRow, outside: bool) -> IsolatedRow:
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
