"""The apps of an agent entry, open and ready to be called, from the checked app specifications."""

from __future__ import annotations

import copy
import json
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ace_ray.benchmarks.acebench.categories import LANGUAGES
from ace_ray.benchmarks.acebench.environment.app import BASE, App, InitialState, Phone, Texts
from ace_ray.benchmarks.acebench.environment.finance import FINANCE
from ace_ray.benchmarks.acebench.environment.food import FOOD
from ace_ray.benchmarks.acebench.environment.message import MESSAGE
from ace_ray.benchmarks.acebench.environment.reminder import REMINDER
from ace_ray.benchmarks.acebench.environment.travel import TRAVEL
from ace_ray.benchmarks.dataset import json_value, read_bounded
from ace_ray.errors import UserError
from ace_ray.records import Entry
from ace_ray.sandbox.protocol import Observation
from ace_ray.sandbox.tools import Tool, call_tool, unknown_tool

PHONE_APPS = (MESSAGE, REMINDER, FOOD)
APPS: Mapping[str, App] = {app.name: app for app in (BASE, *PHONE_APPS, TRAVEL, FINANCE)}


LOOPS = ("multi_turn", "multi_step")
APP_SPECS_FILE = Path("upstream", "worlds.json")
OURS = frozenset({"Finance"})
"""Classes that the official app specifications do not have."""

_FIX = "run `ace-ray data import acebench PATH` again"


def load_app_specs(folder: Path) -> dict[str, Any]:
    """``app_specs[loop][language][class]`` from ``<folder>/upstream/worlds.json``.

    Raises `UserError` naming the file and the class, attribute or method that is missing or has
    the wrong shape.
    """
    path = folder / APP_SPECS_FILE
    app_specs: dict[str, Any] = json_value(read_bounded(path), path, _FIX)
    for problem in _problems(app_specs):
        raise UserError(problem, where=str(path), fix=_FIX)
    return app_specs


def check_entry(app_specs: Mapping[str, Any], entry: Entry) -> None:
    """Raise `UserError` naming the entry when its environment cannot be opened."""
    try:
        _check(app_specs, entry)
    except UserError as error:
        raise UserError(error.what, where=f"{entry.language} {entry.id}", fix=error.fix) from None


def _check(app_specs: Mapping[str, Any], entry: Entry) -> None:
    """Raise `UserError` unless the entry's classes and switches make an environment."""
    loop, involved_classes = _loop(entry), entry.data["involved_classes"]
    classes = app_specs.get(loop, {}).get(entry.language)
    if classes is None:
        raise UserError(f"there are no apps for {loop} in {entry.language}")
    for number, name in enumerate(involved_classes):
        if name not in APPS or name not in classes:
            names = ", ".join(key for key in APPS if key in classes)
            raise UserError(f"involves an unknown class {name!r}", fix=f"known are {names}")
        if name in involved_classes[:number]:
            raise UserError(f"involves {name} twice")
    config = entry.data["initial_config"].get("BaseApi", {})
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


def _problems(app_specs: Any) -> Iterator[str]:
    for loop in LOOPS:
        for language in LANGUAGES:
            classes = app_specs
            for key in (loop, language):
                classes = classes.get(key) if isinstance(classes, dict) else None
            if not isinstance(classes, dict):
                yield f"has no apps for {loop} in {language}"
                continue
            for app in APPS.values():
                where = f"{loop} {language} {app.name}"
                if app.name in classes:
                    for problem in _class_problems(app, classes[app.name]):
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
        description = described["methods"].get(method)
        if description is None and method in app.optional:
            continue
        texts = description.get("texts") if isinstance(description, dict) else None
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            yield f"has no method {method} with its texts"
        elif len(texts) != len(names):
            yield f"has {len(texts)} texts for {method} instead of {len(names)}"
    if app.name == "BaseApi":
        for name in ("wifi", "logged_in"):
            source = described["load_scenario"].get(name)
            has_key = isinstance(source, dict) and isinstance(source.get("key"), str)
            if not has_key or not isinstance(source.get("default"), bool):
                yield f"does not say in load_scenario where {name} comes from"


def _is_int(key: str) -> bool:
    return key.isascii() and key.isdigit()


