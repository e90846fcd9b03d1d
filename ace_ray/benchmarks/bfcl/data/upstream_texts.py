"""Read upstream's prompt texts by parsing the source files of the user's copy; no code is run.

Most texts are constants in ``constants/default_prompts.py``. Hints on the language of values are
f-strings in functions of ``utils.py`` and ``model_handler/utils.py``, and become templates."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from ace_ray.benchmarks.bfcl.categories import FORMS, Language
from ace_ray.benchmarks.bfcl.data.upstream_package import (
    HINT_SOURCE,
    NATIVE_SOURCE,
    PROMPT_SOURCE,
    SCENARIOS,
    UPSTREAM,
    UpstreamPackage,
)
from ace_ray.benchmarks.bfcl.texts import LAYOUT_FIELDS, MEMORY_FIELDS, STYLE_FIELDS, Hints, Texts
from ace_ray.benchmarks.bfcl.texts import fields as fields_of
from ace_ray.benchmarks.dataset import python_tree
from ace_ray.errors import UserError

_FIX = f"use an unmodified copy: {UPSTREAM.data_hint}"


def read_texts(package: UpstreamPackage) -> Texts:
    """Read all prompt texts of a copy. Raises `UserError` for a missing or malformed text."""
    source = _Source(package, PROMPT_SOURCE)
    text = source.text
    returned = sorted({form.returned for form in FORMS})
    more = "DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION"
    core, summary = (f"MEMORY_BACKEND_INSTRUCTION_{kind}" for kind in ("CORE_ARCHIVAL", "UNIFIED"))
    return Texts(
        styles={
            # Parts without fields are not templates, and may contain braces.
            style: {
                part: text("PROMPT_STYLE_TEMPLATES", style, part, fields=fields or None)
                for part, fields in STYLE_FIELDS.items()
            }
            for style in sorted({form.style for form in FORMS})
        },
        layouts={
            layout: text("PROMPT_TEMPLATE_MAPPING", layout, fields=LAYOUT_FIELDS)
            for layout in sorted({form.layout for form in FORMS})
        },
        outputs={name: text("OUTPUT_FORMAT_MAPPING", name) for name in returned},
        types={name: text("PARAM_TYPE_MAPPING", name) for name in returned},
        more_functions=text(f"{more}_FC"),
        more_functions_prompt=text(f"{more}_PROMPTING", fields=frozenset({"functions"})),
        agentic=text("ADDITIONAL_SYSTEM_PROMPT_FOR_AGENTIC_RESPONSE_FORMAT"),
        settings={name: text("MEMORY_AGENT_SETTINGS", name) for name in SCENARIOS},
        core_memory=text(core, fields=MEMORY_FIELDS),
        whole_memory=text(summary, fields=MEMORY_FIELDS),
        hints=_hints(package),
    )


def _hints(package: UpstreamPackage) -> Hints:
    source = _Source(package, HINT_SOURCE)
    branches = _branches(source.function("_get_language_specific_hint"))
    returned = {name: _texts_of(body, ast.Return) for name, body in branches.items()}
    added = {
        name: _texts_of(body, ast.AugAssign)
        for name, body in _branches(
            source.function("_func_doc_language_specific_pre_processing")
        ).items()
    }
    native = _Source(package, NATIVE_SOURCE)
    cast = native.function("_cast_to_openai_type")
    floats = _texts_of(cast.body, ast.AugAssign)
    counts = [len(returned.get(name, ())) for name in ("java", "javascript", "python")]
    counts += [len(added.get(name, ())) for name in ("java", "javascript")]
    if counts != [1, 1, 1, 3, 4]:
        raise source.error("the hints about languages are not in the expected place")
    if len(floats) != 1:
        raise native.error("the note on floats is not in the expected place")
    return Hints(
        language={name: returned[name][0] for name in ("python", "java", "javascript")},
        any={name: added[name][0] for name in ("java", "javascript")},
        typed={name: source.name_field(added[name][1], "type") for name in ("java", "javascript")},
        items={name: source.name_field(added[name][2], "type") for name in ("java", "javascript")},
        properties=source.name_field(added["javascript"][3], "schema"),
        float_type=floats[0],
    )


def _branches(function: ast.FunctionDef) -> dict[Language, list[ast.stmt]]:
    """Return each language's branch of the first ``if is_java(..) ... elif is_js(..)`` chain."""
    branches: dict[Language, list[ast.stmt]] = {}
    names: Mapping[str, Language] = {"is_java": "java", "is_js": "javascript"}
    for node in ast.walk(function):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Call):
            called = node.test.func
            if isinstance(called, ast.Name) and called.id in names:
                branches.setdefault(names[called.id], node.body)
                is_last = not (len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If))
                if node.orelse and is_last:
                    branches.setdefault("python", node.orelse)
    return branches


