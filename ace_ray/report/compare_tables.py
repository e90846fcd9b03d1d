"""A comparison as tables: differences per pair of runs, best runs, laws."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from ace_ray.benchmarks.reporting import Table, Value
from ace_ray.report.compared import Comparison
from ace_ray.report.lines import Line
from ace_ray.report.render import NOT_AVAILABLE
from ace_ray.report.sentences import interval_text, p_text, points, signed

SHOWN, UNDER_NOISE = "*", "~"
_ALL = "all runs"
_MEASURES = {"accuracy": "accuracy", "process": "process accuracy"}


def tables_of(comparison: Comparison) -> Iterator[Table]:
    """One table per rule set, pair of runs and benchmark; then best runs and laws, if any."""
    sections = groupby(comparison.lines, key=lambda line: line.asked.section)
    for number, ((rules, _, _, benchmark), lines) in enumerate(sections, start=1):
        yield _differences(f"compare-{number}-{benchmark}-{rules}", list(lines))
    if comparison.best:
        yield _best(comparison)
    if comparison.laws:
        yield _laws(comparison)


def _differences(name: str, lines: Sequence[Line]) -> Table:
    asked = lines[0].asked
    with_noise = any(line.noise is not None for line in lines)
    header = ["Group", "Language", "Measure", "n", asked.base, asked.other]
    header += ["Difference [95 % CI]", "+", "-", "Holm p", "Detectable"]
    return Table(
        name=name,
        title=(
            f"{asked.benchmark}, {asked.rules} rules: {asked.other} against {asked.base} "
            "(points of 100)"
        ),
        header=[*header, "Noise floor"] if with_noise else header,
        lines=[_cells(line, with_noise=with_noise) for line in lines],
        notes=_legend(lines),
    )


def _cells(line: Line, *, with_noise: bool) -> list[Value]:
    asked, found = line.asked, line.found
    marks = f"{SHOWN if line.shown else ''}{UNDER_NOISE if line.under_noise else ''}"
    cells: list[Value] = [
        asked.group.name,
        asked.group.language or "all",
        _MEASURES[asked.metric],
        str(found.n) if len(found.sizes) == found.n else f"{found.n}/{len(found.sizes)}",
        points(found.base),
        points(found.other),
        f"{signed(found.value)} [{interval_text(found.interval)}]{marks}",
        found.gained,
        found.lost,
        p_text(line.holm),
        NOT_AVAILABLE if line.detectable is None else points(line.detectable),
    ]
    if with_noise:
        floor = line.noise_floor
        cells.append(NOT_AVAILABLE if floor is None else points(floor))
    return cells


def _legend(lines: Sequence[Line]) -> list[str]:
    tests = ", ".join(dict.fromkeys(line.found.test for line in lines))
    legend = [
        "n: entries, or dialogues where turns are judged together; after a slash the tasks that "
        "they share, where entries ask the same. All entries weigh the same, while the tables of "
        "a report weigh categories and languages the same. +, -: how many got better, worse",
        f"Holm p: adjusted over the {lines[0].family} lines of this rule set, all pairs and "
        f"benchmarks together; tests used: {tests}",
        "Detectable: the smallest true difference that this n shows with a power of 80 %, as one "
        "of these lines",
    ]
    if any(line.shown for line in lines):
        legend.append(f"{SHOWN} shown: Holm p below 0.05")
    if any(line.under_noise for line in lines):
        legend.append(f"{UNDER_NOISE} identical runs differ as much")
    if any(line.noise is not None for line in lines):
        legend.append(
            "Noise floor: 95 % of the differences between two identical runs are within it, by "
            "what was generated twice in either run; the rate of all groups counts as 30 repeats"
        )
    return legend


def _best(comparison: Comparison) -> Table:
    lines: list[list[Value]] = []
    notes = [
        "chosen: the best run on one half of the entries, taken by a hash of their keys, whole "
        "dialogues; its score there is too high, for the best was also the luckiest. The held-out "
        "half had no part in the choice: that score is the one to believe"
    ]
    for best in comparison.best:
        lines.append(
            [
                f"{best.benchmark}, {best.rules}",
                best.series or _ALL,
                best.group.name,
                best.chosen,
                best.choosing,
                best.held_out,
                best.highest,
                best.everything,
            ]
        )
        if best.tied:
            notes.append(
                f"{best.group.name} of {best.series or _ALL} ({best.rules} rules): as good on the "
                "choosing half: "
                f"{', '.join(best.tied)}"
            )
    header = ["Rules", "Among", "Group", "Chosen", "Choosing half", "Held-out half"]
    header += ["Best of all entries", "All entries"]
    return Table("best", "Best run by group (%)", header, lines, notes)


def _laws(comparison: Comparison) -> Table:
    lines: list[list[Value]] = [
        [
            f"{found.benchmark}, {found.rules}",
            group,
            series,
            law.sizes,
            f"{law.slope:.2f} [{law.interval[0]:.2f}..{law.interval[1]:.2f}]",
            f"{law.dispersion:.1f}",
        ]
        for found in comparison.laws
        for (group, series), law in found.laws.items()
    ]
    return Table(
        name="laws",
        title="Accuracy against parameters: logistic(a + b * log10(parameters))",
        header=["Rules", "Group", "Family", "Sizes", "b [95 % CI]", "Scatter"],
        lines=lines,
        notes=[
            "b: log-odds gained by ten times the parameters; an interval with 0 in it shows no law",
            "Scatter: 1 when models lie on the law as closely as their entries let them, more "
            "when they do not",
        ],
    )
