"""Compute the verdicts of the official evaluator (upstream ``eval_main.py`` at commit 56dd66c).

``valid`` and ``error_type`` equal upstream's for any output, quirks included (docs/acebench.md).
Two error types are ace_ray's, for outputs that upstream does not judge:

- ``official_crash``: upstream raises an exception while it judges, which ends its complete run. An
  output that breaks only a later report (control characters in the Excel export, lone surrogates in
  the error list) keeps its verdict.
- ``official_unsafe``: upstream would evaluate model text that is not literal arithmetic, or has an
  unbounded cost. ace_ray never evaluates such text. The output is invalid even if upstream accepts
  it.

The comparison of calls reimplements ``model_eval/checker.py`` and ``model_eval/utils.py``. The
functions raise where upstream raises. For example, Python raises when it converts a very long
integer to a string. The argument ``prints`` is true if the output may contain such an integer. The
functions then convert values to strings wherever upstream does so.
"""

from __future__ import annotations

import enum
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ace_ray.benchmarks.acebench.check.decode import DecodedOutput
from ace_ray.parsing.literals import Call
from ace_ray.parsing.syntax import MAX_DIGITS
from ace_ray.types import Entry, Verdict

_DROPPED = str.maketrans("", "", " ,./-_*^")


class Outcome(enum.Enum):
    """Result of the type check. UNCHECKED accepts the value without comparing it."""

    WRONG = enum.auto()
    COMPARE = enum.auto()
    UNCHECKED = enum.auto()


def type_outcome(
    value: Any, gold: Any, expected: type, inner: type | None, prints: bool
) -> Outcome:
    """Check the type of the argument ``value``. The strings "true" and "false" count as booleans.

    ``expected`` is the schema's type, ``inner`` the type of a container's elements, or None. If
    ``prints`` is true, values are converted to strings where upstream does so, which may raise.

    - A value of type ``expected``: COMPARE if ``gold`` has this type too or is "", else UNCHECKED;
      but WRONG if its elements do not fit.
    - A value of another type: UNCHECKED if it equals ``gold`` or has its type, else WRONG. It is
      always WRONG if ``gold`` is ""."""
    gold_type = None if gold == "" else type(gold)
    as_schema = Outcome.COMPARE if gold_type in (None, expected) else Outcome.UNCHECKED
    if value == "true":
        value = True
    elif value == "false":
        value = False
    elements: Any = value
    if type(value) is expected:
        if inner is None:
            return as_schema
        # Upstream accepts the value at the first gold element that is not a list, or against which
        # all its elements pass this check. An empty gold container accepts no value.
        for item in gold:
            if type(item) is not list or all(
                type_outcome(element, item, inner, None, prints) is not Outcome.WRONG
                for element in elements
            ):
                return as_schema
        if prints:
            repr(elements)
        return Outcome.WRONG
    if gold_type is not None and (type(value) is gold_type or gold == value):
        return Outcome.UNCHECKED
    return Outcome.WRONG


def _normalize(text: str) -> str:
    """Return ``text`` for a comparison that ignores case, quote style, blanks and ,./-_*^."""
    # Drop characters first: the lower case of a Greek sigma depends on its neighbours.
    return text.translate(_DROPPED).lower().replace("'", '"')


def _loose_if_text(value: Any) -> Any:
    return _normalize(value) if type(value) is str else value


def compare_objects(value: Sequence[Any], gold: Sequence[Any], prints: bool) -> str | None:
    """Return None if the lists have equal objects in the same order, else an error type.
    ``prints``: as in `type_outcome`."""
    if len(value) != len(gold):
        if prints:
            str(value)
        return "value_error:list_dict_count"
    for item, gold_item in zip(value, gold, strict=True):
        if object_differs(item, gold_item, prints):
            return "value_error"
    return None


