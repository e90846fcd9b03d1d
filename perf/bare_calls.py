"""Chains of model calls on an AsyncLLM alone in its process, as a client of vLLM would make them.

    python perf/bare_calls.py SPEC

SPEC is a JSON file ``{model, engine, chains: [[{messages, max_tokens}, ...], ...]}``: the calls of
a chain are made one after another, the chains all at once. Greedy. The last line printed is JSON:
``seconds`` from the first call to the last answer, ``prompt_tokens`` and ``completion_tokens``.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import uvloop

from ace_ray.models.cpu_environment import all_cores


async def main(spec: dict[str, Any]) -> None:
    os.environ.update(all_cores())
    from vllm import SamplingParams
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.sampling_params import RequestOutputKind
    from vllm.v1.engine.async_llm import AsyncLLM

    defaults = {"disable_log_stats": True, "generation_config": "vllm"}
    args = AsyncEngineArgs(model=spec["model"], **{**defaults, **spec["engine"]})
    engine = AsyncLLM.from_engine_args(args)
    tokenizer = engine.get_tokenizer()
    found = {"seconds": 0.0, "prompt_tokens": 0, "completion_tokens": 0}

    async def play(number: int, calls: list[dict[str, Any]]) -> None:
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
                found["prompt_tokens"] += len(ids)
                found["completion_tokens"] += len(output.outputs[0].token_ids)

    start = time.perf_counter()
    await asyncio.gather(*(play(*item) for item in enumerate(spec["chains"])))
    found["seconds"] = time.perf_counter() - start
    print("\n" + json.dumps(found), flush=True)
    engine.shutdown()


if __name__ == "__main__":
    uvloop.run(main(json.loads(Path(sys.argv[1]).read_text())))
