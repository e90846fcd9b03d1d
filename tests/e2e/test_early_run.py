"""A run stops when its comparison is decided, with the fake engine."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = [pytest.mark.ray, pytest.mark.nightly]

ITEMS = 900
BENCHMARK = f"""
from ace_ray.benchmarks.base import Benchmark
from ace_ray.types import Entry, Verdict

class Items(Benchmark):
    name = "items"
    groups = {{"all": ["first", "second"]}}

    def entries(self):
        return [
            Entry(
                id=f"<{{number:04}}>",
                category="first" if number % 3 else "second",
                group=f"g{{number // 6}}" if number % 3 == 1 else "",
                prompt=f"Item <{{number:04}}>?",
                gold="yes",
            )
            for number in range({ITEMS})
        ]

    def check(self, entry, episode):
        return Verdict(episode.output != "no", "" if episode.output != "no" else "no")
"""


def run_config(folder: Path, name: str, right: float, **early: Any) -> Path:
    """Answer the share ``right`` rightly; a larger share includes the entries of a smaller one."""
    (folder / "items.py").write_text(BENCHMARK)
    drawn = random.Random(1)
    wrong = [number for number in range(ITEMS) if drawn.random() >= right]
    delay_s = 0.0 if name == "reference" else 0.4
    engine = {"default": "yes", "replies": {f"<{number:04}>": "no" for number in wrong}}
    tree: dict[str, Any] = {
        "model": {"source": "fake"},
        "benchmarks": [{"name": f"{folder}/items.py:Items"}],
        "backend": "fake",
        "concurrency": 16,
        "rows_per_part": 16,
        "output": str(folder / "runs"),
        "run_id": name,
        "engine": {**engine, "delay_s": delay_s, "exponential": delay_s > 0},
    }
    if name != "reference":
        tree["early"] = {"reference": str(folder / "runs" / "reference"), "min_rows": 60, **early}
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(tree))
    return path


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def test_a_run_stops_and_can_be_completed(invoke: Any, tmp_path: Path) -> None:
    result = invoke("evaluate", run_config(tmp_path, "reference", 0.5))
    assert result.code == 0, result.stdout
    reference, config = tmp_path / "runs" / "reference", run_config(tmp_path, "better", 0.8)
    result = invoke("evaluate", config)
    assert result.code == 0, result.stdout + result.stderr
    assert "items/correct against" in result.stdout
    run = tmp_path / "runs" / "better"
    assert not (run / "_SUCCESS").exists()
    summary = read(run / "summary.json")
    stopped = summary["early"]["headlines"]["items/correct"]
    assert summary["early"]["stopped"]
    assert not summary["headline"]
    assert summary["missing"] > 0
    assert stopped["outcome"] == "better"
    assert 0 < stopped["low"] < 0.3 < stopped["high"]
    manifest = read(run / "run.json")
    assert manifest["early"]["orders"]["items"]["units"] < ITEMS, "entries of a group are one unit"

    # The same command evaluates nothing more, and the runs cannot be compared.
    assert invoke("evaluate", config).code == 0
    assert read(run / "summary.json")["missing"] == summary["missing"]
    refused = invoke("compare", reference, run, "--allow-different")
    assert refused.code == 2
    assert "was stopped when its comparison was decided" in refused.stderr
    refused = invoke("evaluate", run_config(tmp_path, "better", 0.8, alpha=0.2))
    assert refused.code == 2
    assert "begun with early.alpha = 0.05" in " ".join(refused.stderr.split())

    result = invoke("evaluate", run_config(tmp_path, "better", 0.8), "--complete")
    assert result.code == 0, result.stdout
    assert (run / "_SUCCESS").exists()
    full_summary = read(run / "summary.json")
    assert (full_summary["missing"], full_summary["early"]["stopped"]) == (0, False)
    headline = full_summary["early"]["headlines"]["items/correct"]
    assert headline["decided_at_units"] == stopped["decided_at_units"]
    assert headline["high"] - headline["low"] < 1e-3
    assert invoke("compare", reference, run, "--allow-different").code == 0
