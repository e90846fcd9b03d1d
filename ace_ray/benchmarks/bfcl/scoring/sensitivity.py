"""Format sensitivity: how much the wording of a prompt moves the accuracy.

Upstream ``eval_runner.py::format_sensitivity_runner``: the accuracy of each of the 26 forms over
the same 200 entries; its range, sample standard deviation and variance in percentage points. It
enters no overall score.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import stdev, variance
from typing import Any

from ace_ray.benchmarks.bfcl.forms import FORMS, form_of
from ace_ray.benchmarks.results import ScoredRow
from ace_ray.benchmarks.tally import Tally, accuracies
from ace_ray.records import RULE_SETS


class Sensitivity:
    """Counts the rows of each form."""

    def __init__(self) -> None:
        self._tallies: dict[str, Tally] = {}

    def add(self, row: ScoredRow) -> None:
        form = str(form_of(row.id))
        self._tallies.setdefault(form, Tally(form, RULE_SETS)).add(row)

    def result(self) -> dict[str, Any] | None:
        """``{rules: {"forms": {form: STATS}, "range", "stdev", "variance"}}``; None for no rows.

        The spread is over forms with a judged row, in points; null for fewer than two."""
        if not self._tallies:
            return None
        return {rules: self._of(rules) for rules in RULE_SETS}

    def _of(self, rules: str) -> dict[str, Any]:
        forms: Mapping[str, Any] = {
            str(form): accuracies([self._tallies[str(form)]], rules)
            for form in FORMS
            if str(form) in self._tallies
        }
        points = [100 * f["accuracy"] for f in forms.values() if f["accuracy"] is not None]
        several = len(points) > 1
        return {
            "forms": forms,
            "range": max(points) - min(points) if several else None,
            "stdev": stdev(points) if several else None,
            "variance": variance(points) if several else None,
        }
