"""Readers of what models, simulators and judges write, given long texts that are hard to read.

A text of any length that is taken is read in a fraction of a second; a reader that takes more than
linear time takes minutes for one of these, and is interrupted.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from ace_ray.benchmarks.acebench.agent_calls import agent_calls
from ace_ray.benchmarks.acebench.benchmark import check
from ace_ray.benchmarks.acebench.native import answer_text
from ace_ray.benchmarks.bfcl.categories import DEFAULT, Form
from ace_ray.benchmarks.bfcl.check.source_values import java_value, javascript_value
from ace_ray.benchmarks.bfcl.decode import executable, read_any
from ace_ray.benchmarks.bfcl.decode.calls import Answer
from ace_ray.benchmarks.bfcl.tools.evaluate import evaluate
from ace_ray.benchmarks.stabletoolbench.apis.simulator import read_answer
from ace_ray.benchmarks.stabletoolbench.episode.reading import read_finish, read_react
from ace_ray.benchmarks.stabletoolbench.judge import asking as judge
from ace_ray.benchmarks.stabletoolbench.judge.prompts import broken_up, one_line
from ace_ray.benchmarks.stabletoolbench.prompts import OWN
from ace_ray.models.reasoning import split_think
from ace_ray.parsing.known import known_calls
from ace_ray.parsing.literals import parse_calls
from ace_ray.types import Entry, ToolCall
from ace_ray.util.sanitizing import cleaned, printed
from tests.limits import cpu_limit

SHORT, LONG = 16_000, (64_000, 250_000)
"""As long as readers of Java take a text, as those of simulators do, and beyond most bounds."""

PIECES = [
    *("[", "]", "(", "{", "}", '"', "'", "\\", "`", "<", ">", "#", ",", "=", ":", ".", "-", "+"),
    *("*", "~", "0", "9", "_", "a", " ", "\n", " \n", "\t", "\r", "é", "\x1b[", "1+", "--", "not "),
    *("f(", "a.", "a[", "f'{", 'f"{x}"', "lambda:", "a=", "x if ", "f(x=1),", "[f(x=1)]", "'a' "),
    *('{"a":', '{"a', '"{', '{"', '"a",', '"\\', "\\'", "'\\'", '"""', "'''", "[]", "{}", "()"),
    *(
        "``` ",
        "```json\n",
        "```\n{}",
        "<think>",
        "</think>",
        "<think></think>",
        " <think> </think>",
    ),
    *("<tool_call>", "<tool_call>{}</tool_call>", "</tool_call>", "<TOOLCALL>", "</TOOLCALL>"),
    *("<function=f>", "<parameter=a>", "<function=f><parameter=a>1", "[TOOL_CALLS]"),
    *("```f(a=1)```", "```\n{", "[TOOL_CALLS]f{", '{"name":"f","arguments":{}};', "<function="),
    *("<function", "<parameters>", "<param ", "<!--", "&amp;", "new Array(", "new HashMap<", "[["),
    *(
        "new ArrayList<>() {{ add(",
        "add(",
        ");",
        "new int[]{",
        "Action: ",
        "\nAction: a",
        "Thought:",
    ),
    *("Action: a\nAction Input: ", "\nAction Input: ", "answer_status: ", "Status Solved or "),
    *("Solved ", '{"answer_status": "', "{'answer status", "index is ", "better answer 1 or "),
    *('"error":"', '{"error": "", "response": "', "missing necessary parameter ", "for the api "),
    *("There is incorrect value ", "name (a) ", '{"name": "f", "arguments": {}}', '{"name":"'),
]
BEGINNINGS = ["", "```", "[f(a='", '{"a": "', "<tool_call>"]
LONG_BEGINNINGS = [""]
EVERY = int(os.environ.get("HOSTILE_TEXTS_EVERY", "8"))
"""One piece in so many is tried in long texts, too; 1: all of them."""


def entry(category: str) -> Entry:
    function = {"name": "f", "parameters": {"properties": {"x": {"type": "string"}}}}
    data = {"function": [function], "question": "q", "initial_config": {}}
    gold = {"f": ["x"]} if category.startswith("special") else {"f": {"x": "1"}}
    return Entry("acebench", category, "en", "x", data, gold)


