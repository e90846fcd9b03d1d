"""No command writes or deletes behind a link below the folder that it names."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ace_ray.config.schema import load_config
from ace_ray.pipeline.evaluate import plan_run
from ace_ray.pipeline.planning.plan import make_manifest
from ace_ray.pipeline.summary import as_json
from tests.pipeline.made_run import written_run
from tests.viewer.test_show import answered

COMMANDS: dict[str, tuple[object, ...]] = {
    "score": (),
    "compact": (),
    "report": (),
    "export": ("--to", "inspect"),
    "export ": ("--to", "lm-eval"),
}


@pytest.fixture
def scored(tmp_path: Path, here: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A complete run; the current folder, where TensorBoard's files go, is the test's own."""
    (tmp_path / "cwd").mkdir()
    monkeypatch.chdir(tmp_path / "cwd")
    written_run(tmp_path / "sound", answered)
    assert here("score", tmp_path / "sound").code == 0
    return tmp_path / "sound"


def contents(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Path -> when it was written, and what it holds."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    return {
        path.relative_to(folder).as_posix(): (path.stat().st_mtime_ns, path.read_bytes())
        for path in files
    }


def links(written: set[str]) -> Iterator[tuple[str, str]]:
    """(path, what it is a link to) for every place that a command writes to, and above."""
    folders = {parent.as_posix() for name in written for parent in Path(name).parents}
    for name in sorted(folders - {"."}):
        yield from ((name, "folder"), (name, "file"), (name, "nothing"))
    for name in sorted(written):
        yield from ((name, "file"), (name, "nothing"))


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_writes_behind_a_link(
    command: str, scored: Path, tmp_path: Path, here: Any
) -> None:
    name, options = command.strip(), COMMANDS[command]
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
        # The run's own files lie behind the link, as where a folder was moved to another disk.
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
            assert "symbolic link, and files behind links are never changed" in ended.stderr


@pytest.mark.nightly
@pytest.mark.ray
@pytest.mark.parametrize(
    ("place", "fresh"), [(".", "--resume"), ("rows", "--fresh"), ("files/acebench", "--resume")]
)
def test_evaluate_refuses_a_linked_folder_before_it_starts(
    place: str, fresh: str, tmp_path: Path, here: Any, config_file: Any
) -> None:
    config = config_file(run_id="run")
    run = tmp_path / "out" / "run"
    run.mkdir(parents=True)
    plan = plan_run(load_config(str(config)))
    (run / "run.json").write_bytes(as_json(make_manifest(plan, {})))
    kept = tmp_path / "kept"
    if place == ".":
        run.rename(kept)
    else:
        (kept / "acebench").mkdir(parents=True)
        (kept / "acebench" / "thesis.txt").write_text("precious")
        (run / place).parent.mkdir(exist_ok=True)
    (run / place).symlink_to(kept)
    precious = contents(kept)
    ended = here("evaluate", config, fresh)
    assert ended.code == 2
    assert "symbolic link, and files behind links are never changed" in ended.stderr
    assert contents(kept) == precious


def test_a_sweep_s_folder_is_not_written_behind_a_link(
    tmp_path: Path, here: Any, config_file: Any
) -> None:
    config = config_file(sweep_id="sweep", models=[{"source": "none"}])
    tree = json.loads(config.read_text())
    del tree["model"]
    config.write_text(json.dumps(tree))
    (tmp_path / "kept").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "sweep").symlink_to(tmp_path / "kept")
    ended = here("sweep", config)
    assert ended.code == 2
    assert "symbolic link, and files behind links are never changed" in ended.stderr
    assert not contents(tmp_path / "kept")
