"""Return the strict verdicts on normal and special rows.

**Normal rows**: exact calls. After the paper's section on evaluation by syntax tree, function name
and number, types and values of the parameters must agree with the gold answer. The output must be
only the list of calls. The first rule that fails names the error:

- ``output_format``: the stripped output is exactly one ``[F(k=v), ...]``. Calls have keyword
  arguments and literal values of Python. ``true``, ``false`` and ``null`` are values too, because
  gold is JSON.
- ``function_name``: the called names are the gold answer's, in any order and equally often.
- ``param_num``: no parameter is unexpected, and none is missing that the function requires, or
  that the user asks for (`Conversation.asks_for`). Many gold answers have an optional parameter
  without a reason in the conversation.
- ``param_type``: the JSON type equals the gold value's, within containers too: ``True`` is not
  ``1``. Integers and floats are one type, as in JSON Schema. If the schema says ``integer`` and
  gold is an integer, a number with a fraction has another type: ``75.0`` is 75, ``75.5`` is wrong.
- ``param_value``: the values are equal, within containers too (`Conversation.agrees`). A number
  that nobody told may have any value, and an option may be True unless the user declines it.

Parallel calls may be in any order, and each gold call must match a different call. If no assignment
matches all gold calls, take the assignment with the fewest faults: its first fault decides.

**Special rows**: the message contains a phrase, names exactly the wanted parts, and calls nothing.
Blanks and letter case of the phrase do not count. The phrases, and the parts after them:

- incomplete: ``missing necessary parameters (a, b)``. Required parameters beyond gold's may be
  named, since the gold answers do not name all of them, and those that the user speaks of
  (`Conversation.touches`).
- error_param: ``incorrect value (v) for the parameters (p)``, with any words after ``for``. Values
  beyond gold's may be named if their schemas refuse them.
- irrelevant: ``cannot solve this problem`` or ``limitations of the function``.

Several such phrases name their parts together. A name with its path (``location.latitude``) names
the gold parameter that is one of its steps. A number with its unit (``250 feet``) names the number.
A thought between think tags is not part of the message.

Errors:

- ``detection_failed``: the phrase is missing, or a function is called.
- ``correction_failed``: the message names other parameters or values.
- ``false_positive``: any of these failures on an irrelevant row.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ace_ray.benchmarks.acebench.check.conversation import (
    Conversation,
    enumeration,
    is_number,
    mapping_at,
)
from ace_ray.parsing.literals import Call
from ace_ray.types import Entry, Verdict


def assign(costs: Sequence[Sequence[int]]) -> list[int]:
    """Return a different column for each row of the square matrix ``costs``, at minimal total cost.

    Hungarian method with potentials, O(n^3). Rows are added one by one. Each new row takes the
    cheapest chain of reassignments that frees a column for it. Ties go to the leftmost column."""
    size = len(costs)
    entry = size  # an extra column, owned by the row that is being added
    row_price, column_price = [0] * size, [0] * (size + 1)
    owner = [-1] * (size + 1)  # the row that owns each column; -1 if it is free
    for row in range(size):
        owner[entry] = row
        slack, came_from = [float("inf")] * size, [entry] * size
        reached: list[int] = []
        column = entry
        while owner[column] >= 0:
            owner_row = owner[column]
            reached.append(column)
            remaining_columns = [n for n in range(size) if n not in reached]
            for index in remaining_columns:
                gap = costs[owner_row][index] - row_price[owner_row] - column_price[index]
                if gap < slack[index]:
                    slack[index], came_from[index] = gap, column
            step, nearest = min((slack[n], n) for n in remaining_columns)
            for index in reached:
                row_price[owner[index]] += int(step)
                column_price[index] -= int(step)
            for index in remaining_columns:
                slack[index] -= step
            column = nearest
        # Walk the chain back: each column takes over the owner of the column before it.
        while column != entry:
            owner[column] = owner[came_from[column]]
            column = came_from[column]
    return [owner.index(row) for row in range(size)]


_NUMBER = re.compile(r"(?<=.)_[0-9]+$")
# Cost of each fault in the assignment. Fewer faults always cost less, whatever their types.
_FAULTS = {"": 0, "param_value": 1_001, "param_type": 1_002, "param_num": 1_003}

_Fault = tuple[str, str]


def judge_normal(entry: Entry, calls: list[Call] | str) -> Verdict:
    """Return the verdict on a row of a normal category.

    ``calls`` are the strictly decoded calls, or a string that says why there are none. The calls
    may match any gold answer. If they match none, the error is against the first gold answer."""
    if isinstance(calls, str):
        return Verdict(False, "output_format", calls)
    functions = entry.data.get("function")
    candidates = functions if isinstance(functions, list) else [functions]
    alternatives = entry.gold if isinstance(entry.gold, list) else [entry.gold]
    first: _Fault | None = None
    conversation = Conversation(entry)
    for gold in alternatives:
        fault = _calls_fault(calls, _gold_calls(gold, candidates), candidates, conversation)
        if fault is None:
            return Verdict(True)
        first = first or fault
    return Verdict(False, *(first or ("function_name", "there is no gold answer")))


def _gold_calls(gold: Mapping[str, Any], candidates: list[Any]) -> list[Call]:
    """Return the calls of one gold answer. The keys of a repeated function are ``name_1``,
    ``name_2``, ... The number is removed unless a function has the key as its name."""
    calls = []
    for key, args in gold.items():
        name = key
        if key[-1:].isdecimal() and _find_function(candidates, key) is None:
            name = _NUMBER.sub("", key)
        calls.append(Call(name, args))
    return calls


def _find_function(candidates: list[Any], name: str) -> Any:
    for function in candidates:
        if isinstance(function, dict) and function.get("name") == name:
            return function
    return None


def _calls_fault(
    calls: list[Call], gold: list[Call], candidates: list[Any], conversation: Conversation
) -> _Fault | None:
    if len(calls) == len(gold) == 1:
        if calls[0].name != gold[0].name:
            return "function_name", f"called {calls[0].name[:80]}, expected {gold[0].name}"
        return _call_fault(calls[0], gold[0], _schema(candidates, gold[0].name), conversation)
    if len(calls) != len(gold):
        return "function_name", f"{len(calls)} calls instead of {len(gold)}"
    if Counter(call.name for call in calls) != Counter(call.name for call in gold):
        return "function_name", f"the functions called are not {', '.join(c.name for c in gold)}"
    faults: dict[int, _Fault] = {}
    for name in dict.fromkeys(call.name for call in gold):
        faults |= _group_faults(name, calls, gold, _schema(candidates, name), conversation)
    return faults[min(faults)] if faults else None


def _group_faults(
    name: str, calls: list[Call], gold: list[Call], schema: Any, conversation: Conversation
) -> dict[int, _Fault]:
    """Return the faults of the gold calls of the function ``name``, by position in ``gold``.

    `assign` decides which call is compared with which gold call."""
    mine = [call for call in calls if call.name == name]
    targets = [(index, call) for index, call in enumerate(gold) if call.name == name]
    faults = [
        [_call_fault(call, target, schema, conversation) for call in mine] for _, target in targets
    ]
    costs = [[_FAULTS[fault[0]] if fault else 0 for fault in row] for row in faults]
    by_index = {}
    for (index, _), row, column in zip(targets, faults, assign(costs), strict=True):
        if fault := row[column]:
            by_index[index] = fault
    return by_index


def _schema(candidates: list[Any], name: str) -> Any:
    """Return the schema of a function's parameters; None if the function lacks one."""
    function = _find_function(candidates, name) or {}
    return function.get("parameters", function.get("arguments"))


