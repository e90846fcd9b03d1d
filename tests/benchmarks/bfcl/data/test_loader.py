"""Copies of bfcl-eval are found and read, and errors in one are named in one line."""

from __future__ import annotations

import json
import pickle
import shutil
from collections import Counter
from pathlib import Path

import pytest

from ace_ray.benchmarks.bfcl.categories import CATEGORIES, FORMS, SCORING
from ace_ray.benchmarks.bfcl.data import upstream_package
from ace_ray.benchmarks.bfcl.data.loader import function_docs, load, prerequisites
from ace_ray.benchmarks.bfcl.data.upstream_package import VERSION, UpstreamPackage
from ace_ray.benchmarks.bfcl.tools.own import CLASSES
from ace_ray.errors import UserError
from tests.benchmarks.bfcl.synthetic_bfcl import COPY, DOCS, edit_line, write_copy


def refused(match: str, spec: str | Path, *categories: str) -> str:
    """Return the line that a user reads when the copy is loaded."""
    with pytest.raises(UserError, match=match) as caught:
        load(UpstreamPackage.locate(str(spec)), categories or CATEGORIES)
    line = str(caught.value)
    assert "\n" not in line
    return line


def test_mini_set_has_all_categories_and_the_functions_of_its_classes() -> None:
    entries = load(COPY)
    counts = Counter(entry.category for entry in entries)
    assert {counts.pop(category) for category in SCORING} == {3, 4}
    assert counts == {"format_sensitivity": 4 * len(FORMS)}
    assert len({entry.key for entry in entries}) == len(entries)
    for name, tools in CLASSES.items():
        documented = {doc["name"]: doc["parameters"]["properties"].keys() for doc in DOCS[name]}
        methods = [method for method in dir(tools) if not method.startswith("_")]
        assert documented == {
            method: getattr(tools, method).__annotations__.keys() - {"return"} for method in methods
        }
    talks = prerequisites(COPY)
    assert {name: [row["id"] for row in rows] for name, rows in talks.items()} == {
        name: [f"memory_prereq_{n}-{name}-{n}" for n in range(2)] for name in talks
    }
    for entry in entries:
        if entry.category.startswith("memory"):
            said = str(talks[entry.data["scenario"]]).lower()
            assert any(answer.lower() in said for answer in entry.gold["ground_truth"])


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
    assert "path" not in held_out.data
    memory = entries["memory_rec_sum_2-student-0"]
    assert memory.data["involved_classes"] == ["MemoryAPI_rec_sum"]
    assert memory.data["scenario"] == "student"
    assert memory.gold == {"ground_truth": ["Yusuf"]}
    assert entries["web_search_base_1"].data["show_snippet"] is True
    assert entries["web_search_no_snippet_1"].data["show_snippet"] is False
    asked = entries[f"format_sensitivity_26:{FORMS[0]}:simple_python_3"]
    original = entries["simple_python_3"]
    assert (asked.data, asked.gold) == (original.data, original.gold)
    assert entries["live_irrelevance_0-0-0"].gold is None
    assert list(function_docs(copy)) == list(upstream_package.DOC_FILES)
    assert list(prerequisites(copy)) == list(upstream_package.SCENARIOS)


