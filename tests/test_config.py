from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from ace_ray.config.schema import RunConfig, load_config, run_config
from ace_ray.errors import UserError
from ace_ray.sweep.config import load_sweep

CONFIGS = sorted((Path(__file__).resolve().parents[1] / "configs").glob("*.yaml"))
FULL: dict[str, Any] = {
    "model": {"source": "org/model", "chat_template_kwargs": {"enable_thinking": False}},
    "benchmarks": ["acebench", {"name": "acebench", "data": "mini", "languages": ["en"]}],
    "engine": {"dtype": "bfloat16", "tensor_parallel_size": 2},
    "sampling": {"temperature": 1, "stop": ["\n\n"]},
    "samples": 3,
    "workers": "auto",
    "concurrency": 7,
    "store": {"endpoint_url": "http://localhost:9000"},
}
TREE: dict[str, Any] = {"model": {"source": "a"}, "benchmarks": ["bfcl"]}


@pytest.fixture
def path(tmp_path: Path) -> str:
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(FULL))
    return str(file)


def test_a_dumped_config_is_the_same_config(path: str) -> None:
    config = load_config(path)
    dumped = config.model_dump(mode="json")
    assert RunConfig.model_validate(json.loads(json.dumps(dumped))) == config


def test_the_config_of_a_manifest_runs_again(path: str, tmp_path: Path) -> None:
    config = load_config(path)
    manifest = {"schema_version": 1, "config": config.model_dump(mode="json"), "run_id": "x"}
    saved = tmp_path / "run.json"
    saved.write_text(json.dumps(manifest))
    assert load_config(str(saved)) == config
    assert load_config(str(saved), ["samples=1"]).samples == 1


@pytest.mark.parametrize("config", CONFIGS, ids=lambda path: path.name)
def test_checked_in_configs_are_valid(config: Path) -> None:
    load = load_sweep if config.name.startswith("sweep") else load_config
    load(str(config))


def test_overrides_reach_into_sections_and_lists(path: str) -> None:
    config = load_config(
        path,
        [
            "sampling.max_tokens=7",
            "store.region=eu-central-1",
            "engine.max_num_seqs=4",
            "model.chat_template_kwargs.depth=2",
            "benchmarks.0.data=elsewhere",
            "benchmarks.1.languages=[zh]",
            "sampling.stop.0=END",
            "limit=5",
        ],
    )
    assert config.sampling.max_tokens == 7
    assert config.store.region == "eu-central-1"
    assert config.store.endpoint_url == "http://localhost:9000"
    assert config.engine == {**FULL["engine"], "max_num_seqs": 4}
    assert config.model.chat_template_kwargs == {"enable_thinking": False, "depth": 2}
    assert [b.options for b in config.benchmarks] == [
        {"data": "elsewhere"},
        {"data": "mini", "languages": ["zh"]},
    ]
    assert config.sampling.stop == ["END"]
    assert config.limit == 5


def test_a_later_override_wins_and_values_win_over_all(path: str) -> None:
    config = load_config(path, ["samples=4", "samples=5", "output=a"], {"output": "b #1: c"})
    assert (config.samples, config.output) == (5, "b #1: c")


def test_limit_and_ids_of_the_command_line_win_over_those_of_the_files_benchmarks(
    tmp_path: Path,
) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("model: {source: m}\nbenchmarks: [{name: bfcl, limit: 9, ids: [a, b, a]}]\n")
    (as_written,) = load_config(str(file)).benchmarks
    assert (as_written.limit, as_written.ids) == (9, ["a", "b"])
    config = load_config(str(file), (), {"limit": 2, "ids": ["c"]})
    assert (config.limit, config.ids) == (2, ["c"])
    assert (config.benchmarks[0].limit, config.benchmarks[0].ids) == (None, None)


