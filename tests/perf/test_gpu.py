"""`perf/gpu.py`: its parts alone, and, as a nightly test, all of it in the small setting."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import pytest

from ace_ray.models.adapters import check_weights
from ace_ray.models.checkpoints import (
    check_whole,
    parameters,
    same_layout,
    tensors_of,
)

PERF = Path(__file__).resolve().parents[2] / "perf"
TITLES = (
    "pipeline, against bare vLLM",
    "first scored row, against bare vLLM's first text",
    "swap of weights, against a start",
    "64 episodes at once, against their calls on bare AsyncLLM",
    "swap of LoRA adapters of rank 16, against a start",
)


@pytest.fixture
def perf(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Imports a script as it sees itself: its folder is on the path."""
    monkeypatch.syspath_prepend(str(PERF))
    return __import__


@pytest.fixture
def gpu(perf: Callable[[str], ModuleType]) -> ModuleType:
    return perf("gpu")


class Clock:
    """Minutes that pass when a part says so."""

    def __init__(self, gpu: ModuleType) -> None:
        self._gpu, self._minutes = gpu, 0.0

    def part(self, name: str, expected: float, takes: float | None = None) -> Any:
        def run() -> list[Any]:
            self._minutes += expected if takes is None else takes
            return [self._gpu.Line(f"{name} measured", "1.0")]

        return self._gpu.Part(name, expected, run)

    def lines(self, minutes: float, *parts: Any) -> dict[str, Any]:
        lines = self._gpu.run_parts(parts, minutes, lambda: self._minutes * 60)
        assert len(lines) == len(parts)
        return {line.what: line for line in lines}


class TestTime:
    def test_what_does_not_fit_is_named_and_what_is_smaller_runs(self, gpu: ModuleType) -> None:
        clock = Clock(gpu)
        parts = [clock.part(name, size) for name, size in (("a", 5), ("b", 6), ("c", 2))]
        found = clock.lines(8, *parts)
        assert list(found) == ["a measured", "b", "c measured"]
        assert found["b"].value == "not run"
        assert "about 6.0 minutes, 3.0 left" in found["b"].note

    def test_a_slow_machine_is_expected_to_stay_slow(self, gpu: ModuleType) -> None:
        clock = Clock(gpu)
        found = clock.lines(11, clock.part("a", 2, takes=6), clock.part("b", 2))
        assert "about 6.0 minutes, 5.0 left" in found["b"].note

    def test_a_failure_costs_no_other_part(self, gpu: ModuleType) -> None:
        def fail() -> list[Any]:
            raise SystemExit("\nthe engine died\nmore")

        def stop() -> list[Any]:
            raise gpu.TimeIsUp

        clock = Clock(gpu)
        parts = [clock.part("first", 1), gpu.Part("f", 1, fail), gpu.Part("s", 1, stop)]
        found = clock.lines(5, *parts, clock.part("a", 1))
        assert (found["f"].value, found["f"].note) == ("FAILED", "the engine died")
        assert found["s"].value == "not run"
        assert found["a measured"].value == "1.0"

    @pytest.mark.nightly
    def test_the_alarm_ends_what_runs(self, gpu: ModuleType) -> None:
        before = signal.signal(signal.SIGALRM, gpu.on_alarm)
        began: list[int] = []

        def hang() -> list[Any]:
            process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"])
            began.append(process.pid)
            signal.setitimer(signal.ITIMER_REAL, 0.5)
            process.wait()
            pytest.fail("the child ended without TimeIsUp")

        try:
            (line,) = gpu.run_parts([gpu.Part("h", 1, hang)], 5)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        assert line.note == "the time was up in the middle of it"
        pid = began[0]
        assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == "zombie"


class TestLines:
    def test_rounds_are_medians(self, gpu: ModuleType) -> None:
        alike = {"tokens": 1000.0, "bare_first_s": 30.0, "first_s": 36.5, "start weights": 4.0}
        rounds = [
            {"bare_s": bare, "pipeline_s": ours, **alike}
            for bare, ours in ((9.0, 10.0), (8.0, 20.0), (100.0, 11.0))
        ]
        overhead, first = gpu.overhead_lines(rounds, 60)
        assert (overhead.value, overhead.ours, overhead.other) == ("0.818 of bare", 11.0, 9.0)
        assert (first.value, first.ours, first.other) == ("6.5 s later", 36.5, 30.0)

    def test_a_sweep_in_which_nothing_was_swapped_fails(self, gpu: ModuleType) -> None:
        loads = [{"how": "fresh", "load_s": 30.0}, {"how": "swapped", "load_s": 1.5}]
        line = gpu.swap_line("s", loads, "")
        assert (line.value, line.ours, line.other) == ("20 times as fast", 1.5, 30.0)
        with pytest.raises(SystemExit, match="nothing was swapped"):
            gpu.swap_line("s", [loads[0], {"how": "restarted", "load_s": 30.0}], "")


class TestModels:
    @pytest.fixture
    def dummy(self, perf: Callable[[str], ModuleType]) -> ModuleType:
        pytest.importorskip("torch")
        return perf("dummy_models")

    def test_the_large_shape_is_qwen2_5_7bs(self, dummy: ModuleType) -> None:
        assert dummy.SHAPES["7b"].parameters == 7_615_616_512

    @pytest.mark.nightly
    def test_weights_are_whole_and_finite_and_an_adapter_fits(
        self, dummy: ModuleType, tmp_path: Path
    ) -> None:
        shape = dummy.Shape(16, 2, 2, 1, 32, vocabulary=64)
        folders = [tmp_path / "one", tmp_path / "two"]
        for seed, folder in enumerate(folders):
            folder.mkdir()
            dummy.write_weights(folder, shape, seed, shard_bytes=4096)
            check_whole(folder)
            assert len(list(folder.glob("*.safetensors"))) > 2
            assert parameters(folder) == shape.parameters
        assert {name: t.shape for name, t in tensors_of(folders[0]).items()} == shape.tensors()
        assert same_layout(*folders) == ""
        adapter = dummy.make_adapter(tmp_path / "lora", folders[0], shape, seed=1)
        assert check_weights(adapter, folders[0])


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


@pytest.mark.engine
@pytest.mark.nightly
@pytest.mark.skipif(find_spec("vllm") is None, reason="no engine flavour is installed")
@pytest.mark.timeout(3600)
def test_every_part_runs_in_the_small_setting(tmp_path: Path) -> None:
    command = [sys.executable, str(PERF / "gpu.py"), "--shape", "tiny", "--samples", "1"]
    command += ["--rounds", "2"]
    done = subprocess.run(
        [*command, "--minutes", "50", "--scratch", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=3500,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = {cells(line)[0]: cells(line) for line in done.stdout.splitlines() if "|" in line}
    for title in TITLES:
        _, value, ours, other, _ = lines[title]
        assert re.search(r"\d", value), done.stdout
        assert float(ours) > 0, done.stdout
        assert float(other) > 0, done.stdout
    assert "medians of 2 round(s)" in lines[TITLES[0]][4]
    assert "Machine: " in done.stdout
    assert not list(tmp_path.iterdir())
