"""The cache of fetched weights: folders that are not in use make room for others."""

import errno
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ace_ray.errors import UserError
from ace_ray.models.weights_cache import NoRoom, make_once, make_room, release, scratch_of

GIB = 1 << 30


class Disk:
    """100 GiB. Each folder takes 20, and other files take `other_gib` GiB."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.other_gib = root, 0
        monkeypatch.setattr("shutil.disk_usage", lambda path: self.usage())

    def usage(self) -> SimpleNamespace:
        used_gib = 20 * len(self.names()) + self.other_gib
        return SimpleNamespace(total=100 * GIB, free=(100 - used_gib) * GIB)

    def names(self) -> list[str]:
        return sorted(path.name for path in self.root.iterdir() if path.is_dir())

    def put(self, name: str, *, locked: bool = False) -> Path:
        folder = self.root / name

        def make() -> None:
            make_room(folder, 20 * GIB)
            folder.mkdir()
            (folder / "model.safetensors").touch()

        make_once(folder, make, locked=locked)
        return folder


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(tmp_path, monkeypatch)


def test_the_folder_unused_for_longest_makes_room(disk: Disk) -> None:
    first, two, three = (disk.put(f"etags-{n}", locked=True) for n in (1, 2, 3))
    for folder in (two, first, three):
        release(folder)
    disk.put("etags-2", locked=True)
    disk.put("etags-4")
    # A tenth of the disk stays free: 4 times 20 GiB and one more would leave nothing.
    disk.put("etags-5")
    assert disk.names() == ["etags-2", "etags-3", "etags-4", "etags-5"]
    disk.other_gib = 60
    disk.put("etags-6")
    assert disk.names() == ["etags-2", "etags-6"], "a locked folder stays"
    release(two)


def test_small_folders_stay_and_remains_of_a_fetch_go(disk: Disk) -> None:
    for name in ("sha256-1", "etags-1-tokenizer"):
        disk.put(name)
    for name in ("etags-1.part", "etags-2.gone"):
        (disk.root / name).mkdir()
    disk.other_gib = 30
    disk.put("etags-3")
    assert disk.names() == ["etags-1-tokenizer", "etags-3", "sha256-1"]
    disk.other_gib = 50
    with pytest.raises(NoRoom, match=r"20\.0 GiB do not fit .* has 10\.0 GiB free"):
        disk.put("etags-4")


@pytest.mark.parametrize(
    ("number", "kind"), [(errno.ENOSPC, NoRoom), (errno.EDQUOT, NoRoom), (errno.EACCES, UserError)]
)
def test_a_disk_that_fills_up_meanwhile(tmp_path: Path, number: int, kind: type) -> None:
    folder = tmp_path / "etags-1"

    def make() -> None:
        with scratch_of(folder) as scratch:
            (scratch / "half").touch()
            raise OSError(number, "no")

    with pytest.raises(UserError, match="the model cannot be cached") as error:
        make_once(folder, make)
    assert type(error.value) is kind
    assert not [path for path in tmp_path.iterdir() if path.is_dir()]


@pytest.mark.parametrize(
    ("number", "held_before"), [(errno.EACCES, True), (errno.EROFS, True), (errno.EROFS, False)]
)
def test_a_cache_that_cannot_be_written_is_used_as_it_is(
    number: int, held_before: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another user's cache, or a read-only mount; root may write to the former."""
    folder = tmp_path / "etags-model"
    make_once(folder, folder.mkdir, locked=held_before)
    release(folder)
    opens = os.open

    def only_reads(path: Any, flags: int, *args: Any, **more: Any) -> int:
        if flags & (os.O_RDWR | os.O_WRONLY | os.O_CREAT):
            raise OSError(number, os.strerror(number), path)
        return opens(path, flags, *args, **more)

    monkeypatch.setattr("os.open", only_reads)
    make_once(folder, pytest.fail, locked=True)
    release(folder)
    with pytest.raises(UserError, match=f"the model cannot be cached: {os.strerror(number)}"):
        make_once(tmp_path / "other", pytest.fail)
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(total=10, free=0))
    with pytest.raises(NoRoom):  # nothing of the cache can be removed
        make_room(tmp_path / "other", 5)
    assert folder.is_dir()
