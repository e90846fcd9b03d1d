"""The world file: read, and checked before an episode depends on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ace_ray.benchmarks.acebench.categories import LANGUAGES
from ace_ray.benchmarks.acebench.scenarios.app import App
from ace_ray.benchmarks.acebench.scenarios.apps import APPS
from ace_ray.benchmarks.dataset import json_value, read_bounded
from ace_ray.errors import UserError
from ace_ray.records import Entry

LOOPS = ("multi_turn", "multi_step")
WORLDS_FILE = Path("upstream", "worlds.json")
OURS = frozenset({"Finance"})
"""Classes that a file of the official worlds does not have."""

_FIX = "run `ace-ray data import acebench PATH` again"


def load_worlds(folder: Path) -> dict[str, Any]:
    """``worlds[loop][language][class]`` from ``<folder>/upstream/worlds.json``.

    Raises `UserError` naming the file and the class, attribute or method that is missing or has
    the wrong shape.
    """
    path = folder / WORLDS_FILE
    worlds: dict[str, Any] = json_value(read_bounded(path), path, _FIX)
    for problem in _problems(worlds):
        raise UserError(problem, where=str(path), fix=_FIX)
    return worlds


def check_entry(worlds: Mapping[str, Any], entry: Entry) -> None:
    """Raise `UserError` naming the entry when its world cannot be opened."""
    try:
        check_classes(
            worlds,
            entry.category.removeprefix("agent_"),
            entry.language,
            entry.data["involved_classes"],
            entry.data["initial_config"],
        )
    except UserError as error:
        raise UserError(error.what, where=f"{entry.language} {entry.id}", fix=error.fix) from None


def check_classes(
    worlds: Mapping[str, Any],
    loop: str,
    language: str,
    involved_classes: Sequence[str],
    initial_config: Mapping[str, Any],
) -> None:
    """Raise `UserError` unless these classes and switches make a world."""
    classes = worlds.get(loop, {}).get(language)
    if classes is None:
        raise UserError(f"there are no worlds for {loop} in {language}")
    for number, name in enumerate(involved_classes):
        if name not in APPS or name not in classes:
            known = ", ".join(key for key in APPS if key in classes)
            raise UserError(f"involves an unknown class {name!r}", fix=f"known are {known}")
        if name in involved_classes[:number]:
            raise UserError(f"involves {name} twice")
    config = initial_config.get("BaseApi", {})
    if not isinstance(config, dict):
        raise UserError("initial_config.BaseApi is not an object")
    for name in ("wifi", "logged_in"):
        if not isinstance(config.get(name, True), bool):
            raise UserError(f"initial_config.BaseApi.{name} is neither true nor false")
    users = config.get("logged_in_users", [])
    if not isinstance(users, list) or any(not isinstance(user, str) for user in users):
        raise UserError("initial_config.BaseApi.logged_in_users is not a list of names")
    if "FoodPlatform" in involved_classes:
        for user in users:
            if user not in classes["FoodPlatform"]["state"]["users"]:
                raise UserError(f"initial_config.BaseApi.logged_in_users: unknown user {user!r}")


def _problems(worlds: Any) -> Iterator[str]:
    for loop in LOOPS:
        for language in LANGUAGES:
            found = worlds
            for key in (loop, language):
                found = found.get(key) if isinstance(found, dict) else None
            if not isinstance(found, dict):
                yield f"has no worlds for {loop} in {language}"
                continue
            for app in APPS.values():
                where = f"{loop} {language} {app.name}"
                if app.name in found:
                    for problem in _class_problems(app, found[app.name]):
                        yield f"{where} {problem}"
                elif app.name not in OURS:
                    yield f"{where} is missing"


def _class_problems(app: App, described: Any) -> Iterator[str]:
    parts = {"state": dict, "methods": dict, "int_key_attrs": list, "load_scenario": dict}
    if not isinstance(described, dict):
        yield "is not an object"
        return
    broken = [name for name, kind in parts.items() if not isinstance(described.get(name), kind)]
    if broken:
        yield f"has no {broken[0]}"
        return
    state = described["state"]
    for name, (kind, fields) in app.attributes.items():
        if name not in state or not isinstance(state[name], kind):
            yield f"has no attribute {name} of type {kind.__name__}"
        elif fields:
            records = state[name].values() if kind is dict else state[name]
            for field in fields:
                if any(not isinstance(record, dict) or field not in record for record in records):
                    yield f"has a record without {field} in {name}"
    for name in described["int_key_attrs"]:
        if not isinstance(name, str):
            yield "has int_key_attrs that are no names"
        elif not isinstance(state.get(name), dict) or not all(_is_int(key) for key in state[name]):
            yield f"has keys in {name} that are no integers"
    for method, names in app.texts.items():
        found = described["methods"].get(method)
        if found is None and method in app.optional:
            continue
        texts = found.get("texts") if isinstance(found, dict) else None
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            yield f"has no method {method} with its texts"
        elif len(texts) != len(names):
            yield f"has {len(texts)} texts for {method} instead of {len(names)}"
    if app.name == "BaseApi":
        for name in ("wifi", "logged_in"):
            source = described["load_scenario"].get(name)
            said = isinstance(source, dict) and isinstance(source.get("key"), str)
            if not said or not isinstance(source.get("default"), bool):
                yield f"does not say in load_scenario where {name} comes from"


def _is_int(key: str) -> bool:
    return key.isascii() and key.isdigit()
