"""What a candidate keeps of a reference: shares, answers, lost answers and the printed report."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from ace_ray.reports.comparison import Comparison, compare_runs
from ace_ray.reports.comparison_tables import verdicts
from ace_ray.reports.lost_answers import FATES
from tests.report.builders import Row, block, everything, loaded, row, write_run
from tests.scripted_endpoint import call

CATEGORY = "normal_atom_bool"


def kept(folder: Path, *runs: list[Row], **settings: Any) -> Comparison:
    """Compare runs C1, C2, ... with the first run, R."""
    names = ["R", *(f"C{n}" for n in range(1, len(runs)))]
    folders = [
        write_run(folder / name, rows, model=f"o/{name}", **settings)
        for name, rows in zip(names, runs, strict=True)
    ]
    return compare_runs(loaded(*folders), reference="R", margin=1.0, rule_sets=["strict"])


def test_right_answers_are_kept_lost_and_gained(tmp_path: Path) -> None:
    reference = block("en", CATEGORY, 900, 1000)
    lost = [row("en", CATEGORY, i, official=i not in range(9) and i < 905) for i in range(1000)]
    worse = block("en", CATEGORY, 800, 1000)
    same = [*block("en", CATEGORY, 900, 990), *reference[990:]]
    comparison = kept(tmp_path, reference, lost, worse, same)
    line = comparison.kept[0]
    counts = ("n", "right", "still_right", "lost", "newly_right", "other_arguments")
    assert [line[name] for name in counts] == [1000, 900, 891, 9, 5, 9]
    assert (line["kept"], line["difference"]) == pytest.approx((0.99, -0.004))
    assert [k["not_worse"] for k in comparison.kept] == ["undecided", "no", "yes"]
    assert 0 < line["rows_to_decide"] < 3000
    first, second, third = verdicts(comparison.kept)
    assert first.startswith(f"C1 keeps 99.0 % [98.1, 99.5] of the right answers of R on {CATEGORY}")
    assert first.endswith(f"undecided, about {line['rows_to_decide']:,} more rows would decide")
    assert second.endswith("1 point: no")
    assert third.startswith("C3 keeps 100.0 % [99.6, 100.0] of the right")


def test_samples_count_by_their_shares_and_rows_without_a_verdict_do_not(tmp_path: Path) -> None:
    cells = [(i, sample) for i in range(20) for sample in (0, 1)]
    reference = [row("en", CATEGORY, i, sample=s) for i, s in cells]
    candidate = [row("en", CATEGORY, i, sample=s, official=i >= 4 or s > 0) for i, s in cells]
    candidate[-1] = row("en", CATEGORY, 19, sample=1, status="infra_error")
    line = kept(tmp_path, reference, candidate, samples=2).kept[0]
    assert [line[name] for name in ("n", "right", "lost", "unscored")] == [20, 39, 4, 1]
    assert line["kept"] == pytest.approx(1 - 4 * 0.5 / 20)


ARGUMENTS = json.dumps({"city": "Bonn"})


def answer(*calls: tuple[str, str], text: str = "", **changes: Any) -> Row:
    message: dict[str, Any] = {"role": "assistant", "content": text, "text": text}
    message["tool_calls"] = [call(name, arguments) for name, arguments in calls]
    stored = {"messages": json.dumps([message]), "tools": "[]", "output": text}
    return {**stored, **changes}


def prompted(text: str, **changes: Any) -> Row:
    messages = json.dumps([{"role": "assistant", "content": text}])
    return {"messages": messages, "tools": None, "output": text, **changes}


DUE, NONE_DUE = answer(("weather", ARGUMENTS)), answer(text="No tool fits.")
LOST: dict[str, tuple[Row, Row, str]] = {
    "malformed arguments": (DUE, answer(("weather", '{"city": ')), "malformed_call"),
    "unread format": (DUE, answer(text="x", second_reading="hermes"), "malformed_call"),
    "half a call as text": (prompted("[f(a=1)]"), prompted("[f(a="), "malformed_call"),
    "other name": (DUE, answer(("time", ARGUMENTS)), "other_call"),
    "two calls": (DUE, answer(*[("weather", ARGUMENTS)] * 2), "other_call"),
    "wrong count": (DUE, {**DUE, "strict_error_type": "f:wrong_count"}, "other_call"),
    "other value": (DUE, answer(("weather", '{"city": "Ulm"}')), "other_arguments"),
    "other value as text": (prompted("[f(a=1)]"), prompted("[f(a=2)]"), "other_arguments"),
    "words in place of a call": (DUE, answer(text="It rains."), "no_call"),
    "a call in place of words": (NONE_DUE, DUE, "undue_call"),
    "cut in a call": (DUE, answer(("f", "{"), finish_reason="length"), "cut_off"),
    "cut by a deadline": (DUE, answer(strict_metrics='{"ended_deadline": 1}'), "cut_off"),
    "prompt too long": (DUE, answer(strict_metrics='{"ended_context": 1}'), "engine_refusal"),
    "other words": (NONE_DUE, answer(text="Hello."), "other"),
}


@pytest.mark.parametrize(("before", "after", "fate"), LOST.values(), ids=LOST)
def test_lost_answers_have_a_reason(tmp_path: Path, before: Row, after: Row, fate: str) -> None:
    wrong: dict[str, Any] = {"errors": {"official": "wrong", "strict": "wrong"}}
    reference = [row("en", CATEGORY, i) | before for i in range(2)]
    candidate = [row("en", CATEGORY, i, official=False, **wrong) | after for i in range(2)]
    line = kept(tmp_path, reference, candidate).kept[0]
    assert {name: line[name] for name in FATES if line[name]} == {fate: 2}


def test_the_command_prints_40_lines_and_files_have_everything(tmp_path: Path, invoke: Any) -> None:
    rows, fewer = everything({}), everything({"special_incomplete": 2, "normal_preference": 5})
    runs = [
        write_run(tmp_path / name, chosen, model=f"o/{name}")
        for name, chosen in (("R", rows), ("A", fewer), ("B", rows), ("C", rows))
    ]
    out = tmp_path / "out"
    result = invoke("compare", *runs, "--reference", runs[0], "--output", out).ok()
    lines = result.stdout.splitlines()
    assert lines[0].startswith("A keeps 92.4 % [")
    assert "official and strict rules: what is kept of R" in result.stdout
    assert len(lines) <= 41  # with the line of the folder
    assert "more lines with --full" in result.stdout
    full = invoke("compare", *runs, "--reference", runs[0], "--full").stdout
    assert len(full.splitlines()) > 150
    assert full.count("(points of 100)") == 3, "a table per pair: both rule sets agree"
    page = (out / "report.html").read_text()
    assert page.index("A keeps 92.4 % [") < page.index("<section")
    stored = list(csv.DictReader((out / "kept.csv").open()))
    special = next(k for k in stored if (k["candidate"], k["group"]) == ("A", "special_incomplete"))
    assert (special["lost"], special["kept"], special["not_worse"]) == ("16", "0.2", "no")
    assert sum(int(special[fate]) for fate in FATES) == 16
