"""Build error messages for a config section, with suggestions for unknown keys and names."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from ace_ray.errors import UserError
from ace_ray.util import vllm_source

# Keys of sections by the dotted path of the section; "" is the top level.
Sections = Mapping[str, Sequence[str]]
# Maximum number of characters of a name that are compared.
_LONGEST = 200
# Minimum similarity of a suggested name (difflib).
_LIKE = 0.5


def unknown_keys(fixes: Mapping[Any, str], *, where: str, what: str = "unknown key") -> UserError:
    several = len(fixes) > 1
    names = f"{len(fixes)} unknown keys" if several else f"{what} {next(iter(fixes))!r}"
    return UserError(names, where=where, fix=together(fixes))


def mistake(
    model: type[BaseModel],
    error: ValidationError,
    *,
    where: str,
    run: type[BaseModel],
    beside: Sequence[str] = (),
) -> UserError:
    """Build the error for an invalid section. It names all unknown keys, or else the first problem.

    ``model`` is the pydantic model of the section. ``run`` is the model of a run's config, to which
    a misplaced key may belong. ``beside``: keys that the section accepts besides those of
    ``model``."""
    problems = error.errors(include_url=False, include_context=False)
    unknown = [tuple(p["loc"]) for p in problems if p["type"] == "extra_forbidden"]
    if unknown:
        return _unknown(model, unknown, where, run, beside)
    first = problems[0]
    path = _path(model, first["loc"])
    if first["type"] == "missing":
        # Do not use ``path``, which ends at a union.
        lacking = ".".join(str(part) for part in first["loc"])
        return UserError(f"{lacking!r} is missing", where=where, fix="add it")
    # pydantic reports one problem for each member of a union.
    same = [p["msg"] for p in problems if _path(model, p["loc"]) == path]
    rule = " or ".join(dict.fromkeys(map(_plain, same)))
    key, value = ".".join(path), _short(first["input"])
    return UserError(f"{key!r} is {value}, it should {rule}", where=where, fix="correct the value")


def _unknown(
    model: type[BaseModel],
    places: Sequence[tuple[str | int, ...]],
    where: str,
    run: type[BaseModel],
    beside: Sequence[str],
) -> UserError:
    elsewhere = sections_of(model)
    elsewhere |= {path: keys for path, keys in sections_of(run).items() if model is not run}
    fixes = {}
    for loc in places:
        path, last = _path(model, loc), str(loc[-1])
        if path[-1] != last:  # the section is a member of a union
            name, fix = ".".join([*path, last]), "correct it or leave it out"
        else:
            name, own = ".".join(path), _keys(model, path[:-1])
            own += beside if len(path) == 1 else ()
            fix = instead(last, own, elsewhere, but=".".join(path[:-1]) if model is run else None)
        fixes[name] = fix
    return unknown_keys(fixes, where=where)


def together(fixes: Mapping[Any, str]) -> str:
    """Join the suggestions for all unknown keys into one line."""
    if len(fixes) == 1:
        return next(iter(fixes.values()))
    lines = []
    for key, fix in fixes.items():
        own = repr(str(key).rpartition(".")[2])
        # Only a suggestion for a misplaced key begins with the key.
        begins = fix.startswith(own)
        lines.append(repr(key) + fix.removeprefix(own) if begins else f"{key!r}: {fix}")
    return "; ".join(lines)


def sections_of(model: type[BaseModel], prefix: str = "") -> dict[str, list[str]]:
    """Return section -> keys for ``model`` and its sections. Keys of ``engine`` come from vLLM."""
    found = {prefix.rstrip("."): [field.alias or n for n, field in model.model_fields.items()]}
    for name, field in model.model_fields.items():
        inner = _section(field.annotation)
        if inner is not None:
            found |= sections_of(inner, f"{prefix}{name}.")
        elif name == "engine":
            found[f"{prefix}{name}"] = vllm_source.engine_arguments()
    return found


def instead(key: str, own: Sequence[str], elsewhere: Sections, *, but: str | None = None) -> str:
    """Return a suggestion for an unknown ``key`` of a section whose keys are ``own``.

    ``elsewhere``: section -> keys, for all sections. ``but``: section to skip in ``elsewhere``."""
    for path, keys in elsewhere.items():
        if key in keys and path != but:
            place = f"under {path!r}" if path else "at the top level"
            return f"{key!r} belongs {place}"
    if near := closest_of(key, own, _LIKE):
        return f"did you mean {near!r}?"
    return f"known keys: {', '.join(own)}" if own else "this section takes no keys"


def closest_of(key: str, known: Iterable[str], cutoff: float) -> str | None:
    """Return the most similar name in ``known``, ignoring case, or None if all differ too much."""
    plain = {_folded(name): name for name in sorted(known)}
    near = difflib.get_close_matches(_folded(key), plain, n=1, cutoff=cutoff)
    return plain[near[0]] if near else None


def _folded(name: str) -> str:
    """Normalize a name for comparisons: ``Multi-turn`` and ``multi_turn`` are equal."""
    return name[:_LONGEST].casefold().replace("-", "_").replace(" ", "_")


def did_you_mean(name: object, known: Iterable[str], otherwise: str = "") -> str:
    """Return a suggestion for ``name``: the most similar known name. If there is none, return
    ``otherwise``, by default the list of known names."""
    known = list(known)
    near = closest_of(name, known, _LIKE) if isinstance(name, str) else None
    return f"did you mean {near!r}?" if near else otherwise or f"known: {', '.join(known)}"


def check_names(names: Iterable[str], known: Collection[str], *, what: str, where: str) -> None:
    """Raise `UserError` for the first of ``names`` that is not ``known``, with a suggestion."""
    for name in names:
        if name not in known:
            fix = did_you_mean(name, known)
            raise UserError(f"there is no {what} {name!r:.100}", where=where, fix=fix)


def _plain(rule: str) -> str:
    """Convert pydantic's rule to the words that follow "it should" in our message."""
    rule = re.sub(r"^\w+ should ", "", rule.replace("Value error, ", "It should be ", 1))
    return re.sub(r"a valid dictionary or instance of \w+", "a mapping", rule)


def _path(model: type[BaseModel], loc: Sequence[str | int]) -> list[str]:
    """Return the parts of ``loc``, the path of a problem, up to the first union. Further parts are
    pydantic's tags for the members of the union."""
    path: list[str] = []
    node: type[BaseModel] | None = model
    for part in loc:
        field = node.model_fields.get(str(part)) if node is not None else None
        path.append(str(part))
        if field is None:
            continue
        inner = _section(field.annotation) or _item(field.annotation)
        if inner is not None:
            node = inner
        elif get_origin(field.annotation) in (Union, UnionType):
            return path
        else:
            node = None
    return path


def _section(annotation: Any) -> type[BaseModel] | None:
    """Return the pydantic model of ``annotation``, which may also allow None."""
    kinds = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else [annotation]
    kinds = [kind for kind in kinds if kind is not NoneType]
    only = kinds[0] if len(kinds) == 1 else None
    return only if isinstance(only, type) and issubclass(only, BaseModel) else None


def _item(annotation: Any) -> type[BaseModel] | None:
    """Return the pydantic model of the items if ``annotation`` is a list, else None."""
    return _section(*get_args(annotation)) if get_origin(annotation) is list else None


def _keys(node: type[BaseModel], path: Sequence[str]) -> list[str]:
    for part in path:
        field = node.model_fields.get(part)
        inner = field and (_section(field.annotation) or _item(field.annotation))
        if inner is not None:
            node = inner
    return [field.alias or name for name, field in node.model_fields.items()]


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
