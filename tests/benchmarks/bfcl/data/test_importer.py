"""An import lands whole or not at all, versioned by what it holds."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from ace_ray.benchmarks.bfcl.benchmark import BFCL
from ace_ray.benchmarks.bfcl.data import upstream_package
from ace_ray.benchmarks.bfcl.data.loader import load
from ace_ray.benchmarks.bfcl.data.upstream_package import TOOL_FOLDER, VERSION, UpstreamPackage
from ace_ray.benchmarks.bfcl.prompts import official
from ace_ray.benchmarks.dataset import data_hash, imports_folder
from ace_ray.errors import UserError
from tests.benchmarks.bfcl.synthetic_bfcl import edit_line


def import_copy(path: Path | None, said: list[str] | None = None) -> Path:
    BFCL.import_data(path, (said if said is not None else []).append)
    return max(imports_folder("bfcl").iterdir(), key=lambda one: one.stat().st_mtime_ns)


def left() -> list[str]:
    home = imports_folder("bfcl")
    return sorted(os.listdir(home)) if home.exists() else []


def test_import_lands_whole(made_up: Path) -> None:
    said: list[str] = []
    folder = import_copy(made_up, said)
    assert left() == [folder.name]
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["version"] == folder.name == manifest["content_sha256"][:12]
    assert manifest["upstream_version"] == VERSION
    assert manifest["official_data"] is False
    assert manifest["rows"]["simple_python"] == 4
    assert manifest["files"].keys() == set(upstream_package.all_files())
    assert said[0] == f"imported: 174 rows, version {folder.name} in {folder}"
    assert said[1].startswith("its files are not those of the published package")
    assert not list(folder.rglob("__init__.py"))

    copy, before = UpstreamPackage.locate("imported"), UpstreamPackage.locate(str(made_up))
    assert copy.name == f"imported:{folder.name}"
    assert copy == UpstreamPackage.locate(copy.name)
    assert copy.version == VERSION
    assert data_hash(load(copy)) == data_hash(load(before))
    assert official(copy) == official(before)


def test_the_same_content_is_imported_once(made_up: Path) -> None:
    folder = import_copy(made_up)
    stamp = (folder / "manifest.json").stat().st_mtime_ns
    for again in (made_up / "bfcl_eval", folder):
        said: list[str] = []
        assert import_copy(again, said) == folder
        assert said[0].startswith("already imported, nothing to do: 174 rows")
    assert (folder / "manifest.json").stat().st_mtime_ns == stamp


@pytest.mark.nightly
def test_other_contents_are_another_version(made_up: Path) -> None:
    first = import_copy(made_up)
    path = made_up / "bfcl_eval" / upstream_package.TOOL_SOURCES[0]
    path.write_text(path.read_text() + "class Other: ...\n")
    second = import_copy(made_up)
    assert left() == sorted([first.name, second.name])
    with pytest.raises(UserError, match=rf"several versions .* write imported:.*{second.name}"):
        UpstreamPackage.locate("imported")
    with pytest.raises(UserError, match="version 123 is not imported"):
        UpstreamPackage.locate("imported:123")
    assert UpstreamPackage.locate(f"imported:{first.name}").root == first


def test_the_installed_package_can_be_imported(
    made_up: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(made_up))
    folder = import_copy(None)
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["source"] == {"path": str(made_up / "bfcl_eval")}


@pytest.mark.parametrize(
    "name",
    [
        upstream_package.question_file("parallel"),
        upstream_package.PROMPT_SOURCE,
        upstream_package.TOOL_SOURCES[-1],
        upstream_package.prerequisite_file("finance"),
        upstream_package.doc_file("math_api.json"),
    ],
)
def test_an_incomplete_copy_leaves_nothing_behind(made_up: Path, name: str) -> None:
    (made_up / "bfcl_eval" / name).unlink()
    with pytest.raises(UserError, match=f"{name}: no such file"):
        import_copy(made_up)
    assert left() == []


def test_a_broken_copy_leaves_nothing_behind(made_up: Path) -> None:
    answers = upstream_package.answer_file("multiple")
    assert answers is not None
    edit_line(made_up / "bfcl_eval" / answers, 1, lambda row: None)
    with pytest.raises(UserError, match="every id needs one question and one answer"):
        import_copy(made_up)
    assert left() == []


def test_a_write_that_fails_leaves_nothing_behind(
    made_up: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Path, raw: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", fail)
    with pytest.raises(UserError, match=r"No space left .* ACE_RAY_CACHE"):
        import_copy(made_up)
    assert left() == []


def test_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is neither mini"):
        import_copy(tmp_path / "nothing")


@pytest.mark.nightly
def test_the_published_package_is_known(bfcl_folder: Path) -> None:
    folder = import_copy(bfcl_folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["official_data"] is True
    assert sum(manifest["rows"].values()) == 10_306


def test_tools_that_do_not_load_are_not_imported(made_up: Path) -> None:
    source = made_up / "bfcl_eval" / TOOL_FOLDER / "ticket_api.py"
    source.write_text("import socket\n\n\nclass TicketAPI:\n    pass\n")
    with pytest.raises(UserError, match="ticket_api"):
        import_copy(made_up)
    assert left() == []
