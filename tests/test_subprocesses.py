"""A child process imports nothing from the current folder, which may belong to somebody else."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ace_ray.util.subprocesses import module_command, module_environment

PACKAGE = Path(__file__).resolve().parents[1] / "ace_ray"


@pytest.mark.nightly
@pytest.mark.parametrize("module", ["models.gguf", "models.reference", "sweep.lane"])
def test_modules_of_the_current_folder_are_not_imported(tmp_path, monkeypatch, module) -> None:
    folder, mark = tmp_path / "checkpoint", tmp_path / "mark"
    folder.mkdir()
    for name in ("struct", "json", "transformers", "torch", "ace_ray"):
        (folder / f"{name}.py").write_text(f"open({str(mark)!r}, 'w'); raise SystemExit(3)")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTHONPATH", f"{PACKAGE.parent}{os.pathsep}")
    # Each module ends by itself: the file does not exist.
    command = module_command(f"ace_ray.{module}", "no-such-file", "out")
    streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True}
    result = subprocess.run(command, env=module_environment(), text=True, check=False, **streams)
    assert not mark.exists(), result.stderr
    assert "No module named" not in result.stderr


def test_every_child_process_is_started_in_this_way() -> None:
    files = [path for path in PACKAGE.rglob("*.py") if '"-m"' in path.read_text(encoding="utf-8")]
    assert [path.name for path in files] == ["subprocesses.py"]
    assert "-P" in module_command("any")
