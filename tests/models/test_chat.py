"""Prompts by a model's chat template, and reasoning in `<think>` blocks of answers."""

import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from ace_ray.errors import PromptRefused, UserError
from ace_ray.models.chat import Chat
from ace_ray.models.reasoning import Split, may_think, split_think

needs_transformers = pytest.mark.skipif(find_spec("transformers") is None, reason="not installed")
Make = Callable[..., Path]
MESSAGES = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "the end"}]
TOOL: dict[str, Any] = {"name": "f", "description": "\u00e9 <b>", "parameters": {}}
TOOLS = [{"type": "function", "function": TOOL}]
BLIND = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}"
WITH_TOOLS = "{% if tools %}{{ tools | tojson }}{% endif %}" + BLIND


@needs_transformers
def test_prompts_are_those_of_transformers(model_folder: Make) -> None:
    template = (
        "{{ unk_token }}{% for m in messages %}{{ m.role }}:{{ m.content }}\n{% endfor %}"
        "{% if tools %}{{ tools | tojson }}{% endif %}{{ deep is defined }}{{ documents }}"
        "{% if add_generation_prompt %}<|assistant|>{% endif %}"
    )
    chat = Chat.load(model_folder(template=template), {"deep": True})
    for offered in (None, [], TOOLS):
        theirs = chat.tokenizer.apply_chat_template(
            MESSAGES, tools=offered or None, tokenize=False, add_generation_prompt=True, deep=True
        )
        assert chat.render(MESSAGES, offered) == theirs
    assert "\ud800" in chat.render([{"role": "user", "content": "\ud800"}])
    assert chat.encode("the \ud800 the").count(1) == 2
    assert len(chat.template_sha256) == 64
    dated = model_folder(template="{{ strftime_now('%d %b %Y') }}", name="dated")
    assert Chat.load(dated, {}, date="2025-08-05").render(MESSAGES) == "05 Aug 2025"


@needs_transformers
def test_a_model_without_template_or_tokenizer_is_refused(model_folder: Make) -> None:
    folder = model_folder(template=None)
    with pytest.raises(UserError, match="no chat template"):
        Chat.load(folder, {})
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    assert Chat.load(folder, {}).template == "{{ messages }}"
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(UserError, match="the tokenizer cannot be loaded"):
        Chat.load(folder, {})


@needs_transformers
def test_a_template_cannot_leave_the_sandbox(model_folder: Make) -> None:
    for number, template in enumerate(
        (
            "{{ ''.__class__.__mro__ }}",
            "{{ messages.append(1) }}",
            "{% for i in range(999999) %}{% endfor %}",
            "{% for m in messages %}",
            "{{ raise_exception('roles must alternate') }}",
        )
    ):
        chat = Chat.load(model_folder(template=template, name=f"m{number}"), {})
        with pytest.raises(PromptRefused, match=r"rejects these messages: ."):
            chat.render(MESSAGES)
    # A stored run may have such a variable.
    chat = Chat.load(model_folder(name="own"), {"chat_template": "{{ 1 }}"})
    with pytest.raises(PromptRefused):
        chat.render(MESSAGES)


@needs_transformers
def test_a_template_that_ignores_tools_is_refused(model_folder: Make) -> None:
    # The second says that there are tools, but not which.
    for number, begin in enumerate(("", "{{ tools | length }}", "{{ raise_exception('no') }}")):
        template = "{% if tools %}" + begin + "{% endif %}" + BLIND
        chat = Chat.load(model_folder(template=template, name=f"m{number}"), {})
        assert not chat.supports_tools
        with pytest.raises(UserError, match=r"^some/model: .* ignores tools; .*mode: prompt"):
            chat.require_tools("some/model")


@needs_transformers
def test_tools_are_shown_by_the_template_for_them(model_folder: Make) -> None:
    chat = Chat.load(model_folder(template=WITH_TOOLS), {})
    assert chat.supports_tools
    chat.require_tools("m")
    described = [{"type": "function", "function": {**TOOL, "response": {"type": "object"}}}]
    text, _, tail = chat.render(MESSAGES, described).partition("<|system|>")
    assert json.loads(text) == TOOLS, "without keys that OpenAI does not know"
    assert tail == "be brief<|user|>the end"
    chat = Chat.load(model_folder(template=BLIND, name="two"), {})
    assert chat.tools_template_sha256 == chat.template_sha256
    chat.tokenizer.chat_template = {"default": BLIND, "tool_use": WITH_TOOLS}
    assert chat.supports_tools
    assert chat.tools_template_sha256 != chat.template_sha256


CALLS = "{% for c in m.tool_calls or [] %}<call>{{ c.function | tojson }}{% endfor %}"
HISTORY = "{{ tools | tojson }}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}"
END = "{% endfor %}"
ONE_CALL = "{% if m.tool_calls | length > 1 %}{{ raise_exception('one at once') }}{% endif %}"


