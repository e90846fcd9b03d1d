"""Records of a run: Entry -> Episode -> Verdict (docs/architecture.md)."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from ace_ray.util.sanitizing import one_line

Status = Literal["scored", "not_judged", "infra_error", "quarantined", "skipped"]
STATUSES: tuple[Status, ...] = ("scored", "not_judged", "infra_error", "quarantined", "skipped")
# Statuses of rows whose episode is complete and checked.
CHECKED: tuple[Status, ...] = ("scored", "not_judged")
RULE_SETS = ("official", "strict")
# A chat, in OpenAI's form.
Messages = Sequence[Mapping[str, Any]]
# Tools that are offered, in OpenAI's form. None means that the request cannot offer tools.
Tools = Messages | None
# Maximum characters of a raw answer that is stored with the parsed answer.
RAW_CHARS = 262_144
# Name of the metric of a graded verdict: the share that is right, in 0..1.
SCORE = "score"


def canonical_json(value: Any) -> str:
    """Return JSON text that is equal for equal values: sorted keys, no spaces, ASCII only.

    ASCII escapes make lone surrogates, which models produce, safe to hash and store.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def digest(*values: Any) -> str:
    """Return the SHA-256 (hex) of the canonical JSON of ``values``."""
    return hashlib.sha256(canonical_json(values).encode()).hexdigest()


class EntryKeys:
    """Keys that identify an entry. `Entry` and `ResultRow` share them."""

    __slots__ = ()
    benchmark: str
    category: str
    language: str
    id: str

    @property
    def category_key(self) -> tuple[str, str]:
        """Return (language, category), which is unique within a benchmark."""
        return (self.language, self.category)

    @property
    def key(self) -> tuple[str, str, str]:
        """Return (language, category, id), which is unique within a benchmark."""
        return (self.language, self.category, self.id)

    @property
    def path(self) -> tuple[str, str, str, str]:
        """Return (benchmark, language, category, id), which is unique within a run."""
        return (self.benchmark, *self.key)


@dataclass(frozen=True, slots=True)
class Entry(EntryKeys):
    """One benchmark item, immutable.

    ``data`` is the published question row, which a model may see. ``gold`` is the answer, which
    never reaches a model. Entries that are judged together (the turns of a dialogue) have the same
    ``group``; otherwise it equals ``id``. ``prompt`` is a string or a list of messages, or None if
    the benchmark overrides `Benchmark.prompt`. `Benchmark.dataset` fills in a missing benchmark,
    category (the benchmark's name) and group.
    """

    benchmark: str = ""
    category: str = ""
    language: str = ""
    id: str = ""
    data: dict[str, Any] = field(default_factory=dict)
    gold: Any = None
    group: str = ""
    prompt: Any = None

    def content_hash(self) -> str:
        parts = [self.benchmark, self.category, self.language, self.id, self.data, self.gold]
        return digest(*parts, *([] if self.prompt is None else [self.prompt]))


@dataclass(frozen=True, slots=True)
class OfferedApi:
    """A tool that an entry offers. ``function``: the tool in OpenAI's form, or only its value of
    ``function``. ``domain`` and ``subdomain`` are "" if they are unknown."""

    function: Mapping[str, Any]
    domain: str = ""
    subdomain: str = ""

    @property
    def arguments(self) -> int:
        function = self.function.get("function", self.function)
        return len((function.get("parameters") or {}).get("properties") or {})


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling parameters, greedy by default. The seeds of rows are derived from ``seed``.

    ``schema`` is a JSON schema for the answer, as a string (see `with_schema`), or "".
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

    def with_sample_seed(self, sample: int) -> Sampling:
        """Return the sampling of repetition ``sample``, which has the seed ``seed + sample``."""
        return replace(self, seed=self.seed + sample)

    def with_row_seed(self, sample: int, *key: str) -> Sampling:
        """Return the sampling of repetition ``sample`` with a separate seed for the row ``key``.

        An engine draws the same random numbers for the same seed. With one seed for all rows, many
        answers begin alike, and rows are not independent. Greedy sampling needs no seed."""
        drawn = self.with_sample_seed(sample)
        if not self.temperature:
            return drawn
        return replace(drawn, seed=int(digest(drawn.seed, *key)[:8], 16) >> 1)

    def identity(self) -> dict[str, Any]:
        """Return `as_json`. If the temperature is not 0, also return the key ``seeds``, since each
        row has a separate seed (`with_row_seed`)."""
        return {**self.as_json(), **({"seeds": "by row"} if self.temperature else {})}

    def with_schema(self, schema: Mapping[str, Any] | None) -> Sampling:
        """Return this sampling with the JSON ``schema`` for the answer; None removes the schema."""
        # Keep the order of keys: the model writes them in this order.
        return replace(self, schema="" if schema is None else json.dumps(schema))

    def as_json(self) -> dict[str, Any]:
        """Return the parameters as JSON values, for the identity of a run. Newer keys with default
        values are left out, so that they do not change the ids of runs without these keys."""
        changed = {
            field.name: value
            for field in fields(self)
            if (value := getattr(self, field.name)) != field.default or field.name in _ALWAYS
        }
        return {key: list(v) if isinstance(v, tuple) else v for key, v in changed.items()}


