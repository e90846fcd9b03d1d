"""Native tool calling, and answers in other formats, through whole runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from ace_ray.storage.object_store import open_store
from ace_ray.storage.parts import read_ledger
from ace_ray.storage.rows import ROWS

pytestmark = [pytest.mark.ray, pytest.mark.nightly]

WATERED = {"bed": "T3", "minutes": 20, "check_rain": False}
LOCKED = '<tool_call>{"name": "lock_door", "arguments": {"door": "back", "arm_alarm": true}}'


def evaluated(config: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ace_ray.cli.main", "evaluate", str(config)],
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )


def run(folder: Path, engine: dict[str, Any], **benchmark: Any) -> tuple[dict[str, Any], Any]:
    """The rows by entry id, and the store, of a run over normal_atom_bool."""
    asked = {"name": "acebench", "languages": ["en"], "categories": ["normal_atom_bool"]}
    tree = {
        "model": {"source": "fake"},
        "backend": "fake",
        "benchmarks": [{**asked, **benchmark}],
        "engine": engine,
        "run_id": "run",
        "output": str(folder / "runs"),
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(tree))
    done = evaluated(folder / "config.yaml")
    assert done.returncode == 0, done.stderr
    store = open_store(str(folder / "runs" / "run"))
    tables = read_ledger(store).tables(ROWS.names)
    return {row["id"]: row for table in tables for row in table.to_pylist()}, store


def test_native_calls_are_offered_read_judged_and_labelled(tmp_path: Path) -> None:
    call = {"name": "greenhouse_water", "arguments": json.dumps(WATERED)}
    rows, store = run(
        tmp_path, {"default": "No.", "calls": {"Water bed T3": [call]}}, mode="native"
    )
    assert len(rows) == 4
    called = rows["normal_atom_bool_0"]
    assert called["output"] == "[greenhouse_water(bed='T3', minutes=20, check_rain=False)]"
    assert called["official_valid"]
    assert called["strict_valid"]
    assert not any(rows[f"normal_atom_bool_{n}"]["official_valid"] for n in (1, 2, 3))
    said = json.loads(called["messages"])[-1]
    assert said["tool_calls"][0]["function"] == call
    manifest = json.loads(store.get("run.json"))
    assert manifest["identity"]["benchmarks"]["acebench"]["variant"] == "native"


def test_a_format_that_the_parser_does_not_read_does_not_end_silently(tmp_path: Path) -> None:
    """A model of which every answer is a right call in a fenced block, and the run reads none."""
    watered = json.dumps({"name": "greenhouse_water", "arguments": WATERED}, indent=2)
    tree = {
        "model": {"source": "fake"},
        "backend": "fake",
        "benchmarks": [
            {"name": "bfcl", "mode": "native", "categories": ["simple_python", "parallel"]},
            {
                "name": "acebench",
                "mode": "native",
                "languages": ["en"],
                "categories": ["normal_atom_bool", "agent_multi_step"],
                "max_messages": 4,
            },
        ],
        "engine": {"default": f"I call the function.\n```json\n{watered}\n```"},
        "run_id": "run",
        "output": str(tmp_path / "runs"),
    }
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(tree))
    done = evaluated(tmp_path / "config.yaml")
    assert done.returncode == 0, done.stderr
    printed = " ".join(done.stdout.split())
    store = open_store(str(tmp_path / "runs" / "run"))
    blocks = json.loads(store.get("summary.json") or b"")["benchmarks"]
    for name in ("bfcl", "acebench"):
        (finding,) = blocks[name]["diagnosis"]
        assert (finding["kind"], *finding["readers"]) == ("unread_calls", "fenced_json")
        assert finding["rows"] == finding["of"] > 5
        assert finding["accuracy"]["official"] == 0
        assert finding["text"][:60] in printed
