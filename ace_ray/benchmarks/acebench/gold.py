"""Build gold answers and gold end states, and deliberately wrong ("mangled") copies of them.

`replays` runs the ideal paths (published lists of calls) of agent rows in the sandbox. Some paths
do not reach the gold state: they delete the wrong message, lack a login, or cannot be read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from ace_ray.benchmarks.acebench.check.agent import check_agent
from ace_ray.benchmarks.acebench.check.agent_strict import REAL_NAMES, Path, paths
from ace_ray.benchmarks.acebench.environment.environment import Environment, open_environment
from ace_ray.benchmarks.acebench.options import AGENT
from ace_ray.benchmarks.external_outputs import single_answer
from ace_ray.benchmarks.gold_check import Gold
from ace_ray.parsing.literals import render
from ace_ray.types import RULE_SETS, Entry, Episode, Verdict, digest

# One gold answer: arguments by function name. Repeated functions are numbered: ``name_1``, ...
Calls = dict[str, dict[str, Any]]

_NUMBER = re.compile(r"_\d+$")
LIMITS = "Due to the limitations of the function, I cannot solve this problem."


def gold_of(entry: Entry) -> Gold:
    """Return the gold answer of an entry, and the mangled copy of it.

    Only the strict rules must judge both correctly: the official rules reject some gold answers and
    accept many mangled copies. For an agent entry, both are episodes with the calls of the first
    ideal path, one with the gold state and one with the mangled state."""
    if entry.category not in AGENT:
        right, mangled = single_answer(render_gold(entry)), single_answer(render_mangled(entry))
        return Gold(right, mangled, required=("strict",))
    milestones = entry.gold["mile_stone"]
    path = milestones[0] if isinstance(milestones[0], list) else milestones
    right, mangled = (
        Episode(state={"after": state, "process": path})
        for state in (gold_state(entry), mangled_state(entry))
    )
    return Gold(right, mangled, required=("strict",))


def render_gold(entry: Entry) -> str:
    """Return the first gold answer of a normal or special entry, as a model would write it."""
    if not entry.category.startswith("special_"):
        return _calls_text(entry, alternatives(entry)[0])
    return _message(entry, entry.gold)


def render_mangled(entry: Entry) -> str:
    """Return the gold answer of `render_gold` with one fault, which depends only on the entry.

    In a normal entry, an argument is altered. If all such copies are gold alternatives too, a
    function's name is altered. In an incomplete or error_param entry, a parameter's name is
    altered. In an irrelevant entry, a call is written before the sentence."""
    if entry.category == "special_irrelevant":
        return f"[{entry.data['function'][0]['name']}()] {LIMITS}"
    if entry.category.startswith("special_"):
        return _message(entry, _mangled_message(entry))
    golds = alternatives(entry)
    mangled = next(calls for calls in _mangled_calls(entry, golds[0]) if calls not in golds)
    return _calls_text(entry, mangled)


def alternatives(entry: Entry) -> list[Calls]:
    """Return all gold answers of a normal entry. A right answer equals one gold answer."""
    return entry.gold if isinstance(entry.gold, list) else [entry.gold]


def function_name(entry: Entry, key: str) -> str:
    """Return the name of the function that a key of a gold answer calls. A number at the key's end
    is removed, unless a function has the complete key as its name."""
    names = {function["name"] for function in entry.data["function"]}
    return key if key in names else _NUMBER.sub("", key)


def _calls_text(entry: Entry, calls: Calls) -> str:
    return render((function_name(entry, key), arguments) for key, arguments in calls.items())


def _message(entry: Entry, gold: Any) -> str:
    if entry.category == "special_incomplete":
        sentences = [
            f"Missing necessary parameters ({', '.join(names)}) for the api ({api})"
            for api, names in gold.items()
        ]
    elif entry.category == "special_error_param":
        sentences = [
            f"There is incorrect value ({', '.join(values)}) for the parameters ({name}) "
            "in the conversation history."
            for name, values in gold.items()
        ]
    else:
        sentences = [LIMITS]
    return "[" + ", ".join(f'"{sentence}"' for sentence in sentences) + "]"


def _mangled_message(entry: Entry) -> Any:
    first, *tail = entry.gold.items()
    if entry.category == "special_incomplete":
        api, names = first
        return {api: [f"{names[0]}_altered", *names[1:]], **dict(tail)}
    name, values = first
    return {f"{name}_altered": values, **dict(tail)}


def _mangled_calls(entry: Entry, calls: Calls) -> Iterator[Calls]:
    """Yield wrong copies of ``calls``: one per argument, which is altered, then one with another
    function name. A hash of the entry's key chooses the first argument."""
    targets = [(key, name) for key, arguments in calls.items() for name in arguments]
    start = int(digest(*entry.key)[:8], 16) % max(1, len(targets))
    for key, name in targets[start:] + targets[:start]:
        yield {**calls, key: {**calls[key], name: alter(calls[key][name])}}
    for key in calls:
        yield {f"{k}_altered" if k == key else k: arguments for k, arguments in calls.items()}


