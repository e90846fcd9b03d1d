"""vLLM's tool parsers on the answers of a model."""

from __future__ import annotations

import logging
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import pytest

from ace_ray.config.schema import ModelConfig
from ace_ray.errors import UserError
from ace_ray.models.answers import MARKED_CHARS, MAX_CHARS, AnswerReader, parser_class
from ace_ray.models.engine_args import check_parsers
from ace_ray.types import Completion, Episode, ToolAnswer, ToolCall

Read = Callable[[str], ToolAnswer]
SAID = {"role": "assistant"}
PARAMETERS = {"type": "object", "properties": {"key": {"type": "string"}}}
TOOLS = [{"type": "function", "function": {"name": "find", "parameters": PARAMETERS}}]

needs_vllm = pytest.mark.skipif(find_spec("vllm") is None, reason="no vLLM here")


@needs_vllm
def test_names_are_checked_without_importing_vllm() -> None:
    loaded = "vllm" in sys.modules
    for name in ("auto", "none", "qwen3"):
        check_parsers(ModelConfig(source="m", reasoning_parser=name, tool_parser="hermes"))
    with pytest.raises(UserError, match=r"^model.tool_parser: .*'hermess'; did you mean 'hermes'"):
        check_parsers(ModelConfig(source="m", tool_parser="hermess"))
    with pytest.raises(UserError, match=r"known: .*hermes.*pythonic"):
        check_parsers(ModelConfig(source="m", tool_parser="?"))
    with pytest.raises(UserError, match="known: "):
        check_parsers(ModelConfig(source="m", reasoning_parser="zzzzzz"))
    assert ("vllm" in sys.modules) == loaded


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    tokenizers = pytest.importorskip("tokenizers")
    transformers = pytest.importorskip("transformers")
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"?": 0}, unk_token="?"))
    return transformers.PreTrainedTokenizerFast(tokenizer_object=words)


def reader(name: str, tokenizer: Any) -> Read:
    """Return a reader of answers to tools with vLLM's parser of that name."""
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

    made = parser_class(tokenizer, reasoning=None, tool=name)
    answers = AnswerReader(made, tokenizer, None, tool=name, split=False)

    def read(text: str) -> ToolAnswer:
        asked: Any = {"messages": [{"role": "user", "content": "x"}], "tools": TOOLS}
        request = ChatCompletionRequest(**asked, tool_choice="auto")
        reading = answers.read(text, [], request, prompt_ids=[], template_kwargs={})
        assert reading.tools is not None
        return reading.tools

    return read


@pytest.fixture(scope="module")
def hermes(tokenizer: Any) -> Read:
    pytest.importorskip("vllm")
    return reader("hermes", tokenizer)


def test_calls_are_taken_out_of_the_text(hermes: Read) -> None:
    text = (
        'Sure.<tool_call>\n{"name": "find", "arguments": {"key": "é"}}\n</tool_call>'
        '<tool_call>{"name": "made_up", "arguments": {}}</tool_call>'
    )
    calls = (ToolCall("find", '{"key": "é"}'), ToolCall("made_up", "{}"))
    assert hermes(text) == ToolAnswer("Sure.", calls)
    for text in ("", "plain", "[find(key='x')]"):
        assert hermes(text) == ToolAnswer(text)


HOSTILE = [
    "<tool_call>{bad}</tool_call>",
    "<tool_call>" * 2000,
    "<tool_call>" + '{"name":' * 20_000,
    "<tool_call>" + "[" * 100_000,
    '<tool_call>{"name": null, "arguments": 5}</tool_call>',
    '<tool_call>{"name": "find", "arguments": ' + "9" * 5000 + "}</tool_call>",
]


def test_hostile_text_is_an_answer_without_calls_or_tracebacks(hermes: Read) -> None:
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[method-assign, assignment]
    logging.getLogger("vllm").addHandler(handler)
    try:
        for text in HOSTILE:
            answer = hermes(text)
            assert (answer.content, answer.calls) == (text, ())
            assert answer.error
        assert records == []
        logging.getLogger("vllm.tool_parsers.x").error("and afterwards they are heard again")
        assert len(records) == 1
    finally:
        logging.getLogger("vllm").removeHandler(handler)


def test_a_text_beyond_the_bound_is_not_parsed(hermes: Read) -> None:
    call = '<tool_call>{"name": "find", "arguments": {}}</tool_call>'
    fits = call + " " * (MAX_CHARS - len(call))
    assert hermes(fits).calls
    assert hermes(fits + " ") == ToolAnswer(fits + " ", error="TooLong")


class Marks:
    """A tokenizer whose vocabulary has every mark."""

    def get_vocab(self) -> Any:
        return defaultdict(int, dict.fromkeys(MARKS, 1))


MARKS = [
    f"<｜tool▁{name}｜>"
    for name in ("calls▁begin", "calls▁end", "call▁begin", "call▁end", "sep", "outputs▁begin")
] + ["<tool_call>", "</tool_call>"]


@needs_vllm
@pytest.mark.parametrize(
    ("name", "start", "unit"),
    [
        ("deepseek_v3", "<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜><｜tool▁sep｜>"),
        ("deepseek_v31", "<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜><｜tool▁sep｜>"),
        ("ling3", "<tool_call>a\n", "<arg_key>"),
    ],
)
def test_a_text_that_takes_cubic_time_is_not_parsed(name: str, start: str, unit: str) -> None:
    parser = reader(name, Marks())
    hostile = start + unit * (60_000 // len(unit)) + "</tool_call>"
    before = time.thread_time()
    assert parser(hostile) == ToolAnswer(hostile, error="TooLong")
    # The mark alone makes them slow: a long answer without calls stays one.
    assert parser("plain " * 5_000) == ToolAnswer("plain " * 5_000)
    # The longest that is parsed; a text of 31,000 characters took 5.6 s.
    parser(start + unit * (MARKED_CHARS[name][1] // len(unit) - 3))
    assert time.thread_time() - before < 30


def test_a_parser_that_raises(hermes: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.tool_parsers.hermes_tool_parser import Hermes2ProToolParser

    def broken(self: Any, model_output: str, request: Any) -> Any:
        return {"": None}[model_output]

    monkeypatch.setattr(Hermes2ProToolParser, "extract_tool_calls", broken)
    assert hermes("x") == ToolAnswer("x", error="KeyError")


def test_an_episode_keeps_the_calls_and_the_text_as_written() -> None:
    episode = Episode()
    calls = (ToolCall("find", '{"key": 1}'),)
    episode.record(Completion(text="raw", tools=ToolAnswer("beside", calls)))
    episode.record(Completion(text="odd", tools=ToolAnswer("odd", error="KeyError")))
    episode.record(Completion(text="plain"))
    call = {"type": "function", "function": {"name": "find", "arguments": '{"key": 1}'}}
    assert episode.messages == [
        {**SAID, "content": "beside", "text": "raw", "tool_calls": [call]},
        {**SAID, "content": "odd", "text": "odd", "tool_parser_error": "KeyError"},
        {**SAID, "content": "plain"},
    ]
