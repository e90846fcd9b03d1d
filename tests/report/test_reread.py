"""`ace-ray reread` counts what another parser changes, and names a user's mistakes in one line."""

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from ace_ray.types import Entry
from tests.report.builders import block, loaded, write_run
from tests.report.read_runs import Calls, gold_of, read_run, toy_model

# A tool parser that reads only the first call.
FIRST_CALL = """
from vllm.tool_parsers import ToolParserManager
from vllm.tool_parsers.hermes_tool_parser import Hermes2ProToolParser

@ToolParserManager.register_module("first_call")
class FirstCall(Hermes2ProToolParser):
    def extract_tool_calls(self, model_output, request):
        found = super().extract_tool_calls(model_output, request)
        found.tool_calls = found.tool_calls[:1]
        return found
"""
CATEGORIES = ["simple_python", "parallel", "irrelevance", "multi_turn_base"]


def one_call_too_many(entry: Entry) -> Calls:
    calls = list(gold_of(entry))
    return calls * 2 if entry.id == "simple_python_0" else calls


@pytest.mark.skipif(find_spec("vllm") is None, reason="the child process needs vLLM")
def test_a_parser_with_a_fault_gains_loses_and_diverges(tmp_path: Path, invoke: Any) -> None:
    model = toy_model(tmp_path / "model")
    run = read_run(
        tmp_path / "run", model, "hermes", categories=CATEGORIES, calls_of=one_call_too_many
    )
    (plugin := tmp_path / "plugin.py").write_text(FIRST_CALL)
    out = tmp_path / "out"
    options = ("--plugin", plugin, "--tokenizer", model, "--output", out)
    result = invoke("reread", run, "--tool-parser", "first_call", *options).ok()
    # Category, answers read differently, gained, lost, diverged.
    moved = re.findall(r"(\w+)\W+(\d+)\W+(\d+)\W+(\d+)\W+(\d+)\W*\n", result.stdout)
    assert moved == [
        ("multi_turn_base", "3", "0", "0", "3"),
        ("parallel", "3", "0", "3", "0"),
        ("simple_python", "1", "1", "0", "0"),
    ]
    assert "19 answers of 13 rows read with vLLM" in result.stdout
    assert "3 episodes diverged" in " ".join(result.stdout.split())
    assert "the model changed 0 rows, the parser 7" in result.stdout
    # Of 10 judged rows, one is gained and three are lost. The diverged rows have no pair.
    assert re.search(r"bfcl, official: -20\.0 points, 95 % CI .*, n=10\n", result.stdout)
    assert "verdicts under each benchmark's first rule set" in " ".join(result.stdout.split())
    diverged = [row for row in loaded(out)[0].rows if row.status == "skipped"]
    assert {row.category for row in diverged} == {"multi_turn_base"}
    assert all(not row.verdicts and "answer 2 of 3" in (row.error or "") for row in diverged)
    assert invoke("report", out, "--out", tmp_path / "report").code == 0
    assert "3 episodes diverged" in (tmp_path / "report/report.html").read_text()
    explained = invoke("compare", run, out, "--explain").ok()
    assert re.search(r"same tokens read differently\W+7\W+4\b", explained.stdout)


def two_rows(folder: Path, **settings: Any) -> Path:
    rows = block("en", "normal_atom_bool", 1, 2)
    return write_run(folder / "run", rows, model="/no/model", **settings)


def test_another_python_gets_only_this_package(tmp_path: Path, invoke: Any) -> None:
    run = two_rows(tmp_path)
    (python := tmp_path / "python").write_text('#!/bin/sh\nls "${PYTHONPATH%%:*}" >&2\n')
    python.chmod(0o755)
    (tmp_path / "config.json").touch()
    command = ("reread", run, "--tokenizer", tmp_path, "--python", python)
    invoke(*command).refused(f"{python}: cannot read answers: ace_ray; name a Python")
    python.unlink()
    invoke(*command).refused(f"{python}: cannot be run")


@pytest.mark.skipif(find_spec("vllm") is None, reason="the child process needs vLLM")
def test_a_config_that_vllm_refuses_is_named(tmp_path: Path, invoke: Any) -> None:
    run = two_rows(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    result = invoke("reread", run, "--tokenizer", tmp_path)
    result.refused(f"{tmp_path}: the tokenizer cannot be used: ", "model_type", "with --tokenizer")


def test_the_plugins_of_a_run_must_be_named(tmp_path: Path, invoke: Any) -> None:
    run = two_rows(tmp_path, extra_identity={"plugins": ["0" * 64]})
    invoke("reread", run).refused("from plugins; name the plugin files with --plugin")
    # Other parsers do not need them.
    invoke("reread", run, "--tool-parser", "hermes").refused("if you trust that model")


@pytest.mark.parametrize(
    ("backend", "options", "message"),
    [
        ("fake", (), "does not contain the text of the model"),
        ("endpoint", (), "an endpoint returns calls that its server has"),
        ("vllm", (), "template of /no/model; if you trust that model, name it"),
        ("vllm", ("--tokenizer", "/nowhere"), "/nowhere: model '/nowhere' does not exist"),
    ],
    ids=["no text", "calls of a server", "no tokenizer", "wrong tokenizer"],
)
def test_a_run_that_cannot_be_read_again_is_named(backend, options, message, tmp_path, invoke):
    run = two_rows(tmp_path, backend=backend)
    invoke("reread", run, *options, "--output", tmp_path / "out").refused(message)
    assert not (tmp_path / "out").exists()
