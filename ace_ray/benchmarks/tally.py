"""Counting verdicts of one category: what came, what was judged, what was valid.

The unit of judgement is the row, or the dialogue of the rows of a group: valid when all its turns
are. Only counters are kept (per entry, and per dialogue and sample), never rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from ace_ray.benchmarks.protocol import ScoredRow
from ace_ray.records import RULE_SETS, STATUSES, Verdict
from ace_ray.stats import pass_at_k, wilson

Units = list[tuple[int, int]]
"""Per judged entry or dialogue: how many samples were judged, how many of them were valid."""


class Tally:
    """Counters of one category in one language; ``multi_turn`` says that its rows are turns of
    dialogues."""

    def __init__(self, category: str, *, multi_turn: bool = False) -> None:
        self.category = category
        self.multi_turn = multi_turn
        self.status: Counter[str] = Counter()
        self.errors: dict[str, Counter[str]] = {rule: Counter() for rule in RULE_SETS}
        self.process = {rule: [0.0, 0] for rule in RULE_SETS}
        """Sum and count of the rows' process accuracies, of those that have one."""
        self.prompt_tokens = self.completion_tokens = 0
        self.generation_s = 0.0
        # id -> [declared, scored, valid per rule set ...]
        self._entries: dict[str, list[int]] = {}
        self._turns: dict[str, set[str]] = {}
        # dialogue -> sample -> (scored, valid per rule set ...)
        self._dialogues: dict[str, dict[int, tuple[int, ...]]] = {}

    def add(self, row: ScoredRow) -> None:
        entry = self._declare(row.id, row.group, row.status, 1)
        if row.status != "scored":
            return
        valid = [self._judge(rule, row.verdicts[rule]) for rule in RULE_SETS]
        for place, gained in enumerate((1, *valid), start=1):
            entry[place] += gained
        if self.multi_turn:
            samples = self._dialogues.setdefault(row.group, {})
            before = samples.get(row.sample, (0,) * (1 + len(RULE_SETS)))
            samples[row.sample] = tuple(map(sum, zip(before, (1, *valid), strict=True)))

    def absent(self, entry_id: str, group: str, count: int) -> None:
        """``count`` declared rows of an entry that never came: they count as skipped."""
        self._declare(entry_id, group, "skipped", count)

    @property
    def declared(self) -> int:
        return self.status.total()

    @property
    def scored(self) -> int:
        return self.status["scored"]

    def turns(self, rule: str) -> Units:
        """Per row, dialogues or not."""
        place = 2 + RULE_SETS.index(rule)
        return [(entry[1], entry[place]) for entry in self._entries.values() if entry[1]]

    def units(self, rule: str) -> Units:
        """Per entry, or per dialogue, of which only those with every turn scored are judged."""
        if not self.multi_turn:
            return self.turns(rule)
        units = []
        for group in self._dialogues:
            judged = [valid == turns for valid, turns in self._judged(group, rule)]
            if judged:
                units.append((len(judged), sum(judged)))
        return units

    def shares(self, rule: str) -> list[list[float]]:
        """Per judged dialogue: the fraction of valid turns of each of its samples."""
        judged = (self._judged(group, rule) for group in self._dialogues)
        return [[valid / turns for valid, turns in samples] for samples in judged if samples]

    def dialogues_declared(self) -> int:
        """Dialogues times samples, whether or not all their turns were scored."""
        return sum(
            max(len(self._dialogues.get(group, ())), max(self._entries[i][0] for i in ids))
            for group, ids in self._turns.items()
        )

    def _declare(self, entry_id: str, group: str, status: str, count: int) -> list[int]:
        self.status[status] += count
        entry = self._entries.setdefault(entry_id, [0] * (2 + len(RULE_SETS)))
        entry[0] += count
        if self.multi_turn:
            self._turns.setdefault(group, set()).add(entry_id)
        return entry

    def _judge(self, rule: str, verdict: Verdict) -> bool:
        if not verdict.valid:
            self.errors[rule][verdict.error_type] += 1
        if "process_accuracy" in verdict.metrics:
            self.process[rule][0] += verdict.metrics["process_accuracy"]
            self.process[rule][1] += 1
        return verdict.valid

    def _judged(self, group: str, rule: str) -> list[tuple[int, int]]:
        """(valid turns, turns) of each sample of the dialogue whose turns were all scored."""
        turns, place = len(self._turns[group]), 1 + RULE_SETS.index(rule)
        states = self._dialogues[group].values()
        return [(state[place], turns) for state in states if state[0] == turns]