# Keys that `Sampling.as_json` returns even if they have default values.
_ALWAYS = frozenset({"temperature", "top_p", "top_k", "max_tokens", "seed", "stop"})


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call, as a tool parser read it. ``arguments`` is the model's JSON text, not checked.

    ``id`` is "" unless an endpoint or the model itself assigned an id, which few models do."""

    name: str
    arguments: str
    id: str = ""


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """A model's answer to a request that offers tools, as a tool parser read it.

    ``content`` is the text outside the calls. ``error`` is the class name of an exception in the
    parser. Then the answer counts as an answer without calls."""

    content: str
    calls: tuple[ToolCall, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class EndpointFacts:
    """Facts on an endpoint's answer, without its content.

    ``has_usage`` is False if the endpoint did not report token counts. ``attempts`` counts the
    requests for the answer. ``waited_s`` is the time spent on rate limits and between attempts.
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


@dataclass(frozen=True, slots=True)
class EngineFigures:
    """An engine's measurements of one request."""

    cached_tokens: int
    """Prompt tokens that the engine had computed before, for a prompt with the same prefix."""
    first_token_s: float
    """Seconds from the request to the first token; includes the time in the engine's queue."""
    decode_s: float
    """Seconds from the first to the last token."""


@dataclass(slots=True)
class Completion:
    """One answer of a model. ``text`` is the output without reasoning; it includes the text of tool
    calls. ``tools`` is the parsed answer, or None if no tools were offered. ``raw`` is the complete
    output if it differs from ``text``, shortened by `bounded_raw`."""

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
    """Facts on the endpoint's answer; None if an engine of the run answered."""
    token_ids: Sequence[int] | None = None
    """Token ids of the complete output, as sampled by the engine; None if they are unknown."""
    engine: EngineFigures | None = None
    """Figures of the run's engine; None behind an endpoint."""


def bounded_raw(raw: str, text: str) -> str:
    """Return "" if ``raw`` equals ``text``, else the last `RAW_CHARS` characters of ``raw``."""
    return "" if raw == text else raw[-RAW_CHARS:]


@dataclass(slots=True)
class Episode:
    """The record of one sample of one entry: messages, tokens, times, end state."""

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
    """Benchmark-specific end state of an interactive episode (JSON values), or None."""
    tools: list[dict[str, Any]] | None = None
    """All tools that were offered through the model's chat template, each once, in OpenAI's form;
    None if the prompt contains them. A tool that was added after the first answer has a key
    ``since_answer``: the number (from 1) of the first answer for which it was offered."""
    endpoint: dict[str, Any] | None = None
    """Sum of `EndpointFacts.as_json` over an endpoint's answers; None if there are none. A count is
    None if the endpoint never reported it. ``prompt_tokens`` and ``completion_tokens`` cover only
    the answers for which it reported them."""
    output_token_ids: list[Sequence[int] | None] = field(default_factory=list)
    """Token ids of each answer of the evaluated model. Answers in a preparation that several rows
    share are not included."""
    engine: list[EngineFigures | None] = field(default_factory=list)
    """Figures of the engine on each call."""

    def record(self, completion: Completion) -> None:
        """Append a completion as an assistant message, and add its tokens and time.

        If tools were offered, the message has OpenAI's form, and a further key ``text`` with the
        model's output. The keys ``reasoning`` and ``raw`` are added unless they are empty.
        """
        self.messages.append(assistant_message(completion))
        self.output = completion.text
        self.reasoning = completion.reasoning
        self.reasoning_truncated = completion.reasoning_truncated
        self.finish_reason = completion.finish_reason
        self.add_usage(completion)

    def record_tools(self, tools: Tools) -> None:
        """Record the ``tools`` that are offered for the next answer."""
        if tools is None:
            return
        have, answer = list(self.tools or ()), self.model_calls + 1
        stored_tools = [{k: v for k, v in tool.items() if k != "since_answer"} for tool in have]
        since = {"since_answer": answer} if answer > 1 else {}
        self.tools = [*have, *({**tool, **since} for tool in tools if tool not in stored_tools)]

    def add_usage(self, completion: Completion) -> None:
        """Add the tokens, time and facts of a completion to this episode."""
        self.prompt_tokens += completion.prompt_tokens
        self.completion_tokens += completion.completion_tokens
        self.model_calls += 1
        self.generation_s += completion.seconds
        self.output_token_ids.append(completion.token_ids)
        self.engine.append(completion.engine)
        if completion.endpoint is not None:
            self.endpoint = merge_facts(self.endpoint, completion.endpoint.as_json())

    def add_episode_usage(self, episode: Episode) -> None:
        """Add the tokens, time and facts of another episode to this episode."""
        self.prompt_tokens += episode.prompt_tokens
        self.completion_tokens += episode.completion_tokens
        self.model_calls += episode.model_calls
        self.generation_s += episode.generation_s
        self.engine += episode.engine
        if episode.endpoint is not None:
            self.endpoint = merge_facts(self.endpoint, episode.endpoint)


