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


def test_a_plain_tokenizer_loads_without_torch(model_folder: Make) -> None:
    script = (
        "import sys; from pathlib import Path; from ace_ray.models.chat import Chat; "
        "Chat.load(Path(sys.argv[1]), {}).render([{'role': 'user', 'content': 'x'}]); "
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script, str(model_folder())], check=True)
