"""Fits over sizes and curves over steps."""

from __future__ import annotations

from math import log10
from pathlib import Path

import pytest

from ace_ray.benchmarks.acebench.benchmark import ACEBench
from ace_ray.benchmarks.results import Curves, Estimate
from ace_ray.reports.compared_runs import ComparedRun, compared_runs
from ace_ray.reports.comparison import compare_runs
from ace_ray.reports.curves import ScalingFit, logistic, scaling_fit
from ace_ray.reports.figures import draw
from ace_ray.reports.runs import load_runs
from tests.report.builders import everything, load_run, write_run


def point(value: float, n: int = 400) -> Estimate:
    return Estimate(value, (max(0.0, value - 0.05), min(1.0, value + 0.05)), n)


def fitted(*shares: tuple[float, float]) -> ScalingFit | str:
    return scaling_fit([(size, point(share)) for size, share in shares])


def test_a_law_follows_the_sizes() -> None:
    sizes = [0.5, 1.5, 7.0, 32.0]
    truth = {size: logistic(-12 + 1.3 * log10(size * 1e9)) for size in sizes}
    found = fitted(*truth.items())
    assert isinstance(found, ScalingFit)
    assert found.slope == pytest.approx(1.3)
    assert found.interval[0] < 1.3 < found.interval[1]
    assert (found.sizes, found.smallest, found.largest) == (4, 0.5, 32.0)
    for size, share in truth.items():
        value, low, high = found.at(size)
        assert value == pytest.approx(share)
        assert 0 < low < value < high < 1


