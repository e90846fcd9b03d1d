"""vLLM's own server and a client with many requests in flight: a side of `pipeline_overhead.py`.

    python perf/http_client.py SPEC URL IN_FLIGHT

is the client, a process of its own: every chat of SPEC, IN_FLIGHT at a time. It prints one JSON
line, ``seconds`` from the first request to the last answer and ``tokens``, prompts included.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aiohttp

from ace_ray.children import module_command
from ace_ray.models.cpu_environment import all_cores
from ace_ray.run.servers.server import Server, free_port
from ace_ray.run.servers.serving import flags

HOST = "127.0.0.1"
START_S = 600.0
NAME = "model"


@contextmanager
def http_server(model: str, engine: Mapping[str, Any]) -> Iterator[str]:
    """The URL of a fresh server of ``model``, ready; gone afterwards."""
    port = free_port(HOST)
    command = [
        *module_command("vllm.entrypoints.openai.api_server"),
        *flags({"disable_log_stats": True, "generation_config": "vllm", **engine}),
        f"--model={model}",
        f"--served-model-name={NAME}",
        f"--host={HOST}",
        f"--port={port}",
        "--disable-uvicorn-access-log",
    ]
    server = Server(command, {**os.environ, **all_cores()}, host=HOST, port=port)
    try:
        server.start(START_S)
        yield f"http://{HOST}:{port}"
    finally:
        server.stop()


def ask_all(spec: Path, url: str, in_flight: int) -> dict[str, float]:
    """What the client prints."""
    command = [sys.executable, __file__, str(spec), url, str(in_flight)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the HTTP client failed: {done.stderr[-2000:]}")
    found: dict[str, float] = json.loads(done.stdout)
    return found


async def client(spec: Mapping[str, Any], url: str, in_flight: int) -> dict[str, float]:
    waiting, tokens = list(reversed(spec["messages"])), 0
    connector = aiohttp.TCPConnector(limit=in_flight)
    timeout = aiohttp.ClientTimeout(total=None)
    async with aiohttp.ClientSession(url, connector=connector, timeout=timeout) as session:

        async def one_after_another() -> None:
            nonlocal tokens
            while waiting:
                asked = {
                    "model": NAME,
                    "messages": waiting.pop(),
                    "temperature": 0,
                    "max_tokens": spec["max_tokens"],
                }
                async with session.post("/v1/chat/completions", json=asked) as response:
                    response.raise_for_status()
                    usage = (await response.json())["usage"]
                    tokens += usage["total_tokens"]

        began = time.perf_counter()
        await asyncio.gather(*(one_after_another() for _ in range(in_flight)))
        return {"seconds": time.perf_counter() - began, "tokens": tokens}


if __name__ == "__main__":
    spec_, url_, in_flight_ = sys.argv[1:]
    print(
        json.dumps(asyncio.run(client(json.loads(Path(spec_).read_text()), url_, int(in_flight_))))
    )
