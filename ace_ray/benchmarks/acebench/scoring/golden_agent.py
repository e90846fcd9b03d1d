"""Gold end states as a sandbox would record them, and mangled copies that must not pass."""

from __future__ import annotations

from typing import Any

from ace_ray.benchmarks.acebench.check.agent_strict import REAL_NAMES
from ace_ray.benchmarks.acebench.scoring.golden import altered
from ace_ray.records import Entry, digest

State = list[dict[str, dict[str, Any]]]
"""``[{class: {attribute: value}}, ...]``."""


def gold_state(entry: Entry) -> State:
    """The end state of an episode that did everything right, under the classes' real names."""
    return [
        {REAL_NAMES.get(name, name): attributes for name, attributes in one.items()}
        for one in entry.gold["ground_truth"]
    ]


def mangled_state(entry: Entry) -> State:
    """The gold state with one attribute altered: the same for the same entry.

    Not in a class that the gold state misspells if another has attributes too: the official rules
    never compare such a class.
    """
    state = gold_state(entry)
    places = [
        (number, name, attribute)
        for number, one in enumerate(state)
        for name, attributes in one.items()
        for attribute in attributes
    ]
    compared = [place for place in places if place[1] in entry.gold["ground_truth"][place[0]]]
    places = compared or places
    number, name, attribute = places[int(digest(*entry.key)[:8], 16) % len(places)]
    attributes = state[number][name]
    state[number] = {name: {**attributes, attribute: altered(attributes[attribute])}}
    return state
