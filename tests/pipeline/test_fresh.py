"""``--fresh`` removes the files of a run and nothing else: not behind links, not other files."""

import json
from pathlib import Path

import pytest

from ace_ray.errors import UserError
from ace_ray.models.sources import ModelRef
from ace_ray.pipeline.run_folder import RunFolder, open_output
from ace_ray.storage.lease import Lease
from ace_ray.storage.object_store import LocalStore, Store, open_store
from tests.pipeline.made_run import planned_run, sound_run


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
              "report/report.html", "results/x/a.json"}  # fmt: skip
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
