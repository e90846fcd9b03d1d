"""Build a correct answer of an entry from its acceptable values.

A parameter gets its first acceptable value. If this is null or "" (which marks an optional
parameter), the parameter is left out. A required parameter always gets its first value other than
"". These answers pass upstream's checker on 2,345 of the 2,351 Python entries."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any

from ace_ray.benchmarks.bfcl import categories as groups
from ace_ray.benchmarks.bfcl.decode.calls import Answer
from ace_ray.benchmarks.gold_check import Gold
from ace_ray.parsing.literals import Call, render
from ace_ray.types import Entry, Episode


def gold_calls(gold: Sequence[Mapping[str, Any]], functions: Sequence[Any]) -> list[Call]:
    """Return a correct call for each ``{name: {parameter: acceptable values}}`` in ``gold``."""
    required = {
        function["name"]: set(function["parameters"].get("required", ())) for function in functions
    }
    return [
        Call(name, _arguments(acceptable, required.get(name, set())))
        for expected in gold
        for name, acceptable in expected.items()
    ]


def gold_text(gold: Sequence[Mapping[str, Any]], functions: Sequence[Any]) -> str:
    """Return correct calls (`gold_calls`) as a Python list, the format that prompts request."""
    return render(gold_calls(gold, functions))


def has_python_gold(category: str) -> bool:
    """Return whether a category has gold calls in Python, which the contamination score needs."""
    return category in (*groups.NON_LIVE, *groups.LIVE) and not category.endswith(
        ("relevance", "_java", "_javascript")
    )


def _arguments(acceptable: Mapping[str, Sequence[Any]], required: set[str]) -> dict[str, Any]:
    return {
        name: _first_value(values)
        for name, values in acceptable.items()
        if name in required or (values and values[0] not in ("", None))
    }


def _first_value(values: Sequence[Any]) -> Any:
    return _resolve_lists(next((value for value in values if value != ""), ""))


def _resolve_lists(value: Any) -> Any:
    """Replace the lists of acceptable values inside an object by their first values."""
    if isinstance(value, Mapping):
        return {
            key: _first_value(inner) if isinstance(inner, list) else inner
            for key, inner in value.items()
        }
    if isinstance(value, list):
        return [_resolve_lists(item) if isinstance(item, Mapping) else item for item in value]
    return value


# Entries whose published answers contradict themselves, or conflict in greedy matching.
UNANSWERABLE = frozenset(
    {
        "parallel_multiple_26",
        "live_simple_106-63-0",
        "live_simple_112-68-0",
        "live_multiple_862-181-3",
        "live_multiple_964-207-0",
        "live_multiple_1038-265-0",
        # Two expected calls, or values of other types than the function's documentation says.
        *(f"sql_{number}" for number in (15, 18, 19, 28, 29, 38, 39, 49, 68, 69)),
        "exec_simple_93",
        "exec_multiple_45",
        "exec_multiple_46",
        # Calls that are not Python.
        *(f"multi_turn_composite_{number}" for number in (8, 11, 14, 17, 18, 22, 26, 30, 43, 45)),
        *(f"multi_turn_composite_{number}" for number in (153, 154, 173, 174, 184, 185)),
    }
)


def gold_of(entry: Entry, docs: Mapping[str, Sequence[Mapping[str, Any]]]) -> Gold | None:
    """Return a correct answer, and a wrong answer, whose last call has wrong arguments. Return None
    if the entry lacks gold calls.

    A wrong multi-turn answer lacks all calls of its last turn. ``docs``: the functions by class."""
    if entry.category == groups.CHATABLE:
        return Gold(Episode(output="Hello."), Episode(output="[hello()]"))
    if has_python_gold(entry.category) or entry.category in (groups.SQL, groups.REST, *groups.EXEC):
        *calls, final = gold_calls(entry.gold, entry.data["function"])
        wrong = Call(final.name, dict.fromkeys(final.args, "wrong") or {"wrong": 0})
        right, mangled = (Episode(output=render([*calls, call])) for call in (final, wrong))
        return Gold(right, mangled, may_fail=entry.id in UNANSWERABLE)
    if entry.category not in groups.CONVERSATIONS:
        return None
    parameters = {
        doc["name"]: list(doc["parameters"]["properties"])
        for name in entry.data["involved_classes"]
        for doc in docs[name]
    }
    gold = [[keyword_call(call, parameters) for call in turn] for turn in entry.gold]
    last = max(turn for turn, calls in enumerate(gold) if calls)
    short = [calls if turn != last else [] for turn, calls in enumerate(gold)]
    return Gold(_to_episode(gold), _to_episode(short), may_fail=entry.id in UNANSWERABLE)


def keyword_call(text: str, parameters: Mapping[str, Sequence[str]]) -> str:
    """Return the source ``text`` of a call with all arguments named, as models write it. Text that
    is not Python is returned unchanged. ``parameters``: parameter names by function."""
    try:
        call: Any = ast.parse(text, mode="eval").body
    except SyntaxError:
        return text
    names = parameters.get(call.func.id, ())  # the classes no longer have some functions
    keywords = [ast.keyword(names[index], value) for index, value in enumerate(call.args)]
    return ast.unparse(ast.Call(call.func, [], [*keywords, *call.keywords]))


def _to_episode(calls: Sequence[Sequence[str]]) -> Episode:
    """Return a conversation in which each turn has one step with all calls of the turn."""
    turns = [
        [Answer(text).as_json() for text in (*([f"[{', '.join(turn)}]"] if turn else []), "Done.")]
        for turn in calls
    ]
    return Episode(state={"turns": turns, "ended": ""})
