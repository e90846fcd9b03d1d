"""Served roles: their parsers, the command line of vLLM's server, and its process.

The server here is a small script; vLLM itself is not started.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from ace_ray.benchmarks.acebench.benchmark import ACEBench
from ace_ray.benchmarks.registry import make_benchmark
from ace_ray.config.schema import RunConfig
from ace_ray.errors import UserError
from ace_ray.models.roles import ServedRole
from ace_ray.models.sources import ModelRef
from ace_ray.pipeline import serving
from ace_ray.pipeline.roles import RoleBinding, RoleModels, bind_roles, demand
from ace_ray.pipeline.serving import Server, ServerFailed, command, flags, free_port
from ace_ray.types import Sampling
from tests.limits import until
from tests.scripted_model import ScriptedModel

HOST = "127.0.0.1"
PATIENCE_S = 20.0

# Note the process, then answer to /health. The mode changes that.
SCRIPT = """
import http.server, os, sys, time
port, notes, mode = int(sys.argv[1]), sys.argv[2], sys.argv[3]
if mode == "die":
    print("loading"); print("OutOfMemory: no room"); sys.exit(3)
if mode == "raise":
    for error in ("ValueError: no room for a KV cache", "RuntimeError: See root cause above"):
        for line in ("Traceback (most recent call last):", "  File 'core.py', line 1", error):
            print("(EngineCore pid=7) ERROR 11-24 21:40:45 [core.py:15]", line)
    sys.exit(1)
with open(notes, "a") as file:
    print(os.getpid(), file=file)
if mode == "hang":
    time.sleep(600)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/health" else 404)
        self.end_headers()
http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


class Lab:
    """Servers of one test, and their processes."""

    def __init__(self, folder: Path) -> None:
        self.notes, self.port = folder / "pids", free_port(HOST)
        self.servers: list[Server] = []

    def server(self, mode: str = "serve") -> Server:
        command = [sys.executable, "-S", "-c", SCRIPT, str(self.port), str(self.notes), mode]
        self.servers.append(Server(command, dict(os.environ), host=HOST, port=self.port))
        return self.servers[-1]

    def pids(self) -> list[int]:
        return [int(pid) for pid in self.notes.read_text().split()] if self.notes.exists() else []

    def all_gone(self) -> bool:
        return not any(psutil.pid_exists(pid) for pid in self.pids())


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    monkeypatch.setattr(serving, "POLL_S", 0.02)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    made = Lab(tmp_path)
    yield made
    for server in made.servers:
        server.stop()


def test_server_starts_and_stops(lab: Lab) -> None:
    server = lab.server()
    server.start(PATIENCE_S)
    assert len(lab.pids()) == 1
    assert not lab.all_gone()
    server.stop()
    until(lab.all_gone)
    assert not server.log.exists()
    assert server.wait() == ""
    server.stop()  # twice does no harm


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("die", "exit code 3 before it was ready: loading.*OutOfMemory: no room"),
        # The first error is the cause.
        ("raise", "ready: ValueError: no room for a KV cache"),
    ],
)
def test_failed_start_is_one_line_with_the_cause(lab: Lab, mode: str, words: str) -> None:
    server = lab.server(mode)
    with pytest.raises(ServerFailed, match=words) as caught:
        server.start(PATIENCE_S)
    line = str(caught.value)
    assert str(server.log) in line or mode == "raise"
    assert "\n" not in line
    assert "root cause" not in line
    assert server.log.exists()


def test_start_ends_at_its_timeout(lab: Lab) -> None:
    server = lab.server("hang")
    with pytest.raises(ServerFailed, match=r"was not ready in 1\.5 s: no output|exit code"):
        server.start(1.5)
    server.stop()
    until(lab.all_gone)


def role(**changes: object) -> ServedRole:
    return ServedRole.model_validate({"model": {"source": "org/m"}, **changes})


def line(engine: dict[str, object], **model: object) -> list[str]:
    played = role(model={"source": "org/m", **model})
    return command(Path("/models/m"), played, engine, name="m", host="10.0.0.1", port=8123)


