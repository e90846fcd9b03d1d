"""Verdicts under both rule sets on one model output; `agent` has those on episodes.

- ``official``: what the benchmark's own evaluator says, quirks included;
- ``strict``: the paper's definition.

Neither executes anything of an output, and no output makes them raise, hang or grow.
"""

from __future__ import annotations

from ace_ray.benchmarks.acebench.categories import MULTI_TURN, NORMAL, SPECIAL
from ace_ray.benchmarks.acebench.check.decode import decode
from ace_ray.benchmarks.acebench.check.official import judge_normal as official_normal
from ace_ray.benchmarks.acebench.check.official import judge_special as official_special
from ace_ray.benchmarks.acebench.check.strict import judge_normal as strict_normal
from ace_ray.benchmarks.acebench.check.strict import judge_special as strict_special
from ace_ray.types import Entry, Verdict


def check(entry: Entry, output: str | None) -> dict[str, Verdict]:
    """Return the verdicts of both rule sets on ``output``, the whole answer of the model.

    ``entry.data`` is the published question row and ``entry.gold`` the ``ground_truth`` of its
    answer row. Each row of a multi-turn dialogue is judged alone. None is a missing answer. Raises
    `ValueError` for a category that is not answered with one model call.
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


def holds_calls(entry: Entry, output: str) -> bool:
    """Return whether a rule set reads a call in ``output``, or would have to run code to know."""
    decoded = decode(output, whole=entry.category in MULTI_TURN)
    calls = [read for read in (decoded.official, decoded.strict) if isinstance(read, list)]
    return decoded.unsafe or any(calls)
