"""A child imports nothing from the folder it is started in: that may be one of somebody else's."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ace_ray.util.subprocesses import module_command, module_environment

PACKAGE = Path(__file__).resolve().parents[1] / "ace_ray"


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, which holds modules of others' names that leave a mark when they run."""
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    mark = tmp_path / "mark"
    for name in ("struct", "json", "transformers", "torch", "ace_ray"):
        (folder / f"{name}.py").write_text(f"open({str(mark)!r}, 'w'); raise SystemExit(3)")
    monkeypatch.chdir(folder)
    return mark


@pytest.mark.nightly
@pytest.mark.parametrize(
    "module",
    [
        "ace_ray.models.gguf",
        "ace_ray.models.reference",
        "ace_ray.sweep.lane",
    ],
)
@pytest.mark.parametrize("path", ["", os.pathsep])
def test_a_module_runs_nothing_of_the_current_folder(
    hostile: Path, module: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each ends by itself: it is given no arguments, or no file that exists."""
    there = str(PACKAGE.parent)
    monkeypatch.setenv("PYTHONPATH", there + path)
    done = subprocess.run(
        module_command(module, "no-such-file", "out"),
        env=module_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert not hostile.exists(), done.stderr
    assert "No module named" not in done.stderr


def test_every_child_is_started_like_that() -> None:
    files = [path for path in PACKAGE.rglob("*.py") if '"-m"' in path.read_text(encoding="utf-8")]
    assert [path.name for path in files] == ["subprocesses.py"]


def test_the_package_is_found_from_anywhere(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", "import ace_ray; print(ace_ray.__file__)"],
        env=module_environment({"PATH": os.environ["PATH"]}),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == str(PACKAGE / "__init__.py")
