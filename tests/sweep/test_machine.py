"""What a sweep has to run on, told by nvidia-smi and by Ray."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from ace_ray.cluster import connection, resources
from ace_ray.sweep.packing import Machine, find_machine

Smi = Callable[..., Path]
Cluster = Callable[..., None]


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "running_cluster", lambda: "local")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Smi:
    """An nvidia-smi that prints ``output``; the file returned holds what it was called with."""

    def make(output: str, code: int = 0) -> Path:
        script, called = tmp_path / "nvidia-smi", tmp_path / "called"
        script.write_text(
            f"#!{sys.executable}\nimport sys\n"
            f"open({str(called)!r}, 'w').write(' '.join(sys.argv[1:]))\n"
            f"print({output!r})\nsys.exit({code})\n"
        )
        script.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
        return called

    return make


class TestThisMachine:
    def test_its_gpus(self, smi: Smi) -> None:
        smi("0\n1\n2\n")
        machine = find_machine(2.0)
        assert machine == Machine(3)
        assert machine.nodes == ({"CPU": os.cpu_count(), "GPU": 3},)

    @pytest.mark.parametrize("output", ["", "No devices were found", "[N/A]"])
    def test_none(self, smi: Smi, output: str) -> None:
        smi(output, code=6)
        assert find_machine(2.0) == Machine(0)

    @pytest.mark.parametrize("given", ["2,3", "2, 3", "GPU-a,GPU-b"])
    def test_only_those_it_was_given(
        self, smi: Smi, monkeypatch: pytest.MonkeyPatch, given: str
    ) -> None:
        smi("0\n1\n2\n3")
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
        assert find_machine(2.0) == Machine(2)

    @pytest.mark.parametrize("given", ["", "-1", " ", ","])
    def test_it_was_given_none(self, smi: Smi, monkeypatch: pytest.MonkeyPatch, given: str) -> None:
        smi("0\n1")
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
        assert find_machine(2.0) == Machine(0)


class TestCluster:
    @pytest.fixture
    def of(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
        """Joins a cluster of these nodes; it has to be left again, once for each look."""
        joined: list[str] = []

        def make(*nodes: dict[str, float], **total: float) -> None:
            ray = SimpleNamespace(
                cluster_resources=lambda: total, shutdown=lambda: joined.remove("it")
            )
            monkeypatch.setitem(sys.modules, "ray", ray)
            monkeypatch.setattr(connection, "running_cluster", lambda: "127.0.0.1:6379")
            monkeypatch.setattr(connection, "connect", lambda: joined.append("it"))
            monkeypatch.setattr(resources, "nodes", lambda: list(nodes))

        yield make
        assert joined == []

    def test_gpus_of_all_nodes(self, of: Cluster) -> None:
        of({"CPU": 8}, {"GPU": 4}, {"GPU": 8}, GPU=12.0)
        machine = find_machine(2.0)
        assert machine == Machine(12, shared=True)
        assert machine.nodes == ({"CPU": 8}, {"GPU": 4}, {"GPU": 8})

    def test_without_gpus_lanes_side_by_side(self, of: Cluster) -> None:
        of({"CPU": 8, "memory": 2**34}, {"CPU": 3, "memory": 2**33}, {"CPU": 1})
        assert find_machine(2.0) == Machine(0, slots=5, shared=True)
