"""Build error messages for a config section, with suggestions for unknown keys and names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from ace_ray.errors import UserError
from ace_ray.util import vllm_source
from ace_ray.util.suggestions import closest_of

# Keys of sections by the dotted path of the section; "" is the top level.
Sections = Mapping[str, Sequence[str]]


def unknown_keys(fixes: Mapping[Any, str], *, source: str, label: str = "unknown key") -> UserError:
    """Return the error for unknown keys. ``fixes`` maps each key to a suggestion; ``source`` names
    the file or section."""
    if len(fixes) == 1:
        ((key, fix),) = fixes.items()
        return UserError(f"{label} {key!r}", where=source, fix=fix)
    listed = "; ".join(f"{key!r}: {fix}" for key, fix in fixes.items())
    return UserError(f"{len(fixes)} unknown keys", where=source, fix=listed)


def section_error(
    model: type[BaseModel],
    error: ValidationError,
    *,
    source: str,
    run: type[BaseModel],
    beside: Sequence[str] = (),
) -> UserError:
    """Build the error for an invalid section: with all unknown keys, or else the first problem.

    ``model`` is the pydantic model of the section. ``run`` is the model of a run's config, to which
    a misplaced key may belong. ``beside``: keys that the section accepts but ``model`` lacks."""
    problems = error.errors(include_url=False, include_context=False)
    unknown = [tuple(p["loc"]) for p in problems if p["type"] == "extra_forbidden"]
    if unknown:
        return _unknown_error(model, unknown, source, run, beside)
    first = problems[0]
    path, _ = _path(model, first["loc"])
    if first["type"] == "missing":
        # Do not use ``path``, which ends at a union.
        lacking = ".".join(str(part) for part in first["loc"])
        return UserError(f"{lacking!r} is missing", where=source, fix="add this key")
    # pydantic reports one problem for each member of a union.
    messages = [p["msg"] for p in problems if _path(model, p["loc"])[0] == path]
    rule = " or ".join(dict.fromkeys(map(_simplify_rule, messages)))
    key, value = ".".join(path), repr(first["input"])
    if len(value) > 60:
        value = value[:57] + "..."
    return UserError(f"{key!r} is {value}, it should {rule}", where=source, fix="correct the value")


def _unknown_error(
    model: type[BaseModel],
    locs: Sequence[tuple[str | int, ...]],
    source: str,
    run: type[BaseModel],
    beside: Sequence[str],
) -> UserError:
    elsewhere = sections_of(model) | ({} if model is run else sections_of(run))
    fixes = {}
    for loc in locs:
        (path, section), last = _path(model, loc), str(loc[-1])
        if path[-1] != last:  # the section is a member of a union
            fixes[".".join([*path, last])] = "correct the key or leave it out"
            continue
        keys = [*_keys(section or model), *(beside if len(path) == 1 else ())]
        but = ".".join(path[:-1]) if model is run else None
        fix = suggest_key(last, keys, elsewhere, but=but)
        is_known = closest_of(last, keys) or any(last in names for names in elsewhere.values())
        if model is run and path == [last] and not is_known:
            fix = f"an option of a benchmark is benchmarks.0.{last}; {fix}"
        fixes[".".join(path)] = fix
    return unknown_keys(fixes, source=source)


def sections_of(model: type[BaseModel], prefix: str = "") -> dict[str, list[str]]:
    """Return section -> keys for ``model`` and its sections. Keys of ``engine`` come from vLLM."""
    sections = {prefix.rstrip("."): _keys(model)}
    for name, field in model.model_fields.items():
        inner = _section(field.annotation)
        if inner is not None:
            sections |= sections_of(inner, f"{prefix}{name}.")
        elif name == "engine":
            sections[f"{prefix}{name}"] = vllm_source.engine_arguments()
    return sections


def suggest_key(
    key: str, names: Sequence[str], elsewhere: Sections, *, but: str | None = None
) -> str:
    """Return a suggestion for an unknown ``key`` of a section whose keys are ``names``.

    ``elsewhere``: section -> keys, for all sections. ``but``: section to skip in ``elsewhere``."""
    for path, keys in elsewhere.items():
        if key in keys and path != but:
            location = f"under {path!r}" if path else "at the top level"
            return f"{key!r} belongs {location}"
    if near := closest_of(key, names):
        return f"did you mean {near!r}?"
    return f"known keys: {', '.join(names)}" if names else "this section takes no keys"


def _simplify_rule(rule: str) -> str:
    """Convert pydantic's rule to the words that follow "it should" in our message."""
    rule = re.sub(r"^\w+ should ", "", rule.replace("Value error, ", "It should be ", 1))
    return re.sub(r"a valid dictionary or instance of \w+", "a mapping", rule)


def _path(
    model: type[BaseModel], loc: Sequence[str | int]
) -> tuple[list[str], type[BaseModel] | None]:
    """Return the keys in ``loc``, pydantic's path of a problem, up to the first union type, and the
    model of the last section. Later elements of ``loc`` are tags for the members of the union."""
    path: list[str] = []
    node: type[BaseModel] | None = model
    for part in loc:
        field = node.model_fields.get(str(part)) if node is not None else None
        path.append(str(part))
        if field is not None:
            node = _section(field.annotation) or _item(field.annotation)
            if node is None and get_origin(field.annotation) in (Union, UnionType):
                break
    return path, node


def _section(annotation: Any) -> type[BaseModel] | None:
    """Return the pydantic model of ``annotation``, which may also allow None."""
    kinds = get_args(annotation) if get_origin(annotation) in (Union, UnionType) else [annotation]
    kinds = [kind for kind in kinds if kind is not NoneType]
    only = kinds[0] if len(kinds) == 1 else None
    return only if isinstance(only, type) and issubclass(only, BaseModel) else None


def _item(annotation: Any) -> type[BaseModel] | None:
    """Return the pydantic model of the items if ``annotation`` is a list, else None."""
    return _section(*get_args(annotation)) if get_origin(annotation) is list else None


def _keys(model: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]
