"""BFCL's mini set through a whole run on a real local Ray, with the engine that reads a script."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from ace_ray.benchmarks.bfcl.benchmark import BFCL
from ace_ray.benchmarks.bfcl.categories import MEMORY, MULTI_TURN
from ace_ray.benchmarks.bfcl.gold import gold_text
from ace_ray.storage.rows import episode_of, verdict_columns

pytestmark = [pytest.mark.ray, pytest.mark.nightly]

CATEGORIES = ["simple_python", "irrelevance", "multi_turn_base", "memory_kv", "memory_rec_sum"]


@pytest.fixture(scope="module")
def benchmark() -> BFCL:
    return BFCL.from_options({"categories": CATEGORIES})


def script(benchmark: BFCL) -> dict[str, str]:
    """Gold calls for the questions of simple_python, and a memory that takes a note."""
    replies = {
        entry.data["question"][0][-1]["content"]: gold_text(entry.gold, entry.data["function"])
        for entry in benchmark.entries()
        if entry.category == "simple_python"
    }
    return replies | {"hardest subject for me": "[memory_append(text='statistics is hard')]"}


def test_all_kinds_of_categories_in_one_run(cli: Any, tmp_path: Path, benchmark: BFCL) -> None:
    tree: dict[str, Any] = {
        "model": {"source": "fake"},
        "backend": "fake",
        "max_attempts": 1,
        "workers": 1,
        "benchmarks": [{"name": "bfcl", "categories": CATEGORIES}],
        "engine": {"default": "I cannot say.", "replies": script(benchmark)},
        "output": str(tmp_path / "runs"),
    }
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(tree))
    ended = cli("evaluate", path, timeout_s=1800)
    assert ended.code == 0, ended.stderr
    (folder,) = (tmp_path / "runs").iterdir()
    rows = pa.concat_tables(
        pq.read_table(part) for part in folder.glob("rows/*.parquet")
    ).to_pylist()
    entries = {entry.id: entry for entry in benchmark.entries()}
    assert Counter(row["id"] for row in rows) == Counter(list(entries))
    assert {row["status"] for row in rows} == {"scored"}
    valid = Counter(row["category"] for row in rows if row["official_valid"])
    declared = Counter(entry.category for entry in entries.values())
    assert valid["simple_python"] == declared["simple_python"]
    assert valid["irrelevance"] == declared["irrelevance"], "words are no call"
    assert not valid["multi_turn_base"]

    # A scenario's conversations are held once: they count for one row, all start from their memory.
    for category in ("memory_kv", "memory_rec_sum"):
        for scenario in ("student", "customer"):
            told = [
                row
                for row in rows
                if row["category"] == category and entries[row["id"]].data["scenario"] == scenario
            ]
            assert len({row["worker"] for row in told}) == 1
            assert sorted(row["model_calls"] > 1 for row in told) == [False, True]
            memories = {json.dumps(json.loads(row["state"])["memory"]) for row in told}
            assert len(memories) == 1
            noted = category == "memory_rec_sum" and scenario == "student"
            assert ("statistics is hard" in memories.pop()) is noted

    # Stored rows are judged again without an engine, to the same verdicts.
    for row in rows:
        again = verdict_columns(benchmark.check(entries[row["id"]], episode_of(row)))
        assert again == {name: row[name] for name in again}

    summary = json.loads((folder / "summary.json").read_text())["benchmarks"]["bfcl"]
    assert summary["rules"]["official"]["v4"]["overall"]["value"] is None
    assert set(summary["endings"]) == {c for c in CATEGORIES if c in (*MULTI_TURN, *MEMORY)}
    printed = " ".join(ended.stdout.split())
    assert "Overall (v4)" in printed
    assert "not comparable with any leaderboard" in printed
