"""The sandbox worlds of the official harness: initial states, signatures and answer texts.

``worlds[loop][language][class]`` describes one scenario class: ``bases``, ``state`` (literals that
``__init__`` assigns), ``int_key_attrs`` (attributes whose keys are integers, which JSON turns into
texts), ``load_scenario`` (attribute -> key and default in the row's ``initial_config``), and
``methods`` (parameters with the source of their defaults, and what they can answer).
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

from ace_ray.benchmarks.acebench.categories import LANGUAGES
from ace_ray.benchmarks.acebench.data.literals import (
    Function,
    assigned,
    literal,
    templates,
)
from ace_ray.benchmarks.acebench.data.upstream_prompts import SOURCES
from ace_ray.benchmarks.dataset import python_source
from ace_ray.errors import UserError

LOOPS = ("multi_turn", "multi_step")
CLASS_FILES = {
    "BaseApi": "phone_platform/base_api.py",
    "MessageApi": "phone_platform/message.py",
    "ReminderApi": "phone_platform/reminder.py",
    "FoodPlatform": "phone_platform/food_services.py",
    "Travel": "travel.py",
}


def read_worlds(root: Path) -> dict[str, dict[str, dict[str, Any]]]:
    """The worlds of the checkout at ``root``. Raises `UserError` on what is not a literal."""
    return {
        loop: {
            language: {
                name: _read_class(root, f"{SOURCES}/{loop}/scenarios{language}/{file}", name)
                for name, file in CLASS_FILES.items()
            }
            for language in LANGUAGES
        }
        for loop in LOOPS
    }


def _read_class(root: Path, relative: str, name: str) -> dict[str, Any]:
    path = root / relative
    for node in python_source(root, relative).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return _describe(node, path)
    raise UserError(f"has no class {name}", where=str(path))


def _describe(node: ast.ClassDef, path: Path) -> dict[str, Any]:
    state: dict[str, Any] = {}
    scenario: dict[str, Any] = {}
    methods: dict[str, Any] = {}
    for item in node.body:
        if not isinstance(item, ast.FunctionDef):
            continue
        if item.name == "__init__":
            state = _initial_state(item, path)
        elif item.name == "_load_scenario":
            scenario = _scenario_keys(item, path)
        else:
            methods[item.name] = {"params": _parameters(item), "texts": templates(item)}
    if not state:
        raise UserError(f"{node.name}.__init__ assigns no literals", where=str(path))
    return {
        "bases": [base.id for base in node.bases if isinstance(base, ast.Name)],
        "state": state,
        "int_key_attrs": [
            attribute
            for attribute, value in state.items()
            if isinstance(value, dict) and any(isinstance(key, int) for key in value)
        ],
        "load_scenario": scenario,
        "methods": methods,
    }


def _initial_state(init: Function, path: Path) -> dict[str, Any]:
    calls = [
        ast.unparse(statement)
        for statement in init.body
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
    ]
    # kept as text: whether a class runs its base's __init__ decides which attributes it has
    state: dict[str, Any] = {"__init_calls__": calls} if calls else {}
    for target, value in assigned(init.body):
        if isinstance(target, ast.Attribute):
            state[target.attr] = literal(value, path)
    return state


def _scenario_keys(load: Function, path: Path) -> dict[str, Any]:
    """Attributes set as ``self.<attribute> = scenario.get(<key>, <default>)``."""
    keys = {}
    for target, value in assigned(load.body):
        if isinstance(target, ast.Attribute) and isinstance(value, ast.Call):
            arguments = [literal(argument, path) for argument in value.args]
            if len(arguments) != 2:
                raise UserError(
                    f"{target.attr} is not read with a key and a default",
                    where=f"{path}:{value.lineno}",
                )
            keys[target.attr] = {"key": arguments[0], "default": arguments[1]}
    return keys


def _parameters(method: Function) -> list[dict[str, str | None]]:
    names = [argument.arg for argument in method.args.args[1:]]  # without self
    defaults = [ast.unparse(default) for default in method.args.defaults]
    padding: list[str | None] = [None] * (len(names) - len(defaults))
    return [
        {"name": name, "default": default}
        for name, default in zip(names, [*padding, *defaults], strict=True)
    ]
