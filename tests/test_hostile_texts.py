"""Readers of foreign text take linear time for long texts that are hard to read.

A linear reader takes a fraction of a second for each text; others take minutes and are interrupted.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from ace_ray.benchmarks.acebench.native import answer_text
from ace_ray.benchmarks.bfcl.check.source_values import java_value, javascript_value
from ace_ray.benchmarks.bfcl.decode import read
from ace_ray.benchmarks.bfcl.tools.evaluate import evaluate
from ace_ray.benchmarks.stabletoolbench.judge.prompts import break_marks, one_line
from ace_ray.types import ToolCall
from ace_ray.util.sanitizing import sanitize_line, sanitize_text
from tests.limits import cpu_limit
from tests.text_readers import FORMS, PIECES, READERS, checks_and_golds

SHORT, LONG = 16_000, (64_000, 250_000)
BEGINNINGS = ["", "```", "[f(a='", '{"a": "']
EVERY = int(os.environ.get("HOSTILE_TEXTS_EVERY", "8"))
"""One piece in so many is tried in long texts, too; 1: all pieces."""
JAVA = ("long", "float", "ArrayList", "Array", "HashMap", "String")
JAVASCRIPT = ("integer", "float", "Bigint", "array", "dict", "String")
OTHERS: dict[str, Callable[[str], Any]] = {
    "ACEBench, native": lambda text: answer_text(text, [ToolCall("f", text)], [{"name": "f"}]),
    **{f"BFCL, {form}": partial(read, form=form, language="python") for form in FORMS},
    "BFCL, Java": lambda text: [java_value(text, kind) for kind in JAVA],
    "BFCL, JavaScript": lambda text: [javascript_value(text, kind) for kind in JAVASCRIPT],
    "BFCL, a tool's call": lambda text: evaluate(f"f({text})", {}, lambda value: value),
    "shown to a judge": lambda text: (one_line({"a": text}), break_marks(text)),
    "shown to people": lambda text: (
        sanitize_text(text, len(text)),
        sanitize_line(text, len(text)),
    ),
}


@pytest.mark.nightly
@pytest.mark.parametrize("name", [*READERS, *OTHERS, "ACEBench, check", "BFCL, check"])
def test_a_long_text_is_read_or_refused_in_linear_time(name: str) -> None:
    readers = READERS if name in READERS else checks_and_golds()[0] if "check" in name else {}
    for beginning in BEGINNINGS:
        for number, piece in enumerate(PIECES):
            is_long = not beginning and number % EVERY == 0
            for length in (SHORT, *LONG) if is_long else (SHORT,):
                text = beginning + piece * (length // len(piece)) + "x" * (length in LONG)
                with (
                    cpu_limit(f"{name}: {beginning!r} + {piece!r} * {length // len(piece)}"),
                    suppress(Exception),  # `test_fuzzed_texts` allows documented errors only
                ):
                    readers[name](text, number) if readers else OTHERS[name](text)
