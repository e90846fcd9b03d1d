"""The strict verdict on the 12 normal categories: exact calls, in the paper's sense.

ACEBench paper, section on evaluation by syntax tree: the function name, the number of parameters,
their types and their values must all agree with the gold answer, and the output must be the list of
calls and nothing else. The first of these that fails names the error:

- ``output_format``: the stripped output is not exactly one ``[F(k=v), ...]`` of calls with keyword
  arguments and literal Python values (``true`` and ``null`` are not);
- ``function_name``: the names called, as a multiset, are not the gold answer's;
- ``param_num``: not the same parameter names;
- ``param_type``: another JSON type than the gold value's, within containers too: ``True`` is not
  ``1``. Integers and floats are one type, as in JSON Schema, but where the schema says ``integer``
  and the gold value is one, a number with a fraction is of another type: ``75.0`` is 75, ``75.5``
  is no integer;
- ``param_value``: not equal.

Parallel calls may come in any order, each gold call needs a call of its own. Where no assignment
fits, the error is that of the first unmatched gold call in the assignment that comes closest.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ace_ray.parsing import Call
from ace_ray.types import Entry, Verdict


def assign(costs: Sequence[Sequence[int]]) -> list[int]:
    """For each row of a square matrix its column, so that the sum of the costs is least.

    The Hungarian method with potentials, O(n^3): rows enter one by one, and each finds the cheapest
    chain of moves that frees a column for it. Deterministic: ties go to the leftmost column.
    """
    size = len(costs)
    row_price, column_price = [0] * size, [0] * size
    owner: list[int | None] = [None] * size  # the row that holds each column
    for row in range(size):
        slack: list[int | None] = [None] * size
        came_from: list[int | None] = [None] * size
        reached: list[int] = []
        here, column = row, None
        while True:
            for other in range(size):
                if other in reached:
                    continue
                gap = costs[here][other] - row_price[here] - column_price[other]
                least = slack[other]
                if least is None or gap < least:
                    slack[other], came_from[other] = gap, column
            step, nearest = min(
                (gap, other)
                for other, gap in enumerate(slack)
                if gap is not None and other not in reached
            )
            row_price[row] += step
            for other in range(size):
                if other in reached:
                    holder = owner[other]
                    assert holder is not None
                    row_price[holder] += step
                    column_price[other] -= step
                else:
                    gap_left = slack[other]
                    assert gap_left is not None
                    slack[other] = gap_left - step
            reached.append(nearest)
            column = nearest
            holder = owner[nearest]
            if holder is None:
                break
            here = holder
        # Walk back: each column on the chain goes to the row that held the one before it.
        while column is not None:
            before = came_from[column]
            owner[column] = row if before is None else owner[before]
            column = before
    columns = [0] * size
    for column, holder in enumerate(owner):
        if holder is not None:
            columns[holder] = column
    return columns


_NUMBER = re.compile(r"(?<=.)_[0-9]+$")
# How far a call is from its gold call. Any fault outweighs all differences between faults.
_FAULTS = {"": 0, "param_value": 1_001, "param_type": 1_002, "param_num": 1_003}

_Fault = tuple[str, str]


def judge(entry: Entry, calls: list[Call] | str) -> Verdict:
    """The verdict on strictly decoded calls, or on the reason why there are none.

    Any alternative of the gold answer may fit; otherwise the error is the first alternative's.
    """
    if isinstance(calls, str):
        return Verdict(False, "output_format", calls)
    functions = entry.data.get("function")
    candidates = functions if isinstance(functions, list) else [functions]
    alternatives = entry.gold if isinstance(entry.gold, list) else [entry.gold]
    first: _Fault | None = None
    for gold in alternatives:
        fault = _judge_one(calls, _gold_calls(gold, candidates), candidates)
        if fault is None:
            return Verdict(True)
        first = first or fault
    return Verdict(False, *(first or ("function_name", "there is no gold answer")))


def _gold_calls(gold: Mapping[str, Any], candidates: list[Any]) -> list[Call]:
    """The gold calls. Repeated functions are keyed ``name_1``, ``name_2``, ... in the data; a key
    that is a candidate's own name (``perception_check_1``) keeps its number."""
    calls = []
    for key, args in gold.items():
        name = key
        if key[-1:].isdecimal() and _described(candidates, key) is None:
            name = _NUMBER.sub("", key)
        calls.append(Call(name, args))
    return calls


