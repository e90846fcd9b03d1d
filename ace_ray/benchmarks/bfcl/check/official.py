"""Check decoded calls by the rules of upstream's checker (``ast_eval/ast_checker.py``).

The checks return a fault, (error type, message), or None. An option is one acceptable value of a
parameter. The checks raise an exception where upstream does, for example on an integer of more than
4,300 digits: upstream prints rejected values, and Python does not print such integers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ace_ray.benchmarks.bfcl.categories import Language
from ace_ray.benchmarks.bfcl.check.source_values import (
    JAVA_TYPES,
    JAVASCRIPT_TYPES,
    java_value,
    javascript_value,
)
from ace_ray.benchmarks.bfcl.decode.calls import DecodedCall

PYTHON_TYPES: Mapping[str, type] = {
    "string": str,
    "integer": int,
    "float": float,
    "boolean": bool,
    "array": list,
    "tuple": list,
    "dict": dict,
    "any": str,
}
_WITH_ITEMS = {
    "python": ("array", "tuple"),
    "java": ("Array", "ArrayList", "array"),
    "javascript": ("Array", "ArrayList", "array"),
}


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules for the calls of one entry.

    The name of ``category`` selects upstream's rules: for parallel calls if it contains "parallel",
    else for several offered functions if it contains "multiple", else for a single call.
    ``native``: the answer has native calls, with underscores in place of dots."""

    category: str
    functions: Sequence[Mapping[str, Any]]
    gold: Sequence[Mapping[str, Any]]
    language: Language
    native: bool

    @property
    def is_parallel(self) -> bool:
        return "parallel" in self.category

    def fault(self, calls: Sequence[DecodedCall]) -> Fault | None:
        """Return the first fault in the calls of an answer, or None if the calls are correct."""
        if fault := self.count_fault(calls):
            return fault
        if self.is_parallel:
            return self._greedy_fault(calls)
        if "multiple" in self.category:
            return self.call_fault(calls[0], 0)
        return self._compare_call(self.functions[0], calls[0], 0)

    def count_fault(self, calls: Sequence[DecodedCall]) -> Fault | None:
        checker, expected = "simple_function_checker", 1
        if self.is_parallel:
            checker, expected = "parallel_function_checker_no_order", len(self.gold)
        elif "multiple" in self.category:
            checker, expected = "multiple_function_checker", len(self.gold)
        if len(calls) == expected:
            return None
        return f"{checker}:wrong_count", f"{len(calls)} calls instead of {expected}"

    def call_fault(self, call: DecodedCall, gold_index: int) -> Fault | None:
        """Return the first fault of a call, compared with expected call ``gold_index``; or None."""
        name = next(iter(self.gold[gold_index]))
        function = next((doc for doc in self.functions if doc["name"] == name), None)
        return self._compare_call(function, call, gold_index)

    def name_of(self, function: Mapping[str, Any]) -> str:
        """Return the name under which a function was offered."""
        name: str = function["name"]
        return name.replace(".", "_") if self.native else name

    def _greedy_fault(self, calls: Sequence[DecodedCall]) -> Fault | None:
        pool = list(range(len(calls)))
        for gold_index in range(len(self.gold)):
            fitting = next((n for n in pool if self.call_fault(calls[n], gold_index) is None), None)
            if fitting is None:
                return no_match(self.gold[gold_index])
            pool.remove(fitting)
        return None

    def _compare_call(self, function: Any, call: DecodedCall, gold_index: int) -> Fault | None:
        acceptable = next(iter(self.gold[gold_index].values()))
        params = function["parameters"]["properties"]
        required = function["parameters"]["required"]
        if call.name != self.name_of(function):
            wrong = "simple_function_checker:wrong_func_name"
            return wrong, f"called {shorten(call.name)}, expected {shorten(self.name_of(function))}"
        for param in required:
            if param not in call.args:
                missing = "simple_function_checker:missing_required"
                return missing, f"the required {shorten(param)} is missing"
        for param, value in call.args.items():
            if param not in params or param not in acceptable:
                unexpected = "simple_function_checker:unexpected_param"
                return unexpected, f"the parameter {shorten(param)} is not expected"
            fault = self._compare_argument(param, value, params[param], acceptable[param])
            if fault is not None:
                return fault
        for param, options in acceptable.items():
            if param not in call.args and "" not in options:
                missing = "simple_function_checker:missing_optional"
                return missing, f"the parameter {shorten(param)} is missing"
        return None

    def _compare_argument(
        self, param: str, value: Any, details: Mapping[str, Any], options: Sequence[Any]
    ) -> Fault | None:
        described_type = details["type"]
        types = _TYPES[self.language]
        expected, nested = types[described_type], None
        if self.language != "python" and type(value) is not str:
            error_type = "type_error:java" if self.language == "java" else "type_error:js"
            repr(value)
            return error_type, f"{shorten(param)} is not {self.language} source"
        nested_type = None
        if described_type in _WITH_ITEMS[self.language]:
            nested_type = details["items"]["type"]
            nested = types[nested_type]
        if self.language == "java":
            value = java_value(value, described_type, nested_type)
        elif self.language == "javascript":
            value = javascript_value(value, described_type, nested_type)
        elif described_type == "float" and type(value) is int:
            value = float(value)
        if described_type == "tuple" and type(value) is tuple:
            value = list(value)
        fault, variable = type_fault(param, value, options, expected, nested)
        if fault is not None:
            return fault
        if variable:
            return value_fault(param, value, options, object)
        if expected is dict:
            return dict_fault(param, value, options)
        if expected is list and nested is dict:
            return dicts_fault(param, value, options)
        return value_fault(param, value, options, expected)


