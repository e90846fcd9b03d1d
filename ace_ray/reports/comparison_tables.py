"""Format a comparison as tables and sentences. Shares are shown in percentage points."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from ace_ray.benchmarks.results import Table, Value
from ace_ray.reports.comparison import Comparison
from ace_ray.reports.hypotheses import TestResult
from ace_ray.reports.paired import ALL
from ace_ray.reports.significance import ALPHA
from ace_ray.reports.table import NOT_AVAILABLE
from ace_ray.util.stats import Interval

SHOWN, UNDER_NOISE = "*", "~"
_MEASURES = {"accuracy": "accuracy", "process": "process accuracy"}


def tables_of(comparison: Comparison) -> Iterator[Table]:
    """Yield a table for each rule set, pair of runs and benchmark."""
    sections = groupby(comparison.results, key=lambda result: result.hypothesis.table_key)
    for number, ((rules, _, _, benchmark), results) in enumerate(sections, start=1):
        yield _differences(f"compare-{number}-{benchmark}-{rules}", list(results))


def _differences(name: str, results: Sequence[TestResult]) -> Table:
    hypothesis = results[0].hypothesis
    with_noise = any(result.noise is not None for result in results)
    header = ["Group", "Language", "Measure", "n", hypothesis.base, hypothesis.other]
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
        f"{ALL} (pooled)" if hypothesis.group.name == ALL else hypothesis.group.name,
        hypothesis.group.language or "all",
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
        "n: number of entries, or of dialogues where turns are judged "
        "together; after a slash, the number of tasks, if several entries ask "
        "the same task. All entries have the same weight here, while the "
        "tables of a report give categories and languages the same weight. + "
        "and -: number of entries that became right or wrong",
        f"Holm p: p-value adjusted over the {results[0].family} lines of this "
        f"rule set, for all pairs and benchmarks; tests used: {tests}",
        "Detectable: smallest true difference that this n shows with a power of 80 %",
    ]
    if any(result.is_significant for result in results):
        legend.append(f"{SHOWN} shown: Holm p below 0.05")
    if any(result.under_noise for result in results):
        legend.append(f"{UNDER_NOISE} not larger than the difference between identical runs")
    if any(result.noise is not None for result in results):
        legend.append(
            "Noise floor: limit for 95 % of the differences between two identical "
            "runs, estimated from rows generated twice in either run; the rate "
            "over all groups is added to each group as 30 repeats"
        )
    return legend


def sentence(result: TestResult) -> str:
    """Return a sentence on a result: ``A is better than B on Special: +4.1 points, 95 % CI
    1.2..7.0, Holm p 0.01``. If no difference is shown, it gives the detectable difference."""
    tested, difference = result.hypothesis, result.difference
    group = tested.group
    group_title = f"{group.name} ({group.language})" if group.language else group.name
    group_title += "" if tested.metric == "accuracy" else ", process accuracy"
    facts = (
        f"{signed_points(difference.value)} points, 95 % CI {interval_text(difference.interval)}, "
        f"Holm p {p_text(result.holm)}"
    )
    if result.is_significant:
        word = "better" if difference.value > 0 else "worse"
        text = f"{tested.other} is {word} than {tested.base} on {group_title}: {facts}"
    else:
        power = f"this n ({difference.n}) cannot show any difference"
        if result.detectable is not None:
            power = f"this n can show a difference of at least {points(result.detectable)} points"
        text = (
            f"no difference shown between {tested.other} and {tested.base} on {group_title}: "
            f"{facts}; {power}"
        )
    if result.under_noise and result.noise_floor is not None:
        text += f"; identical runs differ by up to {points(result.noise_floor)} points"
    return text


def points(share: float) -> str:
    text = f"{100 * share:.1f}"
    return "0.0" if text == "-0.0" else text


def signed_points(share: float) -> str:
    """Format a difference of shares in points, with its sign."""
    text = points(share)
    return f"+{text}" if float(text) > 0 else text


def interval_text(interval: Interval | None) -> str:
    if interval is None:
        return NOT_AVAILABLE
    return "..".join(points(end) for end in interval)


def p_text(p: float) -> str:
    """Format ``p`` with two digits, or more if rounding would move it across `ALPHA`."""
    if p < 0.0001:
        return "< 0.0001"
    short = f"{p:.2g}"
    return short if (float(short) < ALPHA) == (p < ALPHA) else f"{p:.6g}"
