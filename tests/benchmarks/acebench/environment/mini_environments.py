"""Environments of the mini set for the tests, and what their apps say."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import pytest

from ace_ray.benchmarks.acebench.data.loader import MINI
from ace_ray.benchmarks.acebench.environment.environment import (
    Environment,
    load_app_specs,
    open_environment,
)
from ace_ray.types import Entry

LANGUAGES = pytest.mark.parametrize("language", ["en", "zh"])
ON = {"BaseApi": {"wifi": True, "logged_in": True}}


@cache
def mini() -> dict[str, Any]:
    return load_app_specs(MINI)


def start(
    classes: str | Sequence[str],
    language: str = "en",
    config: Mapping[str, Any] = ON,
    changes: Mapping[str, Any] | None = None,
    methods: Mapping[str, Any] | None = None,
) -> Environment:
    """Open an environment; ``changes`` and ``methods`` change the first class."""
    names = [classes] if isinstance(classes, str) else list(classes)
    app_specs = mini()
    if changes or methods:
        app_specs = copy.deepcopy(app_specs)
        described = app_specs["multi_turn"][language][names[0]]
        described["state"].update(changes or {})
        described["methods"].update(methods or {})
    return open_environment(app_specs, agent_entry(names, config, language=language))


def agent_entry(
    classes: Sequence[str],
    config: Mapping[str, Any],
    loop: str = "multi_turn",
    language: str = "en",
) -> Entry:
    data = {"involved_classes": list(classes), "initial_config": config}
    return Entry("acebench", f"agent_{loop}", language, "one", data)


def initial(language: str, app: str, attribute: str) -> Any:
    return copy.deepcopy(mini()["multi_turn"][language][app]["state"][attribute])


def said(language: str, app: str, method: str, number: int, **values: Any) -> str:
    """Return a text of an app specification, with its placeholders replaced one by one."""
    text: str = mini()["multi_turn"][language][app]["methods"][method]["texts"][number]
    for name, value in values.items():
        text = text.replace("{" + name + "}", str(value))
    return text


def refusal(*args: Any, **values: Any) -> dict[str, Any]:
    return {"status": False, "message": said(*args, **values)}


def success(*args: Any, **values: Any) -> dict[str, Any]:
    return {"status": True, "message": said(*args, **values)}


def part(environment: Environment, app: str) -> dict[str, Any]:
    """Return the recorded state of one class."""
    return next(entry[app] for entry in environment.state() if app in entry)


def answer(environment: Environment, name: str, /, **arguments: Any) -> Any:
    """Return the answer of a call that must not fail."""
    observation = environment.call(name, arguments)
    assert observation.error == "", observation
    return observation.value


def failed(environment: Environment, name: str, /, **arguments: Any) -> str:
    """Return the error text of a call that must raise in the tool."""
    observation = environment.call(name, arguments)
    assert observation.error == "failed", observation
    return str(observation.value)
