"""Build the scores and tables of a run: each domain, their mean, and the leaderboard's columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from ace_ray.benchmarks import statistics
from ace_ray.benchmarks.aggregates import Column, aggregates, to_aggregates
from ace_ray.benchmarks.results import Score
from ace_ray.benchmarks.tau2.options import CATEGORIES, INSPECT, LEADERBOARD, OTHER_BANKING
from ace_ray.benchmarks.tau2.verdicts import INACTION
from ace_ray.types import RULE_SETS, ResultRow

MEAN = "Domains"
_MOST_TRIALS = 4


def scores(summary: Mapping[str, Any], rules: str) -> list[Score]:
    """Return the scores under the rule set ``rules``: the unweighted mean of the leaderboard's
    domains, then a score for each domain, then a score for all rows together.

    If no domain of the leaderboard was run, the mean covers the domains that were run."""
    present = summary["categories"]
    estimates = {name: statistics.estimate(stats[rules]) for name, stats in present.items()}
    ranked = [name for name in LEADERBOARD if name in present] or list(present)
    missing = [name for name in LEADERBOARD if name not in present]
    mean = aggregates({MEAN: Column(MEAN, ranked)}, to_aggregates(present, rules, 1.0))[MEAN]
    estimate = statistics.estimate({**mean.as_json(), "n": mean.n}, statistics.VALUE)
    if estimate is not None:
        estimate = replace(estimate, partial=bool(missing))
    every = statistics.estimate(summary["rules"][rules])
    titles = {name: name.replace("_", " ").capitalize() for name in CATEGORIES}
    return [
        Score(MEAN, "mean", estimate, missing, len(LEADERBOARD)),
        *(Score(title, "share", estimates.get(name)) for name, title in titles.items()),
        Score(statistics.ALL_ROWS, statistics.POOLED, every),
    ]


def collect_inaction(
    rows: Iterable[ResultRow], passes: dict[str, dict[str, float]]
) -> Iterator[ResultRow]:
    """Yield ``rows``. Store in ``passes``, by category and task, 1 if doing nothing passes."""
    for row in rows:
        metrics = row.verdicts["official"].metrics if row.status == "scored" else {}
        if INACTION in metrics:
            passes.setdefault(row.category, {})[row.id] = metrics[INACTION]
        yield row


def tables(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table of accuracies, a table with the leaderboard's columns and, if entries have
    several samples, a table of pass@k. ``floor`` is the line on agents that do nothing."""
    main = {"title": "tau2", **statistics.table(summary, RULE_SETS)}
    extra_tables = [
        leaderboard(summary),
        *statistics.sample_tables(summary["categories"], RULE_SETS),
    ]
    if OTHER_BANKING in summary["categories"]:
        for table in (main, *extra_tables):
            table["title"] += f" [{INSPECT}]"
    shares = [
        f"{name} {passed} of {tasks} tasks ({_percent(passed / tasks)} %)"
        for name, (passed, tasks) in summary.get("inaction", {}).items()
    ]
    floor = f"an agent that does nothing passes: {', '.join(shares)}" if shares else ""
    return {"table": main, "further_tables": extra_tables, "floor": floor}


def leaderboard(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Build a table of pass^1 to pass^4 by domain, in per cent; "-" if trials are too few."""
    lines = []
    for name, stats in summary["categories"].items():
        if name in CATEGORIES:
            official_stats = stats["official"]
            passed = official_stats.get("samples", {}).get("pass_hat_k", {})
            if not passed and official_stats["accuracy"] is not None:
                passed = {"1": official_stats["accuracy"]}
            cells = (passed.get(str(k)) for k in range(1, _MOST_TRIALS + 1))
            lines.append([name, str(official_stats["n"]), *map(_percent, cells)])
    ks = [f"pass^{k}" for k in range(1, _MOST_TRIALS + 1)]
    title = "the leaderboard's columns, official, % (it asks for 4 trials of the base split)"
    return {"title": title, "header": ["domain", "tasks", *ks], "lines": lines}


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"
