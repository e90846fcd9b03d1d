"""``ace-ray gate``: decide by a policy whether a run is good enough, as an exit code for CI.

A limit is met (GO) or missed (NO-GO) only if the complete confidence interval is on one side of it.
Otherwise the answer is INCONCLUSIVE, with an estimate of the rows that are needed to decide.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import ceil
from typing import Any, Literal
from xml.sax.saxutils import quoteattr

import numpy as np
from pydantic import Field

from ace_ray.benchmarks.comparability import difference_lines
from ace_ray.config.schema import Section, validate_tree, yaml_file
from ace_ray.errors import INCOMPLETE, UserError
from ace_ray.reports.compared_runs import condition_differences, join_values
from ace_ray.reports.comparison import paired_data
from ace_ray.reports.comparison_tables import points, signed_points
from ace_ray.reports.hypotheses import difference_of
from ace_ray.reports.paired import ALL, Group, PairedData, Stratum, pairs_of, unit_of
from ace_ray.reports.runs import ScoredRun, load_runs
from ace_ray.reports.significance import clustered_interval, share_interval
from ace_ray.storage.object_store import Store, open_store
from ace_ray.types import canonical_json
from ace_ray.util.sanitizing import sanitize_line
from ace_ray.util.stats import Interval
from ace_ray.util.suggestions import did_you_mean

Answer = Literal["GO", "NO-GO", "INCONCLUSIVE"]
EXIT_CODES: dict[Answer, int] = {"GO": 0, "NO-GO": 3, "INCONCLUSIVE": 4}
CONDITIONS = "conditions"
READING = "reading"


class Metric(Section):
    """A limit on a group of categories."""

    benchmark: str | None = Field(None, description="needed if the runs share several")
    group: str = Field(ALL, description="group of categories, or a category")
    language: str = Field("", description="one language; default: all")
    rules: str | None = Field(None, description="rule set; default: the benchmark's first")
    metric: Literal["accuracy", "process"] = "accuracy"
    at_least: float | None = Field(None, ge=0, le=1)
    drop_at_most: float | None = Field(None, ge=0, le=1, description="against the baseline")
    confidence: float = Field(0.95, gt=0.5, lt=1)


class Policy(Section):
    """A policy file (docs/engine-conformance.md)."""

    metrics: list[Metric] = Field(default=[], max_length=100)
    unscored_at_most: float | None = Field(None, ge=0, le=1)
    equal: list[str] = Field(
        default=[],
        description="keys of run.json, such as identity.sampling, or conditions or reading",
    )


@dataclass(frozen=True)
class Check:
    """The result of one limit or condition of a policy."""

    name: str
    answer: Answer
    reason: str


@dataclass(frozen=True)
class Decision:
    """The result of a policy. ``incomplete``: what an incomplete run lacks, or ""."""

    answer: Answer
    checks: Sequence[Check]
    incomplete: str = ""

    @property
    def exit_code(self) -> int:
        return INCOMPLETE if self.incomplete else EXIT_CODES[self.answer]

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "exit_code": self.exit_code}

    def as_junit(self) -> str:
        """Return JUnit XML with a test case per check; INCONCLUSIVE is an error."""
        kinds = {"NO-GO": "failure", "INCONCLUSIVE": "error"}
        cases = []
        for check in self.checks:
            kind = kinds.get(check.answer)
            # Other people's runs may contain control characters, which XML does not allow.
            name, reason = (quoteattr(sanitize_line(text)) for text in (check.name, check.reason))
            inner = f"<{kind} message={reason}/>" if kind else ""
            cases.append(f'  <testcase classname="gate" name={name}>{inner}</testcase>')
        answers = [check.answer for check in self.checks]
        head = (
            f'<testsuite name="ace-ray gate" tests="{len(answers)}" '
            f'failures="{answers.count("NO-GO")}" errors="{answers.count("INCONCLUSIVE")}">'
        )
        return "\n".join(
            ['<?xml version="1.0" encoding="UTF-8"?>', head, *cases, "</testsuite>", ""]
        )


def gate(
    policy: str, uri: str, against: str | None = None, opens: Callable[[str], Store] = open_store
) -> Decision:
    """Apply the policy in the file ``policy`` to the run at ``uri``, with the baseline ``against``.

    Raises `UserError`: a wrong policy, an unknown metric or setting, or runs without shared rows.
    """
    tree = yaml_file(policy)
    if tree is not None and not isinstance(tree, dict):
        raise UserError("is not a mapping", where=policy, fix="write keys such as metrics:")
    parsed_policy = validate_tree(Policy, tree or {}, where=policy)
    runs = load_runs([uri] if against is None else [against, uri], opens)
    if incomplete := [f"{run.label}: {run.missing_parts}" for run in runs if not run.is_finished]:
        lacking = Check("complete runs", "INCONCLUSIVE", incomplete[0])
        return Decision("INCONCLUSIVE", [lacking], incomplete[0])
    checks = [
        *_check_scored(parsed_policy, runs[-1]),
        *_check_equal(parsed_policy, runs, policy),
        *(check for metric in parsed_policy.metrics for check in _limits(metric, runs, policy)),
    ]
    if not checks:
        raise UserError("sets no limit", where=policy, fix="add metrics, unscored_at_most or equal")
    answers = {check.answer for check in checks}
    worst = next(a for a in ("NO-GO", "INCONCLUSIVE", "GO") if a in answers)
    return Decision(worst, checks)


def _check_scored(policy: Policy, run: ScoredRun) -> Iterator[Check]:
    if policy.unscored_at_most is not None:
        declared = run.manifest.declared
        share = (declared - run.totals["scored"]) / max(1, declared)
        reason = f"{points(share)} % of {declared} rows are not scored"
        answer: Answer = "GO" if share <= policy.unscored_at_most else "NO-GO"
        yield Check(f"unscored at most {points(policy.unscored_at_most)} %", answer, reason)


def _check_equal(policy: Policy, runs: Sequence[ScoredRun], file: str) -> Iterator[Check]:
    if policy.equal and len(runs) < 2:
        raise UserError("'equal' compares two runs", where=file, fix="name one with --against")
    for path in policy.equal:
        if path == CONDITIONS:
            differences = [
                d for name in runs[1].benchmarks for d in condition_differences(runs, name)
            ]
        elif path == READING:
            differences = _reading_differences(runs)
        else:
            values = [_setting(run.manifest.tree, path, file) for run in runs]
            before, after = (json.dumps(value)[:120] for value in values)
            differences = [] if values[0] == values[1] else [f"{path}: {before} -> {after}"]
        reason = "; ".join(differences) or "equal"
        yield Check(f"equal: {path}", "NO-GO" if differences else "GO", reason)


def _reading_differences(runs: Sequence[ScoredRun]) -> list[str]:
    """Return a line for each difference in the parsers and settings of the runs' sessions."""
    readings = [{canonical_json(s.reading) for s in run.manifest.sessions} for run in runs]
    if readings[0] == readings[1]:
        return []
    joined = {run.label: join_values(s.reading for s in run.manifest.sessions) for run in runs}
    return list(difference_lines("differs", runs, lambda run: joined[run.label])) or [
        "the sessions combine the same settings differently"
    ]


