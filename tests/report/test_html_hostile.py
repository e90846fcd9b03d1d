"""Whatever a model, a manifest or a ledger says is text: no element or attribute comes of it."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from ace_ray.benchmarks.acebench.data.loader import MINI
from ace_ray.reports.html.page import Page as Content
from ace_ray.reports.html.page import Section, render
from ace_ray.reports.text import visible
from tests.report.builders import (
    HOSTILE,
    Row,
    hostile_rows,
    ledger_line,
    refused,
    row,
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


_NAMED = ("span", frozenset({"class", "title"}))
_MAY_BE_MORE = {_NAMED, ("wbr", frozenset()), ("path", frozenset({"id", "d", "style"}))}
"""Marks of invisible characters, places for line breaks, and signs that a figure needs."""


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
    known = {shape for shape in clean.shapes if shape[0] not in ("path", "use")}
    odd = {s: n for s, n in page.shapes.items() if s not in known and s[0] not in ("path", "use")}
    assert set(odd) <= _MAY_BE_MORE
    for shape in known - _MAY_BE_MORE:
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


@pytest.mark.nightly
def test_hostile_gold_answers_and_prompts_are_text(tmp_path: Path) -> None:
    text = HOSTILE[0] + HOSTILE[2]
    data = tmp_path / "data"
    shutil.copytree(MINI, data)
    file = data / "data_en" / "possible_answer" / "data_normal_atom_bool.json"
    answers = [json.loads(line) for line in file.read_text().splitlines()]
    answers[0]["ground_truth"] = {"greenhouse_water": {"bed": text}}
    file.write_text("\n".join(map(json.dumps, answers)))
    folder = write_run(tmp_path / "run", [row("en", "normal_atom_bool", 0, official=False)])
    manifest = json.loads((folder / "run.json").read_text())
    manifest["config"]["benchmarks"][0]["data"] = str(data)
    del manifest["entries"]
    (folder / "run.json").write_text(json.dumps(manifest))
    page = Page(report_page(folder, out=tmp_path / "out"))
    is_sound(page)
    assert json.dumps(text, ensure_ascii=False)[1:-1] in page.text


_SAID = ("output", "reasoning", "official_error", "strict_error", "state", "messages")
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
        # Three answers of nine texts each, at most five bytes a sign.
        assert len(content) < size + 3 * 9 * 5 * 4_000


@pytest.mark.nightly
def test_not_even_names_of_a_megabyte_make_a_large_page(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", hostile_rows("<" * 1_000_000))
    content = report_page(folder, out=tmp_path / "out")
    is_sound(Page(content))
    assert len(content) < 2_000_000


@pytest.mark.nightly
def test_the_sample_bounds_the_page(tmp_path: Path) -> None:
    rows = [row("en", "special_incomplete", i, official=False) for i in range(60)]
    folder = write_run(tmp_path / "run", rows)

    def shown(wrong: int) -> int:
        content = report_page(folder, out=tmp_path / f"out{wrong}", wrong=wrong)
        return Page(content).shapes[_answer()]

    assert [shown(n) for n in (0, 2, 7)] == [0, 2, 7]


def _answer() -> tuple[str, frozenset[str]]:
    names = ("answer", "run", "language", "category", "types", "wrong")
    return ("details", frozenset({"class", *(f"data-{name}" for name in names)}))


def test_a_template_s_gap_is_an_error_and_not_a_blank() -> None:
    from jinja2 import UndefinedError

    broken = Section("x", "X", "ledger.html.j2", {"bars": []})
    with pytest.raises(UndefinedError):
        render(Content("t", [], [broken]))


def test_nothing_but_our_own_files_and_figures_is_markup() -> None:
    """Only `page.py` may say that a text is markup, and no template may."""
    package = Path(__file__).parents[2] / "ace_ray" / "report"
    for file in package.rglob("*.py"):
        if file.name != "page.py":
            assert not re.search(r"\bMarkup\b|markupsafe|jinja2", file.read_text()), file
    for file in package.rglob("*.j2"):
        text = file.read_text()
        assert "safe" not in text, file
        assert "autoescape" not in text, file
