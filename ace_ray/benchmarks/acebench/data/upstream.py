"""Read prompts and app specifications from upstream's Python source, which is never executed.

The prompts are all texts that upstream shows a model. A module-level text has the name of its
variable, or ``<module>:<variable>`` if modules share variable names. A text inside a function has
the name ``<module>:<function>#<n>``.

App specifications are initial states, signatures and answer texts of the sandbox.
``app_specs[loop][language][class]`` describes one scenario class:

- ``bases``: its base classes.
- ``state``: the literals that ``__init__`` assigns.
- ``int_key_attrs``: attributes with integer keys, which become strings in JSON.
- ``load_scenario``: for each attribute, its key in the row's ``initial_config`` and its default.
- ``methods``: for each method, its answer texts, and its parameters with defaults as source text.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ace_ray.benchmarks.acebench.options import LANGUAGES
from ace_ray.benchmarks.dataset import parse_python
from ace_ray.errors import UserError

Function = ast.FunctionDef | ast.AsyncFunctionDef


def literal(node: ast.expr, location: Path) -> Any:
    """Return the value of a literal expression. Raises `UserError` for any other expression."""
    try:
        return ast.literal_eval(node)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as error:
        problem = "is code that would have to be executed, not a literal"
        fix = "import an unmodified checkout of the official repository"
        raise UserError(problem, where=f"{location}:{node.lineno}", fix=fix) from error


def assignments(body: list[ast.stmt]) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield (target, value) of each plain assignment to one target, annotated or not."""
    for statement in body:
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            yield statement.targets[0], statement.value
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            yield statement.target, statement.value


def phrases(function: Function, ignored: frozenset[int] = frozenset()) -> list[str]:
    """Return the prose in the string constants of a function, outermost first.

    Constant parts of an f-string are included. Docstrings, other expressions that are a statement
    by themselves, and nodes with an `id` in ``ignored`` are not."""
    ignored |= {id(node.value) for node in ast.walk(function) if isinstance(node, ast.Expr)}
    return [
        node.value
        for node in ast.walk(function)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and id(node) not in ignored
        # Prose is part of a text for a model; other constants are keys or modes.
        and (" " in node.value or not node.value.isascii())
    ]


def templates(function: Function) -> list[str]:
    """Return the answer texts of a function: f-strings, then other prose, each outermost first.

    An f-string becomes a template with the source of each expression in braces."""
    formatted = [node for node in ast.walk(function) if isinstance(node, ast.JoinedStr)]
    inside = frozenset(id(p) for node in formatted for p in ast.walk(node) if p is not node)
    outermost = [node for node in formatted if id(node) not in inside]
    return [*map(_template, outermost), *phrases(function, inside)]


def _template(formatted: ast.JoinedStr) -> str:
    text = ""
    for part in formatted.values:
        if isinstance(part, ast.FormattedValue):
            conversion = f"!{chr(part.conversion)}" if part.conversion >= 0 else ""
            spec = part.format_spec
            spec_text = f":{_template(spec)}" if isinstance(spec, ast.JoinedStr) else ""
            text += "{" + ast.unparse(part.value) + conversion + spec_text + "}"
        elif isinstance(part, ast.Constant):
            text += str(part.value)
    return text


SOURCES = "model_inference"
# The names of the texts in these modules contain the language, so they need no module name.
PROMPT_MODULES = ("prompt_en", "prompt_zh")
ROLE_MODULES = (
    "multi_turn/APIModel_agent",
    "multi_turn/common_agent",
    "multi_turn/APIModel_user",
    "multi_step/APIModel_agent",
    "multi_step/common_agent_step",
)
# Modules with functions that contain texts for a model.
PHRASE_MODULES = (
    "multi_turn/APIModel_user",
    "multi_step/execution_role_step",
    "multi_turn/multi_turn_utils",
    "multi_step/multi_step_utils",
)


def read_prompts(root: Path) -> dict[str, str]:
    """Return all prompt texts of a checkout by name. Raises `UserError` if a module has none."""
    prompts: dict[str, str] = {}
    for module in (*PROMPT_MODULES, *ROLE_MODULES):
        relative = f"{SOURCES}/{module}.py"
        prefix = "" if module in PROMPT_MODULES else f"{module}:"
        texts = _module_texts(parse_python(root, relative))
        if not texts:
            fix = "import an unmodified checkout of the official repository"
            raise UserError("assigns no text constants", where=str(root / relative), fix=fix)
        prompts |= {prefix + name: text for name, text in texts.items()}
    for module in PHRASE_MODULES:
        tree = parse_python(root, f"{SOURCES}/{module}.py")
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef):
                # Shorter texts are separators, such as ", ".
                prose = [text for text in phrases(function) if len(text.strip()) > 2]
                prompts |= {f"{module}:{function.name}#{n}": t for n, t in enumerate(prose)}
    return prompts


def _module_texts(tree: ast.Module) -> dict[str, str]:
    return {
        target.id: value.value
        for target, value in assignments(tree.body)
        if isinstance(target, ast.Name)
        and isinstance(value, ast.Constant)
        and isinstance(value.value, str)
    }


LOOPS = ("multi_turn", "multi_step")
CLASS_FILES = {
    "BaseApi": "phone_platform/base_api.py",
    "MessageApi": "phone_platform/message.py",
    "ReminderApi": "phone_platform/reminder.py",
    "FoodPlatform": "phone_platform/food_services.py",
    "Travel": "travel.py",
}


def read_app_specs(root: Path) -> dict[str, dict[str, dict[str, Any]]]:
    """Return a checkout's app specifications. Raises `UserError` if a value is not a literal."""
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
    for node in parse_python(root, relative).body:
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
    # Calls are kept as source: a class that calls its base's __init__ has the base's attributes.
    state: dict[str, Any] = {"__init_calls__": calls} if calls else {}
    for target, value in assignments(init.body):
        if isinstance(target, ast.Attribute):
            state[target.attr] = literal(value, path)
    return state


def _scenario_keys(load: Function, path: Path) -> dict[str, Any]:
    """Return key and default of attributes set by ``self.x = scenario.get(<key>, <default>)``."""
    keys = {}
    for target, value in assignments(load.body):
        if isinstance(target, ast.Attribute) and isinstance(value, ast.Call):
            arguments = [literal(argument, path) for argument in value.args]
            if len(arguments) != 2:
                problem = f"{target.attr} is not read with a key and a default"
                raise UserError(problem, where=f"{path}:{value.lineno}")
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
