"""What each run reached on each group, over its own judged units, all of equal weight."""

from __future__ import annotations

import numpy as np

from ace_ray.benchmarks.reporting import Estimate
from ace_ray.report.groups import Group
from ace_ray.report.lines import Side
from ace_ray.report.paired import alone
from ace_ray.stats import wilson


def score_of(side: Side, run: int, group: Group, rules: str) -> Estimate | None:
    """The accuracy of run number ``run`` on ``group``; None unless all its categories are there."""
    values = alone(side.cells, "accuracy", rules, run)
    names, of_unit = side.cells.strata
    held = {names[index] for index in np.unique(of_unit[~np.isnan(values)])}
    return estimate(values[side.cells.within(group.strata)]) if group.strata <= held else None


def estimate(values: np.ndarray) -> Estimate | None:
    """The mean of what units reached, NaN left out, with its Wilson interval."""
    known = values[~np.isnan(values)]
    mean = float(known.mean()) if len(known) else 0.0
    interval = wilson(mean * len(known), len(known))
    return None if interval is None else Estimate(mean, interval, len(known))


def shown_groups(side: Side) -> list[Group]:
    """The groups that curves and best runs are given for: of categories, all languages together."""
    languages = {language for language, _ in side.cells.strata[0]}
    whole = "" if len(languages) > 1 else next(iter(languages), "")
    found = [group for group in side.groups if group.language == whole]
    return [group for group in found if not group.category] or found
