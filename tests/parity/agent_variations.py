"""What is done to the end state and to the process of an agent row."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

from call_variations import NotHere, pick

from ace_ray.benchmarks.acebench.gold import gold_state, mangled_state
from ace_ray.types import Entry

Rng = random.Random
Output = tuple[Any, Any]
Change = Callable[[Any, Rng], Any]
"""Changes its argument, or returns another value in its place."""
_VALUES = [
    1,
    1.0,
    True,
    "1",
    0,
    False,
    None,
    "x",
    [],
    {},
    [1],
    {"a": 1},
    500,
    500.0,
    "500.0",
    -1,
    3,
]
_CLASSES = ["Other", "BaseApi", "BaseAPI", "MessageApi", "ReminderApi", "Reminderpi", "Travel"]


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """(container, key) of every value in ``value``."""
    if isinstance(value, dict):
        items: list[tuple[Any, Any]] = list(value.items())
    else:
        items = list(enumerate(value)) if isinstance(value, list) else []
    for key, inner in items:
        yield value, key
        yield from _places(inner)


def _of(value: Any, rng: Rng, *types: type) -> tuple[Any, Any]:
    found = [place for place in _places(value) if type(place[0][place[1]]) in types]
    container, key = pick(rng, found)
    return container, key


def _another_value(state: Any, rng: Rng) -> None:
    container, key = pick(rng, list(_places(state)))
    container[key] = rng.choice(_VALUES)


def _value_gone(state: Any, rng: Rng) -> None:
    container, key = pick(rng, list(_places(state)))
    del container[key]


def _more(state: Any, rng: Rng) -> None:
    container, key = _of(state, rng, dict, list)
    inner = container[key]
    if isinstance(inner, dict):
        inner[rng.choice(["extra", "7", "wifi", "inbox"])] = rng.choice(_VALUES)
    else:
        inner.append(rng.choice(_VALUES))


def _other_type(state: Any, rng: Rng) -> None:
    container, key = _of(state, rng, int, float, bool)
    number = container[key]
    changes: list[Callable[[Any], Any]] = [float, int, bool, str, lambda n: n + 1]
    container[key] = rng.choice(changes)(number)


def _text(state: Any, rng: Rng) -> None:
    container, key = _of(state, rng, str)
    text = container[key]
    container[key] = rng.choice([f"{text} ", text.upper(), text[:-1], "", f"{text}\x00", "\ud800"])


def _key_order(state: Any, rng: Rng) -> None:
    container, key = _of(state, rng, dict)
    items = list(container[key].items())
    container[key] = dict(rng.sample(items, len(items)))


def _list_order(state: Any, rng: Rng) -> None:
    container, key = _of(state, rng, list)
    rng.shuffle(container[key])


def _class_renamed(state: Any, rng: Rng) -> None:
    one = rng.choice(state)
    name = next(iter(one))
    one[rng.choice([*_CLASSES, name.lower()])] = one.pop(name)


def _class_entry(state: Any, rng: Rng) -> None:
    state[rng.randrange(len(state))] = rng.choice([None, [], {}, "BaseApi", 1, ["BaseApi"]])


def _class_attributes(state: Any, rng: Rng) -> None:
    one = rng.choice(state)
    one[next(iter(one))] = rng.choice([None, [], {}, "x", 1, [["wifi", True]]])


def _many(state: Any, rng: Rng) -> None:
    for _ in range(rng.randint(2, 4)):
        rng.choice([_another_value, _value_gone, _more, _other_type, _list_order])(state, rng)


STATES: dict[str, Change] = {
    "gold": lambda s, r: None,
    "another value": _another_value,
    "a value gone": _value_gone,
    "a value more": _more,
    "a number of another type": _other_type,
    "a text altered": _text,
    "keys in another order": _key_order,
    "a list in another order": _list_order,
    "a class renamed": _class_renamed,
    "a class with another beside it": lambda s, r: r.choice(s).update({"More": {}}),
    "a class gone": lambda s, r: s.pop(r.randrange(len(s))) and None,
    "a class twice": lambda s, r: s.append(copy.deepcopy(r.choice(s))),
    "classes in another order": lambda s, r: r.shuffle(s),
    "a class that is none": _class_entry,
    "attributes that are none": _class_attributes,
    "classes without attributes": lambda s, r: [{name: {} for name in one} for one in s],
    "several changes": _many,
    "no state": lambda s, r: r.choice([[], {}, "", "ab", None, 5, [[]], [{}], [{}, {}]]),
    "one object": lambda s, r: {name: value for one in s for name, value in one.items()},
}


def _process(change: Callable[[list[Any], Rng], Any]) -> Change:
    """Applies where there is a process to change."""

    def vary(process: Any, rng: Rng) -> Any:
        if not process:
            raise NotHere
        return change(process, rng)

    return vary


def _step(change: Callable[[str, Rng], Any]) -> Change:
    def vary(process: list[Any], rng: Rng) -> None:
        place = rng.randrange(len(process))
        process[place] = change(process[place], rng)

    return _process(vary)


PROCESSES: dict[str, Change] = {
    "gold": lambda p, r: None,
    "a step missing": _process(lambda p, r: p.pop(r.randrange(len(p))) and None),
    "a step more": lambda p, r: p.insert(r.randint(0, len(p)), "[foo()]"),
    "a step again": _process(lambda p, r: p.insert(r.randint(0, len(p)), r.choice(p))),
    "steps in another order": lambda p, r: r.shuffle(p),
    "reversed": lambda p, r: p[::-1],
    "cut": lambda p, r: p[: r.randint(0, len(p))],
    "the end only": lambda p, r: p[r.randint(0, len(p)) :],
    "a step with blanks around": _step(
        lambda s, r: r.choice([f" {s}", f"{s}\n", f"\t{s} ", f"{s}\u3000"])
    ),
    "a step with other quotes": _step(lambda s, r: s.replace("'", '"')),
    "a step without blanks": _step(lambda s, r: s.replace(" ", "")),
    "a step with another value": _step(lambda s, r: s.replace("'", "'x", 1)),
    "a step cut": _step(lambda s, r: s[:-1]),
    "a step that is no text": _step(lambda s, r: r.choice([None, 1, [s], {}])),
    "nothing": lambda p, r: [],
    "no process": lambda p, r: r.choice([None, {}, {"a": 1}, "[f()]", 5, "", [[]]]),
    "words": lambda p, r: ["Hello", *p, "finish conversation"],
}


def _made(entry: Entry, rng: Rng, state_kind: Change, process_kind: Change) -> Output:
    state = copy.deepcopy(gold_state(entry) if rng.random() < 0.5 else entry.gold["ground_truth"])
    milestones = entry.gold["mile_stone"]
    path = list(rng.choice(milestones) if isinstance(milestones[0], list) else milestones)
    other_state, other_path = state_kind(state, rng), process_kind(path, rng)
    if other_state is None and state_kind is STATES["no state"]:
        state = None
    state = state if other_state is None else other_state
    path = path if other_path is None else other_path
    return json.loads(json.dumps(state)), path


def _with_state(kind: Change) -> Callable[[Entry, Rng], Output]:
    return lambda entry, rng: _made(entry, rng, kind, rng.choice(list(PROCESSES.values())))


def _with_process(kind: Change) -> Callable[[Entry, Rng], Output]:
    """The process counts where the state is wrong."""
    return lambda entry, rng: _made(
        entry, rng, lambda s, r: r.choice([[], mangled_state(entry)]), kind
    )


AGENT_KINDS: dict[str, Callable[[Entry, Rng], Output]] = {
    **{f"state: {name}": _with_state(kind) for name, kind in STATES.items()},
    **{f"process: {name}": _with_process(kind) for name, kind in PROCESSES.items()},
}