def counts(tallies: Sequence[Tally]) -> dict[str, Any]:
    """Rows declared, scored and not scored, with the number in each status."""
    status = {name: sum(tally.status[name] for tally in tallies) for name in STATUSES}
    declared = sum(status.values())
    scored = status["scored"]
    return {"declared": declared, "scored": scored, "unscored": declared - scored, "status": status}


def lacks(name: str, tally: Tally) -> str:
    """What has no verdict in the category ``name``, in one line."""
    reasons = ", ".join(
        f"{tally.status[status]} {status}"
        for status in STATUSES
        if status != "scored" and tally.status[status]
    )
    unscored = tally.declared - tally.scored
    return f"{name}: {unscored} of {tally.declared} rows not scored ({reasons})"


def errors(tallies: Sequence[Tally], rule: str) -> dict[str, dict[str, float]]:
    """By error type, most frequent first: rows, and their share of all invalid rows."""
    total: Counter[str] = Counter()
    for tally in tallies:
        total.update(tally.errors[rule])
    ordered = sorted(total.items(), key=lambda item: (-item[1], item[0]))
    return {name: {"count": n, "share": n / total.total()} for name, n in ordered}


def accuracies(tallies: Sequence[Tally], rule: str) -> dict[str, Any]:
    """The statistics of one category under one rule set, pooled over ``tallies``."""
    units = [unit for tally in tallies for unit in tally.units(rule)]
    accuracy, interval = _share(units)
    found: dict[str, Any] = {"accuracy": accuracy, "interval": interval, "n": len(units)}
    if any(tally.multi_turn for tally in tallies):
        turns = [unit for tally in tallies for unit in tally.turns(rule)]
        shares = [share for tally in tallies for share in tally.shares(rule)]
        found |= _named("turn", *_share(turns)) | {"turns": len(turns)}
        found |= _named("process", *_mean([x for s in shares for x in s], len(shares)))
    process, rows = (sum(tally.process[rule][i] for tally in tallies) for i in (0, 1))
    if rows:
        mean = process / rows
        found |= _named("process", mean, wilson(mean * len(units), len(units)))
    if max((n for n, _ in units), default=0) > 1:
        found["samples"] = _samples(units)
    return found | {"errors": errors(tallies, rule)}


def _share(units: Units) -> tuple[float | None, Any]:
    valid, judged = sum(c for _, c in units), sum(n for n, _ in units)
    if not judged:
        return None, None
    return valid / judged, wilson(valid / judged * len(units), len(units))


def _mean(values: list[float], n: int) -> tuple[float | None, Any]:
    if not values:
        return None, None
    mean = sum(values) / len(values)
    return mean, wilson(mean * n, n)


def _named(name: str, value: float | None, interval: Any) -> dict[str, Any]:
    return {f"{name}_accuracy": value, f"{name}_interval": interval}


def _samples(units: Units) -> dict[str, Any]:
    """Mean over samples and pass@k per entry (dialogue), k up to the fewest samples any has."""
    fewest, most = min(n for n, _ in units), max(n for n, _ in units)
    ks = [k for k in (1 << i for i in range(fewest.bit_length())) if k < fewest] + [fewest]
    at = {str(k): sum(pass_at_k(n, c, k) for n, c in units) / len(units) for k in ks}
    return {"min": fewest, "max": most, "mean": at["1"], "pass_at_k": at}
