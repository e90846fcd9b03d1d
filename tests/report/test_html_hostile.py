"""Whatever a model, a manifest or a ledger says is text: no element or attribute comes of it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from ace_ray.reports.html.page import Page as Content
from ace_ray.reports.html.page import Section, render
from ace_ray.reports.text import visible
from tests.report.builders import (
    HOSTILE,
    Row,
    hostile_rows,
    ledger_line,
    refused,
    utf8,
    write_run,
    write_sweep,
)
from tests.report.pages import Page, is_sound, report_page

_CLEAN = "clean"


def hostile_run(folder: Path, text: str) -> Path:
    """A run whose manifest, summary and rows say ``text``, with data whose gold answers do."""
    rows, text = hostile_rows(text), utf8(text)
    write_run(
        folder,
        rows,
        model=f"org/{text}",
        run_id="run",
        extra_identity={text: text},
    )
    manifest = json.loads((folder / "run.json").read_text())
    manifest["run_id"] = text
    manifest["versions"] = {text: text}
    manifest["machine"] = {"host": text}
    (folder / "run.json").write_text(json.dumps(manifest))
    summary = {"benchmarks": {"acebench": {"comparable": text}}}
    (folder / "summary.json").write_text(json.dumps(summary))
    return folder


def page_of(tmp_path: Path, text: str, name: str) -> Page:
    runs = [hostile_run(tmp_path / name / str(i), text) for i in range(2)]
    return Page(report_page(*runs, out=tmp_path / f"{name}-report"))


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Page:
    page = page_of(tmp_path_factory.mktemp("clean"), _CLEAN, "clean")
    is_sound(page)
    return page


_MAY_BE_MORE: set[tuple[str, frozenset[str]]] = {("wbr", frozenset())}
"""Places for line breaks."""


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(text, marks=pytest.mark.nightly) if number % 3 else text
        for number, text in enumerate(HOSTILE)
    ],
)
def test_a_hostile_run_s_page_has_the_elements_of_a_clean_one(
    tmp_path: Path, text: str, clean: Page
) -> None:
    page = page_of(tmp_path, text, "hostile")
    is_sound(page)
    assert page.shapes.keys() - clean.shapes.keys() <= _MAY_BE_MORE
    for shape in clean.shapes.keys() - _MAY_BE_MORE:
        assert page.shapes[shape] == clean.shapes[shape], shape
    assert page.raw["script"] == clean.raw["script"]
    assert page.raw["style"] == clean.raw["style"]
    # What was said is there to read: as one text where nothing of it is marked or may break.
    if visible(text) == text and "_" not in text:
        assert page.text.count(text) >= 10


@pytest.mark.nightly
def test_a_hostile_ledger_is_text(tmp_path: Path) -> None:
    texts = [utf8(text) for text in HOSTILE]
    lines = []
    for number, text in enumerate(texts):
        source, common = f"/x/{text}/{text}", {"label": text, "note": text}
        if number < 3:
            line = ledger_line(f"m{number}", step=number, source=source)
        else:
            line = refused(f"m{number}", text) | {"source": source}
        lines.append(line | common)
    rows = hostile_rows("clean")
    folder = write_sweep(tmp_path / "sweep", lines, {f"m{number}": rows for number in range(3)})
    manifest = json.loads((folder / "sweep.json").read_text())
    manifest |= {"sweep_id": texts[0], "config": dict(zip(texts, texts, strict=True))}
    (folder / "sweep.json").write_text(json.dumps(manifest))
    page = Page(report_page(folder, out=tmp_path / "out"))
    is_sound(page)
    for text in texts:
        assert page.text.count(visible(text)) >= 3 or "_" in text, text


_SAID = ("output", "reasoning", "official_error", "strict_error", "state", "messages", "gold")
"""Columns that a model has written to."""


def said(text: str) -> list[Row]:
    """`hostile_rows` in which only what a model can say is ``text``."""
    calm, loud = hostile_rows(_CLEAN), hostile_rows(text)
    return [a | {name: b[name] for name in _SAID} for a, b in zip(calm, loud, strict=True)]


@pytest.mark.nightly
def test_a_megabyte_of_answer_is_a_few_kilobytes_of_page(tmp_path: Path) -> None:
    size = len(report_page(write_run(tmp_path / "a", said(_CLEAN)), out=tmp_path / "small"))
    for number, sign in enumerate(("x", "<", "\x00y", "&\u202e", "🙂")):
        folder = write_run(tmp_path / f"b{number}", said(sign * (1_000_000 // len(sign))))
        content = report_page(folder, out=tmp_path / f"large{number}")
        is_sound(Page(content))
        # Three answers of nine texts each; the name of an invisible sign takes 12 bytes.
        assert len(content) < size + 3 * 9 * 12 * 4_000


def test_a_template_s_gap_is_an_error_and_not_a_blank() -> None:
    from jinja2 import UndefinedError

    broken = Section("x", "X", "ledger.html.j2", {"bars": []})
    with pytest.raises(UndefinedError):
        render(Content("t", [], [broken]))


def test_nothing_but_our_own_files_and_figures_is_markup() -> None:
    """Only `page.py` may say that a text is markup, and no template may."""
    package = Path(__file__).parents[2] / "ace_ray" / "reports"
    for file in package.rglob("*.py"):
        if file.name != "page.py":
            assert not re.search(r"\bMarkup\b|markupsafe|jinja2", file.read_text()), file
    for file in package.rglob("*.j2"):
        text = file.read_text()
        assert "safe" not in text, file
        assert "autoescape" not in text, file