def _call_fault(call: Call, gold: Call, schema: Any, conversation: Conversation) -> _Fault | None:
    args, gold_args, schemas = call.args, gold.args, mapping_at(schema, "properties")
    required = schema.get("required") if isinstance(schema, dict) else ()
    needed = {
        param
        for param in gold_args.keys() - args.keys()
        if param in (required or ()) or conversation.asks_for(param, gold_args)
    }
    unlike = (args.keys() - gold_args.keys()) | needed
    different = sorted(str(param)[:80] for param in unlike)
    if different:
        return "param_num", f"parameters missing or not expected: {', '.join(different[:5])}"
    pairs = [(param, args[param], gold_args[param]) for param in gold_args if param in args]
    # Some gold values contradict the schema: an object in place of a list of objects, or null.
    pairs = [
        (param, value, [target] if _is_bare_item(target, value, schemas.get(param)) else target)
        for param, value, target in pairs
        if target is not None or value is None or not isinstance(value, str)
    ]
    for param, value, target in pairs:
        if not _same_type(value, target, schemas.get(param)):
            return "param_type", f"parameter {param} has the wrong type"
    for param, value, target in pairs:
        # A number that the user did not tell is made up, in the gold answer too.
        if is_number(target) and not conversation.tells(target) and not conversation.tells(value):
            continue
        # Gold is False where nobody spoke of an option: then True does not contradict the user.
        if target is False and param not in (required or ()) and not conversation.declines(param):
            continue
        if not conversation.agrees(param, value, target, schemas.get(param)):
            return "param_value", f"parameter {param} has the wrong value"
    return None


