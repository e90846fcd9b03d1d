"""Find the GPUs of this machine or of a cluster, and pack the runs of a sweep into lanes."""

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ace_ray.cluster import connection, resources
from ace_ray.config.schema import RunConfig
from ace_ray.errors import UserError
from ace_ray.sweep import packing
from ace_ray.sweep.packing import Lane, Machine, check_sizes, find_machine, lanes, time_share
from ace_ray.sweep.runs import SweepEntry

CPU = Machine(0)
ONE = Machine(1)
EIGHT = Machine(8)


class Rows:
    """Rows of a plan, each with a prompt of 400 characters."""

    def __init__(self, count: int) -> None:
        self.size, self.interactive = np.full(count, 400), np.full(count, False)

    def __len__(self) -> int:
        return len(self.size)


def run(
    label: str,
    swap_group: str = "",
    *,
    gpus: int = 1,
    rows: int = 100,
    parameters: int = 10**9,
    **more: Any,
) -> SweepEntry:
    config = SimpleNamespace(sampling=SimpleNamespace(max_tokens=400))
    plan: Any = SimpleNamespace(run_id=label, rows=Rows(rows), config=config, benchmarks={})
    return SweepEntry(
        label, None, label, plan, swap_group=swap_group, gpus=gpus, parameters=parameters, **more
    )


def checkpoints(count: int, swap_group: str = "alike", **more: Any) -> list[SweepEntry]:
    return [run(f"{swap_group}-{step}", swap_group, **more) for step in range(count)]


def packed(runs: Sequence[SweepEntry], machine: Machine, *, swap: bool = True) -> list[list[str]]:
    return [[run.label for run in lane.runs] for lane in lanes(runs, machine, swap=swap)]


def test_models_of_one_endpoint_take_no_gpu_and_run_one_after_another() -> None:
    runs = [*(run(name, gpus=0, endpoint="h") for name in ("a", "b")), run("x")]
    for machine in (CPU, EIGHT):
        by_label = {lane.runs[0].label: lane for lane in lanes(runs, machine, swap=True)}
        assert [by_label[name].gpus > 0 for name in "abx"] == [False, False, machine is EIGHT]
        assert [by_label[name].endpoint for name in "abx"] == ["h", "h", ""]
        assert (by_label["a"].engines, by_label["a"].gpu_bundles) == (1, [])


def test_a_swap_group_shares_an_engine_in_the_order_of_training() -> None:
    for machine in (CPU, ONE):
        assert packed(checkpoints(4), machine) == [["alike-0", "alike-1", "alike-2", "alike-3"]]
        assert len(packed(checkpoints(4), machine, swap=False)) == 4
    runs = [*checkpoints(2, "a"), *checkpoints(2, "b"), run("x"), run("y")]
    assert sorted(packed(runs, CPU)) == [["a-0", "a-1"], ["b-0", "b-1"], ["x"], ["y"]]
    # The longest lane comes first.
    long = run("long", parameters=10**8, rows=10**6)
    assert packed([run("small", parameters=10**8), long], ONE) == [["long"], ["small"]]
    slots = Machine(0, slots=4, shared=True)
    assert [len(lane) for lane in packed(checkpoints(8), slots)] == [2] * 4
    # With more GPUs, neighbours in training stay together.
    assert sorted(packed(checkpoints(8), Machine(4))) == [
        [f"alike-{n}", f"alike-{n + 1}"] for n in range(0, 8, 2)
    ]


