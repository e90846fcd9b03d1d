"""Suggest the known name that a misspelt name may mean."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable

from ace_ray.errors import UserError

# Maximum number of characters of a name that are compared.
_LONGEST = 200


def closest_of(key: str, choices: Iterable[str], cutoff: float = 0.5) -> str | None:
    """Return the most similar name in ``choices``, ignoring case, or None if all are less similar
    than ``cutoff`` (difflib)."""
    plain = {_normalize_name(name): name for name in sorted(choices)}
    near = difflib.get_close_matches(_normalize_name(key), plain, n=1, cutoff=cutoff)
    return plain[near[0]] if near else None


def _normalize_name(name: str) -> str:
    """Normalize a name for comparisons: ``Multi-turn`` and ``multi_turn`` are equal."""
    return name[:_LONGEST].casefold().replace("-", "_").replace(" ", "_")


def did_you_mean(name: object, choices: Iterable[str], otherwise: str = "") -> str:
    """Return a suggestion for ``name``: the most similar known name. If there is none, return
    ``otherwise``, by default the list of known names."""
    choices = list(choices)
    near = closest_of(name, choices) if isinstance(name, str) else None
    return f"did you mean {near!r}?" if near else otherwise or f"known: {', '.join(choices)}"


def check_names(names: Iterable[str], domain: Collection[str], *, kind: str, location: str) -> None:
    """Raise `UserError` for the first of ``names`` that is not in ``domain``, with a suggestion."""
    for name in names:
        if name not in domain:
            fix = did_you_mean(name, domain)
            raise UserError(f"there is no {kind} {name!r:.100}", where=location, fix=fix)
