"""Checkpoints beside other models: what is compared with what, who is the best of whom."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, cast

import pytest

from ace_ray.benchmarks.acebench.categories import CATEGORIES
from ace_ray.reports.compared_runs import (
    ComparedRun,
    compared_runs,
    describe_pairs,
    make_pairs,
    rankings,
)
from ace_ray.reports.comparison import compare_runs
from ace_ray.reports.runs import load_runs
from tests.report.builders import everything, ledger_line, write_run, write_sweep
from tests.report.pages import Page, is_sound, report_page

SMALL, LARGE = "Qwen2.5-7B-Instruct", "Qwen2.5-72B-Instruct"
RIGHT = {SMALL: 8, LARGE: 9, "step_1000": 4, "step_2000": 5, "step_3000": 7}
"""Label -> entries of 10 that are right."""
STEPS = [label for label in RIGHT if label.startswith("step")]


def named(*names: str) -> list[ComparedRun]:
    """``a/3`` is step 3 of training a."""
    found = []
    for name in names:
        series, _, step = name.rpartition("/")
        found.append(ComparedRun(cast(Any, None), name, int(step) if series else None, series))
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


@pytest.mark.parametrize(
    ("names", "ranked"),
    [
        ("A B", {"": "A B"}),
        ("t/2 t/1", {"t": "t/1 t/2"}),
        ("A t/1 t/2", {"t": "t/1 t/2", "": "A t/1 t/2"}),
        ("A t/1", {"": "A t/1"}),
        ("t/1 t/2 u/1 u/2", {"t": "t/1 t/2", "u": "u/1 u/2", "": "t/1 t/2 u/1 u/2"}),
    ],
)
def test_who_is_ranked_with_whom(names: str, ranked: dict[str, str]) -> None:
    found = rankings(named(*names.split()))
    assert {series: " ".join(labels) for series, labels in found.items()} == ranked


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


@pytest.fixture(scope="module")
def tree(mixed: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((mixed / "comparison.json").read_text())
    return found


@pytest.mark.nightly
def test_steps_of_a_mixed_sweep_are_compared_with_steps(tree: dict[str, Any], mixed: Path) -> None:
    pairs = list(dict.fromkeys((line["base"], line["other"]) for line in tree["lines"]))
    assert pairs == [
        (SMALL, LARGE),
        ("step_1000", "step_2000"),
        ("step_2000", "step_3000"),
        (SMALL, "step_3000"),
    ]
    assert tree["baseline"] is None
    said = [line["sentence"] for line in tree["lines"] if line["shown"]]
    assert any(text.startswith("step_3000 is better than step_2000 on All") for text in said)
    page = Page((mixed / "report.html").read_bytes())
    is_sound(page)
    assert f"and every other model, against {SMALL}, entry by entry" in page.text


@pytest.mark.nightly
def test_a_mixed_sweep_names_its_best_checkpoint(tree: dict[str, Any], mixed: Path) -> None:
    best = {(one["series"], one["group"]): one["chosen"] for one in tree["best"]}
    for group in ("Special", "Normal", "All"):
        assert best["run-7", group] == "step_3000"
        assert best[None, group] == LARGE
    text = Page((mixed / "report.html").read_bytes()).text
    assert "run-7" in text
    assert "all runs" in text


def test_steps_are_no_sizes(tree: dict[str, Any], mixed: Path) -> None:
    for name in ("sizes-acebench-official", "figure7"):
        words = set(re.findall(r">([^<>]+)</text>", (mixed / f"{name}.svg").read_text()))
        assert "Qwen2.5-Instruct" in words, name
        assert not [word for word in words if "step" in word], name
    assert not [note for note in tree["notes"] if note.startswith("no law of step")]
    notes = (mixed / "report.md").read_text()
    assert r"Figure 7: sizes of checkpoints, not drawn: step\_1000, step\_2000" in notes


@pytest.mark.nightly
def test_one_listed_model_makes_no_curve_of_sizes(tmp_path: Path) -> None:
    """Nor does the paper's figure take its place."""
    lines = [ledger_line(SMALL, source=f"Qwen/{SMALL}", parameters=7_600_000_000)]
    lines += [ledger_line(label, step=n, parameters=1000 * n) for n, label in enumerate(STEPS, 1)]
    rows = {line["label"]: everything({}, of=2) for line in lines}
    content = report_page(write_sweep(tmp_path / "sweep", lines, rows), out=tmp_path / "out")
    assert not list((tmp_path / "out").glob("sizes-*"))
    assert not list((tmp_path / "out").glob("figure7*"))
    curves = content.decode().split('<section id="curves">')[1].split("</section>")[0]
    assert "training step" in curves
    assert "parameters" not in curves


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
    comparison = compare_runs(compared_runs(load_runs(uris)), rule_sets=["strict"])
    assert {line.hypothesis.section for line in comparison.results} == {
        ("strict", "A", "B", "acebench"),
        ("strict", "step_1", "step_2", "toy"),
    }
    assert "A does not hold toy: it is not compared there" in comparison.notes
