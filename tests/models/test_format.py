"""Formats and engines render and read as vLLM's server does, within bounds."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ace_ray.errors import EngineDead, PromptRefused, PromptTooLong, RequestFailed, UserError
from ace_ray.models.answer_parser import MAX_CHARS, Reading
from ace_ray.models.families import FormatChoice
from ace_ray.models.format import Format
from ace_ray.models.vllm_engine import RESETS, VLLMEngine
from ace_ray.types import EngineFigures, Sampling, ToolAnswer, ToolCall

Make = Callable[..., tuple[Any, Any]]
MESSAGES = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "go"}]
PARAMETERS = {"type": "object", "properties": {"key": {"type": "string"}}}
TOOLS = [{"type": "function", "function": {"name": "find", "parameters": PARAMETERS}}]
TEMPLATE = (
    "{% if tools %}<|tools|>{% for tool in tools %}{{ tool | tojson }}{% endfor %}{% endif %}"
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}"
    "{% for call in m.tool_calls or [] %}{{ call.function.arguments | tojson }}{% endfor %}"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
CALL = '<tool_call>{"name": "find", "arguments": {"key": "x"}}</tool_call>'
HERMES = FormatChoice(tool_parser="hermes")


def rendered(form: Format, messages: Any = MESSAGES, tools: Any = None) -> Any:
    return asyncio.run(form.render(messages, tools))


@pytest.fixture
def hermes(make_renderer: Make) -> Format:
    return Format(*make_renderer(TEMPLATE), HERMES)


BEGIN = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "<|im_start|>assistant\n"
)
OFF_BY_DEFAULT = (
    BEGIN + "{% if enable_thinking is defined and enable_thinking is true %}<think>\n"
    "{% else %}<think>\n\n</think>\n\n{% endif %}"
)
BY_WORD = (
    BEGIN
    + "{% if '/no_think' in messages[-1].content %}<think></think>{% else %}<think>\n{% endif %}"
)
MARKS = ("<think>", "</think>", "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>")


@pytest.mark.parametrize("parser", ["qwen3", "glm45", "deepseek_v3", "kimi_k2"])
@pytest.mark.parametrize("template", [OFF_BY_DEFAULT, BY_WORD])
def test_reasoning_begins_where_the_prompt_opened_thinking(
    make_renderer: Make, parser, template
) -> None:
    parts = make_renderer(template, MARKS)
    form = Format(*parts, FormatChoice(reasoning_parser=parser, tool_parser="hermes"))
    prompt = rendered(form, [{"role": "user", "content": "/no_think go"}], TOOLS)
    assert prompt.text.rstrip().endswith("</think>")
    for text in ("The answer is 4.", CALL):
        reading = form.read(prompt, text, form.encode(text))
        assert (reading.reasoning, reading.truncated) == ("", False)
        assert reading.tools is not None
        assert len(reading.tools.calls) == (text == CALL)
        assert reading.tools.content == ("" if text == CALL else text)
    if parser == "qwen3":
        form = Format(*parts, FormatChoice(parser, template_kwargs={"enable_thinking": True}))
        text = "hm</think>\n\nThe answer is 4."
        reading = form.read(rendered(form), text, form.encode(text))
        assert (reading.reasoning.strip(), reading.text.strip()) == ("hm", "The answer is 4.")


class StubEngine:
    """In place of vLLM's engine: gives one answer, and keeps its requests."""

    def __init__(self, parts: tuple[Any, Any], answer: str, resets: int = 1) -> None:
        self.model_config, self.renderer = parts
        self.answer, self.resets = answer, resets
        backend = SimpleNamespace(backend="auto")
        cache = SimpleNamespace(num_gpu_blocks=4, block_size=16, enable_prefix_caching=True)
        self.vllm_config = SimpleNamespace(structured_outputs_config=backend, cache_config=cache)
        self.requests: list[Any] = []

    async def generate(
        self, prompt: Any, params: Any, request_id: str, lora_request: Any, **more: Any
    ) -> AsyncIterator[Any]:
        self.requests.append((prompt, params, more))
        completion = SimpleNamespace(text=self.answer, finish_reason="stop", token_ids=[1, 2])
        times = SimpleNamespace(first_token_latency=0.5, first_token_ts=1.0, last_token_ts=3.0)
        yield SimpleNamespace(outputs=[completion], num_cached_tokens=16, metrics=times)

    async def collective_rpc(self, name: str, args: tuple[str, ...]) -> None:
        self.requests.append((name, *args))

    async def reset_prefix_cache(self, *, reset_connector: bool = False) -> bool:
        self.requests.append(reset_connector)
        return len(self.requests) > self.resets


