"""Served roles: their parsers, their resources, and the requests to their engines."""

import asyncio
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray

from ace_ray.benchmarks.acebench.benchmark import ACEBench
from ace_ray.benchmarks.registry import make_benchmark
from ace_ray.config.roles import ServedRole
from ace_ray.config.schema import RunConfig
from ace_ray.errors import PromptTooLong, RowError, UserError
from ace_ray.models.sources import ModelRef
from ace_ray.pipeline.roles import RoleBinding, RoleModels, bind_roles, demand
from ace_ray.types import Completion, Sampling
from tests.limits import until


def role(**changes: object) -> ServedRole:
    return ServedRole.model_validate({"model": {"source": "org/m"}, **changes})


def needed(*served: ServedRole, on_gpu: bool = False) -> list[tuple[float, int]]:
    """Return CPUs and GPUs of each engine for the judges of some benchmarks."""
    bindings = {
        f"toy-{n}": {"judge": RoleBinding(judge, None, Sampling(), {})}
        for n, judge in enumerate(served)
    }
    return list(demand(bindings, on_gpu=on_gpu))


def test_roles_with_the_same_model_and_engine_share_engines() -> None:
    piped = role(replicas=2, engine={"tensor_parallel_size": 2, "pipeline_parallel_size": 3})
    assert needed(piped, on_gpu=True) == [(1.0, 6)] * 2
    assert needed(piped) == [(1.0, 0)] * 2
    alike = role(replicas=2), role(replicas=2, sampling={"max_tokens": 9})
    assert needed(*alike, role(replicas=2, engine={"max_model_len": 64})) == [(1.0, 0)] * 4


class Engine:
    """Stands in for the actor of an engine with one answer to all requests."""

    def __init__(self, answer: Completion | RowError) -> None:
        self.chat = SimpleNamespace(remote=self._chat)
        self._answer = answer

    async def _chat(self, *_: Any) -> Completion | RowError:
        return self._answer


def models(*engines: Any) -> Callable[[int, str], Any]:
    """Return the function that gives the user's model for a sample of an entry."""
    acebench = make_benchmark("acebench", {})
    bindings: Mapping[str, Any] = {"acebench": {"user": RoleBinding(role(), None, Sampling(), {})}}
    served = {("acebench", "user"): engines}
    of = RoleModels(bindings, served, SimpleNamespace()).models_of
    return lambda sample, entry: of(acebench, sample, [entry])["user"]


def test_an_episode_stays_with_one_of_the_replicas() -> None:
    def replica(sample: int, entry: str) -> str:
        of = models(Engine(Completion("first")), Engine(Completion("second")))
        return asyncio.run(of(sample, entry).ask([])).text

    counts = Counter(replica(sample, f"id{n}") for sample in (0, 1) for n in range(32))
    assert min(counts["first"], counts["second"]) > 8
    assert len({replica(1, "id7") for _ in range(4)}) == 1


def test_refusal_of_an_engine_is_raised_as_its_own_error() -> None:
    with pytest.raises(PromptTooLong, match="the prompt has 9 tokens"):
        asyncio.run(models(Engine(PromptTooLong("the prompt has 9 tokens")))(0, "a").ask([]))


class Faulty:
    """An engine that obeys the first message."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    async def chat(self, messages: list[dict[str, str]], *_: Any) -> Completion:
        if messages[0]["content"] == "raise":
            raise RuntimeError("a bug")
        if messages[0]["content"] == "die" and not self.marker.exists():
            self.marker.write_text("died")
            os._exit(1)
        if messages[0]["content"] == "wait":
            try:
                await asyncio.sleep(600)
            except asyncio.CancelledError:
                self.marker.write_text("cancelled")
                raise
        return Completion("an answer")


@pytest.mark.ray
def test_requests_of_a_lost_engine_are_asked_again_and_late_ones_are_cancelled(tmp_path) -> None:
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    ray.init("local", num_cpus=1, include_dashboard=False, log_to_driver=False)
    try:
        options = {"num_cpus": 0, "max_restarts": -1, "max_task_retries": -1}
        _actor = ray.remote(Faulty).options(name="r", **options).remote(tmp_path / "marker")
        model = models(ray.get_actor("r"))(0, "a")

        async def ask(text: str, timeout_s: float | None = None) -> str:
            work = model.ask([{"role": "user", "content": text}])
            return (await asyncio.wait_for(work, timeout_s)).text

        assert asyncio.run(ask("die")) == "an answer"
        with pytest.raises(RowError, match="a role gave no answer: RuntimeError: a bug"):
            asyncio.run(ask("raise"))
        with pytest.raises(TimeoutError):
            asyncio.run(ask("wait", 1.0))
        until(lambda: (tmp_path / "marker").read_text() == "cancelled")
    finally:
        ray.shutdown()


CALLS = "{{ tools }}<tool_call>{{ messages }}"
THINKS = "<|im_start|>assistant\n{% if enable_thinking %}<think>{% endif %}"


def user(folder: Path, template: str = THINKS, **role: Any) -> RoleBinding:
    (folder / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"]}))
    (folder / "chat_template.jinja").write_text(template)
    model = {"source": str(folder), **role.pop("model", {})}
    benchmark = make_benchmark("acebench", {"user": {"model": model, **role}})
    tree = {"model": {"source": "org/m"}, "benchmarks": ["acebench"]}
    candidate = ModelRef("org/m", "hub", "org/m", "0" * 40)
    return bind_roles(RunConfig.model_validate(tree), candidate, [benchmark])["acebench"]["user"]


def test_parsers_of_a_served_model_are_those_of_its_family(tmp_path, make_checkpoint, monkeypatch):
    folder = make_checkpoint(tmp_path / "user", 1.0)

    def parsers(template: str, **more: Any) -> tuple[Any, Any]:
        binding = user(folder, template, **more)
        assert isinstance(binding.role, ServedRole)
        model = binding.role.model
        assert binding.identity["reasoning_parser"] == model.reasoning_parser
        assert binding.identity.get("tool_parser") == model.tool_parser
        return model.reasoning_parser, model.tool_parser

    auto = {"tool_parser": "auto"}
    assert parsers(THINKS) == ("qwen3", None)
    assert parsers("{{ messages }}", model=auto) == ("auto", None)
    assert parsers(THINKS, model={"reasoning_parser": "none"}) == ("none", None)
    assert parsers(THINKS, engine={"reasoning_parser": "olmo3"}) == ("auto", None)
    tool = {"type": "function", "function": {"name": "find"}}
    monkeypatch.setattr(ACEBench, "role_tools", lambda self, role: [tool])
    refused = r"^benchmarks\.acebench\.user\.model\.tool_parser: this role is offered .*write auto"
    with pytest.raises(UserError, match=refused):
        parsers(CALLS)


def test_a_served_model_has_the_sampling_of_its_section(tmp_path, make_checkpoint) -> None:
    folder = make_checkpoint(tmp_path / "user", 1.0)
    settings = user(folder, sampling={"temperature": 0.3, "max_tokens": 9})
    assert (settings.sampling.temperature, settings.sampling.max_tokens) == (0.3, 9)
