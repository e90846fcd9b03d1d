"""Texts of models, manifests and summaries stay texts: on the terminal, in pages and CSV files."""

import json
from pathlib import Path
from typing import Any

import pytest

from ace_ray.reports.excerpts import Excerpt, excerpt, json_excerpt, mark_hidden
from tests.report.builders import HOSTILE, Page, hostile_rows, is_sound, report_page, row, utf8
from tests.report.builders import write_run as write

RICH = "[red]rich[/] [/nothing] [link=https://evil.example]x[/link]"
CONTROLS = [chr(c) for c in (*range(32), 127, *range(128, 160)) if chr(c) not in "\n\t\r"]
HIDDEN = ["\u202e", "\u2066", "\u200b", "\u2028", "\u2029"]


def hostile_run(folder: Path, text: str) -> Path:
    """Write a run whose manifest, summary and rows say ``text``."""
    rows, text = hostile_rows(text), utf8(text)
    failed = row("en", "agent_multi_step", 7, status="infra_error")
    rows.append(failed | {"error_class": text, "error": text})
    more: dict[str, Any] = {"extra_identity": {text: text}, "max_unscored_fraction": 1.0}
    write(folder, rows, model=f"org/{text}", run_id="run", **more)
    manifest = json.loads((folder / "run.json").read_text())
    manifest |= {"run_id": text, "ace_ray_version": text, "versions": {text: text}}
    (folder / "run.json").write_text(json.dumps(manifest | {"machine": {"host": text}}))
    summary = {
        "benchmarks": {"acebench": {"comparable": text}},
        "timing": {"engines": [{"versions": {"vllm": text}}]},
        "rescored": {"ace_ray_version": text},
    }
    (folder / "summary.json").write_text(json.dumps(summary))
    return folder


def hidden(text: str) -> list[str]:
    return [sign for sign in (*CONTROLS, *HIDDEN) if sign in text]


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Page:
    folder = tmp_path_factory.mktemp("clean")
    runs = [hostile_run(folder / str(i), "clean") for i in range(2)]
    return Page(report_page(*runs, out=folder / "out"))


OFTEN = [HOSTILE[0], HOSTILE[10], HOSTILE[11], RICH]


@pytest.mark.parametrize("text", OFTEN)
def test_hostile_text_adds_no_markup_and_no_control_characters(text, tmp_path, clean, invoke):
    runs = [hostile_run(tmp_path / str(i), text) for i in range(2)]
    page = is_sound(report_page(*runs, out=tmp_path / "report"))
    # A clean run has the same elements, besides places for line breaks.
    for shape in page.shapes.keys() | clean.shapes.keys():
        assert shape[0] == "wbr" or page.shapes[shape] == clean.shapes[shape], shape
    assert page.raw == clean.raw
    if mark_hidden(text) == text and "_" not in text:
        assert page.text.count(text) >= 10
    for command in (["report"], ["compare", "--flips", "--out", tmp_path / "compare"]):
        result = invoke(*command, *runs).ok()
        assert hidden(result.stdout + result.stderr) == []
    for file in (*(tmp_path / "report").iterdir(), *(tmp_path / "compare").iterdir()):
        if file.suffix in (".csv", ".html"):
            assert hidden(file.read_text()) == [], file.name


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Größe 你好\u3000世界 🙂\tb\nc", "Größe 你好\u3000世界 🙂\tb\nc"),
        ("a\r\nb\x00\x00\x00", "a<U+000D>\nb<U+0000 ×3>"),
        ("ab\u202ecd\u202c zero\u200bwidth", "ab<U+202E>cd<U+202C> zero<U+200B>width"),
        (
            "half \ud800 pair\u2028\ue000\u0378\xa0",
            "half <U+D800> pair<U+2028><U+E000><U+0378><U+00A0>",
        ),
        ("\ufe0f\U000e0041\u3164\u2800", "<U+FE0F><U+E0041><U+3164><U+2800>"),
    ],
)
def test_invisible_characters_are_named(text: str, expected: str) -> None:
    assert mark_hidden(text) == expected.replace("<", "⟦").replace(">", "⟧")


def test_long_texts_are_cut_and_json_is_indented() -> None:
    assert excerpt("0123456789", 4) == Excerpt("0123", 6)
    assert excerpt("0123456789", 10) == Excerpt("0123456789")
    assert json_excerpt('{"b":[1,"é"]}', 100).text == '{\n  "b": [\n    1,\n    "é"\n  ]\n}'
    assert json_excerpt("no json", 100).text == "no json"
    assert json_excerpt("[" * 100_000, 10).text == "[" * 10
    assert json_excerpt('"\\ud800"', 100).text == "⟦U+D800⟧"