Start = Callable[..., tuple[VLLMEngine, StubEngine]]


@pytest.fixture
def start(make_renderer: Make, monkeypatch: pytest.MonkeyPatch) -> Start:
    """Start a `VLLMEngine` around a stub, without loading a model."""
    from vllm.v1.engine.async_llm import AsyncLLM

    monkeypatch.setenv("VLLM_NO_USAGE_STATS", "1")
    monkeypatch.setattr("ace_ray.models.vllm_engine.cpu_environment", dict)

    def make(choice: FormatChoice, answer: str = "{}", **more: Any) -> Any:
        stub = StubEngine(make_renderer(TEMPLATE, MARKS), answer, **more)
        monkeypatch.setattr(AsyncLLM, "from_engine_args", lambda args, **more: stub)
        return VLLMEngine(Path(stub.model_config.model), {}, choice, swappable=True), stub

    return make


PLUGIN = """
from vllm.reasoning import ReasoningParserManager
from vllm.tool_parsers import ToolParserManager
@ReasoningParserManager.register_module("thoughts_of_a_plugin")
class Thoughts(ReasoningParserManager.get_reasoning_parser("qwen3")):
    pass
@ToolParserManager.register_module("calls_of_a_plugin")
class Calls(ToolParserManager.get_tool_parser("hermes")):
    pass
"""


@pytest.mark.parametrize(
    ("choice", "bound"),
    [
        (FormatChoice(), True),
        (FormatChoice("qwen3"), True),
        # The engine's core does not load plugins.
        (FormatChoice("thoughts_of_a_plugin", plugins=(("p.py", PLUGIN),)), False),
    ],
    ids=["none", "qwen3", "plugin"],
)
def test_a_schema_binds_where_the_engine_sees_the_end_of_reasoning(start, choice, bound) -> None:
    engine, stub = start(choice)
    answer = asyncio.run(engine.chat(MESSAGES, Sampling().with_schema({"type": "object"})))
    ((_, params, _),) = stub.requests
    assert (params.structured_outputs is not None) is bound
    assert bool(answer.schema_refused) is not bound


def test_an_engine_offers_tools_and_reads_calls_after_the_reasoning(start: Start) -> None:
    written = f"<think><tool_call>no</think>{CALL}"
    engine, stub = start(HERMES, written)
    answer = asyncio.run(engine.chat(MESSAGES, Sampling(), TOOLS))
    assert answer.text == CALL
    assert answer.raw == written
    assert answer.reasoning == "<tool_call>no"
    assert answer.tools == ToolAnswer("", (ToolCall("find", '{"key": "x"}'),))
    assert (answer.completion_tokens, answer.finish_reason) == (2, "stop")
    ((prompt, params, more),) = stub.requests
    assert answer.prompt_tokens == len(prompt["prompt_token_ids"])
    assert "<|tools|>" in prompt["prompt"]
    assert params.skip_special_tokens is False
    assert more == {"reasoning_ended": None, "reasoning_parser_kwargs": None}


def test_an_engine_without_tools_reads_no_calls(start: Start) -> None:
    engine, stub = start(HERMES, CALL)
    answer = asyncio.run(engine.chat(MESSAGES, Sampling()))
    assert (answer.text, answer.raw, answer.tools) == (CALL, "", None)
    assert answer.engine == EngineFigures(cached_tokens=16, first_token_s=0.5, decode_s=2.0)
    ((prompt, params, _),) = stub.requests
    assert prompt["prompt"] == "<|system|>be brief<|user|>go<|assistant|>"
    assert params.skip_special_tokens is True
    assert asyncio.run(engine.chat(MESSAGES, Sampling(), [])).tools == ToolAnswer(CALL)
    engine, stub = start(FormatChoice())
    with pytest.raises(ValueError, match="tools need a tool parser"):
        asyncio.run(engine.chat(MESSAGES, Sampling(), TOOLS))
    with pytest.raises(PromptTooLong):
        asyncio.run(engine.chat([{"role": "user", "content": "x" * 4090}], Sampling()))
    assert stub.requests == []