def test_the_band_covers_the_sizes_and_no_more() -> None:
    found = fitted((1, 0.4), (3, 0.5), (7, 0.55), (14, 0.7))
    assert isinstance(found, ScalingFit)
    band = found.band()
    assert band[0][0] == pytest.approx(1)
    assert band[-1][0] == pytest.approx(14)
    assert all(low <= value <= high for _, value, low, high in band)
    middle, edge = band[len(band) // 2], band[-1]
    assert middle[3] - middle[2] < edge[3] - edge[2]


@pytest.mark.parametrize(
    ("shares", "why"),
    [
        ([], "0 of the 3 sizes"),
        ([(7, 0.5)], "1 of the 3 sizes"),
        ([(1, 0.4), (7, 0.5), (7, 0.6)], "2 of the 3 sizes"),
        ([(1, 0.0), (3, 0.0), (7, 0.0)], "all 0, all 1"),
        ([(1, 1.0), (3, 1.0), (7, 1.0)], "all 0, all 1"),
        ([(1, 0.0), (3, 0.0), (7, 1.0)], "jump"),
    ],
)
def test_no_law_and_why(shares: list[tuple[float, float]], why: str) -> None:
    found = fitted(*shares)
    assert isinstance(found, str)
    assert why in found


def test_scattered_models_say_so() -> None:
    found = fitted((1, 0.2), (3, 0.7), (7, 0.3), (14, 0.8))
    assert isinstance(found, ScalingFit)
    assert found.dispersion > 20
    assert found.interval[0] < 0 < found.interval[1]


def test_the_logistic_does_not_overflow() -> None:
    assert (logistic(-1e4), logistic(0), logistic(1e4)) == (0, 0.5, 1)


def sweep(tmp_path: Path, *right: int) -> list[ComparedRun]:
    """Checkpoints 1000, 2000, ... with so many of 10 entries right in most categories."""
    uris = []
    for number, count in enumerate(right, start=1):
        rows = everything({c: count for members in ACEBench.groups.values() for c in members})
        uris.append(
            str(write_run(tmp_path / f"s{number}", rows, model=f"train-a/checkpoint-{number}000"))
        )
    return compared_runs(load_runs(uris))


def test_steps_come_from_the_names_of_checkpoints(tmp_path: Path) -> None:
    found = [(c.label, c.step, c.series) for c in sweep(tmp_path, 3, 5)]
    assert found == [("checkpoint-1000", 1000, "train-a"), ("checkpoint-2000", 2000, "train-a")]


@pytest.mark.parametrize(
    ("model", "step", "series"),
    [
        ("o/Toy-7B-step_300", 300, "Toy-7B"),
        ("o/global_step42", 42, "o"),
        ("o/Toy-7B", None, ""),
        ("o/Misstep9", None, ""),
        ("o/Toy-step-9-Instruct", None, ""),
        ("o/iter=0007", 7, "o"),
    ],
)
def test_names_with_and_without_steps(
    tmp_path: Path, model: str, step: float | None, series: str
) -> None:
    run = load_run(str(write_run(tmp_path / "run", everything({}), model=model)))
    (found,) = compared_runs([run])
    assert (found.step, found.series) == (step, series)


@pytest.mark.nightly
def test_curves_over_steps(tmp_path: Path) -> None:
    comparison = compare_runs(sweep(tmp_path, 3, 5, 8), rule_sets=["strict"])
    (figure,) = comparison.curves
    assert (figure.name, figure.axis) == ("steps-acebench-strict", "step")
    assert list(figure.panels) == [
        "Atom",
        "Single-Turn",
        "Multi-Turn",
        "Normal",
        "Special",
        "Agent",
        "All",
    ]
    points = figure.panels["Special"]["train-a"]
    assert [(x, found.value, found.n) for x, found in points] == [
        (1000, 0.3, 60),
        (2000, 0.5, 60),
        (3000, 0.8, 60),
    ]
    for form in ("png", "svg"):
        assert draw(figure, form)


@pytest.mark.nightly
def test_a_law_of_a_family_and_none_of_a_pair(tmp_path: Path) -> None:
    uris = []
    for name, count in (("Toy-1B", 3), ("Toy-3B", 5), ("Toy-7B", 8), ("Bar-1B", 2), ("Bar-7B", 4)):
        rows = everything({c: count for members in ACEBench.groups.values() for c in members})
        uris.append(str(write_run(tmp_path / name, rows, model=f"o/{name}")))
    comparison = compare_runs(compared_runs(load_runs(uris)), rule_sets=["strict"])
    (figure,) = comparison.curves
    assert (figure.axis, list(figure.panels["Agent"])) == ("parameters", ["Toy", "Bar"])
    assert list(figure.bands["Agent"]) == ["Toy"]
    (fits,) = comparison.scaling_fits
    assert all(series == "Toy" and fit.slope > 0 for (_, series), fit in fits.fits.items())
    assert "no law of Bar on Agent (strict rules): 2 of the 3 sizes it needs" in comparison.notes


@pytest.mark.nightly
def test_one_step_and_one_size_make_no_curve(tmp_path: Path) -> None:
    uris = [
        str(write_run(tmp_path / name, everything({}), model=f"o/{name}"))
        for name in ("A-step_1", "B-step_2", "C-7B", "D-3B")
    ]
    assert compare_runs(compared_runs(load_runs(uris))).curves == []


def figure(**more: object) -> Curves:
    panels = {"G": {"T": [(1.0, point(0.4)), (7.0, point(0.6))]}}
    return Curves("f", "t", panels, **more)  # type: ignore[arg-type]


@pytest.mark.nightly
def test_the_band_and_the_axis_are_drawn() -> None:
    plain = draw(figure(), "svg")
    band = [(1.0, 0.4, 0.3, 0.5), (7.0, 0.6, 0.5, 0.7)]
    with_band = draw(figure(bands={"G": {"T": band}}), "svg")
    steps = draw(figure(axis="step"), "svg")
    assert len({plain, with_band, steps}) == 3
    assert b"parameters" in plain
    assert b"training step" in steps
    assert draw(figure(bands={"G": {"T": band}}), "svg") == with_band


def test_many_steps_keep_the_last_label() -> None:
    points = [(float(step), point(0.5)) for step in range(100, 4100, 100)]
    drawn = draw(Curves("f", "t", {"G": {"T": points}}, axis="step"), "svg")
    assert b"4,000" in drawn
    assert drawn.count(b"00</text>") < 12
