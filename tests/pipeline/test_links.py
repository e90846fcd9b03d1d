"""No command writes or deletes behind a link below the folder that it names."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.made_run import written_run
from tests.viewer.test_show import answered

REFUSED = "symbolic link, and files behind links are never changed"


@pytest.fixture
def scored(tmp_path: Path, here: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a complete run. Files of TensorBoard go to the current folder, the test's own."""
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    written_run(tmp_path / "sound", answered)
    assert here("score", tmp_path / "sound").code == 0
    return tmp_path / "sound"


def contents(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Map each path to its time of writing and its content."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    return {
        path.relative_to(folder).as_posix(): (path.stat().st_mtime_ns, path.read_bytes())
        for path in files
    }


def links(written: set[str]) -> Iterator[tuple[str, str]]:
    """Yield (path, target of a link) for each place that a command writes to, and above."""
    folders = {parent.as_posix() for name in written for parent in Path(name).parents}
    for name in sorted(folders - {"."}):
        yield from ((name, "folder"), (name, "nothing"))
    for name in sorted(written):
        yield from ((name, "file"), (name, "nothing"))


@pytest.mark.parametrize("command", ["score", "compact", "report", "export --to inspect"])
def test_no_command_writes_behind_a_link(
    command: str, scored: Path, tmp_path: Path, here: Any
) -> None:
    name, *options = command.split()
    run = tmp_path / "run"
    shutil.copytree(scored, run)
    before = contents(run)
    assert here(name, run, *options).code == 0
    after = contents(run)
    written = {path for path in before.keys() | after if before.get(path) != after.get(path)}
    assert written
    for place, to in links({path for path in written if path in after}):
        for folder in (run, tmp_path / "kept"):
            shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(scored, run)
        kept = tmp_path / "kept"
        kept.mkdir()
        # The run's own files lie behind the link, as if a folder was moved to another disk.
        if (run / place).is_dir():
            shutil.move(run / place, kept / "folder")
        elif (run / place).exists():
            shutil.move(run / place, kept / "file")
        (kept / "folder").mkdir(exist_ok=True)
        (kept / "folder" / "thesis.txt").write_text("precious")
        (kept / "file").touch()
        (run / place).parent.mkdir(parents=True, exist_ok=True)
        (run / place).symlink_to(kept / to)
        precious = contents(kept)
        ended = here(name, run, *options)
        assert contents(kept) == precious, f"{place} is a link to a {to}"
        assert ended.code in (0, 2, 75), ended.stderr
        assert "Traceback" not in ended.stderr
        if ended.code == 2 and to == "folder":
            assert REFUSED in ended.stderr
