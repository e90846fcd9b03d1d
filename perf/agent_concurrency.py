"""Agent episodes: all at once against one after the other, and the pipeline against bare AsyncLLM.

    python perf/agent_concurrency.py --data DIR [--rounds 3]
    python perf/agent_concurrency.py --benchmark tau2 [--domain airline] [--rounds 5] [--told]

50 episodes on one engine with a tiny dummy-weight Llama: all English agent entries of ACEBench,
whose babble calls no tool and ends nothing, so every one goes on to its message limit; or tasks of
one of tau2-bench's domains, whose turns are scripted from the gold calls (`scripted_tau2.py`): each
answer is generated in full, but the turn taken is the script's, so that tools run, the sandbox's
limited process with them, and prompts grow as they do with an able model. tau2's user is the
candidate itself. Its prompts have 5,000 (airline) to 10,500 tokens (telecom_solo) at the start; the
made-up model has a context that holds them all, and one layer with one head in float32, since on a
CPU attention would hide all else.

1. Two runs of the command line that differ in ``concurrency`` only: wall time from the moment the
   engine is ready until the last part is stored. All at once takes at most 1/3. (``--alone``; by
   default for ACEBench.)
2. The model calls of the run with all at once, on an AsyncLLM alone in its process
   (`bare_calls.py`): the calls of an episode one after another, the episodes at once, the same
   chats with the same ``max_tokens``. Per call the pipeline takes at most 1.05 of that. ``--told``
   asks a second bare engine, told what a pipeline's is told (`ace_ray.models.cpu_environment`).

Sides alternate, each on an engine of its own, whose start is left out; the pipeline's time has all
else in it: opening episodes, tools, checks, and storing the rows.

The prompts of 2 come from the stored rows (`replay.py`): each episode is played again by a model
that answers with the stored steps, or by the script, and writes down what it is asked. Stops where
that play does not end as the stored one did, or a scripted episode is not worth 1.
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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import yaml
from pipeline_overhead import ENGINE, SMOLLM2, tiny_llama
from replay import replayed
from scripted_tau2 import EPISODES

from ace_ray.benchmarks.tau2.categories import CATEGORIES
from ace_ray.config import load_config
from ace_ray.models.cpu_environment import cpu_environment
from ace_ray.models.sources import materialize, resolve
from ace_ray.run.evaluate import plan_run

HERE = Path(__file__).parent
MAX_TOKENS = 64
MAX_MESSAGES = 12
MOST_OF_ALONE = 1 / 3
MOST_OF_BARE = 1.05
CONTEXT = 32_768
"""Of the model with tau2-bench: telecom's first prompts have more tokens than SmolLM2's context."""
TAU2 = f"{HERE / 'scripted_tau2.py'}:ScriptedTau2"

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
    parser.add_argument("--benchmark", choices=["acebench", "tau2"], default="acebench")
    parser.add_argument("--data", help="ACEBench data folder, or mini; of tau2-bench, its `data`")
    parser.add_argument(
        "--domain", choices=list(CATEGORIES), default="airline", help="tau2-bench's"
    )
    parser.add_argument("--episodes", type=int, default=EPISODES)
    parser.add_argument("--rounds", type=int, default=3, help="of the run at once and of bare")
    parser.add_argument("--alone", action=argparse.BooleanOptionalAction, help="measure 1, too")
    parser.add_argument("--told", action="store_true", help="a second bare engine")
    options = parser.parse_args()
    if options.data is None:
        if options.benchmark == "acebench":
            parser.error("--data is missing: name an ACEBench data folder, or mini")
        options.data = "installed"
    if options.alone is None:
        options.alone = options.benchmark == "acebench"
    scratch = Path(tempfile.mkdtemp(prefix="ace-ray-perf-"))
    try:
        return compare(options, scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def compare(options: argparse.Namespace, scratch: Path) -> int:
    prepare(options, scratch)
    fine = True
    if options.alone:
        alone = evaluated(scratch, concurrency="1")
        print(f"one after the other: {described(alone)}", flush=True)
    at_once: list[float] = []
    overheads: dict[str, list[float]] = {"bare": []}
    if options.told:
        overheads["bare, told"] = []
    for number in range(options.rounds):
        run = evaluated(scratch, concurrency="auto")
        print(f"round {number + 1}, all at once: {described(run)}", flush=True)
        if options.benchmark == "tau2" and run["valid"] < len(run["rows"]):
            raise SystemExit("a scripted episode is not worth 1: tools did not run as they should")
        chains = chains_of(run)
        calls = sum(map(len, chains))
        ms = 1000 / calls
        at_once.append(run["until_stored_s"])
        for name, ratios in overheads.items():
            told = cpu_environment() if name == "bare, told" else {}
            bare = bare_run(scratch, run, chains, told)
            ratios.append(run["until_stored_s"] / bare["seconds"])
            print(
                f"round {number + 1}, {name}: {bare['seconds']:.2f} s, {calls} calls, "
                f"{bare['prompt_tokens']} prompt and {bare['completion_tokens']} completion "
                f"tokens; per model call {bare['seconds'] * ms:.2f} ms, pipeline "
                f"{run['until_stored_s'] * ms:.2f} ms ({run['generation_wall_s'] * ms:.2f} until "
                f"the last row is scored)",
                flush=True,
            )
    if options.alone:
        share = statistics.median(at_once) / alone["until_stored_s"]
        print(f"all at once / one after the other: {share:.3f} (at most {MOST_OF_ALONE:.3f})")
        fine = share <= MOST_OF_ALONE
    for name, ratios in overheads.items():
        limit = f" (at most {MOST_OF_BARE:.2f})" if name == "bare" else ""
        shown = ", ".join(f"{ratio:.3f}" for ratio in ratios)
        print(f"pipeline / {name} per model call: {statistics.median(ratios):.3f}{limit}: {shown}")
    return 0 if fine and statistics.median(overheads["bare"]) <= MOST_OF_BARE else 1


def prepare(options: argparse.Namespace, scratch: Path) -> None:
    """The model, the benchmark, and the config of all runs, in ``scratch``."""
    real = materialize(resolve(SMOLLM2, revision=None))
    # On a CPU the attention over tau2-bench's prompts would be nearly all there is to measure.
    model = tiny_llama(real, scratch / "tiny", layers=1 if options.benchmark == "tau2" else 2)
    # Room for all entries in the engine's batch.
    engine = {**ENGINE, "load_format": "dummy", "max_num_seqs": 64}
    if options.benchmark == "tau2":
        engine |= {"max_model_len": CONTEXT, "dtype": "float32"}
        settings = json.loads((model / "config.json").read_text())
        settings["max_position_embeddings"] = CONTEXT
        settings |= {"num_attention_heads": 1, "num_key_value_heads": 1}
        (model / "config.json").write_text(json.dumps(settings))
        benchmark = {
            "name": TAU2,
            "data": options.data,
            "domains": [options.domain],
            "mode": "prompt",  # SmolLM2's template knows no tools
        }
    else:
        install_brief_user(scratch / "plugins")
        benchmark = {
            "name": "acebench_brief",
            "data": options.data,
            "languages": ["en"],
            "categories": ["agent"],
            "max_messages": MAX_MESSAGES,
        }
    config = {
        "model": {"source": str(model)},
        "benchmarks": [benchmark],
        "engine": engine,
        "sampling": {"max_tokens": MAX_TOKENS},
        "limit": options.episodes,
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
        "ended": dict(Counter(json.loads(row["state"])["ended"] for row in rows)),
        "valid": sum(bool(row["official_valid"]) for row in rows),
    }


def described(run: Mapping[str, Any]) -> str:
    return (
        f"{run['until_stored_s']:.2f} s until stored ({run['generation_wall_s']:.2f} s until the "
        f"last row is scored), {len(run['rows'])} episodes, {run['valid']} worth 1, ended by "
        f"{run['ended']}; engine started in {run['engine_start_s']:.0f} s"
    )


def chains_of(run: Mapping[str, Any]) -> list[list[dict[str, Any]]]:
    """The model calls of each episode of ``run``."""
    plan = plan_run(load_config(str(run["folder"] / "run.json")))
    return asyncio.run(replayed(plan, run["rows"]))


def bare_run(
    scratch: Path,
    run: Mapping[str, Any],
    chains: Sequence[Sequence[Mapping[str, Any]]],
    environment: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The model calls of ``run`` on a fresh AsyncLLM; seconds and tokens."""
    manifest = json.loads((run["folder"] / "run.json").read_text())
    spec = {
        "model": manifest["model"]["source"],
        "engine": manifest["engine_args"],
        "chains": chains,
    }
    (scratch / "spec.json").write_text(json.dumps(spec))
    done = subprocess.run(
        [sys.executable, str(HERE / "bare_calls.py"), str(scratch / "spec.json")],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **(environment or {})},
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        raise SystemExit(f"the bare engine failed ({done.returncode}): {done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(lines[-1])
    return found


if __name__ == "__main__":
    sys.exit(main())
