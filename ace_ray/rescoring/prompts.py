"""Render the prompts of stored rows again, with the chat templates of models that a user names."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from typing import Any

from ace_ray.errors import PromptRefused
from ace_ray.models.chat import Chat
from ace_ray.models.reparse_child import tokenizer_of
from ace_ray.rescoring.reparse import offered_tools
from ace_ray.storage.object_store import Store, open_store
from ace_ray.storage.rows import messages_of
from ace_ray.storage.stored import Manifest
from ace_ray.types import canonical_json


class FirstPrompts:
    """Renders the prompt of a row's first answer with the chat templates of ``sources``: models, or
    folders with their files. The run's own template is not used: it may be a stranger's.

    Raises `UserError` if a source cannot be used."""

    def __init__(self, sources: Sequence[str], opens: Callable[[str], Store] = open_store) -> None:
        self._folders = [tokenizer_of(source, opens) for source in sources]
        self._chats: dict[str, Chat | None] = {}

    def tokens(self, manifest: Manifest, row: Mapping[str, Any]) -> list[int] | None:
        """Return the token ids of a row's prompt; None if the template is missing or refuses it."""
        chat = self.chat(manifest)
        if chat is None:
            return None
        first = takewhile(lambda message: message.get("role") != "assistant", messages_of(row))
        try:
            tools = json.loads(offered_tools(row, 1) or "null")
            return chat.encode(chat.render(list(first), tools))
        except PromptRefused:
            return None

    def chat(self, manifest: Manifest) -> Chat | None:
        """Return the chat template that the run used; None if no source has this template."""
        stored, sha256 = manifest.format, manifest.tree.get("chat_template_sha256")
        key = canonical_json([sha256, stored.template_kwargs, stored.start_date])
        if key not in self._chats:
            chats = (
                Chat.load(folder, stored.template_kwargs, date=stored.start_date)
                for folder in self._folders
            )
            matches = (c for c in chats if sha256 in (c.template_sha256, c.tools_template_sha256))
            self._chats[key] = next(matches, None)
        return self._chats[key]
