"""``ace_ray.evaluate`` on a local Ray, and the notebook that shows it."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import ace_ray

NOTEBOOK = Path(__file__).parents[2] / "examples" / "from_python.ipynb"


@pytest.mark.ray
@pytest.mark.nightly
def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    assert all(cell["outputs"] == [] for cell in cells if cell["cell_type"] == "code")
    names, printed = dict[str, Any](), io.StringIO()
    with contextlib.redirect_stdout(printed):
        for cell in cells:
            if cell["cell_type"] == "code":
                exec("".join(cell["source"]), names)  # noqa: S102 - the project's own notebook
    run = names["run"]
    assert (run.status, len(run.rows())) == ("complete", 8)
    assert "complete 8 of 8 rows scored" in printed.getvalue()
    assert "[assistant]" in printed.getvalue()
    assert (Path(run.uri) / "report" / "report.html").is_file()
    # The same call again returns the run, and evaluates nothing.
    progress = io.StringIO()
    again = ace_ray.evaluate(
        model="none",
        benchmarks=[{"name": "acebench", "languages": ["en"]}],
        limit=8,
        backend="fake",
        output="runs",
        console=Console(file=progress),
    )
    assert again.uri == run.uri
    assert "0 to evaluate" in progress.getvalue()
