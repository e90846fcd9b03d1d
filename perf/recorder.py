"""Write down what engines are asked: a plugin of vLLM in all engine processes of a run."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PLUGIN = """
import asyncio, json, os

def record():
    from vllm.v1.engine.async_llm import AsyncLLM

    generate, path = AsyncLLM.generate, f"{os.environ['RECORDED_CALLS']}/{os.getpid()}"

    async def recorded(engine, prompt, params, request_id, **others):
        # Random weights never end an answer.
        params.max_tokens = min(params.max_tokens, int(os.environ["RECORDED_TOKENS"]))
        async for output in generate(engine, prompt, params, request_id, **others):
            yield output
        # The checks at an engine's start have other ids. Each row is a task.
        if request_id.startswith("r"):
            call = [output.prompt_token_ids, output.num_cached_tokens, params.max_tokens]
            with open(path, "a") as file:
                file.write(json.dumps([asyncio.current_task().get_name(), *call]) + "\\n")

    if generate.__name__ == "generate":
        AsyncLLM.generate = recorded
"""
ENTRY_POINT = "[vllm.general_plugins]\nrecord = perf_record:record\n"


@dataclass(frozen=True)
class Call:
    """A model call. Calls of an engine's row were made one after another."""

    engine: str
    row: str
    prompt_ids: list[int]
    cached_tokens: int
    max_tokens: int


class Recorder:
    """Context in which processes that start have the plugin, installed in ``folder``. Answers get
    at most ``max_tokens`` tokens."""

    def __init__(self, folder: Path, max_tokens: int) -> None:
        self._calls = folder / "calls"
        self._calls.mkdir(parents=True)
        (folder / "perf_record-1.dist-info").mkdir()
        (folder / "perf_record.py").write_text(PLUGIN)
        metadata = "Metadata-Version: 2.1\nName: perf-record\nVersion: 1\n"
        (folder / "perf_record-1.dist-info" / "METADATA").write_text(metadata)
        (folder / "perf_record-1.dist-info" / "entry_points.txt").write_text(ENTRY_POINT)
        paths = filter(None, [str(folder), os.environ.get("PYTHONPATH")])
        self._variables = {"PYTHONPATH": os.pathsep.join(paths), "RECORDED_CALLS": str(self._calls)}
        self._variables["RECORDED_TOKENS"] = str(max_tokens)

    def __enter__(self) -> Recorder:
        self._before = dict(os.environ)
        os.environ.update(self._variables)
        return self

    def __exit__(self, *_: object) -> None:
        os.environ.clear()
        os.environ.update(self._before)

    def take(self) -> Iterator[Call]:
        """Yield the calls since the last time, in the order in which they ended."""
        for path in sorted(self._calls.iterdir()):
            lines = path.read_text().splitlines()
            yield from (Call(path.name, *json.loads(line)) for line in lines)
            path.unlink()
