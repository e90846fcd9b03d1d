"""Format a comparison as tables and sentences. Shares are shown in percentage points."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby

from ace_ray.benchmarks.results import Table, Value
from ace_ray.reports.hypotheses import TestResult
from ace_ray.reports.paired import ALL
from ace_ray.reports.significance import ALPHA
from ace_ray.reports.table import NOT_AVAILABLE

SHOWN, UNDER_NOISE = "*", "~"
_MEASURES = {"accuracy": "accuracy", "process": "process accuracy"}


def tables_of(results: Sequence[TestResult]) -> list[Table]:
    """Return a table for each rule set, pair of runs and benchmark; see `joined`."""
    sections = groupby(results, key=lambda result: result.hypothesis.table_key)
    return joined(
        (section[0], _differences(f"compare-{number}", list(lines)))
        for number, (section, lines) in enumerate(sections, start=1)
    )


def joined(tables: Iterable[tuple[str, Table]]) -> list[Table]:
    """Return ``tables``, given with their rule sets. Tables that differ only in the rule set become
    one table, whose title names all its rule sets."""
    sets: dict[tuple[str, str], tuple[Table, list[str]]] = {}
    for rules, table in tables:
        key = (table.title.replace(f", {rules} rules", "", 1), repr(table.lines))
        sets.setdefault(key, (table, []))[1].append(rules)
    return [
        replace(t, title=t.title.replace(f", {of[0]} rules", f", {' and '.join(of)} rules", 1))
        for t, of in sets.values()
    ]


def _differences(name: str, results: Sequence[TestResult]) -> Table:
    hypothesis = results[0].hypothesis
    with_noise = any(result.noise is not None for result in results)
    header = ["Group", "Measure", "n", hypothesis.base, hypothesis.other]
    header += ["Difference [95 % CI]", "+", "-", "Holm p", "Detectable"]
    header += ["Noise floor"] if with_noise else []
    return Table(
        name=name,
        title=(
            f"{hypothesis.benchmark}, {hypothesis.rules} rules: {hypothesis.other} against "
            f"{hypothesis.base} (points of 100)"
        ),
        header=header,
        lines=[_cells(result)[: len(header)] for result in results],
        notes=_legend(results),
    )


def _cells(result: TestResult) -> list[Value]:
    hypothesis, difference = result.hypothesis, result.difference
    marks = f"{SHOWN if result.is_significant else ''}{UNDER_NOISE if result.under_noise else ''}"
    return [
        group_name(hypothesis.group.name, hypothesis.group.language),
        _MEASURES[hypothesis.metric],
        str(difference.n)
        if len(difference.sizes) == difference.n
        else f"{difference.n}/{len(difference.sizes)}",
        points(difference.base_mean),
        points(difference.other_mean),
        f"{signed_points(difference.value)} [{interval_text(difference.interval)}]{marks}",
        difference.gained,
        difference.lost,
        p_text(result.holm),
        NOT_AVAILABLE if result.detectable is None else points(result.detectable),
        NOT_AVAILABLE if result.noise_floor is None else points(result.noise_floor),
    ]


def _legend(results: Sequence[TestResult]) -> list[str]:
    tests = ", ".join(dict.fromkeys(result.difference.test for result in results))
    legend = [
        "n: entries or dialogues, of equal weight; after a slash, the tasks they ask. + and -: "
        "number that became right or wrong",
        f"Holm p: p-value adjusted over the {results[0].family} lines of this "
        f"rule set, for all pairs and benchmarks; tests used: {tests}",
        "Detectable: smallest true difference that this n shows with a power of 80 %",
    ]
    if any(result.is_significant for result in results):
        legend.append(f"{SHOWN} shown: Holm p below 0.05")
    if any(result.under_noise for result in results):
        legend.append(f"{UNDER_NOISE} not larger than the difference between identical runs")
    if any(result.noise is not None for result in results):
        legend.append("Noise floor: 95 % of the differences between identical runs are smaller")
    return legend


def sentences_of(results: Sequence[TestResult]) -> list[str]:
    """Return the `sentence` of each difference that is shown, after its rule set. Equal sentences
    are joined."""
    names: dict[str, list[str]] = {}
    for result in results:
        if result.is_significant:
            names.setdefault(sentence(result), []).append(result.hypothesis.rules)
    return [f"{', '.join(rules)}: {text}" for text, rules in names.items()]


def sentence(result: TestResult) -> str:
    """Return a sentence on a difference that is shown: ``A is better than B on Special: +4.1
    points, 95 % CI 1.2..7.0, Holm p 0.01``."""
    tested, difference = result.hypothesis, result.difference
    group = tested.group
    text = (
        f"{tested.other} is {'better' if difference.value > 0 else 'worse'} than {tested.base} on "
        f"{group.name}{f' ({group.language})' if group.language else ''}"
        f"{'' if tested.metric == 'accuracy' else ', process accuracy'}: "
        f"{signed_points(difference.value)} points, 95 % CI {interval_text(difference.interval)}, "
        f"Holm p {p_text(result.holm)}"
    )
    if result.under_noise and result.noise_floor is not None:
        text += f"; identical runs differ by up to {points(result.noise_floor)} points"
    return text


def group_name(name: str, language: str) -> str:
    return f"{name}{' (pooled)' if name == ALL else ''}{f' ({language})' if language else ''}"


def points(share: float) -> str:
    text = f"{100 * share:.1f}"
    return "0.0" if text == "-0.0" else text


def signed_points(share: float) -> str:
    """Format a difference of shares in points, with its sign."""
    text = points(share)
    return f"+{text}" if float(text) > 0 else text


def interval_text(interval: tuple[float | None, float | None] | None) -> str:
    ends = [points(end) for end in interval or () if end is not None]
    return "..".join(ends) or NOT_AVAILABLE


def p_text(p: float) -> str:
    """Format ``p`` with two digits, or more if rounding would move it across `ALPHA`."""
    if p < 0.0001:
        return "< 0.0001"
    short = f"{p:.2g}"
    return short if (float(short) < ALPHA) == (p < ALPHA) else f"{p:.6g}"
