"""A world: the apps of one agent entry, open and ready to be called."""

from __future__ import annotations

import copy
import json
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from ace_ray.benchmarks.acebench.scenarios.app import App, Behaviour, Opening, Phone
from ace_ray.benchmarks.acebench.scenarios.apps import APPS, PHONE_APPS
from ace_ray.benchmarks.acebench.scenarios.base import BASE
from ace_ray.benchmarks.acebench.scenarios.texts import Texts
from ace_ray.benchmarks.acebench.scenarios.worldfile import check_classes, check_entry, load_worlds
from ace_ray.sandbox.protocol import Observation
from ace_ray.sandbox.tools import Tool, call_tool, unknown_tool

__all__ = ["World", "check_entry", "load_worlds", "open_world"]


MAX_SHOWN = 100
"""Answers that are kept as they are, so that they show what later calls change."""


class World:
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


def open_world(
    worlds: Mapping[str, Any],
    *,
    loop: str,
    language: str,
    involved_classes: Sequence[str],
    initial_config: Mapping[str, Any],
    behaviour: Behaviour,
) -> World:
    """A fresh world that shares nothing with ``worlds`` or with another one.

    Only the switches under ``initial_config["BaseApi"]`` count; without them Wi-Fi is off and the
    device logged in (the file's ``load_scenario``), as in official row zh multi_turn_12, which has
    the key misspelt. Raises `UserError` for classes or switches that cannot be.
    """
    check_classes(worlds, loop, language, involved_classes, initial_config)
    classes = worlds[loop][language]
    fixed = behaviour == "fixed"
    config = initial_config.get("BaseApi", {})
    phone = _phone(classes, language, config)
    apps = []
    tools: dict[str, tuple[Any, Tool]] = {}
    for name in involved_classes:
        app, described = APPS[name], classes[name]
        state = app.open(
            Opening(
                state=_initial(described),
                texts=Texts(described["methods"], app.texts, app.own.get(language, {})),
                phone=phone,
                language=language,
                fixed=fixed,
                config=config,
            )
        )
        apps.append((app, state))
        declared = app.fixed if fixed else app.official
        for tool_name, tool in declared.items():
            if fixed or tool_name in described["methods"]:
                tools[tool_name] = (state, tool)
        if app in PHONE_APPS:
            tools.update({key: (phone, tool) for key, tool in BASE.official.items()})
    return World(apps, tools)


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


def _phone(classes: Mapping[str, Any], language: str, config: Mapping[str, Any]) -> Phone:
    described = classes[BASE.name]
    switches = {
        attribute: config.get(source["key"], source["default"])
        for attribute in ("wifi", "logged_in")
        if (source := described["load_scenario"][attribute])
    }
    texts = Texts(described["methods"], BASE.texts, BASE.own.get(language, {}))
    return Phone(wifi=switches["wifi"], logged_in=switches["logged_in"], texts=texts)


def _initial(described: Mapping[str, Any]) -> dict[str, Any]:
    state: dict[str, Any] = copy.deepcopy(described["state"])
    for name in described["int_key_attrs"]:
        state[name] = {int(key): record for key, record in state[name].items()}
    return state
