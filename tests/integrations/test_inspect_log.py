"""Logs of Inspect: their shape, their bounds, and that the same run is the same bytes."""

from __future__ import annotations

import json
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import ace_ray
from ace_ray.benchmarks.transcript import Call, Step
from ace_ray.integrations import inspect_log
from ace_ray.integrations.inspect_log import export_inspect, model_name
from ace_ray.integrations.result_files import export_hub, export_lm_eval
from ace_ray.storage.object_store import open_store
from ace_ray.viewer.select import StoredRun
from tests.report.builders import HOSTILE, Row, block, everything, row, utf8, write_run

EVIL = utf8("".join(HOSTILE))


def told(found: Row) -> Row:
    calls = [
        {"id": "x", "function": {"name": "f", "arguments": '{"a": 1}'}},
        {"id": "y", "function": {"name": EVIL, "arguments": EVIL}},
    ]
    messages = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "question " * 500},
        {"role": "assistant", "content": "", "tool_calls": calls, "reasoning": "because"},
        {"role": "tool", "tool_call_id": "x", "content": "found"},
        {"role": "assistant", "content": EVIL},
    ]
    return {**found, "messages": json.dumps(messages), "gold": '["f()"]', "prompt_tokens": 7}


ROWS = [
    *map(told, block("en", "normal_atom_bool", 2, 3)),
    told(row("zh", "normal_atom_bool", 0)),
    {**told(row("en", "special_incomplete", 0, status="infra_error")), "error": "away"},
]


def logs(folder: Path, out: Path) -> list[dict[str, Any]]:
    """Name of a file in a log -> its JSON value, log by log."""
    names = export_inspect(StoredRun(open_store(str(folder))), open_store(str(out)))
    assert sorted(names) == sorted(path.name for path in out.iterdir())
    found = []
    for name in names:
        with zipfile.ZipFile(out / name) as log:
            assert log.testzip() is None
            found.append({entry: json.loads(log.read(entry)) for entry in log.namelist()})
    return found


def test_a_run_is_a_log(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", ROWS, model="org/Toy-7B", max_unscored=0.5)
    (log,) = logs(folder, tmp_path / "out")
    header, summaries = log["header.json"], log["summaries.json"]
    assert header["version"] == log["_journal/start.json"]["version"] == 2
    assert header["eval"] == log["_journal/start.json"]["eval"]
    assert header["eval"]["model"] == "vllm/org/Toy-7B"
    assert header["eval"]["task"] == "acebench"
    assert header["eval"]["metadata"]["identity"]["backend"] == "vllm"
    results = header["results"]
    assert (results["total_samples"], results["completed_samples"]) == (5, 4)
    official, strict = results["scores"]
    assert (official["name"], strict["name"]) == ("official", "strict")
    assert next(iter(official["metrics"])) == "Overall (workbook)_partial", "the headline is first"
    ids = header["eval"]["dataset"]["sample_ids"]
    assert len(ids) == len(set(ids)) == 5
    assert {"en-normal_atom_bool_0", "zh-normal_atom_bool_0"} < set(ids)
    samples = {name for name in log if name.startswith("samples/")}
    assert samples == {f"samples/{name}_epoch_1.json" for name in ids}
    assert [one["id"] for one in summaries] == ids
    assert max(len(one["input"]) for one in summaries) == 1000


def test_a_sample_is_whole(tmp_path: Path) -> None:
    (log,) = logs(write_run(tmp_path / "run", ROWS), tmp_path / "out")
    sample = log["samples/en-normal_atom_bool_2_epoch_1.json"]
    wrong = sample["scores"]["official"]
    assert wrong["value"] == "I"
    assert wrong["explanation"].startswith("value_error:string")
    assert log["samples/en-normal_atom_bool_0_epoch_1.json"]["scores"]["strict"]["value"] == "C"
    roles = [message["role"] for message in sample["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "assistant"]
    assert sample["messages"][1]["content"] == "question " * 500
    reasoning, _ = sample["messages"][2]["content"]
    assert reasoning == {"type": "reasoning", "reasoning": "because", "redacted": False}
    call, odd = sample["messages"][2]["tool_calls"]
    assert (call["function"], call["arguments"]) == ("f", {"a": 1})
    assert (odd["function"], odd["arguments"]) == (EVIL, {"as_written": EVIL})
    assert sample["messages"][3]["tool_call_id"] == call["id"]
    assert sample["messages"][3]["content"] == "found"
    assert sample["output"]["model"] == "org/Toy-7B-Instruct"
    assert sample["target"] == '[\n  "f()"\n]'
    assert sample["model_usage"]["vllm/org/Toy-7B-Instruct"]["input_tokens"] == 7
    ids = [message["id"] for message in sample["messages"]]
    assert len(ids) == len(set(ids))
    failed = log["samples/en-special_incomplete_0_epoch_1.json"]
    assert failed["scores"] == {}
    assert failed["error"]["message"] == "infra_error: RuntimeError: away"


def test_what_is_partial_or_limited_is_marked(tmp_path: Path) -> None:
    rows = block("en", "normal_atom_bool", 3, 4)
    (log,) = logs(write_run(tmp_path / "run", rows, limit=4), tmp_path / "out")
    header = log["header.json"]
    assert header["eval"]["config"]["limit"] == 4
    assert header["eval"]["metadata"]["limited_to"] == "4 entries"
    official, _ = header["results"]["scores"]
    assert official["metrics"]["Overall (workbook)_partial"]["value"] == 0.75
    assert "Accuracy (pooled)" in official["metrics"], "of all that was run"


@pytest.mark.nightly
@pytest.mark.parametrize(
    "started",
    [
        datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC),
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(1969, 1, 1, tzinfo=UTC),
        None,
    ],
)
@pytest.mark.parametrize("created", ["9999-12-31T23:59:59-14:00", "0001-01-01T00:00:00", "x" * 999])
def test_any_time_can_be_exported(tmp_path: Path, started: Any, created: str) -> None:
    rows = [
        told({**one, "started_at": started, "duration_s": 2.0**40}) for one in everything({}, of=1)
    ]
    folder = write_run(tmp_path / "run", rows)
    manifest = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**manifest, "created_at": created}))
    (log,) = logs(folder, tmp_path / "out")
    for one in log["summaries.json"]:
        began, ended = (datetime.fromisoformat(one[f"{w}_at"]) for w in ("started", "completed"))
        assert 1970 <= began.year < ended.year <= 3010
    run = StoredRun(open_store(str(folder)))
    assert len(export_lm_eval(run, open_store(str(tmp_path / "lm-eval")))) == 3
    assert export_hub(run, open_store(str(tmp_path / "hub")), "a/b")
    opened = ace_ray.Run.open(str(folder))
    assert opened.episode("normal_atom_bool_0", language="en").as_json()


