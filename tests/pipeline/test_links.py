"""No command writes or deletes behind a link below the folder that it names."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.made_run import written_run
from tests.viewer.test_show import answered

REFUSED = "symbolic link, and files behind links are never changed"


@pytest.fixture
def scored(tmp_path: Path, invoke: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a complete run. Files of TensorBoard go to the current folder, the test's own."""
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    written_run(tmp_path / "sound", answered)
    assert invoke("score", tmp_path / "sound").code == 0
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
def test_no_command_writes_behind_a_link(command, scored, tmp_path, invoke) -> None:
    name, *options = command.split()
    run = tmp_path / "run"
    shutil.copytree(scored, run)
    before = contents(run)
    assert invoke(name, run, *options).code == 0
    after = contents(run)
    written = {path for path in before.keys() | after if before.get(path) != after.get(path)}
    assert written
    for location, to in links({path for path in written if path in after}):
        for folder in (run, tmp_path / "kept"):
            shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(scored, run)
        target = tmp_path / "kept"
        target.mkdir()
        # The run's own files lie behind the link, as if a folder was moved to another disk.
        if (run / location).is_dir():
            shutil.move(run / location, target / "folder")
        elif (run / location).exists():
            shutil.move(run / location, target / "file")
        (target / "folder").mkdir(exist_ok=True)
        (target / "folder" / "thesis.txt").write_text("precious")
        (target / "file").touch()
        (run / location).parent.mkdir(parents=True, exist_ok=True)
        (run / location).symlink_to(target / to)
        precious = contents(target)
        result = invoke(name, run, *options)
        assert contents(target) == precious, f"{location} is a link to a {to}"
        assert result.code in (0, 2, 75), result.stderr
        assert "Traceback" not in result.stderr
        if result.code == 2 and to == "folder":
            assert REFUSED in result.stderr
