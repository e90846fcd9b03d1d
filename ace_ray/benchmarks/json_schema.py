"""Check values against JSON Schemas (draft 2020-12), which users write and models read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError
from referencing import Registry
from referencing.exceptions import Unresolvable

Schema = Mapping[str, Any]


def schema_fault(schema: Schema, value: Any) -> str:
    """Describe why ``value``, which may be hostile, does not fit a valid schema; "" if it fits.

    Raises `Unresolvable` if ``schema`` refers to a definition that it lacks."""
    # The empty registry keeps jsonschema from downloading what a `$ref` names.
    validator = Draft202012Validator(schema, registry=Registry())
    try:
        error = next(validator.iter_errors(value), None)
    except (RecursionError, ArithmeticError) as problem:  # deep nesting, huge numbers
        return type(problem).__name__
    return _text(error) if error else ""


def schema_mistake(schema: Schema, *values: Any) -> str:
    """Describe why ``schema`` is not valid, or lacks a definition that it needs to check
    ``values``; "" if there is no mistake."""
    try:
        Draft202012Validator.check_schema(schema)
        for value in values:
            schema_fault(schema, value)
    except SchemaError as error:
        return _text(error)
    except Unresolvable as error:
        return f"there is no {error.ref!r:.100}"
    return ""


def _text(error: ValidationError | SchemaError) -> str:
    path = ".".join(map(str, error.absolute_path))
    return f"{path}: {error.message[:200]}" if path else error.message[:200]
