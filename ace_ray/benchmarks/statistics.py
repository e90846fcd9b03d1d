"""Default statistics of a benchmark: accuracies by category, group and language.

Keys (explained in ``docs/results.md``)::

    counts           {"declared", "scored", "unscored", "status": {status: rows}}
    totals           {"prompt_tokens", "completion_tokens", "generation_s"}
    rules            {rule set: STATS} over all rows
    categories       {category: counts + {rule set: STATS}}, over all its languages
    groups           {group: {rule set: STATS}}, only groups with rows in each of their categories
    languages        {language: counts + {"rules": {rule set: STATS}, "categories": as above}}
    complete         whether no category has more unscored rows than allowed
    incomplete       one line for each category with more unscored rows: their number and reasons
    max_unscored     maximum share of unscored rows of a category

    STATS            {"accuracy", "interval", "n", "errors", with several samples "samples"}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ace_ray.benchmarks.results import BenchmarkResult, CategoryResult, Estimate, Score
from ace_ray.benchmarks.tally import Tally, accuracies, counts, totals
from ace_ray.types import STATUSES, ResultRow
from ace_ray.util.grouping import grouped
from ace_ray.util.stats import share

Groups = Mapping[str, Sequence[str]]
# Name of the score over all rows. Groups have scores, too.
ALL_ROWS = "Accuracy"
# Name of the formula that weights all judged entries equally.
POOLED = "pooled"
# Keys of a share and of its interval, in STATS and in cells of columns.
ACCURACY = ("accuracy", "interval")
PROCESS = ("process_accuracy", "process_interval")
VALUE = ("value", "interval")
_PASSES = ("pass_at_k", "pass_hat_k")


def statistics(
    rows: Iterable[ResultRow], rule_sets: Sequence[str], groups: Groups, max_unscored: float
) -> dict[str, Any]:
    """Compute the statistics in one pass over ``rows``; each must have ``repeat`` 0.

    ``groups``: categories by the name of the group."""
    tallies = tally_rows(rows, rule_sets, groups)
    every = list(tallies.values())
    categories = grouped((tally.category, tally) for tally in every)
    return {
        "counts": counts(every),
        "totals": totals(every),
        "rules": _accuracies(every, rule_sets),
        "categories": {name: describe(t, rule_sets) for name, t in categories.items()},
        "groups": {
            name: _accuracies([t for t in every if t.category in members], rule_sets)
            for name, members in groups.items()
            if categories.keys() >= set(members)
        },
        "languages": {
            language: counts(spoken)
            | {
                "rules": _accuracies(spoken, rule_sets),
                "categories": {t.category: describe([t], rule_sets) for t in spoken},
            }
            for language, spoken in by_language(tallies).items()
        },
        **completeness(tallies, max_unscored),
    }


Tallies = Mapping[tuple[str, str], Tally]


def tally_rows(
    rows: Iterable[ResultRow],
    rule_sets: Sequence[str],
    groups: Groups,
    multi_turn: Sequence[str] = (),
) -> Tallies:
    """Count ``rows`` by (language, category), sorted by language and then in the order of
    ``groups``. Categories outside groups come last, sorted by name.

    ``multi_turn``: categories whose rows are turns of dialogues."""
    tallies: dict[tuple[str, str], Tally] = {}
    for row in rows:
        key = (row.language, row.category)
        if key not in tallies:
            is_turn = row.category in multi_turn
            tallies[key] = Tally(row.category, rule_sets, multi_turn=is_turn)
        tallies[key].add(row)
    group_categories = [category for members in groups.values() for category in members]
    order = [*dict.fromkeys([*group_categories, *sorted({category for _, category in tallies})])]
    return {key: tallies[key] for key in sorted(tallies, key=lambda k: (k[0], order.index(k[1])))}


def by_language(tallies: Tallies) -> dict[str, list[Tally]]:
    return grouped((language, tally) for (language, _), tally in tallies.items())


def completeness(tallies: Tallies, max_unscored: float) -> dict[str, Any]:
    """Return the keys ``complete``, ``incomplete`` and ``max_unscored`` of a summary."""
    short = []
    for key, tally in tallies.items():
        unscored = {s: tally.status[s] for s in STATUSES if s != "scored" and tally.status[s]}
        rows = tally.declared - tally.scored
        if rows > max_unscored * tally.declared:
            reasons = ", ".join(f"{count} {status}" for status, count in unscored.items())
            name = "/".join(filter(None, key))
            short.append(f"{name}: {rows} of {tally.declared} rows not scored ({reasons})")
    return {"complete": not short, "incomplete": short, "max_unscored": max_unscored}


def describe(tallies: Sequence[Tally], rule_sets: Sequence[str]) -> dict[str, Any]:
    """Return the counts and the statistics of one category, over the languages of ``tallies``."""
    numbers = counts(tallies)
    if any(tally.multi_turn for tally in tallies):
        numbers["dialogues"] = sum(tally.dialogues_declared() for tally in tallies)
    return numbers | _accuracies(tallies, rule_sets)


def table(summary: Mapping[str, Any], rule_sets: Sequence[str]) -> dict[str, Any]:
    """Return the table to print: a line per category, group and language, and one for all rows."""
    blocks = [*summary["categories"].items(), *summary["groups"].items()]
    if len(summary["languages"]) > 1:
        blocks += [(f"language {n}", stats["rules"]) for n, stats in summary["languages"].items()]
    if len(blocks) != 1:
        blocks.append(("all", summary["rules"]))
    lines = [
        [name, str(stats[rule_sets[0]]["n"]), *percents(stats[rules] for rules in rule_sets)]
        for name, stats in blocks
    ]
    return {"header": ["category", "n", *rule_sets], "lines": lines}


def sample_tables(
    categories: Mapping[str, Mapping[str, Any]], rule_sets: Sequence[str]
) -> list[dict[str, Any]]:
    """Return a list with the table of pass@k and pass^k; an empty list if there are no values.

    ``categories`` is ``{category: {rule set: STATS}}``. The table has a line for each k of 1, 2, 4
    and the smallest number of samples of an entry, since columns for all k are too wide for a
    terminal. The summary has further values of k."""
    lines = []
    for name, stats in categories.items():
        for rules in rule_sets:
            samples = stats[rules].get("samples")
            lines += [
                [name, rules, str(stats[rules]["n"]), k]
                + [percent(samples[p][k], samples[f"{p}_intervals"][k]) for p in _PASSES]
                for k in (samples["pass_at_k"] if samples else ())
                if int(k) in (1, 2, 4, samples["min"])
            ]
    if not lines:
        return []
    title = "pass@k and pass^k (k samples: at least one right, all right)"
    header = ["category", "rules", "n", "k", "pass@k", "pass^k"]
    return [{"title": title, "header": header, "lines": lines}]


def scores(summary: Mapping[str, Any], rules: str, groups: Groups) -> list[Score]:
    """Return the score over all rows, then the score of each group."""
    union = list(dict.fromkeys(category for members in groups.values() for category in members))
    blocks = {ALL_ROWS: summary["rules"], **summary["groups"]}
    scores = []
    for name, members in ((ALL_ROWS, union), *groups.items()):
        missing = [category for category in members if category not in summary["categories"]]
        mean = estimate(blocks.get(name, {}).get(rules))
        mean = mean and replace(mean, partial=bool(missing))
        scores.append(Score(name, POOLED, mean, missing, len(members)))
    return scores


def pooled_score(categories: Iterable[Mapping[str, Any]]) -> Score:
    """Return the mean ``accuracy`` of the STATS in ``categories``, weighted by ``n``."""
    judged = [stats for stats in categories if stats["n"]]
    n = sum(stats["n"] for stats in judged)
    value, interval = share(sum(stats["accuracy"] * stats["n"] for stats in judged), n, n)
    return Score(ALL_ROWS, POOLED, estimate({"accuracy": value, "interval": interval, "n": n}))


def categories(
    run: BenchmarkResult, rule_sets: Sequence[str], with_process: Sequence[str] = ()
) -> list[CategoryResult]:
    """Return the accuracy of every category, by language. Return the process accuracies of the
    categories ``with_process``, too."""
    return [
        CategoryResult(
            language,
            name,
            keys[0].replace("_", " "),
            stats["declared"],
            stats["scored"],
            {rules: estimate(stats[rules] if judged else None, keys) for rules in rule_sets},
        )
        for language, block in run.summary["languages"].items()
        for name, stats in block["categories"].items()
        for judged in [is_judged(stats, run.summary["max_unscored"])]
        for keys in (ACCURACY, *([PROCESS] if name in with_process else []))
    ]


def is_judged(stats: Mapping[str, Any], max_unscored: float) -> bool:
    """Return whether the share of unscored rows of a category is at most ``max_unscored``."""
    return bool(stats["unscored"] <= max_unscored * stats["declared"])


def estimate(stats: Mapping[str, Any] | None, keys: Sequence[str] = ACCURACY) -> Estimate | None:
    """Return the share ``stats[keys[0]]`` and its interval; None if the share is missing."""
    if stats is None or stats.get(keys[0]) is None:
        return None
    low, high = stats[keys[1]]
    return Estimate(stats[keys[0]], (low, high), stats["n"])


def percent(value: float | None, interval: Sequence[float] | None = None) -> str:
    """Format a share, and its interval if it is given: ``84.0 % [71.5, 91.7]``."""
    if value is None:
        return "N/A"
    limits = f" [{100 * interval[0]:.1f}, {100 * interval[1]:.1f}]" if interval else ""
    return f"{100 * value:.1f} %{limits}"


def percents(by_rules: Iterable[Mapping[str, Any]], keys: Sequence[str] = ACCURACY) -> list[str]:
    """Format a share and its interval under each rule set."""
    return [percent(stats[keys[0]], stats[keys[1]]) for stats in by_rules]


def _accuracies(tallies: Sequence[Tally], rule_sets: Sequence[str]) -> dict[str, Any]:
    return {rules: accuracies(tallies, rules) for rules in rule_sets}
