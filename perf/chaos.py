"""A soak: evaluation while random parts of it are killed, compared with an undisturbed run.

    python perf/chaos.py --minutes 20 --kills 30 --seed 1 [--store s3] [--engine vllm]

One config runs undisturbed, then again and again, each time into a new folder, until the minutes
and the faults are reached. The faults are drawn from a deck that the seed shuffles:

- SIGKILL of any process of a run, also of vLLM's engine core; SIGTERM or SIGINT of the driver;
- SIGSTOP of an engine worker;
- a store that refuses for 5 to 20 s (S3: 503 to every request; local: a file in place of a folder);
- with the fake engine, a second node that joins, which takes a third engine worker, and goes again.

A driver that ends with anything but 0 is started again, as a job submitter would. The next fault
comes some seconds after rows are stored again. Kills of engines keep apart, so that no row is
quarantined.

At the end every row is compared (`same_rows.py`): with vLLM, whose greedy text differs between
batch shapes, only its id and status. Exit code 1 on any difference.
"""

from __future__ import annotations

import argparse
import ctypes
import math
import os
import random
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import psutil
import yaml

from ace_ray.benchmarks.registry import make_benchmark
from ace_ray.storage.object_store import open_store
from ace_ray.storage.parts import FOLDER, part_names
from dummy_models import tiny_llama
from fake_runs import RUN_ID, fake_config, mini_set
from processes import end, family
from runs import COMMAND, ENGINE, model_folder
from s3_server import S3Server
from same_rows import compare

SIGNALS = {
    "driver kill": signal.SIGKILL,
    "driver term": signal.SIGTERM,
    "driver int": signal.SIGINT,
}
ENGINES = ("engine", "core", "freeze")
DECK = [*ENGINES, "engine", "sandbox", "sandbox", "checker", "writer", "coordinator", "raylet"]
DECK += ["gcs", *SIGNALS, "store", "store"]
NODE = "node"
"""A second node joins, or goes if it is there."""
DECK += [NODE] * 4

WORKER_CPUS = ((os.cpu_count() or 1) - 0.8) / 2
"""CPUs of a worker of the fake engine: the first node holds two, beside all other actors."""
ELASTIC = {"min": 1, "max": 3}
DRAIN_S = 10
"""From SIGTERM to the end of a node."""
APART_S = 30.0
"""From the end of an engine to the next kill of one: its isolated rows run alone meanwhile."""
RATE = 5.0
"""Rows a second of a disturbed run, roughly. It sizes the config: two rounds fill the minutes."""
STUCK_S = 300.0
"""A driver that stores nothing for so long, undisturbed, will not end by itself."""


class LocalDoor:
    """Refuses by putting a file where the folder of the parts is."""

    def __init__(self, scratch: Path) -> None:
        self.uri = str(scratch / "runs")
        self._spare = scratch / "spare"

    @contextmanager
    def refusing(self, run: str) -> Iterator[None]:
        rows = Path(run, FOLDER)
        self._spare.touch()
        swap(rows, self._spare)
        try:
            yield
        finally:
            swap(rows, self._spare)


def swap(first_path: Path, second_path: Path) -> None:
    """Exchange two paths in one step, so that no writer finds neither."""
    cwd_fd, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.renameat2(cwd_fd, os.fsencode(first_path), cwd_fd, os.fsencode(second_path), exchange):
        raise OSError(
            ctypes.get_errno(), "cannot be exchanged", str(first_path), None, str(second_path)
        )


class SecondNode:
    """A node of the driver's cluster that comes and goes."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._number = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def is_up(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def starting(self) -> bool:
        """True while it has no engine worker yet, whose rows its end could hit."""
        return self.is_up and not family(self._process.pid if self._process else 0).get("engine")

    def join(self, raylet: psutil.Process) -> None:
        self.end()
        address = re.findall(r"--gcs-address=(\S+)", " ".join(raylet.cmdline()))[0]
        self._number += 1
        # Another folder than the first node's: every Ray that starts looks there for a cluster.
        folder = f"/tmp/ace-ray-node-{os.getpid()}-{self._number}"
        ray = str(Path(sys.executable).parent / "ray")
        cpus = [f"--num-cpus={math.ceil(WORKER_CPUS)}", "--num-gpus=0"]
        with (self._scratch / "nodes.log").open("ab") as log:
            self._process = subprocess.Popen(
                [ray, "start", "--block", f"--address={address}", f"--temp-dir={folder}", *cpus],
                env={
                    **os.environ,
                    "RAY_TMPDIR": folder,
                    "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": str(DRAIN_S),
                },
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def term(self) -> None:
        assert self._process is not None
        self._process.terminate()

    def end(self) -> None:
        """SIGKILL for all of it, what it left behind too."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            shutil.rmtree(f"/tmp/ace-ray-node-{os.getpid()}-{self._number}", ignore_errors=True)
        self._process = None


