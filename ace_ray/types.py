"""What flows through a run: Entry -> Episode -> Verdict (see docs/architecture.md)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

Status = Literal["scored", "infra_error", "quarantined", "skipped"]
STATUSES: tuple[Status, ...] = ("scored", "infra_error", "quarantined", "skipped")
RULE_SETS = ("official", "strict")
Messages = Sequence[Mapping[str, Any]]
"""A chat, in OpenAI's form."""
Tools = Messages | None
"""Tools that are offered, in OpenAI's form; None: none can be."""
RAW_CHARS = 262_144
"""Most characters of an answer as the model wrote it that are stored beside what it was read as."""
SCORE = "score"
"""The metric that is a verdict's share."""


def canonical_json(value: Any) -> str:
    """JSON text that is equal for equal values: sorted keys, no spaces, ASCII only.

    ASCII escapes also make lone surrogates, which models do produce, safe to hash and store.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def digest(*values: Any) -> str:
    """SHA-256 (hex) over the canonical JSON of ``values``."""
    return hashlib.sha256(canonical_json(values).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Entry:
    """One benchmark item, immutable.

    ``data`` is what a model may be shown (the published question row), ``gold`` the answer, which
    never reaches a model. ``group`` ties entries that are judged together (turns of one dialogue)
    and equals ``id`` for all others. ``prompt`` is what the model is asked, a text or messages,
    where the benchmark makes it of nothing else. A benchmark may leave out its own name, the
    category (its name, then), the language and the group (`Benchmark.dataset` completes them).
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
        """(language, category, id): unique within a benchmark."""
        return (self.language, self.category, self.id)

    @property
    def path(self) -> tuple[str, str, str, str]:
        """(benchmark, language, category, id): unique within a run."""
        return (self.benchmark, *self.key)

    def content_hash(self) -> str:
        parts = [self.benchmark, self.category, self.language, self.id, self.data, self.gold]
        return digest(*parts, *([] if self.prompt is None else [self.prompt]))


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are drawn; greedy unless asked otherwise. The seeds of rows come from ``seed``.

    ``schema`` is the JSON text of a JSON schema that the answer has to follow (`following`); "":
    the answer is free.
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
        """The sampling of the ``sample``-th repetition: the same, with a seed of its own."""
        return replace(self, seed=self.seed + sample)

    def for_row(self, sample: int, *key: str) -> Sampling:
        """`for_sample` of what ``key`` names among all that is asked.

        An engine draws the same noise for the same seed: with one seed for all rows, what one
        answer begins with many would, and rows were no independent evidence. Greedy sampling draws
        nothing."""
        drawn = self.for_sample(sample)
        if not self.temperature:
            return drawn
        return replace(drawn, seed=int(digest(drawn.seed, *key)[:8], 16) >> 1)

    def identity(self) -> dict[str, Any]:
        """`as_json` of what rows draw with `for_row`."""
        return {**self.as_json(), **({"seeds": "by row"} if self.temperature else {})}

    def following(self, schema: Mapping[str, Any] | None) -> Sampling:
        """The same, for an answer in JSON that follows ``schema``; None: a free one."""
        # In the order given: that is the order in which a model writes the keys.
        return replace(self, schema="" if schema is None else json.dumps(schema))

    def as_json(self) -> dict[str, Any]:
        """JSON values for identities. Later keys are left out at their defaults, so that they
        change no id of runs that do not use them."""
        changed = {
            field.name: value
            for field in fields(self)
            if (value := getattr(self, field.name)) != field.default or field.name in _ALWAYS
        }
        return {key: list(v) if isinstance(v, tuple) else v for key, v in changed.items()}


