"""Human labels of answers, for measuring a judge against people."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ace_ray.benchmarks.context import RoleModel
from ace_ray.benchmarks.dataset import json_lines, read_bounded
from ace_ray.benchmarks.stabletoolbench.judge.asking import JudgeError, together
from ace_ray.benchmarks.stabletoolbench.judge.prompts import Prompts
from ace_ray.benchmarks.stabletoolbench.judge.reading import STATUSES
from ace_ray.benchmarks.stabletoolbench.judge.sopr import judge_sopr, majority
from ace_ray.benchmarks.stabletoolbench.names import FINISH
from ace_ray.benchmarks.stabletoolbench.results.details import called, linked
from ace_ray.benchmarks.stabletoolbench.results.files import answer_json, is_answer
from ace_ray.errors import UserError
from ace_ray.records import canonical_json

MAX_LABELS = 100_000
_FIX = 'write {"query_id": ..., "query": ..., "answer": ..., "label": ...} on each line'


@dataclass(frozen=True, slots=True)
class Label:
    """One answer and what people say of it; ``answer_json`` is the text of `answer`."""

    query_id: str
    query: str
    answer_json: str
    label: str

    @property
    def answer(self) -> dict[str, Any]:
        """The ``answer`` of a converted answer."""
        found: dict[str, Any] = json.loads(self.answer_json)
        return found

    @property
    def final_answer(self) -> str:
        return str(self.answer["final_answer"])


def read_labels(path: Path) -> list[Label]:
    """The labels of a JSON-lines file, ``{"query_id", "query", "answer", "label"}`` each.

    ``answer`` is a text, the ``answer`` of a converted answer, or a whole converted answer;
    ``label`` one of Solved, Unsure, Unsolved. Of a text the execution is unknown: the judge's
    second question then has nothing to go by. Several answers may share a query.

    Raises:
        UserError: naming file and line: what is missing or malformed.
    """
    found = [_label(row, where) for where, row in json_lines(read_bounded(path), path)]
    if len(found) > MAX_LABELS:
        raise UserError(f"has {len(found):,} labels", where=str(path), fix=f"use {MAX_LABELS:,}")
    return found


async def judge_labels(
    model: RoleModel,
    labels: Sequence[Label],
    votes: int = 1,
    prompts: Prompts | None = None,
    at_once: int = 64,
) -> list[str | None]:
    """What the judge says of each answer: the status of most votes, None where it failed."""
    gate = asyncio.Semaphore(at_once)

    async def judge(one: Label) -> str | None:
        async with gate:
            try:
                return majority(
                    await judge_sopr(model, one.query, one.answer, one.final_answer, votes, prompts)
                )
            except JudgeError:
                return None

    return await together([judge(one) for one in labels])


def _label(row: Mapping[str, Any], where: str) -> Label:
    for key in ("query_id", "query", "answer", "label"):
        if key not in row:
            raise UserError(f"has no {key}", where=where, fix=_FIX)
    name, query, label = row["query_id"], row["query"], row["label"]
    if isinstance(name, bool) or not isinstance(name, str | int):
        raise UserError(f"query_id is {name!r:.60}", where=where, fix="write a number or a text")
    if not isinstance(query, str) or not query.strip():
        raise UserError(f"query is {query!r:.60}", where=where, fix="write what the user asked")
    status = next(
        (s for s in STATUSES if isinstance(label, str) and s.lower() == label.lower()), None
    )
    if status is None:
        raise UserError(f"label is {label!r:.60}", where=where, fix=f"write {', '.join(STATUSES)}")
    answer = answer_json(_answer(row["answer"], where), where)
    return Label(str(name), query, answer, status)


def _answer(answer: Any, where: str) -> Mapping[str, Any]:
    if isinstance(answer, str):
        raw = canonical_json({"return_type": "give_answer", "final_answer": answer})
        return {"final_answer": raw, "answer_details": linked([called(FINISH, raw)])}
    if isinstance(answer, Mapping):
        answer = answer.get("answer", answer)
    if not is_answer(answer):
        raise UserError(
            "answer is neither a text nor a converted answer",
            where=where,
            fix='write a text, or {"final_answer": text, "answer_details": [...]}',
        )
    found: Mapping[str, Any] = answer
    return found