class Soak:
    """Drivers of one config, one after another, and the faults they meet."""

    def __init__(self, options: argparse.Namespace, scratch: Path, door: Any) -> None:
        self.options, self.scratch, self.door = options, scratch, door
        self.dice = random.Random(options.seed)
        self.deck: list[str] = []
        self.faults: Counter[str] = Counter()
        self.ends: Counter[int] = Counter()
        self.leftovers: Counter[str] = Counter()
        self.driver: subprocess.Popen[bytes] | None = None
        self._processes: dict[psutil.Process, str] = {}
        self._engines: set[psutil.Process] = set()
        self._engine_died_at = 0.0
        self._node = SecondNode(scratch)

    def start(self, output: str) -> subprocess.Popen[bytes]:
        self._engines = set()
        self._node.end()
        with (self.scratch / "drivers.log").open("ab") as log:
            self.driver = subprocess.Popen(
                [*COMMAND, "evaluate", str(self.scratch / "config.yaml"), "--output", output],
                stdout=log,
                stderr=log,
                cwd=self.scratch,
                start_new_session=True,
            )
        return self.driver

    def round(self, output: str, until: float) -> None:
        """One disturbed run, to its end. Raises `SystemExit` when it does not come to one."""
        run = f"{output}/{RUN_ID}"
        store = open_store(run)
        driver, gap = self.start(output), self.dice.uniform(3, 10)
        struck_at = moved_at = time.monotonic()
        stored = mark = needless = 0
        struck = False
        while (code := driver.poll()) != 0:
            now_s = time.monotonic()
            if code is not None:
                print(f"       the driver ended with {code}: {self.last_word()}", flush=True)
                self.ends[code] += 1
                needless = 0 if struck else needless + 1
                if needless == 3:
                    raise SystemExit(f"the driver ended three times by itself:\n{self.tail()}")
                driver, struck, mark, moved_at = self.start(output), False, stored, now_s
                continue
            time.sleep(0.5)
            processes = self.look()
            count = len(part_names(store))
            if count > stored:
                stored, moved_at = count, now_s
            if now_s - moved_at > STUCK_S:
                raise SystemExit(f"nothing was stored for {STUCK_S:g} s:\n{self.tail()}")
            enough = now_s > until and self.faults.total() >= self.options.kills
            due = stored > mark and now_s - struck_at > gap
            if due and not enough and (card := self.draw(processes)):
                self.strike(card, processes, run)
                struck, mark, gap = True, stored, self.dice.uniform(3, 10)
                struck_at = moved_at = time.monotonic()
        self.ends[0] += 1

    def look(self) -> dict[str, list[psutil.Process]]:
        processes = family(self.driver.pid) if self.driver else {}
        engines = set(processes.get("engine", []))
        if self._engines - engines:
            self._engine_died_at = time.monotonic()
        self._engines = engines
        self._processes |= {process: name for name, group in processes.items() for process in group}
        return processes

    def draw(self, processes: dict[str, list[psutil.Process]]) -> str | None:
        """The first card that has something to hit; None while it has to wait."""
        if len(self.deck) < len(DECK):
            real = self.options.engine == "vllm"
            more = [card for card in DECK if card != (NODE if real else "core")]
            self.dice.shuffle(more)
            self.deck += more
        cards = {*SIGNALS, "store", *processes, *(["freeze"] if "engine" in processes else [])}
        cards |= {NODE} if "raylet" in processes and not self._node.starting else set()
        card = next(card for card in self.deck if card in cards)
        if card in ENGINES:
            youngest = max(process.create_time() for process in processes["engine"])
            apart_s = min(time.monotonic() - self._engine_died_at, time.time() - youngest)
            if apart_s < APART_S:
                return None
        self.deck.remove(card)
        return card

    def strike(self, card: str, processes: dict[str, list[psutil.Process]], run: str) -> None:
        if card == NODE:
            card = self.dice.choice(["node term", "node kill"]) if self._node.is_up else "node join"
        print(f"  {self.faults.total() + 1:3}  {card}", flush=True)
        self.faults[card] += 1
        if card in SIGNALS:
            assert self.driver is not None
            self.driver.send_signal(SIGNALS[card])
        elif card == "node join":
            self._node.join(processes["raylet"][0])
        elif card in ("node term", "node kill"):
            (self._node.term if card == "node term" else self._node.end)()
        elif card == "store":
            with self.door.refusing(run):
                time.sleep(self.dice.uniform(5, 20))
        else:
            victim = self.dice.choice(processes["engine" if card == "freeze" else card])
            with suppress(psutil.NoSuchProcess):  # it has just ended by itself
                victim.send_signal(signal.SIGSTOP if card == "freeze" else signal.SIGKILL)

    def sweep(self) -> None:
        """Wait for what ended drivers left behind to end too; count what does not, and end it."""
        self._node.end()
        psutil.wait_procs(list(self._processes), timeout=20)
        for process, name in self._processes.items():
            title = title_of(process)
            if end(process):
                self.leftovers[name] += 1
                print(f"       left behind: {name}, {title}", flush=True)
        self._processes = {}

    def stop(self) -> None:
        self._node.end()
        if self.driver is not None and self.driver.poll() is None:
            self.look()
            self.driver.kill()
            self.driver.wait()
            self.sweep()

    def last_word(self) -> str:
        """The last message of a driver that has just ended."""
        lines = [line for line in self.tail().splitlines() if line.startswith("ace-ray:")]
        return lines[-1] if lines else "no word"

    def tail(self) -> str:
        return (self.scratch / "drivers.log").read_text(errors="replace")[-3000:]


