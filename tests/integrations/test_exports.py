"""Exports: logs of Inspect, files of lm-eval, and evaluation results of the hub."""

import json
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

import ace_ray
from ace_ray.integrations import inspect_log
from ace_ray.integrations.inspect_log import export_inspect
from ace_ray.reports.runs import ScoredRun
from ace_ray.storage.object_store import open_store
from tests.report.builders import HOSTILE, Row, block, everything, row, utf8, write_run

EVIL = utf8("".join(HOSTILE))


def chat_row(base_row: Row) -> Row:
    calls = [
        {"id": "x", "function": {"name": "f", "arguments": '{"a": 1}'}},
        {"id": "y", "function": {"name": EVIL, "arguments": EVIL}},
    ]
    messages = [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "question " * 500},
        {"role": "assistant", "content": "", "tool_calls": calls, "reasoning": "because"},
        {"role": "tool", "tool_call_id": "x", "content": "found"},
        {"role": "narrator", "content": "x"},
        {"role": "assistant", "content": EVIL},
    ]
    return {**base_row, "messages": json.dumps(messages), "gold": '["f()"]', "prompt_tokens": 7}


TOOLS = [
    {"type": "function", "function": {"name": "f", "description": EVIL, "parameters": 5}},
    {"type": "function", "function": {"name": "late"}, "since_answer": 2},
]
RIGHT, SECOND, WRONG = map(chat_row, block("en", "normal_atom_bool", 2, 3))
ROWS = [
    {**RIGHT, "tools": json.dumps(TOOLS)},
    {**SECOND, "tools": "no json"},
    {**WRONG, "finish_reason": "length", "started_at": datetime(9999, 1, 1, tzinfo=UTC)},
    chat_row(row("zh", "normal_atom_bool", 0)),
    {**chat_row(row("en", "special_incomplete", 0, status="infra_error")), "error": "away"},
]


def logs(folder: Path, out: Path) -> list[dict[str, Any]]:
    """Export to Inspect. Returns the JSON values in each log by name."""
    names = export_inspect(ScoredRun(open_store(str(folder))), open_store(str(out)))
    assert sorted(names) == sorted(path.name for path in out.iterdir())
    contents = []
    for name in names:
        with zipfile.ZipFile(out / name) as log:
            assert log.testzip() is None
            contents.append({entry: json.loads(log.read(entry)) for entry in log.namelist()})
    return contents


