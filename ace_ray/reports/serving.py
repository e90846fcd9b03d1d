"""Measure how a server handles requests: errors, tool calls, schemas, cut answers, prompt tokens.

The metrics compare a served candidate with a reference run of the same entries, row by row. A
metric is a share of rows or requests, with the interval of `ace_ray.reports.significance`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ace_ray.benchmarks.json_schema import schema_fault
from ace_ray.parsing.formats import parse_known_formats
from ace_ray.reports.runs import ScoredRun
from ace_ray.reports.significance import Change, Share, change_of, share_of
from ace_ray.rescoring.reparse import calls_of
from ace_ray.storage.rows import messages_of
from ace_ray.types import ResultRow, digest
from ace_ray.util.grouping import grouped
from ace_ray.util.safe_loading import InvalidContent, json_of_row
from ace_ray.util.stats import Interval

# Metrics, each with what a missed limit suggests.
SERVING = {
    "answered": "requests fail: overload, rate limits, or a broken deployment",
    "trigger_f1": "another model, sampling or chat template",
    "schema_valid": "the server's tool parser damages calls, or no grammar guides them",
    "reasoning_only": "the server keeps the answer in the reasoning, or ends after it",
    "cut_off": "the server has a lower token limit, or a shorter context",
    "prompt_tokens_differ": "another chat template, tool format or tokenizer",
    "duplicate_answers": "the server repeats stored answers, or ignores the sampling",
}
# Metrics that compare two runs. The other metrics have a value for each run.
OF_PAIRS = ("trigger_f1", "prompt_tokens_differ")
_COLUMNS = ("messages", "output", "reasoning", "tools")


@dataclass(frozen=True, slots=True)
class ServedRow:
    """A server's handling of one row. None: unknown, or without meaning for this row.

    ``requests`` counts all attempts, ``answered`` the answers. ``fault``: why a call does not fit
    its tool, or "". ``unread``: format of calls in the text, or "". ``content``: hash of answers.
    """

    task: str
    requests: int
    answered: int
    calls: bool = False
    fault: str | None = None
    reasoning_only: bool = False
    cut_off: bool = False
    prompt_tokens: int | None = None
    unread: str = ""
    content: str = ""
    repeated: bool = False


Key = tuple[Any, ...]


def served_rows(
    run: ScoredRun, rows: Sequence[ResultRow], task: Callable[[ResultRow], str]
) -> dict[Key, ServedRow]:
    """Read ``rows`` of ``run``, by (language, category, id, sample)."""
    by_id = {row.row_id: row for row in rows}
    served = {}
    for stored in run.read_columns(rows, _COLUMNS):
        row = by_id[stored["row_id"]]
        served[(*row.category_key, row.id, row.sample)] = _served(row, stored, task(row))
    return mark_repeated(served)


def mark_repeated(rows: Mapping[Key, ServedRow]) -> dict[Key, ServedRow]:
    """Set ``repeated`` of each row whose answers equal the answers of another row."""
    counts = Counter(row.content for row in rows.values() if row.content)
    return {key: replace(row, repeated=counts[row.content] > 1) for key, row in rows.items()}


def _served(row: ResultRow, stored: Mapping[str, Any], task: str) -> ServedRow:
    attempts = (row.endpoint or {}).get("attempts") or row.model_calls
    requests = max(attempts, row.model_calls) + (row.status == "infra_error")
    answers = [m for m in messages_of(stored) if m.get("role") == "assistant"]
    if not answers:
        return ServedRow(task, requests, row.model_calls)
    tools, last = stored["tools"], answers[-1]
    calls = [call for answer in answers for call in calls_of(answer)]
    texts = [str(answer.get("text") or answer.get("content") or "") for answer in answers]
    has_calls = bool(calls) if tools is not None else any(map(parse_known_formats, texts))
    is_blank = not calls_of(last) and not texts[-1].strip()
    return ServedRow(
        task,
        requests,
        row.model_calls,
        calls=has_calls,
        fault=_first_fault(calls, json_of_row(tools)) if calls and tools is not None else None,
        reasoning_only=is_blank and bool(last.get("reasoning") or stored["reasoning"]),
        cut_off=row.finish_reason == "length",
        prompt_tokens=row.prompt_tokens if row.model_calls == 1 else None,
        unread=row.second_reading or "",
        content=digest([texts, calls]),
    )


def _first_fault(calls: Iterable[tuple[str, str]], tools: Any) -> str:
    """Return why a call does not fit the ``tools``, in OpenAI's form; "" if all calls fit."""
    functions = [tool.get("function") for tool in tools if isinstance(tool, dict)]
    schemas = {f.get("name"): f.get("parameters") or {} for f in functions if isinstance(f, dict)}
    for name, text in calls:
        if name not in schemas:
            return "a tool that was not offered"
        try:
            arguments = json_of_row(text or "{}")
        except InvalidContent:
            return "arguments that are not JSON"
        if not isinstance(arguments, dict):
            return f"arguments that are {'text' if isinstance(arguments, str) else 'no object'}"
        if schema_fault(schemas[name], arguments):
            return "arguments that break the schema"
    return ""


