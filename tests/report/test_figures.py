"""Figures: readable as images, and drawn only where two runs differ in size or step."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from ace_ray.benchmarks.acebench.benchmark import ACEBench
from ace_ray.benchmarks.results import Curves, Estimate, ReportedRun
from ace_ray.benchmarks.sizes import parameters_named, size_of, without_size
from ace_ray.reports.content import content_of
from ace_ray.reports.figures import inline_svg
from ace_ray.reports.runs import load_runs
from tests.report.builders import block, everything, write_run

POINT = Estimate(0.5, (0.4, 0.6), 10)


def texts(axis: str, *places: float, group: str = "G", name: str = "T") -> set[str]:
    """Return the texts in a figure with one curve over ``places``."""
    panels = {group: {name: [(place, POINT) for place in places]}}
    tree = ET.fromstring(inline_svg(Curves("f", "t", panels, axis=axis)))
    return {"".join(node.itertext()).strip() for node in tree.iter("text")}


def test_labels_legend_and_ticks_are_texts() -> None:
    found = texts("parameters", 0.5, 7.0, name="Toy")
    assert {"Toy", "G", "500M", "7B", "accuracy (%) by parameters"} <= found
    sizes = texts("parameters", 1.0, 1.1, 1.2, 70.0)
    assert {"1B", "70B"} <= sizes
    assert not {"1.1B", "1.2B"} & sizes, "ticks do not overlap"
    steps = texts("step", *range(100, 4100, 100))
    assert "4,000" in steps, "the last step has a label"
    assert len([text for text in steps if text.endswith("00")]) < 8


def test_hostile_and_long_names_are_drawn_as_they_are() -> None:
    found = texts("step", 1.0, group="</text><script>a & b\u202e", name="x" * 300 + "*")
    assert "</text><script>a & b⟦U+202E⟧" in found
    (long,) = [text for text in found if "…" in text]
    assert len(long) <= 60
    assert long.endswith("*")


def test_scaling_uses_sizes_of_the_manifest_or_the_name(tmp_path: Path) -> None:
    models: dict[str, Any] = {"Toy-7B-Chat": {}, "Toy-0.5B-Chat": {}, "unsized": {}}
    models |= {name: {"parameters": 3_000_000_000} for name in ("other", "step_9")}
    models["Toy-3B-Chat"] = {"samples": 2}
    folders = []
    for name, more in models.items():
        rows = everything({"normal_preference": 0 if "7B" in name else 2}, of=2)
        folders.append(str(write_run(tmp_path / name, rows, model=f"o/{name}", **more)))
    runs = load_runs(folders)
    found = ACEBench.paper(
        [run.reported("acebench", ACEBench.statistics) for run in runs], "official"
    )
    (scaling,) = [figure for figure in found.figures if isinstance(figure, Curves)]
    assert list(scaling.panels) == ["Normal", "Special", "Agent", "Overall"]
    normal = scaling.panels["Normal"]
    assert list(normal) == ["Toy-Chat [1]", "other [1]", "Toy-Chat [2]"]
    assert [(x, round(e.value, 3)) for x, e in normal["Toy-Chat [1]"]] == [(0.5, 1), (7, 0.917)]
    assert [x for x, _ in normal["other [1]"]] == [3.0]
    notes = "\n".join(found.notes)
    assert "sizes from the model's name: Toy-7B-Chat 7B, Toy-0.5B-Chat 0.5B" in notes
    assert "sizes from the manifest's number of parameters: other 3B" in notes
    assert "sizes unknown, not drawn: unsized" in notes
    assert "sizes of checkpoints, not drawn: step_9" in notes


@pytest.mark.parametrize(
    ("model", "billions", "family"),
    [
        ("Qwen2.5-Coder-1.5B-Instruct.Q4_1", 1.5, "Qwen2.5-Coder-Instruct.Q4_1"),
        ("SmolLM2-135M", 0.135, "SmolLM2"),
        ("Mixtral-8x7B-v0.1", 56.0, "Mixtral-v0.1"),
        ("Qwen3-30B-A3B", 30.0, "Qwen3-A3B"),
        ("Phi-3-Mini-128k-Instruct", None, "Phi-3-Mini-128k-Instruct"),
        ("checkpoint-500", None, "checkpoint-500"),
        ("model-0B", None, "model"),
    ],
)
def test_sizes_are_read_from_names(model: str, billions: float | None, family: str) -> None:
    size = size_of(ReportedRun(model, model, {}, {}, {}, None, {}, [], True, ""))
    assert (size.billions if size else None) == pytest.approx(billions)
    assert parameters_named(model) == (None if billions is None else round(billions * 1e9))
    assert without_size(model) == family


@pytest.mark.parametrize(
    ("models", "axis", "curves"),
    [
        ("o/Toy-3B o/Toy-7B o/Other-1B o/x", "parameters", {"Toy": [3.0, 7.0], "Other": [1.0]}),
        ("train-a/step_200 train-a/step_100 o/Toy-3B", "step", {"train-a": [100, 200]}),
        ("o/Toy-3B o/Other-3B", "", {}),
    ],
)
def test_the_overview_is_drawn_by_size_or_step(
    tmp_path: Path, models: str, axis: str, curves: dict[str, list[float]]
) -> None:
    rows = block("en", "normal_atom_bool", 2, 4)
    folders = [str(write_run(tmp_path / m, rows, model=m)) for m in models.split()]
    picture = content_of(load_runs(folders), None, "strict").benchmarks[0].picture
    assert (picture.axis if picture else "") == axis
    normal = picture.panels["Normal"] if picture else {}
    assert {name: [x for x, _ in points] for name, points in normal.items()} == curves
    assert all(share.partial for points in normal.values() for _, share in points)