def test_a_run_is_a_log_of_inspect(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", ROWS, model="org/Toy-7B", max_unscored_fraction=0.5)
    (log,) = logs(folder, tmp_path / "out")
    logs(folder, tmp_path / "again")
    for path in (tmp_path / "out").iterdir():
        assert path.read_bytes() == (tmp_path / "again" / path.name).read_bytes()
    header, summaries = log["header.json"], log["summaries.json"]
    assert header["version"] == log["_journal/start.json"]["version"] == 2
    assert (header["eval"]["model"], header["eval"]["task"]) == ("vllm/org/Toy-7B", "acebench")
    results = header["results"]
    assert (results["total_samples"], results["completed_samples"]) == (5, 4)
    official, strict = results["scores"]
    assert (official["name"], strict["name"]) == ("official", "strict")
    assert next(iter(official["metrics"])) == "Overall (workbook)_partial", "the headline is first"
    ids = header["eval"]["dataset"]["sample_ids"]
    assert len(ids) == len(set(ids)) == 5
    assert {"en-normal_atom_bool_0", "zh-normal_atom_bool_0"} < set(ids)
    assert {f"samples/{name}_epoch_1.json" for name in ids} < log.keys()
    assert [sample["id"] for sample in summaries] == ids
    assert max(len(sample["input"]) for sample in summaries) == 1000


def test_a_sample_of_inspect_is_complete(tmp_path: Path) -> None:
    (log,) = logs(write_run(tmp_path / "run", ROWS), tmp_path / "out")
    right, sample, failed = (
        log[f"samples/en-{name}_epoch_1.json"]
        for name in ("normal_atom_bool_0", "normal_atom_bool_2", "special_incomplete_0")
    )
    wrong = sample["scores"]["official"]
    assert wrong["value"] == "I"
    assert wrong["explanation"].startswith("value_error:string")
    assert right["scores"]["strict"]["value"] == "C"
    roles = [message["role"] for message in sample["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "user", "assistant"]
    reasoning, _ = sample["messages"][2]["content"]
    assert reasoning == {"type": "reasoning", "reasoning": "because", "redacted": False}
    call, odd = sample["messages"][2]["tool_calls"]
    assert (call["function"], call["arguments"]) == ("f", {"a": 1})
    assert (odd["function"], odd["arguments"]) == (EVIL, {"as_written": EVIL})
    assert sample["messages"][3]["tool_call_id"] == call["id"]
    assert sample["started_at"] < sample["completed_at"] < "3010"
    assert sample["output"]["choices"][0]["stop_reason"] == "max_tokens"
    assert sample["model_usage"]["vllm/org/Toy-7B-Instruct"]["input_tokens"] == 7
    first, second = right["store"]["tools"]
    assert first == {"name": "f", "description": EVIL, "schema": 5, "since": 1}
    assert (second["name"], second["since"]) == ("late", 2)
    assert failed["scores"] == {}
    assert failed["error"]["message"] == "infra_error: RuntimeError: away"


def test_limited_and_incomplete_runs_are_marked(tmp_path: Path) -> None:
    rows = block("en", "normal_atom_bool", 3, 4)
    (log,) = logs(write_run(tmp_path / "run", rows, limit=4), tmp_path / "out")
    header = log["header.json"]
    assert header["status"] == "success"
    assert header["eval"]["config"]["limit"] == 4
    assert header["eval"]["metadata"]["limited_to"] == "4 entries"
    official, _ = header["results"]["scores"]
    assert official["metrics"]["Overall (workbook)_partial"]["value"] == 0.75
    assert "Accuracy (pooled)" in official["metrics"]
    (log,) = logs(write_run(tmp_path / "part", rows, missing=1), tmp_path / "out2")
    assert log["header.json"]["status"] == "cancelled"
    assert [score["metrics"] for score in log["header.json"]["results"]["scores"]] == [{}, {}]


def test_a_large_run_is_several_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspect_log, "MOST_SAMPLES", 10)
    rows = [line for n in range(2) for line in block("en", "normal_atom_bool", 20, 25, sample=n)]
    rows += [{**rows[0], "row_id": "f" * 32, "repeat": 1}]
    parts = logs(write_run(tmp_path / "run", rows, samples=2), tmp_path / "out")
    assert [part["header.json"]["results"]["total_samples"] for part in parts] == [10] * 5
    assert parts[0]["header.json"]["eval"]["metadata"]["part"] == "1 of 5"
    shared = [part["header.json"]["results"]["scores"] for part in parts]
    assert all(scores == shared[0] for scores in shared), "each log has the scores of the whole run"
    names = [name for part in parts for name in part if name.startswith("samples/")]
    assert len(names) == len(set(names)) == 50
    assert sum(name.endswith("_epoch_2.json") for name in names) == 25


def test_lm_eval_files_have_metrics_and_samples(invoke: Any, tmp_path: Path) -> None:
    rows = [*block("en", "normal_atom_bool", 3, 4), *block("en", "special_incomplete", 1, 4)]
    folder = write_run(tmp_path / "run", rows, model="org/Toy-7B")
    invoke("export", folder, "--to", "lm-eval").ok()
    (out_folder,) = (folder / "export" / "lm-eval").iterdir()
    assert out_folder.name == "org__Toy-7B"
    (path,) = out_folder.glob("results_*.json")
    results = json.loads(path.read_text())
    official = results["results"]["acebench_official"]
    assert official["accuracy_pooled,none"] == 0.5
    assert official["normal_workbook_partial,none"] == 0.75
    assert 0 < official["accuracy_pooled_stderr,none"] < 0.3
    assert results["n-samples"]["acebench_official"] == {"original": 8, "effective": 8}
    assert results["higher_is_better"]["acebench_strict"]["accuracy_pooled"] is True
    (samples,) = out_folder.glob("samples_acebench_official_*.jsonl")
    lines = [json.loads(line) for line in samples.read_text().splitlines()]
    assert [line["doc_id"] for line in lines] == list(range(8))
    assert [line["acc"] for line in lines] == [1.0, 1.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0]
    assert lines[3]["error_type"] == "value_error:string"


def test_the_hub_file_has_headlines(invoke: Any, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", everything({"special_incomplete": 5}))
    command = ("export", folder, "--to", "hf", "--output", tmp_path / "out")
    invoke(*command, "--dataset", "org/ACEBench").ok()
    tree = yaml.safe_load((tmp_path / "out/.eval_results/acebench.yaml").read_text())
    official, strict = tree
    assert official["dataset"] == {"id": "org/ACEBench", "task_id": "acebench_official"}
    assert strict["dataset"]["task_id"] == "acebench_strict"
    assert 90 < official["value"] < 100
    assert "Overall (workbook), official rules, 95 % interval" in official["notes"]
    invoke(*command).refused("name the benchmark's")
    # The hub's own reader takes the file.
    hub = pytest.importorskip("huggingface_hub", minversion="1.0")
    entries = hub.parse_eval_result_entries(tree)
    assert [entry.task_id for entry in entries] == ["acebench_official", "acebench_strict"]
    assert hub.eval_result_entries_to_yaml(entries) == tree


def test_the_hub_takes_several_benchmarks_each_with_its_dataset(invoke, tmp_path) -> None:
    rows = everything({"special_incomplete": 5})
    folder = write_run(tmp_path / "run", rows)
    manifest = json.loads((folder / "run.json").read_text())
    benchmarks = manifest["identity"]["benchmarks"]
    benchmarks["toy"] = benchmarks["acebench"]
    (folder / "run.json").write_text(json.dumps(manifest))
    out = tmp_path / "out"
    command = ("export", folder, "--to", "hf", "--output", out)
    refused = invoke(*command, "--dataset", "org/ACEBench")
    refused.refused("--dataset acebench=ORG/NAME --dataset toy=ORG/NAME")
    result = invoke(*command, "--dataset", "acebench=org/ACEBench")
    assert result.stdout == f"{out}/.eval_results/acebench.yaml\n"
    assert ace_ray.export(str(folder), "hf", dataset={"acebench": "org/ACEBench"}) == [
        f"{folder}/export/hf/.eval_results/acebench.yaml"
    ]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "is partial: without en/"),
        ({"limit": 5}, "the run is limited to 5 entries"),
        ({"restricted": {"acebench": {"ids": ["x", "y"], "limit": 1}}}, "1 entries of 2 named ids"),
    ],
)
def test_the_hub_takes_no_partial_results(invoke, tmp_path, changes, words) -> None:
    rows = everything({}, of=1) if changes else block("en", "normal_atom_bool", 3, 4)
    folder = write_run(tmp_path / "run", rows, **changes)
    out = ("--output", tmp_path / "out")
    result = invoke("export", folder, "--to", "hf", "--dataset", "o/d", *out)
    result.refused(words, "export a complete run")
    wrong = invoke("export", folder, "--to", "inspect", "--dataset", "o/d", *out)
    wrong.refused("--dataset: applies to --to hf only; leave it out")
