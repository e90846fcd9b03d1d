"""Figures: drawn from the data, readable as images, and only where there is something to draw."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from ace_ray.benchmarks.acebench.benchmark import ACEBench
from ace_ray.benchmarks.results import Curves, Estimate, Paper, ReportedRun
from ace_ray.benchmarks.sizes import size_of, without_size
from ace_ray.reports.html.page import inline_svg
from ace_ray.reports.runs import load_runs
from tests.report.builders import everything, write_run


def paper(*folders: Path, rules: str = "official") -> Paper:
    runs = load_runs([str(folder) for folder in folders])
    return ACEBench.paper([run.reported("acebench", ACEBench.statistics) for run in runs], rules)


def texts(figure: Curves) -> set[str]:
    tree = ET.fromstring(inline_svg(figure))
    return {"".join(node.itertext()).strip() for node in tree.iter("text")}


def curves(value: float) -> Curves:
    point = Estimate(value, (value - 0.1, value + 0.1), 10)
    return Curves("figure7", "Sizes", {"Normal": {"Toy": [(0.5, point), (7.0, point)]}})


def test_labels_legend_and_ticks_are_texts() -> None:
    assert {"Toy", "Normal", "500M", "7B", "accuracy (%) by parameters"} <= texts(curves(0.5))


def test_hostile_and_long_names_are_drawn_as_they_are() -> None:
    name = "</text><script>a & b\u202e"
    points = [(1.0, Estimate(0.5, (0.4, 0.6), 10))]
    figure = Curves("f", "t", {name: {"x" * 300 + "*": points}})
    found = texts(figure)
    assert "</text><script>a & b⟦U+202E⟧" in found
    (long,) = [text for text in found if "…" in text]
    assert len(long) <= 60
    assert long.endswith("*")


def test_many_steps_keep_the_last_label() -> None:
    points = [(float(step), Estimate(0.5, (0.4, 0.6), 9)) for step in range(100, 4100, 100)]
    found = texts(Curves("f", "t", {"G": {"T": points}}, axis="step"))
    assert "4,000" in found
    assert len([text for text in found if text.endswith("00")]) < 8


def test_many_sizes_do_not_put_ticks_on_top_of_each_other() -> None:
    point = Estimate(0.5, (0.4, 0.6), 10)
    sizes = [1.0, 1.1, 1.2, 70.0]
    figure = Curves("f", "t", {"Normal": {"Toy": [(size, point) for size in sizes]}})
    assert {"1B", "70B"} <= texts(figure)
    assert not {"1.1B", "1.2B"} & texts(figure)


def test_scaling_over_sizes_from_the_manifest_or_the_name(tmp_path: Path) -> None:
    folders = [
        write_run(tmp_path / "a", everything({"normal_preference": 0}), model="o/Toy-7B-Chat"),
        write_run(tmp_path / "b", everything({}), model="o/Toy-0.5B-Chat"),
        write_run(tmp_path / "c", everything({}), model="o/ckpt", parameters=3_000_000_000),
        write_run(tmp_path / "d", everything({}), model="o/unsized"),
        write_run(tmp_path / "e", everything({}), model="o/Toy-3B-Chat", samples=2),
    ]
    found = paper(*folders)
    (scaling,) = [figure for figure in found.figures if isinstance(figure, Curves)]
    assert list(scaling.panels) == ["Normal", "Special", "Agent", "Overall"]
    normal = scaling.panels["Normal"]
    assert list(normal) == ["Toy-Chat [1]", "ckpt [1]", "Toy-Chat [2]"]
    assert [(x, round(e.value, 3)) for x, e in normal["Toy-Chat [1]"]] == [(0.5, 1), (7, 0.917)]
    assert [x for x, _ in normal["ckpt [1]"]] == [3.0]
    notes = "\n".join(found.notes)
    assert "sizes from the model's name: Toy-7B-Chat 7B, Toy-0.5B-Chat 0.5B" in notes
    assert "sizes from the manifest's number of parameters: ckpt 3B" in notes
    assert "sizes unknown, not drawn: unsized" in notes


@pytest.mark.parametrize(
    ("model", "billions", "family"),
    [
        ("Qwen2.5-Coder-32B-Instruct", 32.0, "Qwen2.5-Coder-Instruct"),
        ("SmolLM2-135M-Instruct.Q4_1", 0.135, "SmolLM2-Instruct.Q4_1"),
        ("Llama-3.2-1.5b", 1.5, "Llama-3.2"),
        ("Mixtral-8x7B-v0.1", 56.0, "Mixtral-v0.1"),
        ("Qwen3-30B-A3B", 30.0, "Qwen3-A3B"),
        ("Phi-3-Mini-128k-Instruct", None, "Phi-3-Mini-128k-Instruct"),
        ("checkpoint-500", None, "checkpoint-500"),
        ("model-0B", None, "model"),
    ],
)
def test_sizes_in_names(model: str, billions: float | None, family: str) -> None:
    run = ReportedRun(model, model, {}, {}, {}, None, {}, [], True, "")
    size = size_of(run)
    assert (size.billions if size else None) == pytest.approx(billions)
    assert without_size(run.model) == family
