"""What runs are compared on: groups of categories, single categories, each language and all."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ace_ray.report.paired import Stratum, Unit

ALL = "All"
"""The group of all categories."""


@dataclass(frozen=True, slots=True)
class Group:
    """Entries that are compared together; ``language`` is "" for all languages.

    ``category`` is true for a single category. In a group each entry or dialogue weighs the same.
    """

    name: str
    language: str
    strata: frozenset[Stratum]
    category: bool = False


def groups_of(units: Collection[Unit], named: Mapping[str, Sequence[str]]) -> list[Group]:
    """The groups that ``units`` fill: all languages first, groups before categories.

    ``named`` is `ace_ray.benchmarks.reporting.Reporting.groups`. A group of which a category is
    missing would bear its name wrongly and is left out; what holds the same entries comes once.
    """
    there = {unit[:2] for unit in units}
    languages = sorted({language for language, _ in there})
    order = list(dict.fromkeys(category for members in named.values() for category in members))
    order += sorted({category for _, category in there} - set(order))
    found: dict[frozenset[Stratum], Group] = {}
    for spoken in [languages, *([language] for language in languages)]:
        # Entries in one language are named by it.
        label = spoken[0] if len(spoken) == 1 else ""
        for group in _in(spoken, label, there, named, order):
            tongues = {language for language, _ in group.strata}
            if group.strata and len(tongues) == len(spoken):
                found.setdefault(group.strata, group)
    return list(found.values())


def _in(
    languages: Sequence[str],
    label: str,
    there: Collection[Stratum],
    named: Mapping[str, Sequence[str]],
    order: Sequence[str],
) -> Iterator[Group]:
    for name, members in named.items():
        wanted = frozenset((language, category) for language in languages for category in members)
        if wanted <= set(there):
            yield Group(name, label, wanted, category=len(members) == 1)
    every = frozenset(stratum for stratum in there if stratum[0] in languages)
    if len({category for _, category in every}) > 1:
        yield Group(ALL, label, every)
    for name in order:
        yield Group(name, label, frozenset(s for s in every if s[1] == name), category=True)
