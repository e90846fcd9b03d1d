"""A run stops when its comparison is decided, with the fake engine."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.ray, pytest.mark.nightly]

ITEMS = 900
BENCHMARK = f"""
from ace_ray.benchmarks.base import Benchmark
from ace_ray.types import Entry, Verdict

class Items(Benchmark):
    name = "items"
    groups = {{"all": ["first", "second"]}}

    def entries(self):
        groups = [f"g{{number // 6}}" if number % 3 == 1 else "" for number in range({ITEMS})]
        return [
            Entry(id=f"<{{n:04}}>", category=("second", "first")[n % 3 > 0], group=group,
                  prompt=f"Item <{{n:04}}>?", gold="yes")
            for n, group in enumerate(groups)
        ]

    def check(self, entry, episode):
        return Verdict(episode.output != "no", "" if episode.output != "no" else "no")
"""


def run_config(config_file: Any, folder: Path, name: str, right: float) -> Path:
    """Answer the share ``right`` rightly; a larger share includes the entries of a smaller one."""
    (folder / "items.py").write_text(BENCHMARK)
    drawn = random.Random(1)
    wrong = [number for number in range(ITEMS) if drawn.random() >= right]
    replies = {f"<{number:04}>": "no" for number in wrong}
    engine: dict[str, Any] = {"default": "yes", "replies": replies}
    changes: dict[str, Any] = {"concurrency": 16, "rows_per_part": 16, "limit": None}
    if name != "reference":
        engine |= {"delay_s": 0.4, "exponential": True}
        changes["early"] = {"reference": str(folder / "out" / "reference"), "min_rows": 60}
    benchmarks = [{"name": f"{folder}/items.py:Items"}]
    return Path(config_file(run_id=name, benchmarks=benchmarks, engine=engine, **changes))


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def test_a_run_stops_and_can_be_completed(invoke: Any, config_file: Any, tmp_path: Path) -> None:
    invoke("evaluate", run_config(config_file, tmp_path, "reference", 0.5)).ok()
    config = run_config(config_file, tmp_path, "better", 0.8)
    result = invoke("evaluate", config).ok()
    assert "items/correct against" in result.stdout
    run = tmp_path / "out" / "better"
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

    # The same command evaluates nothing more.
    assert invoke("evaluate", config).code == 0
    assert read(run / "summary.json")["missing"] == summary["missing"]

    invoke("evaluate", config, "--complete").ok()
    assert (run / "_SUCCESS").exists()
    full_summary = read(run / "summary.json")
    assert (full_summary["missing"], full_summary["early"]["stopped"]) == (0, False)
    headline = full_summary["early"]["headlines"]["items/correct"]
    assert headline["decided_at_units"] == stopped["decided_at_units"]
    assert headline["high"] - headline["low"] < 1e-3
    assert invoke("compare", tmp_path / "out/reference", run, "--allow-different").code == 0
