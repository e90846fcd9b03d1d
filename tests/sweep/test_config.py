"""Configs of sweeps: what they take, the line for each mistake, and the plan that is printed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from ace_ray.config.schema import RunConfig
from ace_ray.errors import UserError
from ace_ray.sweep.config import SweepModel, load_sweep, sweep_id_of

Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write the config of a sweep over one model, with ``changes``; "drop" removes a key."""

    def make(**changes: Any) -> str:
        tree: dict[str, Any] = {"benchmarks": ["acebench"], "models": [{"source": "org/a"}]}
        path = tmp_path / "sweep.yaml"
        config = {key: value for key, value in {**tree, **changes}.items() if value != "drop"}
        path.write_text(yaml.safe_dump(config))
        return str(path)

    return make


def test_every_option_of_a_sweep_is_read(write: Write) -> None:
    settings: dict[str, Any] = {"checkpoints": "s3://bucket/run", "pattern": "step_*", "every": 2}
    settings |= {"from": 100, "to": 900, "swap": False, "sweep_id": "mine"}
    settings |= {"watch": True, "settle_s": 5, "stop_file": "stop", "reference": "step 100"}
    notify = {"url": "https://h/x", "url_env": None, "token_env": "T", "command": None}
    settings["notify"] = {**notify, "timeout_s": 5}
    options = load_sweep(write(**settings)).options
    assert options.model_dump(by_alias=True, exclude={"models"}) == settings
    assert not settings.keys() & set(RunConfig.model_fields), "a key belongs to one of the two"


def test_keys_of_a_model_override_keys_of_the_sweep(write: Write) -> None:
    path = write(
        engine={"dtype": "bfloat16", "max_model_len": 4096},
        model={"tool_parser": "hermes", "chat_template_kwargs": {"a": 1}},
        sampling={"max_tokens": 7},
        price_per_hour=2.5,
        limit=3,
        checkpoints="ckpt",
    )
    sweep = load_sweep(path, ("every=4", "sampling.seed=9"), {"limit": 2, "output": "there"})
    assert (sweep.options.every, sweep.output, sweep.any_run.price_per_hour) == (4, "there", 2.5)
    model: dict[str, Any] = {"source": "org/b", "revision": "v2", "label": "the big one"}
    model |= {"engine": {"max_model_len": 128, "tensor_parallel_size": 2}}
    model |= {"reasoning_parser": "none", "chat_template_kwargs": {"b": 2}}
    model |= {"sampling": {"top_p": 0.5, "seed": 8}, "reasoning_effort": "low"}
    config = sweep.run_of(SweepModel.model_validate(model), "elsewhere")
    assert config.engine == {"dtype": "bfloat16", "max_model_len": 128, "tensor_parallel_size": 2}
    assert (config.model.source, config.model.revision) == ("org/b", "v2")
    assert (config.model.tool_parser, config.model.reasoning_parser) == ("hermes", "none")
    assert config.model.chat_template_kwargs == {"b": 2}
    drawn = {"max_tokens": 7, "top_p": 0.5, "seed": 8, "reasoning_effort": "low"}
    assert config.sampling.model_dump(exclude_unset=True) == drawn
    assert (config.limit, config.output) == (2, "elsewhere")


def test_sweeps_without_the_newer_keys_keep_their_id(write: Write) -> None:
    models = [{"source": "org/a", "label": "a"}, {"source": "org/b", "engine": {"x": 1}}]
    path = write(engine={"dtype": "auto"}, models=models)
    assert sweep_id_of(load_sweep(path)) == "sweep-a-140320ea36"
    assert sweep_id_of(load_sweep(path, ("reference=a",))) == "sweep-a-140320ea36"
    assert sweep_id_of(load_sweep(path, ("models.0.sampling.seed=1",))) != "sweep-a-140320ea36"


ENDPOINT = {"model": {"endpoint": {"url": "http://h/v1", "api_key_env": None}}}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"models": "drop"}, "names no models; add checkpoints"),
        ({"chekpoints": "x"}, "unknown key 'chekpoints'; did you mean 'checkpoints'"),
        ({"run_id": "x"}, "'run_id' applies to single runs only; name the sweep with sweep_id"),
        ({"watch": True}, "'watch' needs checkpoints"),
        ({"checkpoints": "ckpt", "from": 9, "to": 3}, "'from' is 9 and 'to' is 3"),
        ({"model": {"source": "x"}}, "'model.source' has no effect, since every model"),
        ({"models": [{"adapter": "a"}]}, "'models.0.source' is missing"),
        ({"workers": {"max": 8}}, "elastic workers are not supported in sweeps"),
    ],
)
def test_a_mistake_is_one_line_with_a_fix(write, changes, words) -> None:
    path = write(**changes)
    with pytest.raises(UserError) as error:
        load_sweep(path)
    line = str(error.value)
    assert line.startswith(f"{path}: ")
    assert words in line
    assert error.value.fix


def test_models_of_an_endpoint_share_its_address(write: Write) -> None:
    models = [{"endpoint": {"model": "a"}}, {"endpoint": {"model": "b", "url": "http://o/v1"}}]
    sweep = load_sweep(write(**ENDPOINT, models=models))
    endpoints = [sweep.run_of(model, "out").model.endpoint for model in sweep.options.models]
    assert [(e.url, e.model, e.api_key_env) for e in endpoints if e] == [
        ("http://h/v1", "a", None),
        ("http://o/v1", "b", None),
    ]


def test_a_plan_names_sizes_refusals_and_costs_and_writes_nothing(
    write, invoke, tmp_path, make_checkpoint, monkeypatch
) -> None:
    monkeypatch.setattr("ace_ray.sweep.runs.size_of", lambda model: None)
    for step in range(1, 7):
        make_checkpoint(tmp_path / "run" / f"step_{step}", float(step))
    (tmp_path / "run/step_2/tokenizer.json").unlink()
    settings = {"sweep_id": "sweep", "output": str(tmp_path / "out"), "price_per_hour": 3600}
    path = write(models="drop", checkpoints=str(tmp_path / "run"), backend="fake", **settings)
    plan = invoke("sweep", path, "--plan").ok()
    for words in (
        "step 1 .. step 6 (5)",
        "5 models, 0 of them finished",
        "step 2: refused: the checkpoint is incomplete: the tokenizer is missing",
        "step 1: its size is unknown; the estimate assumes 1 billion parameters",
        "CPU engine hours",
        " at 3600 per hour",
        f"results: {tmp_path}/out/sweep/",
    ):
        assert words in plan.stdout
    assert not (tmp_path / "out").exists()
