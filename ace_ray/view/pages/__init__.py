"""The pages of ``ace-ray view``: a row as values of its page, and templates filled with them.

Long texts are folded, and invisible characters are named. A text is shown up to `SHOWN_CHARS`,
other values up to `LONGEST` characters; where one is cut, the page says so. Templates escape all of
them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from ace_ray.benchmarks.transcript import Tool
from ace_ray.bounded import SHOWN_CHARS
from ace_ray.reports.html.page import environment
from ace_ray.reports.text import Shown, pretty, shown, visible
from ace_ray.view.changes import MOST
from ace_ray.view.episode import EpisodeView

FOLDED = 1_500
"""Characters of a text above which it is folded."""
_START = 160


@dataclass(frozen=True, slots=True)
class Words:
    """A text with its length; ``start`` is its beginning on one line, "" where it is not folded."""

    text: Shown
    length: int
    start: str


def words(text: str) -> Words:
    start = visible(" ".join(text[:_START].split())) if len(text) > FOLDED else ""
    return Words(shown(text, SHOWN_CHARS), len(text), start)


def row_view(view: EpisodeView) -> dict[str, Any]:
    """What the page of a row shows."""
    return {
        "row_id": view.row_id,
        "key": view.key,
        "status": view.status,
        "error": words(view.error) if view.error else None,
        "verdicts": {
            rules: {**one, "error": words(one["error"]) if one["error"] else None}
            for rules, one in view.verdicts.items()
        },
        "facts": _facts(view),
        "tools": None if view.tools is None else _tools(view.tools),
        "asked": next(
            (i for i, step in enumerate(view.steps) if step.role == "assistant"), len(view.steps)
        ),
        "steps": [
            {
                "role": step.role,
                "seconds": step.facts.get("seconds"),
                "text": words(step.text) if step.text else None,
                "reasoning": words(step.reasoning) if step.reasoning else None,
                "written": words(step.written) if step.written else None,
                "calls": [
                    {
                        "name": call.name,
                        "arguments": words(call.arguments) if call.arguments else None,
                        "observation": None
                        if call.observation is None
                        else words(call.observation),
                        "error": call.error,
                    }
                    for call in step.calls
                ],
            }
            for step in view.steps
        ],
        "gold": None if view.gold is None else words(pretty(view.gold[0])),
        "states": None if view.states is None else [words(pretty(one)) for one in view.states],
        "changed": None
        if view.states is None
        else [
            {
                "path": change.path,
                "kind": change.kind,
                "before": None if change.kind == "added" else words(pretty(change.before)),
                "after": None if change.kind == "removed" else words(pretty(change.after)),
            }
            for change in view.changed
        ],
        "more_changes": len(view.changed) == MOST,
        "left": None if view.left is None else words(pretty(view.left)),
        "second_reading": None
        if view.second_reading is None
        else words(pretty(view.second_reading)),
        "endpoint": None if view.endpoint is None else words(pretty(view.endpoint)),
    }


def _tools(tools: Sequence[Tool]) -> list[dict[str, Any]]:
    return [
        {
            "name": tool.name,
            "since": tool.since,
            "text": words(f"{tool.description}\n{pretty(tool.schema)}"),
        }
        for tool in tools
    ]


def _facts(view: EpisodeView) -> list[tuple[str, str]]:
    facts = view.facts
    tokens = (facts["prompt_tokens"], facts["completion_tokens"])
    named = {
        "model": facts["model"] or "",
        "tokens": "unknown" if None in tokens else f"{tokens[0]:,} + {tokens[1]:,}",
        "calls of the model": facts["model_calls"],
        "seconds": f"{facts['duration_s'] or 0:.1f}",
        "ended by": facts["finish_reason"],
        "sample": facts["sample"],
        "seed": facts["seed"],
        "attempts": facts["attempts"],
        "worker": facts["worker"],
        "started": "" if facts["started_at"] is None else f"{facts['started_at']:%F %T} UTC",
        "repeat": "yes" if facts["repeat"] else "",
    }
    return [(name, str(value)) for name, value in named.items() if value not in ("", None)]


def render(template: str, view: Mapping[str, Any]) -> str:
    text: str = _environment().get_template(template).render(**view)
    return text


@cache
def _environment() -> Any:
    return environment("ace_ray.view", "pages")
