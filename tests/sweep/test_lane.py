"""A lane's process: what it is given, what is heard of it, and that nothing of it stays."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from ace_ray.cluster import connection, resources
from ace_ray.config.schema import RunConfig, run_config
from ace_ray.errors import RunFailed, UserError
from ace_ray.pipeline.evaluate import plan_run
from ace_ray.pipeline.session import Session
from ace_ray.storage.object_store import Unreachable
from ace_ray.sweep import lane as lane_module
from ace_ray.sweep.lane import LaneProcess
from ace_ray.sweep.packing import Lane
from ace_ray.sweep.runs import SweepRun

LANE = Lane((SweepRun("step 1", 1, "x"),), 1)
Start = Callable[..., LaneProcess]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Starts a process that runs ``body`` in the lane's place; its spec is ``spec``."""
    made: list[LaneProcess] = []

    def begin(
        body: str, *, devices: list[int] | None = None, say: Any = None, runs: Any = ()
    ) -> LaneProcess:
        script = tmp_path / "python"
        script.write_text(
            f"#!{sys.executable}\nimport json, os, signal, sys, time\n"
            "assert sys.argv[1:4] == ['-P', '-m', 'ace_ray.sweep.lane'], sys.argv\n"
            "spec = json.load(open(sys.argv[4]))\n" + body
        )
        script.chmod(0o755)
        with monkeypatch.context() as patch:
            patch.setattr(sys, "executable", str(script))
            made.append(LaneProcess(LANE, list(runs), devices, say=say))
        return made[-1]

    yield begin
    for process in made:
        if process.code is None:
            process.signal(signal.SIGKILL)
            process.wait(30)


def ended(process: LaneProcess) -> int:
    process.wait(60)
    assert process.code is not None
    return process.code


def test_it_ends_with_a_code(start: Start) -> None:
    assert ended(start("sys.exit(75)")) == 75
    assert ended(start("os.kill(os.getpid(), signal.SIGKILL)")) == -9


def test_what_it_is_given(start: Start, tmp_path: Path) -> None:
    runs = [{"run_id": "r", "config": {"model": {"source": "ä\ud800"}}}]
    out = tmp_path / "spec.json"
    assert ended(start(f"json.dump(spec, open({str(out)!r}, 'w'))", runs=runs)) == 0
    spec = json.loads(out.read_text())
    assert spec["runs"] == runs
    assert spec["parent"] == os.getpid()


