"""What commands take: shipped configs by name, no config at all, options from the environment."""

from __future__ import annotations

import json
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from ace_ray.benchmarks.registry import make_benchmark
from ace_ray.config.schema import SHIPPED, load_config, shipped_configs
from ace_ray.errors import UserError

QUICK = ["--set", "backend=fake"]


def test_a_model_and_a_benchmark_need_no_file(here: Any, tmp_path: Path) -> None:
    asked = ["--model", "1e5", "--benchmark", "acebench", "--limit", 3, "--output", tmp_path]
    done = here("doctor", *asked, *QUICK, "--set", "benchmarks.0.languages=[en]")
    assert done.code == 0, done.stdout
    assert "acebench: 3 entries" in done.stdout
    assert "3 rows" in done.stdout


@pytest.mark.parametrize("words", [[], ["--model", "x"], ["--benchmark", "acebench"]])
def test_half_of_it_is_one_line(here: Any, words: list[str]) -> None:
    for command in ("doctor", "evaluate"):
        done = here(command, *words)
        assert (done.code, done.stdout) == (2, "")
        assert "name a CONFIG, or both --model and --benchmark" in done.stderr


def test_a_shipped_config_by_its_name(here: Any) -> None:
    assert {"quickstart", "acebench", "bfcl", "sweep"} <= set(shipped_configs())
    assert load_config("bfcl-cpu") == load_config(str(SHIPPED / "bfcl-cpu.yaml"))
    done = here("doctor", "no-such")
    assert "no-such: cannot be read" in done.stdout
    assert "or one of acebench, acebench-cpu," in done.stdout


def test_a_benchmark_of_a_config_keeps_its_section(tmp_path: Path) -> None:
    config = tmp_path / "c.yaml"
    config.write_text(
        "model: {source: x}\nbackend: fake\n"
        "benchmarks: [bfcl, {name: acebench, languages: [zh]}]\noutput: runs\n"
    )
    only = load_config(str(config), (), {"benchmarks": ["acebench"]})
    assert [(b.name, b.options) for b in only.benchmarks] == [("acebench", {"languages": ["zh"]})]
    other = load_config(str(config), (), {"benchmarks": ["stabletoolbench", "bfcl"]})
    assert [(b.name, b.options) for b in other.benchmarks] == [
        ("stabletoolbench", {}),
        ("bfcl", {}),
    ]


def test_options_come_from_the_environment(here: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACE_RAY_DOCTOR_LIMIT", "2")
    monkeypatch.setenv("ACE_RAY_DOCTOR_MODEL", "none")
    monkeypatch.setenv("ACE_RAY_DOCTOR_BENCHMARK", "acebench")
    done = here("doctor", *QUICK)
    assert "acebench: 2 entries" in done.stdout
    monkeypatch.setenv("ACE_RAY_DOCTOR_SET", "backend=fake samples=3")
    assert "6 rows" in here("doctor").stdout
    monkeypatch.setenv("ACE_RAY_LIST_JSON", "1")
    assert "acebench" in json.loads(here("list").stdout)


@pytest.mark.nightly
def test_what_can_be_named_is_listed(here: Any) -> None:
    benchmarks = json.loads(here("list", "--json").stdout)
    assert benchmarks["acebench"]["categories"] == 17
    assert benchmarks["tau2"]["categories"] == 5
    configs = here("list", "configs").stdout
    assert all(name in configs for name in shipped_configs())
    assert "CREATE OR REPLACE MACRO run_rows" in here("list", "sql").stdout


SERVICE = {"url": "http://localhost:9/x"}
NEEDED: dict[str, dict[str, Any]] = {
    "bfcl": {
        "embedding": {**SERVICE, "model": "m"},
        "web_search": {"search": SERVICE, "fetch": SERVICE},
    }
}


@pytest.mark.nightly
def test_every_name_that_list_prints_can_be_pasted_into_a_config(here: Any) -> None:
    told = [
        line for line in here("list", "categories").stdout.splitlines() if not line.startswith(" ")
    ]
    assert told == [
        "acebench (categories)",
        "acebench (languages)",
        "bfcl (categories)",
        "stabletoolbench (groups)",
        "tau2 (domains)",
    ]
    listed = json.loads(here("list", "categories", "--json").stdout)
    for benchmark, options in listed.items():
        for option, choices in options.items():
            names = dict.fromkeys([*choices, *(one for many in choices.values() for one in many)])
            assert len(names) > 1
            for name in names:
                section = {option: [name], **NEEDED.get(benchmark, {})}
                # Names are looked at before the data, which need not be here.
                absent = benchmark == "tau2" and find_spec("tau2") is None
                with pytest.raises(UserError, match=r"^data: ") if absent else nullcontext():
                    assert make_benchmark(benchmark, section).dataset()


def test_parsers_are_vllms(here: Any) -> None:
    pytest.importorskip("vllm")
    parsers = json.loads(here("list", "parsers", "--json").stdout)
    assert "qwen3" in parsers["reasoning"]
    assert "hermes" in parsers["tool"]


def test_a_shipped_config_says_what_it_is_for() -> None:
    for name in shipped_configs():
        assert (SHIPPED / f"{name}.yaml").read_text().startswith("# ")
