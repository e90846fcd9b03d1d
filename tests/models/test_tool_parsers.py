"""vLLM's tool parsers on hostile answers, in bounded time."""

import logging
import time
from collections import defaultdict
from typing import Any

import pytest

from ace_ray.models.answer_parser import MARKED_CHARS, AnswerReader, parser_class
from ace_ray.types import ToolAnswer

pytestmark = pytest.mark.usefixtures("vllm")
PARAMETERS = {"type": "object", "properties": {"key": {"type": "string"}}}
TOOLS = [{"type": "function", "function": {"name": "find", "parameters": PARAMETERS}}]
MARKS = ["calls▁begin", "calls▁end", "call▁begin", "call▁end", "sep", "outputs▁begin"]
MARKS = [*(f"<｜tool▁{name}｜>" for name in MARKS), "<tool_call>", "</tool_call>"]
HOSTILE = [
    "<tool_call>{bad}</tool_call>",
    "<tool_call>" * 2000,
    "<tool_call>" + '{"name":' * 20_000,
    "<tool_call>" + "[" * 100_000,
    '<tool_call>{"name": null, "arguments": 5}</tool_call>',
    '<tool_call>{"name": "find", "arguments": ' + "9" * 5000 + "}</tool_call>",
]


class Tokenizer:
    """A tokenizer whose vocabulary has every mark."""

    def get_vocab(self) -> Any:
        return defaultdict(int, dict.fromkeys(MARKS, 1))

    def encode(self, text: str, **options: Any) -> list[int]:
        return [1]

    def decode(self, ids: Any) -> str:
        return "<tool_call>"


class WholeParser:
    """A parser with a ``parse`` method of its own, which reads calls from the whole answer."""

    reasoning_parser, tool_parser = None, object()

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def set_prompt_token_ids(self, ids: Any) -> None:
        pass

    def parse(self, text: str, *_: Any, **__: Any) -> tuple[None, str, None]:
        return None, "parsed", None


def read(name: str, *texts: str, parser: Any = None) -> list[ToolAnswer]:
    """Read answers to tools with ``parser``, or with vLLM's parser of that name."""
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

    tokenizer = Tokenizer()
    parser = parser or parser_class(tokenizer, reasoning=None, tool=name)
    reader = AnswerReader(parser, tokenizer, None, tool=name, split=False)
    fields: Any = {"messages": [{"role": "user", "content": "x"}], "tools": TOOLS}
    request = ChatCompletionRequest(**fields, tool_choice="auto")
    readings = [reader.read(text, [], request, prompt_ids=[], template_kwargs={}) for text in texts]
    return [reading.tools for reading in readings if reading.tools is not None]


def test_hostile_text_is_an_answer_without_calls_or_tracebacks() -> None:
    read("hermes", "")  # the first import of vLLM prints warnings
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[method-assign, assignment]
    logging.getLogger("vllm").addHandler(handler)
    try:
        for text, answer in zip(HOSTILE, read("hermes", *HOSTILE), strict=True):
            assert (answer.content, answer.calls) == (text, ())
            assert answer.error
        assert records == []
        logging.getLogger("vllm.tool_parsers.x").error("and afterwards they are heard again")
        assert len(records) == 1
    finally:
        logging.getLogger("vllm").removeHandler(handler)


@pytest.mark.parametrize(
    ("name", "start", "unit"),
    [
        ("deepseek_v3", "<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜><｜tool▁sep｜>"),
        ("deepseek_v31", "<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜><｜tool▁sep｜>"),
        ("ling3", "<tool_call>a\n", "<arg_key>"),
    ],
)
def test_a_text_that_takes_cubic_time_is_not_parsed(name: str, start: str, unit: str) -> None:
    hostile = start + unit * (60_000 // len(unit)) + "</tool_call>"
    # The mark alone makes them slow: a long answer without calls stays one.
    plain = "plain " * 5_000
    # The longest that is parsed; a text of 31,000 characters took 5.6 s.
    longest = start + unit * (MARKED_CHARS[name][1] // len(unit) - 3)
    before = time.thread_time()
    over, long = longest + unit * 4, "plain " * 11_000
    refused, answer, _, *too_long = read(name, hostile, plain, longest, over, long)
    assert refused == ToolAnswer(hostile, error="TooLong")
    assert too_long == [ToolAnswer(text, error="TooLong") for text in (over, long)]
    assert answer == ToolAnswer(plain)
    assert time.thread_time() - before < 30


def test_a_parser_that_reads_the_whole_answer_is_limited() -> None:
    long = "plain " * 11_000
    answers = [ToolAnswer("parsed"), ToolAnswer(long, error="TooLong")]
    assert read("whole", "short", long, parser=WholeParser) == answers