@pytest.mark.parametrize(
    ("runs", "gpus", "engines"),
    [
        (checkpoints(2), [4, 4], [4, 4]),
        ([run("x")], [8], [8]),
        # An engine that spans GPUs.
        (checkpoints(8, gpus=2), [2] * 4, [1] * 4),
        ([run("x", gpus=3)], [6], [2]),
        # A served user model holds a GPU of its own.
        ([run("x", servers=((1.0, 1),))], [8], [7]),
        (checkpoints(16, servers=((1.0, 1),)), [2] * 4, [1] * 4),
        ([run("x", gpus=2, servers=((1.0, 3),))], [7], [2]),
        # A number of workers in the config.
        ([run("x", workers=2)], [2], [2]),
    ],
)
def test_lanes_divide_the_gpus(runs: list[SweepEntry], gpus: list[int], engines: list[int]) -> None:
    result = lanes(runs, EIGHT, swap=True)
    assert [lane.gpus for lane in result] == gpus
    assert [lane.engines for lane in result] == engines


@pytest.mark.parametrize(
    ("machine", "sizes", "share"),
    [
        (Machine(0), [2, 3], 2 / 5),
        (Machine(0, slots=2), [1, 1, 1], 1 / 2),
        (EIGHT, [1] * 8, 1),
        (EIGHT, [2, *[3] * 10], 1 / 3),
    ],
)
def test_a_lane_gets_the_time_of_its_runs(machine: Machine, sizes: list[int], share: float) -> None:
    first, *remainder = (Lane(tuple(checkpoints(n)), min(1, machine.gpus)) for n in sizes)
    endpoint = Lane((run("x", gpus=0, endpoint="host"),), 0)
    others = [*remainder, endpoint] if machine.gpus else remainder
    assert time_share(first, others, machine) == share


def test_an_engine_that_no_node_holds_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.distributions", lambda **_: [])
    tree = {"model": {"source": "m"}, "benchmarks": ["b"], "engine": {"tensor_parallel_size": 3}}
    plan: Any = SimpleNamespace(config=RunConfig.model_validate(tree), rows=Rows(100))
    big = replace(run("big", gpus=3, servers=((1.0, 3), (1.0, 2))), plan=plan)
    node = {"CPU": 16.0, "GPU": 4.0}
    problem = r"workers: 1 worker\(s\) of 1 CPU\(s\) and 3 GPU\(s\) each on one node"
    with pytest.raises(UserError, match=problem) as error:
        check_sizes([big], Machine(8, shared=True, nodes=(node, node)))
    assert error.value.where.startswith("big (big)")
    check_sizes([big], Machine(80, shared=True, nodes=({"CPU": 80.0, "GPU": 80.0},)))


@pytest.mark.parametrize(
    ("printed", "visible", "gpus"),
    [("0\n1\n2\n", None, 3), ("0\n1\n2\n3", "2, 3", 2), ("0\n1", "-1", 0)],
)
def test_a_machine_has_the_gpus_that_this_process_may_see(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: str, visible: str | None, gpus: int
) -> None:
    script = tmp_path / "nvidia-smi"
    script.write_text(f"#!{sys.executable}\nprint({printed!r})\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(connection, "running_cluster", lambda: "local")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    machine = find_machine(2.0)
    assert machine == Machine(gpus)
    assert machine.nodes == ({"CPU": os.cpu_count(), "GPU": gpus},)


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([{"CPU": 8}, {"GPU": 4}, {"GPU": 8}], Machine(12, shared=True)),
        ([{"CPU": 8, "memory": 2**34}, {"CPU": 3}, {"CPU": 1}], Machine(0, slots=5, shared=True)),
    ],
)
def test_a_cluster_is_joined_counted_and_left(monkeypatch, nodes, expected) -> None:
    joined: list[str] = []
    ray = SimpleNamespace(shutdown=lambda: joined.remove("it"))
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setattr(connection, "running_cluster", lambda: "127.0.0.1:6379")
    monkeypatch.setattr(connection, "connect", lambda: joined.append("it"))
    monkeypatch.setattr(resources, "nodes", lambda: list(nodes))
    machine = find_machine(2.0)
    assert machine == expected
    assert machine.nodes == tuple(nodes)
    assert joined == []


def test_devices_are_named_among_the_visible_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert packing.device_names([0, 2]) == "0,2"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a, GPU-b")
    assert packing.device_names([1, 0]) == "GPU-b,GPU-a"
