"""Model calls of agent episodes on an AsyncLLM alone in its process, ``agent_episodes.py SPEC``.

SPEC is JSON: ``{model, engine, chains: [[{prompt_ids, max_tokens}, ...], ...]}``. The calls of a
chain are made one after another, the chains at once. It prints ``{"seconds": ...}``.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ace_ray.models.cpu_environment import cpu_environment
from recorder import Call


def bare_seconds(scratch: Path, run: Path, calls: Iterable[Call]) -> float:
    """Make the calls of ``run`` on a fresh AsyncLLM; the seconds that they took."""
    chains: dict[str, list[dict[str, Any]]] = {}
    for call in calls:
        values = {"prompt_ids": call.prompt_ids, "max_tokens": call.max_tokens}
        chains.setdefault(call.row, []).append(values)
    manifest = json.loads((run / "run.json").read_text())
    spec = {
        "model": manifest["model"]["source"],
        "engine": manifest["engine_args"],
        "chains": list(chains.values()),
    }
    (scratch / "spec.json").write_text(json.dumps(spec))
    command = [sys.executable, __file__, str(scratch / "spec.json")]
    environment = {**os.environ, **cpu_environment()}
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    lines = [line for line in result.stdout.splitlines() if line.startswith("{")]
    if not lines:
        raise SystemExit(f"the bare engine failed ({result.returncode}): {result.stderr[-2000:]}")
    return float(json.loads(lines[-1])["seconds"])


async def make_calls(spec: Mapping[str, Any]) -> None:
    from vllm import SamplingParams
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.sampling_params import RequestOutputKind
    from vllm.v1.engine.async_llm import AsyncLLM

    defaults = {"disable_log_stats": True, "generation_config": "vllm"}
    args = AsyncEngineArgs(model=spec["model"], **{**defaults, **spec["engine"]})
    engine = AsyncLLM.from_engine_args(args)
    final = RequestOutputKind.FINAL_ONLY

    async def play(number: int, calls: Sequence[Mapping[str, Any]]) -> None:
        for index, call in enumerate(calls):
            params = SamplingParams(temperature=0, max_tokens=call["max_tokens"], output_kind=final)
            prompt = {"prompt_token_ids": call["prompt_ids"]}
            async for _ in engine.generate(prompt, params, request_id=f"r{number}-{index}"):
                pass

    start = time.perf_counter()
    await asyncio.gather(*(play(*item) for item in enumerate(spec["chains"])))
    print("\n" + json.dumps({"seconds": time.perf_counter() - start}), flush=True)
    engine.shutdown()


if __name__ == "__main__":
    import uvloop

    uvloop.run(make_calls(json.loads(Path(sys.argv[1]).read_text())))
