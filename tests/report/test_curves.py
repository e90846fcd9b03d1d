"""Laws over sizes, curves over steps, the best run and its curse."""

from __future__ import annotations

from collections.abc import Iterator
from math import log10
from pathlib import Path

import numpy as np
import pytest
from ace_ray.benchmarks.reporting import Curves, Estimate
from made_rows import column, made, side
from synthetic_runs import everything, write_run

from ace_ray.benchmarks.acebench.paper.reporting import REPORTING
from ace_ray.report.best import Best, best_runs, choosing_half
from ace_ray.report.compared import compared
from ace_ray.report.contenders import Contender, contenders_of
from ace_ray.report.figures import draw
from ace_ray.report.fits import Law, law_of, logistic
from ace_ray.report.lines import Side
from ace_ray.report.runs import load_run, load_runs


def point(value: float, n: int = 400) -> Estimate:
    return Estimate(value, (max(0.0, value - 0.05), min(1.0, value + 0.05)), n)


def law(*shares: tuple[float, float]) -> Law | str:
    return law_of([(size, point(share)) for size, share in shares])


def test_a_law_follows_the_sizes() -> None:
    sizes = [0.5, 1.5, 7.0, 32.0]
    truth = {size: logistic(-12 + 1.3 * log10(size * 1e9)) for size in sizes}
    found = law(*truth.items())
    assert isinstance(found, Law)
    assert found.slope == pytest.approx(1.3)
    assert found.interval[0] < 1.3 < found.interval[1]
    assert (found.sizes, found.smallest, found.largest) == (4, 0.5, 32.0)
    for size, share in truth.items():
        value, low, high = found.at(size)
        assert value == pytest.approx(share)
        assert 0 < low < value < high < 1


def test_the_band_covers_the_sizes_and_no_more() -> None:
    found = law((1, 0.4), (3, 0.5), (7, 0.55), (14, 0.7))
    assert isinstance(found, Law)
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
    found = law(*shares)
    assert isinstance(found, str)
    assert why in found


def test_scattered_models_say_so() -> None:
    found = law((1, 0.2), (3, 0.7), (7, 0.3), (14, 0.8))
    assert isinstance(found, Law)
    assert found.dispersion > 20
    assert found.interval[0] < 0 < found.interval[1]


def test_the_logistic_does_not_overflow() -> None:
    assert (logistic(-1e4), logistic(0), logistic(1e4)) == (0, 0.5, 1)


def sweep(tmp_path: Path, *right: int) -> list[Contender]:
    """Checkpoints 1000, 2000, ... with so many of 10 entries right in most categories."""
    uris = []
    for number, count in enumerate(right, start=1):
        rows = everything({c: count for members in REPORTING.groups().values() for c in members})
        uris.append(
            str(write_run(tmp_path / f"s{number}", rows, model=f"train-a/checkpoint-{number}000"))
        )
    return contenders_of(load_runs(uris))


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
    (found,) = contenders_of([run])
    assert (found.step, found.series) == (step, series)


def test_curves_over_steps(tmp_path: Path) -> None:
    comparison = compared(sweep(tmp_path, 3, 5, 8), rule_sets=["strict"])
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
        assert draw(figure, form)  # type: ignore[arg-type]


def test_a_law_of_a_family_and_none_of_a_pair(tmp_path: Path) -> None:
    uris = []
    for name, count in (("Toy-1B", 3), ("Toy-3B", 5), ("Toy-7B", 8), ("Bar-1B", 2), ("Bar-7B", 4)):
        rows = everything({c: count for members in REPORTING.groups().values() for c in members})
        uris.append(str(write_run(tmp_path / name, rows, model=f"o/{name}")))
    comparison = compared(contenders_of(load_runs(uris)), rule_sets=["strict"])
    (figure,) = comparison.curves
    assert (figure.axis, list(figure.panels["Agent"])) == ("parameters", ["Toy", "Bar"])
    assert list(figure.bands["Agent"]) == ["Toy"]
    (laws,) = comparison.laws
    assert all(series == "Toy" and found.slope > 0 for (_, series), found in laws.laws.items())
    assert "no law of Bar on Agent (strict rules): 2 of the 3 sizes it needs" in comparison.notes


def test_one_step_and_one_size_make_no_curve(tmp_path: Path) -> None:
    uris = [
        str(write_run(tmp_path / name, everything({}), model=f"o/{name}"))
        for name in ("A-step_1", "B-step_2", "C-7B", "D-3B")
    ]
    assert compared(contenders_of(load_runs(uris))).curves == []


def figure(**more: object) -> Curves:
    panels = {"G": {"T": [(1.0, point(0.4)), (7.0, point(0.6))]}}
    return Curves("f", "t", panels, **more)  # type: ignore[arg-type]


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


def best_among(ranked: Side) -> Iterator[Best]:
    return best_runs(ranked, "strict", ranked.labels)


def test_the_best_run_is_chosen_on_one_half() -> None:
    rng = np.random.default_rng(0)
    runs = [column(rng.random(400) < share) for share in (0.4, 0.6, 0.5)]
    compared_side = side(*runs)
    (best,) = best_among(compared_side)
    half = choosing_half(compared_side)
    values = [np.array([row.verdicts["strict"].valid for row in run]) for run in runs]
    order = [int(unit[2]) for unit in compared_side.cells.units]
    assert (best.chosen, best.highest) == ("r1", "r1")
    assert best.choosing.value == pytest.approx(values[1][order][half].mean())
    assert best.held_out.value == pytest.approx(values[1][order][~half].mean())
    assert best.choosing.n + best.held_out.n == best.everything.n == 400
    assert 160 < half.sum() < 240


def test_the_winner_s_curse_is_gone_from_the_held_out_half() -> None:
    """Twenty equal runs: the best looks better than it is, but not on the entries held out."""
    rng = np.random.default_rng(1)
    chosen, held = [], []
    for _ in range(20):
        (best,) = best_among(side(*(column(rng.random(100) < 0.5) for _ in range(20))))
        chosen.append(best.choosing.value)
        held.append(best.held_out.value)
    assert np.mean(chosen) > 0.58
    assert np.mean(held) == pytest.approx(0.5, abs=0.035)


def test_halves_keep_dialogues_and_tasks_whole_and_do_not_depend_on_the_rest() -> None:
    rows = [made(True, f"{d}_{t}", group=str(d)) for d in range(40) for t in range(3)]
    alone, more = side(rows), side([*rows, *column([True] * 9, category="d")])
    halves = [
        dict(zip(s.cells.units, choosing_half(s).tolist(), strict=True)) for s in (alone, more)
    ]
    assert all(halves[1][unit] == half for unit, half in halves[0].items())
    tasks = side(column([True] * 40), task=lambda row: str(int(row.id) // 2))
    by_task: dict[int, set[bool]] = {}
    for unit, half in zip(tasks.cells.units, choosing_half(tasks).tolist(), strict=True):
        by_task.setdefault(int(unit[2]) // 2, set()).add(half)
    assert all(len(found) == 1 for found in by_task.values())


def test_runs_are_ranked_on_entries_that_all_have() -> None:
    """A run that lacks what it would get wrong is not the best."""
    whole = column([True] * 60 + [False] * 40)
    lucky = [*column([True] * 60), *(made(False, str(i), status="skipped") for i in range(60, 100))]
    (best,) = best_among(side(whole, lucky))
    assert (best.chosen, best.tied, best.everything.n) == ("r0", ("r1",), 60)


def test_no_best_run_without_two_halves() -> None:
    assert list(best_among(side(column([True]), column([False])))) == []
