"""Copies are found wherever they are, and what is wrong with one is said in one line."""

from __future__ import annotations

import pickle
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from ace_ray.benchmarks.bfcl.categories import CATEGORIES, FORMS, RELEVANCE, SCORING
from ace_ray.benchmarks.bfcl.data import upstream_package
from ace_ray.benchmarks.bfcl.data.loader import function_docs, load, prerequisites
from ace_ray.benchmarks.bfcl.data.upstream_package import (
    OFFICIAL_DATA_SHA256,
    VERSION,
    UpstreamPackage,
    data_sha256,
)
from ace_ray.benchmarks.dataset import data_hash
from ace_ray.errors import UserError
from tests.benchmarks.bfcl.synthetic_bfcl import edit_line, write_copy

COUNTS = {
    "simple_python": 400,
    "simple_java": 100,
    "simple_javascript": 50,
    "multiple": 200,
    "parallel": 200,
    "parallel_multiple": 200,
    "irrelevance": 240,
    "live_simple": 258,
    "live_multiple": 1053,
    "live_parallel": 16,
    "live_parallel_multiple": 24,
    "live_irrelevance": 884,
    "live_relevance": 16,
    "multi_turn_base": 200,
    "multi_turn_miss_func": 200,
    "multi_turn_miss_param": 200,
    "multi_turn_long_context": 200,
    "memory_kv": 155,
    "memory_vector": 155,
    "memory_rec_sum": 155,
    "web_search_base": 100,
    "web_search_no_snippet": 100,
    "format_sensitivity": 5200,
}
DOC_COUNTS = {
    "GorillaFileSystem": 18,
    "MathAPI": 17,
    "MessageAPI": 10,
    "TwitterAPI": 14,
    "TicketAPI": 9,
    "TradingBot": 20,
    "TravelAPI": 18,
    "VehicleControlAPI": 22,
    "WebSearchAPI": 2,
    "MemoryAPI_kv": 15,
    "MemoryAPI_vector": 12,
    "MemoryAPI_rec_sum": 5,
}


def refused(match: str, spec: str | Path, *categories: str) -> str:
    """What a user reads when the copy is loaded; one line."""
    with pytest.raises(UserError, match=match) as caught:
        load(UpstreamPackage.locate(str(spec)), categories or CATEGORIES)
    line = str(caught.value)
    assert "\n" not in line
    return line


@pytest.mark.nightly
def test_the_published_data_have_the_studied_counts(bfcl_copy: UpstreamPackage) -> None:
    entries = load(bfcl_copy)
    assert Counter(entry.category for entry in entries) == COUNTS
    assert set(COUNTS) == set(CATEGORIES)
    assert sum(COUNTS[category] for category in SCORING) == 5106
    assert len({entry.key for entry in entries}) == len(entries)
    assert {name: len(docs) for name, docs in function_docs(bfcl_copy).items()} == DOC_COUNTS
    conversations = prerequisites(bfcl_copy)
    assert {name: len(rows) for name, rows in conversations.items()} == {
        "student": 10,
        "customer": 10,
        "finance": 7,
        "healthcare": 5,
        "notetaker": 5,
    }
    by_category = {entry.category: entry for entry in entries}
    assert all((by_category[c].gold is None) == (c in RELEVANCE) for c in CATEGORIES)
    forms = [entry.id for entry in entries if entry.category == "format_sensitivity"]
    assert forms[27].startswith(f"format_sensitivity_27:{FORMS[1]}:simple_python_")
    assert data_sha256(bfcl_copy) == OFFICIAL_DATA_SHA256
    assert bfcl_copy.version == VERSION


def test_a_row_becomes_the_entry_that_was_agreed_on(made_up: Path) -> None:
    entries = {entry.id: entry for entry in load(UpstreamPackage.locate(str(made_up)))}
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
    asked = f"format_sensitivity_26:{FORMS[0]}:simple_python_3"
    assert entries[asked].data == entries["simple_python_3"].data
    assert entries[asked].gold == entries["simple_python_3"].gold
    assert entries["live_irrelevance_0-0-0"].gold is None


def test_a_folder_is_or_holds_the_package(made_up: Path) -> None:
    copies = [UpstreamPackage.locate(str(path)) for path in (made_up, made_up / "bfcl_eval")]
    assert {copy.version for copy in copies} == {VERSION}
    assert not any(copy.is_mini for copy in copies)
    assert len({data_hash(load(copy)) for copy in copies}) == 1
    for copy in copies:
        again = UpstreamPackage.locate(copy.name)
        assert again == copy == pickle.loads(pickle.dumps(copy))
        assert copy.has(upstream_package.PROMPT_SOURCE)
        assert not copy.has("data/nothing.json")


