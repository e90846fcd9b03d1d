"""The lines of a comparison: one question each, corrected for how many were asked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ace_ray.report.difference import Difference, difference_of
from ace_ray.report.groups import Group
from ace_ray.report.noise import Noise, Repeats, noise_of
from ace_ray.report.paired import METRICS, Cells, Metric, pairs_of
from ace_ray.report.significance import ALPHA, detectable, holm


@dataclass(frozen=True, slots=True)
class Question:
    """Is ``other`` better or worse than ``base`` (labels of runs) on this group?"""

    benchmark: str
    rules: str
    base: str
    other: str
    group: Group
    metric: Metric

    @property
    def section(self) -> tuple[str, str, str, str]:
        """(rules, base, other, benchmark): the questions that are printed as one table."""
        return (self.rules, self.base, self.other, self.benchmark)


@dataclass(frozen=True, slots=True)
class Line:
    """A question and its answer.

    ``holm`` is the p-value adjusted over the ``family``, all lines of the rule set. ``detectable``
    is the smallest true difference that this n shows as one of them, ``detectable_alone`` as the
    only one; None: none at all. ``noise`` is None when nothing was generated twice.
    """

    asked: Question
    found: Difference
    holm: float
    family: int
    detectable: float | None
    detectable_alone: float | None
    noise: Noise | None

    @property
    def shown(self) -> bool:
        """Whether there is a difference, at a family-wise error of `ALPHA`."""
        return self.holm < ALPHA

    @property
    def noise_floor(self) -> float | None:
        """What 95 % of the differences between identical runs stay within."""
        return None if self.noise is None else self.noise.floor(self.found.samples)

    @property
    def under_noise(self) -> bool:
        """Whether identical runs differ as much."""
        return self.noise_floor is not None and abs(self.found.value) < self.noise_floor


@dataclass(frozen=True)
class Side:
    """One benchmark of the runs that are compared.

    ``repeats`` are what each run, by number, generated twice; ``seeds`` what its answers were
    sampled with, None where nothing was left to chance.
    """

    benchmark: str
    labels: Sequence[str]
    cells: Cells
    groups: Sequence[Group]
    repeats: Sequence[Repeats | None]
    seeds: Sequence[int | None]

    def noise_between(self, base: str, other: str) -> list[Repeats]:
        """Repeats that tell by how much identical runs differ under the labels' conditions; none
        where the two were sampled with other seeds: a repeat is drawn with its run's own."""
        numbers = self.labels.index(base), self.labels.index(other)
        if len({self.seeds[number] for number in numbers}) > 1:
            return []
        found = (self.repeats[number] for number in numbers)
        return [cells for cells in found if cells is not None]


def lines_of(
    sides: Sequence[Side], pairs: Sequence[tuple[str, str]], rule_sets: Sequence[str]
) -> list[Line]:
    """All lines of a comparison in print order: by rule set, pair, benchmark, group, metric.

    ``pairs`` are labels (base, other); where a benchmark lacks one of them it has no lines.
    """
    lines: list[Line] = []
    for rules in rule_sets:
        drafts = [
            (side, question, found)
            for base, other in pairs
            for side in sides
            if base in side.labels and other in side.labels
            for question, found in _differences(side, base, other, rules)
        ]
        adjusted = holm([found.p for _, _, found in drafts])
        for (side, question, found), p in zip(drafts, adjusted, strict=True):
            known = side.noise_between(question.base, question.other)
            line = Line(
                asked=question,
                found=found,
                holm=p,
                family=len(drafts),
                detectable=detectable(found.moves, found.sizes, len(drafts)),
                detectable_alone=detectable(found.moves, found.sizes),
                noise=noise_of(known, question.group, question.metric, rules),
            )
            lines.append(line)
    return lines


def _differences(
    side: Side, base: str, other: str, rules: str
) -> Iterator[tuple[Question, Difference]]:
    numbers = side.labels.index(base), side.labels.index(other)
    for metric in METRICS:
        paired = pairs_of(side.cells, metric, rules, *numbers)
        names, of_unit = side.cells.strata
        held = {names[index] for index in np.unique(of_unit[paired.samples > 0])}
        for group in side.groups:
            # A group of which a category has no pairs would bear its name wrongly.
            if group.strata <= held:
                question = Question(side.benchmark, rules, base, other, group, metric)
                within = side.cells.within(group.strata)
                yield question, difference_of(side.cells, paired, within, metric)