def test_a_folder_is_or_holds_the_package(made_up: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(made_up.parent)
    copies = [UpstreamPackage.locate(str(path)) for path in (made_up.name, made_up / "bfcl_eval")]
    monkeypatch.chdir("/")
    assert copies[0] == copies[1]
    assert (copies[0].version, copies[0].is_mini) == (VERSION, False)
    assert UpstreamPackage.locate(copies[0].name) == pickle.loads(pickle.dumps(copies[0]))
    assert copies[0].has(upstream_package.PROMPT_SOURCE)
    assert not copies[0].has("data/nothing.json")


def test_data_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for spec in ("", "nowhere", "imported:x/y", "imported"):
        assert "pip install" in refused("neither mini|nothing is imported", spec)
    refused("has no bfcl_eval/data in it; give the folder", tmp_path)
    refused("unknown category 'sql'; write one of simple_python", "mini", "sql")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    line = refused("bfcl-eval is not installed", "installed")
    assert f"pip install --no-deps bfcl-eval=={VERSION}" in line


def test_another_version_is_refused_and_an_unknown_one_is_said(tmp_path: Path) -> None:
    folder = write_copy(tmp_path / "old", "2025.7.1")
    line = refused(f"is version 2025.7.1 of bfcl-eval, and only {VERSION} is known", folder)
    assert f"bfcl-eval=={VERSION}" in line
    assert UpstreamPackage.locate(str(write_copy(tmp_path / "x", None))).version == "unknown"


def test_unpacked_official_data_are_known_by_their_contents(
    bfcl_folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(bfcl_folder / "data", tmp_path / "bfcl_eval" / "data")
    assert UpstreamPackage.locate(str(tmp_path)).version == VERSION


def test_missing_cut_and_linked_files_are_named(made_up: Path, tmp_path: Path) -> None:
    folder = made_up / "bfcl_eval"
    (folder / upstream_package.question_file("multiple")).rename(tmp_path / "elsewhere.json")
    assert upstream_package.question_file("multiple") in refused("no such file", made_up)
    (folder / upstream_package.question_file("multiple")).symlink_to(tmp_path / "elsewhere.json")
    refused("is a symbolic link", made_up, "multiple")
    for name, category, place in (
        (upstream_package.question_file("parallel"), "parallel", ":3"),
        (upstream_package.FORMAT_IDS, "format_sensitivity", ""),
    ):
        path = folder / name
        path.write_bytes(path.read_bytes()[:-10])
        refused(f"{path.name}{place}: is not valid JSON", made_up, category)


@pytest.mark.parametrize("category", ["multiple", "multi_turn_base", "memory_vector"])
def test_answers_of_other_questions_are_refused(made_up: Path, category: str) -> None:
    answers = str(upstream_package.answer_file(category))
    questions = upstream_package.question_file(category)
    path = made_up / "bfcl_eval" / answers
    edit_line(path, 2, lambda row: {**row, "id": "other_1"})
    refused(rf"{questions}:2: id .* is not in .*{answers}; every id needs one", made_up, category)
    edit_line(path, 2, lambda row: None)
    refused(rf"{questions}:2: id .* is not in", made_up, category)
    first = json.loads(path.read_text().splitlines()[0])["id"]
    edit_line(path, 2, lambda row: {**row, "id": first})
    refused(rf"{answers}:2: id .* is already used in", made_up, category)


@pytest.mark.parametrize(
    ("category", "key", "value", "match"),
    [
        ("multiple", "question", [[{"role": "tool", "content": "x"}]], "question.0.0.role"),
        ("multiple", "function", [{"name": "f", "description": "d"}], "function.0.parameters"),
        ("memory_kv", "scenario", "pirate", "scenario: input should be 'student'"),
        ("web_search_base", "involved_classes", "x", "involved_classes: input should be a valid"),
        ("multiple", "ground_truth", [{"f": {}, "g": {}}], "ground_truth"),
        ("multi_turn_base", "ground_truth", [["f()"], "g()"], "ground_truth"),
        ("multi_turn_base", "ground_truth", [["f()"]], "and calls for 1"),
        ("memory_kv", "ground_truth", [], "ground_truth"),
    ],
)
def test_rows_of_another_shape_are_refused(
    made_up: Path, category: str, key: str, value: object, match: str
) -> None:
    file = upstream_package.question_file(category)
    if key == "ground_truth":
        file = str(upstream_package.answer_file(category))
    edit_line(made_up / "bfcl_eval" / file, 1, lambda row: {**row, key: value})
    assert ".json:1: " in refused(match, made_up, category)


def test_unknown_ids_of_format_sensitivity_are_refused(made_up: Path) -> None:
    path = made_up / "bfcl_eval" / upstream_package.FORMAT_IDS
    path.write_text('{"multiple": ["multiple_99"]}')
    refused("multiple has no 'multiple_99'", made_up, "format_sensitivity")
    path.write_text('{"memory_kv": ["memory_0"]}')
    refused("is not an object of ids by single-turn category", made_up, "format_sensitivity")
