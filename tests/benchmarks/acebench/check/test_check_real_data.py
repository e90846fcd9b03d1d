"""The strict rules on the published rows: gold answers in other words, and mangled ones.

That every gold answer is valid, and which the official rules reject: `test_goldcheck`.
"""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ace_ray.benchmarks.acebench.categories import GENERATION, NORMAL

from ace_ray.benchmarks.acebench.check import check
from ace_ray.benchmarks.acebench.data.loader import load
from ace_ray.parsing.literals import render
from ace_ray.types import Entry

SHARED = Path(os.environ.get("ACE_RAY_SHARED") or Path(__file__).parents[5] / "shared")
DATA = SHARED / "data" / "acebench"
pytestmark = pytest.mark.skipif(
    not (DATA / "data_en").is_dir(), reason="no published ACEBench rows; set ACE_RAY_SHARED"
)
REFUSAL = "Due to the limitations of the function, I cannot solve this problem."


@pytest.fixture(scope="module")
def entries() -> list[Entry]:
    return load(DATA, categories=GENERATION)


def gold_calls(entry: Entry, alternative: int = 0) -> list[tuple[str, dict[str, Any]]]:
    gold = entry.gold[alternative] if isinstance(entry.gold, list) else entry.gold
    names = {function["name"] for function in entry.data["function"]}
    return [
        (key if key in names else re.sub(r"_\d+$", "", key), args) for key, args in gold.items()
    ]


def gold_output(entry: Entry) -> str:
    if entry.category == "special_incomplete":
        return " ".join(
            f"Missing necessary parameters ({', '.join(params)}) for the api ({api})"
            for api, params in entry.gold.items()
        )
    if entry.category == "special_error_param":
        return " ".join(
            f"There is incorrect value ({', '.join(values)}) for the parameters ({param}) "
            "in the conversation history."
            for param, values in entry.gold.items()
        )
    return REFUSAL if entry.category == "special_irrelevant" else render(gold_calls(entry))


def test_every_alternative_is_strictly_valid(entries: list[Entry]) -> None:
    several = [entry for entry in entries if isinstance(entry.gold, list)]
    assert len(several) == 4
    for entry in several:
        for place in range(len(entry.gold)):
            assert check(entry, render(gold_calls(entry, place)))["strict"].valid


def test_special_sentences_as_the_prompts_ask_for_them(entries: list[Entry]) -> None:
    for entry in entries:
        if entry.category not in NORMAL:
            plain = gold_output(entry)
            for output in (plain, f'["{plain}"]', f"Sorry.\n{plain}\nPlease tell me."):
                assert check(entry, output)["strict"].valid, (entry.key, output)


def mangled(entry: Entry) -> Iterator[str]:
    """Wrong outputs near the gold answer."""
    right = gold_output(entry)
    yield from (
        "",
        right + ".",
        f"Answer: {right}",
        right[1:],
        right[:-1],
        right.replace("(", "[", 1),
    )
    calls = gold_calls(entry)
    yield render(calls[1:])
    yield render([*calls, calls[0]])
    for place, (name, args) in enumerate(calls):
        others = calls[:place], calls[place + 1 :]
        yield render([*others[0], (name + "x", args), *others[1]])
        yield render([*others[0], (name, {**args, "not_a_parameter": 1}), *others[1]])
        for param, value in args.items():
            rest = {key: item for key, item in args.items() if key != param}
            yield render([*others[0], (name, rest), *others[1]])
            for wrong in changed(value):
                yield render(
                    [*others[0], (name, {**copy.deepcopy(args), param: wrong}), *others[1]]
                )


def changed(value: Any) -> Iterator[Any]:
    yield [value]
    yield (value,)
    if isinstance(value, bool):
        yield from (not value, int(value), str(value))
    elif isinstance(value, str):
        yield from (value + " ", value.swapcase() + "x", value[1:] + "~", None)
    elif isinstance(value, int | float):
        yield from (value + 1, str(value), -value - 1, bool(value))
    elif isinstance(value, list):
        yield from ([*value, None], value[1:] if value else None)
    elif isinstance(value, dict):
        yield {**value, "not_a_key": 1}
        yield from (
            {**value, key: wrong} for key in value for wrong in list(changed(value[key]))[:3]
        )


@pytest.mark.nightly
def test_no_mangled_gold_answer_is_strictly_valid(entries: list[Entry]) -> None:
    count = 0
    for entry in entries:
        if entry.category in NORMAL and not isinstance(entry.gold, list):
            for output in mangled(entry):
                assert not check(entry, output)["strict"].valid, (entry.key, output)
                count += 1
    assert count > 30_000


def test_no_mangled_sentence_is_strictly_valid(entries: list[Entry]) -> None:
    for entry in entries:
        if entry.category in NORMAL:
            continue
        right = gold_output(entry)
        call = f"[{entry.data['function'][0]['name']}(x=1)]"
        wrong = ["", call, f"{right} {call}", right.replace("e", "3"), right[: len(right) // 3]]
        if isinstance(entry.gold, dict):
            first = next(iter(entry.gold))
            part = entry.gold[first][0]
            wrong += [right.replace(first, "other"), right.replace(part, "other"), REFUSAL]
        for output in wrong:
            assert not check(entry, output)["strict"].valid, (entry.key, output)


def with_numbers(value: Any, add: float) -> Any:
    """The value with every integer as a float, ``add`` more."""
    if isinstance(value, dict):
        return {key: with_numbers(item, add) for key, item in value.items()}
    if isinstance(value, list):
        return [with_numbers(item, add) for item in value]
    whole = isinstance(value, int) and not isinstance(value, bool)
    return float(value) + add if whole else value


def test_integers_may_be_written_as_floats(entries: list[Entry]) -> None:
    changed = 0
    for entry in entries:
        if entry.category not in NORMAL:
            continue
        calls = gold_calls(entry)
        floats = [(name, with_numbers(args, 0.0)) for name, args in calls]
        if render(floats) == render(calls):
            continue
        changed += 1
        assert check(entry, render(floats))["strict"].valid, entry.key
        halves = [(name, with_numbers(args, 0.5)) for name, args in calls]
        assert check(entry, render(halves))["strict"].error_type in ("param_type", "param_value")
    assert changed > 500
