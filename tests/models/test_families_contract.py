"""Prompts and answers of every family are those of vLLM's server, token by token.

gpt-oss's vocabulary is the real one, from its wheel. The others are toys that have the family's
marks as tokens, with templates of our own that show its marks.
"""

import asyncio
import copy
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pytest

from ace_ray.benchmarks.context import to_chat
from ace_ray.models import families
from ace_ray.models.families import FamilyFacts, FormatChoice
from ace_ray.models.format import Format
from ace_ray.types import ToolCall

Make = Callable[..., tuple[Any, Any]]
FUNCTION: dict[str, Any] = {
    "name": "find",
    "description": "Finds it, \u00e9 <b>.",
    "parameters": {"type": "object", "properties": {"key": {"type": "string"}}},
    "response": {"type": "object"},
}
TOOLS = [{"type": "function", "function": FUNCTION}]
CALLED: dict[str, Any] = {"role": "assistant", "content": None, "reasoning": "RRR"}
CALLED["tool_calls"] = [
    {
        "id": "call00000",
        "type": "function",
        "function": {"name": "find", "arguments": '{"key": "x"}'},
    }
]
RESULT = {"role": "tool", "name": "find", "tool_call_id": "call00000", "content": "found"}
GO = {"role": "user", "content": "go"}
CHATS: tuple[list[dict[str, Any]], ...] = (
    [{"role": "system", "content": "be brief"}, GO],
    [GO, CALLED, RESULT],
    [GO, CALLED, RESULT, {"role": "assistant", "content": "x"}, GO],
)
FIND = (ToolCall("find", '{"key": "x"}'),)
THINK = ("<think>", "</think>")
CALL = ("<tool_call>", "</tool_call>")


class Answer(NamedTuple):
    """A model's text, and its reading."""

    text: str
    reasoning: str
    content: str
    calls: tuple[ToolCall, ...] = ()
    truncated: bool = False


def chatml(call: str, generation: str = "", thought: str = "") -> str:
    """Return a template of the most frequent shape."""
    return (
        "{% if tools %}<|im_start|>system\n{% for t in tools %}{{ t | tojson }}\n{% endfor %}"
        + call
        + "<|im_end|>\n{% endif %}"
        "{% set ns = namespace(last=0) %}{% for m in messages %}{% if m.role == 'user' %}"
        "{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
        "{% for m in messages %}<|im_start|>{{ m.role }}\n"
        + thought
        + "{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>\n"
        "{{ {'name': c.function.name, 'arguments': c.function.arguments} | tojson }}\n</tool_call>"
        "{% endfor %}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n" + generation + "{% endif %}"
    )


KEPT = (
    "{% if m.reasoning_content and loop.index0 > ns.last %}<think>\n{{ m.reasoning_content }}\n"
    "</think>\n\n{% endif %}"
)
OFF = (
    "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n"
    "{% endif %}"
)
JSON_CALL = 'Call with <tool_call>\n{"name": ..., "arguments": ...}\n</tool_call>'
ARGUMENTS = '{"key": "x"}'
JSON_FIND = f'{{"name": "find", "arguments": {ARGUMENTS}}}'
HERMES = f"<tool_call>\n{JSON_FIND}\n</tool_call>"
CODER = "<tool_call>\n<function=find>\n<parameter=key>\nx\n</parameter>\n</function>\n</tool_call>"
GLM = "<tool_call>find\n<arg_key>key</arg_key>\n<arg_value>x</arg_value>\n</tool_call>"
KIMI_MARKS = ("<|tool_calls_section_begin|>", "<|tool_call_begin|>", "<|tool_call_argument_begin|>",
              "<|tool_call_end|>", "<|tool_calls_section_end|>")  # fmt: skip
KIMI = "{}{}functions.find:0{}{arguments}{}{}".format(*KIMI_MARKS, arguments=ARGUMENTS)
KIMI_ID = (ToolCall("find", ARGUMENTS, "functions.find:0"),)
DEEPSEEK = tuple(
    f"<｜tool▁{mark}｜>" for mark in ("calls▁begin", "call▁begin", "sep", "call▁end", "calls▁end")
)
V31 = "{}{}find{}{arguments}{}{}".format(*DEEPSEEK, arguments=ARGUMENTS)


