"""A second reading of answers in which a benchmark has read no call.

A model that writes its calls in another format than was asked for, or than the run's tool parser
reads, is wrong everywhere. The same answers are then read by the readers of `ace_ray.calls.known`,
and what they find is judged by the benchmark's own `check`. It never counts: verdicts are those of
the first reading. `ace_ray.benchmarks.diagnosis` adds rows up.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from ace_ray.calls.known import KnownCalls, known_calls
from ace_ray.calls.literals import Call
from ace_ray.records import Entry, Episode, ToolCall, Verdict, canonical_json

Where = Literal["answer", "reasoning"]
_MOST_ANSWERS = 1 << 31
_END_OF_REASONING = "</think>"


@dataclass(frozen=True, slots=True)
class Unread:
    """The answers of an episode in which no call was read.

    ``answers`` has for each the texts that it may be in, the first that holds calls counts
    (`texts_of`). ``with_calls`` gives the episode as if these calls had been read, None where the
    benchmark has no form for them; it is None of an episode that went on after the answer, which
    nobody can make go another way. ``tools`` are those offered, in OpenAI's form.
    """

    answers: Sequence[Sequence[str]]
    with_calls: Callable[[Sequence[Call]], Episode | None] | None = None
    tools: Sequence[Mapping[str, Any]] = ()


class Reader(Protocol):
    """What a second reading asks of a benchmark."""

    def unread(self, entry: Entry, episode: Episode) -> Unread | None: ...
    def verdicts(self, entry: Entry, episode: Episode) -> Mapping[str, Verdict]: ...


@dataclass(frozen=True, slots=True)
class SecondReading:
    """What one row's answers hold.

    ``answers`` is their number, ``where`` the calls are: in the answer, or in reasoning that never
    ended. ``scores``: by rule set, what the row would count if ``reader`` had read it; empty where
    that cannot be said.
    """

    reader: str
    where: Where
    answers: int
    scores: Mapping[str, float] = field(default_factory=dict)

    def as_json(self) -> str:
        return canonical_json(
            {
                "reader": self.reader,
                "where": self.where,
                "answers": self.answers,
                "scores": dict(self.scores),
            }
        )

    @classmethod
    def of_json(cls, value: Any) -> SecondReading:
        """From what `as_json` gave. Raises `ValueError`: it is none."""
        if not isinstance(value, dict):
            raise ValueError("is no object")
        reader, where, answers = (value.get(key) for key in ("reader", "where", "answers"))
        if not isinstance(reader, str) or not 0 < len(reader) <= 40 or not reader.isidentifier():
            raise ValueError("names no reader")
        if where not in ("answer", "reasoning"):
            raise ValueError("names no place")
        if type(answers) is not int or not 0 < answers <= _MOST_ANSWERS:
            raise ValueError("counts no answers")
        scores = value.get("scores")
        if not isinstance(scores, dict) or not all(map(_is_share, scores.values())):
            raise ValueError("has no scores")
        return cls(reader, where, answers, scores)


def _is_share(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value <= 1


def second_reading(benchmark: Reader, entry: Entry, episode: Episode) -> SecondReading | None:
    """The second reading of an episode, None where no reader finds calls that were not read.

    Raises what the benchmark's code raises."""
    unread = benchmark.unread(entry, episode)
    if unread is None:
        return None
    where: Where = "answer"
    found = [calls for texts in unread.answers if (calls := _first(texts, unread.tools))]
    if not found and episode.reasoning_truncated:
        where = "reasoning"
        found = [calls for calls in [known_calls(episode.reasoning, unread.tools)] if calls]
    if not found:
        return None
    if unread.with_calls is None:
        ((reader, _),) = Counter(calls.reader for calls in found).most_common(1)
        return SecondReading(reader, where, len(found))
    read = found[0]
    again = unread.with_calls(read.calls)
    scores = {}
    if again is not None:
        verdicts = benchmark.verdicts(entry, again)
        scores = {rules: verdict.score for rules, verdict in verdicts.items()}
    return SecondReading(read.reader, where, 1, scores)


def _first(texts: Sequence[str], tools: Sequence[Mapping[str, Any]]) -> KnownCalls | None:
    return next((calls for text in texts if (calls := known_calls(text, tools))), None)


def texts_of(message: Mapping[str, Any]) -> list[str]:
    """The texts that an assistant's stored message may hold calls in: the answer, what stands
    beside calls, and what the model wrote before anything was taken out of it, without its
    reasoning."""
    texts = [message.get("text"), message.get("content")]
    if isinstance(raw := message.get("raw"), str):
        _, ended, rest = raw.rpartition(_END_OF_REASONING)
        reasoning = message.get("reasoning")
        # Reasoning that never ended, or that other marks end, is no answer either.
        if not ended and isinstance(reasoning, str) and reasoning and reasoning in raw:
            rest = raw.partition(reasoning)[2]
        texts.append(rest)
    return [text for text in dict.fromkeys(texts) if isinstance(text, str) and text]


def answer_texts(episode: Episode, *first: str) -> list[str]:
    """The texts of an episode with a single answer, ``first`` before those stored in messages."""
    last = episode.messages[-1] if episode.messages else {}
    stored = texts_of(last) if last.get("role") == "assistant" else []
    return list(dict.fromkeys([*(text for text in first if text), *stored]))


def as_tool_calls(calls: Sequence[Call]) -> tuple[ToolCall, ...]:
    """Calls as a tool parser gives them."""
    return tuple(ToolCall(c.name, json.dumps(c.args, ensure_ascii=False)) for c in calls)
