"""Declared tools: what a model may pass, and what it gets when it passes something else."""

from typing import Any

import pytest

from ace_ray.sandbox.protocol import Observation
from ace_ray.sandbox.tools import (
    MAX_CHARS,
    MAX_DEPTH,
    MAX_DIGITS,
    MAX_VALUES,
    Parameter,
    Tool,
    call_tool,
)


def keep(state: list[Any], item: Any, times: int = 1) -> int:
    state.extend([item] * times)
    return len(state)


KEEP = Tool("Box.keep", keep, (Parameter("item"), Parameter("times", required=False)))
TYPED = Tool(
    "Box.keep",
    keep,
    (Parameter("item", types=(str,)), Parameter("times", required=False, types=(int,))),
)
THREE = Tool("f", keep, tuple(Parameter(name) for name in "abc"))


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("tool", "arguments", "message"),
    [
        (KEEP, {"times": 1}, "missing 1 required positional argument: 'item'"),
        (KEEP, {"item": 1, "__class__": 1}, "got an unexpected keyword argument '__class__'"),
        (TYPED, {"item": None}, "argument 'item' must be str, not NoneType"),
        (TYPED, {"item": "a", "times": True}, "argument 'times' must be int, not bool"),
        (THREE, {}, "missing 3 required positional arguments: 'a', 'b', and 'c'"),
    ],
    ids=["missing", "unexpected", "null", "boolean", "three missing"],
)
def test_bad_arguments_are_named_in_pythons_words(tool, arguments, message) -> None:
    state: list[Any] = []
    expected = Observation(f"{tool.name}() {message}", "bad_arguments")
    assert call_tool(tool, state, arguments) == expected
    assert state == []


PLAIN = [
    *(None, True, {"a": {1: [2.5]}}, (1, (2,)), 10**MAX_DIGITS - 1, nested(MAX_DEPTH)),
    "x" * (MAX_CHARS - len("item")),
    [0] * (MAX_VALUES - len(["item", "the list"])),
]
REFUSED = [
    *(keep, {True: 1}, -(10**MAX_DIGITS), nested(MAX_DEPTH + 1)),
    *(nested(5000), [0] * (MAX_VALUES + 1)),
    *(
        ["x" * (MAX_CHARS // 2)] * 3,
        {"k" * (MAX_CHARS + 1): 1},
        type("Text", (str,), {})("subclass"),
    ),
]


def test_plain_values_arrive_as_copies_and_other_values_are_refused() -> None:
    for item in PLAIN:
        state: list[Any] = []
        assert call_tool(KEEP, state, {"item": item}) == Observation(1)
        assert state == [item]
        assert type(state[0]) is type(item)
    for item in REFUSED:
        state = []
        observation = call_tool(KEEP, state, {"item": item})
        assert observation.error == "bad_arguments"
        assert str(observation.value).startswith("Box.keep() got ")
        assert len(observation.value) < 200
        assert state == []
    state, value = [], {"a": [1]}
    assert call_tool(KEEP, state, {"item": value, "times": 2}) == Observation(2)
    state[0]["a"].append(2)
    assert value == {"a": [1]}


def test_only_declared_exceptions_become_observations() -> None:
    def broken(state: dict[str, Any], key: str) -> Any:
        state["touched"] = True
        return state[key]

    state: dict[str, Any] = {}
    reproduced = Tool("broken", broken, (Parameter("key"),), (LookupError,))
    assert call_tool(reproduced, state, {"key": "time"}) == Observation("'time'", "failed")
    assert state == {"touched": True}
    with pytest.raises(KeyError):
        call_tool(Tool("broken", broken, (Parameter("key"),)), state, {"key": "time"})
