"""The ``stabletoolbench`` section of a run's config, and the settings of its agents."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field, field_validator

from ace_ray.benchmarks.stabletoolbench.apis.real import RealConfig
from ace_ray.benchmarks.stabletoolbench.prompts import OWN, Texts
from ace_ray.config.schema import Section

# Upstream's defaults (``qa_pipeline_multithread.py``); ToolBench and examples have 12 steps.
MAX_STEPS, MAX_QUERIES, MAX_OBSERVATION = 50, 200, 1024
# Maximum calls of one reply; further calls are counted and dropped.
MAX_CALLS = 64

_METHOD = re.compile(r"CoT@[1-9][0-9]?|DFS_woFilter_w[1-9]")


_ROLE = (
    "same (the candidate, within sampling.max_tokens), {model: {source: ...}} served on the "
    "cluster, or {endpoint: {url: ..., model: ...}}"
)

# Keys whose value may be a local folder.
FOLDERS = ("data", "upstream", "tool_folder", "reference", "cache_folder")


class Retrieved(Section):
    """Offer the APIs that fit the query's text best, from all APIs of the data."""

    retrieved: int = Field(ge=1)
    """number of APIs"""


class Distractors(Section):
    """Offer the query's APIs and random other APIs of the data."""

    distractors: int = Field(ge=1)
    """number of other APIs"""
    seed: int = Field(0, ge=0)
    """seed that draws the other APIs"""


Scope = Literal["query", "all"] | Retrieved | Distractors


class Options(Section):
    """Keys of the item ``{name: stabletoolbench, ...}`` of ``benchmarks``."""

    data: str = "mini"
    """data set: mini (ships with ace_ray), imported, imported:VERSION, or a folder that is or
    contains solvable_queries"""
    groups: list[str] | None = Field(None, min_length=1)
    """groups of queries; default: all groups in the data"""
    upstream: str | None = None
    """checkout of StableToolBench whose prompts replace ace_ray's own"""
    tool_folder: str | None = None
    """tool directory that describes the APIs: <Category>/<tool>.json, or
    <Category>/<tool>/<api>.json"""
    tool_scope: Scope = "query"
    """APIs offered to the agent: query: the query's; {retrieved: K}: the K best of all for the
    query's text; {distractors: K}: the query's and K others; all: all of the data and of
    tool_folder"""
    # ``CoT@n`` runs up to n single chains. ``DFS_woFilter_w2`` is a depth-first tree search (DFSDT)
    # with 2 children for each node. These are upstream's names.
    method: str = "CoT@1"
    """search method: CoT@<tries>, or DFS_woFilter_w2 (DFSDT)"""
    mode: Literal["native", "react"] = "native"
    """prompt format; native: the model's own tool calling; react: Thought, Action, Input"""
    # A thought, an action and its input are one node each.
    max_steps: int = Field(MAX_STEPS, ge=1, le=200)
    """maximum depth of a chain, in nodes"""
    max_queries: int = Field(MAX_QUERIES, ge=1, le=10_000)
    """maximum model calls per search"""
    apis: list[str] = Field(default=["cache", "simulator"], min_length=1)
    """sources of API answers, in the order in which they are tried: cache, real, simulator"""
    cache: Literal["read", "readwrite"] = "readwrite"
    """access to the cache; readwrite: record new answers"""
    cache_folder: str | None = None
    """folder of recorded answers; default: in $ACE_RAY_CACHE, on the driver's machine"""
    simulator: Any = Field("same", description=f"model that simulates the APIs: {_ROLE}")
    real: RealConfig | None = None
    """service that calls the real APIs"""
    judge: Any = Field("same", description=f"model that judges answers: none, {_ROLE}")
    votes: int = Field(3, ge=1, le=32)
    """votes of the judge on each answer"""
    fac: bool = False
    """judge the completeness of the final answer separately as well"""
    reference: str | None = None
    """folder with another run's converted answers to compare with (SoWR)"""

    @field_validator("method")
    @classmethod
    def _check_method(cls, method: str) -> str:
        if not _METHOD.fullmatch(method):
            raise ValueError("CoT@<tries> or DFS_woFilter_w<children>")
        return method

    @field_validator("groups")
    @classmethod
    def _dedupe(cls, names: list[str] | None) -> list[str] | None:
        return names and list(dict.fromkeys(names))


@dataclass(frozen=True)
class Settings:
    """Settings of an agent: the options, and the texts of its prompts."""

    options: Options
    texts: Texts = OWN

    @property
    def is_react(self) -> bool:
        return self.options.mode == "react"

    @property
    def exact_names(self) -> bool:
        """True if calls must name a function exactly; many names in a pool end alike."""
        return self.options.tool_scope != "query"

    @property
    def tries(self) -> int:
        """Number of chains of ``CoT``; 0 for a tree."""
        return int(self.options.method.partition("CoT@")[2] or 0)

    @property
    def width(self) -> int:
        """Children of each node of the tree; 0 for chains."""
        return int(self.options.method.partition("DFS_woFilter_w")[2] or 0)

    def identity(self) -> dict[str, Any]:
        """Return the settings that can change a score (JSON values)."""
        return {
            "method": self.options.method,
            "form": self.options.mode,
            "max_steps": self.options.max_steps,
            "max_queries": self.options.max_queries,
            "texts": self.texts.source,
            "texts_sha256": self.texts.sha256(),
        }