def alter(value: Any) -> Any:
    """Return another value of the same type, or "altered" for None and empty containers."""
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case str():
            return f"{value} altered"
        case [first, *tail]:
            return [alter(first), *tail]
        case Mapping() if value:
            key = next(iter(value))
            return {**value, key: alter(value[key])}
        case _:
            return "altered"


# ``[{class: {attribute: value}}, ...]``.
State = list[dict[str, dict[str, Any]]]


def gold_state(entry: Entry) -> State:
    """Return the gold end state, with misspelt class names corrected."""
    return [
        {REAL_NAMES.get(name, name): attributes for name, attributes in app.items()}
        for app in entry.gold["ground_truth"]
    ]


def mangled_state(entry: Entry) -> State:
    """Return the gold state with one attribute altered. The entry's key selects the attribute.

    The official rules never compare a class whose name the gold state misspells. An attribute of
    such a class is altered only if no other class has attributes."""
    state = gold_state(entry)
    targets = [
        (number, name, attribute)
        for number, app in enumerate(state)
        for name, attributes in app.items()
        for attribute in attributes
    ]
    compared = [target for target in targets if target[1] in entry.gold["ground_truth"][target[0]]]
    targets = compared or targets
    number, name, attribute = targets[int(digest(*entry.key)[:8], 16) % len(targets)]
    attributes = state[number][name]
    state[number] = {name: {**attributes, attribute: alter(attributes[attribute])}}
    return state


def replays(entries: Sequence[Entry], app_specs: Mapping[str, Any]) -> Iterator[str]:
    """Replay ideal paths in the sandbox. Yield a line with counts for each language and category,
    and a line for each path that does not reach the gold state."""
    for (language, category), group in groupby(entries, lambda e: e.category_key):
        results = [(entry, *result) for entry in group for result in replay(entry, app_specs)]
        official, strict = (
            sum(verdicts[rule].valid is True for _, _, verdicts, _ in results) for rule in RULE_SETS
        )
        yield (
            f"{language} {category}: of {len(results)} ideal paths replayed in the sandbox "
            f"{official} end in a state that the official rules accept, {strict} in the gold state"
        )
        for entry, number, verdicts, refused in results:
            if not verdicts["strict"].valid:
                why = "; ".join([*refused[:1], verdicts["strict"].error.partition(";")[0]])
                yield f"  {language} {entry.id}, path {number}: {why}"


def replay(
    entry: Entry, app_specs: Mapping[str, Any]
) -> Iterator[tuple[int, Mapping[str, Verdict], Sequence[str]]]:
    """Replay every ideal path of an agent entry in a fresh sandbox.

    Yield the number of the path, the verdicts on its end state, and the refused steps."""
    for number, path in enumerate(paths(entry.gold["mile_stone"]), start=1):
        environment = open_environment(app_specs, entry)
        refused = list(_refused_steps(environment, path))
        yield number, check_agent(entry, environment.state(), []), refused


def _refused_steps(environment: Environment, path: Path) -> Iterator[str]:
    for step, call in enumerate(path, start=1):
        if not call.name:
            yield f"step {step} cannot be read"
            continue
        answer = environment.call(call.name, call.args)
        denied = isinstance(answer.value, dict) and answer.value.get("status") is False
        if answer.error or denied:
            message = answer.value.get("message", answer.value) if denied else answer.value
            yield f"step {step}, {call.name}, is refused: {message}"