def test_the_gpus_that_it_sees(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    body = "print(os.environ.get('CUDA_VISIBLE_DEVICES'))"
    cases = [([0, 2], None, "0,2"), ([1], "5,7", "7"), ([1, 0], "GPU-a, GPU-b", "GPU-b,GPU-a")]
    for devices, given, seen in [*cases, (None, "7", "7"), (None, None, "None")]:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if given is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
        said: list[str] = []
        process = start(body, devices=devices, say=said.append)
        ended(process)
        process.close()
        assert said == [seen]


def test_its_events(start: Start, tmp_path: Path) -> None:
    go = tmp_path / "go"
    process = start(
        "events = open(spec['events'], 'a')\n"
        "lines = [{'run_id': 'a', 'code': 0}, {'run_id': 'b', 'broken': 'x\\u2028y'}]\n"
        "first, second = [json.dumps(line) + chr(10) for line in lines]\n"
        "events.write(first + second[:9])\n"
        "events.flush()\n"
        f"while not os.path.exists({str(go)!r}): time.sleep(0.01)\n"
        "events.write(second[9:] + first[:9])\n"
    )
    until(lambda: process.events())
    assert process.events() == [{"run_id": "a", "code": 0}]
    go.touch()
    assert ended(process) == 0
    assert process.events() == [{"run_id": "a", "code": 0}, {"run_id": "b", "broken": "x\u2028y"}]


def test_its_lines_all_come_before_it_is_closed(start: Start) -> None:
    said: list[str] = []
    process = start(
        "for n in range(2000): print(n)\n"
        "sys.stderr.write('an error\\n')\n"
        "sys.stdout.flush()\n"
        "sys.stdout.buffer.write(b'\\xff no text\\n')",
        say=said.append,
    )
    ended(process)
    process.close()
    assert [line for line in said if line.isdigit()] == [str(n) for n in range(2000)]
    assert {"an error", "\ufffd no text"} <= {*said}


def test_signals(start: Start, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    process = start(
        "signal.signal(signal.SIGTERM, lambda n, f: sys.exit(75))\n"
        f"open({str(ready)!r}, 'w')\n"
        "time.sleep(600)"
    )
    until(ready.exists)
    assert not process.stopping
    process.signal(signal.SIGTERM)
    assert process.stopping
    assert ended(process) == 75
    process.signal(signal.SIGTERM)  # it is gone: nobody else is hit


def test_ctrl_c_on_the_terminal_is_not_for_it(start: Start, tmp_path: Path) -> None:
    out = tmp_path / "group"
    process = start(f"open({str(out)!r}, 'w').write(str(os.getpgid(0)))")
    ended(process)
    assert int(out.read_text()) != os.getpgid(0)


def until(what: Callable[[], Any], timeout_s: float = 60) -> None:
    end = time.monotonic() + timeout_s
    while not what():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's own")
class TestDeath:
    CHILD = "from ace_ray.pipeline.health.signals import die_with; die_with({}); print(1); "

    def test_it_dies_with_its_sweep(self, tmp_path: Path) -> None:
        child = "import os, time; " + self.CHILD.format("os.getppid()") + "time.sleep(600)"
        out = tmp_path / "out"
        script = (
            "import subprocess, sys, time\n"
            f"command = [sys.executable, '-u', '-c', {child!r}]\n"
            "child = subprocess.Popen(command, stdout=subprocess.PIPE)\n"
            "child.stdout.readline()\n"
            f"open({str(out)!r}, 'w').write(f'{{child.pid}}.')\n"
            "time.sleep(600)"
        )
        parent = subprocess.Popen([sys.executable, "-c", script])
        until(lambda: out.exists() and out.read_text().endswith("."))
        pid = int(out.read_text()[:-1])
        assert psutil.pid_exists(pid)
        parent.kill()
        parent.wait()
        until(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == "zombie")

    def test_one_that_was_left_before_it_began_does_not_begin(self) -> None:
        done = subprocess.run(
            [sys.executable, "-c", self.CHILD.format(1 << 22)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (done.returncode, done.stdout) == (75, "")


class TestLane:
    """The lane's own end, where it gets no further than its plans."""

    @pytest.fixture
    def run(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
        monkeypatch.setattr(lane_module, "die_with", lambda parent: None)

        def play(*runs: dict[str, Any], **room: Any) -> tuple[int, list[dict[str, Any]]]:
            spec, events = tmp_path / "spec.json", tmp_path / "events.jsonl"
            spec.write_text(json.dumps({"runs": runs, "events": str(events), "parent": 1, **room}))
            monkeypatch.setattr(sys, "argv", ["lane", str(spec)])
            code = lane_module.main()
            lines = events.read_text().splitlines() if events.exists() else []
            return code, [json.loads(line) for line in lines]

        return play

    def config(self, folder: Path, tmp_path: Path) -> dict[str, Any]:
        return {
            "model": {"source": str(folder)},
            "backend": "fake",
            "benchmarks": ["acebench"],
            "limit": 1,
            "output": str(tmp_path / "out"),
        }

    def test_a_checkpoint_that_is_another_by_now(
        self, run: Any, tmp_path: Path, make_checkpoint: Any
    ) -> None:
        folder = make_checkpoint(tmp_path / "step_1", 1.0)
        config = self.config(folder, tmp_path)
        code, events = run({"run_id": "a", "config": config}, {"run_id": "b", "config": config})
        assert code == 1
        assert [event["run_id"] for event in events] == ["a", "b"]
        for event in events:
            assert event["failed"].startswith(f"{folder}: has changed since the sweep planned it")
        assert not (tmp_path / "out").exists()

    @pytest.mark.parametrize("wrapped", [False, True])
    @pytest.mark.parametrize(
        ("shared", "told", "code"), [(True, "later", 75), (False, "failed", 1)]
    )
    def test_a_cluster_that_is_too_small_now(
        self, run: Any, monkeypatch: Any, shared: bool, told: str, code: int, wrapped: bool
    ) -> None:
        """A cluster held the runs when the sweep began; this machine does not change."""

        def refuses(*arguments: Any) -> int:
            tree = {"model": {"source": "m"}, "benchmarks": ["b"], "workers": 2}
            try:
                resources.fit(RunConfig.model_validate(tree), 9, [])
            except UserError as error:
                if wrapped:  # as in a later pass
                    raise RunFailed("x") from error
                raise
            return 0

        monkeypatch.setattr(lane_module, "run_lane", refuses)
        monkeypatch.setattr(resources, "_installed", lambda name: True)
        ended = run({"run_id": "a"}, {"run_id": "b"}, shared=shared, gpus=[1, 1])
        assert ended[0] == code
        assert [(event["run_id"], [*event][1]) for event in ended[1]] == [("a", told), ("b", told)]

    def test_a_store_that_is_away_fails_nobody(self, run: Any, monkeypatch: Any) -> None:
        def refuses(*arguments: Any) -> int:
            raise Unreachable("S3 cannot be reached")

        monkeypatch.setattr(lane_module, "run_lane", refuses)
        assert run({"run_id": "a"}) == (75, [{"run_id": "a", "later": "S3 cannot be reached"}])

    @pytest.mark.nightly
    def test_it_waits_for_its_gpus_before_it_begins(
        self, run: Any, monkeypatch: Any, tmp_path: Path, make_checkpoint: Any
    ) -> None:
        folder = make_checkpoint(tmp_path / "step_1", 1.0)
        config = self.config(folder, tmp_path)
        run_id = plan_run(run_config(config, where="")).run_id
        asked: list[Any] = []
        monkeypatch.setattr(connection, "connect", lambda: asked.append("connect"))
        monkeypatch.setattr(lane_module, "grow", lambda *args: asked.append(args[:2]))
        monkeypatch.setattr(Session, "run", lambda self: asked.append("run"))
        run({"run_id": run_id, "config": config}, gpus=[2, 1])
        assert asked == ["connect", ([2, 1], 3600.0), "run"]
        asked.clear()
        run({"run_id": run_id, "config": config})
        assert asked == ["run"]
