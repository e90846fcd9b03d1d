"""Records of a run: Entry -> Episode -> Verdict (docs/architecture.md)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

Status = Literal["scored", "infra_error", "quarantined", "skipped"]
STATUSES: tuple[Status, ...] = ("scored", "infra_error", "quarantined", "skipped")
RULE_SETS = ("official", "strict")
# A chat, in OpenAI's form.
Messages = Sequence[Mapping[str, Any]]
# Tools that are offered, in OpenAI's form. None means that the request cannot offer tools.
Tools = Messages | None
# Maximum characters of a raw answer, stored beside the parsed one.
RAW_CHARS = 262_144
# The metric of a graded verdict: its share in 0..1.
SCORE = "score"


def canonical_json(value: Any) -> str:
    """Return JSON text that is equal for equal values: sorted keys, no spaces, ASCII only.

    ASCII escapes make lone surrogates, which models produce, safe to hash and store.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def digest(*values: Any) -> str:
    """Return the SHA-256 (hex) of the canonical JSON of ``values``."""
    return hashlib.sha256(canonical_json(values).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Entry:
    """One benchmark item, immutable.

    ``data`` is the published question row, which a model may see. ``gold`` is the answer, which
    never reaches a model. ``group`` ties entries that are judged together (turns of one dialogue);
    it equals ``id`` for all others. ``prompt`` is a text or messages, if the benchmark makes the
    prompt of nothing else. `Benchmark.dataset` adds a missing benchmark, category (the benchmark's
    name), language and group.
    """

    benchmark: str = ""
    category: str = ""
    language: str = ""
    id: str = ""
    data: dict[str, Any] = field(default_factory=dict)
    gold: Any = None
    group: str = ""
    prompt: Any = None

    @property
    def key(self) -> tuple[str, str, str]:
        """Return (language, category, id), which is unique within a benchmark."""
        return (self.language, self.category, self.id)

    @property
    def path(self) -> tuple[str, str, str, str]:
        """Return (benchmark, language, category, id), which is unique within a run."""
        return (self.benchmark, *self.key)

    def content_hash(self) -> str:
        parts = [self.benchmark, self.category, self.language, self.id, self.data, self.gold]
        return digest(*parts, *([] if self.prompt is None else [self.prompt]))


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling parameters, greedy by default. The seeds of rows come from ``seed``.

    ``schema`` is the text of a JSON schema for the answer (`following`), or "".
    """

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    max_tokens: int = 1200
    seed: int = 0
    stop: tuple[str, ...] = ()
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    thinking_token_budget: int | None = None
    reasoning_effort: str | None = None
    schema: str = ""

    def for_sample(self, sample: int) -> Sampling:
        """Return the sampling of the ``sample``-th repetition, with a seed of its own."""
        return replace(self, seed=self.seed + sample)

    def for_row(self, sample: int, *key: str) -> Sampling:
        """Return `for_sample` with a seed of its own for the row ``key``.

        An engine draws the same noise for the same seed. With one seed for all rows, many answers
        begin alike, and rows are not independent. Greedy sampling draws nothing."""
        drawn = self.for_sample(sample)
        if not self.temperature:
            return drawn
        return replace(drawn, seed=int(digest(drawn.seed, *key)[:8], 16) >> 1)

    def identity(self) -> dict[str, Any]:
        """Return `as_json`, marked if rows have their own seeds (`for_row`)."""
        return {**self.as_json(), **({"seeds": "by row"} if self.temperature else {})}

    def following(self, schema: Mapping[str, Any] | None) -> Sampling:
        """Return the same sampling for a JSON answer that follows ``schema``; None removes it."""
        # Keep the order of keys: the model writes them in this order.
        return replace(self, schema="" if schema is None else json.dumps(schema))

    def as_json(self) -> dict[str, Any]:
        """Return JSON values for identities. Newer keys are left out at their defaults, so that the
        ids of runs that do not use them stay the same."""
        changed = {
            field.name: value
            for field in fields(self)
            if (value := getattr(self, field.name)) != field.default or field.name in _ALWAYS
        }
        return {key: list(v) if isinstance(v, tuple) else v for key, v in changed.items()}


_ALWAYS = frozenset({"temperature", "top_p", "top_k", "max_tokens", "seed", "stop"})


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call as a tool parser read it. ``arguments`` is unchecked JSON text of the model.

    ``id`` comes from an endpoint, or from the rare model that writes ids."""

    name: str
    arguments: str
    id: str = ""


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """An answer to messages with tools, as a tool parser read it.

    ``content`` is the text beside the calls. ``error`` is the class of an exception in the parser.
    Such an answer counts as one without calls.
    """

    content: str
    calls: tuple[ToolCall, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class EndpointFacts:
    """Facts on an endpoint's answer beside its content.

    ``has_usage`` is False if the endpoint reported no tokens. ``attempts`` counts the requests for
    the answer. ``waited_s`` is the time for the rate limit and for pauses between attempts.
    """

    model: str = ""
    fingerprint: str = ""
    has_usage: bool = True
    reasoning_tokens: int | None = None
    cached_tokens: int | None = None
    attempts: int = 1
    waited_s: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """Return the facts of this one answer. `Episode.endpoint` is the sum of such values."""
        return {
            "models": {self.model: 1} if self.model else {},
            "fingerprints": {self.fingerprint: 1} if self.fingerprint else {},
            "calls_without_usage": int(not self.has_usage),
            "reasoning_tokens": self.reasoning_tokens,
            "cached_tokens": self.cached_tokens,
            "attempts": self.attempts,
            "waited_s": round(self.waited_s, 3),
        }


@dataclass(slots=True)
class Completion:
    """One answer of a model. ``text`` is the answer without its reasoning, with the text of tool
    calls. ``tools`` is the parsed answer, or None if no tools were offered. ``raw`` is the whole
    output if it differs from ``text`` (`bounded_raw`)."""

    text: str
    reasoning: str = ""
    reasoning_truncated: bool = False
    finish_reason: str = "stop"
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0
    model: str = ""
    """The exact version of the model, if an endpoint names it."""
    schema_refused: str = ""
    """The reason why the answer ignores the requested schema, or ""."""
    tools: ToolAnswer | None = None
    raw: str = ""
    endpoint: EndpointFacts | None = None
    """None if an engine of the run answered."""
    token_ids: Sequence[int] | None = None
    """Tokens of the whole output as the engine drew them; None if they are unknown."""


def bounded_raw(raw: str, text: str) -> str:
    """Return the part of ``raw`` that is stored: "" if it equals ``text``, else at most its end."""
    return "" if raw == text else raw[-RAW_CHARS:]


@dataclass(slots=True)
class Episode:
    """Everything that happened on one entry for one sample."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    output: str = ""
    reasoning: str = ""
    reasoning_truncated: bool = False
    finish_reason: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    model_calls: int = 0
    generation_s: float = 0.0
    state: Any = None
    """Benchmark-specific end state of an interactive episode (JSON values), else None."""
    tools: list[dict[str, Any]] | None = None
    """All tools that were offered through the model's own template, each once, in OpenAI's form;
    None if the prompt holds them. A tool that came after the first answer has ``since_answer``: the
    number of the answer that it was first offered for, from 1."""
    endpoint: dict[str, Any] | None = None
    """Sum of the facts on an endpoint's answers (`EndpointFacts.as_json`): names with their numbers
    of calls, and counts, or None if no call reported one. The token counts above cover the calls
    with usage."""
    output_token_ids: list[Sequence[int] | None] = field(default_factory=list)
    """Token ids of each answer of the candidate, without the calls of a shared preparation."""

    def record(self, completion: Completion) -> None:
        """Append a completion as the assistant's message and `count` it.

        An answer to tools is stored in OpenAI's form, with the model's own ``text`` beside it.
        ``reasoning`` and ``raw`` are stored if they hold more than the answer.
        """
        self.messages.append(assistant_message(completion))
        self.output = completion.text
        self.reasoning = completion.reasoning
        self.reasoning_truncated = completion.reasoning_truncated
        self.finish_reason = completion.finish_reason
        self.count(completion)

    def offer(self, tools: Tools) -> None:
        """Record the ``tools`` that are offered for the next answer."""
        if tools is None:
            return
        have, answer = list(self.tools or ()), self.model_calls + 1
        known = [{k: v for k, v in tool.items() if k != "since_answer"} for tool in have]
        since = {"since_answer": answer} if answer > 1 else {}
        self.tools = [*have, *({**tool, **since} for tool in tools if tool not in known)]

    def count(self, completion: Completion) -> None:
        """Add the tokens, time and facts of a completion."""
        self.prompt_tokens += completion.prompt_tokens
        self.completion_tokens += completion.completion_tokens
        self.model_calls += 1
        self.generation_s += completion.seconds
        self.output_token_ids.append(completion.token_ids)
        if completion.endpoint is not None:
            self.endpoint = added(self.endpoint, completion.endpoint.as_json())

    def count_all(self, other: Episode) -> None:
        """Add the tokens, time and facts of another episode."""
        self.prompt_tokens += other.prompt_tokens
        self.completion_tokens += other.completion_tokens
        self.model_calls += other.model_calls
        self.generation_s += other.generation_s
        if other.endpoint is not None:
            self.endpoint = added(self.endpoint, other.endpoint)


def added(before: dict[str, Any] | None, more: dict[str, Any]) -> dict[str, Any]:
    """Return the sum of two `EndpointFacts.as_json`."""
    if before is None:
        return more
    total = dict(before)
    for key, value in more.items():
        old = total.get(key)
        if isinstance(value, dict):
            names = dict(old or {})
            for name, count in value.items():
                names[name] = names.get(name, 0) + count
            total[key] = names
        elif value is not None:
            total[key] = value + (old or 0)
    return total


def assistant_message(completion: Completion) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": completion.text}
    if tools := completion.tools:
        message |= {"content": tools.content, "text": completion.text}
        if tools.calls:
            message["tool_calls"] = [
                {
                    **({"id": call.id} if call.id else {}),
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for call in tools.calls
            ]
        if tools.error:
            message["tool_parser_error"] = tools.error
    if completion.reasoning:
        message["reasoning"] = completion.reasoning
    if completion.raw:
        message["raw"] = completion.raw
    return message


@dataclass(frozen=True, slots=True)
class Verdict:
    """A checker's judgement of an episode under one rule set.

    ``error_type`` is "" if valid. ``error`` gives the reason in one sentence. ``metrics`` holds
    further numbers of the row in 0..1, such as process accuracy. The metric ``score`` is the share
    of an answer that may be partly right (`graded`).
    """

    valid: bool
    error_type: str = ""
    error: str = ""
    metrics: dict[str, float] = field(default_factory=dict)

    @classmethod
    def graded(cls, score: float, error_type: str = "", error: str = "") -> Verdict:
        """Return a verdict with a share; only 1 is valid. Raises `ValueError`: not in 0..1."""
        if not 0 <= score <= 1:
            raise ValueError(f"the score {score} is not between 0 and 1")
        if score == 1:
            return cls(True)
        return cls(False, error_type or "partly_right", error, {SCORE: float(score)})

    @property
    def score(self) -> float:
        """Return the weight of the answer in an accuracy, 0..1."""
        return self.metrics.get(SCORE, float(self.valid))
