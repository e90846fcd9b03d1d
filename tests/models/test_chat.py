from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from ace_ray.errors import PromptRefused, UserError
from ace_ray.models.chat import Chat

pytestmark = pytest.mark.skipif(find_spec("transformers") is None, reason="no transformers here")
Make = Callable[..., Path]
MESSAGES = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "the end"}]


@pytest.mark.nightly
def test_messages_become_the_text_of_the_template(model_folder: Make) -> None:
    chat = Chat.load(model_folder(), {})
    text = chat.render(MESSAGES)
    assert text == "<|system|>be brief<|user|>the end<|assistant|>"
    assert 1 in chat.encode(text)
    assert len(chat.template_sha256) == 64


def test_template_arguments_reach_the_template(model_folder: Make) -> None:
    folder = model_folder(template="{{ 'deep' if thinking else 'quick' }}")
    assert Chat.load(folder, {"thinking": True}).render(MESSAGES) == "deep"
    assert Chat.load(folder, {}).render(MESSAGES) == "quick"


def test_text_that_is_no_utf8_can_be_encoded(model_folder: Make) -> None:
    assert Chat.load(model_folder(), {}).encode("the \ud800 the")


@pytest.mark.nightly
def test_a_template_that_refuses(model_folder: Make) -> None:
    folder = model_folder(template="{{ raise_exception('roles must alternate') }}")
    with pytest.raises(PromptRefused, match="roles must alternate"):
        Chat.load(folder, {}).render(MESSAGES)


def test_a_folder_without_template_or_tokenizer(model_folder: Make) -> None:
    folder = model_folder(template=None)
    with pytest.raises(UserError, match="no chat template"):
        Chat.load(folder, {})
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    assert Chat.load(folder, {}).template == "{{ messages }}"
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(UserError, match="the tokenizer cannot be loaded"):
        Chat.load(folder, {})


@pytest.mark.nightly
def test_a_plain_tokenizer_loads_without_torch(model_folder: Make) -> None:
    script = (
        "import sys; from pathlib import Path; from ace_ray.models.chat import Chat; "
        "Chat.load(Path(sys.argv[1]), {}).render([{'role': 'user', 'content': 'x'}]); "
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script, str(model_folder())], check=True)


def test_a_template_cannot_leave_the_sandbox(model_folder: Make) -> None:
    templates = (
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.append(1) }}",
        "{% for i in range(999999) %}{% endfor %}",
        "{% for m in messages %}",
    )
    for number, template in enumerate(templates):
        with pytest.raises(PromptRefused):
            Chat.load(model_folder(template=template, name=f"m{number}"), {}).render(MESSAGES)


def test_a_template_is_told_the_day_that_was_chosen(model_folder: Make) -> None:
    folder = model_folder(template="{{ strftime_now('%d %b %Y') }}")
    assert Chat.load(folder, {}, date="2025-08-05").render(MESSAGES) == "05 Aug 2025"


@pytest.mark.nightly
def test_what_is_rendered_is_what_transformers_renders(model_folder: Make) -> None:
    template = (
        "{{ unk_token }}{% for m in messages %}{{ m.role }}:{{ m.content }}\n{% endfor %}"
        "{% if tools %}{{ tools | tojson }}{% endif %}{{ deep is defined }}{{ documents }}"
    )
    chat = Chat.load(model_folder(template=template), {"deep": True})
    tools = [
        {
            "type": "function",
            "function": {"name": "f", "description": "\u00e9 <b>", "parameters": {}},
        }
    ]
    for offered in (None, tools):
        theirs = chat.tokenizer.apply_chat_template(
            MESSAGES, tools=offered, tokenize=False, add_generation_prompt=True, deep=True
        )
        assert chat.render(MESSAGES, offered) == theirs
    half = [{"role": "user", "content": "\ud800"}]
    assert "\ud800" in chat.render(half)