def _value(metric: str, row: ServedRow) -> tuple[float, float]:
    """Return (part, size) of a row in the share ``metric``."""
    if metric == "answered":
        return row.answered, row.requests
    if metric == "schema_valid":
        return row.fault == "", row.fault is not None
    flag = row.repeated if metric == "duplicate_answers" else getattr(row, metric)
    return bool(flag), bool(row.answered)


def _pair_value(metric: str, before: ServedRow, after: ServedRow) -> tuple[float, float]:
    """Return (part, size) of two rows. For ``trigger_f1`` the part is that both rows call, the size
    that any of them does."""
    if not (before.answered and after.answered):
        return 0, 0
    if metric == "trigger_f1":
        return before.calls and after.calls, before.calls or after.calls
    counts = (before.prompt_tokens, after.prompt_tokens)
    return counts[0] != counts[1], None not in counts


class F1:
    """The F1 score 2 J / (1 + J), where J is the ``share`` of rows with a call in both runs, of the
    rows with a call in any run."""

    def __init__(self, share: Share) -> None:
        self._share, self.value = share, 2 * share.value / (1 + share.value)

    def interval(self, alpha: float, growth: float = 1.0) -> Interval:
        low, high = self._share.interval(alpha, growth)
        return 2 * low / (1 + low), 2 * high / (1 + high)


Rows = Mapping[Key, ServedRow]


def estimate(metric: str, runs: Sequence[Rows]) -> tuple[Share | F1 | None, int]:
    """Return a metric of the last run, and the number of rows or requests; None without any.
    ``runs``: (reference, candidate), or the candidate."""
    first, rows = runs[0], runs[-1].items()
    if metric in OF_PAIRS:
        values = [(r.task, *_pair_value(metric, first[key], r)) for key, r in rows if key in first]
    else:
        values = [(row.task, *_value(metric, row)) for _, row in rows]
    parts, sizes, count = _by_task(values)
    share = share_of(parts, sizes, count) if count else None
    return (F1(share) if share and metric == "trigger_f1" else share), count


def change(metric: str, runs: Sequence[Rows]) -> tuple[Change | None, int]:
    """Return the change of a metric from the reference to the candidate, and the number of rows
    that have the metric in both."""
    moves = []
    for key in runs[0].keys() & runs[1].keys():
        (before, size), (after, other_size) = (_value(metric, rows[key]) for rows in runs)
        if size and other_size:
            moves.append((runs[1][key].task, after / other_size - before / size, 1))
    parts, sizes, count = _by_task(moves)
    return (change_of(parts, sizes, count) if count else None), count


def _by_task(values: Iterable[tuple[str, float, float]]) -> tuple[np.ndarray, np.ndarray, int]:
    """Return the sums of parts and sizes of each task, and the sum of all sizes."""
    tasks = grouped((task, (float(part), float(size))) for task, part, size in values)
    parts, sizes = np.array([np.sum(pairs, axis=0) for pairs in tasks.values()]).reshape(-1, 2).T
    return parts, sizes, int(sizes.sum())


def sign_of(metric: str, runs: Sequence[Rows]) -> str:
    """Return what a missed limit on ``metric`` suggests."""
    rows = runs[-1]
    if metric == "schema_valid":
        faults = Counter(row.fault for row in rows.values() if row.fault)
        counts = "; ".join(f"{n} x {fault}" for fault, n in faults.most_common(3))
        return f"{SERVING[metric]}: {counts}"
    if metric == "trigger_f1":
        shared = [key for key in rows if key in runs[0]]
        lost = [rows[key] for key in shared if runs[0][key].calls and not rows[key].calls]
        unread = Counter(row.unread for row in lost if row.unread)
        if unread.total() > len(lost) / 2:
            names = ", ".join(f"{n} x {name}" for name, n in unread.most_common(3))
            return f"the server's tool parser is off: the text holds calls ({names})"
    return SERVING[metric]
