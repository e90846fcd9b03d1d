from __future__ import annotations

import asyncio
import itertools
import json
import logging
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ace_ray.errors import EngineDead, UserError
from ace_ray.models.chat import Chat
from ace_ray.models.fake import FakeEngine
from ace_ray.models.tool_parsers import (
    MARKED_CHARS,
    MAX_CHARS,
    ToolParser,
    check_tool_parser,
    tool_parser,
)
from ace_ray.models.vllm_engine import VLLMEngine
from ace_ray.records import Completion, Episode, Sampling, ToolAnswer, ToolCall

Make = Callable[..., Path]
MESSAGES = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "go"}]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "find",
            "description": "Finds it.",
            "parameters": {"type": "object", "properties": {"key": {"type": "string"}}},
        },
    }
]
WITH_TOOLS = (
    "{% if tools %}<|tools|>{% for tool in tools %}{{ tool | tojson }}{% endfor %}{% endif %}"
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
BLIND = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}"

needs_vllm = pytest.mark.skipif(find_spec("vllm") is None, reason="no vLLM here")
needs_transformers = pytest.mark.skipif(find_spec("transformers") is None, reason="no transformers")


@needs_transformers
class TestTemplates:
    def test_tools_reach_a_template_that_shows_them(self, model_folder: Make) -> None:
        chat = Chat.load(model_folder(template=WITH_TOOLS), {})
        assert chat.supports_tools
        chat.require_tools("m")
        text = chat.render(MESSAGES, TOOLS)
        shown, _, rest = text.removeprefix("<|tools|>").partition("<|system|>")
        assert json.loads(shown) == TOOLS[0]
        assert rest == "be brief<|user|>go<|assistant|>"

    def test_without_tools_the_prompt_is_that_of_before(self, model_folder: Make) -> None:
        chat = Chat.load(model_folder(template=WITH_TOOLS), {})
        assert "tools" not in chat.render(MESSAGES)
        assert chat.render(MESSAGES, []) == chat.render(MESSAGES)

    @pytest.mark.parametrize(
        "template",
        [
            BLIND,
            # Says that there are tools, but not which.
            "{% if tools %}<|tools|>{{ tools | length }}{% endif %}" + BLIND,
            "{% if tools %}{{ raise_exception('no tools') }}{% endif %}" + BLIND,
        ],
    )
    def test_a_template_that_ignores_tools_is_refused(
        self, template: str, model_folder: Make
    ) -> None:
        chat = Chat.load(model_folder(template=template), {})
        assert not chat.supports_tools
        with pytest.raises(UserError, match=r"^some/model: .* ignores tools; .*mode: prompt"):
            chat.require_tools("some/model")

    def test_a_template_of_its_own_for_tools(self, model_folder: Make) -> None:
        chat = Chat.load(model_folder(template=BLIND), {})
        assert chat.tools_template_sha256 == chat.template_sha256
        chat.tokenizer.chat_template = {"default": BLIND, "tool_use": WITH_TOOLS}
        assert chat.supports_tools
        assert chat.tools_template_sha256 != chat.template_sha256


@needs_vllm
def test_names_are_checked_without_importing_vllm() -> None:
    loaded = "vllm" in sys.modules
    check_tool_parser("hermes")
    with pytest.raises(UserError, match=r"^model.tool_parser: .*'hermess'; did you mean 'hermes'"):
        check_tool_parser("hermess")
    with pytest.raises(UserError, match=r"known: .*hermes.*pythonic"):
        check_tool_parser("?")
    assert ("vllm" in sys.modules) == loaded


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    """Enough of a tokenizer for parsers that look for no special tokens."""
    tokenizers = pytest.importorskip("tokenizers")
    transformers = pytest.importorskip("transformers")
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"?": 0}, unk_token="?"))
    return transformers.PreTrainedTokenizerFast(tokenizer_object=words)


@pytest.fixture(scope="module")
def hermes(tokenizer: Any) -> ToolParser:
    pytest.importorskip("vllm")
    return tool_parser("hermes", tokenizer)


def test_calls_are_taken_out_of_the_text(hermes: ToolParser) -> None:
    text = (
        'Sure.<tool_call>\n{"name": "find", "arguments": {"key": "é"}}\n</tool_call>'
        '<tool_call>{"name": "made_up", "arguments": {}}</tool_call>'
    )
    calls = (ToolCall("find", '{"key": "é"}'), ToolCall("made_up", "{}"))
    assert hermes(text, TOOLS) == ToolAnswer("Sure.", calls)


