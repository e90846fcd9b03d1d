"""Build the content of a report as data, for printed tables, CSV files and the page."""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from operator import itemgetter
from typing import Any, Literal

from ace_ray.benchmarks.comparability import comparable_sets, differences, mark_labels
from ace_ray.benchmarks.headline import partial_notes, titles
from ace_ray.benchmarks.results import CategoryResult, Curves, Estimate, Paper, Table, Value
from ace_ray.benchmarks.sizes import size_of, without_size
from ace_ray.errors import UserError
from ace_ray.reports.early import EarlyDecision, decisions_table
from ace_ray.reports.printed_summary import WAITS
from ace_ray.reports.runs import BenchmarkRuns, ScoredRun, facts, group_runs, merge_facts
from ace_ray.reports.sweeps import Sweep, ledger_table
from ace_ray.reports.table import number
from ace_ray.types import ResultRow

Axis = Literal["step", "parameters", "cost", "tokens"]
_AXES: dict[Axis, str] = {
    "step": "training step",
    "parameters": "model size",
    "cost": "cost of an entry",
    "tokens": "completion tokens of an entry",
}


PACE = dict(
    until_90_s="90 % of rows after (s)", last_tenth="Last tenth",
    episodes_per_engine_hour="Episodes per engine hour", calls_per_engine="Model calls per engine",
)  # fmt: skip


@dataclass(frozen=True)
class BenchmarkContent:
    """A report's content on one benchmark. The keys of mappings are rule sets.

    ``rule_sets`` begins with the requested rule set, by default the benchmark's first."""

    holders: BenchmarkRuns
    rule_sets: Sequence[str]
    comparisons: Mapping[str, Table]
    pictures: Sequence[Curves]  # scores over training steps or model sizes, cost and tokens
    papers: Mapping[str, Paper]
    categories: Sequence[tuple[str, Sequence[CategoryResult]]]  # for each run: label, results

    @property
    def rules(self) -> str:
        return self.rule_sets[0]


@dataclass(frozen=True)
class Content:
    runs: Sequence[ScoredRun]
    sweep: Sweep | None
    benchmarks: Sequence[BenchmarkContent]
    early: Sequence[EarlyDecision] = ()

    @property
    def rules(self) -> str:
        """The first rule set of each benchmark, as text."""
        return ", ".join(dict.fromkeys(benchmark.rules for benchmark in self.benchmarks)) or "none"

    @property
    def rule_sets(self) -> list[str]:
        return list(dict.fromkeys(rules for b in self.benchmarks for rules in b.rule_sets))

    @property
    def title(self) -> str:
        if self.sweep is not None:
            return f"Sweep {self.sweep.manifest.sweep_id}"
        if len(self.runs) == 1:
            return self.runs[0].label
        return f"{len(self.runs)} runs"

    @cached_property
    def tables(self) -> dict[str, list[Table]]:
        """The tables that are written as CSV, under the first rule set, by kind."""
        return {
            "comparison": [b.comparisons[b.rules] for b in self.benchmarks],
            "paper": [table for b in self.benchmarks for table in b.papers[b.rules].tables],
            "categories": list(map(category_table, self.benchmarks)),
            "errors": [error_table(b.holders) for b in self.benchmarks],
            "early": [decisions_table(self.early)] if self.early else [],
            "engine": engine_tables(self.runs),
            "ledger": [ledger_table(self.sweep)] if self.sweep else [],
        }