MAX_SHOWN = 100
"""Answers that are kept as they are, so that they show what later calls change."""


class Environment:
    """A `Scenario` over the apps of one entry.

    ``apps`` are the involved classes in order with their open state, ``tools`` what a name calls.
    """

    def __init__(
        self, apps: Sequence[tuple[App, Any]], tools: Mapping[str, tuple[Any, Tool]]
    ) -> None:
        self._apps = apps
        self._tools = tools
        self._results: deque[Any] = deque(maxlen=MAX_SHOWN)

    def call(self, name: str, arguments: Mapping[str, Any]) -> Observation:
        """Run one tool. ``value`` is what the official execution puts into its list of results."""
        if name not in self._tools:
            return unknown_tool(name)
        state, tool = self._tools[name]
        observation = call_tool(tool, state, arguments)
        if observation.error:
            return observation
        self._results.append(observation.value)
        return Observation(as_message(observation.value))

    def shown(self, last: int) -> list[Any]:
        """What the last answers show now, at most `MAX_SHOWN`. The official execution writes the
        answers of a batch down at its end, and some hold records of the state itself."""
        kept = list(self._results)
        return [as_message(result) for result in kept[max(0, len(kept) - last) :]]

    def state(self) -> list[dict[str, dict[str, Any]]]:
        """``[{class: {attribute: value}}, ...]`` of the involved classes in order, as JSON has it.

        The attributes are those that the official harness records."""
        live = [
            {app.name: {name: vars(state)[name] for name in app.saved}} for app, state in self._apps
        ]
        recorded: list[dict[str, dict[str, Any]]] = json.loads(json.dumps(live))
        return recorded


def open_environment(app_specs: Mapping[str, Any], entry: Entry) -> Environment:
    """A fresh environment that shares nothing with ``app_specs`` or with another one.

    Only the switches under ``initial_config["BaseApi"]`` count; without them Wi-Fi is off and the
    device logged in (the file's ``load_scenario``), as in official row zh multi_turn_12, which has
    the key misspelt. Raises `UserError` for classes or switches that cannot be.
    """
    _check(app_specs, entry)
    language = entry.language
    classes = app_specs[_loop(entry)][language]
    config = entry.data["initial_config"].get("BaseApi", {})
    phone = _phone(classes, config)
    apps = []
    tools: dict[str, tuple[Any, Tool]] = {}
    for name in entry.data["involved_classes"]:
        app, described = APPS[name], classes[name]
        state = app.open(
            InitialState(
                state=_initial(described),
                texts=Texts(described["methods"], app.texts),
                phone=phone,
                language=language,
                config=config,
            )
        )
        apps.append((app, state))
        for tool_name, tool in app.tools.items():
            if tool_name in described["methods"]:
                tools[tool_name] = (state, tool)
        if app in PHONE_APPS:
            tools.update({key: (phone, tool) for key, tool in BASE.tools.items()})
    return Environment(apps, tools)


def as_message(result: Any) -> Any:
    """A tool's result as the official execution shows it.

    An object goes through JSON, so its integer keys become texts; anything else becomes Python's
    text of it; a text that happens to be JSON becomes its value ("500.0" a number, but a list of
    objects stays text, its quotes being single).
    """
    if isinstance(result, str):
        text = result
    elif isinstance(result, dict):
        text = json.dumps(result)
    else:
        text = str(result)
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def _loop(entry: Entry) -> str:
    return entry.category.removeprefix("agent_")


def _phone(classes: Mapping[str, Any], config: Mapping[str, Any]) -> Phone:
    described = classes[BASE.name]
    switches = {
        attribute: config.get(source["key"], source["default"])
        for attribute in ("wifi", "logged_in")
        if (source := described["load_scenario"][attribute])
    }
    texts = Texts(described["methods"], BASE.texts)
    return Phone(wifi=switches["wifi"], logged_in=switches["logged_in"], texts=texts)


def _initial(described: Mapping[str, Any]) -> dict[str, Any]:
    state: dict[str, Any] = copy.deepcopy(described["state"])
    for name in described["int_key_attrs"]:
        state[name] = {int(key): record for key, record in state[name].items()}
    return state