def soak(options: argparse.Namespace, scratch: Path, door: Any) -> int:
    fake = options.engine == "fake"
    rows = round(options.minutes * 60 * RATE / 2)
    config = fake_config(rows, 3.2) if fake else vllm_config(rows, scratch)
    shared = {
        "workers": ELASTIC if fake else 1,
        "worker_cpus": WORKER_CPUS if fake else 1,
        "concurrency": 16 if fake else 4,
        "rows_per_part": 32,
        "engine_stall_timeout_s": 20 if fake else 60,
        "drain_timeout_s": 5,
        "max_attempts": 20,
    }
    (scratch / "config.yaml").write_text(yaml.safe_dump({**config, **shared}))
    run, began = Soak(options, scratch, door), time.monotonic()
    try:
        if code := run.start(f"{door.uri}/undisturbed").wait():
            raise SystemExit(f"the undisturbed run ended with {code}:\n{run.tail()}")
        print(f"undisturbed: ended after {time.monotonic() - began:.0f} s")
        began, rounds, wrong = time.monotonic(), 0, 0
        until = began + 60 * options.minutes
        while time.monotonic() < until or run.faults.total() < options.kills:
            rounds += 1
            print(f"round {rounds}", flush=True)
            output = f"{door.uri}/round-{rounds}"
            run.round(output, until)
            run.sweep()
            expected = f"{door.uri}/undisturbed/{RUN_ID}"
            wrong += compare(expected, f"{output}/{RUN_ID}", contents=fake)
    finally:
        run.stop()
    print(f"\nseed {options.seed}, {options.engine} engine, {options.store} store: {rounds} rounds")
    print(f"in {(time.monotonic() - began) / 60:.1f} minutes")
    print(f"{run.faults.total()} faults: {listed(run.faults)}")
    print(f"drivers ended with: {listed(run.ends)}")
    print(f"processes left behind by drivers: {listed(run.leftovers)}")
    print(f"differences from the undisturbed run: {wrong}")
    return 1 if wrong else 0


def vllm_config(rows: int, scratch: Path) -> dict[str, Any]:
    """At least ``rows`` rows on a two-layer Llama with made-up weights, which babbles."""
    small = {"load_format": "dummy", "max_num_seqs": 8, "kv_cache_memory_bytes": 256 << 20}
    section = mini_set(["all"])
    return {
        "run_id": RUN_ID,
        "model": {"source": str(tiny_llama(model_folder(), scratch / "tiny"))},
        "benchmarks": [{"name": "acebench", **section}],
        "engine": {**ENGINE, **small},
        "sampling": {"max_tokens": 32},
        "samples": math.ceil(rows / len(make_benchmark("acebench", section).dataset())),
    }


def title_of(process: psutil.Process) -> str:
    """Title, start and status of a process; empty if it has ended."""
    try:
        since = time.strftime("%H:%M:%S", time.localtime(process.create_time()))
        return f"{' '.join(process.cmdline())[:300]} (since {since}, {process.status()})"
    except psutil.Error:
        return ""


def listed(counts: Counter[Any]) -> str:
    return ", ".join(f"{name} x {count}" for name, count in counts.most_common()) or "none"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=20, help="of disturbed evaluation")
    parser.add_argument("--kills", type=int, default=30, help="minimum number of faults")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--store", choices=("local", "s3"), default="local")
    parser.add_argument("--engine", choices=("fake", "vllm"), default="fake")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # end what was started, too
    # A node that joins has to know the token of the driver's cluster.
    os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    scratch = Path(tempfile.mkdtemp(prefix="ace-ray-chaos-"))
    local: AbstractContextManager[Any] = nullcontext(LocalDoor(scratch))
    try:
        with S3Server() if options.store == "s3" else local as door:
            return soak(options, scratch, door)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
