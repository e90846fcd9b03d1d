"""Hostile texts through all readers and checkers of foreign text: none raises, or takes long.

A reader takes a text and its number, which chooses an entry or a format. It may refuse a text only
with its documented errors. A linear reader takes a fraction of a second for each text; others take
minutes and are interrupted. Random texts are mutated gold answers, pieces of syntax, and pieces
repeated up to 20,000 times.
"""

import os
import random
import resource
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any

import pytest

from ace_ray.benchmarks.acebench import native
from ace_ray.benchmarks.acebench.agent_calls import agent_calls
from ace_ray.benchmarks.acebench.gold import render_gold
from ace_ray.benchmarks.bfcl.categories import Form
from ace_ray.benchmarks.bfcl.check.source_values import java_value, javascript_value
from ace_ray.benchmarks.bfcl.decode import executable_calls, read
from ace_ray.benchmarks.bfcl.decode.calls import Answer
from ace_ray.benchmarks.bfcl.gold import gold_of
from ace_ray.benchmarks.bfcl.tools.evaluate import evaluate
from ace_ray.benchmarks.registry import make_benchmark
from ace_ray.benchmarks.stabletoolbench.apis import answers, simulator
from ace_ray.benchmarks.stabletoolbench.episode.reading import read_finish, read_react
from ace_ray.benchmarks.stabletoolbench.judge import asking as judge
from ace_ray.benchmarks.stabletoolbench.judge.prompts import break_marks, one_line
from ace_ray.benchmarks.stabletoolbench.prompts import OWN
from ace_ray.models.reasoning import split_think
from ace_ray.parsing.formats import parse_known_formats
from ace_ray.parsing.literals import parse_calls
from ace_ray.parsing.syntax import NotCalls
from ace_ray.types import Entry, Episode, ToolCall
from ace_ray.util.sanitizing import sanitize_line, sanitize_text
from tests.limits import cpu_limit

Reader = Callable[[str, int], Any]

FORMS = [Form(), Form("json"), Form("verbose_xml"), Form("concise_xml"), Form(tagged=True)]
NUMBER = {"anyOf": [{"$ref": "#/$defs/A"}, {"type": "number"}]}
OFFERED = [
    {"function": {"name": "f", "parameters": {"properties": {"a": NUMBER}, "$defs": {"A": {}}}}}
]

WORDS = """
True None null NaN Infinity not and if else lambda for in await new var f( f(a= [f(a=1)] f(x=1),
{'a': {"a": {"a [[ ]] [] {} () (( )) ''' b' r' f' f'{ f"{x}" 'a' \\u \\x \\N{ \\" \\' '\\' "" 0x 1e
1e999 -1 1_0 1j 1+ -- 00 999999999999 ** // << >> := -> == != <= ... a.b.c a[0] => ${ /* */ {{ %s
function( List.of( ```json ``` ```f(a=1)``` <tool_call> </tool_call> <tool_call>{}</tool_call>
<functions> </functions> <TOOLCALL> </TOOLCALL> </function> <function <function= <function=f>
<function name="f"> <parameter> <parameters> <parameter=a> </parameter> <think> </think>
<think></think> <|im_end|> <![CDATA[ <!-- &amp; &x; 5. [TOOL_CALLS] [TOOL_CALLS]f{ [ARGS]
<|python_tag|> {"name":"f","arguments":{}}; add( ); HashMap< Array( int[]{ answer_status:
"error":" 5*10**(-12) 2**99999//3**31000 (1<<99999)* \x1b[ é ß \u202e \ud800 \U0001f600 “
缺少必要参数 由于函数功能限制
"""
PIECES = (
    *"()[]{}<>,:;=.'\"`\\|#@!?*+-/%&~^_09a \n\t\r\0\u2028",
    *WORDS.split(),
    *("``` ", "```json\n", "```\n{", " \n", "x if ", "lambda:", "new ArrayList<>() {{ add("),
    *("\nThought: ", "\nAction: a", "\nAction Input: ", "Action: a\nAction Input: "),
    *('{"error": "", "response": "', '{"answer_status": "', "Status Solved or ", "index is "),
    '{"answer_status": "Solved", "reason": "',
    '{"return_type": "give_answer", "final_answer": "',
    '{"name": "f", "arguments": {"a": 1}}',
    *("There is incorrect value (", ") for the parameters (", "Missing necessary parameters ("),
    *("name (a) ", "for the api ", "better answer 1 or "),
    *("the limitations of the function", "cannot solve this problem"),
)


