"""Whole runs on a local Ray with the fake engine: on S3, and from the notebook."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import pytest

from ace_ray.storage.object_store import open_store
from tests.conftest import S3, Cli

pytestmark = [pytest.mark.ray, pytest.mark.nightly]

DOCS = Path(__file__).parents[2] / "docs"


def test_a_run_on_s3_is_complete_and_can_start_afresh(config: Path, cli: Cli, s3: S3) -> None:
    output = f"s3://{s3.bucket}/e2e"
    args = ["evaluate", config, "--output", output]

    def names() -> list[str]:
        return [item.path.partition("/")[2] for item in open_store(output).list()]

    done = cli(*args)
    assert done.code == 0, done.stdout + done.stderr
    assert "core_worker" not in done.stderr, "a warning of Ray"
    again = cli(*args, "--log-format", "json", "--log-level", "warning")
    assert (again.code, again.stderr) == (0, "")
    (results,) = map(json.loads, again.stdout.splitlines())
    assert (results["event"], results["scored"]) == ("results", 4)
    before = names()
    refused = cli(*args, "--set", "workers=4000", "--fresh")
    assert refused.code == 2, refused.stdout + refused.stderr
    assert names() == before
    (run,) = {item.path.partition("/")[0] for item in open_store(output).list()}
    store = open_store(f"{output}/{run}")
    summary = json.loads(store.get("summary.json") or b"")
    summary["timing"]["device_s"]["load"] = 1e6
    store.put("summary.json", json.dumps(summary).encode())
    fresh = cli(*args, "--fresh")
    assert "4 rows declared, 4 to evaluate" in fresh.stdout
    summary = json.loads(store.get("summary.json") or b"")
    assert summary["timing"]["device_s"]["load"] < 1e6, "the time of the deleted run is gone"
    assert {"_SUCCESS", "run.json", "summary.json"} <= set(names())


def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    notebook = DOCS.parent / "examples" / "from_python.ipynb"
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    names, printed = dict[str, Any](), io.StringIO()
    with contextlib.redirect_stdout(printed):
        for cell in cells:
            if cell["cell_type"] == "code":
                assert cell["outputs"] == []
                exec("".join(cell["source"]), names)  # noqa: S102 - the project's own notebook
    run = names["run"]
    assert (run.status, len(run.rows())) == ("complete", 8)
    assert "complete 8 of 8 rows scored" in printed.getvalue()
    assert (Path(run.uri) / "report" / "report.html").is_file()
