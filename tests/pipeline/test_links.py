"""``--fresh`` removes the files of a run and nothing else, and no command changes anything behind a
link below the folder that it names."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ace_ray.errors import UserError
from ace_ray.models.sources import ModelRef
from ace_ray.pipeline.run_folder import RunFolder, open_output
from ace_ray.storage.lease import Lease
from ace_ray.storage.object_store import LocalStore, Store, open_store
from tests.pipeline.made_run import answered, planned_run, sound_run, written_run


def files_in(folder: Path) -> set[str]:
    return {p.relative_to(folder).as_posix() for p in folder.rglob("*") if not p.is_dir()}


def precious(folder: Path) -> Path:
    """Make a folder whose files have names like a run's."""
    for name in ("part-00000000000001-aa-0123456789abcdef.parquet", "thesis.txt", "sub/x.csv"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("precious")
    return folder


def fresh(run: Path, store: Store | None = None) -> None:
    """Start the run in ``run``, or in ``store``, anew, up to its first row."""
    plan = planned_run(run, ModelRef("org/Toy-7B", "hub", "org/Toy-7B", "1234"))
    if store is None:
        store, _ = open_output(plan, fresh=True)
    lease = Lease.acquire(store)
    try:
        opened = RunFolder(plan, store, lease, {}, False, 0.0, 0.0, False)
        opened.declare({"created_at": "2026-11-27T00:00:00+00:00", "versions": {}})
    finally:
        lease.release()


@pytest.mark.parametrize("name", ["rows", "files", "files/acebench", "results/tools", "."])
def test_linked_folder_is_refused(tmp_path: Path, name: str, log_lines: list[str]) -> None:
    folder = precious(tmp_path / "kept")
    run = sound_run(tmp_path / "out" / "run")
    link = run / name
    if name == ".":
        folder = run.rename(tmp_path / "elsewhere")
        link = run
    elif link.is_dir():
        link.rename(tmp_path / "old")
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(folder)
    before = files_in(folder)
    with pytest.raises(UserError, match="symbolic link"):
        fresh(run)
    if "/" not in name:  # a link that came after the check
        with pytest.raises(UserError, match="symbolic link"):
            fresh(run, LocalStore(str(run.parent)).child("run"))
    assert log_lines == []
    assert (run / "_SUCCESS").exists(), "removed in part"
    assert files_in(folder) == before


def test_other_files_and_linked_files_stay(tmp_path: Path, log_lines: list[str]) -> None:
    folder = precious(tmp_path / "kept")
    run = sound_run(tmp_path / "out" / "run")
    names = {"notes.txt", "rows/mine.csv", "rows/sub/part-1-a.parquet", "files/other/a.json",
              "report/report.html", "results/x/a.json", "results/tools/a.csv"}  # fmt: skip
    for name in names:
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_text("mine")
    (run / "rows" / "part-9-aa.parquet").symlink_to(folder / "thesis.txt")
    fresh(run)
    assert files_in(run) == names | {"run.json"}
    assert files_in(folder) == files_in(precious(tmp_path / "as before"))
    (line,) = log_lines
    assert "stays unchanged" in line
    assert "more" in line


@pytest.mark.parametrize("content", [b"{}", b"[1]", b'{"name": "my-npm-package"}', None])
def test_invalid_manifest_is_refused(tmp_path, content, log_lines) -> None:
    run = sound_run(tmp_path / "out" / "run")
    if content is None:
        tree = json.loads((run / "run.json").read_text())
        tree["identity"]["benchmarks"]["../../kept"] = {}
        content = json.dumps(tree).encode()
    (run / "run.json").write_bytes(content)
    before = files_in(run)
    with pytest.raises(UserError, match=r"run\.json"):
        fresh(run)
    assert log_lines == []
    assert files_in(run) == before


def test_only_keys_of_the_run_are_removed_on_s3(s3, tmp_path, log_lines) -> None:
    base = f"fresh-{tmp_path.name}"
    run = sound_run(tmp_path / "out" / "run")
    store = open_store(f"s3://{s3.bucket}/{base}").child("run")
    for path in files_in(run):
        store.put(path, (run / path).read_bytes())
    foreign_keys = {f"{base}/run2/rows/part-1-a.parquet", f"{base}/run/rows/mine.csv",
              f"{base}/run/rows/part-1-a/../../../../x.parquet",
              f"{base}/run/files/acebench/../../../y"}  # fmt: skip
    for key in foreign_keys:
        s3.client.put_object(Bucket=s3.bucket, Key=key, Body=b"mine")
    fresh(run, store)
    objects = s3.client.list_objects_v2(Bucket=s3.bucket, Prefix=base).get("Contents", [])
    assert {item["Key"] for item in objects} == foreign_keys | {f"{base}/run/run.json"}
    assert len(log_lines) == 1


def test_store_changes_nothing_behind_a_link_or_outside_its_folder(tmp_path: Path) -> None:
    folder = precious(tmp_path / "kept")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "run").symlink_to(folder)
    parent = LocalStore(str(tmp_path / "out"))
    for work, more in (
        ("put", [b"x"]),
        ("put_if", [b"x", None]),
        ("put_if", [b"x", "1"]),
        ("delete", []),
    ):
        for name in ("thesis.txt", "new/x"):
            with pytest.raises(UserError, match="symbolic link"):
                getattr(parent.child("run"), work)(name, *more)
        with pytest.raises(UserError, match="is outside the run folder"):
            getattr(parent, work)("../kept/thesis.txt", *more)
    assert files_in(folder) == files_in(precious(tmp_path / "as before"))
    # A link that the user names is followed.
    LocalStore(str(tmp_path / "out" / "run")).child("new").put("a", b"x")
    assert (folder / "new" / "a").read_bytes() == b"x"


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
