"""Count the rows, judged rows and scores of one category.

The unit of an accuracy is an entry. If rows are turns of dialogues, the unit is a dialogue, which
is valid if all its turns are valid. Only counters are kept (per entry, and per dialogue and
sample), never rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from ace_ray.types import STATUSES, ResultRow, Verdict
from ace_ray.util.stats import pass_at_k, pass_hat_k, share, wilson

# Maximum k up to which each pass@k is computed.
_EVERY_K = 32
_COSTS = ("prompt_tokens", "completion_tokens", "generation_s")
# For each judged entry or dialogue: the number of judged samples, and the sum of their scores. If
# scores are 0 or 1, the sum is the number of valid samples.
Units = list[tuple[int, float]]


class Tally:
    """Counters of one category in one language, under each of ``rule_sets``. If ``multi_turn`` is
    true, its rows are turns of dialogues."""

    def __init__(
        self, category: str, rule_sets: Sequence[str], *, multi_turn: bool = False
    ) -> None:
        self.category = category
        self.rule_sets = tuple(rule_sets)
        self.multi_turn = multi_turn
        self.status: Counter[str] = Counter()
        self.errors: dict[str, Counter[str]] = {rule: Counter() for rule in rule_sets}
        # Sum and number of the process accuracies of rows that have one.
        self.process = {rule: [0.0, 0] for rule in rule_sets}
        # Rule sets under which at least one row has a score that is neither 0 nor 1.
        self.graded: set[str] = set()
        # Sums over the rows; None if a row's value is unknown.
        self.costs: dict[str, Any] = dict.fromkeys(_COSTS, 0)
        # id -> [declared, scored, sum of scores per rule set ...]
        self._entries: dict[str, list[float]] = {}
        self._turns: dict[str, set[str]] = {}
        # dialogue -> sample -> (scored, sum of scores per rule set ...)
        self._dialogues: dict[str, dict[int, tuple[float, ...]]] = {}

    def add(self, row: ResultRow) -> None:
        self.status[row.status] += 1
        for cost, total in self.costs.items():
            more = getattr(row, cost)
            self.costs[cost] = None if total is None or more is None else total + more
        entry = self._entries.setdefault(row.id, [0] * (2 + len(self.rule_sets)))
        entry[0] += 1
        if self.multi_turn:
            self._turns.setdefault(row.group, set()).add(row.id)
        if row.status != "scored":
            return
        scores = [self._count_verdict(rule, row.verdicts[rule]) for rule in self.rule_sets]
        for index, gained in enumerate((1, *scores), start=1):
            entry[index] += gained
        if self.multi_turn:
            samples = self._dialogues.setdefault(row.group, {})
            before = samples.get(row.sample, (0,) * (1 + len(self.rule_sets)))
            samples[row.sample] = tuple(map(sum, zip(before, (1, *scores), strict=True)))

    @property
    def declared(self) -> int:
        return self.status.total()

    @property
    def scored(self) -> int:
        return self.status["scored"]

    def turns(self, rule: str) -> Units:
        """Return (judged samples, sum of scores) of each judged entry, even if it is a turn."""
        index = 2 + self.rule_sets.index(rule)
        return [(int(entry[1]), entry[index]) for entry in self._entries.values() if entry[1]]

    def units(self, rule: str) -> Units:
        """Return (judged samples, sum of scores) of each judged entry; if rows are turns, of each
        judged dialogue. A sample of a dialogue is judged if all its turns are scored."""
        if not self.multi_turn:
            return self.turns(rule)
        return [(len(samples), samples.count(1)) for samples in self.shares(rule)]

    def shares(self, rule: str) -> list[list[float]]:
        """Return, for each judged dialogue, a list with the share of valid turns of each sample."""
        index, shares = 1 + self.rule_sets.index(rule), []
        for group, samples in self._dialogues.items():
            turns = len(self._turns[group])
            shares.append([sums[index] / turns for sums in samples.values() if sums[0] == turns])
        return list(filter(None, shares))

    def dialogues_declared(self) -> int:
        """Return how many samples all dialogues have in total, judged or not."""
        return sum(
            max(len(self._dialogues.get(group, ())), *(int(self._entries[i][0]) for i in ids))
            for group, ids in self._turns.items()
        )

    def _count_verdict(self, rule: str, verdict: Verdict) -> float:
        if not verdict.valid:
            self.errors[rule][verdict.error_type] += 1
        if "process_accuracy" in verdict.metrics:
            self.process[rule][0] += verdict.metrics["process_accuracy"]
            self.process[rule][1] += 1
        score = verdict.score
        if score not in (0, 1):
            self.graded.add(rule)
        return score


def totals(tallies: Sequence[Tally]) -> dict[str, Any]:
    """Return the sums of tokens and seconds. A sum is None if a row's value is unknown."""
    costs = {cost: [tally.costs[cost] for tally in tallies] for cost in _COSTS}
    return {cost: None if None in every else sum(every) for cost, every in costs.items()}


