"""Whole runs on a local Ray with the fake engine: rows, resuming, S3, and the notebook."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ace_ray.benchmarks.acebench.data.loader import load, locate
from ace_ray.benchmarks.acebench.gold import render_gold
from ace_ray.storage.object_store import open_store
from ace_ray.storage.rows import ROWS
from tests.conftest import S3, Cli
from tests.e2e.conftest import Evaluate

pytestmark = [pytest.mark.ray, pytest.mark.nightly]

DOCS = Path(__file__).parents[2] / "docs"
CATEGORIES = ["normal_atom_bool", "special_incomplete"]
BENCHMARK = {"name": "acebench", "languages": ["en"], "categories": CATEGORIES}


def test_rows_are_judged_stored_and_resumed(evaluate: Evaluate, cli: Cli) -> None:
    entries = load(locate("mini"), languages=["en"], categories=CATEGORIES)
    replies = {entry.data["question"]: render_gold(entry) for entry in entries}
    wrong, thinker, fails, unclosed = [entry.data["question"] for entry in entries[:4]]
    replies[wrong] = "[nothing()]"
    replies[thinker] = f"<think>Let me see.</think>{replies[thinker]}"
    replies[unclosed] = "<think>Let me see, and see, and"
    engine = {"replies": replies, "fail": {fails: "no \ud800 luck"}}
    done = evaluate(code=75, benchmarks=[BENCHMARK], engine=engine, samples=2, rows_per_part=6)
    assert not (done.folder / "_SUCCESS").exists()
    rows = done.rows
    failed = [row for row in rows if row["status"] == "infra_error"]
    assert [row["official_valid"] for row in failed] == [None, None]

    parts = [pq.read_table(part) for part in done.folder.glob("rows/*.parquet")]
    assert pa.concat_tables(parts).schema.remove_metadata() == ROWS
    documented = (DOCS / "results.md").read_text()
    assert all(f"`{name}`" in documented for name in ROWS.names)

    by_id = {row["id"]: row for row in rows if row["sample"] == 0}
    first, second, _, fourth, *rest = [by_id[entry.id] for entry in entries]
    assert (first["official_valid"], first["strict_valid"]) == (False, False)
    assert (second["strict_valid"], second["reasoning"]) == (True, "Let me see.")
    assert (fourth["reasoning_truncated"], fourth["output"]) == (True, "")
    assert not fourth["strict_valid"]
    assert all(row["official_valid"] and row["strict_valid"] for row in rest)

    # The manifest is a config of the same run; the number of workers may change.
    manifest = done.folder / "run.json"
    again = cli("evaluate", manifest, "--set", "workers={min: 1, max: 2}", timeout_s=1800)
    assert "16 rows declared, 2 to evaluate" in again.stdout, again.stdout + again.stderr
    assert again.code == 75
    stored = sum(pq.read_metadata(part).num_rows for part in done.folder.glob("rows/*.parquet"))
    assert stored == 16 + 2
    other = cli("evaluate", manifest, "--set", "sampling.seed=1")
    assert other.code == 2
    assert "contains a different run" in other.stderr


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
