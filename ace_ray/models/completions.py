"""Build requests and parse answers of OpenAI's chat completions API.

Answers are untrusted: anything but a chat completion raises an error; stored values are bounded."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ace_ray.config.schema import CandidateEndpoint, EndpointConfig
from ace_ray.models.reasoning import split_think
from ace_ray.models.sampling import request_fields
from ace_ray.types import (
    Completion,
    EndpointFacts,
    Messages,
    Sampling,
    ToolAnswer,
    ToolCall,
    Tools,
    assistant_message,
    digest,
)

MAX_NAME_CHARS = 300
# Maximum calls in one answer.
MAX_CALLS = 1024
# Maximum answers whose server-specific reasoning a client remembers.
MAX_REPLAYED = 1024
MAX_TOKENS_COUNTED = 1 << 31
# Keys of a request that limit the tokens of an answer. A server may accept only one of them.
LIMITS = ("max_tokens", "max_completion_tokens")
CALLED = ("tool_calls", "function_call")
# Finish reasons for an answer that reached its token limit.
_CUT = re.compile(r"(max_|model_)?length|max_(output_)?tokens|model_context_window_exceeded")
# Finish reasons for an answer that a filter withheld.
_FILTERED = re.compile(
    r"blocklist|content_filter|error_toxic|prohibited_content|recitation|safety|spii"
)
# Keys that servers reject in a request without tools.
_WITH_TOOLS = ("tool_choice", "parallel_tool_calls")
# Finish reasons for an answer that neither the model nor a limit ended.
_INTERRUPTED = re.compile(r"abort|error|cancel|time_?out|fail|insufficient|interrupt|overload")
# Keys of a message that every server accepts. Recorded messages also have keys of ace_ray.
_SENT = ("role", "content", "name", "tool_call_id")
_DETAILS = "reasoning_details"
# Keys under which servers return reasoning apart from the content.
_NAMES = ("reasoning_content", "reasoning", _DETAILS)


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Reasoning that a server returned. ``name`` and ``value``: key and value to send back."""

    text: str
    name: str
    value: Any


class Interruption(ValueError):
    """An abort, a filter or an error ended the answer, so it is not the model's own answer."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the answer was interrupted, its finish_reason is {reason!r:.40}")
        self.filtered = _FILTERED.fullmatch(reason.lower()) is not None


class Replay:
    """Remembers how to send the reasoning of earlier answers back to the server.

    Episodes store reasoning as text. Most servers accept this text under the key that their answers
    use. Structured reasoning is kept for the last `MAX_REPLAYED` answers."""

    def __init__(self) -> None:
        self._name = _NAMES[0]
        self._forms: dict[str, tuple[str, Any]] = {}

    def remember(self, reasoning: Reasoning, completion: Completion) -> None:
        """Store the form of the ``reasoning`` in ``completion``. Later requests use it."""
        if isinstance(reasoning.value, str):
            self._name = reasoning.name
            return
        key = _answer_key(reasoning.text, assistant_message(completion))
        self._forms[key] = (reasoning.name, reasoning.value)
        if len(self._forms) > MAX_REPLAYED:
            del self._forms[next(iter(self._forms))]

    def to_field(self, text: str, message: Mapping[str, Any]) -> tuple[str, Any]:
        """Return the key and value for sending back the reasoning ``text`` of ``message``."""
        return self._forms.get(_answer_key(text, message), (self._name, text))


def _answer_key(reasoning: str, message: Mapping[str, Any]) -> str:
    """Return a hash of the whole answer: the reasoning alone does not identify an answer."""
    functions = [call["function"] for call in message.get("tool_calls") or ()]
    calls = [(function["name"], arguments_of(function["arguments"])) for function in functions]
    return digest(reasoning, message.get("content") or "", calls)


def arguments_of(value: Any) -> dict[str, Any]:
    """Return the arguments of a call, given as an object or as JSON text. Other values give {}."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, dict) else {}