def counts(tallies: Sequence[Tally]) -> dict[str, Any]:
    """Return the numbers of declared, scored and unscored rows, and of rows with each status."""
    status = {name: sum(tally.status[name] for tally in tallies) for name in STATUSES}
    declared = sum(status.values())
    scored = status["scored"]
    return {"declared": declared, "scored": scored, "unscored": declared - scored, "status": status}


def errors(tallies: Sequence[Tally], rule: str) -> dict[str, dict[str, float]]:
    """Return the number and share of invalid rows by error type, most frequent type first."""
    total: Counter[str] = Counter()
    for tally in tallies:
        total.update(tally.errors[rule])
    ordered = sorted(total.items(), key=lambda item: (-item[1], item[0]))
    return {name: {"count": n, "share": n / total.total()} for name, n in ordered}


def accuracies(tallies: Sequence[Tally], rule: str) -> dict[str, Any]:
    """Compute STATS (`ace_ray.benchmarks.statistics`) of all rows in ``tallies`` under ``rule``."""
    units = [unit for tally in tallies for unit in tally.units(rule)]
    stats: dict[str, Any] = {**_mean_score("", units), "n": len(units)}
    if any(tally.multi_turn for tally in tallies):
        turns = [unit for tally in tallies for unit in tally.turns(rule)]
        stats |= {**_mean_score("turn_", turns), "turns": len(turns)}
        shares = [samples for tally in tallies for samples in tally.shares(rule)]
        values = [value for samples in shares for value in samples]
        stats |= _accuracy("process_", sum(values), len(values), len(shares))
    process, rows = (sum(tally.process[rule][i] for tally in tallies) for i in (0, 1))
    if rows:
        stats |= _accuracy("process_", process, int(rows), len(units))
    if max((n for n, _ in units), default=0) > 1:
        # A dialogue is right or wrong, whatever its turns score.
        graded = any(rule in tally.graded and not tally.multi_turn for tally in tallies)
        stats["samples"] = _samples(units, graded=graded)
    return stats | {"errors": errors(tallies, rule)}


def _mean_score(prefix: str, units: Units) -> dict[str, Any]:
    return _accuracy(prefix, sum(c for _, c in units), sum(n for n, _ in units), len(units))


def _accuracy(prefix: str, total: float, count: int, n: int) -> dict[str, Any]:
    value, interval = share(total, count, n)
    return {f"{prefix}accuracy": value, f"{prefix}interval": interval}


def _samples(units: Units, *, graded: bool) -> dict[str, Any]:
    """Compute the mean score, pass@k and pass^k, as means over entries (or dialogues) with equal
    weights. k has each value up to `_EVERY_K`, then powers of two, and last the smallest number of
    samples of an entry, which no k exceeds.

    The Wilson interval over the entries is conservative: it assumes values of only 0 and 1, which
    have the largest variance for a given mean. If scores are ``graded``, pass@k and pass^k are left
    out, since they are defined only for right and wrong answers."""
    lowest, highest = min(n for n, _ in units), max(n for n, _ in units)
    mean = sum(c / n for n, c in units) / len(units)
    stats: dict[str, Any] = {"min": lowest, "max": highest, "mean": mean}
    powers = (1 << i for i in range(lowest.bit_length()))
    ks = sorted({*range(1, min(lowest, _EVERY_K) + 1), *powers, lowest})
    for name, chance in (("pass_at_k", pass_at_k), ("pass_hat_k", pass_hat_k)):
        sums = {str(k): sum(chance(n, int(c), k) for n, c in units) for k in ([] if graded else ks)}
        stats[name] = {k: total / len(units) for k, total in sums.items()}
        stats[f"{name}_intervals"] = {k: wilson(total, len(units)) for k, total in sums.items()}
    return stats
