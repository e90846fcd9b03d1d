"""Verdicts on one model output of the 15 generation categories, under both rule sets.

- ``official``: what the benchmark's own evaluator says, quirks included (`official`);
- ``strict``: the paper's definition (`strict_normal`, `strict_special`).

Neither executes anything of an output, and no output makes them raise, hang or grow.
"""

from __future__ import annotations

from ace_ray.benchmarks.acebench.categories import MULTI_TURN, NORMAL, SPECIAL
from ace_ray.benchmarks.acebench.check.decode import decode
from ace_ray.benchmarks.acebench.check.official import judge_normal as official_normal
from ace_ray.benchmarks.acebench.check.official import judge_special as official_special
from ace_ray.benchmarks.acebench.check.strict_normal import judge as strict_normal
from ace_ray.benchmarks.acebench.check.strict_special import judge as strict_special
from ace_ray.records import Entry, Verdict

__all__ = ["check"]


def check(entry: Entry, output: str | None) -> dict[str, Verdict]:
    """The verdicts of both rule sets on ``output``, the model's whole answer to ``entry``.

    ``entry.data`` is the published question row and ``entry.gold`` the ``ground_truth`` of its
    answer row. Each row of a multi-turn dialogue is judged alone. ``None`` stands for a missing
    answer. Raises `ValueError` for a category that is not answered with one model call.
    """
    if entry.category in SPECIAL:
        return {
            "official": official_special(entry, output),
            "strict": strict_special(entry, output),
        }
    if entry.category not in NORMAL:
        raise ValueError(f"{entry.category} is not a category with one output per row")
    decoded = decode(output, whole=entry.category in MULTI_TURN)
    return {
        "official": official_normal(entry, decoded),
        "strict": strict_normal(entry, decoded.strict),
    }
