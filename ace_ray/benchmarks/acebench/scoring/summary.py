"""The summary of a run: accuracies, aggregates, error types and totals, for both rule sets.

Keys (``docs/results.md`` explains them)::

    languages        {"en": BLOCK, ...}, the languages that rows came in
    combined         BLOCK over all of them
    complete         whether every category has no more unscored rows than allowed
    incomplete       one line per category that has more: what and how many
    max_unscored     the allowed share of unscored rows of a category

    BLOCK
      counts         {"declared", "scored", "unscored", "status": {status: rows}}
      totals         {"prompt_tokens", "completion_tokens", "generation_s"}
      categories     {category: counts + {"official": STATS, "strict": STATS}}, multi-turn also
                     "dialogues": dialogues times samples, judged or not
      rules          {"official": AGGREGATES, "strict": AGGREGATES}
    STATS
      accuracy       share of valid rows among the scored; multi-turn: of dialogues with all turns
                     valid among those with all turns scored; null when there are none
      interval, n    Wilson 95 % [low, high], over n entries (dialogues); null when n is 0
      turn_accuracy, turn_interval, turns     multi-turn only: share of valid rows, over turns
      process_accuracy, process_interval      multi-turn: mean fraction of valid turns per
                     dialogue; agent: mean of the rows' process accuracies
      samples        only with several: {"min", "max", "mean", "pass_at_k": {"1": ...}}, per entry
                     (dialogue)
      errors         {error type: {"count", "share"}}, share of the invalid rows
    AGGREGATES
      workbook       {name: CELL}: the official workbook's columns, its rounding and weights
      paper          {name: CELL}: the paper's Table 2 columns, unrounded; overall with square-root
                     weights and the "counts" they come from
      errors         as in STATS, all categories together
    CELL             {"value", "interval", "column", "missing": categories}; value null if any miss

Accuracies are shares in 0..1. In ``combined``, categories pool the languages' rows, aggregates are
the mean of the languages' aggregates (as in Table 2), and ``missing`` reads ``language/category``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ace_ray.benchmarks.acebench.categories import CATEGORIES, LANGUAGES, MULTI_TURN
from ace_ray.benchmarks.acebench.scoring.aggregates import (
    Accuracy,
    mean_over_languages,
    paper,
    workbook,
)
from ace_ray.benchmarks.results import ScoredRow
from ace_ray.benchmarks.tally import Tally, accuracies, add_costs, counts, errors, lacks, totals
from ace_ray.records import RULE_SETS, Verdict


@dataclass(slots=True)
class SummaryRow:
    """A `ScoredRow` with what it cost."""

    language: str
    category: str
    id: str
    group: str
    sample: int
    status: str
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    prompt_tokens: int = 0
    completion_tokens: int = 0
    generation_s: float = 0.0


def summarize(rows: Iterable[ScoredRow], *, max_unscored: float = 0.0) -> dict[str, Any]:
    """One pass over ``rows``, each (id, sample) once; what they took is added up.

    A category with a larger share of unscored rows than ``max_unscored`` keeps its accuracy over
    the scored ones, but enters no aggregate.
    """
    summary = Summary()
    for row in rows:
        summary.add(row)
    return summary.result(max_unscored)


class Summary:
    """Counters of a run, fed row by row."""

    def __init__(self) -> None:
        self._tallies: dict[tuple[str, str], Tally] = {}

    def add(self, row: ScoredRow) -> None:
        tally = self._tally(row.language, row.category)
        tally.add(row)
        add_costs(tally, row)

    def absent(self, language: str, category: str, entry_id: str, group: str, count: int) -> None:
        """``count`` rows of an entry were declared and never came; they count as skipped."""
        self._tally(language, category).absent(entry_id, group, count)

    def result(self, max_unscored: float = 0.0) -> dict[str, Any]:
        by_language = {
            language: {
                c: self._tallies[language, c] for c in CATEGORIES if (language, c) in self._tallies
            }
            for language in LANGUAGES
            if any(language == key[0] for key in self._tallies)
        }
        blocks, incomplete = {}, []
        for language, tallies in by_language.items():
            block, usable = _block([tallies]), {}
            for category, tally in tallies.items():
                unscored = tally.declared - tally.scored
                if unscored > max_unscored * tally.declared:
                    incomplete.append(lacks(f"{language}/{tally.category}", tally))
                else:
                    usable[category] = block["categories"][category]
            blocks[language] = block | {"rules": _rules(usable, list(tallies.values()))}
        combined = _block(list(by_language.values()))
        combined["rules"] = _combined_rules(blocks, list(self._tallies.values()))
        return {
            "languages": blocks,
            "combined": combined,
            "complete": not incomplete,
            "incomplete": incomplete,
            "max_unscored": max_unscored,
        }

    def _tally(self, language: str, category: str) -> Tally:
        tally = self._tallies.get((language, category))
        if tally is None:
            tally = Tally(category, RULE_SETS, multi_turn=category in MULTI_TURN)
            self._tallies[language, category] = tally
        return tally


def _block(languages: Sequence[Mapping[str, Tally]]) -> dict[str, Any]:
    every = [tally for tallies in languages for tally in tallies.values()]
    categories = {}
    for name in CATEGORIES:
        tallies = [found[name] for found in languages if name in found]
        if not tallies:
            continue
        block = counts(tallies)
        if tallies[0].multi_turn:
            block["dialogues"] = sum(tally.dialogues_declared() for tally in tallies)
        categories[name] = block | {rule: accuracies(tallies, rule) for rule in RULE_SETS}
    return {"counts": counts(every), "totals": totals(every), "categories": categories}


def _rules(usable: Mapping[str, Any], every: Sequence[Tally]) -> dict[str, Any]:
    rules = {}
    for rule in RULE_SETS:
        judged = {
            category: Accuracy(stats[rule]["accuracy"], stats[rule]["interval"], stats[rule]["n"])
            for category, stats in usable.items()
            if stats[rule]["accuracy"] is not None
        }
        rules[rule] = {
            "workbook": workbook(judged),
            "paper": paper(judged),
            "errors": errors(every, rule),
        }
    return rules


def _combined_rules(blocks: Mapping[str, Any], every: Sequence[Tally]) -> dict[str, Any]:
    return {
        rule: {
            table: mean_over_languages(
                {language: block["rules"][rule][table] for language, block in blocks.items()}
            )
            for table in ("workbook", "paper")
        }
        | {"errors": errors(every, rule)}
        for rule in RULE_SETS
    }
