"""Bare vLLM: an `LLM` in a process of its own, with the engine arguments of a run, and with the
environment of a run's engine on a CPU (`ace_ray.models.cpu_environment`)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from ace_ray.models.cpu_environment import cpu_environment
from ace_ray.models.start_phases import PROCESS, StartPhases

SCRIPT = """
import json, sys, time
spec = json.load(open(sys.argv[1]))
from vllm import LLM, SamplingParams

def say(**found):
    print("\\n" + json.dumps(found), flush=True)

say(imported_at=time.time())
llm = LLM(model=spec["model"], disable_log_stats=True, generation_config="vllm", **spec["engine"])
params = SamplingParams(temperature=0, max_tokens=spec["max_tokens"])
say(loaded_at=time.time())
for line in sys.stdin:
    asked = json.loads(line)
    messages = spec["messages"][: asked["rows"]]
    llm.reset_prefix_cache()
    start = time.perf_counter()
    if asked["first"]:
        llm.enqueue_chat(messages, params, use_tqdm=False)
        while not any(answer.finished for answer in llm.llm_engine.step()):
            pass
        say(seconds=time.perf_counter() - start)
        continue
    outputs = llm.chat(messages, params, use_tqdm=False)
    seconds = time.perf_counter() - start
    tokens = sum(len(o.prompt_token_ids) + len(o.outputs[0].token_ids) for o in outputs)
    prompt = sum(len(o.prompt_token_ids) for o in outputs)
    cached = sum(o.num_cached_tokens or 0 for o in outputs)
    say(seconds=seconds, tokens=tokens, computed=1 - cached / prompt)
"""


class BareEngine:
    """Context. Inside it the engine of ``folder/spec.json`` has loaded.

    The file holds ``model``, ``engine``, ``max_tokens`` and ``messages``. The output of the process
    goes to ``folder/bare.log``.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.imported_at = 0.0
        """Wall clock."""
        self.phases = StartPhases(lambda phase: None, time.time)

    def __enter__(self) -> BareEngine:
        self._log = (self._folder / "bare.log").open("wb")
        self.process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(self._folder / "spec.json")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **cpu_environment()},
        )
        self.imported_at = self._answer("imported_at")["imported_at"]
        self.phases.begin(PROCESS)
        self._answer("loaded_at")
        self.phases.end()
        return self

    def __exit__(self, *_: object) -> None:
        self._log.close()
        self.process.communicate(timeout=60)

    def ask(self, rows: int, *, first: bool = False) -> dict[str, float]:
        """Answer the first ``rows`` prompts. Returns ``seconds``, ``tokens`` with prompts, and the
        share ``computed`` of the prompts; with ``first`` only the seconds until one has ended."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"rows": rows, "first": first}).encode() + b"\n")
        self.process.stdin.flush()
        return self._answer("seconds")

    def _answer(self, name: str) -> dict[str, Any]:
        """Read the next message of the script; ``name`` is its first key."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(f'{{"{name}"'.encode()):
                reply: dict[str, Any] = json.loads(line)
                return reply
            self._log.write(line)
            self.phases.read(line)
        self._log.flush()
        log = (self._folder / "bare.log").read_text(errors="replace")
        raise SystemExit(f"the bare engine failed:\n{log[-2000:]}")
