"""``ace-ray gate``: decide by a policy whether a run is good enough, as an exit code for CI.

A limit is met (GO) or missed (NO-GO) only if the complete confidence interval is on one side of it.
Otherwise the answer is INCONCLUSIVE, with an estimate of the rows that are needed to decide.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Literal
from xml.etree.ElementTree import Element, SubElement, tostring

import numpy as np
from pydantic import Field

from ace_ray.benchmarks.comparability import difference_lines
from ace_ray.benchmarks.registry import class_of
from ace_ray.config.schema import Section, validate_tree, yaml_file
from ace_ray.errors import INCOMPLETE, UserError
from ace_ray.reports import serving
from ace_ray.reports.compared_runs import condition_differences, join_values
from ace_ray.reports.comparison import paired_data
from ace_ray.reports.comparison_tables import points, signed_points
from ace_ray.reports.hypotheses import difference_of
from ace_ray.reports.paired import ALL, Group, PairedData, Stratum, pairs_of, unit_of
from ace_ray.reports.runs import ScoredRun, across_line, load_runs
from ace_ray.reports.serving import SERVING, Rows
from ace_ray.reports.significance import Change, Share, rows_to_decide, share_of
from ace_ray.storage.object_store import Store, open_store
from ace_ray.types import canonical_json
from ace_ray.util.sanitizing import sanitize_line
from ace_ray.util.suggestions import did_you_mean

if TYPE_CHECKING:
    import pandas as pd

Estimated = Share | Change | serving.F1
Answer = Literal["GO", "NO-GO", "INCONCLUSIVE"]
EXIT_CODES: dict[Answer, int] = {"GO": 0, "NO-GO": 3, "INCONCLUSIVE": 4}
CONDITIONS, READING = "conditions", "reading"
# Keys of a metric with a limit, and their words in the name of a check.
LIMITS = {
    **{"at_least": "at least", "at_most": "at most"},
    **{"drop_at_most": "drops at most", "rise_at_most": "rises at most"},
}
CHANGES = ("drop_at_most", "rise_at_most")
OTHER_MODEL = "requests are served as in the reference: another model, precision or sampling"


class Metric(Section):
    """A limit on a group of categories."""

    benchmark: str | None = Field(None, description="needed if the runs share several")
    group: str = Field(ALL, description="group of categories, or a category")
    language: str = Field("", description="one language; default: all")
    rules: str | None = Field(None, description="rule set; default: the benchmark's first")
    metric: Literal[
        "accuracy", "process", "answered", "trigger_f1", "schema_valid", "reasoning_only",
        "cut_off", "prompt_tokens_differ", "duplicate_answers",
    ] = "accuracy"  # fmt: skip
    at_least: float | None = Field(None, ge=0, le=1)
    at_most: float | None = Field(None, ge=0, le=1)
    drop_at_most: float | None = Field(None, ge=0, le=1, description="against the baseline")
    rise_at_most: float | None = Field(None, ge=0, le=1, description="against the baseline")
    confidence: float = Field(0.95, gt=0.5, lt=1)


class Policy(Section):
    """A policy file (docs/engine-conformance.md)."""

    metrics: list[Metric] = Field(default=[], max_length=100)
    unscored_at_most: float | None = Field(None, ge=0, le=1)
    across: list[Literal["sampling"]] = Field(default=[], description="conditions that may differ")
    equal: list[str] = Field(default=[], description="keys of run.json, conditions or reading")


@dataclass(frozen=True)
class Check:
    """The result of one limit or condition of a policy."""

    name: str
    answer: Answer
    reason: str


@dataclass(frozen=True, repr=False)
class Decision:
    """The result of a policy. ``incomplete``: missing parts of an incomplete run, or ""."""

    answer: Answer
    checks: Sequence[Check]
    incomplete: str = ""

    def __repr__(self) -> str:
        return f"<Decision {self.answer}: {len(self.checks)} checks>"

    def dataframe(self) -> pd.DataFrame:
        """Return the checks as a pandas data frame. pandas must be installed."""
        import pandas as pd

        return pd.DataFrame(map(asdict, self.checks))

    @property
    def exit_code(self) -> int:
        return INCOMPLETE if self.incomplete else EXIT_CODES[self.answer]

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "exit_code": self.exit_code}

    def as_junit(self) -> str:
        """Return JUnit XML with a test case per check; INCONCLUSIVE is an error."""
        kinds: dict[Answer, str] = {"NO-GO": "failure", "INCONCLUSIVE": "error"}
        answers = [check.answer for check in self.checks]
        counts = {f"{kind}s": str(answers.count(answer)) for answer, kind in kinds.items()}
        counts |= {"name": "ace-ray gate", "tests": str(len(answers))}
        suite = Element("testsuite", counts)
        for check in self.checks:
            # Other people's runs may contain control characters, which XML does not allow.
            name, reason = sanitize_line(check.name), sanitize_line(check.reason)
            case = SubElement(suite, "testcase", classname="gate", name=name)
            if check.answer in kinds:
                SubElement(case, kinds[check.answer], message=reason)
        return tostring(suite, encoding="unicode", xml_declaration=True)


def gate(
    source: str | Mapping[str, Any],
    uri: str,
    against: str | None = None,
    opens: Callable[[str], Store] = open_store,
) -> Decision:
    """Apply a policy, a file or a mapping, to the run at ``uri``, with the baseline ``against``.

    Raises `UserError` for a wrong policy, an unknown metric or setting, and for runs without shared
    rows."""
    file = source if isinstance(source, str) else "policy"
    tree = yaml_file(source) if isinstance(source, str) else source
    if tree is not None and not isinstance(tree, Mapping):
        raise UserError("is not a mapping", where=file, fix="write keys such as metrics:")
    policy = validate_tree(Policy, tree or {}, where=file)
    runs = load_runs([uri] if against is None else [against, uri], opens)
    for run in runs:
        run.across = policy.across
    if incomplete := [f"{run.label}: {run.missing_parts}" for run in runs if not run.is_finished]:
        lacking = Check("complete runs", "INCONCLUSIVE", incomplete[0])
        return Decision("INCONCLUSIVE", [lacking], incomplete[0])

    @cache
    def served(benchmark: str) -> list[Rows]:
        task = class_of(benchmark, *(run.manifest for run in runs)).task
        return [serving.served_rows(run, run.rows_of(benchmark), task) for run in runs]

    limits = [(m.metric, c) for m in policy.metrics for c in _limits(m, runs, file, served)]
    is_served = [check.answer != "NO-GO" for metric, check in limits if metric in SERVING]
    checks = list(_check_run(policy, runs, file))
    for metric, check in limits:
        if check.answer == "NO-GO" and metric not in SERVING and is_served and all(is_served):
            check = replace(check, reason=f"{check.reason}; {OTHER_MODEL}")
        checks.append(check)
    if not checks:
        raise UserError("sets no limit", where=file, fix="add metrics, unscored_at_most or equal")
    if line := across_line(runs):
        checks.insert(0, Check("across sampling", "GO", line))
    answers = {check.answer for check in checks}
    worst = next(a for a in ("NO-GO", "INCONCLUSIVE", "GO") if a in answers)
    return Decision(worst, checks)


def _check_run(policy: Policy, runs: Sequence[ScoredRun], file: str) -> Iterator[Check]:
    """Yield the checks of ``unscored_at_most`` and ``equal``."""
    if (limit := policy.unscored_at_most) is not None:
        declared = runs[-1].manifest.declared
        share = (declared - runs[-1].totals["scored"]) / max(1, declared)
        reason = f"{points(share)} % of {declared} rows are not scored"
        answer: Answer = "GO" if share <= limit else "NO-GO"
        yield Check(f"unscored at most {points(limit)} %", answer, reason)
    if policy.equal and len(runs) < 2:
        raise UserError("'equal' compares two runs", where=file, fix="name one with --against")
    for path in policy.equal:
        if path == CONDITIONS:
            names = runs[1].benchmarks
            differences = [d for name in names for d in condition_differences(runs, name)]
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
            fix = did_you_mean(name, names)
            raise UserError(f"run.json has no {path!r}", where=f"{file}: equal", fix=fix)
        node = node[name]
    return node


def _limits(
    metric: Metric, runs: Sequence[ScoredRun], file: str, served: Callable[[str], list[Rows]]
) -> Iterator[Check]:
    location, limits = f"{file}: metrics", metric.model_dump(include={*LIMITS}, exclude_none=True)
    if not limits:
        raise UserError("a metric needs at_least or drop_at_most", where=location, fix="add one")
    changes, is_served = [kind for kind in limits if kind in CHANGES], metric.metric in SERVING
    compares = [*changes, metric.metric] if metric.metric in serving.OF_PAIRS else changes
    if changes and compares != changes:
        problem = f"{metric.metric!r} compares two runs and takes no {changes[0]!r}"
        raise UserError(problem, where=location, fix="write at_least or at_most")
    if compares and len(runs) < 2:
        problem = f"{compares[0]!r} compares two runs"
        raise UserError(problem, where=file, fix="name one with --against")
    data, group, rules = _select_data(metric, runs, file)
    for line in condition_differences(runs, data.benchmark) if compares else ():
        if line.startswith("not comparable: sampling."):
            raise UserError(line, where=file, fix="add across: [sampling] to the policy")
    parts = (data.benchmark, group.name, group.language, "" if is_served else rules, metric.metric)
    name = " ".join(filter(None, parts))
    rows = [
        {key: row for key, row in run_rows.items() if key[:2] in group.strata}
        for run_rows in (served(data.benchmark) if is_served else ())
    ]
    # Whether each row of the last run has a verdict, among the group's shared entries.
    shared = {unit_of(r) for r in runs[0].rows_of(data.benchmark) if r.category_key in group.strata}
    judged = [
        row.status == "scored" and rules in row.verdicts
        for row in runs[-1].rows_of(data.benchmark)
        if unit_of(row) in shared
    ]
    for kind, limit in limits.items():
        is_change, note = kind in CHANGES, ""
        title = f"{name} {LIMITS[kind]} {points(limit)} {'points' if is_change else '%'}"
        if judged and not any(judged) and not is_served:
            yield Check(title, "NO-GO", "no row of the run has a verdict")
            continue
        if is_served:
            value, n = (serving.change if is_change else serving.estimate)(metric.metric, rows)
        else:
            base = 0 if is_change else len(runs) - 1
            value, n, note = _score(data, group, (metric.metric, rules), base, len(runs) - 1, name)
        check = limit_check(title, value, limit, 1 - metric.confidence, n, kind)
        if is_served and check.answer == "NO-GO":
            note = f"; {serving.sign_of(metric.metric, rows)}"
        yield replace(check, reason=check.reason + note)


def _score(
    data: PairedData, group: Group, key: tuple[Any, str], base: int, last: int, name: str
) -> tuple[Share | Change | None, int, str]:
    """Return the change of a score from the run ``base`` to the run ``last``, or the score if both
    are the same run; the number of entries; and a note on entries without a verdict. ``key``:
    metric and rule set."""
    within, pairs = data.cells.mask_of(group.strata), pairs_of(data.cells, *key, base, last)
    units = within & (pairs.samples > 0)
    if not units.any():
        problem = "the run has no row with this metric"
        problem = problem if base == last else "the runs share no judged rows"
        raise UserError(problem, where=name, fix="compare other runs, or name another metric")
    if base == last:
        pairs = replace(pairs, base_means=np.zeros_like(pairs.base_means))
    difference = difference_of(data.cells, pairs, within)
    note = ""
    if left_out := int((within & ~units).sum()):
        lacking = "verdict" if key[0] == "accuracy" else "process accuracy"
        note = f"; {left_out} of {int(within.sum())} have no {lacking}"
        note += "" if base == last else " in both runs"
    share = share_of(difference.moves, difference.sizes, int(difference.samples.sum()))
    return share if base == last else difference.change, difference.n, note


def _select_data(
    metric: Metric, runs: Sequence[ScoredRun], file: str
) -> tuple[PairedData, Group, str]:
    """Return the data, group and rule set that ``metric`` names. Raises `UserError` when the runs
    lack one of them."""
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
        fix = did_you_mean(rules, data.rule_sets)
        raise UserError(f"{benchmark} has no rule set {rules!r}", f"{file}: metrics", fix)
    # Groups over all languages come first. If there is one language, groups have its name.
    groups = [g for g in data.groups if metric.language in ("", g.language)]
    matches = [group for group in groups if group.name == metric.group]
    if metric.group == ALL:  # a group with the same entries may be listed in its place
        every = frozenset[Stratum]().union(*(group.strata for group in groups))
        matches = [group for group in groups if group.strata == every]
    if not matches:
        key, value = ("group", metric.group) if groups else ("language", metric.language)
        choices = [g.name for g in groups] or sorted({g.language for g in data.groups} - {""})
        problem = f"{benchmark} has no {key} {value!r} in these runs"
        raise UserError(problem, where=f"{file}: metrics", fix=did_you_mean(value, choices))
    return data, matches[0], rules


def limit_check(
    name: str, estimate: Estimated | None, limit: float, alpha: float, n: int, kind: str
) -> Check:
    """Check whether ``estimate``, from ``n`` rows or entries, meets the ``limit`` of a kind in
    `LIMITS`. The probability of a wrong GO or NO-GO is at most ``alpha``. The limits "at_least: 1"
    and "at_most: 0" allow no exception among these rows, and need no interval."""
    if estimate is None:
        reason = f"{n} entries of one task give no interval" if n else "no row has this metric"
        return Check(name, "INCONCLUSIVE", reason)
    form, unit = (signed_points, " points") if kind in CHANGES else (points, "")
    low, high = estimate.interval(2 * alpha)
    reason = f"{form(estimate.value)}{unit} [{form(low)}, {form(high)}], n={n}"
    if (kind, limit) in (("at_least", 1), ("at_most", 0)):
        return Check(name, "GO" if estimate.value == limit else "NO-GO", reason)
    limit = -limit if kind == "drop_at_most" else limit
    is_cap = kind in ("at_most", "rise_at_most")
    if high <= limit if is_cap else low >= limit:
        return Check(name, "GO", reason)
    if low > limit if is_cap else high < limit:
        return Check(name, "NO-GO", reason)
    more = rows_to_decide(estimate.interval, limit, alpha, n)
    needed = f"about {more:,} more rows would decide" if more else "more rows may not decide"
    return Check(name, "INCONCLUSIVE", f"{reason}; {needed}")
