"""Converted answers of many queries as one file, written in pieces and read with care."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ace_ray.benchmarks.dataset import json_value, read_bounded
from ace_ray.errors import UserError

REFERENCE_LIMIT_BYTES = 256 << 20
MAX_NESTING = 900
"""Levels of an answer's JSON, two a node: Python reads few more, and fewer deep inside a worker."""
_FIX = "give a folder of converted answers, <group>.json each: {query_id: {query, answer, ...}}"

Answer = Mapping[str, Any]


def text_of(value: Any) -> str:
    """JSON text; lone surrogates, which no UTF-8 can hold, become U+FFFD, as in stored rows."""
    text = json.dumps(value, ensure_ascii=False)
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def converted_json(answers: Iterable[tuple[str, Mapping[str, Any]]]) -> Iterator[bytes]:
    """Upstream's ``<model>/<group>.json`` in pieces, from (query id, `convert.converted`) pairs.

    Of a query that comes again (another sample) the first answer stays: the file has one each.
    """
    written: set[str] = set()
    yield b"{"
    for query_id, answer in answers:
        if query_id in written:
            continue
        before = ",\n" if written else "\n"
        written.add(query_id)
        yield f"{before}{text_of(query_id)}: {text_of(answer)}".encode()
    yield b"\n}\n"


def read_reference(folder: Path, groups: Sequence[str]) -> dict[str, dict[str, str]]:
    """Another run's answers for SoWR: ``{group: {query id: the "answer" of a converted answer, as
    JSON text}}``.

    A group without a file has no answers. Raises `UserError` naming file and query.
    """
    found = {}
    for group in groups:
        path = folder / f"{group}.json"
        found[group] = _answers(path) if path.exists() else {}
    if not any(found.values()):
        raise UserError("holds no answers of these groups", where=str(folder), fix=_FIX)
    return found


def is_answer(answer: Any) -> bool:
    """Whether it is the ``answer`` of a converted answer, as far as judges look at it."""
    return (
        isinstance(answer, Mapping)
        and isinstance(answer.get("final_answer"), str)
        and isinstance(answer.get("answer_details"), list)
    )


def answer_json(answer: Mapping[str, Any], where: str) -> str:
    """The ``answer`` of a converted answer as JSON text: pickle takes no long chain.

    Raises `UserError` naming ``where`` beyond `MAX_NESTING`.
    """
    level: list[Any] = [answer]
    for _ in range(MAX_NESTING):
        inner = (one.values() if isinstance(one, Mapping) else one for one in level)
        level = [each for one in inner for each in one if isinstance(each, Mapping | list)]
        if not level:
            return json.dumps(answer)
    raise UserError("the answer is nested too deeply", where=where, fix="leave it out")


def _answers(path: Path) -> dict[str, str]:
    value = json_value(read_bounded(path, REFERENCE_LIMIT_BYTES), path, _FIX)
    if not isinstance(value, dict):
        raise UserError(f"holds a {type(value).__name__}", where=str(path), fix=_FIX)
    found: dict[str, str] = {}
    for query_id, one in value.items():
        answer = one.get("answer") if isinstance(one, dict) else None
        where = f"{path}, query {query_id:.60}"
        if answer is None or not is_answer(answer):
            raise UserError("has no converted answer", where=where, fix=_FIX)
        found[query_id] = answer_json(answer, where)
    return found
