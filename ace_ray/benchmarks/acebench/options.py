"""The categories of ACEBench and their groups (upstream ``category.py``), and the ``acebench``
section of a run's config."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator

from ace_ray.benchmarks.acebench.prompts import OFFICIAL_FILE
from ace_ray.config.schema import Section
from ace_ray.errors import UserError
from ace_ray.util.suggestions import check_names

LANGUAGES = ("en", "zh")

ATOM = (
    "normal_atom_bool",
    "normal_atom_enum",
    "normal_atom_number",
    "normal_atom_list",
    "normal_atom_object_deep",
    "normal_atom_object_short",
)
SINGLE_TURN = ("normal_single_turn_single_function", "normal_single_turn_parallel_function")
MULTI_TURN = ("normal_multi_turn_user_switch", "normal_multi_turn_user_adjust")
NORMAL = (*ATOM, *SINGLE_TURN, *MULTI_TURN, "normal_similar_api", "normal_preference")
SPECIAL = ("special_incomplete", "special_error_param", "special_irrelevant")
AGENT = ("agent_multi_turn", "agent_multi_step")
# Categories that take one model call per row.
GENERATION = (*NORMAL, *SPECIAL)
CATEGORIES = (*GENERATION, *AGENT)


# Numbers of agent entries that share a question and differ in their functions. English and Chinese
# entries with the same number are translations of each other.
_AGENT_TASKS = {
    "agent_multi_turn": (range(0, 4), range(5, 8), range(8, 12), range(12, 16), range(16, 20)),
    "agent_multi_step": (
        *(range(0, 2), range(2, 4), range(4, 6), range(6, 10)),
        *(range(10, 14), range(14, 18), range(18, 20)),
    ),
}


def agent_task(category: str, entry_id: str) -> str:
    """Return the key of an agent entry's question. Entries of both languages can share a key."""
    number = entry_id.rsplit("_", 1)[-1]
    if number.isascii() and number.isdigit():
        for numbers in _AGENT_TASKS[category]:
            if int(number) in numbers:
                return f"{category}_{numbers[0]}"
    return f"{category}_{number}"


def group_of(category: str, entry_id: str) -> str:
    """Return the group of an entry: its dialogue in multi-turn categories, its id in the others.

    Multi-turn ids end in ``_<dialogue>_<turn>``."""
    return entry_id.rsplit("_", 1)[0] if category in MULTI_TURN else entry_id


GROUPS = {
    "all": CATEGORIES,
    "generation": GENERATION,
    "agent": AGENT,
    "atom": ATOM,
    "single_turn": SINGLE_TURN,
    "multi_turn": MULTI_TURN,
    "normal": NORMAL,
    "special": SPECIAL,
}


CHOICES: Mapping[str, Mapping[str, Sequence[str]]] = {
    "categories": {**GROUPS, **dict.fromkeys(CATEGORIES, ())},
    "languages": dict.fromkeys(LANGUAGES, ()),
}


UPSTREAM_MESSAGES = 40


class Options(Section):
    """Keys of the item ``{name: acebench, ...}`` of ``benchmarks`` in a config."""

    data: str = "mini"
    """data set: mini (ships with ace_ray), imported, imported:VERSION, or a folder of ACEBench"""
    languages: list[Literal["en", "zh"]] = Field(default=["en", "zh"], min_length=1)
    """languages of the entries"""
    categories: list[str] = Field(default=["all"], min_length=1)
    """category names or groups"""
    prompts: Literal["auto", "official", "own"] = "auto"
    """wording of prompts; auto: official if the data has official prompts, else ace_ray's own"""
    variant: Literal["standard", "condensed", "minimal"] = "standard"
    """variant of the normal prompt, as in the paper's appendix D.4"""
    prompt_file: str | dict[str, str] | None = None
    """JSON file of prompt texts by upstream's names, or the texts themselves, in place of the texts
    of these names that prompts and variant select"""
    mode: Literal["prompt", "native"] = "prompt"
    """way to offer functions; native: through the model's template, read by model.tool_parser"""
    max_messages: int = Field(UPSTREAM_MESSAGES, ge=2, le=1000)
    """maximum messages per agent episode"""
    user: Any = "same"
    """model that simulates the user: same (the candidate, within sampling.max_tokens), {model:
    {source: ...}} served on the cluster, or {endpoint: {url: ..., model: ...}}"""

    @field_validator("languages")
    @classmethod
    def _deduplicate(cls, names: list[str]) -> list[str]:
        return list(dict.fromkeys(names))


def wording(options: Options, folder: Path) -> Literal["official", "own"]:
    """Return who wrote the standard prompts: "official" (upstream) or "own" (ace_ray)."""
    if options.prompts != "auto":
        return options.prompts
    return "official" if (folder / OFFICIAL_FILE).is_file() else "own"


def check_native(options: Options) -> None:
    """Raise `UserError` for options that native tool calling does not support."""
    for key, is_set in (
        ("prompts", options.prompts == "official"),
        ("variant", options.variant != "standard"),
        ("prompt_file", options.prompt_file is not None),
    ):
        if is_set:
            raise UserError(
                f"{key!r} has no effect with mode: native, which has its own texts and reads "
                "calls with model.tool_parser",
                where=f"benchmarks.acebench.{key}",
                fix=f"leave {key} out, or write mode: prompt",
            )


def expand_names(names: Sequence[str]) -> list[str]:
    """Return the categories that ``names`` selects. Raises `UserError` for an unknown name."""
    location = "benchmarks.acebench.categories"
    check_names(names, CHOICES["categories"], kind="category or group", location=location)
    return list(dict.fromkeys(c for name in names for c in GROUPS.get(name, (name,))))