def engine_tables(runs: Sequence[ScoredRun]) -> list[Table]:
    """Return tables of what engines report, and of the time in which they waited. Runs and columns
    without figures are left out."""
    figures = Table(
        name="engine",
        title="Speed of engines",
        header=[
            *("Run", "Output tokens/s per engine", "Prompt tokens computed", "from the cache"),
            *("First token, s (median)", "95 %", "Further token, s (median)", "95 %"),
            *("Device s per row", "per solved row"),
        ],
        lines=[_engine(run) for run in runs],
        notes=[
            "Output tokens/s: completion tokens over the time in which an engine had requests, in "
            "the last session.",
            "First token: mean over the calls of a row, with the time in the engine's queue.",
            "Solved rows are valid under all rule sets.",
        ],
    )
    waits = [(run.label, run.totals["timing"].get("waits") or {}) for run in runs]
    waited = Table(
        name="waits",
        title="Share of the last session in which engines waited (%)",
        header=["Run", "All", *(name.capitalize() for name in WAITS.values())],
        lines=[
            [label, *(number(shares.get(cause), ".1f", 100) for cause in ("all", *WAITS))]
            for label, shares in waits
        ],
        notes=[
            "Start: until an engine's first row. No rows: rows were left, but none arrived. Tail: "
            "only other engines had rows. Behind: rows waited for checkers or the store. Tools: "
            "rows waited for tools or other models."
        ],
    )
    paced = Table(
        name="pace",
        title="Pace of the last session",
        header=["Run", *PACE.values()],
        lines=[
            [run.label, *(number(pace.get(key), ".3g") for key in PACE)]
            for run in runs
            for pace in [run.totals["timing"].get("pace") or {}]
        ],
        notes=["Last tenth: share of the time between 90 % and all of the rows."],
    )
    tables = [_prune_table(t, range(1, len(t.header))) for t in (figures, paced, waited)]
    return [table for table in tables if table.lines]


def _engine(run: ScoredRun) -> list[Value]:
    """Return the line of a run in the table of engines."""
    engine = run.totals.get("engine") or {}
    tokens = engine.get("prompt_tokens") or {}
    times = [engine.get(key) or {} for key in ("first_token_s", "token_s")]
    seconds = [quantiles.get(share) for quantiles in times for share in ("p50", "p95")]
    counts = (run.totals["scored"], run.totals["solved"])
    seconds += [run.device_s / rows if rows and run.device_s else None for rows in counts]
    speed = number(run.totals["timing"].get("output_tokens_per_s"), ".1f")
    prompts = (tokens.get("computed"), tokens.get("cached"))
    return [run.label, speed, *prompts, *(number(value, ".3g") for value in seconds)]


def _prune_table(table: Table, figures: Collection[int]) -> Table:
    """Return ``table`` without lines that are empty in the columns ``figures``, and without empty
    columns."""
    columns = [i for i in range(len(table.header)) if any(r[i] is not None for r in table.lines)]
    lines = [line for line in table.lines if any(line[i] is not None for i in figures)]
    lines = [[line[i] for i in columns] for line in lines]
    return replace(table, header=[table.header[i] for i in columns], lines=lines)


def content_of(runs: Sequence[ScoredRun], sweep: Sweep | None, rules: str | None) -> Content:
    """Build the content of a report. ``rules``: the rule set that the report shows first.

    Raises `UserError` when no benchmark has this rule set."""
    benchmarks = group_runs(runs)
    every = dict.fromkeys(r for holders in benchmarks for r in holders.reporting.rule_sets)
    if benchmarks and rules is not None and rules not in every:
        problem = f"no run has the rule set {rules!r}"
        raise UserError(problem, where="--rules", fix=f"one of {', '.join(every)}")
    contents = [_benchmark_content(holders, rules) for holders in benchmarks]
    with_paper = [c for c in contents if any(p.tables or p.figures for p in c.papers.values())]
    if len(with_paper) > 1:
        contents = [replace(content, papers=_prefix_names(content)) for content in contents]
    return Content(runs, sweep, contents)


def _benchmark_content(holders: BenchmarkRuns, rules: str | None) -> BenchmarkContent:
    ordered = sorted(holders.reporting.rule_sets, key=lambda r: r != rules)
    return BenchmarkContent(
        holders,
        ordered,
        {r: comparison_table(holders, r) for r in ordered},
        [p for p in (_picture(holders, ordered[0]), *_by_usage(holders, ordered[0])) if p],
        {r: _prune_paper(holders.reporting.paper(holders.reported, r)) for r in ordered},
        [(run.label, holders.reporting.categories(run)) for run in holders.reported],
    )


def _prune_paper(paper: Paper | None) -> Paper:
    """Return ``paper`` without the lines, columns and tables that are empty for all runs. A note
    gives the reason for each table without lines."""
    if paper is None:
        return Paper([], [], [])
    incomplete = "no run has all categories of a column, with few enough rows without a verdict"
    tables, notes = [], list(paper.notes)
    for table in paper.tables:
        pairs = (pair for line in table.lines for pair in enumerate(line))
        columns = {at for at, value in pairs if isinstance(value, Estimate | int)}
        if (present := _prune_table(table, columns)).lines:
            tables.append(present)
            continue
        missing = [note for note in table.notes if note.startswith("missing")]
        reasons = "; ".join(missing or [incomplete, *table.notes])
        notes.append(f"not shown: {table.title}: {reasons}")
    return Paper(tables, paper.figures, notes)


