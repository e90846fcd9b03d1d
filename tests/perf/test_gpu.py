"""`perf/gpu.py` in the small setting."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

PERF = Path(__file__).resolve().parents[2] / "perf"
TITLES = (
    "pipeline, against bare vLLM",
    "first scored row, against bare vLLM's first text",
    "swap of weights, against a start",
    "64 episodes at once, against their calls on bare AsyncLLM",
    "swap of LoRA adapters of rank 16, against a start",
)


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
