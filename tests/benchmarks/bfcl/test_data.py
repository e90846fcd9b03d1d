"""Copies of bfcl-eval: found, read, refused in one line, and imported whole or not at all."""

import json
import os
import pickle
from pathlib import Path

import pytest

from ace_ray.benchmarks.bfcl.benchmark import BFCL
from ace_ray.benchmarks.bfcl.categories import CATEGORIES, FORMS
from ace_ray.benchmarks.bfcl.data import upstream_package
from ace_ray.benchmarks.bfcl.data.loader import load
from ace_ray.benchmarks.bfcl.data.upstream_package import TOOL_FOLDER, VERSION, UpstreamPackage
from ace_ray.benchmarks.bfcl.prompts import official_prompts
from ace_ray.benchmarks.dataset import data_hash, imports_folder
from ace_ray.errors import UserError
from tests.benchmarks.bfcl.synthetic_bfcl import edit_line, write_copy


def refused(match: str, spec: str | Path, *categories: str) -> str:
    """Return the line that a user reads when the copy is loaded."""
    with pytest.raises(UserError, match=match) as caught:
        load(UpstreamPackage.locate(str(spec)), categories or CATEGORIES)
    line = str(caught.value)
    assert "\n" not in line
    return line


def test_rows_become_entries(made_up: Path) -> None:
    copy = UpstreamPackage.locate(str(made_up))
    entries = {entry.id: entry for entry in load(copy)}
    single = entries["simple_python_0"]
    assert single.data.keys() == {"question", "function"}
    assert (single.benchmark, single.language, single.group) == ("bfcl", "en", single.id)
    assert single.gold[0]["garden.water"]["minutes"] == [12]
    held_out = entries["multi_turn_miss_func_0"]
    assert held_out.data["missed_function"] == {"2": ["cancel_order"]}
    assert held_out.data["question"][2] == held_out.gold[1] == []
    memory = entries["memory_rec_sum_2-student-0"]
    assert (memory.data["scenario"], memory.gold) == ("student", {"ground_truth": ["Yusuf"]})
    for name, has_snippet in (("web_search_base_1", True), ("web_search_no_snippet_1", False)):
        assert entries[name].data["show_snippet"] is has_snippet
    original = entries["simple_python_3"]
    variant = entries[f"format_sensitivity_26:{FORMS[0]}:simple_python_3"]
    assert (variant.data, variant.gold) == (original.data, original.gold)
    assert entries["live_irrelevance_0-0-0"].gold is None


def test_gold_calls_that_cannot_be_read_are_refused(made_up: Path) -> None:
    file = str(upstream_package.answer_file("rest"))
    many = f"requests.get({'1, ' * 99})"
    for call in ("f(", "open('x')", many, "requests.get(url=10**(10**9))"):
        edit_line(made_up / "bfcl_eval" / file, 1, lambda row, c=call: {**row, "ground_truth": c})
        assert ".json:1: " in refused("gold calls that cannot be read", made_up, "rest")


