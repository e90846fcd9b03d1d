"""Print rows of a run: a list, or complete rows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from ace_ray.benchmarks.transcript import Tool
from ace_ray.reports.excerpts import to_json
from ace_ray.storage.stored_run import StoredRun
from ace_ray.types import ResultRow
from ace_ray.util.safe_loading import SHOWN_CHARS
from ace_ray.util.sanitizing import one_line, sanitize_text
from ace_ray.viewer.episode import MOST_CHANGES, Change, EpisodeView
from ace_ray.viewer.row_filter import Filter, episodes, outcome, select_known

WIDTH = 72
# Printed characters of a row id. They are unique among millions of rows.
_ID = 12
_INDENT = 4 * " "


def show(
    run: StoredRun,
    query: Filter,
    *,
    base: StoredRun | None = None,
    limit: int = 0,
    as_json: bool = False,
) -> None:
    """Print at most ``limit`` rows (0: all) of ``run`` that match ``query``.

    If ``query`` names an entry, complete rows are printed, else a list. With ``as_json``, each
    line is a complete row. Raises `UserError` if a value in ``query`` does not occur in the run."""
    rows = select_known(run, query, base)
    if as_json or query.entry:
        for number, view in enumerate(episodes(run, rows[: limit or None])):
            if as_json:
                print(json.dumps(view.as_json(), ensure_ascii=True))
            else:
                print(*([""] if number else []), *row_lines(view), sep="\n")
    else:
        for line in list_lines(run, rows, query.rules, base, limit):
            print(line)
    if limit and len(rows) > limit and not as_json:
        print(f"{len(rows) - limit} more; --limit 0 shows all")


def list_lines(
    run: StoredRun, rows: Sequence[ResultRow], rules: str, base: StoredRun | None, limit: int
) -> Iterator[str]:
    """Yield the number of rows, and for each row its id, outcomes and the start of its answer."""
    count = f"{len(rows)} of {len(run.rows)} rows"
    yield f"{count} have a different verdict in {base.uri}" if base else count
    by_id = {row.row_id: row for row in rows}
    for view in episodes(run, rows[: limit or None]):
        row = by_id[view.row_id]
        rule_sets = [rules] if rules else run.manifest.rule_sets_of(row.benchmark)
        outcomes = dict.fromkeys(outcome(row, name) for name in rule_sets)
        several = f" #{row.sample}" if row.sample else ""
        start = f"{row.id}{several}  {' / '.join(outcomes)}"
        answer = one_line(_answer(view), 2 * WIDTH)
        yield f"{sanitize_text(start)}\n    {answer[: WIDTH - 4]}"


def _answer(view: EpisodeView) -> str:
    """Return the text or calls of the model's last message; if there is none, the error."""
    for step in reversed(view.steps):
        if step.role == "assistant":
            calls = ", ".join(f"{call.name}({call.arguments})" for call in step.calls)
            return step.text or calls
    return view.error


def row_lines(view: EpisodeView) -> Iterator[str]:
    """Yield the lines of one complete row."""
    key = view.key
    names = [name for name in (key["benchmark"], key["category"], key["language"]) if name]
    yield _line(f"{key['id']}   ({', '.join(names)}; row {view.row_id[:_ID]})")
    yield _line(", ".join(f"{name} {value}" for name, value in view.fact_texts()))
    if not view.verdicts:
        yield _line(f"not scored: {view.status}{': ' if view.error else ''}{view.error}")
    for rules, verdict in view.verdicts.items():
        result = "right" if verdict["valid"] else f"wrong  {verdict['error_type']}"
        yield _line(f"{rules}: {result}")
        if verdict["error"]:
            yield from _block(verdict["error"], _INDENT)
        if verdict["metrics"]:
            numbers = (f"{name} {value:.4g}" for name, value in verdict["metrics"].items())
            yield from _block(", ".join(numbers), _INDENT)
    tools = list(_tools(view.tools))
    for step in view.steps:
        if step.role == "assistant":  # tools are shown after the prompt
            yield from tools
            tools = []
        seconds = step.facts.get("seconds")
        more = f"{seconds:.1f} s" if isinstance(seconds, int | float) else ""
        yield from _title_lines(step.role, more)
        if step.reasoning:
            yield "  reasoning:"
            yield from _block(step.reasoning, _INDENT)
        if step.text:
            yield from _block(step.text)
        for call in step.calls:
            yield from _block(f"call {call.name}{': ' if call.arguments else ''}{call.arguments}")
            if call.observation is not None:
                yield from _block(f"-> {call.observation}", _INDENT)
            if call.error:
                yield from _block(f"failed: {call.error}", _INDENT)
        if step.written:
            yield "  as written:"
            yield from _block(step.written, _INDENT)
    yield from tools
    if view.gold is not None:
        yield from _title_lines("gold")
        yield from _block(to_json(view.gold[0]))
    if view.states is not None:
        yield from _title_lines("state before")
        yield from _block(to_json(view.states[0]))
        yield from _title_lines("state after: changes")
        yield from _changes(view.changed)
    elif view.state is not None:
        yield from _title_lines("state")
        yield from _block(to_json(view.state))


def _tools(tools: Sequence[Tool] | None) -> Iterator[str]:
    if tools is None:
        return
    yield from _title_lines("tools offered", str(len(tools)))
    for tool in tools:
        since = f" (from answer {tool.since})" if tool.since != 1 else ""
        yield from _block(f"{tool.name}{since}: {tool.description}")
        if tool.schema is not None:
            yield from _block(json.dumps(tool.schema, ensure_ascii=False), _INDENT)


def _changes(changed: Sequence[Change]) -> Iterator[str]:
    for change in changed:
        before, after = (json.dumps(v, ensure_ascii=False) for v in (change.before, change.after))
        values = {"added": after, "removed": before, "changed": f"{before} -> {after}"}
        yield from _block(f"{change.path} {change.kind}: {values[change.kind]}")
    if not changed:
        yield "  nothing"
    elif len(changed) == MOST_CHANGES:
        yield "  further changes are not shown"


def _title_lines(title: str, more: str = "") -> Iterator[str]:
    yield ""
    start = f"-- {one_line(title, 60)}{', ' if more else ''}{more} "
    yield start + "-" * max(0, WIDTH - len(start))


def _block(text: str, indent: str = "  ") -> list[str]:
    """Return the lines of the first `SHOWN_CHARS` characters, without control characters."""
    return [indent + line for line in sanitize_text(text, SHOWN_CHARS).split("\n")]


def _line(text: str) -> str:
    return " ".join(_block(text, ""))
