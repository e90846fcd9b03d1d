"""Verdicts under both rule sets, on one model output (generation categories) or on an episode.

- ``official``: what the benchmark's own evaluator says, quirks included (`official`,
  `agent_official`);
- ``strict``: the paper's definition (`strict`, `agent_strict`).

Neither executes anything of an output, and no output makes them raise, hang or grow.
"""

from __future__ import annotations

from typing import Any

from ace_ray.benchmarks.acebench.categories import AGENT, MULTI_TURN, NORMAL, SPECIAL
from ace_ray.benchmarks.acebench.check import agent_official, agent_strict
from ace_ray.benchmarks.acebench.check.decode import decode
from ace_ray.benchmarks.acebench.check.official import judge_normal as official_normal
from ace_ray.benchmarks.acebench.check.official import judge_special as official_special
from ace_ray.benchmarks.acebench.check.strict import judge_normal as strict_normal
from ace_ray.benchmarks.acebench.check.strict import judge_special as strict_special
from ace_ray.types import Entry, Verdict

__all__ = ["check", "check_agent", "holds_calls"]


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


def holds_calls(entry: Entry, output: str) -> bool:
    """Return whether either rule set reads a call in ``output``, or would have to run something to
    know."""
    decoded = decode(output, whole=entry.category in MULTI_TURN)
    calls = [read for read in (decoded.official, decoded.strict) if isinstance(read, list)]
    return decoded.unsafe or any(calls)


def check_agent(
    entry: Entry, result: Any, process: Any, *, end: Any = None, steps: Any = None
) -> dict[str, Verdict]:
    """The verdicts of both rule sets on an episode of an agent category; JSON values, any shape.

    ``result`` is the final state as upstream records it, ``[{class: attributes}, ...]``, and
    ``process`` the texts that were sent to execution; the official rules look at nothing else.
    ``end`` is the true end state, ``result`` where it is not known, and ``steps`` the transcript
    (see `agent_strict.made`); the strict rules take them first. ``valid`` is end-to-end; metrics
    are ``end_to_end`` and ``process_accuracy``. Raises `ValueError` for another category.
    """
    if entry.category not in AGENT:
        raise ValueError(f"{entry.category} is not an agent category")
    return {
        "official": agent_official.judge(entry.gold, result, process),
        "strict": agent_strict.judge(entry, result, process, end=end, steps=steps),
    }