def _setting(tree: Mapping[str, Any], path: str, file: str) -> Any:
    node: Any = tree
    for name in path.split("."):
        if not isinstance(node, Mapping) or name not in node:
            names = sorted(node) if isinstance(node, Mapping) else []
            raise UserError(
                f"run.json has no {path!r}", where=f"{file}: equal", fix=did_you_mean(name, names)
            )
        node = node[name]
    return node


def _limits(metric: Metric, runs: Sequence[ScoredRun], file: str) -> Iterator[Check]:
    if metric.at_least is None and metric.drop_at_most is None:
        problem = "a metric needs at_least or drop_at_most"
        raise UserError(problem, where=f"{file}: metrics", fix="add one")
    if metric.drop_at_most is not None and len(runs) < 2:
        problem = "'drop_at_most' compares two runs"
        raise UserError(problem, where=file, fix="name one with --against")
    data, group, rules = _select_data(metric, runs, file)
    parts = (data.benchmark, group.name, group.language, rules, metric.metric)
    name = " ".join(filter(None, parts))
    within, last = data.cells.mask_of(group.strata), len(runs) - 1
    unjudged = _has_no_verdict(runs, data.benchmark, group, rules)
    for is_drop, limit in ((False, metric.at_least), (True, metric.drop_at_most)):
        if limit is None:
            continue
        title = f"{name} at least {points(limit)} %"
        if is_drop:
            title = f"{name} drops at most {points(limit)} points"
        if unjudged:
            yield Check(title, "NO-GO", "no row of the run has a verdict")
            continue
        pairs = pairs_of(data.cells, metric.metric, rules, 0 if is_drop else last, last)
        units = within & (pairs.samples > 0)
        if not units.any() and is_drop:
            raise UserError("the runs share no judged rows", where=name, fix="compare other runs")
        if not units.any():
            raise UserError("the run has no row with this metric", where=name, fix="name another")
        if not is_drop:
            pairs = replace(pairs, base_means=np.zeros_like(pairs.base_means))
        difference = difference_of(data.cells, pairs, within)
        n, alpha = difference.n, 2 * (1 - metric.confidence)
        interval = clustered_interval(difference.moves, difference.sizes, alpha)
        binary = np.isin(pairs.other_means[units], (0.0, 1.0)).all() and len(difference.sizes) == n
        if binary and not is_drop:
            interval = share_interval(difference.gained, n, alpha)
        unit, form = (" points", signed_points) if is_drop else ("", points)
        bound = -limit if is_drop else limit
        check = limit_check(title, difference.value, interval, bound, n, unit, form)
        if left_out := int((within & ~units).sum()):
            lacking = "verdict" if metric.metric == "accuracy" else "process accuracy"
            lacking += " in both runs" if is_drop else ""
            reason = f"{check.reason}; {left_out} of {int(within.sum())} have no {lacking}"
            check = replace(check, reason=reason)
        yield check


