"""Build the report section with a sample of wrong answers, their prompts and gold answers.

The sample is not random: rows are ordered by a hash of their entry, so all runs prefer the same
entries. Within a category, rows with different error types alternate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, TypeVar
from urllib.parse import quote

from ace_ray.reports.excerpts import excerpt, json_excerpt, to_json
from ace_ray.reports.html.page import LONGEST, Section
from ace_ray.reports.runs import ScoredRun
from ace_ray.storage.rows import messages_of
from ace_ray.types import ResultRow, digest
from ace_ray.util.grouping import grouped

HOST, PORT = "127.0.0.1", 8642  # default address of ``ace-ray view``
# Maximum wrong answers in a report over all runs. A phone's browser can open such a page.
MOST = 400
# Maximum characters of an answer, a gold answer, a state or a message, and of a checker's reason.
TEXT, _REASON = LONGEST, 1_000
# Maximum characters of all messages of an answer, and maximum messages, which may be empty.
MESSAGES, MOST_MESSAGES = 16_000, 500
_JSON = ("state", "gold")
_COLUMNS = ["messages", "output", "reasoning", *_JSON]
_Item = TypeVar("_Item")


def path_of(run_id: str, row_id: str = "") -> str:
    """Return the path at which ``ace-ray view`` shows a run or one of its rows."""
    row = f"row/{quote(row_id, safe='')}" if row_id else ""
    return f"/run/{quote(run_id, safe='')}/{row}"


# The chosen wrong rows of each run, and the number of all wrong rows.
WrongAnswers = tuple[Sequence[tuple[ScoredRun, Sequence[ResultRow]]], int]


def choose(runs: Sequence[ScoredRun], per_category: int, limit: int = MOST) -> WrongAnswers:
    """Choose at most ``per_category`` wrong rows of each category (per run and language), and at
    most ``limit`` in all: first the first row of each category of each run, then the second."""

    def error_types(row: ResultRow) -> tuple[str, ...]:
        return tuple(row.verdicts[rules].error_type for rules in sorted(row.verdicts))

    cells = grouped(
        ((run.label, *row.path[:3]), row)
        for run in runs
        for name in run.benchmarks
        for row in run.rows_of(name)
        if any(not verdict.valid for verdict in row.verdicts.values())
    )
    cells = {key: cells[key] for run in runs for key in sorted(cells) if key[0] == run.label}
    ranked = {}
    for key, rows in cells.items():
        rows.sort(key=lambda row: digest(*row.key, row.sample))  # the same order in every run
        ranked[key] = interleave(rows, error_types)[:per_category]
    turns = [(rank, key) for key, rows in ranked.items() for rank in range(len(rows))]
    # The sort is stable: it keeps the order of runs.
    counts = Counter(key for _, key in sorted(turns, key=lambda turn: turn[0])[:limit])
    by_run = [
        (run, [row for key in cells if key[0] == run.label for row in ranked[key][: counts[key]]])
        for run in runs
    ]
    return by_run, sum(map(len, cells.values()))


def interleave(items: Iterable[_Item], kind: Callable[[_Item], Hashable]) -> list[_Item]:
    """Return the first item of each kind, then the second of each, and so on."""
    kinds = grouped((kind(item), item) for item in items)
    return [item for turn in zip_longest(*kinds.values()) for item in turn if item is not None]


def answers(sample: WrongAnswers, rule_sets: Sequence[str]) -> Section:
    """Build the section with wrong answers. ``choices`` in its view are the filters' options."""
    by_run, wrong = sample
    views = [view for run, rows in by_run for view in _views(run, rows, rule_sets)]
    faults = {tuple(text.split(" ", 1)) for view in views for text in view["types"]}
    keys = {"runs": "run", "languages": "language", "categories": "category"}
    choices: dict[str, Any] = {n: list(dict.fromkeys(v[k] for v in views)) for n, k in keys.items()}
    choices["types"] = {r: sorted(kind for rules, kind in faults if rules == r) for r in rule_sets}
    view = {"answers": views, "choices": choices, "wrong": wrong}
    return Section("answers", "Wrong answers", "answers.html.j2", view)


def _views(
    run: ScoredRun, rows: Sequence[ResultRow], rule_sets: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """Yield the template's values for each row, except rows that no longer exist. Texts are cut
    when they are read, since all texts together may have gigabytes."""
    columns = _COLUMNS + [f"{rules}_error" for rules in run.manifest.all_rule_sets]
    by_id, views = {row.row_id: row for row in rows}, {}
    for texts in run.read_columns(rows, columns):
        views[texts["row_id"]] = _view(run, by_id[texts["row_id"]], texts, rule_sets)
    return (views[row.row_id] for row in rows if row.row_id in views)


def _view(
    run: ScoredRun, row: ResultRow, texts: Mapping[str, Any], rule_sets: Sequence[str]
) -> dict[str, Any]:
    """Return the template's values for one answer. ``wrong``: rule sets under which the answer is
    wrong; ``types``: the same rule sets, each with the error type."""
    messages = messages_of(texts)
    # In a single-turn row the last message is the answer, which is shown by itself.
    if texts["state"] is None and messages and messages[-1].get("role") == "assistant":
        messages = messages[:-1]
    message_views = _messages(messages)
    judgements: list[dict[str, Any]] = [
        {"rules": rules, "verdict": v, "reason": excerpt(texts[f"{rules}_error"] or "", _REASON)}
        for rules in rule_sets
        if (v := row.verdicts.get(rules)) is not None
    ]
    wrong = [(j["rules"], j["verdict"].error_type) for j in judgements if not j["verdict"].valid]
    state, gold = (None if (t := texts[n]) is None else json_excerpt(t, TEXT) for n in _JSON)
    return {
        **{name: getattr(row, name) for name in ("row_id", "language", "category", "id", "sample")},
        "run": run.label,
        "address": f"http://{HOST}:{PORT}{path_of(run.manifest.run_id, row.row_id)}",
        "cut": row.finish_reason == "length",
        "messages": message_views,
        "left_out": len(messages) - len(message_views),
        "output": excerpt(texts["output"], TEXT),
        "reasoning": excerpt(texts["reasoning"], TEXT) if texts["reasoning"] else None,
        **{"state": state, "gold": gold, "judgements": judgements},
        "wrong": [rules for rules, _ in wrong],
        "types": [f"{rules} {error_type}" for rules, error_type in wrong],
    }


def _messages(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the first messages, up to `MESSAGES` characters. ``open``: whether the page shows the
    message unfolded; system messages are folded, since they are long and similar in all rows."""
    views: list[dict[str, Any]] = []
    room = MESSAGES
    for message in messages[:MOST_MESSAGES]:
        if room <= 0:
            break
        text = excerpt(_text(message), min(TEXT, room))
        room -= len(text.text)
        role = str(message.get("role", ""))
        views.append({"role": role, "text": text, "open": role != "system"})
    return views


def _text(message: Mapping[str, Any]) -> str:
    """Return the text of a message, including its native tool calls."""
    if "text" in message:
        return to_json(message["text"])
    parts = [message[key] for key in ("content", "tool_calls") if message.get(key)]
    return "\n".join(map(to_json, parts))
