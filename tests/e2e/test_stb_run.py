"""StableToolBench's mini set through whole runs on a real local Ray: agent, simulator and judge are
one engine that reads a script, and a second run needs no simulator."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from ace_ray.benchmarks.stabletoolbench.benchmark import StableToolBench
from ace_ray.benchmarks.stabletoolbench.tools import apis_of

pytestmark = [pytest.mark.ray, pytest.mark.nightly]

GROUPS = ["G1_tool", "G3_instruction"]
ANSWER = '{"return_type": "give_answer", "final_answer": "42"}'
FINISH = f"Thought: I know.\nAction: Finish\nAction Input: {ANSWER}"


def script() -> dict[str, Any]:
    """One call of a query's first function, then Finish; the keys of the others come first."""
    replies = {
        "Documentation:": '{"error": "", "response": {"found": 42}}',
        "DATA: ": '{"reason": "it says so", "status": "Solved"}',
    }
    for entry in StableToolBench.from_options({"apis": ["cache"]}).entries():
        name = apis_of(entry)[0].name
        replies[entry.data["query"]] = f"Thought: I look.\nAction: {name}\nAction Input: {{}}"
    return {"default": FINISH, "replies": replies}


def rows_of(runs: Path) -> list[dict[str, Any]]:
    (folder,) = runs.iterdir()
    table = pa.concat_tables(pq.read_table(part) for part in folder.glob("rows/*.parquet"))
    return sorted(table.to_pylist(), key=lambda row: row["id"])


def test_a_second_run_comes_from_the_cache(cli: Any, tmp_path: Path) -> None:
    runs = {}
    for name, cache in (("first", "readwrite"), ("second", "read")):
        tree: dict[str, Any] = {
            "model": {"source": "fake"},
            "backend": "fake",
            "max_attempts": 1,
            "workers": 1,
            "benchmarks": [
                {
                    "name": "stabletoolbench",
                    "groups": GROUPS,
                    "mode": "react",
                    "votes": 2,
                    "cache": cache,
                    "cache_folder": str(tmp_path / "answers"),
                }
            ],
            "engine": script(),
            "output": str(tmp_path / name),
        }
        path = tmp_path / f"{name}.yaml"
        path.write_text(yaml.safe_dump(tree))
        ended = cli("evaluate", path, timeout_s=1800)
        assert ended.code == 0, ended.stderr
        runs[name] = rows_of(tmp_path / name)
        assert "SoPR" in ended.stdout
    first, second = runs.values()
    assert len(first) == len(second) == 4
    same = ("id", "messages", "output", "official_valid", "strict_valid", "model_calls")
    assert [[row[key] for key in same] for row in first] == [
        [row[key] for key in same] for row in second
    ]
    assert all(row["official_valid"] and row["strict_valid"] for row in first)
    for rows, source in ((first, "simulator"), (second, "cache")):
        for row in rows:
            assert [call["source"] for call in json.loads(row["state"])["calls"]] == [source]
    (folder,) = (tmp_path / "second").iterdir()
    files = folder / "files" / "stabletoolbench"
    result = folder / "results" / "tools" / f"fake_{'+'.join(GROUPS)}.json"
    assert json.loads(result.read_text())["summary"]["solved_count"] == 4
    assert {path.stem for path in (files / "converted").iterdir()} == set(GROUPS)
    summary = json.loads((folder / "summary.json").read_text())["benchmarks"]["stabletoolbench"]
    assert summary["sources"]["counts"]["cache"] == 4
