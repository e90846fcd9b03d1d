"""The bindings of roles: what is decided of a served model before anything starts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ace_ray.benchmarks.registry import make_benchmark
from ace_ray.config import RunConfig, validated
from ace_ray.errors import UserError
from ace_ray.models.roles import ServedRole
from ace_ray.models.sources import ModelRef
from ace_ray.run.roles import RoleBinding, bind_roles

THINKS = "<|im_start|>assistant\n{% if enable_thinking %}<think>{% endif %}"


def user(folder: Path, template: str = THINKS, **role: Any) -> RoleBinding:
    (folder / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"]}))
    (folder / "chat_template.jinja").write_text(template)
    (folder / "model.safetensors").touch()
    model = {"source": str(folder), **role.pop("model", {})}
    benchmark = make_benchmark("acebench", {"user": {"model": model, **role}})
    config = validated(
        RunConfig,
        {
            "model": {"source": "org/m"},
            "benchmarks": [{"name": "acebench"}],
            "output": str(folder / "runs"),
        },
        where="",
    )
    candidate = ModelRef("org/m", "hub", "org/m", "0" * 40)
    return bind_roles(config, candidate, [benchmark])["acebench"]["user"]


def parser(binding: RoleBinding) -> str:
    assert isinstance(binding.role, ServedRole)
    assert binding.identity["reasoning_parser"] == binding.role.model.reasoning_parser
    return binding.role.model.reasoning_parser


def test_the_reasoning_parser_of_a_served_model_is_that_of_its_family(tmp_path: Path) -> None:
    assert parser(user(tmp_path)) == "qwen3"
    assert parser(user(tmp_path, "{{ messages }}")) == "auto"
    assert parser(user(tmp_path, model={"reasoning_parser": "none"})) == "none"
    assert parser(user(tmp_path, engine={"reasoning_parser": "olmo3"})) == "auto"


def test_a_budget_of_a_served_model_that_thinks(tmp_path: Path) -> None:
    budget = {"thinking_token_budget": 9}
    assert user(tmp_path, sampling=budget).sampling.thinking_token_budget == 9
    with pytest.raises(UserError, match=r"^benchmarks.acebench.user.sampling.thinking_token_bud"):
        user(tmp_path, "{{ messages }}", sampling=budget)