def _is_bare_item(gold: Any, value: Any, schema: Any) -> bool:
    is_array = isinstance(schema, dict) and schema.get("type") == "array"
    return is_array and isinstance(value, list) and not isinstance(gold, list)


def _same_type(value: Any, gold: Any, schema: Any) -> bool:
    if is_number(gold):
        if not is_number(value):
            return False
        declared = schema.get("type") if isinstance(schema, dict) else None
        integral = declared in ("integer", "int") and gold == gold // 1
        return not integral or value == value // 1
    kind = type(gold)
    if type(value) is not kind:
        return False
    # Different sizes or keys are wrong values, not wrong types: compare only the common parts.
    if kind is dict:
        inner = mapping_at(schema, "properties")
        return all(
            _same_type(value[k], item, inner.get(k)) for k, item in gold.items() if k in value
        )
    if kind is list:
        inner = mapping_at(schema, "items")
        return all(
            _same_type(item, target, inner) for item, target in zip(value, gold, strict=False)
        )
    return True


# A value may contain parentheses. The length limits keep the search time linear in the text.
_PHRASES = {
    "special_incomplete": r"missing necessary parameters(?: ?\(([^()]{1,2000})\))?",
    "special_error_param": (
        r"incorrect values?"
        r"(?: ?\((.{1,300}?)\) for[^()]{0,40}\(([^()]{1,300})\))?"
    ),
    "special_irrelevant": "cannot solve this problem|limitations of the function",
}
_PATTERNS = {name: re.compile(text, re.IGNORECASE) for name, text in _PHRASES.items()}
_NUMBER_WITH_UNIT = re.compile(r"(-?[0-9]+(?:\.[0-9]+)?) ?(?:[^\W\d_]|[°%])[^\d,]*")
_COMMAS = re.compile("[,，]")  # the Chinese prompt uses the wide comma
_QUOTES = " '\"`[]"
# `name(key=`, `name()` or `[name(`.
_CALL = re.compile(
    r"(?<![\w.])[^\W\d][\w.]{0,200}\(\s{0,9}(?:\)|[^\W\d]\w{0,100}\s{0,9}=(?!=))"
    r"|\[\s{0,9}[^\W\d][\w.]{0,200}\("
)
# `"name": "F"` or `"F": {`.
_JSON_NAME = re.compile(
    r"""["']name["']\s{0,9}:\s{0,9}["']([^"']{1,200})["']|["']([^"']{1,200})["']\s{0,9}:\s{0,9}\{"""
)


def judge_special(entry: Entry, output: str | None) -> Verdict:
    """Return the verdict on a row of a special category."""
    message = (output or "").rpartition("</think>")[2].partition("<think>")[0]
    text = " ".join(message.split())
    irrelevant = entry.category == "special_irrelevant"
    undetected = "false_positive" if irrelevant else "detection_failed"
    phrase = _PATTERNS[entry.category]
    matches = list(phrase.finditer(text))
    if not matches:
        return Verdict(False, undetected, "the phrase that the prompt asks for is missing")
    if _has_call(entry, phrase.sub(" ", text)):
        return Verdict(False, undetected, "a function is called")
    if not irrelevant and not _has_parts(entry, matches):
        return Verdict(False, "correction_failed", "the message does not name exactly these parts")
    return Verdict(True)


def _has_call(entry: Entry, text: str) -> bool:
    """Return whether ``text`` calls a function in Python syntax, or an offered function in JSON."""
    functions = entry.data.get("function")
    names = [
        function.get("name")
        for function in (functions if isinstance(functions, list) else [functions])
        if isinstance(function, dict)
    ]
    called = (match[1] or match[2] for match in _JSON_NAME.finditer(text))
    return bool(_CALL.search(text)) or any(name in names for name in called)


