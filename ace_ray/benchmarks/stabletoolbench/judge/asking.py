"""Ask the judge one question until a reply has a verdict, at most `ATTEMPTS` times.

A reply can state a verdict, such as Solved, in three forms: in a field of a JSON object, at any
depth, even if the object is cut after the field; after a label (``Answer Status: Solved``,
``answer_status: Solved``); or alone on the last line. A verdict in prose, in a question or among
alternatives does not count. The reply has a verdict if it states exactly one, once or repeatedly.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from ace_ray.benchmarks.context import RoleModel
from ace_ray.errors import PromptTooLong, RowError
from ace_ray.types import Sampling, digest

# Upstream's ``evaluators/tooleval_gpt-3.5-turbo_default/config.yaml``.
SAMPLING = Sampling(temperature=0.2, max_tokens=1000)
# Upstream's ``fac_eval.py``.
FAC_SAMPLING = Sampling(temperature=0.0, max_tokens=512)
ATTEMPTS = 4
# Minimum temperature of retries: greedy decoding would repeat the reply.
RETRY_TEMPERATURE = 0.7
# Maximum characters of an execution trace in a prompt; other texts may have a quarter of that. If
# the prompt does not fit the judge's context, the next number is tried.
CUTS = (24_000, 8_000, 2_500, 1_000)
MAX_REASON = 500

Answer = TypeVar("Answer")


class JudgeError(RowError):
    """The judge gave no verdict. The row is not scored; a resumed run retries it."""


def reply_json(
    reason: str, attempts: int, prompt_tokens: int, completion_tokens: int, schema_refused: str = ""
) -> dict[str, Any]:
    """Return the judge's reply to one question, and its cost, as a row stores them.

    ``schema_refused`` is the reason why the reply ignores the schema, or ""."""
    costs = {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens}
    refused = {"schema_refused": schema_refused} if schema_refused else {}
    return {"reason": reason, "attempts": attempts, **costs, **refused}


async def ask(
    model: RoleModel,
    prompt: Callable[[int], str],
    read: Callable[[str], Answer | None],
    *key: object,
    schema: Mapping[str, Any] | None = None,
) -> tuple[Answer, dict[str, Any]]:
    """Return the first verdict that ``read`` finds in a reply, and the reply (`reply_json`).

    Args:
        model: the judge. Each request has another seed; retries may have a higher temperature.
        prompt: returns the prompt with its texts cut to a limit of characters, one of `CUTS`.
        read: returns the verdict of a reply; None if there is none, or several.
        key: JSON values that identify the question within the row; the first is the measure. The
            seed depends on them, on the model's seed and on the number of the attempt.
        schema: JSON schema of the reply. ``read`` must also handle replies that violate it.

    Raises:
        JudgeError: no reply had a verdict, the model failed, or the shortest prompt does not fit.
    """
    cuts, reply = list(CUTS), ""
    tokens = [0, 0]
    for attempt in range(ATTEMPTS):
        sampling = replace(model.sampling, seed=seed_of(model.sampling.seed, *key, attempt))
        if attempt:
            sampling = replace(sampling, temperature=max(sampling.temperature, RETRY_TEMPERATURE))
        while True:
            messages = [{"role": "user", "content": prompt(cuts[0])}]
            try:
                completion = await model.ask(messages, sampling, schema=schema)
                break
            except PromptTooLong as error:
                if len(cuts) == 1:
                    problem = f"{key[0]}: the question does not fit the judge: {error}"
                    raise JudgeError(problem) from error
                del cuts[0]
            except RowError as error:
                raise JudgeError(f"{key[0]}: the judge failed: {error}") from error
        tokens[0] += completion.prompt_tokens
        tokens[1] += completion.completion_tokens
        reply = completion.text
        answer = read(reply)
        if answer is not None:
            reason, refused = reply.strip()[:MAX_REASON], completion.schema_refused
            return answer, reply_json(reason, attempt + 1, tokens[0], tokens[1], refused)
    raise JudgeError(
        f"{key[0]}: none of {ATTEMPTS} replies had exactly one verdict; last reply: {reply!r:.200}"
    )


def protocol() -> dict[str, Any]:
    """Return the settings that can change a verdict, except prompts and sampling (JSON values)."""
    return {"attempts": ATTEMPTS, "retry_temperature": RETRY_TEMPERATURE, "cuts": list(CUTS)}


def reseed(model: RoleModel, attempt: int) -> RoleModel:
    """Return ``model`` with a new seed for each ``attempt`` of a row after the first. With the same
    seed, the judge would fail again."""
    if attempt == 1:
        return model
    seed = seed_of(model.sampling.seed, "attempt", attempt)
    return replace(model, sampling=replace(model.sampling, seed=seed))


def seed_of(*key: object) -> int:
    """Return a seed of 31 bits that depends only on ``key`` (JSON values)."""
    return int(digest(*key)[:8], 16) >> 1


async def gather_all(waits: Sequence[Awaitable[Answer]]) -> list[Answer]:
    """Return all results in order. If an awaitable fails, cancel the rest and raise its error."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


