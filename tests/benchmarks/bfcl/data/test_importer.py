"""An import lands whole or not at all, versioned by its contents."""

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


def import_copy(path: Path | None, said: list[str] | None = None) -> Path:
    BFCL.import_data(path, (said if said is not None else []).append)
    return max(imports_folder("bfcl").iterdir(), key=lambda one: one.stat().st_mtime_ns)


def left() -> list[str]:
    home = imports_folder("bfcl")
    return sorted(os.listdir(home)) if home.exists() else []


def test_import_lands_whole_and_once(made_up: Path) -> None:
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
    copy, before = UpstreamPackage.locate("imported"), UpstreamPackage.locate(str(made_up))
    assert copy.name == f"imported:{folder.name}"
    assert copy == UpstreamPackage.locate(copy.name)
    assert data_hash(load(copy)) == data_hash(load(before))
    assert official(copy) == official(before)
    for again in (made_up / "bfcl_eval", folder):
        said = []
        assert import_copy(again, said) == folder
        assert said[0].startswith("already imported, nothing to do: 174 rows")


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


def test_installed_package_is_imported_without_running_it(
    made_up: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The made-up package raises when Python imports it."""
    monkeypatch.syspath_prepend(str(made_up))
    manifest = json.loads((import_copy(None) / "manifest.json").read_text())
    assert manifest["source"] == {"path": str(made_up / "bfcl_eval")}


@pytest.mark.parametrize(
    ("name", "text", "match"),
    [
        (upstream_package.question_file("parallel"), None, "no such file"),
        (upstream_package.TOOL_SOURCES[-1], None, "no such file"),
        (upstream_package.prerequisite_file("finance"), None, "no such file"),
        (upstream_package.answer_file("multiple"), "", "is empty"),
        (f"{TOOL_FOLDER}/ticket_api.py", "import socket\nclass TicketAPI: ...\n", "ticket_api"),
    ],
)
def test_incomplete_or_broken_copy_leaves_nothing_behind(
    made_up: Path, name: str, text: str | None, match: str
) -> None:
    path = made_up / "bfcl_eval" / name
    if text is None:
        path.unlink()
    else:
        path.write_text(text)
    with pytest.raises(UserError, match=match) as caught:
        import_copy(made_up)
    assert path.name in str(caught.value)
    assert left() == []


def test_failed_write_leaves_nothing_behind(made_up: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Path, raw: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", fail)
    with pytest.raises(UserError, match=r"No space left .* ACE_RAY_CACHE"):
        import_copy(made_up)
    assert left() == []


@pytest.mark.nightly
def test_published_package_is_known_and_has_all_rows(bfcl_folder: Path) -> None:
    manifest = json.loads((import_copy(bfcl_folder) / "manifest.json").read_text())
    assert manifest["official_data"] is True
    rows = manifest["rows"]
    assert sum(rows.values()) == 10_306
    names = ("live_multiple", "multi_turn_miss_func", "memory_vector", "format_sensitivity")
    assert [rows[name] for name in names] == [1053, 200, 155, 5200]