def request_body(
    config: EndpointConfig,
    messages: Messages,
    sampling: Sampling,
    tools: Tools = None,
    *,
    template_kwargs: Mapping[str, Any] | None = None,
    replay: Replay | None = None,
    max_tokens: int | None = None,
) -> bytes:
    """Return the body of a request, in UTF-8.

    ``template_kwargs`` are template variables, for vLLM and SGLang. ``replay`` converts earlier
    reasoning; None: reasoning is not sent. ``max_tokens`` lowers the limit of the answer."""
    tree: dict[str, Any] = {
        "model": config.model,
        "messages": [_to_request(message, replay) for message in messages],
        **request_fields(sampling),
    }
    if tools:
        tree["tools"] = [dict(tool) for tool in tools]
    if template_kwargs:
        tree["chat_template_kwargs"] = dict(template_kwargs)
    if isinstance(config, CandidateEndpoint):
        if tools:
            tree["tool_choice"] = "auto"
        extra_fields = config.extra_body.items()
        tree |= {key: value for key, value in extra_fields if tools or key not in _WITH_TOOLS}
        tree = {key: value for key, value in tree.items() if value is not None}
    if max_tokens is not None:
        # The config may have set either key in `LIMITS`.
        limits = {key: tree[key] for key in LIMITS if isinstance(tree.get(key), int)}
        tree |= {key: min(value, max_tokens) for key, value in limits.items()}
    # Models produce lone surrogates, which are invalid UTF-8. Servers reject even their escapes.
    return json.dumps(tree, ensure_ascii=False).encode("utf-8", "replace")


def _to_request(message: Mapping[str, Any], replay: Replay | None) -> dict[str, Any]:
    sent = {key: message[key] for key in _SENT if key in message}
    if message.get("tool_calls"):
        sent["tool_calls"] = arguments_to_text(message)["tool_calls"]
    reasoning = next((message[name] for name in _NAMES if message.get(name)), None)
    if replay is not None and isinstance(reasoning, str):
        name, value = replay.to_field(reasoning, message)
        sent[name] = value
    return sent