STATUSES = ("Solved", "Unsure", "Unsolved")
MAX_REPLY = 20_000
_MAX_OBJECTS = 50


def _schema(verdict: str, values: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a reply to ace_ray's questions: first the reason, then the verdict."""
    reason = {"type": "string", "maxLength": 240}
    return {
        "type": "object",
        "properties": {"reason": reason, verdict: values},
        "required": ["reason", verdict],
        "additionalProperties": False,
    }


STATUS_SCHEMA = _schema("answer_status", {"type": "string", "enum": list(STATUSES)})
COMPLETE_SCHEMA = _schema("answer_status", {"type": "string", "enum": ["Solved", "Unsolved"]})
INDEX_SCHEMA = _schema("index", {"type": "integer", "enum": [0, 1]})

_DECODER = json.JSONDecoder(strict=False, object_pairs_hook=tuple)
_WORD = r"un-?solved|unsolved|unsure|solved"
_ASKED_FIELDS = ("answer_status", "answer status")
# Quoted text may have these fields, too, so a value that is not a verdict is ignored.
_OTHER_FIELDS = ("status", "verdict")
_ONE = rf"(?!\W{{0,4}}\?|[\W_]{{0,8}}(?:or\b|and\W{{1,4}}(?:{_WORD})|{_WORD}))"
_IS_ONE = rf"\b(?:\s{{0,3}}\bis\b)?[\W_]{{1,20}}({_WORD})\b{_ONE}"
_LABELLED = re.compile(rf"\b(?:status|verdict|judge?ment|decision){_IS_ONE}", re.IGNORECASE)
_FIELD = re.compile(rf"\banswer_?status{_IS_ONE}", re.IGNORECASE)
# The requested field in JSON form, with its value if that is complete and a status.
_QUOTED = re.compile(
    r"(?:^|[{,])\s{0,9}([\"'])answer[_ ]status\1\s{0,9}:\s{0,9}"
    rf"(?:\1\s{{0,3}}({_WORD})\s{{0,3}}\1(?=[^\S\n]{{0,9}}(?:[,}}\n]|\Z)){_ONE})?",
    re.IGNORECASE | re.MULTILINE,
)
_OPENING = re.compile(r"\{\s{0,99}([\"'])")
_ALONE = re.compile(rf"[\W_]*({_WORD})(?:[^\w?]|_)*", re.IGNORECASE)
_INDEX = re.compile(
    r"\b(?:index|better(?:\s{0,3}answer)?|choice|choose|select(?:ed)?|verdict)\b(?:\s{0,3}\bis\b)?"
    r"[\W_]{1,20}(?:answer)?[\W_]{0,4}([01])\b(?![\W_]{0,8}(?:or\b|and\b|for\b|[01]\b)|\.\d)",
    re.IGNORECASE,
)
_INDEX_ALONE = re.compile(r"[\W_]*(?:answer)?[\W_]{0,4}([01])[\W_]*", re.IGNORECASE)


def read_status(reply: str) -> str | None:
    """Return the status that a reply states, or None if it states none or several."""
    reply = _shorten(reply)
    objects, beside = _objects(reply)
    statuses = {_status(value) for value in _fields(objects, _ASKED_FIELDS)}
    statuses |= {_status(value) for value in _fields(objects, _OTHER_FIELDS)} - {""}
    statuses |= {_status(match[1]) for match in _LABELLED.finditer(reply)}
    statuses |= {_status(value) for value in _status_values(beside)}
    if alone := _ALONE.fullmatch(_last_line(reply)):
        statuses.add(_status(alone[1]))
    return (statuses.pop() or None) if len(statuses) == 1 else None


def read_complete(reply: str) -> str | None:
    """Return the verdict of a reply to ace_ray's question on completeness: ``Solved`` or
    ``Unsolved``; None if the reply states another status, such as Unsure, or none."""
    status = read_status(reply)
    return None if status == "Unsure" else status


def read_fac(reply: str) -> str | None:
    """Return the verdict of a reply to upstream's question (``fac_eval.py::get_response``). It is
    Unsolved if the reply contains "unsolved", else Solved if it contains "solved", else None.
    Upstream scores None as Unsolved."""
    text = reply[:MAX_REPLY].lower()
    if "unsolved" in text:
        return "Unsolved"
    return "Solved" if "solved" in text else None


def read_index(reply: str) -> int | None:
    """Return the number of the answer that a reply calls better, 0 or 1, or None if unclear."""
    reply = _shorten(reply)
    indexes = set()
    for value in _fields(_objects(reply)[0], ("index", "better", "choice")):
        text = str(value).strip() if isinstance(value, str | int) else ""
        if text not in ("0", "1"):
            return None
        indexes.add(int(text))
    if not indexes:
        indexes = {int(match[1]) for match in _INDEX.finditer(reply)}
        if alone := _INDEX_ALONE.fullmatch(_last_line(reply)):
            indexes.add(int(alone[1]))
    return indexes.pop() if len(indexes) == 1 else None


def _shorten(reply: str) -> str:
    if len(reply) <= MAX_REPLY:
        return reply
    half = MAX_REPLY // 2
    return f"{reply[:half]}\n{reply[-half:]}"


def _status(word: Any) -> str:
    """Return the word in the form of `STATUSES`, or "" if it is not a status."""
    plain = word.strip().lower().replace("-", "") if isinstance(word, str) else ""
    return next((status for status in STATUSES if status.lower() == plain), "")


def _last_line(reply: str) -> str:
    lines = [line for line in reply.splitlines() if re.search(r"\w", line)]
    return lines[-1][:500] if lines else ""


def _objects(text: str) -> tuple[list[Any], str]:
    """Return the JSON objects in ``text``, as tuples of pairs, and the rest of the text."""
    objects, beside, at, behind = [], "", 0, 0
    for _ in range(_MAX_OBJECTS):
        at = text.find("{", at)
        if at < 0:
            break
        try:
            value, end = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            at += 1
            continue
        objects.append(value)
        beside += f"{text[behind:at]}\n"
        at = behind = end
    return objects, beside + text[behind:]


def _fields(objects: list[Any], names: tuple[str, ...]) -> Iterator[Any]:
    """Yield the values of the fields ``names`` at any depth, and in ``arguments`` as JSON text."""
    stack = list(objects)
    while stack:
        item = stack.pop()
        if isinstance(item, list):
            stack += item
        elif isinstance(item, tuple):
            for name, value in item:
                if name.strip().lower() in names:
                    yield value
                quoted = name == "arguments" and isinstance(value, str)
                stack += _objects(value)[0] if quoted else [value]


def _status_values(text: str) -> Iterator[Any]:
    """Yield the values of ``answer_status`` in a text without complete JSON objects: after a label,
    or in an object that is cut or badly quoted. Quotations inside the object do not count."""
    for match in _FIELD.finditer(text):
        line = text[text.rfind("\n", 0, match.start()) + 1 : match.start()]
        if not re.search(r'[{"]', line.lstrip(" {")):
            yield match[1]
    if opening := _OPENING.search(text):
        yield from (match[2] for match in _QUOTED.finditer(text) if match[1] == opening[1])