class Family(NamedTuple):
    template: str
    reasoning: str
    tool: str
    marks: tuple[str, ...]
    kwargs: Mapping[str, Any]
    answers: tuple[Answer, ...]
    model_type: str = "llama"


def plain(*calls: str, read: tuple[ToolCall, ...] = FIND) -> tuple[Answer, ...]:
    return Answer("plain", "", "plain"), *(Answer(call, "", "", read) for call in calls)


def thinking(call: str, read: tuple[ToolCall, ...] = FIND) -> tuple[Answer, ...]:
    return Answer("y</think>ok", "y", "ok"), Answer(f"y</think>{call}", "y", "", read)


NO_END = Answer("y and no end", "y and no end", "", truncated=True)
QWEN3 = chatml(JSON_CALL, OFF, KEPT)
GLM45 = "[gMASK]<sop>" + chatml("<tool_call>f<arg_key>k</arg_key>", OFF, KEPT)
KIMI_TEMPLATE = chatml(KIMI, "", KEPT).replace(
    "<|im_start|>assistant", "<|im_assistant|>a<|im_middle|>"
)
DEEPSEEK_TEMPLATE = chatml("".join(DEEPSEEK), "<｜Assistant｜>{% if thinking %}<think>{% endif %}")
LLAMA32 = (
    chatml('Environment: ipython\nA call is {"name": of a function, "parameters": its arguments}')
    .replace("<|im_start|>", "<|start_header_id|>")
    .replace("<tool_call>", "")
    .replace("</tool_call>", "")
)
PARAMETERS = f'{{"name": "find", "parameters": {ARGUMENTS}}}'
DISABLED = {"enable_thinking": False}

FAMILIES = {
    "Qwen2.5, Hermes": Family(chatml(JSON_CALL), "auto", "hermes", CALL, {}, plain(HERMES)),
    "Qwen3 on": Family(QWEN3, "qwen3", "hermes", THINK + CALL, {}, (*thinking(HERMES), NO_END)),
    "Qwen3 off": Family(QWEN3, "qwen3", "hermes", THINK + CALL, DISABLED, plain(HERMES)),
    "Qwen3-Coder": Family(
        chatml("<function=f>"), "auto", "qwen3_coder", THINK + CALL, {}, plain(CODER)
    ),
    "Llama 3.2": Family(
        *(LLAMA32, "auto", "llama3_json", ("<|python_tag|>", "<|start_header_id|>"), {}),
        # The parser looks for objects in all of the text (docs/results.md).
        plain(PARAMETERS, f"I call:\n```json\n{PARAMETERS}\n```", f"```json\n[{PARAMETERS}]\n```"),
    ),
    "DeepSeek V3.1 on": Family(
        *(DEEPSEEK_TEMPLATE + "<think>", "deepseek_v3", "deepseek_v31", THINK + DEEPSEEK),
        *({"thinking": True}, thinking(V31)[:1]),
    ),
    "GLM on": Family(GLM45, "glm45", "glm45", THINK + CALL, {}, (*thinking(GLM), NO_END)),
    "Kimi on": Family(
        *(KIMI_TEMPLATE, "kimi_k2", "kimi_k2", THINK + KIMI_MARKS, {}),
        *(thinking(KIMI, KIMI_ID), "kimi_k2"),
    ),
}


def choice_of(family: Family) -> FormatChoice:
    return FormatChoice(family.reasoning, family.tool, template_kwargs=family.kwargs)


def server(config: Any, renderer: Any, choice: FormatChoice) -> Any:
    from vllm.renderers.online_renderer import OnlineRenderer

    return OnlineRenderer(
        config,
        renderer,
        request_logger=None,
        chat_template=None,
        chat_template_content_format="auto",
        enable_auto_tools=True,
        tool_parser=choice.tool_parser,
        reasoning_parser=choice.vllm_reasoning_parser,
        default_chat_template_kwargs=dict(choice.template_kwargs),
    )


def request(chat: Any, **more: Any) -> Any:
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

    return ChatCompletionRequest(
        messages=copy.deepcopy(chat), tools=copy.deepcopy(TOOLS), tool_choice="auto", **more
    )