def _texts_of(body: list[ast.stmt], kind: type[ast.Return] | type[ast.AugAssign]) -> list[str]:
    """Return the strings in all statements of ``kind`` (``return`` or ``+=``), in source order.

    Expressions in an f-string become ``{}``."""
    texts = [
        (node.lineno, _template(node.value))
        for statement in body
        for node in ast.walk(statement)
        if isinstance(node, kind) and isinstance(node.value, ast.Constant | ast.JoinedStr)
    ]
    return [text for _, text in sorted(texts)]


def _template(value: ast.Constant | ast.JoinedStr) -> str:
    if isinstance(value, ast.Constant):
        return str(value.value)
    parts = [
        str(part.value).replace("{", "{{").replace("}", "}}")
        if isinstance(part, ast.Constant)
        else "{}"
        for part in value.values
    ]
    return "".join(parts)


class _Source:
    """A parsed source file of upstream. Its errors name the file."""

    def __init__(self, package: UpstreamPackage, path: str) -> None:
        self._location = package.full_path(path)
        try:
            self._tree = python_tree(package.read(path))
        except ValueError as error:
            raise self.error(f"is not Python source ({error})") from error
        self._constants = _constants(self._tree)

    def error(self, problem: str) -> UserError:
        return UserError(problem, where=self._location, fix=_FIX)

    def function(self, name: str) -> ast.FunctionDef:
        for node in self._tree.body:
            if isinstance(node, ast.FunctionDef) and node.name == name:
                return node
        raise self.error(f"has no function {name}")

    def text(self, *path: str, fields: frozenset[str] | None = None) -> str:
        """Return the string at ``path``: the name of a module constant, then keys inside it.

        Raises `UserError` if there is no such string, or if it has other fields than ``fields``."""
        value: Any = self._constants
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        name = path[0] + "".join(f"[{key!r}]" for key in path[1:])
        if not isinstance(value, str):
            raise self.error(f"{name} is not a string literal")
        try:
            names = fields and fields_of(value)
        except ValueError as error:
            raise self.error(f"{name} is not a template of plain fields ({error})") from None
        if fields and names != fields:
            raise self.error(f"{name} must have the fields {', '.join(sorted(fields))}")
        return value

    def name_field(self, template: str, name: str) -> str:
        """Replace the only ``{}`` of a template by ``{name}``."""
        if template.count("{}") != 1:
            raise self.error("the hints about types do not have the expected form")
        return template.replace("{}", f"{{{name}}}")


def _constants(tree: ast.Module) -> dict[str, Any]:
    """Return the module's constants that are a literal, an earlier constant or a sum of strings."""
    values: dict[str, Any] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            try:
                values[node.targets[0].id] = _value(node.value, values)
            except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
                continue
    return values


def _value(node: ast.expr, names: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Name):
        if node.id not in names:
            raise ValueError(node.id)
        return names[node.id]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _value(node.left, names), _value(node.right, names)
        if not isinstance(left, str) or not isinstance(right, str):
            raise ValueError("only strings are added")
        return left + right
    if isinstance(node, ast.Dict):
        return {
            _value(key, names): _value(value, names)
            for key, value in zip(node.keys, node.values, strict=True)
            if key is not None
        }
    return ast.literal_eval(node)
