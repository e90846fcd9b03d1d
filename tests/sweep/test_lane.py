"""The process of a lane: its input, its events, its signals, and its exit codes."""

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ace_ray.cluster import resources
from ace_ray.config.schema import RunConfig
from ace_ray.errors import RunFailed, UserError
from ace_ray.storage.object_store import UnreachableStore
from ace_ray.sweep import lane as lane_module
from ace_ray.sweep.lane import LaneProcess
from ace_ray.sweep.packing import Lane
from ace_ray.sweep.runs import SweepEntry
from tests.limits import until

LANE = Lane((SweepEntry("step 1", 1, "x"),), 1)
Start = Callable[..., LaneProcess]


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    """Start a process that runs ``body`` in place of the lane; its input is ``spec``."""
    processes: list[LaneProcess] = []

    def begin(
        body: str, *, devices: list[int] | None = None, echo: Any = None, runs: Any = ()
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
            processes.append(LaneProcess(LANE, list(runs), devices, echo=echo))
        return processes[-1]

    yield begin
    for process in processes:
        if process.code is None:
            process.signal(signal.SIGKILL)
            process.wait(30)


def test_a_lane_is_started_heard_and_stopped(start, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5, 7")
    runs, lines, go = [{"run_id": "r", "source": "ä\ud800"}], list[str](), tmp_path / "go"
    process = start(
        "signal.signal(signal.SIGTERM, lambda n, f: sys.exit(75))\n"
        "gpus = os.environ['CUDA_VISIBLE_DEVICES']\n"
        "print(json.dumps([spec['runs'], spec['parent'], gpus, os.getpgid(0)]), flush=True)\n"
        "events = open(spec['events'], 'a')\n"
        "lines = [{'run_id': 'a', 'code': 0}, {'run_id': 'b', 'broken': 'x\\u2028y'}]\n"
        "first, second = [json.dumps(line) + chr(10) for line in lines]\n"
        "events.write(first + second[:9])\n"
        "events.flush()\n"
        f"while not os.path.exists({str(go)!r}): time.sleep(0.01)\n"
        "events.write(second[9:] + first[:9])\n"
        "events.flush()\n"
        "sys.stderr.write('an error\\n')\n"
        "sys.stdout.buffer.write(b'\\xff no text\\n')\n"
        "sys.stdout.flush()\n"
        "time.sleep(600)",
        runs=runs,
        devices=[1],
        echo=lines.append,
    )
    until(process.events)
    assert process.events() == [{"run_id": "a", "code": 0}], "whole lines only"
    go.touch()
    until(lambda: "\ufffd no text" in lines)
    broken = {"run_id": "b", "broken": "x\u2028y"}
    assert process.events() == [{"run_id": "a", "code": 0}, broken]
    assert (process.code, process.stopping) == (None, False)
    process.signal(signal.SIGTERM)
    process.wait(60)
    assert (process.code, process.stopping) == (75, True)
    process.signal(signal.SIGTERM)  # no error: the process has ended
    process.close()
    assert json.loads(lines[0])[:3] == [runs, os.getpid(), "7"]
    assert json.loads(lines[0])[3] != os.getpgid(0), "the sweep passes Ctrl-C on"
    assert "an error" in lines


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Run the lane's `main` in this process; return its exit code and its events."""
    monkeypatch.setattr(lane_module, "die_with", lambda parent: None)

    def run(*runs: dict[str, Any], **room: Any) -> tuple[int, list[dict[str, Any]]]:
        spec, events = tmp_path / "spec.json", tmp_path / "events.jsonl"
        spec.write_text(json.dumps({"runs": runs, "events": str(events), "parent": 1, **room}))
        monkeypatch.setattr(sys, "argv", ["lane", str(spec)])
        code = lane_module.main()
        lines = events.read_text().splitlines() if events.exists() else []
        return code, [json.loads(line) for line in lines]

    return run


@pytest.fixture
def config(tmp_path: Path, make_checkpoint: Callable[..., Path]) -> dict[str, Any]:
    return {
        "model": {"source": str(make_checkpoint(tmp_path / "step_1", 1.0))},
        "backend": "fake",
        "benchmarks": ["acebench"],
        "limit": 1,
        "output": str(tmp_path / "out"),
    }


def test_a_checkpoint_that_changed_since_the_plan_fails(play, tmp_path, config) -> None:
    code, events = play({"run_id": "a", "config": config}, {"run_id": "b", "config": config})
    assert code == 1
    assert [event["run_id"] for event in events] == ["a", "b"]
    for event in events:
        assert "step_1: has changed since the sweep planned it" in event["failed"]
    assert not (tmp_path / "out").exists()


def too_small(in_a_later_pass: bool) -> None:
    tree = {"model": {"source": "m"}, "benchmarks": ["b"], "workers": 2}
    try:
        resources.fit(RunConfig.model_validate(tree), 9, [])
    except UserError as error:
        if in_a_later_pass:
            raise RunFailed("x") from error
        raise


def store_away() -> None:
    raise UnreachableStore("S3 cannot be reached")


@pytest.mark.parametrize(
    ("fails", "shared", "outcome", "code"),
    [
        (partial(too_small, False), True, "later", 75),
        (partial(too_small, True), True, "later", 75),
        (partial(too_small, True), False, "failed", 1),
        (store_away, False, "later", 75),
    ],
    ids=["small cluster", "smaller cluster", "small machine", "store"],
)
def test_an_outage_or_a_small_cluster_postpones_the_runs(
    play, monkeypatch, fails, shared, outcome, code
) -> None:
    monkeypatch.setattr(lane_module, "run_lane", lambda *arguments: fails())
    monkeypatch.setattr("importlib.metadata.distributions", lambda **_: ["vllm"])
    result = play({"run_id": "a"}, {"run_id": "b"}, shared=shared, gpus=[1, 1])
    assert result[0] == code
    outcomes = [(event["run_id"], [*event][1]) for event in result[1]]
    assert outcomes == [("a", outcome), ("b", outcome)]
