"""Agent episodes of ACEBench, and their model calls on an AsyncLLM alone in its process.

    python perf/agent_episodes.py SPEC

is that process. SPEC is a JSON file ``{model, engine, chains: [[{messages, max_tokens}, ...],
...]}``: the calls of a chain are made one after another, the chains all at once. The last line
printed is JSON: ``seconds``, ``prompt_tokens`` and ``completion_tokens``.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ace_ray.benchmarks.base import Benchmark
from ace_ray.benchmarks.context import EpisodeContext, RoleModel
from ace_ray.config.schema import load_config
from ace_ray.errors import PromptTooLong
from ace_ray.models.cpu_environment import core_binding
from ace_ray.pipeline.evaluate import plan_run
from ace_ray.sandbox.protocol import LocalSession
from ace_ray.storage.rows import episode_of
from ace_ray.types import Completion, Entry, Sampling

MAX_TOKENS = 64
MAX_MESSAGES = 12

# ACEBench with a simulated user as brief as the agent: 1,000 tokens of babble a line, which is what
# upstream allows, would leave nothing to measure but decoding.
PLUGIN = f"""
from dataclasses import replace

from ace_ray.benchmarks.acebench.benchmark import ACEBench
from ace_ray.types import Sampling


class Brief(ACEBench):
    name = "acebench_brief"

    def entries(self):
        return [replace(entry, benchmark=self.name) for entry in super().entries()]

    def role_sampling(self, role):
        return Sampling(max_tokens={MAX_TOKENS})
"""
METADATA = "Metadata-Version: 2.1\nName: perf-brief-user\nVersion: 1\n"
ENTRY_POINT = "[ace_ray.benchmarks]\nacebench_brief = perf_brief_user:Brief\n"
BRIEF_AGENTS = {
    "name": "acebench_brief",
    "data": "mini",
    "languages": ["en"],
    "categories": ["agent"],
    "max_messages": MAX_MESSAGES,
}
"""The section of a config. With a tiny model, episodes go on to their limit of messages."""


def install_brief_user(plugins: Path) -> None:
    """Install the benchmark with the brief user, for this process and those that it starts."""
    (plugins / "perf_brief_user-1.dist-info").mkdir(parents=True)
    (plugins / "perf_brief_user.py").write_text(PLUGIN)
    (plugins / "perf_brief_user-1.dist-info" / "METADATA").write_text(METADATA)
    (plugins / "perf_brief_user-1.dist-info" / "entry_points.txt").write_text(ENTRY_POINT)
    sys.path.insert(0, str(plugins))  # this process plans the run again; the others inherit
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, [str(plugins), os.environ.get("PYTHONPATH")])
    )


class StoredAnswers:
    """A model that answers with the stored steps of an episode and keeps what it was asked."""

    def __init__(self, steps: Sequence[Mapping[str, Any]]) -> None:
        self._answers: Iterator[Mapping[str, Any]] = iter(
            [step for step in steps if step["speaker"] != "execution"]
        )
        self.calls: list[dict[str, Any]] = []

    async def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        sampling: Sampling,
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> Completion:
        step = next(self._answers, None)
        if step is None:
            raise PromptTooLong("nothing is stored of this call")
        self.calls.append({"messages": list(messages), "max_tokens": sampling.max_tokens})
        return Completion(
            text=step["text"],
            reasoning=step["reasoning"],
            finish_reason=step["finish_reason"],
            prompt_tokens=step["prompt_tokens"],
            completion_tokens=step["completion_tokens"],
            seconds=step["seconds"],
        )


async def chains_of(run: Path, rows: Sequence[Mapping[str, Any]]) -> list[list[dict[str, Any]]]:
    """The model calls of every episode, in the order in which the run takes the episodes.

    Each episode is played again with its stored answers. Stops where the messages differ.
    """
    plan = plan_run(load_config(str(run / "run.json")))
    stored = {row["row_id"]: row for row in rows}
    chains = []
    for row_id, number in zip(plan.rows.ids.tolist(), plan.rows.entry.tolist(), strict=True):
        entry = plan.entries[number]
        benchmark = plan.benchmarks[entry.benchmark]
        episode = episode_of(stored[row_id.decode()])
        model = StoredAnswers(episode.state["steps"])
        bindings = plan.bindings[entry.benchmark]
        context = EpisodeContext(
            candidate=RoleModel(model, plan.config.sampling.sampling()),
            roles={n: RoleModel(model, b.sampling, b.identity) for n, b in bindings.items()},
            open_sandbox=partial(opened, benchmark, entry),
        )
        again = await benchmark.run(entry, context)
        if again.messages != episode.messages:
            raise SystemExit(f"{entry.id}: the stored episode does not replay")
        chains.append(model.calls)
    return chains


async def opened(benchmark: Benchmark, entry: Entry) -> LocalSession:
    return LocalSession(benchmark.scenario(entry))


def bare_calls(scratch: Path, run: Path, chains: Sequence[Any]) -> dict[str, Any]:
    """Make the calls of ``run`` on a fresh AsyncLLM; what it printed last."""
    manifest = json.loads((run / "run.json").read_text())
    spec = {
        "model": manifest["model"]["source"],
        "engine": manifest["engine_args"],
        "chains": chains,
    }
    (scratch / "spec.json").write_text(json.dumps(spec))
    command = [sys.executable, __file__, str(scratch / "spec.json")]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [line for line in result.stdout.splitlines() if line.startswith("{")]
    if not lines:
        raise SystemExit(f"the bare engine failed ({result.returncode}): {result.stderr[-2000:]}")
    report: dict[str, Any] = json.loads(lines[-1])
    return report


async def make_calls(spec: Mapping[str, Any]) -> None:
    os.environ.update(core_binding())
    from vllm import SamplingParams
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.sampling_params import RequestOutputKind
    from vllm.v1.engine.async_llm import AsyncLLM

    defaults = {"disable_log_stats": True, "generation_config": "vllm"}
    args = AsyncEngineArgs(model=spec["model"], **{**defaults, **spec["engine"]})
    engine = AsyncLLM.from_engine_args(args)
    tokenizer = engine.get_tokenizer()
    usage = {"seconds": 0.0, "prompt_tokens": 0, "completion_tokens": 0}

    async def play(number: int, calls: Sequence[Mapping[str, Any]]) -> None:
        for index, call in enumerate(calls):
            ids = tokenizer.apply_chat_template(
                call["messages"], add_generation_prompt=True, return_dict=False
            )
            params = SamplingParams(
                temperature=0,
                max_tokens=call["max_tokens"],
                output_kind=RequestOutputKind.FINAL_ONLY,
            )
            prompt = {"prompt_token_ids": ids}
            async for output in engine.generate(prompt, params, request_id=f"{number}-{index}"):
                usage["prompt_tokens"] += len(ids)
                usage["completion_tokens"] += len(output.outputs[0].token_ids)

    start = time.perf_counter()
    await asyncio.gather(*(play(*item) for item in enumerate(spec["chains"])))
    usage["seconds"] = time.perf_counter() - start
    print("\n" + json.dumps(usage), flush=True)
    engine.shutdown()


if __name__ == "__main__":
    import uvloop

    uvloop.run(make_calls(json.loads(Path(sys.argv[1]).read_text())))
