"""``calculate``'s arithmetic gives what Python's ``eval`` gives, or its error."""

from __future__ import annotations

import random
import warnings
from typing import Any

import pytest

from ace_ray.benchmarks.tau2.environment.sources import MAX_CHARS, value_of


def evaluated(text: str) -> Any:
    """As upstream evaluates it. Short texts of digits and signs of this test's own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return eval(text, {"__builtins__": None}, {})  # noqa: S307


def outcome(function: Any, text: str) -> tuple[str, str]:
    try:
        return "value", repr(function(text))
    except Exception as error:  # noqa: BLE001 - the error is what is compared
        return type(error).__name__, str(error).partition("; perhaps")[0]


@pytest.mark.nightly
def test_random_texts_are_as_python_has_them() -> None:
    draw = random.Random(3)
    kinds: set[str] = set()
    for _ in range(20_000):
        # One-digit operands: Python would compute a tower of powers for ever.
        parts = [
            "1",
            "2",
            "3.5",
            "0",
            ".5",
            "+",
            "-",
            "*",
            "/",
            "(",
            ")",
            " ",
            "//",
            ".",
            "7.",
            "**",
        ]
        text = "".join(draw.choice(parts) for _ in range(draw.randint(1, 7)))
        if text.count("**") > 1:
            continue
        ours, theirs = outcome(value_of, text), outcome(evaluated, text)
        assert ours == theirs, text
        kinds.add(ours[0])
    assert kinds >= {"value", "SyntaxError", "TypeError", "ZeroDivisionError"}


@pytest.mark.parametrize(
    "text", ["9**9**9", "9**9**9**9", "(99**99)**(99**99)", "2**100001", "1+" * MAX_CHARS + "1"]
)
def test_what_would_take_for_ever_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"bits|characters"):
        value_of(text)


def test_a_power_that_no_float_holds_is_computed_all_the_same() -> None:
    """Upstream makes a float of it and says why that cannot be."""
    assert value_of("2**32**3") == 1 << 32768
    assert value_of("2**32**3//2**32**3") == 1


@pytest.mark.parametrize("text", ["(" * 400 + "1" + ")" * 400, "-" * 900 + "1"])
def test_nesting_is_an_error_or_a_value(text: str) -> None:
    assert outcome(value_of, text)[0] in {"value", "SyntaxError", "ValueError"}