def merge_facts(before: dict[str, Any] | None, more: dict[str, Any]) -> dict[str, Any]:
    """Return the sum of two values of `EndpointFacts.as_json`."""
    if before is None:
        return more
    total = dict(before)
    for key, value in more.items():
        old = total.get(key)
        if isinstance(value, dict):
            counts = Counter(old or {})
            counts.update(value)
            total[key] = dict(counts)
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

    ``valid`` is None if only a judge can tell and no judge saw the answer. The row then has metrics
    but no verdict, and the status ``not_judged``.

    ``error_type`` is "" if valid. ``error`` gives the reason in one sentence. ``metrics`` contains
    further numbers of the row in 0..1, such as process accuracy. The metric ``score`` is the share
    of an answer that is right, for benchmarks in which answers can be partly right (`graded`).
    """

    valid: bool | None
    error_type: str = ""
    error: str = ""
    metrics: dict[str, float] = field(default_factory=dict)

    @classmethod
    def graded(cls, score: float, error_type: str = "", error: str = "") -> Verdict:
        """Return the verdict on a partly right answer. ``score`` is the share that is right. Only a
        ``score`` of 1 is valid. Raises `ValueError` if ``score`` is not in 0..1."""
        if not 0 <= score <= 1:
            raise ValueError(f"the score {score} is not between 0 and 1")
        if score == 1:
            return cls(True)
        return cls(False, error_type or "partly_right", error, {SCORE: float(score)})

    @property
    def score(self) -> float:
        """Return the answer's contribution to an accuracy, in 0..1."""
        return self.metrics.get(SCORE, float(self.valid is True))


@dataclass(slots=True, repr=False)
class ResultRow(EntryKeys):
    """The fields of a stored row that a summary needs: keys, status, verdicts, usage."""

    row_id: str
    benchmark: str
    category: str
    language: str
    id: str
    group: str
    sample: int
    status: str
    repeat: int = 0
    """1 for a row that was generated again, to measure how much two identical runs differ."""
    error_class: str | None = None
    error: str | None = None
    """Reason why the row lacks a verdict."""
    prompt_tokens: int | None = 0
    completion_tokens: int | None = 0
    """Like ``prompt_tokens``, None if an endpoint did not report it."""
    model_calls: int = 0
    generation_s: float | None = 0.0
    duration_s: float | None = 0.0
    """Like ``generation_s``, None if another program generated the output."""
    reasoning_truncated: bool = False
    finish_reason: str = ""
    endpoint: dict[str, Any] | None = None
    """Facts on an endpoint's answers, from `ace_ray.storage.rows.endpoint_of`."""
    cached_prompt_tokens: int | None = None
    first_token_s: float | None = None
    decode_s: float | None = None
    """Sums over the row's calls (`ace_ray.types.EngineFigures`); None if unknown for a call."""
    second_reading: str | None = None
    """Format of tool calls in the row's answers that the run's parser did not read; None if there
    are none (`ace_ray.benchmarks.diagnosis`)."""
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    unjudged: dict[str, dict[str, float]] = field(default_factory=dict)
    """Metrics by rule set of a row with the status ``not_judged``, which lacks verdicts."""

    def metrics(self, rules: str) -> Mapping[str, float]:
        verdict = self.verdicts.get(rules)
        return self.unjudged.get(rules, {}) if verdict is None else verdict.metrics

    def __repr__(self) -> str:
        judged = {rules: verdict.valid for rules, verdict in self.verdicts.items()}
        return f"<ResultRow {one_line(self.id, 80)}, sample {self.sample}: {judged or self.status}>"


def task_key(row: ResultRow) -> str:
    """Return the default key of the row's task, which identifies the row's entry or dialogue."""
    return f"{row.language}/{row.category}/{row.group}"