def test_a_text_without_calls_is_content(hermes: ToolParser) -> None:
    for text in ("", "plain", "[find(key='x')]"):
        assert hermes(text, TOOLS) == ToolAnswer(text)


def test_marks_of_calls_stay_in_the_text(hermes: ToolParser) -> None:
    assert hermes.detokenization["skip_special_tokens"] is False


HOSTILE = [
    "<tool_call>{bad}</tool_call>",
    "<tool_call>" * 2000,
    "<tool_call>" + '{"name":' * 20_000,
    "<tool_call>" + "[" * 100_000,
    '<tool_call>{"name": null, "arguments": 5}</tool_call>',
    '<tool_call>["name"]</tool_call>',
    '<tool_call>{"name": "find", "arguments": ' + "9" * 5000 + "}</tool_call>",
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_is_an_answer_without_calls(hermes: ToolParser, text: str) -> None:
    answer = hermes(text, TOOLS)
    assert (answer.content, answer.calls) == (text, ())
    assert answer.error


def test_no_traceback_is_logged_per_bad_answer(hermes: ToolParser) -> None:
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[method-assign, assignment]
    logging.getLogger("vllm").addHandler(handler)
    try:
        assert hermes(HOSTILE[0], TOOLS).error
        assert records == []
        logging.getLogger("vllm.tool_parsers.x").error("and afterwards they are heard again")
        assert len(records) == 1
    finally:
        logging.getLogger("vllm").removeHandler(handler)


def test_the_error_of_one_answer_is_not_that_of_the_next(hermes: ToolParser) -> None:
    assert hermes("<tool_call>{bad}</tool_call>", TOOLS).error == "JSONDecodeError"
    assert hermes("plain", TOOLS).error == ""


def test_a_text_beyond_the_bound_is_not_parsed(hermes: ToolParser) -> None:
    call = '<tool_call>{"name": "find", "arguments": {}}</tool_call>'
    fits = call + " " * (MAX_CHARS - len(call))
    assert hermes(fits, TOOLS).calls
    assert hermes(fits + " ", TOOLS) == ToolAnswer(fits + " ", error="TooLong")


class Marks:
    """The vocabulary of a tokenizer that has every mark."""

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
    parser = tool_parser(name, Marks())
    hostile = start + unit * (60_000 // len(unit)) + "</tool_call>"
    before = time.thread_time()
    assert parser(hostile, TOOLS) == ToolAnswer(hostile, error="TooLong")
    # The mark alone makes them slow: a long answer without calls stays one.
    assert parser("plain " * 5_000, TOOLS) == ToolAnswer("plain " * 5_000)
    # The longest that is parsed; a text of 31,000 characters took 5.6 s.
    parser(start + unit * (MARKED_CHARS[name][1] // len(unit) - 3), TOOLS)
    assert time.thread_time() - before < 30


class Silent:
    """A parser that finds no calls, and says nothing of the content."""

    def __init__(self, tokenizer: Any, tools: Any) -> None:
        pass

    def adjust_request(self, request: Any) -> Any:
        return request

    def extract_tool_calls(self, text: str, request: Any) -> Any:
        return SimpleNamespace(tool_calls=[], content=None)


@needs_vllm
def test_a_parser_that_raises(tokenizer: Any) -> None:
    class Raising(Silent):
        def extract_tool_calls(self, text: str, request: Any) -> Any:
            return {"": None}[text]

    answer = ToolParser(Raising, tokenizer)("x", TOOLS)
    assert answer == ToolAnswer("x", error="KeyError")


@needs_vllm
def test_a_parser_that_says_nothing_of_the_content(tokenizer: Any) -> None:
    assert ToolParser(Silent, tokenizer)("x", TOOLS) == ToolAnswer("x")


@needs_vllm
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("hermess", "has no tool parser 'hermess'; did you mean 'hermes'"),
        ("openai", "'openai' reads tokens and not text"),
        ("llama3_json", "'llama3_json' does not take this model's tokenizer"),
    ],
)
def test_a_parser_that_cannot_work_is_refused_at_once(
    name: str, message: str, tokenizer: Any
) -> None:
    with pytest.raises(UserError, match=f"^model.tool_parser: .*{message}"):
        tool_parser(name, tokenizer)


@needs_vllm
def test_a_parser_whose_package_is_missing(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.tool_parsers import ToolParserManager

    monkeypatch.setitem(ToolParserManager.lazy_parsers, "gone", ("ace_ray_no_such_module", "P"))
    with pytest.raises(UserError, match=r"'gone' needs a package: .*ace_ray_no_such_module"):
        tool_parser("gone", tokenizer)


class StubEngine:
    """In place of vLLM's engine: gives one answer and keeps what it was asked."""

    def __init__(self, answer: str) -> None:
        self._answer = answer
        self.asked: list[tuple[Any, Any]] = []

    async def generate(self, prompt: Any, params: Any, **more: Any) -> AsyncIterator[Any]:
        self.asked.append((prompt, params))
        said = SimpleNamespace(text=self._answer, finish_reason="stop", token_ids=[1, 2])
        yield SimpleNamespace(outputs=[said])


def engine_on(chat: Chat, parser: ToolParser | None, answer: str) -> tuple[Any, StubEngine]:
    """A `VLLMEngine` around a stub, without loading a model."""
    engine, stub = VLLMEngine.__new__(VLLMEngine), StubEngine(answer)
    vars(engine).update(
        _engine=stub,
        _adapter=None,
        _chat=chat,
        _tool_parser=parser,
        _named_split=None,
        _params=lambda **values: values,
        _final=None,
        _dead=EngineDead,
        _ids=itertools.count(),
        max_model_len=1000,
    )
    return engine, stub


def test_an_engine_offers_tools_and_reads_calls_after_the_reasoning(
    hermes: ToolParser, model_folder: Make
) -> None:
    chat = Chat.load(model_folder(template=WITH_TOOLS), {})
    call = '<tool_call>{"name": "find", "arguments": {"key": "x"}}</tool_call>'
    engine, stub = engine_on(chat, hermes, f"<think><tool_call>no</think>{call}")
    answer = asyncio.run(engine.chat(MESSAGES, Sampling(), TOOLS))
    assert answer.text == call
    assert answer.reasoning == "<tool_call>no"
    assert answer.tools == ToolAnswer("", (ToolCall("find", '{"key": "x"}'),))
    ((prompt, params),) = stub.asked
    assert prompt["prompt_token_ids"] == chat.encode(chat.render(MESSAGES, TOOLS))
    assert params["skip_special_tokens"] is False


def test_an_engine_without_tools_is_as_before(hermes: ToolParser, model_folder: Make) -> None:
    chat = Chat.load(model_folder(template=WITH_TOOLS), {})
    engine, stub = engine_on(chat, hermes, "<tool_call>x")
    answer = asyncio.run(engine.chat(MESSAGES, Sampling()))
    assert (answer.text, answer.tools) == ("<tool_call>x", None)
    ((prompt, params),) = stub.asked
    assert prompt["prompt_token_ids"] == chat.encode(chat.render(MESSAGES))
    assert "skip_special_tokens" not in params
    assert asyncio.run(engine.chat(MESSAGES, Sampling(), [])).tools == ToolAnswer("<tool_call>x")


def test_tools_need_a_tool_parser(model_folder: Make) -> None:
    pytest.importorskip("transformers")
    engine, stub = engine_on(Chat.load(model_folder(template=WITH_TOOLS), {}), None, "x")
    with pytest.raises(ValueError, match="without a tool parser"):
        asyncio.run(engine.chat(MESSAGES, Sampling(), TOOLS))
    assert stub.asked == []


def test_the_fake_calls_when_tools_are_offered() -> None:
    engine = FakeEngine({"default": "text", "calls": {"go": [{"name": "find", "arguments": "{"}]}})

    def ask(text: str, tools: Any) -> Completion:
        return asyncio.run(engine.chat([{"role": "user", "content": text}], Sampling(), tools))

    answer = ask("go", TOOLS)
    assert answer.tools == ToolAnswer("text", (ToolCall("find", "{"),))
    assert ask("stay", TOOLS).tools == ToolAnswer("text")
    assert ask("go", None).tools is None
    assert answer.prompt_tokens > ask("go", None).prompt_tokens == 1


def test_an_episode_keeps_the_calls_and_the_text_as_written() -> None:
    episode = Episode()
    calls = (ToolCall("find", '{"key": 1}'),)
    episode.record(Completion(text="raw", tools=ToolAnswer("beside", calls)))
    episode.record(Completion(text="odd", tools=ToolAnswer("odd", error="KeyError")))
    episode.record(Completion(text="plain"))
    function = {"name": "find", "arguments": '{"key": 1}'}
    assert episode.messages == [
        {
            "role": "assistant",
            "content": "beside",
            "text": "raw",
            "tool_calls": [{"type": "function", "function": function}],
        },
        {"role": "assistant", "content": "odd", "text": "odd", "tool_parser_error": "KeyError"},
        {"role": "assistant", "content": "plain"},
    ]