def arguments_to_text(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a message whose calls have their arguments as JSON text, as the protocol requires."""
    if not message.get("tool_calls"):
        return message
    calls = []
    for call in message["tool_calls"]:
        function = dict(call["function"])
        if not isinstance(function["arguments"], str):
            function["arguments"] = json.dumps(function["arguments"], ensure_ascii=False)
        calls.append({**call, "function": function})
    return {**message, "tool_calls": calls}


def completion_of(
    tree: Any, tools: Tools = None, *, split_reasoning: bool = True
) -> tuple[Completion, Reasoning | None]:
    """Parse the first choice of a chat completion. Return the completion, without duration and
    number of attempts, and the reasoning in the form to send back, or None. Raises `ValueError`,
    `LookupError`, `TypeError` or `RecursionError` if ``tree`` is not a chat completion."""
    choice = tree["choices"][0]
    message = choice["message"]
    if not isinstance(message, dict):
        raise ValueError("message is not an object")
    text, thought = _content(message.get("content"))
    if not text and isinstance(message.get("refusal"), str):
        text = message["refusal"] or text  # a refusal counts as the model's answer
    reasoning = thought or _reasoning_of(message)
    finish = _ending(choice.get("finish_reason"))
    usage = tree.get("usage") if isinstance(tree.get("usage"), dict) else {}
    prompt, answer = _count(usage, "prompt_tokens"), _count(usage, "completion_tokens")
    completion = Completion(
        text=text or "",
        reasoning=reasoning.text if reasoning else "",
        finish_reason=finish,
        prompt_tokens=prompt or 0,
        completion_tokens=answer or 0,
        model=_name(tree.get("model")),
        endpoint=EndpointFacts(
            model=_name(tree.get("model")),
            fingerprint=_name(tree.get("system_fingerprint")),
            has_usage=prompt is not None and answer is not None,
            reasoning_tokens=_count(usage.get("completion_tokens_details"), "reasoning_tokens"),
            cached_tokens=_count(usage.get("prompt_tokens_details"), "cached_tokens"),
        ),
    )
    calls = _calls(message) if tools is not None else ()
    if reasoning:
        # A server that separates reasoning sends null, not "", if the answer did not begin.
        began = text is not None or bool(calls)
        completion.reasoning_truncated = not began and completion.finish_reason == "length"
    elif split_reasoning:
        split = split_think(completion.text)
        completion.text, completion.reasoning = split.answer, split.reasoning
        completion.reasoning_truncated = split.truncated
    if tools is not None:
        completion.tools = ToolAnswer(completion.text, calls)
    return completion, reasoning


def _ending(reason: Any) -> str:
    """Convert a server's finish reason to OpenAI's. An unknown reason becomes ``stop``.
    Raises `Interruption` if neither the model nor a token limit ended the answer."""
    if reason is None:
        return "stop"
    if not isinstance(reason, str):
        raise Interruption("")
    word = reason.lower()
    if _FILTERED.fullmatch(word) or _INTERRUPTED.search(word):
        raise Interruption(reason)
    return "length" if _CUT.fullmatch(word) else word if word in CALLED else "stop"


def _content(content: Any) -> tuple[str | None, Reasoning | None]:
    """Return the text and the reasoning in a message's content. Each may be None."""
    if content is None or isinstance(content, str):
        return content, None
    if not isinstance(content, list) or not all(isinstance(part, dict) for part in content):
        raise ValueError("content is not a string")
    texts, thoughts = [], []
    for part in content:
        kind = part.get("type")
        if kind in ("text", "output_text"):
            texts.append(_text(part["text"]))
        elif kind == "refusal":
            texts.append(_text(part["refusal"]))
        elif kind in ("thinking", "reasoning"):
            thinking = part.get(kind, part.get("text", ""))
            parts = thinking if isinstance(thinking, list) else [{"text": thinking}]
            thoughts += [_text(block.get("text", "")) for block in parts]
        else:
            raise ValueError(f"content has a part of the unknown type {kind!r:.40}")
    thought = "".join(thoughts)
    reasoning = Reasoning(thought, "content", content) if thought else None
    return "".join(texts) if texts else None, reasoning


def _reasoning_of(message: Mapping[str, Any]) -> Reasoning | None:
    """Return the reasoning that a message has apart from its content, or None.

    Structured details take precedence over text: the server needs their signatures back."""
    fields = [(name, message.get(name)) for name in ("reasoning_content", "reasoning")]
    name, plain = next(((n, t) for n, t in fields if isinstance(t, str) and t), ("", ""))
    details = message.get(_DETAILS)
    if isinstance(details, list) and details:
        parts = [part for part in details if isinstance(part, dict)]
        texts = [part.get("text") or part.get("summary") for part in parts]
        text = plain or "".join(text for text in texts if isinstance(text, str))
        if text:
            return Reasoning(text, _DETAILS, details)
    return Reasoning(plain, name, plain) if plain else None


def _calls(message: Mapping[str, Any]) -> tuple[ToolCall, ...]:
    calls = message.get("tool_calls")
    if calls is None:
        return ()
    if not isinstance(calls, list) or len(calls) > MAX_CALLS:
        raise ValueError("tool_calls is not a list of calls")
    return tuple(_tool_call(call) for call in calls)


def _tool_call(call: Any) -> ToolCall:
    function = call["function"]
    name, arguments = _text(function["name"]), function.get("arguments")
    if isinstance(arguments, dict):  # some servers do not send JSON text
        arguments = json.dumps(arguments, ensure_ascii=False)
    return ToolCall(name, _text(arguments or ""), _name(call.get("id")))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("a value is not a string")
    return value


def _name(value: Any) -> str:
    return value[:MAX_NAME_CHARS] if isinstance(value, str) else ""


def _count(counts: Any, name: str) -> int | None:
    value = counts.get(name) if isinstance(counts, dict) else None
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value < MAX_TOKENS_COUNTED else None
