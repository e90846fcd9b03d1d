"""What memory a container has left, on made-up control groups."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from ace_ray.models.probe import available_bytes

GIB = 2**30
Group = Callable[..., None]


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> None:
    now = SimpleNamespace(available=90 * GIB)
    monkeypatch.setattr("psutil.virtual_memory", lambda: now)


class Machine:
    def __init__(self, folder: Path) -> None:
        self.root, self.own = folder / "cgroup", folder / "self"
        self.own.write_text("0::/\n")

    def v2(self, path: str, most: str, used: int, files: int = 0) -> None:
        place = self.root / path
        place.mkdir(parents=True, exist_ok=True)
        (place / "memory.max").write_text(f"{most}\n")
        (place / "memory.current").write_text(f"{used}\n")
        (place / "memory.stat").write_text(f"anon 1\ninactive_file {files}\nslab 3\n")

    @property
    def seen(self) -> float:
        """Available, in GiB."""
        return available_bytes(self.root, self.own) / GIB


@pytest.fixture
def machine(tmp_path: Path, node: None) -> Machine:
    return Machine(tmp_path)


def test_no_groups(machine: Machine) -> None:
    assert machine.seen == 90
    machine.own.unlink()
    assert machine.seen == 90


def test_a_container(machine: Machine) -> None:
    machine.v2("", str(16 * GIB), 6 * GIB)
    assert machine.seen == 10


def test_files_that_were_read_may_go(machine: Machine) -> None:
    """A checkpoint that was examined fills the page cache up to the limit."""
    machine.v2("", str(16 * GIB), 16 * GIB, files=12 * GIB)
    assert machine.seen == 12


def test_no_limit(machine: Machine) -> None:
    machine.v2("", "max", 6 * GIB)
    assert machine.seen == 90
    machine.v2("", str(2**63 - 4096), 6 * GIB)
    assert machine.seen == 90


def test_the_tightest_of_those_it_is_in(machine: Machine) -> None:
    machine.own.write_text("0::/pods/one\n")
    machine.v2("pods", str(8 * GIB), 7 * GIB)
    machine.v2("pods/one", str(16 * GIB), 2 * GIB)
    machine.v2("pods/two", str(1 * GIB), 1 * GIB)
    assert machine.seen == 1
    machine.v2("pods/one", "max", 2 * GIB)
    assert machine.seen == 1


def test_over_its_limit_nothing_is_left(machine: Machine) -> None:
    machine.v2("", str(GIB), 2 * GIB)
    assert machine.seen == 0


@pytest.mark.parametrize("content", ["", "lots\n", "\ufffd"])
def test_what_cannot_be_read_limits_nothing(machine: Machine, content: str) -> None:
    machine.v2("", str(GIB), 0)
    (machine.root / "memory.stat").write_text(content)
    assert machine.seen == 90
