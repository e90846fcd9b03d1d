"""``ace-ray list``: what there is to name in a config, by kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ace_ray.benchmarks.base import Benchmark
from ace_ray.benchmarks.registry import installed
from ace_ray.config.schema import SHIPPED, shipped_configs
from ace_ray.models.engine_args import parser_names


def listed(kind: str) -> dict[str, Any]:
    """What there is of a kind (``benchmarks``, ``categories``, ``configs``, ``parsers``), as JSON
    values. Raises `UserError`: vLLM is not installed."""
    if kind == "configs":
        return {
            name: _purpose((SHIPPED / f"{name}.yaml").read_text("utf-8"))
            for name in shipped_configs()
        }
    if kind == "parsers":
        return {kind: sorted(parser_names(kind)) for kind in ("reasoning", "tool")}
    known = dict(installed())
    if kind == "categories":
        return {
            name: {
                option: {one: list(members) for one, members in choices.items()}
                for option, choices in cls.choices.items()
            }
            for name, cls in known.items()
            if cls.choices
        }
    return {name: _described(cls) for name, cls in known.items()}


def _described(benchmark: type[Benchmark]) -> dict[str, Any]:
    members = {one for group in benchmark.groups.values() for one in group}
    chosen = next(iter(benchmark.choices.values()), dict.fromkeys(members, ()))
    categories = [one for one in chosen if not chosen[one]]
    return {"rule_sets": list(benchmark.rule_sets), "categories": len(categories)}


def _purpose(text: str) -> str:
    """The first line of a config's comment."""
    return text.partition("\n")[0].removeprefix("#").strip() if text.startswith("#") else ""


def lines(kind: str, found: Mapping[str, Any]) -> list[str]:
    """`listed` for people."""
    if kind == "configs":
        return [f"{name:22} {purpose}" for name, purpose in found.items()]
    if kind == "parsers":
        return [f"{part}: {', '.join(names)}" for part, names in found.items()]
    if kind == "benchmarks":
        return [
            f"{name:22} {facts['categories']} categories, rule sets {', '.join(facts['rule_sets'])}"
            for name, facts in found.items()
        ]
    told = []
    for name, options in found.items():
        for option, choices in options.items():
            told.append(f"{name} ({option})")
            groups = {one: members for one, members in choices.items() if members}
            told += [f"  {one}: {', '.join(members)}" for one, members in groups.items()]
            grouped = {member for members in groups.values() for member in members}
            if alone := [one for one in choices if one not in {*groups, *grouped}]:
                told.append(f"  {', '.join(alone)}")
    return told