def _prefix_names(content: BenchmarkContent) -> dict[str, Paper]:
    """Prefix table names with the benchmark: two benchmarks may both have a ``table2``."""
    prefix = content.holders.benchmark
    return {
        rules: replace(
            paper,
            tables=[replace(t, name=f"{prefix}-{t.name}") for t in paper.tables],
            figures=[replace(f, name=f"{prefix}-{f.name}") for f in paper.figures],
        )
        for rules, paper in content.papers.items()
    }


def comparison_table(holders: BenchmarkRuns, rules: str, *, with_facts: bool = True) -> Table:
    """Return a table with a line per run: the benchmark's headline and its other scores."""
    labels, legend = mark_labels(holders.reported)
    headline = headline_of(holders, rules)
    notes = [*legend, *headline.notes]
    if with_facts:
        notes += [*differences(holders.reported), *facts(holders.runs, holders.benchmark)]
    lines: list[list[Value]] = []
    priced: dict[str, str] = {}
    if with_facts and any(run.totals["cost"] for run in holders.runs):
        priced = {"per_entry": "Cost per entry", "per_solved_entry": "Cost per solved entry"}
        notes.append("Cost: device hours of the whole run times price_per_hour, over its entries.")
    for run, label, numbers in zip(holders.runs, labels, headline.numbers, strict=True):
        rows, cost = run.rows_of(holders.benchmark), run.totals["cost"] or {}
        scored, declared = sum(row.status == "scored" for row in rows), len(rows)
        # A missing row can be assigned to a benchmark only if the run has one benchmark.
        if len(run.benchmarks) == 1:
            declared = run.totals["declared"] - len(run.rows_of(holders.benchmark, repeats=True))
        prices = (number(cost.get(key), ".3g") for key in priced)
        lines.append([label, f"{scored}/{declared}", *numbers, *prices])
    header = ["Model", "Scored rows", *headline.titles, *priced.values()]
    title = f"{holders.benchmark}, {rules} rules (%)"
    return Table(f"comparison-{holders.benchmark}", title, header, lines, notes)


def _picture(holders: BenchmarkRuns, rules: str) -> Curves | None:
    """Return curves of scores over training steps; over model sizes if the runs have fewer than two
    different steps. Return None if they also have fewer than two different sizes. The runs of a
    curve have comparable conditions, and are all complete or all incomplete."""
    positions = [None if run.step is None else float(run.step) for run in holders.runs]
    axis: Axis = "step"
    if len(set(positions) - {None}) < 2:
        sizes, axis = map(size_of, holders.reported), "parameters"
        positions = [size.billions if size else None for size in sizes]
    if len(set(positions) - {None}) < 2:
        return None
    headline = headline_of(holders, rules)
    panels: dict[str, dict[str, list[tuple[float, Estimate]]]] = {}
    for position, numbers, name in zip(positions, headline.numbers, _series(holders), strict=True):
        for title, share in zip(headline.titles, numbers, strict=True):
            if share is not None and position is not None:
                curve = panels.setdefault(title, {}).setdefault(name, [])
                insort(curve, (position, share), key=itemgetter(0))
    return _curves("scores", holders, rules, panels, axis) if panels else None


def _curves(
    kind: str, holders: BenchmarkRuns, rules: str, panels: Mapping[str, Any], axis: Axis
) -> Curves:
    title = f"{holders.benchmark}, {rules} rules, by {_AXES[axis]}"
    return Curves(f"{kind}-{holders.benchmark}", title, panels, axis=axis)