def object_differs(value: Any, gold: Any, prints: bool) -> bool:
    """Return whether two objects differ.

    Equal objects have the same keys. Inner objects are compared in the same way. Other values are
    converted to strings, and the model's string must contain the gold string. Strings are
    normalized as in `_normalize`. The model's strings ``true`` and ``false`` count as booleans.
    ``prints``: as in `type_outcome`."""
    differs = not isinstance(value, dict) or len(value) != len(gold.keys())
    if not differs:
        for key, item in value.items():
            if item == "true":
                item = True
            elif item == "false":
                item = False
            if key not in gold:
                differs = True
                break
            gold_item = gold[key]
            if isinstance(gold_item, dict):
                if object_differs(item, gold_item, prints):
                    return True
            elif str(_loose_if_text(gold_item)) not in str(_loose_if_text(item)):
                differs = True
                break
    if differs and prints:
        str(value)
    return differs


_SUFFIX = re.compile(r"_\d+$")
# `number` means int. A float is accepted only if gold has its type or equals it.
_TYPES: dict[str, type] = {
    name: kind
    for kind, names in (
        (str, "string any"),
        (int, "integer int number"),
        (float, "float"),
        (bool, "boolean"),
        (list, "array list tuple list(string) list(enum) objectArray"),
        (dict, "object dict"),
        (enumerate, "enum"),
    )
    for name in names.split()
}
_NESTED = frozenset(["array", "tuple", "list(string)", "list(enum)", "object", "objectArray"])
_ELSE_INNER = {"list(string)": str, "list(enum)": enumerate}


# Error type, and the reason why a call or an answer is not accepted.
Fault = tuple[str, str]


def _calls_fault(
    functions: Any, calls: list[Call], gold: dict[str, Any], prints: bool
) -> Fault | None:
    """Return the first fault of ``calls`` against ``gold``, one of the gold answers, or None.

    A gold call accepts any call of its name that fits, even if another gold call has accepted it.
    If no call fits, the fault of the last call is returned."""
    if len(calls) != len(gold):
        return "wrong functions number", f"{len(calls)} calls instead of {len(gold)}"
    names = [_SUFFIX.sub("", key) for key in gold]
    if len(calls) == 1:
        mismatch = calls[0].name != names[0]
    else:
        mismatch = Counter(call.name for call in calls) != Counter(names)
    if mismatch:
        return "function_mismatch", f"the functions called are not {', '.join(names)}"
    for name, (key, args) in zip(names, gold.items(), strict=True):
        function = _find_function(functions, key)
        fault: Fault | None = None
        for call in calls:
            if call.name == name:
                fault = _call_fault(function, call, args, prints)
                if fault is None:
                    break
            else:
                fault = "simple_function_checker:unclear", f"no call fits {key}"
        if fault is not None:
            if len(gold) > 1 and prints:
                str(calls)
            return fault
    return None


def _find_function(functions: Any, key: str) -> Any:
    # Upstream looks for a name that is a substring of the gold key: `get` describes `get_all_2`.
    if not isinstance(functions, list):
        return functions
    for function in functions:
        if function["name"] in key:
            return function
    return None


def _call_fault(function: Any, call: Call, gold: dict[str, Any], prints: bool) -> Fault | None:
    args = call.args
    schema = function["parameters"]
    if not args and schema == {}:
        return None
    if not args or schema == {}:
        return "wrong_param", f"{call.name} is called with the wrong parameters"
    properties = schema["properties"]
    if gold == properties:
        return None
    if gold == {}:
        return "wrong_param", f"{call.name} takes no parameters in the gold answer"
    if function["name"] != call.name:
        return "wrong_function_name", f"{call.name} is described by {function['name']}"
    for param in schema["required"]:
        if param not in args:
            return "lack_args", f"required parameter {param} is missing"
    for param, value in args.items():
        if param not in properties or param not in gold:
            return "addition_args", f"parameter {str(param)[:80]} is not expected"
        error_type = _argument_error_type(properties[param], value, gold[param], prints)
        if error_type is not None:
            aspect = "type" if error_type == "type_error" else "value"
            return error_type, f"parameter {param} has the wrong {aspect}"
    return None