def test_a_swap_empties_the_caches_or_ends_the_engine(start, monkeypatch) -> None:
    async def sleep(seconds: float) -> None:
        return

    monkeypatch.setattr("asyncio.sleep", sleep)
    engine, stub = start(FormatChoice(), resets=3)
    asyncio.run(engine.swap(Path("/c/step_2")))
    assert stub.requests == [("swap_weights", "/c/step_2"), True, True, True]
    # Answers would come from what the previous weights have computed.
    engine, _ = start(FormatChoice(), resets=RESETS + 1)
    with pytest.raises(EngineDead, match="the cache of the previous weights could not be cleared"):
        asyncio.run(engine.swap(Path("/c/step_2")))


def test_messages_are_shown_as_the_server_shows_them(hermes: Format) -> None:
    call = {"id": "call00000", "type": "function", "function": {"name": "find", "arguments": "{"}}
    messages = [*MESSAGES, {"role": "assistant", "content": None, "tool_calls": [call]}]
    before = repr(messages)
    text = rendered(hermes, messages, TOOLS).text
    assert text.endswith("<|user|>go<|assistant|>{}<|assistant|>")
    assert repr(messages) == before
    assert "\ufffd" in rendered(hermes, [{"role": "user", "content": "\ud800"}]).text


def test_earlier_calls_may_have_their_arguments_as_objects(hermes: Format) -> None:
    function = {"name": "find", "arguments": {"key": "\u00e9 \ud800"}}
    call = {"id": "call00000", "type": "function", "function": function}
    chat = [*MESSAGES, {"role": "assistant", "content": "", "tool_calls": [call]}]
    text = rendered(hermes, chat, TOOLS).text
    assert text.endswith('<|assistant|>{"key": "\u00e9 \ufffd"}<|assistant|>')


def test_an_answer_with_two_calls_is_divided_if_the_template_refuses_it(
    make_renderer: Make,
) -> None:
    single = "{% if m.tool_calls | length > 1 %}{{ raise_exception('single calls') }}{% endif %}"
    template = TEMPLATE.replace("<|{{ m.role }}|>", single + "<|{{ m.role }}|>")
    form = Format(*make_renderer(template), HERMES)
    calls = [
        {"id": key, "type": "function", "function": {"name": "find", "arguments": {"key": key}}}
        for key in ("a", "b")
    ]
    results = [{"role": "tool", "tool_call_id": key, "content": f"{key} is"} for key in ("a", "b")]
    chat = [*MESSAGES, {"role": "assistant", "content": "", "tool_calls": calls}, *results]
    assert rendered(form, chat, TOOLS).text.endswith(
        '<|assistant|>{"key": "a"}<|tool|>a is<|assistant|>{"key": "b"}<|tool|>b is<|assistant|>'
    )
    with pytest.raises(PromptRefused, match="no users"):
        rendered(Format(*make_renderer("{{ raise_exception('no users') }}"), HERMES), chat, TOOLS)


def test_the_template_and_the_date_may_be_chosen(make_renderer: Make) -> None:
    form = Format(*make_renderer(TEMPLATE), FormatChoice(chat_template="{{ messages[0].content }}"))
    assert rendered(form).text == "be brief"
    dated = make_renderer("{{ strftime_now('%d %b %Y') }}" + TEMPLATE)
    form = Format(*dated, FormatChoice(start_date="2025-08-05"))
    assert rendered(form).text.startswith("05 Aug 2025")
    loops = "{% for m in messages %}{% for c in m.content %}[{{ c.text }}]{% endfor %}{% endfor %}"
    assert rendered(Format(*make_renderer(loops), FormatChoice())).text == "[be brief][go]"


# Seconds: nothing ends the thread that renders it.
LOOPS = "{% for i in range(9999) %}{% for j in range(20) %}{{ i.a }}{% endfor %}{% endfor %}"