def _by_usage(holders: BenchmarkRuns, rules: str) -> Iterator[Curves]:
    """Yield figures of the headline over the cost and the completion tokens of an entry, if they
    are known for two runs."""
    headline = headline_of(holders, rules)
    labels, _ = mark_labels(holders.reported)
    costs = [(run.totals["cost"] or {}).get("per_entry") for run in holders.runs]
    tokens = [_mean_tokens(run.rows_of(holders.benchmark)) for run in holders.runs]
    by_axis: dict[Axis, list[float | None]] = {"cost": costs, "tokens": tokens}
    for axis, values in by_axis.items():
        points = {
            label: [(x, share)]
            for label, (share, *_), x in zip(labels, headline.numbers, values, strict=True)
            if x and share is not None
        }
        if len(points) > 1:
            yield _curves(axis, holders, rules, {headline.titles[0]: points}, axis)


def _mean_tokens(rows: Iterable[ResultRow]) -> float | None:
    counts = [row.completion_tokens for row in rows if row.completion_tokens is not None]
    return sum(counts) / len(counts) if counts else None


def _series(holders: BenchmarkRuns) -> list[str]:
    sets = comparable_sets(holders.reported)
    several = len(set(sets)) > 1
    return [
        f"{run.training or without_size(reported.model)}{'*' if reported.incomplete else ''}"
        f"{f' [{number}]' if several else ''}"
        for run, reported, number in zip(holders.runs, holders.reported, sets, strict=True)
    ]


@dataclass(frozen=True)
class Headline:
    """The scores of several runs. ``titles`` names the scores, the headline score first.

    ``numbers`` has for each run the estimates in the order of ``titles``. Scores that no run has
    under any rule set are left out. ``notes``: categories that partial scores lack."""

    titles: Sequence[str]
    numbers: Sequence[Sequence[Estimate | None]]
    notes: Sequence[str]


def headline_of(holders: BenchmarkRuns, rules: str) -> Headline:
    by_run, first_rules = holders.scores, holders.reporting.rule_sets[0]
    first = by_run[0][first_rules]
    scores = chain.from_iterable(chain.from_iterable(by_rules.values()) for by_rules in by_run)
    present = {score.key for score in scores if score.estimate is not None} or {first[0].key}
    named = zip(first, titles(first), strict=True)
    lacking = [
        (run.label, note)
        for run, by_rules in zip(holders.reported, by_run, strict=True)
        for note in partial_notes(by_rules[first_rules])
    ]
    return Headline(
        [title for score, title in named if score.key in present],
        [[s.estimate for s in by_rules[rules] if s.key in present] for by_rules in by_run],
        list(merge_facts(lacking, len(holders.reported))),
    )


def category_table(content: BenchmarkContent) -> Table:
    """Return a table with a line per run, category and measure.

    ``n`` counts judged entries; in multi-turn categories it counts dialogues."""
    rule_sets = content.holders.reporting.rule_sets
    lines: list[list[Value]] = [
        [
            *(label, r.language, r.category, r.measure, f"{r.scored}/{r.declared}"),
            max((share.n for share in r.shares.values() if share), default=None),
            *(r.shares[rules] for rules in rule_sets),
        ]
        for label, results in content.categories
        for r in results
    ]
    name, header = content.holders.benchmark, ["Model", "Language", "Category", "Measure"]
    header += ["Scored rows", "n", *rule_sets]
    return Table(f"categories-{name}", f"{name} by category (%)", header, lines)


def error_table(holders: BenchmarkRuns) -> Table:
    """Count error types: a line per run, rule set and type, most frequent first."""
    header = ["Model", "Rules", "Error type", "Rows", "Of invalid rows (%)", "Categories"]
    lines = [
        [run.label, rules, *cells]
        for run in holders.runs
        for rules in holders.reporting.rule_sets
        for cells in _errors(run.rows_of(holders.benchmark), rules)
    ]
    name = holders.benchmark
    return Table(f"errors-{name}", f"{name}: error types of the invalid rows", header, lines)


def _errors(rows: Iterable[ResultRow], rules: str) -> Iterator[list[Value]]:
    by_type: dict[str, Counter[str]] = {}
    for row in rows:
        verdict = row.verdicts.get(rules)
        if verdict is not None and not verdict.valid:
            by_type.setdefault(verdict.error_type, Counter())[row.category] += 1
    invalid = sum(counts.total() for counts in by_type.values())
    for name, counts in sorted(by_type.items(), key=lambda pair: (-pair[1].total(), pair[0])):
        categories = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
        category_counts = ", ".join(f"{category} {count}" for category, count in categories)
        yield [name, counts.total(), f"{100 * counts.total() / invalid:.1f}", category_counts]
