"""``--fresh`` removes a run, and nothing besides: not behind a link, not beside the run's files."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ace_ray.errors import UserError
from ace_ray.pipeline.open_run import _remove_run
from ace_ray.pipeline.planning.preflight import open_output
from ace_ray.storage.object_store import LocalStore, Store, open_store
from tests.pipeline.hostile_folders import make_run


def precious(folder: Path) -> Path:
    """A folder of somebody's, whose files are called as a run's are."""
    for name in ("part-00000000000001-aa-0123456789abcdef.parquet", "thesis.txt", "sub/x.csv"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("precious")
    return folder


def files_in(folder: Path) -> set[str]:
    return {p.relative_to(folder).as_posix() for p in folder.rglob("*") if not p.is_dir()}


def opened(root: Path) -> Store:
    """As a run is opened: the output is what the user named, the run lies in it."""
    return LocalStore(str(root)).child("run")


def plan_at(root: Path) -> Any:
    store = SimpleNamespace(endpoint_url=None, region=None)
    config = SimpleNamespace(output=str(root), store=store)
    plan = SimpleNamespace(config=config, run_id="run", uri=f"{root}/run", benchmarks={})
    return cast(Any, plan)


@pytest.mark.parametrize("name", ["rows", "files", "files/acebench", "results/tools", "."])
def test_nothing_behind_a_link_is_removed(tmp_path: Path, name: str) -> None:
    kept = precious(tmp_path / "kept")
    run = make_run(tmp_path / "out" / "run")
    if name == ".":  # the run's own folder is a link
        moved = run.rename(tmp_path / "elsewhere")
        run.symlink_to(moved)
        kept = moved
    else:
        link = run / name
        if link.is_dir():
            link.rename(tmp_path / "old")
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(kept)
    before = files_in(kept)
    said: list[str] = []
    if name == "files/acebench":  # a walk does not enter it
        _remove_run(opened(tmp_path / "out"), said.append)
    else:
        with pytest.raises(UserError, match="symbolic link") as caught:
            _remove_run(opened(tmp_path / "out"), said.append)
        assert "\n" not in str(caught.value)
        assert (run / "run.json").exists(), "removed in part"
        with pytest.raises(UserError, match="symbolic link"):
            open_output(plan_at(tmp_path / "out"), fresh=True)[0].put("run.json", b"{}")
    assert files_in(kept) == before


def test_a_linked_file_goes_and_what_it_names_stays(tmp_path: Path) -> None:
    kept = precious(tmp_path / "kept")
    run = make_run(tmp_path / "out" / "run")
    (run / "rows" / "part-9-aa.parquet").symlink_to(kept / "thesis.txt")
    _remove_run(opened(tmp_path / "out"), pytest.fail)
    assert not (run / "rows").exists()
    assert (kept / "thesis.txt").read_text() == "precious"


def test_what_is_not_of_the_run_stays_and_is_named(tmp_path: Path) -> None:
    run = make_run(tmp_path / "out" / "run")
    others = ["notes.txt", "rows/mine.csv", "rows/sub/part-1-a.parquet", "files/other/a.json",
              "files/acebench", "report/report.html", "data/x.json"]  # fmt: skip
    for name in others:
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_text("mine")
    said: list[str] = []
    _remove_run(opened(tmp_path / "out"), said.append)
    assert files_in(run) == set(others)
    (line,) = said
    assert "left as it is" in line
    assert "and 5 more" in line


@pytest.mark.parametrize("content", [b"{}", b"", b"[1]", b'{"name": "my-npm-package"}'])
def test_a_folder_whose_run_json_is_none_is_refused(tmp_path: Path, content: bytes) -> None:
    run = precious(tmp_path / "out" / "run")
    (run / "run.json").write_bytes(content)
    (run / "rows").mkdir()
    (run / "rows" / "part-1-a.parquet").write_text("precious")
    before = files_in(run)
    with pytest.raises(UserError, match=r"run\.json"):
        open_output(plan_at(tmp_path / "out"), fresh=True)
    with pytest.raises(UserError, match=r"run\.json"):
        _remove_run(opened(tmp_path / "out"), pytest.fail)
    assert files_in(run) == before


def test_names_in_a_manifest_lead_nowhere(tmp_path: Path) -> None:
    run = make_run(tmp_path / "out" / "run")
    tree = json.loads((run / "run.json").read_text())
    tree["identity"]["benchmarks"]["../../kept"] = {}
    (run / "run.json").write_text(json.dumps(tree))
    with pytest.raises(UserError, match=r"run\.json"):
        _remove_run(opened(tmp_path / "out"), pytest.fail)


def test_on_s3_only_keys_of_the_run_go(s3: Any, tmp_path: Path) -> None:
    base = f"fresh-{tmp_path.name}"
    run = make_run(tmp_path / "run")
    store = open_store(f"s3://{s3.bucket}/{base}").child("run")
    for path in files_in(run):
        store.put(path, (run / path).read_bytes())
    others = [f"{base}/run2/rows/part-1-a.parquet", f"{base}/run/rows/mine.csv",
              f"{base}/run/rows/part-1-a/../../../../x.parquet", f"{base}/rows/part-1-a.parquet",
              f"{base}/run/files/acebench/../../../y"]  # fmt: skip
    for key in others:
        s3.client.put_object(Bucket=s3.bucket, Key=key, Body=b"mine")
    said: list[str] = []
    _remove_run(store, said.append)
    left = s3.client.list_objects_v2(Bucket=s3.bucket, Prefix=base).get("Contents", [])
    assert {item["Key"] for item in left} == set(others)
    assert len(said) == 1


@pytest.mark.parametrize("work", ["put", "put_if", "delete"])
def test_a_store_changes_nothing_behind_a_link(tmp_path: Path, work: str) -> None:
    kept = precious(tmp_path / "kept")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "run").symlink_to(kept)
    store = opened(tmp_path / "out")
    before = files_in(kept)
    more: dict[str, tuple[Any, ...]] = {"put": (b"x",), "put_if": (b"x", None), "delete": ()}
    for name in ("thesis.txt", "sub/x.csv", "new/x"):
        with pytest.raises(UserError, match="symbolic link"):
            getattr(store, work)(name, *more[work])
    with pytest.raises(UserError, match="is outside the run folder"):
        getattr(LocalStore(str(tmp_path / "out")), work)("../kept/thesis.txt", *more[work])
    assert files_in(kept) == before


def test_a_link_that_the_user_names_is_the_user_s_own(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "runs").symlink_to(tmp_path / "disk")
    store = LocalStore(str(tmp_path / "runs")).child("run")
    store.put("a/b", b"x")
    assert (tmp_path / "disk" / "run" / "a" / "b").read_bytes() == b"x"
    store.delete("a/b")
    assert not (tmp_path / "disk" / "run").exists()
