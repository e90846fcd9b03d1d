"""The ``stabletoolbench`` section of a run's config."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator

from ace_ray.benchmarks.stabletoolbench.agent.settings import (
    MAX_OBSERVATION,
    MAX_QUERIES,
    MAX_STEPS,
)
from ace_ray.benchmarks.stabletoolbench.apis.real import RealConfig
from ace_ray.benchmarks.stabletoolbench.groups import GROUPS
from ace_ray.config import Section

_ROLE = (
    "same (the candidate, within sampling.max_tokens), {model: {source: ...}} served on the "
    "cluster, or {endpoint: {url: ..., model: ...}}"
)

FOLDERS = ("data", "upstream", "tool_folder", "recorded", "reference", "cache_folder")
"""Keys that may name a folder, of this machine."""


class Options(Section):
    """Keys of the item ``{name: stabletoolbench, ...}`` of ``benchmarks``."""

    data: str = Field(
        "mini",
        description="mini (ships with ace_ray), imported, imported:VERSION, or a folder that is or "
        "holds solvable_queries",
    )
    groups: list[str] = Field(list(GROUPS), min_length=1, description="of queries")
    upstream: str | None = Field(
        None, description="a checkout of StableToolBench: its prompts instead of ace_ray's own"
    )
    tool_folder: str | None = Field(
        None, description="a tool directory, <Category>/<tool>.json, that describes the APIs"
    )
    without_apis: Literal["refuse", "skip"] = Field(
        "refuse", description="what to do about a query without APIs"
    )
    tool_scope: Any = Field(
        "query",
        description="what an agent is offered: query (its own APIs), {distractors: k} more, "
        "{retrieved: k} by BM25, or all",
    )
    tool_scope_seed: int = Field(0, ge=0, description="draws the distractors")
    max_tool_chars: int = Field(
        200_000, ge=1, description="longest list of functions that tool_scope: all may make"
    )
    tools: Literal["official", "fixed"] = Field(
        "official", description="function names, parameters and dispatch: upstream's, or mended"
    )
    method: str = Field("CoT@1", description="CoT@<tries>, or DFS_woFilter_w2 (DFSDT)")
    mode: Literal["native", "react"] = Field(
        "native", description="native: the model's own tool calling; react: Thought, Action, Input"
    )
    max_steps: int = Field(MAX_STEPS, ge=1, description="depth of a chain, in nodes")
    max_queries: int = Field(MAX_QUERIES, ge=1, description="model calls of a search")
    max_observation: int = Field(MAX_OBSERVATION, ge=1, description="characters of an observation")
    apis: list[str] = Field(
        default=["cache", "simulator"],
        min_length=1,
        description="who answers API calls, in order: some of cache, real, simulator, stub",
    )
    cache: Literal["off", "read", "readwrite"] = Field(
        "readwrite", description="readwrite: new answers are recorded"
    )
    cache_folder: str | None = Field(
        None,
        description="of recorded answers; default: in $ACE_RAY_CACHE, on the driver's machine",
    )
    cache_any_simulator: bool = Field(
        False, description="also use answers on record that another simulator made"
    )
    recorded: str | None = Field(
        None, description="upstream's tool_response_cache, if not in cache_folder"
    )
    simulator: Any = Field("same", description=f"who plays the APIs: {_ROLE}")
    stub_seed: int = Field(0, ge=0, description="of the stub's values")
    real: RealConfig | None = Field(None, description="which hosts real APIs may be asked at")
    judge: Any = Field("same", description=f"who judges answers: none, {_ROLE}")
    votes: int = Field(3, ge=1, le=32, description="of the judge on each answer")
    fac: bool = Field(False, description="also judge the final answer's completeness alone")
    reference: str | None = Field(
        None, description="folder of another run's converted answers, to be compared with (SoWR)"
    )

    @field_validator("groups")
    @classmethod
    def _once(cls, names: list[str]) -> list[str]:
        return list(dict.fromkeys(names))
