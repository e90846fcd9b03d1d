"""The verdicts of the official evaluator (upstream ``eval_main.py`` at commit 56dd66c).

``valid`` and ``error_type`` are those it gives for any output, its quirks included; the list of
quirks and how many rows each touches is in docs/acebench.md. Two error types are ours, for outputs
on which it gives no verdict at all:

- ``official_crash``: it raises while judging, which ends its whole run. What ends only its later
  reports (control characters in the Excel export, lone surrogates in the error list) keeps its
  verdict.
- ``official_unsafe``: it would evaluate text of the model beyond literal arithmetic, or without
  bounds. That is never done here, so an output that it accepts after such an evaluation is invalid.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ace_ray.benchmarks.acebench.check import official_normal
from ace_ray.benchmarks.acebench.check.decode import Decoded
from ace_ray.calls import MAX_DIGITS
from ace_ray.records import Entry, Verdict

_RAISES = (LookupError, AttributeError, TypeError, ValueError, ArithmeticError, RecursionError)
_BITS_PER_CHAR = 4  # the densest integer literal is hexadecimal
_BITS_PER_DIGIT = 3.3219


def judge_normal(entry: Entry, decoded: Decoded) -> Verdict:
    """The verdict on a row of the 12 normal categories: valid when any alternative accepts it."""
    calls = decoded.official
    if isinstance(calls, str):
        kind = "official_unsafe" if decoded.unsafe else "wrong_output_format"
        return Verdict(False, kind, calls)
    # Its error messages print values, and Python refuses to print an integer beyond 4,300 digits.
    # A text too short to hold or to make such an integer need not be printed to find out.
    prints = decoded.chars * _BITS_PER_CHAR > MAX_DIGITS * _BITS_PER_DIGIT
    gold = entry.gold if isinstance(entry.gold, list) else [entry.gold]
    first: official_normal.Fault | None = None
    try:
        for alternative in gold:
            fault = official_normal.judge(entry.data["function"], calls, alternative, prints)
            if fault is None:
                return Verdict(True)
            first = first or fault
    except _RAISES as error:
        return _crash(error)
    if first is None:
        return Verdict(False, "official_crash", "there is no gold answer")
    return Verdict(False, *first)


def judge_special(entry: Entry, output: str | None) -> Verdict:
    """The verdict on a row of the three special categories: substrings of the raw output.

    incomplete: the phrase (else ``error_detection``), the API's name and all its missing
    parameters (else ``error_correction``), for each API, the last failure names the error.
    error_param: the phrase and all wrong values, the parameter's name is not looked at.
    irrelevant: the phrase.
    """
    if output is None:
        return Verdict(False, "official_crash", "there is no output")
    try:
        if entry.category == "special_irrelevant":
            kind = "" if "the limitations of the function" in output else "error_detection"
        elif entry.category == "special_incomplete":
            kind = _named(output, "Missing necessary parameters", entry.gold, names=True)
        else:
            kind = _named(output, "There is incorrect value", entry.gold, names=False)
    except _RAISES as error:
        return _crash(error)
    if kind == "error_detection":
        return Verdict(False, kind, "the official sentence is not in the output")
    if kind:
        return Verdict(False, kind, "not everything that is wrong is in the output")
    return Verdict(True)


def _named(output: str, phrase: str, gold: Mapping[str, Any], *, names: bool) -> str:
    kind = ""
    for name, values in gold.items():
        if phrase not in output:
            kind = "error_detection"
        elif names and name not in output:
            kind = "error_correction"
        else:
            for value in values:
                if value not in output:
                    kind = "error_correction"
    return kind


def _crash(error: Exception) -> Verdict:
    message = str(error)[:200]
    return Verdict(False, "official_crash", f"{type(error).__name__} {message} in the evaluator")