def test_a_run_that_is_not_whole_has_no_headline(tmp_path: Path) -> None:
    rows = block("en", "normal_atom_bool", 3, 4)
    for missing, status, known in ((0, "success", True), (1, "cancelled", False)):
        folder = write_run(tmp_path / f"run{missing}", rows, missing=missing)
        (log,) = logs(folder, tmp_path / f"out{missing}")
        header = log["header.json"]
        assert header["status"] == status
        assert [bool(one["metrics"]) for one in header["results"]["scores"]] == [known] * 2


def test_the_same_run_is_the_same_bytes(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", ROWS)
    logs(folder, tmp_path / "one")
    logs(folder, tmp_path / "two")
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes()


def test_a_large_run_is_several_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspect_log, "MOST_SAMPLES", 10)
    rows = [one for n in range(2) for one in block("en", "normal_atom_bool", 20, 25, sample=n)]
    rows += [{**rows[0], "row_id": "f" * 32, "repeat": 1}]
    found = logs(write_run(tmp_path / "run", rows, samples=2), tmp_path / "out")
    assert [one["header.json"]["results"]["total_samples"] for one in found] == [10] * 5
    assert found[0]["header.json"]["eval"]["metadata"]["part"] == "1 of 5"
    shared = [one["header.json"]["results"]["scores"] for one in found]
    assert all(scores == shared[0] for scores in shared), "those of the whole run"
    names = [name for one in found for name in one if name.startswith("samples/")]
    assert len(names) == len(set(names)) == 50
    assert sum(name.endswith("_epoch_2.json") for name in names) == 25


def test_offered_tools_are_in_the_store(tmp_path: Path) -> None:
    tools = [
        {"type": "function", "function": {"name": "f", "description": EVIL, "parameters": 5}},
        {"type": "function", "function": {"name": "late"}, "since_answer": 2},
    ]
    rows = [{**ROWS[0], "tools": json.dumps(tools)}, {**ROWS[1], "tools": "no json"}]
    (log,) = logs(write_run(tmp_path / "run", rows), tmp_path / "out")
    first, second = log["samples/normal_atom_bool_0_epoch_1.json"]["store"]["tools"]
    assert first == {"name": "f", "description": EVIL, "schema": 5, "since": 1}
    assert (second["name"], second["since"]) == ("late", 2)


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("org/Toy-7B", "org/Toy-7B"),
        ("/models/Toy.gguf", "local/Toy"),
        ("s3://bucket/Toy/", "local/Toy"),
        ("package:pack/Toy.Q4.gguf", "local/Toy.Q4"),
        ("gpt-x", "local/gpt-x"),
    ],
)
def test_models_are_named_as_others_name_them(source: str, name: str) -> None:
    assert model_name(source) == name


def test_a_step_that_nobody_knows() -> None:
    message = inspect_log._message(Step("narrator", "x", calls=[Call("f")]), "m", [])
    assert message == {"id": "m", "role": "user", "content": "x"}
