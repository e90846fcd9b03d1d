"""Sampling parameters of vLLM and OpenAI, and a model's own recommendations."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ace_ray.config.schema import ModelConfig, SamplingConfig, validate_tree
from ace_ray.errors import UserError
from ace_ray.models import sampling
from ace_ray.types import Sampling

SCHEMA = {"type": "object", "properties": {"b": {}, "a": {}}}
OWN = {"min_p": 0.1, "presence_penalty": 0.5, "frequency_penalty": -0.5}
OWN |= {"repetition_penalty": 1.1, "thinking_token_budget": 9}
COMMON = {"temperature": 0.7, "top_p": 1.0, "top_k": 4, "seed": 2, "stop": ["s"]}
EVERY = validate_tree(
    SamplingConfig, OWN | COMMON | {"max_tokens": 30, "reasoning_effort": "low"}, where=""
).sampling()


def test_vllm_and_endpoints_get_the_same_parameters() -> None:
    assert sampling.vllm_arguments(EVERY, room=10) == OWN | COMMON | {"max_tokens": 10}
    schema = {"name": "answer", "schema": SCHEMA}
    assert sampling.request_fields(EVERY.with_schema(SCHEMA)) == OWN | COMMON | {
        "max_tokens": 30,
        "reasoning_effort": "low",
        "response_format": {"type": "json_schema", "json_schema": schema},
    }
    # Greedy decoding has no seed, and defaults are not sent.
    greedy = {"temperature": 0.0, "top_p": 1.0, "max_tokens": 1200}
    unset = {"top_k": 0, "seed": None, "stop": None}
    assert sampling.vllm_arguments(Sampling(seed=4), room=5000) == {**greedy, **unset}
    assert sampling.request_fields(Sampling()) == greedy
    assert sampling.request_fields(Sampling(temperature=0.7, seed=0))["seed"] == 0


def test_vllm_takes_all_of_them(vllm: Any) -> None:
    params = vllm.SamplingParams(**sampling.vllm_arguments(EVERY.with_schema(SCHEMA), room=100))
    assert params.structured_outputs.json == json.dumps(SCHEMA)
    assert (params.min_p, params.thinking_token_budget) == (0.1, 9)


OUT_OF_RANGE: dict[str, Any] = {
    **{"temperature": (-0.1, 2.1), "top_p": (0, 1.1), "min_p": (-0.1, 1.1), "max_tokens": (0,)},
    **{"presence_penalty": (-2.1, 2.1), "frequency_penalty": (-2.1, 2.1), "top_k": (-2, 1.5)},
    **{"repetition_penalty": (0, float("inf")), "thinking_token_budget": (-1, 1.5)},
    **{"stop": ([""], "x"), "reasoning_effort": ("Very much", 3)},
}


def test_values_out_of_vllms_ranges_are_refused() -> None:
    pairs = [(name, value) for name, values in OUT_OF_RANGE.items() for value in values]
    for name, value in pairs:
        with pytest.raises(UserError, match=rf"'{name}(\.0)?' is .*, it should "):
            validate_tree(SamplingConfig, {name: value}, where="c.yaml")


def test_keys_are_in_an_identity_only_when_they_are_used() -> None:
    fields = {"temperature": 0.0, "top_p": 1.0, "top_k": 0, "max_tokens": 1200, "seed": 0}
    assert Sampling(stop=("x",)).as_json() == {**fields, "stop": ["x"]}
    assert {*OWN, "reasoning_effort"} <= EVERY.as_json().keys()
    assert Sampling().with_schema(SCHEMA).as_json()["schema"] == json.dumps(SCHEMA)
    assert Sampling().with_schema(SCHEMA).with_schema(None) == Sampling()


Make = Callable[..., Path]


@pytest.fixture
def model(tmp_path: Path) -> Make:
    """Make a model folder with a generation config, or without one."""

    def make(config: Any) -> Path:
        if config is not None:
            (tmp_path / "generation_config.json").write_text(json.dumps(config))
        return tmp_path

    return make


def resolve(folder: Path | None, engine: Any = None, **options: Any) -> SamplingConfig:
    config = validate_tree(SamplingConfig, {"defaults": "model", **options}, where="")
    return sampling.fill_defaults(config, folder, engine or {}, location="sampling")


def test_the_models_own_values_fill_the_gaps(model: Make, tmp_path: Path) -> None:
    values = {
        "temperature": 0.6,
        "top_k": 20,
        "max_new_tokens": 99,
        "do_sample": True,
        "min_p": None,
    }
    config = resolve(model(values), top_k=5, seed=3)
    assert config.sampling() == Sampling(0.6, top_k=5, max_tokens=99, seed=3)
    # Stored, it draws the same without the model.
    again = validate_tree(SamplingConfig, config.model_dump(mode="json"), where="")
    assert again.is_complete
    assert again.sampling() == config.sampling()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "generation_config.json").write_text('{"temperature": 0.3}')
    engine = {"generation_config": str(tmp_path / "other")}
    assert resolve(model(values), engine).temperature == 0.3
    assert resolve(model(values), {"generation_config": "auto"}).temperature == 0.6
    # Without a temperature, transformers' default of 1 is meant, not greedy decoding.
    assert resolve(model({"top_p": 0.8, "top_k": -1})).sampling() == Sampling(1.0, top_p=0.8)


def test_a_model_without_usable_values_is_refused(model: Make) -> None:
    for values, line in (
        (None, "config.json recommends no sampling values; write the values in place of"),
        ({"eos_token_id": 2, "do_sample": False}, "recommends no sampling values"),
        ({"temperature": 3.5}, "generation_config.json: 'temperature' is 3.5"),
        ([], "generation_config.json: .*is not a JSON object"),
    ):
        with pytest.raises(UserError, match=line):
            resolve(model(values))
    with pytest.raises(UserError, match=r"^sampling: .* its files are not available here; wri"):
        resolve(None)


def test_a_budget_needs_a_parser_and_an_effort_is_set_once() -> None:
    config = validate_tree(SamplingConfig, {"thinking_token_budget": 5}, where="")
    for parser in ("auto", "of_a_plugin"):
        with pytest.raises(UserError, match=r"^sampling.thinking_token_budget: .*reasoning_parser"):
            sampling.check_budget(config, {}, parser, location="sampling")
    sampling.check_budget(config, {"reasoning_config": {"a": 1}}, "auto", location="")
    sampling.check_budget(config, {"reasoning_parser": "qwen3"}, "auto", location="")
    sampling.check_budget(config, {}, "qwen3", location="")
    sampling.check_budget(SamplingConfig(), {}, "auto", location="")
    config = validate_tree(SamplingConfig, {"reasoning_effort": "low"}, where="")
    model = ModelConfig(source="m", chat_template_kwargs={"reasoning_effort": "high"})
    with pytest.raises(UserError, match=r"^sampling.reasoning_effort: is also set in model.chat"):
        sampling.check_sampling(config, model, location="sampling")