_TYPES: Mapping[str, Mapping[str, type]] = {
    "python": PYTHON_TYPES,
    "java": JAVA_TYPES,
    "javascript": JAVASCRIPT_TYPES,
}


def no_match(expected: Mapping[str, Any]) -> Fault:
    kind = "parallel_function_checker_no_order:cannot_find_match"
    return kind, f"no remaining call matches an expected call of {shorten(next(iter(expected)))}"


Fault = tuple[str, str]

_IGNORED = str.maketrans("", "", " ,./-_*^")
_NAME_CHARS = 80


def normalize(text: str) -> str:
    """Normalise a string: lower case, one kind of quotes, without spaces and ``,./-_*^``."""
    return text.translate(_IGNORED).lower().replace("'", '"')


def shorten(name: Any) -> str:
    """Return ``name``, or its type's name if it is not a string, cut to `_NAME_CHARS`."""
    text = name if isinstance(name, str) else type(name).__name__
    return text if len(text) <= _NAME_CHARS else f"{text[:_NAME_CHARS]}..."


def type_fault(
    param: Any, value: Any, options: Sequence[Any], expected: type, nested: type | None
) -> tuple[Fault | None, bool]:
    """Check the type of ``value``. Return the fault or None, and whether ``value`` is a variable.

    Two types are accepted: ``expected`` (documented) and the type of the first option other than
    "". If the two differ, ``value`` is a variable, which is compared without normalisation. Items
    of a list may have the type ``nested``, or the type of an option's items. Items are not checked
    if an option is not a list, for example ""."""
    kind = next((type(option) for option in options if option != ""), None)
    if type(value) is expected:
        variable = kind is not None and kind is not expected
        if nested is None or any(_items_fit(param, value, option, nested) for option in options):
            return None, variable
        _force_repr(value)
        if type(value) is kind:
            assert isinstance(value, Sequence)  # a list or a tuple: only these have a nested type
            kinds = sorted({type(item).__name__ for item in value if type(item) is not nested})
            sentence = f"items of {shorten(param)} are {' and '.join(kinds)}"
            return ("type_error:nested", f"{sentence} in place of {nested.__name__}"), True
    elif kind is not None and type(value) is kind:
        return None, True
    _force_repr(value)
    sentence = f"{shorten(param)} is {type(value).__name__} in place of {expected.__name__}"
    return ("type_error:simple", sentence), False


def _items_fit(param: Any, value: Any, option: Any, nested: type) -> bool:
    if type(option) is not list:
        return True
    return all(type_fault(param, item, option, nested, None)[0] is None for item in value)


def value_fault(param: Any, value: Any, options: Sequence[Any], expected: type) -> Fault | None:
    """Return the fault of a value of type ``expected`` that equals none of ``options``, or None.

    Strings, also strings in lists, are normalised. Option "" is an empty list. Other values are
    compared under Python's ``==``, where 1 equals 1.0 and True."""
    if expected is str:
        kind, noun, text = "string", "strings", normalize(value)
        fits = any(type(option) is str and normalize(option) == text for option in options)
    elif expected is list:
        kind, noun = "list/tuple", "lists"
        fits = _normal_texts(value) in [_normal_texts(option) for option in options]
    else:
        kind, noun, fits = "others", "values", value in options
    if fits:
        return None
    _force_repr(value)
    return f"value_error:{kind}", f"{shorten(param)} is not one of the acceptable {noun}"


def dict_fault(param: Any, value: Any, options: Sequence[Any]) -> Fault | None:
    """Return None if an object fits an option, which maps each key to a list of acceptable values;
    else the fault that the last option gives."""
    fault: Fault | None = ("dict_checker:unclear", f"{shorten(param)} has no acceptable value")
    for option in options:
        if option != "":
            fault = _option_fault(param, value, option)
            if fault is None:
                return None
    return fault


def _option_fault(param: Any, value: Any, option: Any) -> Fault | None:
    fault: Fault | None = None
    for key, item in value.items():
        if key not in option:
            str(key)
            fault = "value_error:dict_key", f"{shorten(param)} has a key that is not expected"
            break
        if (normalize(item) if type(item) is str else item) not in _normal_texts(option[key]):
            _force_repr(key, item)
            fault = (
                "value_error:dict_value",
                f"a value in {shorten(param)} is not an acceptable value",
            )
            break
    for key, acceptable in option.items():  # a missing key overrides the other faults
        if key not in value and "" not in acceptable:
            return "value_error:dict_key", f"{shorten(param)} lacks the key {shorten(key)}"
    return fault


def dicts_fault(param: Any, value: Sequence[Any], options: Sequence[Any]) -> Fault | None:
    """Return None if a list of objects fits an option: a list of the same length, whose objects
    (see `dict_fault`) fit the objects at the same index. Else return the last option's fault."""
    fault: Fault | None = ("list_dict_checker:unclear", f"{shorten(param)} has no acceptable value")
    for option in options:
        if len(value) != len(option):
            fault = (
                "value_error:list_dict_count",
                f"{shorten(param)} has the wrong number of objects",
            )
            continue
        for index in range(len(value)):
            fault = dict_fault(param, value[index], [option[index]])
            if fault is not None:
                break
        else:
            return None
    return fault


def _normal_texts(items: Any) -> list[Any]:
    # By index, as in upstream, so that values that are not a list raise the same error.
    values = [items[index] for index in range(len(items))]
    return [normalize(item) if type(item) is str else item for item in values]


def _force_repr(*values: Any) -> None:
    for value in values:
        repr(value)
