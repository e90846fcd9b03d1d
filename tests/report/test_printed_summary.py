"""The summary of a run in a terminal: short, narrow, complete."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from rich.console import Console

from ace_ray.benchmarks.acebench.benchmark import ACEBench
from ace_ray.benchmarks.headline import few, scores_of, titles
from ace_ray.benchmarks.registry import make_benchmark
from ace_ray.benchmarks.results import Estimate, Score
from ace_ray.pipeline.summary import summarize
from ace_ray.reports.printed_summary import WIDTH, print_summary
from ace_ray.reports.runs import load_runs
from tests.report.builders import block, write_run


def printed(summary: dict[str, Any], *, full: bool = False) -> list[str]:
    out = io.StringIO()
    print_summary(summary, Console(file=out, width=WIDTH), full=full)
    return out.getvalue().splitlines()


def summary_of(folder: Path, valid: dict[str, int], missing: int = 0) -> dict[str, Any]:
    """Summarize English rows of ACEBench, four of each category, ``valid`` of them right."""
    rows = [row for category, n in valid.items() for row in block("en", category, n, 4)]
    (run,) = load_runs([str(write_run(folder, rows))])
    manifest = {
        "run_id": "r",
        "model": {"source": "m"},
        "declared": len(rows) + missing,
        "config": {"backend": "vllm", "limit": None, "max_unscored": 0.0},
    }
    benchmarks: Any = {"acebench": make_benchmark("acebench", {})}
    return {**summarize(manifest, benchmarks, lambda: iter(run.rows), {}), "uri": "/runs/r"}


def test_a_summary_has_about_ten_lines_of_72_columns(tmp_path: Path) -> None:
    found = summary_of(tmp_path / "run", {"special_incomplete": 3, "special_error_param": 1})
    lines = printed(found)
    assert len(lines) <= 11
    assert max(map(len, lines)) <= WIDTH
    assert lines[0] == "acebench"
    assert lines[1].split()[:5] == ["official,", "strict", "Overall", "(workbook)", "50.0"]
    text = " ".join(" ".join(lines).split())
    assert "Overall (workbook) is partial; not run: en/" in text
    assert "N/A" not in text
    assert "Special 50.0 partial" in text
    assert lines[-1] == "results: /runs/r"
    assert not any("special_incomplete" in line for line in lines)
    assert any("special_incomplete" in line for line in printed(found, full=True))
    # summary.json has the headline that reports make from the same rows.
    part = found["benchmarks"]["acebench"]
    (first, *_) = scores_of(ACEBench, part, headline=True)["official"]
    assert Score.of_json(part["scores"]["official"][0]) == first
    # An incomplete run has no headline.
    found = summary_of(tmp_path / "part", {"special_incomplete": 3}, missing=1)
    text = " ".join(" ".join(printed(found)).split())
    assert "official, strict Overall (workbook) N/A" in text
    assert "no headline number: 1 of 5 rows have no verdict, max_unscored is 0" in text


def test_formulas_are_named_where_they_differ() -> None:
    share = Estimate(0.5, (0.4, 0.6), 10)
    names = [("Overall", "v4"), ("Live", "v4"), ("Overall", "v3")]
    assert titles([Score(*name, share) for name in names]) == [
        "Overall (v4)",
        "Live",
        "Overall (v3)",
    ]
    assert (few("abc"), few("abcd")) == ("a, b, c", "a, b and 2 more")
