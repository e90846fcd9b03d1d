"""Every text that the official harness shows a model, by name, read from a checkout of it.

Module-level texts keep their names, told apart by module where two modules share them; texts
inside functions are named ``<module>:<function>#<n>``.
"""

from __future__ import annotations

import ast
from pathlib import Path

from ace_ray.benchmarks.acebench.data.literals import assigned, is_prose, strings
from ace_ray.benchmarks.dataset import python_source
from ace_ray.errors import UserError

SOURCES = "model_inference"
PROMPT_MODULES = ("prompt_en", "prompt_zh")
"""The language is part of their names, so these stand without their module."""
ROLE_MODULES = (
    "multi_turn/APIModel_agent",
    "multi_turn/common_agent",
    "multi_turn/APIModel_user",
    "multi_step/APIModel_agent",
    "multi_step/common_agent_step",
)
PHRASE_MODULES = (
    "multi_turn/APIModel_user",
    "multi_step/execution_role_step",
    "multi_turn/multi_turn_utils",
    "multi_step/multi_step_utils",
)
"""Modules that speak to a model from inside a function."""


def read_prompts(root: Path) -> dict[str, str]:
    """All texts of the checkout at ``root``. Raises `UserError` when a module has none."""
    prompts: dict[str, str] = {}
    for module in (*PROMPT_MODULES, *ROLE_MODULES):
        relative = f"{SOURCES}/{module}.py"
        prefix = "" if module in PROMPT_MODULES else f"{module}:"
        texts = _module_texts(python_source(root, relative))
        if not texts:
            raise UserError(
                "assigns no text constants",
                where=str(root / relative),
                fix="import an unmodified checkout of the official repository",
            )
        prompts |= {prefix + name: text for name, text in texts.items()}
    for module in PHRASE_MODULES:
        tree = python_source(root, f"{SOURCES}/{module}.py")
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef):
                said = [text for text in strings(function) if _is_phrase(text)]
                prompts |= {f"{module}:{function.name}#{n}": text for n, text in enumerate(said)}
    return prompts


def _module_texts(tree: ast.Module) -> dict[str, str]:
    return {
        target.id: value.value
        for target, value in assigned(tree.body)
        if isinstance(target, ast.Name)
        and isinstance(value, ast.Constant)
        and isinstance(value.value, str)
    }


def _is_phrase(text: str) -> bool:
    # shorter ones are separators, such as ", "
    return is_prose(text) and len(text.strip()) > 2