def test_an_override_makes_the_section_it_needs(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("model: {source: m}\nbenchmarks: [acebench]\nengine:\n")
    assert load_config(str(file), ["engine.seed=1"]).engine == {"seed": 1}


def test_a_benchmark_may_be_named_by_a_word(path: str) -> None:
    first = load_config(path).benchmarks[0]
    assert (first.name, first.options) == ("acebench", {})


@pytest.mark.parametrize(
    ("override", "where"),
    [
        ("samples.a=1", "is not a section or an item"),
        ("benchmarks.9.data=x", "is not a section or an item"),
        ("benchmarks.-1.data=x", "is not a section or an item"),
        ("=1", "not KEY=VALUE"),
        ("samples", "not KEY=VALUE"),
        ("run_id=2024-13-45", "not a YAML value"),
    ],
)
def test_an_override_that_leads_nowhere(path: str, override: str, where: str) -> None:
    with pytest.raises(UserError, match=where):
        load_config(path, [override])


def test_values_are_not_coerced(path: str) -> None:
    for bad in (
        "samples='3'",
        "samples=true",
        "samples=3.0",
        "model.source=3",
        "limit=0",
        f"sampling.seed={2**31}",
    ):
        with pytest.raises(UserError):
            load_config(path, [bad])
    assert load_config(path, ["sampling.temperature=1"]).sampling.temperature == 1.0


def test_sampling_has_a_seed_for_each_sample(path: str) -> None:
    sampling = load_config(path, ["sampling.seed=10"]).sampling.sampling()
    assert sampling.stop == ("\n\n",)
    assert [sampling.for_sample(i).seed for i in range(3)] == [10, 11, 12]


def test_sampled_rows_have_seeds_of_their_own(path: str) -> None:
    """With one for all an engine would draw the same noise in every row."""
    asked = ["sampling.seed=10", "sampling.temperature=0.7"]
    sampling = load_config(path, asked).sampling.sampling()
    rows = [(sample, "bench", entry) for sample in range(3) for entry in "abc"]
    seeds = [sampling.for_row(*row).seed for row in rows]
    assert len(set(seeds)) == 9
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert seeds == [sampling.for_row(*row).seed for row in rows]
    assert sampling.for_sample(0).identity()["seeds"] == "by row"
    greedy = load_config(path, ["sampling.seed=10", "sampling.temperature=0"]).sampling.sampling()
    assert [greedy.for_row(*row).seed for row in rows] == [10, 10, 10, 11, 11, 11, 12, 12, 12]
    assert "seeds" not in greedy.identity()


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("changes", "lines"),
    [
        ({"max_tokens": 3}, ["unknown key 'max_tokens'; 'max_tokens' belongs under 'sampling'"]),
        ({"source": "x"}, ["'source' belongs under 'model'"]),
        ({"store": {"output": "x"}}, ["unknown key 'store.output'; ", "belongs at the top level"]),
        ({"sampling": {"tool_parser": "x"}}, ["'tool_parser' belongs under 'model'"]),
        ({"sampling": {"temprature": 1}}, ["did you mean 'temperature'?"]),
        (
            {"samplez": 2, "sampling": {"limit": 3}},
            [
                "2 unknown keys; ",
                "'sampling.limit' belongs at the top level; ",
                "'samplez': did you mean 'samples'?",
            ],
        ),
    ],
)
def test_a_key_under_the_wrong_section_is_answered_with_the_right_one(
    changes: dict[str, Any], lines: list[str]
) -> None:
    with pytest.raises(UserError) as caught:
        run_config({**TREE, **changes}, where="c.yaml")
    for line in lines:
        assert line in str(caught.value)


@pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed")
@pytest.mark.parametrize(
    "changes",
    [
        {"max_model_len": 8},
        {"sampling": {"max_model_len": 8}},
        {"model": {"source": "a", "max_model_len": 8}},
    ],
)
def test_engine_arguments_are_known_by_vllms_names(changes: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="'max_model_len' belongs under 'engine'"):
        run_config({**TREE, **changes}, where="c.yaml")


def test_the_models_own_sampling_takes_overrides(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("model: {source: a}\nbenchmarks: [bfcl]\nsampling: model\n")
    config = load_config(str(path), ["sampling.max_tokens=7"])
    assert config.sampling.model_dump(mode="json") == {"defaults": "model", "max_tokens": 7}
    assert load_config(str(path)).sampling.defaults == "model"
    assert run_config({**TREE, "sampling": "model"}, where="").sampling.defaults == "model"


@pytest.mark.parametrize(
    ("effort", "asked", "thinks"),
    [("low", {}, True), ("none", {}, False), ("high", {"enable_thinking": False}, False)],
)
def test_an_effort_switches_thinking_as_vllms_server_does(
    effort: str, asked: dict[str, Any], thinks: bool
) -> None:
    tree = {**TREE, "model": {"source": "a", "chat_template_kwargs": asked}}
    config = run_config({**tree, "sampling": {"reasoning_effort": effort}}, where="")
    assert config.template_kwargs == {"enable_thinking": thinks, "reasoning_effort": effort}


def test_a_reasoning_effort_is_a_variable_of_the_template() -> None:
    model = {"source": "a", "chat_template_kwargs": {"x": 1}}
    config = run_config(
        {**TREE, "model": model, "sampling": {"reasoning_effort": "low"}}, where="c.yaml"
    )
    assert config.template_kwargs == {"x": 1, "enable_thinking": True, "reasoning_effort": "low"}
    assert run_config({**TREE, "model": model}, where="").template_kwargs == {"x": 1}
