"""Judges of answers: SoPR and FAC by a model, SoWR between two runs, and how far they agree with
people."""

from __future__ import annotations

from ace_ray.benchmarks.stabletoolbench.judge.agreement import agreement
from ace_ray.benchmarks.stabletoolbench.judge.asking import (
    CUTS,
    FAC_SAMPLING,
    SAMPLING,
    JudgeError,
    protocol,
    retried,
)
from ace_ray.benchmarks.stabletoolbench.judge.fac import judge_fac
from ace_ray.benchmarks.stabletoolbench.judge.labels import Label, judge_labels, read_labels
from ace_ray.benchmarks.stabletoolbench.judge.prompts import Prompts, official, own
from ace_ray.benchmarks.stabletoolbench.judge.sopr import judge_sopr, majority, unanswered
from ace_ray.benchmarks.stabletoolbench.judge.sowr import judge_sowr

__all__ = [
    "CUTS",
    "FAC_SAMPLING",
    "SAMPLING",
    "JudgeError",
    "Label",
    "Prompts",
    "agreement",
    "judge_fac",
    "judge_labels",
    "judge_sopr",
    "judge_sowr",
    "majority",
    "official",
    "own",
    "protocol",
    "read_labels",
    "retried",
    "unanswered",
]
