"""Compute the summary of a run: the statistics that all benchmarks share, and BFCL's aggregates.

Keys in addition to those of `ace_ray.benchmarks.statistics` (explained in ``docs/results.md``)::

    rules              {"official": RULES, "strict": RULES}
    format_sensitivity see `Diagnostics`; null if the category was not run
    contamination      see `Diagnostics`; null if it was not measured
    endings            {category: {ending: number of episodes}} of interactive categories
    turn_matches       {category: {rule set: {"n": conversations, metric: sum}}} (`TURN_METRICS`)
    RULES              STATS of all rows, and {"v4": {column: CELL}, "v3": {column: CELL}}
    CELL               {"title", "value", "interval", "missing"}"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import stdev
from typing import Any

from ace_ray.benchmarks.aggregates import Column, Columns, aggregates, to_aggregates
from ace_ray.benchmarks.bfcl import categories as groups
from ace_ray.benchmarks.endings import count_endings, with_ending
from ace_ray.benchmarks.statistics import statistics
from ace_ray.benchmarks.tally import Tally, accuracies
from ace_ray.types import RULE_SETS, ResultRow, Verdict
from ace_ray.util.stats import Z95


def summarize(rows: Iterable[ResultRow], max_unscored: float = 0.0) -> dict[str, Any]:
    """Compute the summary in one pass over ``rows``, in which each (id, sample) occurs once.

    A category with a larger share of unscored rows than ``max_unscored`` enters no aggregate. Its
    accuracy over the scored rows is still reported."""
    diagnostics, endings = Diagnostics(), dict[str, dict[str, int]]()
    counted = diagnostics.collect(count_endings(rows, ENDINGS, endings))
    summary = statistics(counted, RULE_SETS, {"all": groups.ALL_CATEGORIES}, max_unscored)
    for rules in RULE_SETS:
        categories = to_aggregates(summary["categories"], rules, max_unscored)
        for version, columns in VERSIONS.items():
            cells = aggregates(columns, categories)
            summary["rules"][rules][version] = {
                name: {"title": columns[name].title, **cell.as_json()}
                for name, cell in cells.items()
            }
    return {
        **summary,
        "groups": {},
        "format_sensitivity": diagnostics.format_sensitivity(),
        "contamination": diagnostics.contamination(),
        "endings": endings,
        "turn_matches": diagnostics.turn_matches,
    }


_SIMPLE = ("simple_python", "simple_java", "simple_javascript")
_LIVE_AST = ("live_simple", "live_multiple", "live_parallel", "live_parallel_multiple")
V4: Columns = {
    "simple": Column("Simple", _SIMPLE),
    "non_live": Column("Non-live", ("simple", "multiple", "parallel", "parallel_multiple")),
    "live": Column("Live", _LIVE_AST, weights="n"),
    "irrelevance_mean": Column("Irrelevance", ("irrelevance", "live_irrelevance")),
    "relevance": Column("Relevance", ("live_relevance",)),
    "multi_turn": Column("Multi-turn", groups.MULTI_TURN),
    "web_search": Column("Web search", groups.WEB_SEARCH),
    "memory": Column("Memory", groups.MEMORY),
    "agentic": Column("Agentic", ("web_search", "memory")),
    "overall": Column(
        "Overall v4",
        ("non_live", "live", "irrelevance_mean", "multi_turn", "agentic"),
        (0.1, 0.1, 0.1, 0.3, 0.4),
    ),
}
# In v3 the groups included the irrelevance categories, and there were no agentic categories.
V3: Columns = {
    "simple": V4["simple"],
    "non_live": Column(
        "Non-live", ("simple", "multiple", "parallel", "parallel_multiple", "irrelevance")
    ),
    "live": Column("Live", (*_LIVE_AST, "live_irrelevance", "live_relevance"), weights="n"),
    "multi_turn": V4["multi_turn"],
    "overall": Column("Overall v3", ("non_live", "live", "multi_turn")),
}
VERSIONS = {"v4": V4, "v3": V3}


# Endings of an episode. "preparation": a conversation that filled its memory was truncated.
ENDINGS = ("finished", "steps", "context", "deadline", "preparation")
GOLD = "gold_token_probability"
# Shares of a conversation's turns: passed, with the gold state, with all gold results.
TURN_METRICS = ("turns_passed", "turns_state", "turns_response")


def add_metrics(
    verdicts: Mapping[str, Verdict],
    *,
    ending: str | None,
    gold_logprobs: Sequence[float] | None = None,
) -> dict[str, Verdict]:
    """Add the episode's ending and the gold calls' probability to the metrics of ``verdicts``.

    ``ending`` is one of `ENDINGS`, None for a single-turn entry. ``gold_logprobs``:
    log-probabilities of the tokens of the gold calls, if measured."""
    gold = gold_logprobs and {GOLD: math.exp(sum(gold_logprobs) / len(gold_logprobs))}
    return with_ending(verdicts, ending, ENDINGS, **(gold or {}))


class Diagnostics:
    """Collects turn metrics, gold probabilities and tallies per prompt form from the rows that are
    iterated with `collect`."""

    def __init__(self) -> None:
        self.turn_matches: dict[str, dict[str, dict[str, float]]] = {}
        self._logs: dict[str, list[float]] = {"single_turn": [], "live": []}
        self._forms: dict[str, Tally] = {}

    def collect(self, rows: Iterable[ResultRow]) -> Iterator[ResultRow]:
        for row in rows:
            metrics = row.verdicts["official"].metrics if row.verdicts else {}
            if (probability := metrics.get(GOLD, 0)) > 0:
                kind = "live" if row.category in groups.LIVE else "single_turn"
                self._logs[kind].append(math.log(probability))
            for rules, verdict in row.verdicts.items() if row.verdicts else ():
                if "turns_state" in verdict.metrics:
                    sums = self.turn_matches.setdefault(row.category, {}).setdefault(rules, {})
                    for name in ("n", *TURN_METRICS):
                        sums[name] = sums.get(name, 0) + verdict.metrics.get(name, 1)
            if row.category == groups.FORMAT_SENSITIVITY:
                form = str(groups.form_of(row.id))
                self._forms.setdefault(form, Tally(form, RULE_SETS)).add(row)
            yield row

    def contamination(self) -> dict[str, Any] | None:
        """Return the contamination score, its 95 % interval, and the perplexities of the gold calls
        in live and in other (``single_turn``) entries. The score is the perplexity in other entries
        divided by that in live entries. Return None if either kind lacks gold probabilities."""
        if not all(self._logs.values()):
            return None
        single, live = (_mean(logs) for logs in self._logs.values())
        gap, half = live[0] - single[0], Z95 * math.sqrt(single[1] + live[1])
        return {
            "score": math.exp(gap),
            "interval": [math.exp(gap - half), math.exp(gap + half)],
            "perplexity": {"single_turn": math.exp(-single[0]), "live": math.exp(-live[0])},
            "n": {name: len(logs) for name, logs in self._logs.items()},
        }

    def format_sensitivity(self) -> dict[str, Any] | None:
        """Return ``{rules: {"forms": {form: STATS}, "range", "stdev"}}``; None if no row has a
        form.

        The range and standard deviation of the forms' accuracies are in percentage points, or None
        if fewer than two forms have judged rows."""
        if not self._forms:
            return None
        return {rules: self._sensitivity(rules) for rules in RULE_SETS}

    def _sensitivity(self, rules: str) -> dict[str, Any]:
        forms: Mapping[str, Any] = {
            str(form): accuracies([self._forms[str(form)]], rules)
            for form in groups.FORMS
            if str(form) in self._forms
        }
        points = [100 * f["accuracy"] for f in forms.values() if f["accuracy"] is not None]
        several = len(points) > 1
        return {
            "forms": forms,
            "range": max(points) - min(points) if several else None,
            "stdev": stdev(points) if several else None,
        }


def _mean(logs: Sequence[float]) -> tuple[float, float]:
    """Return the mean of ``logs``, and the square of the mean's standard error."""
    mean = sum(logs) / len(logs)
    spread = sum((value - mean) ** 2 for value in logs)
    return mean, spread / max(len(logs) - 1, 1) / len(logs)
