"""Open the apps of an agent entry from the app specifications, and call their tools."""

from __future__ import annotations

import copy
import json
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from ace_ray.benchmarks.acebench.environment.app import AS_PYTHON, App, InitialState, Phone, Texts
from ace_ray.benchmarks.acebench.environment.finance import FINANCE
from ace_ray.benchmarks.acebench.environment.food import FOOD
from ace_ray.benchmarks.acebench.environment.phone import BASE, MESSAGE, REMINDER
from ace_ray.benchmarks.acebench.environment.travel import TRAVEL
from ace_ray.benchmarks.acebench.options import LANGUAGES
from ace_ray.benchmarks.dataset import json_value, read_bounded
from ace_ray.errors import UserError
from ace_ray.sandbox.protocol import Observation
from ace_ray.sandbox.tools import Tool, call_tool, unknown_tool
from ace_ray.types import Entry

PHONE_APPS = (MESSAGE, REMINDER, FOOD)
APPS: Mapping[str, App] = {app.name: app for app in (BASE, *PHONE_APPS, TRAVEL, FINANCE)}


LOOPS = ("multi_turn", "multi_step")
APP_SPECS_FILE = Path("upstream", "worlds.json")
# Classes of the mini set that the official app specifications lack.
OURS = frozenset({"Finance"})

_FIX = "run `ace-ray data import acebench PATH` again"


def load_app_specs(folder: Path) -> dict[str, Any]:
    """Read ``app_specs[loop][language][class]`` from ``<folder>/upstream/worlds.json``.

    Raises `UserError` naming the file and the class that is missing or cannot be opened."""
    path = folder / APP_SPECS_FILE
    app_specs: dict[str, Any] = json_value(read_bounded(path), path, _FIX)
    for loop, language, name in product(LOOPS, LANGUAGES, APPS):
        try:
            classes = app_specs[loop][language]
            if name in classes or name not in OURS:
                _open_app(classes, name, language, {}, _phone(classes, {}))
        except AS_PYTHON as error:
            problem = f"{loop} {language} {name} cannot be opened ({type(error).__name__}: {error})"
            raise UserError(problem, where=str(path), fix=_FIX) from None
    return app_specs


def check_entry(app_specs: Mapping[str, Any], entry: Entry) -> None:
    """Raise `UserError` naming the entry if its classes or phone settings are invalid."""
    location = f"{entry.language} {entry.id}"
    classes = app_specs[_loop(entry)][entry.language]
    for name in entry.data["involved_classes"]:
        if name not in APPS or name not in classes:
            names = ", ".join(key for key in APPS if key in classes)
            problem = f"involves an unknown class {name!r}"
            raise UserError(problem, where=location, fix=f"known are {names}")
    config = entry.data["initial_config"].get("BaseApi", {})
    if not isinstance(config, dict):
        raise UserError("initial_config.BaseApi is not an object", where=location)
    for name in ("wifi", "logged_in"):
        if not isinstance(config.get(name, True), bool):
            problem = f"initial_config.BaseApi.{name} is neither true nor false"
            raise UserError(problem, where=location)
    users = config.get("logged_in_users", [])
    if not isinstance(users, list) or any(not isinstance(user, str) for user in users):
        problem = "initial_config.BaseApi.logged_in_users is not a list of names"
        raise UserError(problem, where=location)


# Maximum answers kept as objects, so that `newest_answers` includes changes by later calls.
MAX_ANSWERS = 100


class Environment:
    """The sandbox of one entry. The class implements `Scenario`.

    ``apps`` has the involved classes in order, each with its state. ``tools`` maps the name of a
    tool to (the state that the tool works on, the tool)."""

    def __init__(
        self, apps: Sequence[tuple[App, Any]], tools: Mapping[str, tuple[Any, Tool]]
    ) -> None:
        self._apps = apps
        self._tools = tools
        self._results: deque[Any] = deque(maxlen=MAX_ANSWERS)

    def call(self, name: str, arguments: Mapping[str, Any]) -> Observation:
        """Run one tool. The observation's ``value`` is the result in upstream's form."""
        if name not in self._tools:
            return unknown_tool(name)
        state, tool = self._tools[name]
        observation = call_tool(tool, state, arguments)
        if observation.error:
            return observation
        self._results.append(observation.value)
        return Observation(as_message(observation.value))

    def newest_answers(self, last: int) -> list[Any]:
        """Return the ``last`` newest answers with their present values, at most `MAX_ANSWERS`.
        Upstream writes answers at the end of a batch; later calls may have changed earlier answers.
        """
        results = list(self._results)
        return [as_message(result) for result in results[max(0, len(results) - last) :]]

    def state(self) -> list[dict[str, dict[str, Any]]]:
        """Return ``[{class: {attribute: value}}, ...]`` of the involved classes in order, as JSON.

        Only attributes that the official harness records are included."""
        live = [
            {app.name: {name: vars(state)[name] for name in app.saved}} for app, state in self._apps
        ]
        recorded: list[dict[str, dict[str, Any]]] = json.loads(json.dumps(live))
        return recorded


def open_environment(app_specs: Mapping[str, Any], entry: Entry) -> Environment:
    """Return a fresh environment of an entry that has passed `check_entry`.

    The environment shares no state with ``app_specs`` or other environments. The only used key
    of ``initial_config`` is ``BaseApi``. The defaults come from ``load_scenario`` in ``app_specs``:
    Wi-Fi off, device logged in. The official row zh multi_turn_12 misspells the key and gets the
    defaults."""
    classes = app_specs[_loop(entry)][entry.language]
    config = entry.data["initial_config"].get("BaseApi", {})
    phone = _phone(classes, config)
    apps = []
    tools: dict[str, tuple[Any, Tool]] = {}
    for name in entry.data["involved_classes"]:
        app, state = APPS[name], _open_app(classes, name, entry.language, config, phone)
        apps.append((app, state))
        for tool_name, tool in app.tools.items():
            if tool_name in classes[name]["methods"]:
                tools[tool_name] = (state, tool)
        if app in PHONE_APPS:
            tools.update({key: (phone, tool) for key, tool in BASE.tools.items()})
    return Environment(apps, tools)


def as_message(result: Any) -> Any:
    """Return a tool's result in the form in which upstream shows it to the model.

    A dict is written as JSON, so that its integer keys become strings. Any other value is converted
    by `str`. If the string is valid JSON, its value is returned: "500.0" becomes a number. A list
    of dicts stays a string, because `str` writes single quotes."""
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


def _open_app(
    classes: Mapping[str, Any], name: str, language: str, config: Mapping[str, Any], phone: Phone
) -> Any:
    """Return an app in its initial state."""
    app, described = APPS[name], classes[name]
    state: dict[str, Any] = copy.deepcopy(described["state"])
    for attribute in described["int_key_attrs"]:
        state[attribute] = {int(key): record for key, record in state[attribute].items()}
    texts = Texts(described["methods"], app.texts, app.optional)
    if app is BASE:
        return phone
    return InitialState(state, texts, phone, language, config).make_state(app.kind)