def refusing(call: Callable[[str], Any], *errors: type[Exception]) -> Reader:
    def read_one(text: str, number: int) -> None:
        with suppress(*errors):
            call(text)

    return read_one


def decode_bfcl(text: str, number: int) -> None:
    other_forms: tuple[Any, ...] = ((Form(), "java"), (Form(), "javascript"))
    for form, language in ((FORMS[number % len(FORMS)], "python"), *other_forms):
        with suppress(NotCalls):
            read(text, form, language)
    executable_calls(Answer(text))
    executable_calls(Answer("", (ToolCall("f", text), ToolCall(text, "{}"))))


def read_agent_message(text: str, number: int) -> None:
    for loop in ("multi_turn", "multi_step"):
        for protocol in ("official", "fixed"):
            agent_calls(text, loop=loop, protocol=protocol)


def read_chain(text: str, number: int) -> None:
    for call in read_react(text)[1]:
        read_finish(call.arguments, OWN)
    read_finish(text, OWN)


def read_api_answer(text: str, number: int) -> None:
    simulator.read_answer(text)
    simulator.read_answer(text, loose=True)
    with suppress(answers.UnusableJson):
        answers.arguments_of(text)


def read_judge(text: str, number: int) -> None:
    for call in (judge.read_status, judge.read_complete, judge.read_fac, judge.read_index):
        call(text)


READERS: dict[str, Reader] = {
    "calls": refusing(parse_calls, NotCalls),
    "known formats": lambda text, number: (
        parse_known_formats(text),
        parse_known_formats(text, OFFERED),
    ),
    "JSON arguments": refusing(native.arguments_of, ValueError),
    "ACEBench, agent": read_agent_message,
    "BFCL, decode": decode_bfcl,
    "StableToolBench, ReAct and Finish": read_chain,
    "StableToolBench, API answers": read_api_answer,
    "StableToolBench, judge": read_judge,
    "reasoning": lambda text, number: (split_think(text), split_think(text, opened=True)),
}


