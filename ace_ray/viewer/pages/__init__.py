"""Pages of ``ace-ray view``: the values of a page, and its templates.

Long texts are folded, and invisible characters are named. Texts are cut after `SHOWN_CHARS`
characters, other values after `LONGEST`, with a note. Templates escape all values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from jinja2 import Environment

from ace_ray.reports.html.page import environment
from ace_ray.reports.text import Shown, pretty, shown, visible
from ace_ray.util.safe_loading import SHOWN_CHARS
from ace_ray.viewer.episode import MOST_CHANGES, EpisodeView
from ace_ray.viewer.select import outcome

FOLDED = 1_500
"""Texts with more characters are folded."""
_START = 160


@dataclass(frozen=True, slots=True)
class Words:
    """A text with its length. ``start``: its beginning on one line, "" if it is not folded."""

    text: Shown
    length: int
    start: str


def words(text: str) -> Words:
    start = visible(" ".join(text[:_START].split())) if len(text) > FOLDED else ""
    return Words(shown(text, SHOWN_CHARS), len(text), start)


def row_view(view: EpisodeView) -> dict[str, Any]:
    """Return the values for the page of a row. ``asked``: index of the first answer; the offered
    tools are shown before it."""
    roles = [step.role for step in view.steps]
    asked = roles.index("assistant") if "assistant" in roles else len(roles)
    return {"view": view, "facts": view.told_facts(), "asked": asked}


def render(template: str, view: Mapping[str, Any]) -> str:
    return _environment().get_template(template).render(**view)


@cache
def _environment() -> Environment:
    made = environment("ace_ray.viewer", "pages")
    made.filters |= {"words": words, "pretty": pretty, "outcome": outcome}
    made.globals["most_changes"] = MOST_CHANGES
    return made