def _has_no_verdict(runs: Sequence[ScoredRun], benchmark: str, group: Group, rules: str) -> bool:
    """Return whether the last run has rows of the group's shared entries, but no verdict there."""
    shared = {unit_of(row) for row in runs[0].rows_of(benchmark)}
    rows = [
        row
        for row in runs[-1].rows_of(benchmark)
        if unit_of(row) in shared and row.category_key in group.strata
    ]
    return bool(rows) and not any(
        row.status == "scored" and row.verdicts.get(rules) is not None for row in rows
    )


def _select_data(
    metric: Metric, runs: Sequence[ScoredRun], file: str
) -> tuple[PairedData, Group, str]:
    """Return the data, group and rule set that ``metric`` names. Raises `UserError`."""
    shared = [name for name in runs[-1].benchmarks if all(name in run.benchmarks for run in runs)]
    benchmark = metric.benchmark or (shared[0] if len(shared) == 1 else "")
    if benchmark not in shared:
        problem = f"no shared benchmark {benchmark!r}" if benchmark else "several benchmarks"
        problem = problem if shared or benchmark else "no shared benchmark"
        fix = f"benchmark: {' or '.join(shared)}" if shared else "compare runs of one benchmark"
        raise UserError(f"the runs have {problem}", where=f"{file}: metrics", fix=fix)
    data = paired_data(benchmark, runs)
    rules = metric.rules or data.rule_sets[0]
    if rules not in data.rule_sets:
        raise UserError(
            f"{benchmark} has no rule set {rules!r}",
            where=f"{file}: metrics",
            fix=did_you_mean(rules, data.rule_sets),
        )
    # Groups over all languages come first. If there is one language, groups have its name.
    groups = [g for g in data.groups if metric.language in ("", g.language)]
    matches = [group for group in groups if group.name == metric.group]
    if metric.group == ALL:  # a group with the same entries may be listed in its place
        every = frozenset[Stratum]().union(*(group.strata for group in groups))
        matches = [group for group in groups if group.strata == every]
    if not matches:
        key, value = ("group", metric.group) if groups else ("language", metric.language)
        choices = [g.name for g in groups] or sorted({g.language for g in data.groups} - {""})
        raise UserError(
            f"{benchmark} has no {key} {value!r} in these runs",
            where=f"{file}: metrics",
            fix=did_you_mean(value, choices),
        )
    return data, matches[0], rules


def limit_check(
    name: str,
    value: float,
    interval: Interval | None,
    limit: float,
    n: int,
    unit: str,
    form: Callable[[float], str],
) -> Check:
    """Check whether ``value`` is at least ``limit``, by its ``interval`` from ``n`` units."""
    if interval is None:
        return Check(name, "INCONCLUSIVE", f"{n} units give no interval")
    low, high = interval
    reason = f"{form(value)}{unit} [{form(low)}, {form(high)}], n={n}"
    if low >= limit:
        return Check(name, "GO", reason)
    if high < limit:
        return Check(name, "NO-GO", reason)
    distance = abs(value - limit)
    half = value - low if value >= limit else high - value
    # None: the distance is tiny or 0, and the number would be huge or infinite.
    more = ceil(n * ((half / distance) ** 2 - 1)) if half < 1e3 * distance else None
    needed = f"about {more:,} more rows would decide" if more else "more rows may not decide"
    return Check(name, "INCONCLUSIVE", f"{reason}; {needed}")
