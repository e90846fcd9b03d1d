"""A `Sampling` in the words of vLLM and of OpenAI, and what a model says of its own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ace_ray.config.schema import ModelConfig, SamplingConfig, validated
from ace_ray.errors import UserError
from ace_ray.models.sampling import (
    check_budget,
    check_sampling,
    completed,
    request_fields,
    vllm_arguments,
)
from ace_ray.models.sources import ModelRef
from ace_ray.types import Sampling

SCHEMA = {"type": "object", "properties": {"b": {}, "a": {}}}
OWN = {
    "min_p": 0.1,
    "presence_penalty": 0.5,
    "frequency_penalty": -0.5,
    "repetition_penalty": 1.1,
    "thinking_token_budget": 9,
}
EVERY = validated(
    SamplingConfig,
    OWN
    | {"temperature": 0.7, "top_k": 4, "stop": ["s"], "max_tokens": 30, "seed": 2}
    | {"reasoning_effort": "low"},
    where="",
)


def test_vllm_is_given_what_was_asked_for_within_its_context() -> None:
    assert vllm_arguments(EVERY.sampling(), room=10) == OWN | {
        "temperature": 0.7,
        "top_p": 1.0,
        "top_k": 4,
        "max_tokens": 10,
        "seed": 2,
        "stop": ["s"],
    }


def test_greedy_decoding_has_no_seed_and_defaults_are_not_sent() -> None:
    assert vllm_arguments(Sampling(seed=4), room=5000) == {
        "temperature": 0.0,
        "top_p": 1.0,
        "top_k": 0,
        "max_tokens": 1200,
        "seed": None,
        "stop": None,
    }


def test_vllm_takes_all_of_them(vllm: Any) -> None:
    drawn = EVERY.sampling().following(SCHEMA)
    params = vllm.SamplingParams(**vllm_arguments(drawn, room=100))
    assert params.structured_outputs.json == json.dumps(SCHEMA)
    assert (params.min_p, params.thinking_token_budget) == (0.1, 9)


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("temperature", -0.1, 2.1),
        ("top_p", 0, 1.1),
        ("min_p", -0.1, 1.1),
        ("presence_penalty", -2.1, 2.1),
        ("frequency_penalty", -2.1, 2.1),
        ("repetition_penalty", 0, float("inf")),
        ("max_tokens", 0, None),
        ("top_k", -2, 1.5),
        ("thinking_token_budget", -1, 1.5),
        ("stop", [""], "x"),
        ("reasoning_effort", "Very much", 3),
    ],
)
def test_what_vllm_refuses_is_refused_before_it_is_asked(name: str, low: Any, high: Any) -> None:
    for value in (low, high):
        if value is not None:
            with pytest.raises(UserError, match=rf"'{name}(\.0)?' is .*, it should "):
                validated(SamplingConfig, {name: value}, where="c.yaml")


def test_an_endpoint_is_sent_the_same() -> None:
    assert request_fields(EVERY.sampling().following(SCHEMA)) == OWN | {
        "temperature": 0.7,
        "top_p": 1.0,
        "top_k": 4,
        "max_tokens": 30,
        "seed": 2,
        "stop": ["s"],
        "reasoning_effort": "low",
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "answer", "schema": SCHEMA},
        },
    }


def test_new_keys_change_no_identity_until_they_are_used() -> None:
    assert Sampling(stop=("x",)).as_json() == {
        "temperature": 0.0,
        "top_p": 1.0,
        "top_k": 0,
        "max_tokens": 1200,
        "seed": 0,
        "stop": ["x"],
    }
    for name in [*OWN, "reasoning_effort"]:
        assert name in EVERY.sampling().as_json()
    assert Sampling().following(SCHEMA).as_json()["schema"] == json.dumps(SCHEMA)
    assert Sampling().following(SCHEMA).following(None) == Sampling()


Make = Callable[..., ModelRef]


@pytest.fixture
def model(tmp_path: Path) -> Make:
    """A model folder with that generation config; None: without one."""

    def make(own: Any) -> ModelRef:
        if own is not None:
            (tmp_path / "generation_config.json").write_text(json.dumps(own))
        return ModelRef(str(tmp_path), "folder", str(tmp_path), "sha256:1")

    return make


def asked(model: ModelRef | None, engine: Any = None, **named: Any) -> SamplingConfig:
    config = validated(SamplingConfig, {"defaults": "model", **named}, where="")
    return completed(config, model, engine or {}, where="sampling")


def test_the_models_own_values_below_those_that_are_named(model: Make) -> None:
    own = {"temperature": 0.6, "top_k": 20, "max_new_tokens": 99, "do_sample": True, "min_p": None}
    made = asked(model(own), top_k=5, seed=3)
    assert made.sampling() == Sampling(0.6, top_k=5, max_tokens=99, seed=3)
    # Stored, it draws the same without the model.
    again = validated(SamplingConfig, made.model_dump(mode="json"), where="")
    assert again.is_complete
    assert again.sampling() == made.sampling()


def test_one_that_names_no_temperature_is_not_greedy(model: Make) -> None:
    """Its makers mean transformers' default, which vLLM's server uses too."""
    assert asked(model({"top_p": 0.8})).sampling() == Sampling(1.0, top_p=0.8)
    assert asked(model({"top_p": 0.8, "top_k": -1})).sampling().top_k == 0


def test_as_vllms_server_reads_it(model: Make) -> None:
    transformers = pytest.importorskip("transformers")
    ref = model({"temperature": 0.7, "top_p": 0.8, "top_k": 20, "repetition_penalty": 1.05})
    theirs = transformers.GenerationConfig.from_pretrained(ref.location).to_diff_dict()
    ours = asked(ref).sampling()
    for name in ("temperature", "top_p", "top_k", "repetition_penalty"):
        assert getattr(ours, name) == theirs[name]


def test_an_engine_that_is_given_another_folder_reads_that(model: Make, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "generation_config.json").write_text('{"temperature": 0.3}')
    ref = model({"temperature": 0.6})
    assert asked(ref, {"generation_config": str(other)}).temperature == 0.3
    assert asked(ref, {"generation_config": "auto"}).temperature == 0.6


@pytest.mark.parametrize(
    ("own", "line"),
    [
        (
            None,
            "generation_config.json recommends no sampling values; write the values instead "
            "of model",
        ),
        ({"eos_token_id": 2, "do_sample": False}, "recommends no sampling values"),
        ({"temperature": 3.5}, "generation_config.json: 'temperature' is 3.5"),
        ({"temperature": "hot"}, "'temperature' is 'hot'"),
        ([], "generation_config.json: is not a JSON object"),
    ],
)
def test_a_model_that_says_nothing_usable(model: Make, own: Any, line: str) -> None:
    with pytest.raises(UserError) as caught:
        asked(model(own))
    assert line in str(caught.value)


@pytest.mark.parametrize("ref", [None, ModelRef("x", "fake", "x", "unknown")])
def test_files_that_nobody_can_read(ref: ModelRef | None) -> None:
    with pytest.raises(
        UserError, match=r"^sampling: .* its files are not available here; write the"
    ):
        asked(ref)


def test_what_is_not_completed_is_not_stored_as_if_it_were() -> None:
    config = validated(SamplingConfig, {"defaults": "model", "max_tokens": 5}, where="")
    assert config.model_dump(mode="json") == {"defaults": "model", "max_tokens": 5}
    with pytest.raises(ValueError, match="not resolved"):
        config.sampling()


def test_a_budget_needs_a_parser_that_finds_the_reasoning() -> None:
    config = validated(SamplingConfig, {"thinking_token_budget": 5}, where="")
    for parser in ("auto", "none", "of_a_plugin"):
        with pytest.raises(UserError, match=r"^sampling.thinking_token_budget: .*reasoning_parser"):
            check_budget(config, {}, parser, where="sampling")
    check_budget(config, {"reasoning_config": {"a": 1}}, "auto", where="")
    check_budget(config, {"reasoning_parser": "qwen3"}, "auto", where="")
    check_budget(config, {}, "qwen3", where="")
    check_budget(SamplingConfig(), {}, "auto", where="")
    check_budget(None, {}, "auto", where="")


def test_an_effort_is_named_once() -> None:
    config = validated(SamplingConfig, {"reasoning_effort": "low"}, where="")
    model = ModelConfig(source="m", chat_template_kwargs={"reasoning_effort": "high"})
    with pytest.raises(
        UserError, match=r"^sampling.reasoning_effort: is also set in model.chat_template"
    ):
        check_sampling(config, model, where="sampling")
