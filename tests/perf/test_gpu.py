"""`perf/gpu.py`: its parts alone, and, as a slow test, all of it in the small setting."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

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
def gpu(perf: Callable[[str], ModuleType]) -> ModuleType:
    return perf("gpu")


class Clock:
    """Minutes that pass when a part says so."""

    def __init__(self) -> None:
        self.minutes = 0.0

    def __call__(self) -> float:
        return self.minutes * 60

    def part(self, gpu: ModuleType, name: str, expected: float, takes: float | None = None) -> Any:
        def run() -> list[Any]:
            self.minutes += expected if takes is None else takes
            return [gpu.Line(f"{name} measured", "1.0")]

        return gpu.Part(name, expected, run)


class TestBudget:
    def run(self, gpu: ModuleType, clock: Clock, minutes: float, *parts: Any) -> dict[str, Any]:
        lines = gpu.run_parts(parts, gpu.Budget(minutes, clock), lambda text: None)
        assert len(lines) == len(parts)
        return {line.what: line for line in lines}

    def test_what_does_not_fit_is_named_and_what_is_smaller_runs(self, gpu: ModuleType) -> None:
        clock = Clock()
        parts = [clock.part(gpu, name, size) for name, size in (("a", 5), ("b", 6), ("c", 2))]
        found = self.run(gpu, clock, 8, *parts)
        assert list(found) == ["a measured", "b", "c measured"]
        assert found["b"].value == "not run"
        assert "about 6.0 minutes, 3.0 left" in found["b"].note

    def test_a_slow_machine_is_expected_to_stay_slow(self, gpu: ModuleType) -> None:
        clock = Clock()
        parts = [clock.part(gpu, "a", 2, takes=6), clock.part(gpu, "b", 2)]
        found = self.run(gpu, clock, 11, *parts)
        assert "about 6.0 minutes, 5.0 left" in found["b"].note

    def test_a_failure_costs_no_other_part(self, gpu: ModuleType) -> None:
        def fail() -> list[Any]:
            raise SystemExit("\nthe engine | died\nmore")

        def refuse() -> list[Any]:
            raise gpu.NotRun("no room")

        def stop() -> list[Any]:
            raise gpu.TimeIsUp

        clock = Clock()
        parts = [gpu.Part("f", 1, fail), gpu.Part("r", 1, refuse), gpu.Part("s", 1, stop)]
        found = self.run(gpu, clock, 5, *parts, clock.part(gpu, "a", 1))
        assert (found["f"].value, found["f"].note) == ("FAILED", "the engine | died")
        assert (found["r"].value, found["r"].note) == ("not run", "no room")
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
            pytest.fail("the child ended, and nobody said that the time is up")

        try:
            lines = gpu.run_parts([gpu.Part("h", 1, hang)], gpu.Budget(5), lambda text: None)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        assert lines[0].note == "the time was up in the middle of it"
        assert (
            not Path(f"/proc/{began[0]}/cmdline").exists()
            or not Path(f"/proc/{began[0]}/cmdline").read_bytes()
        )


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


class TestTable:
    def test_a_line_a_measurement_with_both_sides(self, gpu: ModuleType) -> None:
        lines = [gpu.Line("a", "0.9 of bare", 2.0, 1.8, "x | y"), gpu.Line("b", "not run")]
        text = gpu.table(lines, ["Machine: m"]).splitlines()
        assert cells(text[0]) == ["measurement", "value", "ours, s", "other, s", "note"]
        assert cells(text[2]) == ["a", "0.9 of bare", "2.00", "1.80", "x / y"]
        assert cells(text[3]) == ["b", "not run", "", "", ""]
        assert text[-1] == "Machine: m"

    def test_rounds_are_medians(self, gpu: ModuleType) -> None:
        rounds = [
            {
                "bare_s": bare,
                "pipeline_s": ours,
                "tokens": 1000.0,
                "bare_first_s": 30.0,
                "first_s": 36.5,
                "start weights": 4.0,
            }
            for bare, ours in ((9.0, 10.0), (8.0, 20.0), (100.0, 11.0))
        ]
        overhead, first = gpu.overhead_lines(rounds, 60)
        assert (overhead.value, overhead.ours, overhead.other) == ("0.818 of bare", 11.0, 9.0)
        assert (first.value, first.ours, first.other) == ("6.5 s later", 36.5, 30.0)
        assert "weights 4.0" in first.note

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
    def test_weights_are_whole_finite_and_differ_by_seed(
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
        from safetensors.torch import load_file

        one, two = (
            {k: v for file in folder.glob("*.safetensors") for k, v in load_file(file).items()}
            for folder in folders
        )
        for name in one:
            assert bool((one[name] == two[name]).all()) == ("norm" in name), name

    @pytest.mark.nightly
    def test_an_adapter_fits_its_base(self, dummy: ModuleType, tmp_path: Path) -> None:
        shape = dummy.Shape(16, 2, 2, 1, 32, vocabulary=64)
        base = tmp_path / "base"
        base.mkdir()
        dummy.write_weights(base, shape, 0)
        adapter = dummy.make_adapter(tmp_path / "lora", base, shape, seed=1)
        assert check_weights(adapter, base)

    @pytest.mark.nightly
    def test_no_room_for_the_checkpoints_is_said(
        self, gpu: ModuleType, dummy: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        measurements = gpu.Measurements(
            dummy.Shape(16, 2, 2, 1, 32, vocabulary=64), tmp_path, on_gpu=False, samples=1
        )
        usage = shutil.disk_usage(tmp_path)._replace(free=1 << 30)
        monkeypatch.setattr(gpu.shutil, "disk_usage", lambda path: usage)
        with pytest.raises(gpu.NotRun, match=rf"{tmp_path}, 1\.1 are free; --scratch"):
            measurements.swap()


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
