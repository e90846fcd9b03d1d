"""Judges of answers: SoPR and FAC by a model, SoWR between two runs, and how far they agree with
people."""

from __future__ import annotations

from ace_ray.benchmarks.stabletoolbench.judge.asking import (
    CUTS,
    FAC_SAMPLING,
    SAMPLING,
    JudgeError,
    protocol,
    retried,
)
from ace_ray.benchmarks.stabletoolbench.judge.measures import (
    judge_answer,
    judge_fac,
    judge_sopr,
    judge_sowr,
    majority,
    unanswered,
)
from ace_ray.benchmarks.stabletoolbench.judge.prompts import Prompts, official, own

__all__ = [
    "CUTS",
    "FAC_SAMPLING",
    "SAMPLING",
    "JudgeError",
    "Prompts",
    "judge_answer",
    "judge_fac",
    "judge_sopr",
    "judge_sowr",
    "majority",
    "official",
    "own",
    "protocol",
    "retried",
    "unanswered",
]
