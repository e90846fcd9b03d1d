"""Whether a value is one of the acceptable ones (upstream ``ast_eval/ast_checker.py``).

All of these return a fault, an error type with a sentence, or None. Where upstream raises, they do:
it prints the values that it rejects, and Python does not print integers beyond 4,300 digits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Fault = tuple[str, str]

_IGNORED = str.maketrans("", "", " ,./-_*^")
_NAME_CHARS = 80


def normal(text: str) -> str:
    """A text as texts are compared: lower case, one kind of quotes, no spaces and ``,./-_*^``."""
    return text.translate(_IGNORED).lower().replace("'", '"')


def short(name: Any) -> str:
    """A name in a sentence, bounded whatever it is."""
    text = name if isinstance(name, str) else type(name).__name__
    return text if len(text) <= _NAME_CHARS else f"{text[:_NAME_CHARS]}..."


def type_fault(
    param: Any, value: Any, options: Sequence[Any], wanted: type, nested: type | None
) -> tuple[Fault | None, bool]:
    """Whether ``value`` is of the type that the function documents, or of that of the first option
    that is not "".

    The second value tells whether it counts as a variable, which is compared as it is. Items are
    looked at one level deep, and not at all when some option is no list ("" among them).
    """
    kind = next((type(option) for option in options if option != ""), None)
    if type(value) is wanted:
        variable = kind is not None and kind is not wanted
        if nested is None or any(_items_fit(param, value, option, nested) for option in options):
            return None, variable
        _printed(value)
        if type(value) is kind:
            return ("type_error:nested", f"items of {short(param)} have the wrong type"), True
    elif kind is not None and type(value) is kind:
        return None, True
    _printed(value)
    sentence = f"{short(param)} is {type(value).__name__} in place of {wanted.__name__}"
    return ("type_error:simple", sentence), False


def _items_fit(param: Any, value: Any, option: Any, nested: type) -> bool:
    if type(option) is not list:
        return True
    return all(type_fault(param, item, option, nested, None)[0] is None for item in value)


def string_fault(param: Any, value: str, options: Sequence[Any]) -> Fault | None:
    """Equal to an option that is a text, both normalised."""
    wanted = normal(value)
    if any(type(option) is str and normal(option) == wanted for option in options):
        return None
    _printed(value)
    return "value_error:string", f"{short(param)} is none of the acceptable texts"


def list_fault(param: Any, value: Sequence[Any], options: Sequence[Any]) -> Fault | None:
    """Equal to an option item by item, texts normalised; "" stands for the empty list."""
    if _normal_texts(value) in [_normal_texts(option) for option in options]:
        return None
    _printed(value)
    return "value_error:list/tuple", f"{short(param)} is none of the acceptable lists"


def dict_fault(param: Any, value: Any, options: Sequence[Any]) -> Fault | None:
    """Fits an option, whose keys hold acceptable values each; else the last option's fault."""
    fault: Fault | None = ("dict_checker:unclear", f"{short(param)} has no acceptable value")
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
            fault = "value_error:dict_key", f"{short(param)} has a key that is not expected"
            break
        if (normal(item) if type(item) is str else item) not in _normal_texts(option[key]):
            _printed(key, item)
            fault = "value_error:dict_value", f"a value in {short(param)} is none of the acceptable"
            break
    for key, acceptable in option.items():  # in any case: a missing key is what is reported
        if key not in value and "" not in acceptable:
            return "value_error:dict_key", f"{short(param)} lacks the key {short(key)}"
    return fault


def dicts_fault(param: Any, value: Sequence[Any], options: Sequence[Any]) -> Fault | None:
    """As many objects as an option, each of which fits the one in its place."""
    fault: Fault | None = ("list_dict_checker:unclear", f"{short(param)} has no acceptable value")
    for option in options:
        if len(value) != len(option):
            fault = "value_error:list_dict_count", f"{short(param)} has the wrong number of objects"
            continue
        for place in range(len(value)):
            fault = dict_fault(param, value[place], [option[place]])
            if fault is not None:
                break
        else:
            return None
    return fault


def other_fault(param: Any, value: Any, options: Sequence[Any]) -> Fault | None:
    """Equal to an option as Python compares: 1 is 1.0 and True."""
    if value in options:
        return None
    _printed(value)
    return "value_error:others", f"{short(param)} is none of the acceptable values"


def _normal_texts(items: Any) -> list[Any]:
    # By index, as upstream: the error it raises for acceptable values that are no list is the same.
    found = [items[place] for place in range(len(items))]
    return [normal(item) if type(item) is str else item for item in found]


def _printed(*values: Any) -> None:
    for value in values:
        repr(value)