def checks_and_golds() -> tuple[dict[str, Reader], list[str]]:
    """Return the checks of the benchmarks' mini sets, and gold answers as texts."""
    ace, bfcl = (make_benchmark(name, {"data": "mini"}) for name in ("acebench", "bfcl"))
    of_ace = [entry for entry in ace.entries() if not entry.category.startswith("agent")]
    of_bfcl = list(bfcl.entries())
    single = [e for e in of_bfcl if not e.category.startswith(("multi_turn", "memory"))]
    several = [entry for entry in of_bfcl if entry.category.startswith("multi_turn")]

    def check_ace(text: str, number: int) -> None:
        entry = of_ace[number % len(of_ace)]
        for verdict in ace.verdicts(entry, Episode(output=text)).values():
            assert len(verdict.error) < 10_000, "the error is as long as the answer"

    def check_bfcl(text: str, number: int) -> None:
        bfcl.check(single[number % len(single)], Episode(output=text))

    def check_conversation(text: str, number: int) -> None:
        # A replay of a conversation takes milliseconds.
        if number % 50 == 0:
            entry = several[number // 50 % len(several)]
            turns = [[text, "Done."] for _ in entry.gold]
            bfcl.check(entry, Episode(state={"turns": turns, "ended": ""}))

    checks: dict[str, Reader] = {
        "ACEBench, check": check_ace,
        "BFCL, check": check_bfcl,
        "BFCL, multi-turn check": check_conversation,
    }
    return checks, [*map(render_gold, of_ace), *filter(None, map(bfcl_gold, single))]


def bfcl_gold(entry: Entry) -> str:
    gold = gold_of(entry, {}) if entry.gold else None
    return gold.right.output if gold else ""


SHORT, LONG = 16_000, (64_000, 250_000)
BEGINNINGS = ["", "```", "[f(a='", '{"a": "']
EVERY = int(os.environ.get("HOSTILE_TEXTS_EVERY", "8"))
"""One piece in so many is tried in long texts, too; 1: all pieces."""
JAVA = ("long", "float", "ArrayList", "Array", "HashMap", "String")
JAVASCRIPT = ("integer", "float", "Bigint", "array", "dict", "String")
OTHERS: dict[str, Callable[[str], Any]] = {
    "ACEBench, native": lambda text: native.answer_text(
        text, [ToolCall("f", text)], [{"name": "f"}]
    ),
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
                    suppress(Exception),  # the test below allows documented errors only
                ):
                    readers[name](text, number) if readers else OTHERS[name](text)


TEXTS, SEED = 5_000, 0
GROWTH_MIB = 1_024
"""Maximum growth of the peak memory of the process."""


class Texts:
    """An endless stream, the same for the same seed."""

    def __init__(self, seed: int, golds: list[str]) -> None:
        self._random, self._golds = random.Random(seed), golds

    def __iter__(self) -> Iterator[str]:
        kinds = (self._mutated, self._mutated, self._pieces, self._repeated, self._wrapped)
        while True:
            yield self._random.choice(kinds)()

    def _pieces(self) -> str:
        count = int(self._random.expovariate(1 / 20)) + 1
        return "".join(self._random.choice(PIECES) for _ in range(count))

    def _repeated(self) -> str:
        unit = "".join(self._random.choice(PIECES) for _ in range(self._random.randrange(1, 4)))
        times = int(10 ** self._random.uniform(0, 4.3 if self._random.random() < 0.02 else 2.5))
        return self._random.choice(("", "[f(a=", "f(", "{")) + unit * times + self._pieces()[:20]

    def _wrapped(self) -> str:
        opening, right = self._random.choice(
            (("(", ")"), ("[", "]"), ("{'a':", "}"), ("f(a=", ")"))
        )
        depth = int(10 ** self._random.uniform(0, 2.7))
        return opening * depth + self._mutated() + right * self._random.choice((depth, depth - 1))

    def _mutated(self) -> str:
        text = self._random.choice(self._golds)
        for _ in range(self._random.randrange(1, 5)):
            at = self._random.randrange(len(text) + 1)
            to = min(len(text), at + int(self._random.expovariate(1 / 6)))
            before, cut, after = text[:at], text[at:to], text[to:]
            piece = self._random.choice(PIECES)
            changed = (before + piece + cut + after, before + after, before + piece + after)
            text = self._random.choice((*changed, before + cut * 2 + after, before, after + before))
        return text


def read_all(texts: Iterable[str]) -> None:
    """Give each text to each reader and checker."""
    readers = {**READERS, **checks_and_golds()[0]}
    for number, text in enumerate(texts):
        for name, reader in readers.items():
            with cpu_limit(f"{name}: {text[:200]!r}"):
                try:
                    reader(text, number)
                except Exception as error:  # noqa: BLE001 - what no reader may do
                    pytest.fail(f"{name} on text {number}, {text[:200]!r}: {error!r}")


@pytest.mark.nightly
def test_no_reader_raises_takes_long_or_grows() -> None:
    texts = Texts(SEED, checks_and_golds()[1])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    read_all(islice(texts, TEXTS))
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert (after - before) / 1024 < GROWTH_MIB