def test_command_line_of_vllm_s_server() -> None:
    words = line({"dtype": "bfloat16"})
    assert words[:4] == [sys.executable, "-P", "-m", "vllm.entrypoints.openai.api_server"]
    for word in ("--model=/models/m", "--host=10.0.0.1", "--port=8123", "--dtype=bfloat16"):
        assert word in words
    # As in the candidate's engine, the model's own sampling defaults are not used.
    assert "--generation-config=vllm" in words
    assert words[words.index("--served-model-name") + 1] == "m"
    assert not any("api" in word for word in words[4:])
    assert "--generation-config=auto" in line({"generation_config": "auto"})


@pytest.mark.parametrize(
    ("engine", "model", "more"),
    [
        ({}, {"reasoning_parser": "qwen3"}, ["--reasoning-parser=qwen3"]),
        ({}, {"reasoning_parser": "none"}, []),
        ({"reasoning_parser": "olmo3"}, {}, ["--reasoning-parser=olmo3"]),
        (
            {},
            {"chat_template_kwargs": {"enable_thinking": False}, "tool_parser": "hermes"},
            [
                "--enable-auto-tool-choice",
                "--tool-call-parser=hermes",
                '--default-chat-template-kwargs={"enable_thinking": false}',
            ],
        ),
    ],
)
def test_parsers_and_template_of_a_served_model(engine: Any, model: Any, more: list[str]) -> None:
    plain = line({})
    assert not any(part in word for word in plain for part in ("reasoning", "template", "tool"))
    assert [word for word in line(engine, **model) if word not in plain] == more


def test_engine_arguments_become_flags() -> None:
    engine: dict[str, Any] = {"max_model_len": 4096, "enforce_eager": True, "quantization": None}
    engine |= {"enable_prefix_caching": False, "hf_overrides": {"rope": {"factor": 2.0}}}
    made = flags({**engine, "kv_cache_dtype_skip_layers": ["0", 1], "dtype": "-x"})
    assert made[:3] == ["--max-model-len=4096", "--enforce-eager", "--no-enable-prefix-caching"]
    assert made[3] == '--hf-overrides={"rope": {"factor": 2.0}}'
    assert made[4:] == ["--kv-cache-dtype-skip-layers", "0", "1", "--dtype=-x"]


def test_roles_with_the_same_model_and_engine_share_resources() -> None:
    def resources(*roles: ServedRole, on_gpu: bool) -> Any:
        bound = [{"user": RoleBinding(served, None, Sampling(), {})} for served in roles]
        return demand(dict(zip("abc", bound, strict=False)), on_gpu=on_gpu)

    piped = role(replicas=2, engine={"tensor_parallel_size": 2, "pipeline_parallel_size": 3})
    assert resources(piped, on_gpu=True) == [(1.0, 6)] * 2
    judge = role(replicas=2, sampling={"max_tokens": 9})
    other = role(replicas=2, engine={"max_model_len": 64})
    assert resources(role(replicas=2), judge, other, on_gpu=False) == [(1.0, 0)] * 4


def test_a_role_with_cached_answers_has_one_seed_in_all_samples() -> None:
    binding = RoleBinding("same", None, Sampling(temperature=0.5), {})
    bindings = {"stabletoolbench": {"simulator": binding, "judge": binding}}
    models = RoleModels(bindings, {}, ScriptedModel(), seed=0)
    roles = [models.of(make_benchmark("stabletoolbench", {}), n, ["id"]) for n in (0, 1)]
    seeds = {name: len({made[name].sampling.seed for made in roles}) for name in roles[0]}
    assert seeds == {"simulator": 1, "judge": 2}


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


def test_parsers_of_a_served_model_are_those_of_its_family(
    tmp_path: Path, make_checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_served_model_has_the_sampling_of_its_section(
    tmp_path: Path, make_checkpoint: Callable[..., Path]
) -> None:
    folder = make_checkpoint(tmp_path / "user", 1.0)
    found = user(folder, sampling={"temperature": 0.3, "max_tokens": 9})
    assert (found.sampling.temperature, found.sampling.max_tokens) == (0.3, 9)
