"""The bindings of roles: what is decided of a served model before anything starts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ace_ray.benchmarks.acebench.benchmark import ACEBench
from ace_ray.benchmarks.registry import make_benchmark
from ace_ray.config.schema import RunConfig, validated
from ace_ray.errors import UserError
from ace_ray.models.roles import ServedRole
from ace_ray.models.sources import ModelRef
from ace_ray.pipeline.roles import RoleBinding, bind_roles

CALLS = "{{ tools }}<tool_call>{{ messages }}"
THINKS = "<|im_start|>assistant\n{% if enable_thinking %}<think>{% endif %}"


def user(folder: Path, template: str = THINKS, **role: Any) -> RoleBinding:
    (folder / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"]}))
    (folder / "chat_template.jinja").write_text(template)
    header = b'{"w": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}'
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"w")
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


@pytest.fixture
def offered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The user of ACEBench is offered a tool."""
    tool = {"type": "function", "function": {"name": "find"}}
    monkeypatch.setattr(ACEBench, "role_tools", lambda self, role: [tool])


def tool_parser(binding: RoleBinding) -> str | None:
    assert isinstance(binding.role, ServedRole)
    assert binding.identity.get("tool_parser") == binding.role.model.tool_parser
    return binding.role.model.tool_parser


@pytest.mark.usefixtures("offered")
def test_a_served_role_that_is_offered_tools_needs_a_tool_parser(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        user(tmp_path, CALLS)
    line = str(caught.value)
    assert line.startswith("benchmarks.acebench.user.model.tool_parser: this role is offered tools")
    assert "write auto" in line
    assert "ace-ray list parsers" in line


@pytest.mark.nightly
@pytest.mark.usefixtures("offered")
def test_the_tool_parser_of_a_served_model_is_that_of_its_family(tmp_path: Path) -> None:
    auto = {"tool_parser": "auto"}
    assert tool_parser(user(tmp_path, CALLS, model=auto)) == "hermes"
    assert tool_parser(user(tmp_path, CALLS, model={"tool_parser": "mistral"})) == "mistral"
    # Neither choice is in the way of the other.
    both = user(tmp_path, THINKS + CALLS, model=auto)
    assert (parser(both), tool_parser(both)) == ("qwen3", "hermes")
    told = user(tmp_path, CALLS, model=auto, engine={"reasoning_parser": "olmo3"})
    assert (parser(told), tool_parser(told)) == ("auto", "hermes")
    with pytest.raises(
        UserError, match=r"^benchmarks\.acebench\.user\.model\.tool_parser: .*format"
    ):
        user(tmp_path, "{{ messages }}", model=auto)


@pytest.mark.nightly
def test_a_served_model_that_is_offered_no_tools_stays_as_it_was(tmp_path: Path) -> None:
    plain, auto = user(tmp_path, CALLS), user(tmp_path, CALLS, model={"tool_parser": "auto"})
    assert tool_parser(plain) is tool_parser(auto) is None
    assert auto.identity == plain.identity
    # No family is looked for that nobody needs.
    user(tmp_path, "{{ messages }}", model={"tool_parser": "auto"})