def quietly(read: Callable[[str], Any]) -> Callable[[str], Any]:
    """``read`` without its refusals: what is refused is another test's matter."""

    def reader(text: str) -> None:
        with suppress(Exception):
            read(text)

    return reader


def bfcl(form: Form, language: Any = "python") -> Callable[[str], Any]:
    return lambda text: read_any(Answer(text, None), form, language)


JAVA = ("long", "float", "ArrayList", "Array", "HashMap", "String")
JAVASCRIPT = ("integer", "float", "Bigint", "array", "dict", "String")
READERS: dict[str, Callable[[str], Any]] = {
    "calls": parse_calls,
    "calls in any format that is known": known_calls,
    "reasoning": split_think,
    "ACEBench": lambda text: check(entry("normal_single_turn_single_function"), text),
    "ACEBench, incomplete": lambda text: check(entry("special_incomplete"), text),
    "ACEBench, error": lambda text: check(entry("special_error_param"), text),
    "ACEBench, irrelevant": lambda text: check(entry("special_irrelevant"), text),
    "ACEBench, an agent's message": lambda text: agent_calls(
        text, loop="multi_turn", protocol="official"
    ),
    "ACEBench, an agent's step": lambda text: agent_calls(
        text, loop="multi_step", protocol="official"
    ),
    "ACEBench, an agent's list": lambda text: agent_calls(
        text, loop="multi_turn", protocol="fixed"
    ),
    "ACEBench, native": lambda text: answer_text(text, [ToolCall("f", text)], [{"name": "f"}]),
    "BFCL": bfcl(DEFAULT),
    "BFCL, Java": bfcl(DEFAULT, "java"),
    "BFCL, JavaScript": bfcl(DEFAULT, "javascript"),
    "BFCL, JSON": bfcl(Form("json")),
    "BFCL, XML": bfcl(Form("verbose_xml")),
    "BFCL, short XML": bfcl(Form("concise_xml")),
    "BFCL, tags": bfcl(Form("python", True)),
    "BFCL, native": lambda text: executable(Answer("", (ToolCall("f", text),))),
    "BFCL, Java's values": lambda text: [java_value(text, kind) for kind in JAVA],
    "BFCL, JavaScript's values": lambda text: [javascript_value(text, k) for k in JAVASCRIPT],
    "BFCL, a tool's call": lambda text: evaluate(f"f({text})", {}, lambda value: value),
    "StableToolBench, ReAct": lambda text: read_react(text),
    "StableToolBench, Finish": lambda text: read_finish(text, OWN),
    "StableToolBench, a simulator's": lambda text: read_answer(text, loose=True),
    "StableToolBench, a judge's": lambda text: (
        judge.read_status(text),
        judge.read_index(text),
        judge.read_fac(text),
    ),
    "StableToolBench, shown to a judge": lambda text: (one_line({"a": text}), broken_up(text)),
    "shown to people": lambda text: cleaned(text, len(text)),
    "in a message": lambda text: printed(text, len(text)),
}


@pytest.mark.nightly
@pytest.mark.parametrize("name", READERS)
def test_a_long_text_is_read_or_refused_at_once(name: str) -> None:
    read = quietly(READERS[name])
    for beginning in BEGINNINGS:
        for number, piece in enumerate(PIECES):
            is_long = beginning in LONG_BEGINNINGS and number % EVERY == 0
            for length in (SHORT, *LONG) if is_long else (SHORT,):
                text = beginning + piece * (length // len(piece)) + "x" * (length in LONG)
                with cpu_limit(f"{name}: {beginning!r} + {piece!r} * {length // len(piece)}"):
                    read(text)


def test_many_empty_blocks_of_reasoning() -> None:
    """Each was once cut off from the front of the text, which made this quadratic: minutes."""
    text = "<think></think> " * 250_000
    with cpu_limit("250,000 blocks"):
        assert split_think(text + "a").answer == "a"