def _has_parts(entry: Entry, matches: Sequence[re.Match[str]]) -> bool:
    """Return whether the texts in parentheses after the phrases name gold's parts, and no others
    that are right (see the module's text)."""
    gold = {str(part) for parts in entry.gold.values() for part in parts}
    functions = entry.data.get("function")
    candidates = functions if isinstance(functions, list) else [functions]
    if entry.category == "special_incomplete":
        named = _parameters([match[1] for match in matches], gold)
        schemas = [_schema(candidates, name) for name in entry.gold]
        wanted = {name for schema in schemas for name in _required(schema)}
        conversation = Conversation(entry)
        wanted |= {name for schema in schemas for name in _touched(schema, conversation)}
        return gold <= named and named - gold <= wanted
    wrong = set(entry.gold)
    pairs = [pair for match in matches for pair in _pairs(match, gold, wrong)]
    properties = [
        mapping_at(_schema(candidates, function["name"]), "properties")
        for function in candidates
        if isinstance(function, dict) and "name" in function
    ]
    return (
        gold <= {value for value, _ in pairs}
        and wrong <= {param for _, param in pairs}
        and all(
            any(_refuses(mapping_at(schemas, param), value) for schemas in properties)
            for value, param in pairs
            if value not in gold or param not in wrong
        )
    )


def _pairs(match: re.Match[str], gold: set[str], wrong: set[str]) -> list[tuple[str, str]]:
    """Return the values that a message names with their parameters. If their numbers differ, each
    value belongs to the only parameter, else to each parameter."""
    values = _values([match[1]], gold)
    params = [name for text in _split(match[2] or "") for name in _parameters([text], wrong)]
    if len(values) == len(params):
        return list(zip(values, params, strict=True))
    return [(value, param) for value in values for param in params]


def _required(schema: Any) -> Iterator[str]:
    """Yield the names of required parameters, and of those required in them, with their paths."""
    properties = mapping_at(schema, "properties")
    for name in schema.get("required") or () if isinstance(schema, dict) else ():
        yield name
        inner = properties.get(name)
        for step in _required(mapping_at(inner, "items") or inner):
            yield from (step, f"{name}.{step}")


def _touched(schema: Any, conversation: Conversation) -> Iterator[str]:
    """Yield the names of parameters that the user speaks of, and of those in them, with their
    paths."""
    for name, inner in mapping_at(schema, "properties").items():
        steps = list(mapping_at(mapping_at(inner, "items") or inner, "properties"))
        if conversation.touches([name, *steps]):
            yield from (name, *steps, *(f"{name}.{step}" for step in steps))


def _refuses(schema: Any, value: str) -> bool:
    """Return whether a schema excludes the value that a text spells."""
    if items := mapping_at(schema, "items"):
        return _refuses(items, value)
    if schema.get("type") in ("integer", "number", "float"):
        try:
            number = float(value)
        except ValueError:
            return True
        return not schema.get("minimum", number) <= number <= schema.get("maximum", number)
    options, pattern = enumeration(schema), schema.get("pattern", "")
    length = schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value))
    in_form = not options or value in options
    return not (length and in_form and re.search(pattern, value))


def _parameters(texts: Sequence[str | None], gold: set[str]) -> set[str]:
    """Return the parameters that ``texts`` name. A path (``a.b``) stands for its gold steps."""
    names: set[str] = set()
    for name in (name for text in texts if text for name in _split(text)):
        names |= {name} & gold or set(name.split(".")) & gold or {name}
    return names


def _values(texts: Sequence[str | None], gold: set[str]) -> list[str]:
    """Return the values that ``texts`` name. A gold value is not split at its commas."""
    values: list[str] = []
    for text in filter(None, texts):
        for value in [_unquote(text)] if _unquote(text) in gold else _split(text):
            number = _NUMBER_WITH_UNIT.fullmatch(value)
            values.append(number[1] if number and number[1] in gold else value)
    return values


def _split(text: str) -> list[str]:
    return [_unquote(part) for part in _COMMAS.split(text) if _unquote(part)]


def _unquote(text: str) -> str:
    return text.strip(_QUOTES)
