"""Phases of an engine's start, by what vLLM prints."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec

import pytest

from ace_ray.models.start_failure import OutputCapture
from ace_ray.models.start_phases import MARKS, StartPhases
from ace_ray.util import vllm_source

LOG = (
    b"(Worker pid=580) INFO 11-25 17:10:52 [cpu_model_runner.py:68] Starting to load model m\n"
    b"(Worker pid=581) INFO 11-25 17:10:52 [cpu_model_runner.py:68] Starting to load model m\n",
    b"(Worker pid=580) INFO 11-25 17:10:54 [default_loader.py:501] Loading weights took 2 s",
    b"(Worker pid=581) INFO 11-25 17:10:52 [base_loader.py:82] Initializing model took 0.1 seconds",
    b"(EngineCore pid=568) INFO 11-25 17:10:56 [kv_cache_utils.py:2327] CPU KV cache size: 7",
)


class Told:
    def __init__(self) -> None:
        self.at = 0.0
        self.heard: list[str] = []
        self.phases = StartPhases(self.heard.append, lambda: self.at)


def test_each_phase_has_its_seconds() -> None:
    told = Told()
    told.phases.begin("process")
    for chunk in LOG:
        told.at += 2
        told.phases.read(chunk)
    told.at += 1
    assert told.phases.seconds() == {"process": 2, "weights": 2, "cache": 4}
    told.phases.end()
    told.phases.read(LOG[0])
    assert told.phases.seconds() == {"process": 2, "weights": 2, "cache": 4, "warm-up": 1}
    assert told.heard == ["process", "weights", "cache", "warm-up"]


@pytest.mark.parametrize("size", [1, 7, 4096])
def test_a_mark_is_found_wherever_the_text_is_cut(size: int) -> None:
    told, text = Told(), b"".join(LOG)
    for start in range(0, len(text), size):
        told.phases.read(text[start : start + size])
    assert told.heard[-1] == "warm-up"
    assert told.heard == sorted(told.heard, key=["weights", "cache", "warm-up"].index)


def test_a_vllm_that_prints_nothing_starts_in_one_phase() -> None:
    told = Told()
    told.phases.begin("process")
    told.at = 9
    told.phases.end()
    assert told.phases.seconds() == {"process": 9}


def test_children_are_read_as_they_print() -> None:
    told = Told()
    with OutputCapture(told.phases.read):
        subprocess.run([sys.executable, "-c", f"print({LOG[3].decode()!r})"], check=True)
    assert told.heard == ["warm-up"]


@pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed")
def test_the_installed_vllm_says_every_mark() -> None:
    folder = vllm_source.folder()
    assert folder is not None
    places = ("v1/worker", "model_executor/model_loader", "v1/core")
    files = [file for place in places for file in (folder / place).rglob("*.py")]
    source = b"".join(file.read_bytes() for file in files)
    assert [mark for marks in MARKS.values() for mark in marks if mark not in source] == []