@pytest.mark.nightly
@pytest.mark.parametrize("name", FAMILIES)
def test_prompts_and_readings_are_the_servers(name: str, make_renderer: Make) -> None:
    family = FAMILIES[name]
    choice = choice_of(family)
    parts = make_renderer(family.template, family.marks, model_type=family.model_type)
    online = server(*parts, choice)
    theirs = [asyncio.run(online.render_chat(request(chat)))[1][0] for chat in CHATS]
    # Only now, since it changes the tokenizer.
    form = Format(*parts, choice)
    for chat, expected in zip(CHATS, theirs, strict=True):
        # Episodes send the arguments of earlier calls as objects.
        prompt = asyncio.run(form.render(to_chat(chat, reasoning="all"), TOOLS))
        assert prompt.text == expected["prompt"]
        assert list(prompt.ids) == expected["prompt_token_ids"]
    online, chat_request = server(*parts, choice), request(CHATS[0])
    prompt = asyncio.run(form.render(CHATS[0], TOOLS))
    grammar = "structured_outputs" in prompt.adjustments
    assert grammar is (family.tool == "glm45"), "GLM's parser binds decoding by a grammar"
    for answer in family.answers:
        ids = form.encode(answer.text)
        reading = form.read(prompt, answer.text, ids)
        assert reading.tools is not None
        read = (reading.reasoning, reading.tools.content, reading.tools.calls, reading.truncated)
        assert read == (answer.reasoning, answer.content, answer.calls, answer.truncated)
        assert not reading.tools.error
        if family.reasoning == "auto":
            assert reading.text == answer.text
        parser = online.parser(
            form.tokenizer,
            chat_request.tools,
            model_config=parts[0],
            chat_template_kwargs=online.effective_chat_template_kwargs(chat_request),
        )
        parser.set_prompt_token_ids(prompt.ids)
        reasoning, content, calls = parser.parse(
            answer.text, chat_request, enable_auto_tools=True, model_output_token_ids=ids
        )
        assert (reasoning or "", content or "") == (answer.reasoning, answer.content)
        pairs = [(call.name, call.arguments) for call in calls or ()]
        assert pairs == [(call.name, call.arguments) for call in answer.calls]


def test_the_family_of_a_template_is_found() -> None:
    for name, family in FAMILIES.items():
        facts = FamilyFacts((family.template,), (), family.model_type)
        assert families.tool_parsers(facts) == [family.tool], name
        assert families.reasoning_parser(facts) == family.reasoning, name


@pytest.mark.nightly
def test_gpt_oss_with_its_own_vocabulary(make_renderer: Make, monkeypatch) -> None:
    monkeypatch.delenv("VLLM_SYSTEM_START_DATE", raising=False)
    from vllm.entrypoints.openai.parser.harmony_utils import get_encoding

    parts = make_renderer("{{ raise_exception('not read') }}", model_type="gpt_oss")
    choice = FormatChoice(
        "openai_gptoss",
        "openai",
        template_kwargs={"reasoning_effort": "low"},
        start_date="2025-08-05",
    )
    monkeypatch.setenv("VLLM_SYSTEM_START_DATE", "")
    form = Format(*parts, choice)
    online = server(*parts, choice)
    for chat in CHATS:
        _, (theirs,) = asyncio.run(online.render_chat(request(chat, reasoning_effort="low")))
        sent = to_chat(chat, reasoning="all")
        assert asyncio.run(form.render(sent, TOOLS)).ids == theirs["prompt_token_ids"]
    harmony = get_encoding()
    prompt = asyncio.run(form.render(CHATS[0], TOOLS))
    system = harmony.decode(list(prompt.ids))
    assert "Current date: 2025-08-05" in system
    assert "Reasoning: low" in system
    call = (
        "<|channel|>analysis<|message|>y<|end|><|start|>assistant to=functions.find"
        '<|channel|>commentary <|constrain|>json<|message|>{"key": "x"}<|call|>'
    )
    reading = form.read(prompt, call, harmony.encode(call, allowed_special="all"))
    assert (reading.reasoning, reading.tools and reading.tools.calls) == ("y", FIND)
    final = "<|channel|>analysis<|message|>y<|end|><|start|>assistant<|channel|>final<|message|>ok"
    reading = form.read(prompt, final, harmony.encode(final, allowed_special="all"))
    assert (reading.reasoning, reading.text) == ("y", "ok")
