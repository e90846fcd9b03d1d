"""Configs: files, overrides, and values of the command line."""

import json
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from ace_ray.benchmarks.registry import benchmark_class
from ace_ray.config.schema import RunConfig, load_config, run_config, validate_tree
from ace_ray.errors import UserError
from ace_ray.sweep.config import load_sweep

ROOT = Path(__file__).resolve().parents[1]
CONFIGS = sorted([*ROOT.glob("configs/*.yaml"), *ROOT.glob("docs/reference-runs/*.yaml")])
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


def test_the_manifest_of_a_run_is_its_config(path: str, tmp_path: Path) -> None:
    config = load_config(path)
    dumped = json.loads(json.dumps(config.model_dump(mode="json")))
    assert RunConfig.model_validate(dumped) == config
    saved = tmp_path / "run.json"
    saved.write_text(json.dumps({"schema_version": 1, "config": dumped, "run_id": "x"}))
    assert load_config(str(saved)) == config
    assert load_config(str(saved), ["samples=1"]).samples == 1


def test_keys_that_had_another_name_when_a_run_was_stored_are_read(tmp_path: Path) -> None:
    former = {
        "stall_s": 7.0,
        "grace_s": 8.0,
        "store_patience_s": 9.0,
        "token_ids": False,
        "repeat_subset": 0.1,
        "max_unscored": 0.2,
        "early": {"against": "runs/a"},
        "publish": [{"to": "wandb", "project": "p"}],
    }
    saved = tmp_path / "run.json"
    saved.write_text(json.dumps({"schema_version": 1, "config": {**TREE, **former}}))
    config = load_config(str(saved))
    timeouts = config.engine_stall_timeout_s, config.drain_timeout_s, config.store_retry_timeout_s
    assert timeouts == (7.0, 8.0, 9.0)
    assert (config.store_token_ids, config.repeat_fraction) == (False, 0.1)
    assert config.max_unscored_fraction == 0.2
    assert config.early is not None
    assert config.early.reference == "runs/a"
    assert config.publish[0].tracker == "wandb"
    with pytest.raises(UserError, match="stall_s"):
        run_config({**TREE, "stall_s": 7.0}, where="mine")


@pytest.mark.parametrize("config", CONFIGS, ids=lambda path: path.name)
def test_shipped_configs_are_valid(config: Path) -> None:
    is_sweep = re.search("^(models|checkpoints):", config.read_text(), re.M)
    run = load_sweep(str(config)).any_run if is_sweep else load_config(str(config))
    for section in run.benchmarks:
        cls = benchmark_class(section.name)
        validate_tree(cls.Options, section.options, where=section.name, beside=cls.section_keys)
    assert config.read_text().startswith("# "), "says what it is for"


def test_overrides_change_sections_and_lists(path: str) -> None:
    overrides = ["sampling.max_tokens=7", "sampling.stop.0=END", "store.region=eu-central-1"]
    overrides += ["engine.max_num_seqs=4", "model.chat_template_kwargs.depth=2"]
    overrides += ["benchmarks.0.data=elsewhere", "benchmarks.1.languages=[zh]"]
    overrides += ["samples=4", "samples=5", "output=a"]
    config = load_config(path, overrides, {"output": "b #1: c"})
    assert (config.sampling.max_tokens, config.sampling.stop) == (7, ["END"])
    assert config.store.region == "eu-central-1"
    assert config.store.endpoint_url == "http://localhost:9000"
    assert config.engine == {**FULL["engine"], "max_num_seqs": 4}
    assert config.model.chat_template_kwargs == {"enable_thinking": False, "depth": 2}
    assert [(b.name, b.options) for b in config.benchmarks] == [
        ("acebench", {"data": "elsewhere"}),
        ("acebench", {"data": "mini", "languages": ["zh"]}),
    ]
    assert (config.samples, config.output) == (5, "b #1: c"), "later ones win, then the values"


