"""Find answers that hold calls which the run did not read.

A model that writes its calls in another format than was asked for, or than the run's tool parser
reads, is wrong everywhere. The readers of `ace_ray.parsing.known` search its answers again. Calls
that they find never count for a verdict. `ace_ray.benchmarks.diagnosis` adds rows up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol

from ace_ray.parsing.known import known_calls
from ace_ray.types import Entry, Episode, canonical_json

Where = Literal["answer", "reasoning"]
Answers = Sequence[Sequence[str]]
"""For each answer in which no call was read, the texts that may hold one (`texts_of`)."""
_MOST_ANSWERS = 1 << 31
_END_OF_REASONING = "</think>"


class Reader(Protocol):
    """The member of a benchmark that a second reading uses."""

    def unread(self, entry: Entry, episode: Episode) -> Answers: ...


@dataclass(frozen=True, slots=True)
class SecondReading:
    """The reader that finds calls in most of a row's answers, where they are (in the answer, or in
    reasoning that never ended), and the number of answers that hold calls."""

    reader: str
    where: Where
    answers: int

    def as_json(self) -> str:
        return canonical_json(asdict(self))

    @classmethod
    def of_json(cls, value: Any) -> SecondReading:
        """Read what `as_json` gave. Raises `ValueError`."""
        if not isinstance(value, dict):
            raise ValueError("is no object")
        reader, where, answers = (value.get(key) for key in ("reader", "where", "answers"))
        if not isinstance(reader, str) or not 0 < len(reader) <= 40 or not reader.isidentifier():
            raise ValueError("names no reader")
        if where not in ("answer", "reasoning"):
            raise ValueError("names no place")
        if type(answers) is not int or not 0 < answers <= _MOST_ANSWERS:
            raise ValueError("counts no answers")
        return cls(reader, where, answers)


def second_reading(benchmark: Reader, entry: Entry, episode: Episode) -> SecondReading | None:
    """Return what the readers find in an episode's answers without calls; None for nothing."""
    answers = benchmark.unread(entry, episode)
    where: Where = "answer"
    readers = _readers(answers)
    if answers and not readers and episode.reasoning_truncated:
        where = "reasoning"
        readers = _readers([[episode.reasoning]])
    if not readers:
        return None
    ((reader, _),) = Counter(readers).most_common(1)
    return SecondReading(reader, where, len(readers))


def _readers(answers: Answers) -> list[str]:
    """Return for each answer that holds calls the reader that finds them."""
    found = (next(filter(None, map(known_calls, texts)), None) for texts in answers)
    return [calls.reader for calls in found if calls is not None]


def texts_of(message: Mapping[str, Any]) -> list[str]:
    """Return the texts that an assistant's stored message may hold calls in.

    These are the answer, what stands beside calls, and what the model wrote before anything was
    taken out of it, without its reasoning."""
    texts = [message.get("text"), message.get("content")]
    if isinstance(raw := message.get("raw"), str):
        _, ended, rest = raw.rpartition(_END_OF_REASONING)
        reasoning = message.get("reasoning")
        # Reasoning that never ended, or that other marks end, is not part of the answer.
        if not ended and isinstance(reasoning, str) and reasoning and reasoning in raw:
            rest = raw.partition(reasoning)[2]
        texts.append(rest)
    return [text for text in dict.fromkeys(texts) if isinstance(text, str) and text]


def answer_texts(episode: Episode, *first: str) -> list[str]:
    """Return the texts of an episode with a single answer, ``first`` before those in messages."""
    last = episode.messages[-1] if episode.messages else {}
    stored = texts_of(last) if last.get("role") == "assistant" else []
    return list(dict.fromkeys([*(text for text in first if text), *stored]))