def _described(candidates: list[Any], name: str) -> Any:
    for function in candidates:
        if isinstance(function, dict) and function.get("name") == name:
            return function
    return None


def _judge_one(calls: list[Call], gold: list[Call], candidates: list[Any]) -> _Fault | None:
    if len(calls) == len(gold) == 1:
        if calls[0].name != gold[0].name:
            return "function_name", f"the function called is not {gold[0].name}"
        return _call_fault(calls[0], gold[0], _schemas(candidates, gold[0].name))
    if len(calls) != len(gold):
        return "function_name", f"{len(calls)} calls instead of {len(gold)}"
    if Counter(call.name for call in calls) != Counter(call.name for call in gold):
        return "function_name", f"the functions called are not {', '.join(c.name for c in gold)}"
    faults: dict[int, _Fault] = {}
    for name in dict.fromkeys(call.name for call in gold):
        faults |= _group_faults(name, calls, gold, _schemas(candidates, name))
    return faults[min(faults)] if faults else None


def _group_faults(
    name: str, calls: list[Call], gold: list[Call], schemas: Mapping[str, Any]
) -> dict[int, _Fault]:
    """Faults of one function's gold calls by their position, under the best assignment."""
    mine = [call for call in calls if call.name == name]
    wanted = [(place, call) for place, call in enumerate(gold) if call.name == name]
    faults = [[_call_fault(call, target, schemas) for call in mine] for _, target in wanted]
    costs = [[_FAULTS[fault[0]] if fault else 0 for fault in row] for row in faults]
    by_place = {}
    for (place, _), row, column in zip(wanted, faults, assign(costs), strict=True):
        if fault := row[column]:
            by_place[place] = fault
    return by_place


def _schemas(candidates: list[Any], name: str) -> Mapping[str, Any]:
    """The schemas of a function's parameters by name; none where the description has another
    shape."""
    function = _described(candidates, name) or {}
    return _inner(function.get("parameters"), "properties")


def _inner(schema: Any, key: str) -> Mapping[str, Any]:
    inner = schema.get(key) if isinstance(schema, dict) else None
    return inner if isinstance(inner, dict) else {}


def _call_fault(call: Call, gold: Call, schemas: Mapping[str, Any]) -> _Fault | None:
    args, gold_args = call.args, gold.args
    if args.keys() != gold_args.keys():
        different = sorted(str(param)[:80] for param in args.keys() ^ gold_args.keys())
        return "param_num", f"parameters missing or not expected: {', '.join(different[:5])}"
    for param, value in gold_args.items():
        if not _same_type(args[param], value, schemas.get(param)):
            return "param_type", f"parameter {param} has the wrong type"
    for param, value in gold_args.items():
        if args[param] != value:
            return "param_value", f"parameter {param} has the wrong value"
    return None


def _same_type(value: Any, gold: Any, schema: Any) -> bool:
    if _is_number(gold):
        if not _is_number(value):
            return False
        declared = schema.get("type") if isinstance(schema, dict) else None
        integral = declared in ("integer", "int") and gold == gold // 1
        return not integral or value == value // 1
    kind = type(gold)
    if type(value) is not kind:
        return False
    # Where sizes or keys differ it is the values that differ, so only common parts count here.
    if kind is dict:
        inner = _inner(schema, "properties")
        return all(
            _same_type(value[k], item, inner.get(k)) for k, item in gold.items() if k in value
        )
    if kind is list:
        inner = _inner(schema, "items")
        return all(
            _same_type(item, wanted, inner) for item, wanted in zip(value, gold, strict=False)
        )
    return True


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
