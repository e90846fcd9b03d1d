"""The ``acebench`` section of a run's config."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator

from ace_ray.benchmarks.acebench import categories as groups
from ace_ray.benchmarks.acebench.prompts import OFFICIAL_FILE
from ace_ray.config.schema import Section
from ace_ray.config.suggestions import check_names
from ace_ray.errors import UserError

GROUPS = {
    "all": groups.CATEGORIES,
    "generation": groups.GENERATION,
    "agent": groups.AGENT,
    "atom": groups.ATOM,
    "single_turn": groups.SINGLE_TURN,
    "multi_turn": groups.MULTI_TURN,
    "normal": groups.NORMAL,
    "special": groups.SPECIAL,
}


CHOICES: Mapping[str, Mapping[str, Sequence[str]]] = {
    "categories": {**GROUPS, **dict.fromkeys(groups.CATEGORIES, ())},
    "languages": dict.fromkeys(groups.LANGUAGES, ()),
}


UPSTREAM_MESSAGES = 40


class Options(Section):
    """Keys of the item ``{name: acebench, ...}`` of ``benchmarks``."""

    data: str = Field(
        "mini",
        description="data set: mini (ships with ace_ray), imported, imported:VERSION, or a "
        "folder in the official layout",
    )
    languages: list[Literal["en", "zh"]] = Field(
        default=["en", "zh"], min_length=1, description="languages of the entries"
    )
    categories: list[str] = Field(
        default=["all"], min_length=1, description="category names or groups"
    )
    prompts: Literal["auto", "official", "own"] = Field(
        "auto",
        description="wording of the prompts; auto: official if the data contains official "
        "prompts, else ace_ray's own",
    )
    variant: Literal["standard", "condensed", "minimal"] = Field(
        "standard", description="variant of the normal prompt, as in the paper's appendix D.4"
    )
    mode: Literal["prompt", "native"] = Field(
        "prompt",
        description="way to offer functions; native: through the model's tool-calling template, "
        "with calls read by model.tool_parser",
    )
    max_messages: int = Field(
        UPSTREAM_MESSAGES, ge=2, le=1000, description="maximum messages per agent episode"
    )
    user: Any = Field(
        "same",
        description="model that simulates the user: same (the candidate, within "
        "sampling.max_tokens), {model: {source: ...}} served on the cluster, or "
        "{endpoint: {url: ..., model: ...}}",
    )

    @field_validator("languages")
    @classmethod
    def _once(cls, names: list[str]) -> list[str]:
        return list(dict.fromkeys(names))


def wording(options: Options, folder: Path) -> Literal["official", "own"]:
    """Return the source of the prompts. A shortened variant is partly ours in both cases."""
    if options.prompts != "auto":
        return options.prompts
    return "official" if (folder / OFFICIAL_FILE).is_file() else "own"


def check_native(options: Options) -> None:
    """Raise `UserError` for options that native tool calling does not support."""
    asked = {"prompts": options.prompts == "official", "variant": options.variant != "standard"}
    for key, is_asked in asked.items():
        if is_asked:
            raise UserError(
                f"{key!r} has no effect with mode: native, which has its own texts and reads "
                "calls with model.tool_parser",
                where=f"benchmarks.acebench.{key}",
                fix="leave it out, or write mode: prompt",
            )


def chosen(names: Sequence[str]) -> list[str]:
    """Return the categories of these names and groups, each once. Raises `UserError`."""
    categories: list[str] = []
    where = "benchmarks.acebench.categories"
    check_names(names, CHOICES["categories"], what="category or group", where=where)
    for name in names:
        categories += GROUPS.get(name, (name,))
    return list(dict.fromkeys(categories))