def test_relative_paths_resolve_to_absolute_ones(
    made_up: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(made_up.parent)
    name = UpstreamPackage.locate(made_up.name).name
    monkeypatch.chdir("/")
    assert UpstreamPackage.locate(name).root == (made_up / "bfcl_eval").resolve()


def test_the_installed_package_is_found_and_not_imported(made_up: Path) -> None:
    code = (
        "import sys\n"
        "from ace_ray.benchmarks.bfcl.data.upstream_package import UpstreamPackage\n"
        "from ace_ray.benchmarks.bfcl.data.loader import load\n"
        "copy = UpstreamPackage.locate('installed')\n"
        "assert 'bfcl_eval' not in sys.modules\n"
        "print(copy.name, copy.version, len(load(copy, ['multiple'])), copy.root)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": f"{made_up}:{Path(__file__).parents[4]}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["installed", VERSION, "3", str(made_up / "bfcl_eval")]


def test_nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    line = refused("bfcl-eval is not installed", "installed")
    assert f"pip install --no-deps bfcl-eval=={VERSION}" in line


@pytest.mark.parametrize("spec", ["", "nowhere", "imported:x/y", "imported"])
def test_a_name_for_nothing(spec: str) -> None:
    assert "pip install" in refused("neither mini|nothing is imported", spec)


def test_a_folder_without_the_package(tmp_path: Path) -> None:
    refused("has no bfcl_eval/data in it; give the folder", tmp_path)


def test_another_version(tmp_path: Path) -> None:
    folder = write_copy(tmp_path / "old", "2025.7.1")
    line = refused(f"is version 2025.7.1 of bfcl-eval, and only {VERSION} is known", folder)
    assert f"bfcl-eval=={VERSION}" in line


def test_a_folder_that_does_not_say_its_version(tmp_path: Path) -> None:
    assert UpstreamPackage.locate(str(write_copy(tmp_path / "x", None))).version == "unknown"


def test_unpacked_official_data_are_known_by_their_contents(
    bfcl_folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(bfcl_folder / "data", tmp_path / "bfcl_eval" / "data")
    assert UpstreamPackage.locate(str(tmp_path)).version == VERSION


@pytest.mark.parametrize(
    "name",
    [
        upstream_package.question_file("multiple"),
        upstream_package.answer_file("memory_kv"),
        upstream_package.FORMAT_IDS,
    ],
)
def test_a_missing_file(made_up: Path, name: str) -> None:
    (made_up / "bfcl_eval" / name).unlink()
    assert name in refused("no such file", made_up)


def test_a_truncated_file(made_up: Path) -> None:
    path = made_up / "bfcl_eval" / upstream_package.question_file("parallel")
    path.write_bytes(path.read_bytes()[:-100])
    refused(r"BFCL_v4_parallel\.json:3: is not valid JSON", made_up)
    path = made_up / "bfcl_eval" / upstream_package.FORMAT_IDS
    path.write_bytes(path.read_bytes()[:-10])
    refused("format_sensitivity.json: is not valid JSON", made_up, "format_sensitivity")


@pytest.mark.parametrize("category", ["multiple", "multi_turn_base", "memory_vector"])
def test_answers_of_other_questions(made_up: Path, category: str) -> None:
    answers, questions = (
        upstream_package.answer_file(category),
        upstream_package.question_file(category),
    )
    assert answers is not None
    path = made_up / "bfcl_eval" / answers
    kept = path.read_text()
    edit_line(path, 2, lambda row: {**row, "id": "other_1"})
    refused(rf"{questions}:2: id .* is not in .*{answers}; every id needs one", made_up, category)
    path.write_text(kept)
    edit_line(path, 2, lambda row: None)
    refused(rf"{questions}:2: id .* is not in", made_up, category)
    path.write_text(kept)
    edit_line(path, 2, lambda row: {**row, "id": row["id"].replace("1", "0")})
    refused(":2: id .* is already used in|is not in", made_up, category)


WRONG_ROWS = [
    ("multiple", "question", [[{"role": "tool", "content": "x"}]], "question.0.0.role"),
    ("multiple", "function", [{"name": "f", "description": "d"}], "function.0.parameters"),
    ("memory_kv", "scenario", "pirate", "scenario: input should be 'student'"),
    ("web_search_base", "involved_classes", "x", "involved_classes: input should be a valid list"),
]


@pytest.mark.parametrize(("category", "key", "value", "match"), WRONG_ROWS)
def test_rows_of_another_shape(
    made_up: Path, category: str, key: str, value: object, match: str
) -> None:
    path = made_up / "bfcl_eval" / upstream_package.question_file(category)
    edit_line(path, 1, lambda row: {**row, key: value})
    assert ".json:1: " in refused(match, made_up, category)


@pytest.mark.parametrize(
    ("category", "gold"),
    [
        ("multiple", [{"f": {}, "g": {}}]),
        ("multiple", [{"f": {"a": 1}}]),
        ("multi_turn_base", [["f()"], "g()"]),
        ("multi_turn_base", [["f()"]]),
        ("memory_kv", []),
    ],
)
def test_answers_of_another_shape(made_up: Path, category: str, gold: object) -> None:
    name = upstream_package.answer_file(category)
    assert name is not None
    edit_line(made_up / "bfcl_eval" / name, 1, lambda row: {**row, "ground_truth": gold})
    assert ":1: " in refused("ground_truth|and calls for 1", made_up, category)


def test_ids_of_format_sensitivity_that_there_are_not(made_up: Path) -> None:
    path = made_up / "bfcl_eval" / upstream_package.FORMAT_IDS
    path.write_text('{"multiple": ["multiple_99"]}')
    refused("multiple has no 'multiple_99'", made_up, "format_sensitivity")
    path.write_text('{"memory_kv": ["memory_0"]}')
    refused("is not an object of ids by single-turn category", made_up, "format_sensitivity")


def test_links_out_of_a_folder_are_not_followed(made_up: Path, tmp_path: Path) -> None:
    path = made_up / "bfcl_eval" / upstream_package.question_file("multiple")
    path.rename(tmp_path / "elsewhere.json")
    path.symlink_to(tmp_path / "elsewhere.json")
    refused("is a symbolic link", made_up, "multiple")


def test_an_unknown_category() -> None:
    refused("unknown category 'sql'; write one of simple_python", "mini", "sql")
