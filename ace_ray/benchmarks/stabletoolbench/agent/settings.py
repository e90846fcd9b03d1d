"""How an agent works: method, form of its calls, and limits."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

from ace_ray.benchmarks.stabletoolbench.agent.texts import OWN, Texts
from ace_ray.benchmarks.stabletoolbench.tools import Rules
from ace_ray.errors import UserError

Form = Literal["native", "react"]

MAX_STEPS, MAX_QUERIES, MAX_OBSERVATION = 50, 200, 1024
"""Upstream's defaults (``qa_pipeline_multithread.py``); ToolBench and the published examples have
12 steps."""
MAX_CALLS = 64
"""Calls of one reply that are looked at; the rest is counted and dropped."""

_METHOD = re.compile(r"CoT@([1-9][0-9]?)|DFS_woFilter_w([1-9])")


@dataclass(frozen=True)
class Settings:
    """``method`` is upstream's name: ``CoT@n`` tries n single chains, ``DFS_woFilter_w2`` is
    DFSDT with 2 children a node. ``max_steps`` is the depth of a chain in nodes (a thought, an
    action and its input are one each), ``max_queries`` the model calls (``CoT`` has that limit
    under ``fixed`` only). Raises `UserError` on a bad value.
    """

    method: str = "CoT@1"
    form: Form = "native"
    rules: Rules = "official"
    max_steps: int = MAX_STEPS
    max_queries: int = MAX_QUERIES
    max_observation: int = MAX_OBSERVATION
    observation_role: Literal["user", "tool"] = "user"
    """The ReAct form's: who says observations. ToolLLaMA's own template takes ``tool``."""
    texts: Texts = OWN

    def __post_init__(self) -> None:
        if not _METHOD.fullmatch(self.method):
            raise UserError(
                f"unknown method {self.method!r:.60}",
                where="benchmarks.stabletoolbench.method",
                fix="write CoT@<tries> or DFS_woFilter_w<children>, such as CoT@1",
            )
        for name, most in (("max_steps", 200), ("max_queries", 10_000), ("max_observation", 10**6)):
            value = getattr(self, name)
            if not 1 <= value <= most:
                raise UserError(
                    f"{name} is {value}",
                    where=f"benchmarks.stabletoolbench.{name}",
                    fix=f"write a number from 1 to {most:,}",
                )

    @property
    def tries(self) -> int:
        """Chains of ``CoT``; 0 for a tree."""
        found = _METHOD.fullmatch(self.method)
        return int(found[1] or 0) if found else 0

    @property
    def width(self) -> int:
        """Children a node of the tree; 0 for chains."""
        found = _METHOD.fullmatch(self.method)
        return int(found[2] or 0) if found else 0

    def identity(self) -> dict[str, Any]:
        """What of it can move a score (JSON values)."""
        return {
            "method": self.method,
            "form": self.form,
            "rules": self.rules,
            "max_steps": self.max_steps,
            "max_queries": self.max_queries,
            "max_observation": self.max_observation,
            "observation_role": self.observation_role if self.form == "react" else None,
            "texts": self.texts.source,
            "texts_sha256": self.texts.sha256(),
        }
