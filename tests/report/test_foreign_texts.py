"""Texts of others in every file of a report and on the terminal: read as text, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.report.builders import row, write_run

NASTY = [
    "<img src=x onerror=pwned=1>",
    "[click](https://evil.example)",
    "![x](https://evil.example/x.png)",
    "a | b | c",
    "`code` ``` ~~~",
    "line\n\n# heading\n\n---\n\n| a |\n|---|\n",
    "\x1b[2J\x1b]0;title\x07\x9b31mred\r\x08",
    "a\u202edcba\u2066\u200b\u2028\u2029",
    "[red]rich[/] [/nothing] [link=https://evil.example]x[/link]",
    "https://evil.example www.evil.example me@evil.example",
    "&lt;b&gt; &#60; $x$ *a* _b_ ~~c~~",
    "=cmd|' /C calc'!A0",
    "# heading",
    "1. list",
    "- item",
]
CONTROLS = [chr(c) for c in (*range(32), 127, *range(128, 160)) if chr(c) != "\n"]
HIDDEN = ["\u202e", "\u2066", "\u200b", "\u2028", "\u2029"]


def nasty_run(folder: Path, text: str) -> Path:
    folder = folder / text.replace("/", "%").replace("\0", "")[:60]
    rows = []
    for number in range(3):
        made = row("en", "normal_atom_bool", number, official=number > 1)
        rows.append(
            {
                **made,
                "category": text if number == 1 else made["category"],
                "language": text if number == 1 else made["language"],
                "id": f"{text}{number}",
                "group": f"{text}{number}",
                "output": text,
                "finish_reason": text,
                "worker": text,
                "official_error": text,
                "strict_error": text,
                "official_error_type": text,
                "strict_error_type": text,
            }
        )
    rows.append({**row("en", "normal_atom_bool", 7, status="infra_error"), "error_class": text,
                 "error": text})  # fmt: skip
    write_run(folder, rows, model=f"org/{text}", run_id=text, max_unscored=1.0)
    manifest = json.loads((folder / "run.json").read_text())
    manifest |= {"ace_ray_version": text, "versions": {"vllm": text}, "machine": {"platform": text}}
    (folder / "run.json").write_text(json.dumps(manifest))
    summary = {
        "benchmarks": {"acebench": {"comparable": text}},
        "timing": {"engines": [{"versions": {"vllm": text}}]},
        "rescored": {"ace_ray_version": text},
    }
    (folder / "summary.json").write_text(json.dumps(summary))
    return folder


COMMANDS = {"report": [], "compare": ["--flips"]}


def written(folder: Path, text: str, here: Callable[..., Any]) -> dict[str, Path]:
    """Command -> the folder of what it writes on two runs full of ``text``."""
    runs = [nasty_run(folder / str(i), text) for i in range(2)]
    for command, more in COMMANDS.items():
        ended = here(command, *runs, "--out", folder / command, *more)
        said = ended.stdout + ended.stderr
        assert ended.code == 0, said
        assert not [sign for sign in (*CONTROLS, *HIDDEN) if sign in said]
    return {command: folder / command for command in COMMANDS}


OFTEN = {0, 5, 6, 8}
"""Of `NASTY`: those that are tried whenever tests run."""


@pytest.mark.parametrize(
    "text",
    [
        text if number in OFTEN else pytest.param(text, marks=pytest.mark.nightly)
        for number, text in enumerate(NASTY)
    ],
)
def test_a_foreign_text_is_text_everywhere(
    text: str, tmp_path: Path, here: Callable[..., Any]
) -> None:
    for folder in written(tmp_path, text, here).values():
        for file in sorted(folder.iterdir()):
            content = file.read_text()
            if file.suffix in (".csv", ".html"):
                controls = [s for s in (*CONTROLS, *HIDDEN) if s in content and s not in "\t\r"]
                assert not controls, f"{file.name}: {controls!a}"


@pytest.mark.parametrize(
    ("command", "text"), [("score", NASTY[5]), ("score", NASTY[8]), ("compact", NASTY[6])]
)
def test_a_refusal_names_a_foreign_text_on_one_line(
    command: str, text: str, tmp_path: Path, here: Callable[..., Any]
) -> None:
    ended = here(command, nasty_run(tmp_path, text))
    said = ended.stdout + ended.stderr
    assert not [sign for sign in (*CONTROLS, *HIDDEN) if sign in said]
    assert len(said.strip().splitlines()) <= 6