def test_a_folder_is_or_holds_the_package(made_up: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(made_up.parent)
    copies = [UpstreamPackage.locate(str(path)) for path in (made_up.name, made_up / "bfcl_eval")]
    monkeypatch.chdir("/")
    assert copies[0] == copies[1]
    assert (copies[0].version, copies[0].is_mini) == (VERSION, False)
    assert UpstreamPackage.locate(copies[0].name) == pickle.loads(pickle.dumps(copies[0]))


def test_data_that_cannot_be_used_is_named(bfcl_copy, tmp_path, monkeypatch) -> None:
    for spec in ("", "nowhere", "imported:x/y", "imported"):
        assert "pip install" in refused("neither mini|nothing is imported", spec)
    refused("has no bfcl_eval/data in it; give the folder", tmp_path)
    refused("unknown category 'ruby'; write one of simple_python", "mini", "ruby")
    refused("BFCL_v4_sql.json: no such file; .*bfcl-eval", "mini", "sql")
    folder = write_copy(tmp_path / "old", bfcl_copy, "2025.7.1")
    line = refused(f"is version 2025.7.1 of bfcl-eval, .* supports only version {VERSION}", folder)
    assert f"bfcl-eval=={VERSION}" in line
    folder = write_copy(tmp_path / "x", bfcl_copy, None)
    assert UpstreamPackage.locate(str(folder)).version == "unknown"
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    line = refused("bfcl-eval is not installed", "installed")
    assert f"pip install --no-deps bfcl-eval=={VERSION}" in line


@pytest.mark.parametrize("category", ["multiple", "memory_vector"])
def test_answers_of_other_questions_are_refused(made_up: Path, category: str) -> None:
    answers = str(upstream_package.answer_file(category))
    questions = upstream_package.question_file(category)
    edit_line(made_up / "bfcl_eval" / answers, 2, lambda row: {**row, "id": "other_1"})
    refused(rf"{questions}:2: id .* is not in .*{answers}; every id needs one", made_up, category)


@pytest.mark.parametrize(
    ("category", "key", "value", "match"),
    [
        ("multiple", "question", [[{"role": "tool", "content": "x"}]], "question.0.0.role"),
        ("multiple", "function", [{"name": "f", "description": "d"}], "function.0.parameters"),
        ("memory_kv", "scenario", "pirate", "scenario: input should be 'student'"),
        ("multiple", "ground_truth", [{"f": {}, "g": {}}], "ground_truth"),
        ("multi_turn_base", "ground_truth", [["f()"]], "but its gold calls cover 1"),
        ("memory_kv", "ground_truth", [], "ground_truth"),
    ],
    ids=["role", "parameters", "scenario", "two functions", "turns", "answers"],
)
def test_rows_of_another_shape_are_refused(made_up, category, key, value, match) -> None:
    file = upstream_package.question_file(category)
    if key == "ground_truth":
        file = str(upstream_package.answer_file(category))
    edit_line(made_up / "bfcl_eval" / file, 1, lambda row: {**row, key: value})
    assert ".json:1: " in refused(match, made_up, category)


def import_copy(path: Path | None) -> Path:
    BFCL.import_data(path)
    return max(imports_folder("bfcl").iterdir(), key=lambda folder: folder.stat().st_mtime_ns)


def import_names() -> list[str]:
    home = imports_folder("bfcl")
    return sorted(os.listdir(home)) if home.exists() else []


def test_import_lands_whole_and_once(made_up: Path, log_lines: list[str]) -> None:
    folder = import_copy(made_up)
    assert import_names() == [folder.name]
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["version"] == folder.name == manifest["content_sha256"][:12]
    assert manifest["upstream_version"] == VERSION
    assert manifest["official_data"] is False
    assert manifest["rows"]["simple_python"] == 4
    assert log_lines[0] == f"imported: 182 rows, version {folder.name} in {folder}"
    assert log_lines[1].startswith("the files differ from the published package")
    copy, before = UpstreamPackage.locate("imported"), UpstreamPackage.locate(str(made_up))
    assert copy.name == f"imported:{folder.name}"
    assert copy == UpstreamPackage.locate(copy.name)
    assert data_hash(load(copy)) == data_hash(load(before))
    assert official_prompts(copy) == official_prompts(before)
    log_lines.clear()
    assert import_copy(folder) == folder
    assert log_lines[0].startswith("already imported, nothing to do: 182 rows")


def test_installed_package_is_imported_without_running_it(made_up, monkeypatch) -> None:
    """The made-up package raises when Python imports it."""
    monkeypatch.syspath_prepend(str(made_up))
    manifest = json.loads((import_copy(None) / "manifest.json").read_text())
    assert manifest["source"] == {"path": str(made_up / "bfcl_eval")}


@pytest.mark.parametrize(
    ("name", "text", "match"),
    [
        (upstream_package.question_file("parallel"), None, "no such file"),
        (upstream_package.answer_file("multiple"), "", "is empty"),
        (f"{TOOL_FOLDER}/ticket_api.py", "import socket\nclass TicketAPI: ...\n", "ticket_api"),
    ],
)
def test_incomplete_or_broken_copy_leaves_nothing_behind(made_up, name, text, match) -> None:
    path = made_up / "bfcl_eval" / name
    if text is None:
        path.unlink()
    else:
        path.write_text(text)
    with pytest.raises(UserError, match=match) as caught:
        import_copy(made_up)
    assert path.name in str(caught.value)
    assert import_names() == []
