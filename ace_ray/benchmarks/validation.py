"""Check the values that a benchmark's code returns.

An invalid value gives a one-line error before the run starts, or a row without a verdict.
"""

from __future__ import annotations

import json
import math
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from ace_ray.errors import UserError, first_line
from ace_ray.types import SCORE, Entry, Episode, Verdict, canonical_json
from ace_ray.util.sanitizing import replace_surrogates


@contextmanager
def user_code(benchmark: type[Any], member: str) -> Iterator[None]:
    """Convert an exception in the benchmark's code to a `UserError` that names file and line.

    ``member`` names the code in the error. Exceptions in ace_ray's benchmarks are not converted."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        if benchmark.__module__.startswith("ace_ray."):
            raise
        frames = traceback.extract_tb(error.__traceback__)
        file = getattr(sys.modules.get(benchmark.__module__), "__file__", None)
        locations = [f" ({Path(f.filename).name}:{f.lineno})" for f in frames if f.filename == file]
        reason = f"{type(error).__name__}: {first_line(error)}{''.join(locations[-1:])}"
        problem, location = f"{member} fails with {reason}", f"benchmark {benchmark.name}"
        raise UserError(problem, where=location, fix="correct the class") from error


def fill_entries(name: str, raw_entries: Iterable[Entry]) -> list[Entry]:
    """Return the entries of the benchmark ``name``; empty optional fields are filled in.

    Raises `UserError` if two entries share an id, or an entry is not valid JSON data."""
    entries: dict[tuple[str, str, str], Entry] = {}
    for entry in raw_entries:
        if not isinstance(entry, Entry):
            fix = "return objects of ace_ray.types.Entry"
            raise UserError(f"entries returned a {type(entry).__name__}", f"benchmark {name}", fix)
        location = f"benchmark {name}, entry {entry.id!r}"
        category, group = entry.category or name, entry.group or entry.id
        entry = replace(entry, benchmark=name, category=category, group=group)
        for key in ("id", "category", "language", "group"):
            text = getattr(entry, key)
            is_valid = isinstance(text, str) and replace_surrogates(text) == text
            if not is_valid or (key == "id" and not text):
                problem = f"its {key} is {text!a:.80}, not a valid string"
                fix = f"set {key} to a string of valid Unicode; an id must not be empty"
                raise UserError(problem, where=location, fix=fix)
        if entry.key in entries:
            problem = "two entries share the language, category and id"
            raise UserError(problem, where=location, fix="give each entry a unique id")
        _check_json(entry, location)
        entries[entry.key] = entry
    return list(entries.values())


def _check_json(entry: Entry, location: str) -> None:
    """Raise `UserError` unless the entry is the same after it is written as JSON and read again."""
    for key in ("data", "gold", "prompt"):
        value = getattr(entry, key)
        if value is None or isinstance(value, str):
            continue
        try:
            text = json.dumps(value, allow_nan=False)
            is_equal = json.loads(text) == value
            problem = "" if is_equal else "tuples would become lists, or keys would become strings"
            canonical_json(value)  # sorts keys
        except (TypeError, ValueError, RecursionError) as error:
            problem = first_line(error)
        if problem:
            fix = "use only strings, finite numbers, lists, and mappings with string keys"
            raise UserError(f"its {key} is not JSON: {problem}", where=location, fix=fix)


def check_opening(messages: Any, tools: Any, location: str) -> None:
    """Raise `UserError` unless ``messages`` and ``tools`` are valid at the start of an episode."""
    if not _are_mappings(messages) or not messages or not all("role" in m for m in messages):
        fix = 'return a string, or messages such as {"role": "user", "content": ...}'
        raise UserError("its prompt is not a list of messages", where=location, fix=fix)
    if tools is not None and not (_are_mappings(tools) and all(_has_name(tool) for tool in tools)):
        fix = 'return None, or tools such as {"type": "function", "function": {"name": ...}}'
        raise UserError("its tools are not a list of tools in OpenAI's form", location, fix)
    try:
        canonical_json([messages, tools])
    except (TypeError, ValueError, RecursionError) as error:
        problem = f"its prompt is not JSON: {first_line(error)}"
        raise UserError(problem, where=location, fix="correct the class") from error


def _are_mappings(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(item, Mapping) for item in value)


def _has_name(tool: Mapping[str, Any]) -> bool:
    function = tool.get("function")
    return isinstance(function, Mapping) and isinstance(function.get("name"), str)


_EMPTY = Episode()


def check_episode(episode: Any) -> None:
    """Raise `TypeError` unless ``episode``, the result of `Benchmark.run`, can be stored."""
    if not isinstance(episode, Episode):
        raise TypeError(f"run returned a {type(episode).__name__} instead of an Episode")
    for field in fields(Episode):
        value, expected = getattr(episode, field.name), getattr(_EMPTY, field.name)
        kinds = (int, float) if isinstance(expected, float) else type(expected)
        if expected is not None and not isinstance(value, kinds):
            raise TypeError(f"the episode's {field.name} is a {type(value).__name__}")
    if not all(isinstance(message, dict) for message in episode.messages):
        raise TypeError("the episode's messages are not mappings")


def verdicts_of(result: Any, rule_sets: Sequence[str]) -> dict[str, Verdict]:
    """Return the verdict of each rule set from ``result``, the result of `Benchmark.check`.

    Raises `ValueError` if a verdict is missing or not valid."""
    if isinstance(result, Verdict) and len(rule_sets) == 1:
        result = {rule_sets[0]: result}
    if not isinstance(result, Mapping) or set(result) != set(rule_sets):
        raise ValueError(f"check must return a verdict for each of {', '.join(rule_sets)}")
    verdicts = {rules: _verdict(result[rules]) for rules in rule_sets}
    if len({verdict.valid is None for verdict in verdicts.values()}) > 1:
        raise ValueError("valid is None under some rule sets only")
    return verdicts


def _verdict(verdict: Any) -> Verdict:
    if not isinstance(verdict, Verdict):
        raise ValueError(f"check returned a {type(verdict).__name__} instead of a Verdict")
    if not isinstance(verdict.valid, bool | None):
        raise ValueError(f"valid is {verdict.valid!a:.80}, not True, False or None")
    if not isinstance(verdict.error_type, str) or not isinstance(verdict.error, str):
        raise ValueError("error_type and error are not strings")
    if verdict.metrics:
        _check_metrics(verdict)
    if verdict.valid is not False or verdict.error_type:
        return verdict
    return replace(verdict, error_type="wrong")


def _check_metrics(verdict: Verdict) -> None:
    for name, value in verdict.metrics.items():
        number = isinstance(value, int | float) and math.isfinite(value)
        if not isinstance(name, str) or not number:
            raise ValueError(f"the metric {name!a:.80} is {value!a:.80}, not a number")
    if not 0 <= verdict.score <= 1:
        raise ValueError(f"the {SCORE} {verdict.score} is not between 0 and 1")
    if verdict.valid and verdict.score != 1:
        raise ValueError(f"the verdict is valid, but its {SCORE} is {verdict.score}, not 1")
