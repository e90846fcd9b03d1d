"""Find the GPUs of this machine, or of a cluster."""

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from ace_ray.cluster import connection, resources
from ace_ray.sweep.packing import Machine, device_names, find_machine


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
    assert device_names([0, 2]) == "0,2"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-a, GPU-b")
    assert device_names([1, 0]) == "GPU-b,GPU-a"