def _argument_error_type(schema: Any, value: Any, gold: Any, prints: bool) -> str | None:
    name = schema["type"]
    expected = _TYPES[name]
    inner = _inner_type(schema, name) if name in _NESTED else None
    if name == "tuple" and type(value) is tuple:
        value = list(value)
    elif name == "float" and type(value) is int:
        value = float(value)
    outcome = type_outcome(value, gold, expected, inner, prints)
    if outcome is Outcome.WRONG:
        return "type_error"
    if outcome is Outcome.UNCHECKED:
        return None
    if expected is str:
        return None if _normalize(gold) in _normalize(value) else "value_error:string"
    if expected is dict:
        return "value_error" if object_differs(value, gold, prints) else None
    if expected is not list:
        return None  # upstream does not compare numbers and booleans
    if inner is not dict:  # compare the lists with top-level strings normalized
        if [*map(_loose_if_text, value)] == [*map(_loose_if_text, gold)]:
            return None
        if prints:
            repr(value)
        return "value_error:list/tuple"
    if name == "objectArray":
        if len(value) != len(gold):
            return "value_error:dict_items"
        if value:
            raise TypeError("the check of an objectArray does not work upstream")
    return compare_objects(value, gold, prints)


def _inner_type(schema: Any, name: str) -> type:
    try:
        inner = schema["items"]["type"]
    except (LookupError, TypeError, AttributeError):
        return _ELSE_INNER.get(name, dict)
    return _TYPES[inner]


_RAISES = (LookupError, AttributeError, TypeError, ValueError, ArithmeticError, RecursionError)
_BITS_PER_CHAR = 4  # the densest integer literal is hexadecimal
_BITS_PER_DIGIT = 3.3219


def judge_normal(entry: Entry, decoded: DecodedOutput) -> Verdict:
    """Return the verdict on a normal row, which is valid if it matches any gold answer."""
    calls = decoded.official
    if isinstance(calls, str):
        kind = "official_unsafe" if decoded.unsafe else "wrong_output_format"
        return Verdict(False, kind, calls)
    # Upstream's messages print values, and Python refuses to print an integer beyond 4,300 digits.
    # A text that is too short to make such an integer need not be printed.
    prints = decoded.chars * _BITS_PER_CHAR > MAX_DIGITS * _BITS_PER_DIGIT
    gold = entry.gold if isinstance(entry.gold, list) else [entry.gold]
    first: Fault | None = None
    try:
        for alternative in gold:
            fault = _calls_fault(entry.data["function"], calls, alternative, prints)
            if fault is None:
                return Verdict(True)
            first = first or fault
    except _RAISES as error:
        return _crash(error)
    if first is None:
        return Verdict(False, "official_crash", "there is no gold answer")
    return Verdict(False, *first)


def judge_special(entry: Entry, output: str | None) -> Verdict:
    """Return the verdict on a special row: the raw output must contain certain substrings.

    If the category's official phrase is missing, the error type is ``error_detection``. If one of
    these parts is missing, the error type is ``error_correction``:

    - incomplete: the API's name and all its missing parameters, for each API.
    - error_param: all wrong values. The parameter's name is not compared.
    - irrelevant: nothing but the phrase is needed."""
    if output is None:
        return Verdict(False, "official_crash", "there is no output")
    try:
        if entry.category == "special_irrelevant":
            kind = "" if "the limitations of the function" in output else "error_detection"
        elif entry.category == "special_incomplete":
            kind = _error_kind(output, "Missing necessary parameters", entry.gold, names=True)
        else:
            kind = _error_kind(output, "There is incorrect value", entry.gold, names=False)
    except _RAISES as error:
        return _crash(error)
    if kind == "error_detection":
        return Verdict(False, kind, "the official sentence is not in the output")
    if kind:
        return Verdict(False, kind, "the output does not name all wrong parts")
    return Verdict(True)


def _error_kind(output: str, phrase: str, gold: Mapping[str, Any], *, names: bool) -> str:
    kind = ""
    for name, values in gold.items():
        if phrase not in output:
            kind = "error_detection"
        elif names and name not in output:
            kind = "error_correction"
        else:
            for value in values:
                if value not in output:
                    kind = "error_correction"
    return kind


def _crash(error: Exception) -> Verdict:
    message = str(error)[:200]
    return Verdict(False, "official_crash", f"{type(error).__name__} {message} in the evaluator")
