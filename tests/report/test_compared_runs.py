"""Checkpoints beside other models: what is compared with what."""

from __future__ import annotations

import csv
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ace_ray.benchmarks.acebench.options import CATEGORIES
from ace_ray.reports.compared_runs import (
    describe_pairs,
    make_pairs,
)
from ace_ray.reports.comparison import compare_runs
from ace_ray.reports.runs import load_runs
from tests.report.builders import everything, ledger_line, write_run, write_sweep
from tests.report.pages import Page, is_sound, report_page

SMALL, LARGE = "Qwen2.5-7B-Instruct", "Qwen2.5-72B-Instruct"
RIGHT = {SMALL: 8, LARGE: 9, "step_1000": 4, "step_2000": 5, "step_3000": 7}
"""Label -> entries of 10 that are right."""
STEPS = [label for label in RIGHT if label.startswith("step")]


def named(*names: str) -> list[Any]:
    """``a/3`` is step 3 of training a."""
    found = []
    for name in names:
        series, _, step = name.rpartition("/")
        found.append(
            SimpleNamespace(label=name, step=int(step) if series else None, training=series)
        )
    return found


@pytest.mark.parametrize(
    ("names", "pairs", "words"),
    [
        ("A B C", "A-B A-C", "Every run against A"),
        ("t/1 t/2", "t/1-t/2", "Every run against t/1"),
        ("t/1 t/2 t/3", "t/1-t/2 t/2-t/3", "Every checkpoint against the one before it"),
        # As a shell lists them.
        ("t/10 t/2 t/9", "t/9-t/10 t/2-t/9", "Every checkpoint against the one before it"),
        ("t/2 A", "t/2-A", "Every run against t/2"),
        (
            "A B t/1 t/2",
            "A-B t/1-t/2 A-t/2",
            "Every checkpoint against the one before it; the last of a training, and every other "
            "model, against A",
        ),
        (
            "t/1 t/2 u/1 u/2",
            "t/1-t/2 u/1-u/2 t/2-u/2",
            "Every checkpoint against the one before it; the last of a training, and every other "
            "model, against t/2",
        ),
    ],
)
def test_what_is_compared_with_what(names: str, pairs: str, words: str) -> None:
    runs = named(*names.split())
    found = make_pairs(runs, None)
    assert [f"{base}-{other}" for base, other in found] == pairs.split()
    assert len(found) == len(runs) - 1, "no more than with a baseline"
    assert describe_pairs(runs, found) == words


def test_a_baseline_is_that_of_all() -> None:
    assert make_pairs(named("A", "t/1", "t/2"), "t/1") == [("t/1", "A"), ("t/1", "t/2")]


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a sweep as in configs/sweep.yaml: two listed models and three checkpoints."""
    folder = tmp_path_factory.mktemp("mixed")
    lines = []
    for label in RIGHT:
        step = int(label.removeprefix("step_")) if label in STEPS else None
        source = f"/models/run-7/{label}" if step else f"Qwen/{label}"
        size = 72_700_000_000 if label == LARGE else 7_600_000_000
        lines.append(ledger_line(label, step=step, source=source, parameters=size))
    rows = {label: everything(dict.fromkeys(CATEGORIES, n)) for label, n in RIGHT.items()}
    report_page(write_sweep(folder / "sweep", lines, rows), out=folder / "out", paper=True)
    return folder / "out"


@pytest.mark.nightly
def test_steps_of_a_mixed_sweep_are_compared_with_steps(mixed: Path) -> None:
    with (mixed / "comparison.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert list(dict.fromkeys((line["base"], line["other"]) for line in lines)) == [
        (SMALL, LARGE),
        ("step_1000", "step_2000"),
        ("step_2000", "step_3000"),
        (SMALL, "step_3000"),
    ]
    page = Page((mixed / "report.html").read_bytes())
    is_sound(page)
    assert f"and every other model, against {SMALL}, entry by entry" in page.text
    assert "step_3000 is better than step_2000 on All" in page.text
    assert "Figure 7: sizes of checkpoints, not drawn: step_1000, step_2000" in page.text


@pytest.mark.nightly
def test_trainings_that_hold_other_benchmarks(tmp_path: Path) -> None:
    """What is compared is what both runs of a pair hold."""
    uris = []
    for name in ("org/A", "org/B", "t/step_1", "t/step_2"):
        folder = tmp_path / name.replace("/", "-")
        benchmark = "toy" if name.startswith("t/") else "acebench"
        rows = [{**row, "benchmark": benchmark} for row in everything({}, of=2)]
        write_run(folder, rows, model=name)
        text = (folder / "run.json").read_text().replace('"acebench"', f'"{benchmark}"')
        (folder / "run.json").write_text(text)
        uris.append(str(folder))
    comparison = compare_runs(load_runs(uris), rule_sets=["strict"])
    assert {line.hypothesis.section for line in comparison.results} == {
        ("strict", "A", "B", "acebench"),
        ("strict", "step_1", "step_2", "toy"),
    }
    assert "A has no rows of toy and is not compared there" in comparison.notes
