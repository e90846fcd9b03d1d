"""`perf/gpu.py`: its budget of time, its lines, and, as a nightly test, all of it in small."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

PERF = Path(__file__).resolve().parents[2] / "perf"
TITLES = (
    "pipeline, against bare vLLM",
    "first scored row, against bare vLLM's first text",
    "swap of weights, against a start",
    "64 episodes at once, against their calls on bare AsyncLLM",
    "swap of LoRA adapters of rank 16, against a start",
)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(PERF))
    return __import__("gpu")


def test_parts_that_do_not_fit_or_fail_cost_no_other_part(gpu: ModuleType) -> None:
    minutes = 0.0

    def part(name: str, expected: float, takes: float) -> Any:
        def run() -> list[Any]:
            nonlocal minutes
            minutes += takes
            return [gpu.Line(f"{name} measured", "1.0")]

        return gpu.Part(name, expected, run)

    def fail() -> list[Any]:
        raise SystemExit("\nthe engine died\nmore")

    def stop() -> list[Any]:
        raise gpu.TimeIsUp

    # The machine is three times as slow as expected, and is expected to stay slow.
    parts = [part("a", 2, 6), part("b", 4, 1), gpu.Part("f", 1, fail), gpu.Part("s", 1, stop)]
    lines = gpu.run_parts([*parts, part("c", 1, 1)], 14, lambda: minutes * 60)
    found = {line.what: line for line in lines}
    assert list(found) == ["a measured", "b", "f", "s", "c measured"]
    assert found["b"].value == "not run"
    assert "about 12.0 minutes, 8.0 left" in found["b"].note
    assert (found["f"].value, found["f"].note) == ("FAILED", "the engine died")
    assert found["s"].value == "not run"


@pytest.mark.engine
@pytest.mark.nightly
@pytest.mark.skipif(find_spec("vllm") is None, reason="no engine flavour is installed")
@pytest.mark.timeout(3600)
def test_every_part_runs_in_the_small_setting(tmp_path: Path) -> None:
    command = [sys.executable, str(PERF / "gpu.py"), "--shape", "tiny", "--samples", "1"]
    command += ["--rounds", "2", "--minutes", "50", "--scratch", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3500, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line.strip("|").split("|") for line in done.stdout.splitlines() if "|" in line]
    lines = {row[0].strip(): [cell.strip() for cell in row] for row in rows}
    for title in TITLES:
        _, value, ours, other, _ = lines[title]
        assert re.search(r"\d", value), done.stdout
        assert float(ours) > 0, done.stdout
        assert float(other) > 0, done.stdout
    assert "medians of 2 round(s)" in lines[TITLES[0]][4]
    assert "Machine: " in done.stdout
    assert not list(tmp_path.iterdir())