_ALWAYS = frozenset({"temperature", "top_p", "top_k", "max_tokens", "seed", "stop"})


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call as a tool parser read it; ``arguments`` is JSON text, as unchecked as the model's.

    ``id`` is the one that an endpoint gave it, or that the model wrote itself, which few do."""

    name: str
    arguments: str
    id: str = ""


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """An answer to messages with tools, taken apart by a tool parser.

    ``content`` is the text beside the calls, all of it when there are none. ``error`` is the class
    of the exception on which the parser gave up, so that the answer counts as one without calls.
    """

    content: str
    calls: tuple[ToolCall, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class EndpointFacts:
    """What is known of an endpoint's answer besides the answer.

    ``has_usage``: whether it said how many tokens it took; ``attempts`` counts the requests that
    were made for it, ``waited_s`` is what the rate limit and pauses between attempts took.
    """

    model: str = ""
    fingerprint: str = ""
    has_usage: bool = True
    reasoning_tokens: int | None = None
    cached_tokens: int | None = None
    attempts: int = 1
    waited_s: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """As `Episode.endpoint`, of one call."""
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
    """One answer of a model. ``text`` is the answer without its reasoning, tool calls included as
    the model wrote them; ``tools`` the same taken apart, None when no tools were offered; ``raw``
    all that the model wrote, where that is more than ``text`` (`bounded_raw`)."""

    text: str
    reasoning: str = ""
    reasoning_truncated: bool = False
    finish_reason: str = "stop"
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0
    model: str = ""
    """The exact version that answered, where an endpoint names it."""
    schema_refused: str = ""
    """Why the answer is a free one although a schema was asked for; "" where it is not."""
    tools: ToolAnswer | None = None
    raw: str = ""
    endpoint: EndpointFacts | None = None
    """None where an engine of the run's own answered."""


def bounded_raw(raw: str, text: str) -> str:
    """``raw`` as it is stored beside ``text``: "" where they are equal, the end of a long one."""
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
    None where the messages say it all. One that came after the first answer has ``since_answer``:
    the number of the answer that it was first offered for, from 1."""
    endpoint: dict[str, Any] | None = None
    """What is known of an endpoint's answers (`EndpointFacts.as_json`), added up: names with the
    number of their calls, and counts, None where no call said any. The token counts above are
    those of the calls with usage."""

    def record(self, completion: Completion) -> None:
        """Append a completion as the assistant's message and `count` it.

        An answer to tools is stored in OpenAI's form, with the model's own ``text`` beside it; its
        ``reasoning``, and all that the model wrote as ``raw``, where there is more than the answer.
        """
        self.messages.append(_assistant(completion))
        self.output = completion.text
        self.reasoning = completion.reasoning
        self.reasoning_truncated = completion.reasoning_truncated
        self.finish_reason = completion.finish_reason
        self.count(completion)

    def offer(self, tools: Tools) -> None:
        """Note the ``tools`` that go with the next answer."""
        if tools is None:
            return
        have, answer = list(self.tools or ()), self.model_calls + 1
        known = [{k: v for k, v in tool.items() if k != "since_answer"} for tool in have]
        since = {"since_answer": answer} if answer > 1 else {}
        self.tools = [*have, *({**tool, **since} for tool in tools if tool not in known)]

    def count(self, completion: Completion) -> None:
        """Add up what a completion took."""
        self.prompt_tokens += completion.prompt_tokens
        self.completion_tokens += completion.completion_tokens
        self.model_calls += 1
        self.generation_s += completion.seconds
        if completion.endpoint is not None:
            self.endpoint = added(self.endpoint, completion.endpoint.as_json())

    def count_all(self, other: Episode) -> None:
        """Add up what another episode took."""
        self.prompt_tokens += other.prompt_tokens
        self.completion_tokens += other.completion_tokens
        self.model_calls += other.model_calls
        self.generation_s += other.generation_s
        if other.endpoint is not None:
            self.endpoint = added(self.endpoint, other.endpoint)


def added(before: dict[str, Any] | None, more: dict[str, Any]) -> dict[str, Any]:
    """The sum of what two `EndpointFacts.as_json` say."""
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


def _assistant(completion: Completion) -> dict[str, Any]:
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
    """What a checker says of an episode under one rule set.

    ``error_type`` is "" when valid; ``error`` says why in one sentence; ``metrics`` holds further
    per-row numbers (e.g. process accuracy), each in 0..1. Where an answer may be right in part,
    the metric ``score`` is its share (`graded`).
    """

    valid: bool
    error_type: str = ""
    error: str = ""
    metrics: dict[str, float] = field(default_factory=dict)

    @classmethod
    def graded(cls, score: float, error_type: str = "", error: str = "") -> Verdict:
        """A verdict that is a share in 0..1; only 1 is valid. Raises `ValueError`: no share."""
        if not 0 <= score <= 1:
            raise ValueError(f"the score {score} is not between 0 and 1")
        if score == 1:
            return cls(True)
        return cls(False, error_type or "partly_right", error, {SCORE: float(score)})

    @property
    def score(self) -> float:
        """What the answer counts in an accuracy, 0..1."""
        return self.metrics.get(SCORE, float(self.valid))