@needs_transformers
@pytest.mark.parametrize(
    ("template", "problem"),
    [
        pytest.param(HISTORY + CALLS + END, "", id="shows all"),
        pytest.param(HISTORY + END, "not include the model's earlier tool calls", id="drops calls"),
        pytest.param(
            HISTORY.replace(
                "{{ m.content }}", "{% if m.role != 'tool' %}{{ m.content }}{% endif %}"
            )
            + CALLS
            + END,
            "not include tool results",
            id="drops results",
        ),
        pytest.param(
            HISTORY + "{{ m.tool_calls and '' + m.tool_calls[0].function.arguments }}" + END,
            'can only concatenate str (not "dict") to str',
            id="joins arguments as text",
        ),
        pytest.param(
            HISTORY + "{{ m.role == 'assistant' and '' + m.reasoning_content }}" + END,
            "no attribute 'reasoning_content'",
            id="needs reasoning",
        ),
    ],
)
def test_a_template_for_episodes_shows_calls_and_results(model_folder, template, problem) -> None:
    chat = Chat.load(model_folder(template=template), {})
    assert not chat.is_single_call or problem
    if not problem:
        chat.require_tools("some/model", episodes=True)
        return
    with pytest.raises(UserError) as refused:
        chat.require_tools("some/model", episodes=True)
    assert problem in str(refused.value)
    assert "set model.chat_template" in str(refused.value)


@needs_transformers
def test_an_answer_with_two_calls_is_divided_for_templates_of_single_calls(model_folder) -> None:
    chat = Chat.load(model_folder(template=HISTORY + ONE_CALL + CALLS + END), {})
    chat.require_tools("m", episodes=True)
    assert chat.is_single_call
    calls: list[dict[str, Any]] = [
        {"id": name, "type": "function", "function": {"name": name, "arguments": {}}}
        for name in ("f", "g")
    ]
    results = [{"role": "tool", "tool_call_id": key, "content": f"result of {key}"} for key in "fg"]
    answer = {"role": "assistant", "content": "both", "tool_calls": calls}
    _, _, text = chat.render([answer, *results], TOOLS).partition("<|assistant|>")
    first, second = (f'<call>{{"name": "{name}", "arguments": {{}}}}' for name in "fg")
    assert text == f"both{first}<|tool|>result of f<|assistant|>{second}<|tool|>result of g"
    more = {"role": "tool", "tool_call_id": "f", "content": "more of f"}
    assert "<|tool|>result of f<|tool|>more of f<|assistant|>" in chat.render(
        [answer, *results, more], TOOLS
    )
    plain = Chat.load(model_folder(template=HISTORY + CALLS + END, name="plain"), {})
    assert f"both{first}{second}<|tool|>result of f<|tool|>" in plain.render(
        [answer, *results], TOOLS
    )


SPLITS = [
    ("  spaced ", Split("", "  spaced ", False)),
    ("\n <think>\nwhy\n</think>\n\n[f()]\n", Split("why", "[f()]\n", False)),
    ("<think>a</think>\n<think>b</think> [f()]", Split("a\nb", "[f()]", False)),
    ("<think>a</think><think>b", Split("a\nb", "", True)),
    ("<think>", Split("", "", True)),
    ("<think>all</think>", Split("all", "", False)),
    ("why</think>[f()]", Split("why", "[f()]", False)),
    ("is it [f()]?</think> \n\n[g()]", Split("is it [f()]?", "[g()]", False)),
]


def test_leading_blocks_are_reasoning() -> None:
    for text, expected in SPLITS:
        assert split_think(text) == expected, text
    for text in ("", '[say(text="<think>not mine</think>")]', "[f()] <think>late</think>",
                 '[say(text="<think>")]', "[F(a='x</think>y')]"):  # fmt: skip
        assert split_think(text) == Split("", text, False), "a tag inside the answer"
        assert split_think(f"<think>why</think>{text}") == Split("why", text, False)


def test_a_block_that_the_prompt_opened() -> None:
    assert split_think("why</think>[f()]", opened=True) == Split("why", "[f()]", False)
    assert split_think("[f()]?</think>x", opened=True) == Split("[f()]?", "x", False)
    assert split_think("why, cut", opened=True) == Split("why, cut", "", True)
    assert split_think("<think>why</think>x", opened=True) == Split("why", "x", False)


def test_a_model_that_may_think_is_known_by_template_and_prompt() -> None:
    thinks = "{{ '<think></think>' }}"
    assert not may_think("{{ messages }}", "<|assistant|>")
    assert may_think("{{ messages.split('</think>') }}", "<|assistant|>")
    assert may_think(thinks, "<|assistant|><think>\n")
    assert not may_think(thinks, "<|assistant|><think>\n\n</think>\n\n")