def test_long_refused_and_slow_prompts_are_told_apart(
    hermes, make_renderer: Make, monkeypatch
) -> None:
    for length in (4097, 500_000):
        with pytest.raises(PromptTooLong):
            rendered(hermes, [{"role": "user", "content": "x" * length}])
    for template in ("{{ raise_exception('no') }}", "{{ ''.__class__.__mro__ }}"):
        with pytest.raises(PromptRefused):
            rendered(Format(*make_renderer(template), FormatChoice()))
    timeout = "VLLM_CHAT_TEMPLATE_RENDER_TIMEOUT"
    monkeypatch.setenv(timeout, "")
    monkeypatch.delenv(timeout)
    Format(*make_renderer(TEMPLATE), FormatChoice())
    assert os.environ[timeout] == "300"
    monkeypatch.setenv(timeout, "0.2")
    with pytest.raises(RequestFailed, match="timed out"):
        rendered(Format(*make_renderer(LOOPS), FormatChoice()))


def read(form: Format, text: str, tools: Any = TOOLS) -> Reading:
    return form.read(rendered(form, tools=tools), text, [])


def test_text_stays_without_tools_and_where_a_parser_raises(
    hermes, make_renderer: Make, monkeypatch
):
    from vllm.tool_parsers.hermes_tool_parser import Hermes2ProToolParser

    assert read(hermes, "plain") == Reading("plain", tools=ToolAnswer("plain"))
    # vLLM's server would drop the call with this parser, as docs/formats.md says.
    choice = FormatChoice("none", "qwen3_coder")
    assert read(Format(*make_renderer(TEMPLATE, MARKS), choice), CALL, None) == Reading(CALL)
    broken: Any = lambda self, model_output, request: {"": None}[model_output]  # noqa: E731
    monkeypatch.setattr(Hermes2ProToolParser, "extract_tool_calls", broken)
    assert read(hermes, "x").tools == ToolAnswer("x", error="KeyError")


def test_reasoning_of_an_answer_beyond_the_bound_is_found(hermes: Format) -> None:
    long = CALL + " " * MAX_CHARS
    reading = read(hermes, f"<think>{'y' * MAX_CHARS}</think>{long}")
    assert reading.tools == ToolAnswer(long, error="TooLong")
    assert reading.reasoning == "y" * MAX_CHARS
    fits = read(hermes, f"<think>{'y' * MAX_CHARS}</think>{CALL}")
    assert fits.tools is not None
    assert fits.tools.calls


@pytest.mark.nightly
def test_a_parser_that_cannot_work_is_refused_at_once(make_renderer: Make, monkeypatch) -> None:
    from vllm.tool_parsers import ToolParserManager

    monkeypatch.setitem(ToolParserManager.lazy_parsers, "gone", ("ace_ray_no_such_module", "P"))
    for choice, message in (
        (FormatChoice("qwen33"), "the parser qwen33: .*qwen33' not found"),
        (FormatChoice(tool_parser="openai"), "'openai' reads gpt-oss tokens"),
        (FormatChoice(tool_parser="llama3_json"), "the parser llama3_json: "),
        (FormatChoice(tool_parser="gone"), "the parser gone: .*ace_ray_no_such_module"),
    ):
        with pytest.raises(UserError, match=f"^model.(tool|reasoning)_parser: .*{message}"):
            Format(*make_renderer(TEMPLATE), choice)


def test_a_plugin_registers_a_parser(make_renderer: Make) -> None:
    # Another name than above: a process keeps the parsers that were registered.
    plugin = ("p.py", PLUGIN.replace("_of_a_plugin", "_of_another"))
    choice = FormatChoice(tool_parser="calls_of_another", plugins=(plugin,))
    reading = read(Format(*make_renderer(TEMPLATE), choice), CALL)
    assert reading.tools is not None
    assert reading.tools.calls == (ToolCall("find", '{"key": "x"}'),)
    with pytest.raises(UserError, match=r"^model.plugins: bad.py: cannot be imported: Zero"):
        FormatChoice(plugins=(("bad.py", "1 / 0"),)).load_plugins()
