"""The ``bfcl`` section of a run's config."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import Field, field_validator

from ace_ray.benchmarks.bfcl import categories as groups
from ace_ray.config.schema import Section
from ace_ray.errors import UserError
from ace_ray.util.suggestions import check_names

CHOICES: Mapping[str, Mapping[str, Sequence[str]]] = {
    "categories": {
        "all": groups.SCORING,
        **groups.GROUPS,
        **dict.fromkeys(groups.ALL_CATEGORIES, ()),
    }
}


# Categories of BFCL v3 that v4 renamed.
_FORMER_NAMES = {
    "simple": "simple_python",
    "java": "simple_java",
    "javascript": "simple_javascript",
}


class ServiceConfig(Section):
    url: str = Field(min_length=1)
    """URL of the service, without a query"""
    api_key_env: str | None = Field(None, min_length=1)
    """environment variable with the key, which is sent as a bearer token"""


class EmbeddingsConfig(ServiceConfig):
    model: str = Field(min_length=1)
    """the model's name at the endpoint"""


class WebSearchConfig(Section):
    search: ServiceConfig
    """search service: GET with q and max_results; returns a list of results"""
    fetch: ServiceConfig
    """fetch service: GET with url and mode; returns the page as text"""


class Options(Section):
    """Keys of the item ``{name: bfcl, ...}`` in the config key ``benchmarks``."""

    data: str = "mini"
    """data set: mini (ships with ace_ray), installed (the package bfcl-eval), imported,
    imported:VERSION, or a folder of bfcl-eval"""
    categories: list[str] = Field(default=["all"], min_length=1)
    """category names or groups; all: every scored category that can run"""
    mode: Literal["prompt", "native"] = "prompt"
    """way to offer functions; native: through the model's template, read by model.tool_parser"""
    system: Literal["system", "user"] = "system"
    """role of system messages; user: for templates that reject the system role"""
    results: Literal["tool", "user"] = "tool"
    """role of tool results in prompt mode; user: one message, as upstream sends to API models"""
    embedding: EmbeddingsConfig | None = None
    """OpenAI-compatible endpoint for text embeddings, used by memory_vector"""
    web_search: WebSearchConfig | None = None
    """search and fetch services for the web_search categories"""
    contamination: bool = False
    """measure contamination: ask the engine how likely the gold calls are"""

    @field_validator("categories")
    @classmethod
    def _dedupe(cls, names: list[str]) -> list[str]:
        return list(dict.fromkeys(names))


def absence_reasons(options: Options) -> dict[str, str]:
    """Return ``{category: reason}`` for the categories that cannot run as configured."""
    reasons = {}
    if options.embedding is None:
        reasons["memory_vector"] = "no embedding endpoint is configured (embedding)"
    if options.web_search is None:
        why = "no services to search and fetch are configured (web_search)"
        reasons |= dict.fromkeys(groups.WEB_SEARCH, why)
    if options.mode == "native":
        reasons[groups.FORMAT_SENSITIVITY] = "prompt formats need prompt mode"
    return reasons


def requested_categories(options: Options) -> set[str]:
    """Return the names of all requested categories, including members of requested groups."""
    categories: set[str] = set()
    for name in options.categories:
        categories.update(groups.SCORING if name == "all" else groups.GROUPS.get(name, (name,)))
    return categories


def categories_of(options: Options) -> list[str]:
    """Return the categories to run, in upstream's order.

    Raises:
        UserError: a name is unknown, or a requested category or group cannot run as configured."""
    missing = absence_reasons(options)
    location = "benchmarks.bfcl.categories"
    for name in options.categories:
        if name in _FORMER_NAMES:
            problem = f"BFCL v4 has no category {name!r}"
            raise UserError(problem, where=location, fix=f"write {_FORMER_NAMES[name]}")
    check_names(
        options.categories, CHOICES["categories"], kind="category or group", location=location
    )
    for name in options.categories:
        members: Sequence[str] = groups.GROUPS.get(name, (name,))
        if missing.keys() >= set(members):
            problem = f"{name!r} cannot be run: {missing[members[0]]}"
            fix = "configure what is missing, or leave the category out"
            raise UserError(problem, where=location, fix=fix)
    categories = requested_categories(options)
    return [name for name in groups.ALL_CATEGORIES if name in categories and name not in missing]
