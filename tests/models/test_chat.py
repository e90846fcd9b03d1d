from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from ace_ray.errors import PromptRefused, UserError
from ace_ray.models import renderer
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


HOSTILE = {
    "loops": "{% for i in range(99999) %}{% for j in range(99999) %}{% for k in range(99999) %}"
    "{% endfor %}{% endfor %}{% endfor %}",
    "a long text": "{{ 'x' * 3000000000 }}",
    "a wide text": "{{ 'x'.center(2000000000) }}",
    "a format": "{{ '%2000000000d' % 1 }}",
    "a list": "{{ ('x' * 100000000) | list | length }}",
    "replacing": "{{ 'a' | replace('', 'b' * 100000) | replace('', 'b' * 100000) }}",
    "recursion": "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
    "much output": "{% for i in range(99999) %}{{ 'x' * 1000 }}{% endfor %}",
    "brackets": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "a way out": "{{ ''.__class__.__mro__ }}",
}


@pytest.mark.nightly
@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_template_is_refused_within_bounds(
    model_folder: Make, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(renderer, "CPU_S", 2.0)
    chat = Chat.load(model_folder(template=HOSTILE[kind]), {})
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(PromptRefused) as caught:
        chat.render(MESSAGES)
    assert len(str(caught.value)) < 3000
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 400 << 10, f"{grown >> 10} MiB in this process"
    # The next text is rendered by the same chat, or refused in the same words.
    with pytest.raises(PromptRefused):
        chat.render(MESSAGES)


@pytest.mark.nightly
def test_a_template_that_waits_for_its_moment_is_bounded_too(model_folder: Make) -> None:
    """One that behaves when it is tried."""
    template = "{% if messages | length > 2 %}{{ 'x' * 3000000000 }}{% else %}fine{% endif %}"
    chat = Chat.load(model_folder(template=template), {})
    assert chat.render(MESSAGES) == "fine"
    with pytest.raises(PromptRefused, match="memory"):
        chat.render(MESSAGES * 2)
    assert chat.render(MESSAGES) == "fine"


@pytest.mark.nightly
def test_a_renderer_that_is_ended_from_outside_is_started_again(model_folder: Make) -> None:
    chat = Chat.load(model_folder(), {})
    text = chat.render(MESSAGES)
    child = chat._renderer._child
    assert child is not None
    child.kill()
    child.wait()
    assert chat.render(MESSAGES) == text


def test_a_template_that_broke_its_limits_often_is_not_tried_again(
    model_folder: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(renderer, "STRIKES", 0)
    with pytest.raises(PromptRefused, match="broke its limits"):
        Chat.load(model_folder(), {}).render(MESSAGES)


@pytest.mark.nightly
def test_a_template_is_given_no_keys(model_folder: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "AWS_SESSION_TOKEN", "HF_TOKEN", "DB_PASSWORD"):
        monkeypatch.setenv(name, "s3cr3t-of-the-driver")
    chat = Chat.load(model_folder(), {})
    chat.render(MESSAGES)
    child = chat._renderer._child
    assert child is not None
    assert b"s3cr3t" not in Path(f"/proc/{child.pid}/environ").read_bytes()


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


@pytest.mark.nightly
def test_tokens_of_a_gguf_file_that_are_no_texts_are_none() -> None:
    header = {
        "tokenizer.chat_template": "{{ bos_token }}{{ messages[0].content }}",
        "tokenizer.ggml.tokens": [7, 8],
        "tokenizer.ggml.bos_token_id": 0,
    }
    chat = Chat.of_gguf(header, {}, where="x.gguf")
    assert chat.render([{"role": "user", "content": "hi"}]).endswith("hi")
