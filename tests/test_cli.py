"""The command line: commands, options from the environment, shipped configs, doctor and list."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from ace_ray.config.schema import SHIPPED, load_config, shipped_configs

QUICK = ["--set", "backend=fake"]


def test_help_exits_with_0_and_a_wrong_option_with_2(invoke: Any) -> None:
    invoke("--help").ok()
    assert invoke("--version").stdout.startswith("ace-ray")
    for arguments in (["evaluate", "x", "--limit", "0"], ["nonsense"], ["score"]):
        assert invoke(*arguments).code == 2


def test_doctor_checks_a_config_and_writes_nothing(invoke, config_file, tmp_path) -> None:
    result = invoke("doctor", config_file(), "--output", f"{tmp_path}/a: [b] #c").ok()
    topics = [line.split()[1] for line in result.stdout.splitlines()]
    assert topics[:3] == ["machine", "installed", "config"]
    assert {"model", "data", "plan", "cluster", "prompts", "output"} <= set(topics)
    assert "a: [b] #c/acebench-fake-" in result.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["config.yaml"]
    result = invoke("doctor", config_file(workers=5000))
    assert result.code == 2
    (failed,) = [line for line in result.stdout.splitlines() if line.startswith("FAIL")]
    assert "cluster" in failed
    assert "5000 worker(s)" in failed


def test_prompts_that_were_not_counted_do_not_count_as_fitting(config_file, invoke, monkeypatch):
    path = config_file(limit=4, engine={"max_model_len": 4096})
    assert "4 of 4 prompts fit a context of 4096" in invoke("doctor", path).stdout
    monkeypatch.setattr("ace_ray.pipeline.planning.prompts.COUNT_S", -1)
    message = "3 of 4 prompts were not counted, at least 0 do not fit a context of 4096"
    assert message in invoke("doctor", path).stdout


@pytest.mark.parametrize("cause", ["", "the time limit was reached"])
def test_an_interrupt_says_its_cause(cause, config_file, invoke, monkeypatch) -> None:
    stop = Mock(side_effect=KeyboardInterrupt(*filter(None, [cause])))
    monkeypatch.setattr("ace_ray.pipeline.evaluate.evaluate", stop)
    result = invoke("evaluate", config_file())
    line = f"ace-ray: {cause or 'interrupted'}; the same command continues this run\n"
    assert (result.code, result.stderr) == (75, line)


def test_a_model_and_a_benchmark_need_no_config_file(invoke: Any, tmp_path: Path) -> None:
    options = ["--model", "1e5", "--benchmark", "acebench", "--limit", 3, "--output", tmp_path]
    result = invoke("doctor", *options, *QUICK, "--set", "benchmarks.0.languages=[en]").ok()
    assert "acebench: 3 entries" in result.stdout
    assert "3 rows" in result.stdout
    for words in ([], ["--model", "x"], ["--benchmark", "acebench"]):
        for command in ("doctor", "evaluate"):
            result = invoke(command, *words)
            assert (result.code, result.stdout) == (2, "")
            assert "name a CONFIG, or both --model and --benchmark" in result.stderr


def test_options_come_from_the_environment(invoke: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACE_RAY_DOCTOR_LIMIT", "2")
    monkeypatch.setenv("ACE_RAY_DOCTOR_MODEL", "none")
    monkeypatch.setenv("ACE_RAY_DOCTOR_BENCHMARK", "acebench")
    assert "acebench: 2 entries" in invoke("doctor", *QUICK).stdout
    monkeypatch.setenv("ACE_RAY_DOCTOR_SET", "backend=fake samples=3")
    assert "6 rows" in invoke("doctor").stdout
    monkeypatch.setenv("ACE_RAY_LIST_JSON", "1")
    assert "acebench" in json.loads(invoke("list").stdout)


def test_shipped_configs_have_names(invoke: Any) -> None:
    assert {"quickstart", "acebench", "bfcl", "sweep"} <= set(shipped_configs())
    assert load_config("bfcl-cpu") == load_config(str(SHIPPED / "bfcl-cpu.yaml"))
    result = invoke("doctor", "no-such")
    assert "no-such: cannot be read" in result.stdout
    assert "or one of acebench, acebench-cpu," in result.stdout
    listed = invoke("list", "configs").stdout
    assert all(name in listed for name in shipped_configs())


def test_list_prints_benchmarks_parsers_and_sql(invoke: Any) -> None:
    benchmarks = json.loads(invoke("list", "--json").stdout)
    assert benchmarks["acebench"]["categories"] == 17
    assert benchmarks["tau2"]["categories"] == 7
    assert "CREATE OR REPLACE MACRO run_rows" in invoke("list", "sql").stdout
    if find_spec("vllm") is not None:
        parsers = json.loads(invoke("list", "parsers", "--json").stdout)
        assert "qwen3" in parsers["reasoning"]
        assert "hermes" in parsers["tool"]