def test_the_command_line_chooses_benchmarks_and_entries(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(
        "model: {source: m}\nengine:\nbenchmarks: [acebench,"
        " {name: bfcl, limit: 9, ids: [a, b, a], mode: native}]\n"
    )
    as_written = load_config(str(file), ["engine.seed=1"])
    assert as_written.engine == {"seed": 1}
    assert (as_written.benchmarks[1].limit, as_written.benchmarks[1].ids) == (9, ["a", "b"])
    options = {"limit": 2, "ids": ["c"], "benchmarks": ["bfcl", "tau2"]}
    config = load_config(str(file), ["engine.seed=1"], options)
    assert (config.limit, config.ids) == (2, ["c"])
    bfcl, tau2 = config.benchmarks
    assert (bfcl.name, bfcl.options) == ("bfcl", {"mode": "native"})
    assert (bfcl.limit, bfcl.ids, tau2.name, tau2.options) == (None, None, "tau2", {})


@pytest.mark.parametrize(
    ("override", "location"),
    [
        ("samples.a=1", "nor the index of an item"),
        ("benchmarks.-1.data=x", "nor the index of an item"),
        ("=1", "not KEY=VALUE"),
        ("run_id=2024-13-45", "not a YAML value"),
        ("samples='3'", "'samples' is '3'"),
        ("samples=true", "'samples' is True"),
        ("limit=0", "'limit' is 0"),
        ("time_limit=3600", "is 3600, it should be a time with a unit .* such as 3600s;"),
        ("time_limit=1h30", "is '1h30', it should be a time with a unit .* such as 1h30m;"),
        ("time_limit=0s", "is '0s', it should be a time above 0, such as 3h40m"),
        (f"sampling.seed={2**31}", "'sampling.seed' is 2147483648"),
    ],
)
def test_an_invalid_override_is_refused(path: str, override: str, location: str) -> None:
    with pytest.raises(UserError, match=location):
        load_config(path, [override])


def test_each_sample_and_sampled_row_has_a_seed(path: str) -> None:
    sampling = load_config(path, ["sampling.seed=10", "sampling.temperature=0.7"]).sampling
    sampled = sampling.sampling()
    assert sampled.stop == ("\n\n",)
    rows = [(sample, "bench", entry) for sample in range(3) for entry in "abc"]
    seeds = [sampled.with_row_seed(*row).seed for row in rows]
    assert len(set(seeds)) == 9
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert seeds == [sampled.with_row_seed(*row).seed for row in rows]
    assert sampled.with_sample_seed(0).identity()["seeds"] == "by row"
    greedy = load_config(path, ["sampling.seed=10", "sampling.temperature=0"]).sampling.sampling()
    assert [greedy.with_row_seed(*row).seed for row in rows] == [10, 10, 10, 11, 11, 11, 12, 12, 12]
    assert "seeds" not in greedy.identity()


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"max_tokens": 3}, ["unknown key 'max_tokens'; 'max_tokens' belongs under 'sampling'"]),
        ({"store": {"output": "x"}}, ["unknown key 'store.output'; ", "belongs at the top level"]),
        ({"data": "installed"}, ["an option of a benchmark is benchmarks.0.data; known keys: "]),
        ({"model": "org/m"}, ["'model' is 'org/m', not a mapping; write model: {source: org/m}"]),
        ({"samplez": 2, "sampling": {"limit": 3}}, ["2 unknown keys; ", "mean 'samples'?"]),
        pytest.param(
            {"model": {"source": "a", "max_model_len": 8}},
            ["'max_model_len' belongs under 'engine'"],
            marks=pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed"),
        ),
    ],
)
def test_an_unknown_key_is_answered_with_its_place(changes, parts) -> None:
    with pytest.raises(UserError) as caught:
        run_config({**TREE, **changes}, where="c.yaml")
    for part in parts:
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("effort", "template_kwargs", "thinks"),
    [("low", {"x": 1}, True), ("none", {}, False), ("high", {"enable_thinking": False}, False)],
)
def test_a_reasoning_effort_switches_thinking(effort, template_kwargs, thinks) -> None:
    tree = {**TREE, "model": {"source": "a", "chat_template_kwargs": template_kwargs}}
    assert run_config(tree, where="").template_kwargs == template_kwargs
    config = run_config({**tree, "sampling": {"reasoning_effort": effort}}, where="")
    expected = {**template_kwargs, "enable_thinking": thinks, "reasoning_effort": effort}
    assert config.template_kwargs == expected


def test_paths_in_a_file_are_relative_to_it(tmp_path: Path, monkeypatch: Any) -> None:
    folder, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    for name in ("project/cases.jsonl", "project/bench.py", "project/org/m/x", "elsewhere/t.jinja"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.chdir(elsewhere)
    sections = [
        {"name": "bench.py:Mine", "file": "cases.jsonl", "mode": "native"},
        {"name": "calls", "data": "./missing.jsonl"},
        {"name": "acebench", "data": "mini", "user": {"model": {"source": "org/m"}}},
    ]
    (folder / "native").mkdir()
    model = {"source": "org/other", "chat_template": "t.jinja", "plugins": ["../elsewhere/p.py"]}
    tree = {"model": model, "benchmarks": sections, "output": "./runs", "sampling": {"stop": ["."]}}
    (folder / "run.yaml").write_text(yaml.safe_dump(tree))
    config = load_config("../project/run.yaml", ["benchmarks.2.data=./given"])
    mine, calls, acebench = config.benchmarks
    assert mine.name == f"{folder}/bench.py:Mine"
    assert mine.options == {"file": f"{folder}/cases.jsonl", "mode": "native"}
    assert calls.options == {"data": f"{folder}/missing.jsonl"}
    given = {"data": "./given", "user": {"model": {"source": f"{folder}/org/m"}}}
    assert acebench.options == given, "a path of the command line stays"
    assert (config.model.source, config.model.chat_template) == ("org/other", "t.jinja")
    assert config.model.plugins == [f"{folder}/../elsewhere/p.py"]
    assert (config.output, config.sampling.stop) == ("./runs", ["."])
