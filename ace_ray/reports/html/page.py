"""Render sections into a page: one file that sends no requests.

Values from models and manifests are untrusted text. The environment escapes every value, and
invisible characters are named. A policy in the page forbids requests and foreign scripts. Only
style, script and figures of this package are inserted as markup.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from ace_ray.benchmarks.results import Estimate, Table, Value
from ace_ray.reports.figures import inline_svg
from ace_ray.reports.text import visible

LONGEST = 4_000
"""Maximum characters of a value. Texts of models are cut before, with a note (`shown`), and use the
filter `whole`."""


@dataclass(frozen=True, slots=True)
class Section:
    """A section of the page: ``template`` renders ``view``, and ``anchor`` is its id."""

    anchor: str
    title: str
    template: str
    view: Any


@dataclass(frozen=True, slots=True)
class Page:
    """A page. ``facts`` are short lines under the title."""

    title: str
    facts: Sequence[str]
    sections: Sequence[Section]


def render(page: Page) -> bytes:
    """Return the page as UTF-8."""
    script = _asset("report.js")
    template = environment().get_template("report.html.j2")
    text = template.render(
        page=page, style=Markup(_asset("report.css")), script=Markup(script), policy=_policy(script)
    )
    # `visible` has replaced lone surrogates, so the text can be encoded.
    return text.encode()


def _policy(script: str) -> str:
    allowed = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{allowed}'; style-src 'unsafe-inline'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


@cache
def _asset(name: str) -> str:
    return files("ace_ray.reports.html").joinpath(name).read_text(encoding="utf-8")


def environment(package: str = "ace_ray.reports", folder: str = "html") -> Environment:
    """Return the environment of the templates in ``folder`` of ``package``. They may import the
    templates of reports."""
    places = dict.fromkeys([(package, folder), ("ace_ray.reports", "html")])
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(*place) for place in places]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.tests["estimate"] = lambda value: isinstance(value, Estimate)
    filters: dict[str, Callable[..., Any]] = {
        "percent": lambda share: f"{100 * share:.1f}",
        "thousands": lambda number: f"{number:,}",
        "kinds": _kinds,
        "whole": escape,
        "figure": lambda figure: Markup(inline_svg(figure)),
    }
    environment.filters |= filters
    return environment


def _finalize(value: Any) -> Any:
    """Cut a value and name its invisible characters, before it is escaped."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    if len(value) <= LONGEST:
        return visible(value)
    return f"{visible(value[:LONGEST])}…"


def _kinds(table: Table) -> list[str]:
    """Return the CSS class of each column: ``words`` or ``numbers``."""
    return [
        "words" if any(_is_words(line[i]) for line in table.lines) else "numbers"
        for i in range(len(table.header))
    ]


def _is_words(value: Value) -> bool:
    return isinstance(value, str) and value != "" and not value.lstrip("+-< ")[:1].isdigit()
