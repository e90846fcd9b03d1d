"""Queries become entries as published, and a mistake in them is one line."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ace_ray.benchmarks.dataset import data_hash, imports_folder
from ace_ray.benchmarks.stabletoolbench import queries as importer
from ace_ray.benchmarks.stabletoolbench.names import GROUPS
from ace_ray.benchmarks.stabletoolbench.prompts import read_texts
from ace_ray.benchmarks.stabletoolbench.queries import MINI, load, locate
from ace_ray.benchmarks.stabletoolbench.shapes import ToolFolder
from ace_ray.errors import UserError
from tests.benchmarks.stabletoolbench.builders import (
    api,
    ids_file,
    parameter,
    queries_file,
    query,
    write,
    write_checkout,
)

GROUP = GROUPS[0]
OFFICIAL_COUNTS = dict(zip(GROUPS, (163, 153, 158, 106, 124, 61), strict=True))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_checkout(tmp_path / "checkout")


def ids_of(loaded: Any) -> list[str]:
    return [entry.id for entry in loaded.entries]


def test_the_published_queries(shared_queries: Path, tmp_path: Path) -> None:
    said: list[str] = []
    folder = importer.import_queries(shared_queries, cache=tmp_path, say=said.append)
    assert said[0].startswith("imported: 765 queries")
    manifest = json.loads((folder / "manifest.json").read_text())
    assert (manifest["commit"], manifest["rows"]) == (importer.OFFICIAL_COMMIT, OFFICIAL_COUNTS)
    loaded = load(folder)
    assert loaded.warnings == []
    assert Counter(entry.category for entry in loaded.entries) == OFFICIAL_COUNTS
    docs = [doc for entry in loaded.entries for doc in entry.data["apis"]]
    assert len(docs) == 4070
    assert len({(doc["category"], doc["tool"], doc["api"]) for doc in docs}) == 2490
    assert sum(doc["template"] is not None for doc in docs) == 2748


def test_the_mini_set_is_whole() -> None:
    loaded = load(MINI)
    assert loaded.warnings == []
    counts = Counter(entry.category for entry in loaded.entries)
    assert set(counts) == set(GROUPS)
    assert set(counts.values()) <= {2, 3}
    for entry in loaded.entries:
        assert entry.gold["relevant"]
        assert all(doc["template"] for doc in entry.data["apis"])


@pytest.mark.parametrize("inner", ["", "solvable_queries"])
def test_an_entry_holds_what_was_published(root: Path, inner: str) -> None:
    assert len(load(root / inner).entries) == 6
    assert locate(str(root / inner)) == root / inner
    (entry,) = load(root / inner, groups=[GROUP]).entries
    assert (entry.key, entry.group) == (("en", GROUP, "0"), "0")
    assert entry.gold == {"relevant": [["Bakery", "Find bread"]]}
    (doc,) = entry.data["apis"]
    assert doc["required"] == [
        {"name": "id", "type": "NUMBER", "description": "which", "default": "3"}
    ]
    assert (doc["category"], doc["tool"], doc["api"]) == ("Food", "Bakery", "Find bread")
    assert doc["template"] == {"bread": "str"}


def test_ids_filter_as_list_or_object(root: Path) -> None:
    write(queries_file(root, GROUP), [query(1), query("2"), query(3)])
    for ids, left in (({"1": 0, "3": 0}, ["1", "3"]), (["3", "1"], ["1", "3"]), ([3], ["3"])):
        write(ids_file(root, GROUP), ids)
        assert ids_of(load(root, groups=[GROUP])) == left
    ids_file(root, GROUP).unlink()
    assert ids_of(load(root, groups=[GROUP])) == ["1", "2", "3"]


def refused(root: Path, match: str) -> None:
    with pytest.raises(UserError, match=match) as caught:
        load(root, groups=[GROUP])
    assert "\n" not in str(caught.value)
    assert GROUP in str(caught.value)


@pytest.mark.parametrize(
    ("value", "match"),
    [
        ('[{"query_id": 1, "query": "Wh', "is not valid JSON .*cut off"),
        ({}, "holds a dict"),
        ([query(None)], "query_id"),
        ([query(0), query("0")], "query_id 0 appears twice"),
        ([query(0, query=None)], "query 0: query: input should"),
        ([query(0, **{"relevant APIs": [["Bakery"]]})], "relevant APIs.0: list should"),
        ([query(0, api_list=[api(tool_name=None)])], "api_list.0.tool_name: input"),
        ([query(0, api_list=[])], "query 0: the query has no APIs"),
    ],
)
def test_bad_queries_are_named(root: Path, value: Any, match: str) -> None:
    write(queries_file(root, GROUP), value)
    refused(root, match)


def test_bad_ids_are_named(root: Path) -> None:
    for value in (5, [1.5], [True], '{"0"'):
        write(ids_file(root, GROUP), value)
        refused(root, "test_query_ids")
    write(ids_file(root, GROUP), ["0", "77", 78])
    refused(root, r"names queries that do not exist: 77, 78;")
    write(ids_file(root, GROUP), list(range(100)))
    refused(root, "1, 2, 3, 4, 5 and 94 more")
    queries_file(root, GROUP).unlink()
    refused(root, f"the group {GROUP} is missing")
    assert len(load(root, groups=GROUPS[1:]).entries) == 5


def test_a_relevant_api_that_is_not_offered_is_a_warning(root: Path) -> None:
    write(queries_file(root, GROUP), [query(0, **{"relevant APIs": [["Bakery", "Bake"]]})])
    (line,) = load(root, groups=[GROUP]).warnings
    assert "query 0: the relevant API Bakery / Bake is not in its api_list" in line


def test_missing_data_is_named_with_a_fix(tmp_path: Path) -> None:
    for name in ("", "imported", "nowhere", "imported:x"):
        with pytest.raises(UserError, match="data import stabletoolbench"):
            locate(name)
    with pytest.raises(UserError, match="no such folder"):
        load(tmp_path / "x")
    with pytest.raises(UserError, match="has no solvable_queries"):
        load(tmp_path)
    with pytest.raises(UserError, match="is a file"):
        load(write(tmp_path / "x.zip", "x"))


def test_an_import_serves_as_a_checkout(root: Path, tmp_path: Path) -> None:
    said: list[str] = []
    folder = importer.import_queries(root, say=said.append)
    assert folder.parent == imports_folder("stabletoolbench")
    assert locate("imported") == locate(f"imported:{folder.name}") == folder
    assert data_hash(load(folder).entries) == data_hash(load(root).entries)
    assert read_texts(folder) == read_texts(root)
    assert (folder / "LICENSE").is_file()
    assert (folder / "server/system_prompts.py").is_file()
    assert any("not those of commit" in line for line in said)
    assert importer.import_queries(root / "solvable_queries", say=said.append) == folder
    assert any("already imported" in line for line in said)
    plain = write_checkout(tmp_path / "plain", sources=False)
    assert importer.import_queries(plain, say=said.append) != folder
    assert "is no checkout" in said[-1]
    with pytest.raises(UserError, match="several versions"):
        locate("imported")


def test_a_failed_import_leaves_nothing_and_follows_no_links(root: Path, cache: Path) -> None:
    secret = write(root.parent / "secret", "[]")
    (root / "LICENSE").unlink()
    (root / "LICENSE").symlink_to(secret)
    with pytest.raises(UserError, match="is a symbolic link"):
        importer.import_queries(root)
    write(queries_file(root, GROUP), "[{")
    with pytest.raises(UserError, match="is not valid JSON"):
        importer.import_queries(root)
    assert not [*cache.rglob("*")]


def tool(**fields: Any) -> dict[str, Any]:
    find = {"name": "Find bread", "description": "Finds it", "required_parameters": []}
    find["optional_parameters"] = [parameter("q")]
    return {"tool_description": "All about bread", "api_list": [find]} | fields


@pytest.mark.parametrize("inner", [".", "tools", "toolenv/tools"])
def test_a_tool_directory_replaces_descriptions(root: Path, tmp_path: Path, inner: str) -> None:
    path = write(tmp_path / "env" / inner / "Food" / "bakery.json", tool())
    (before,) = load(root, groups=[GROUP]).entries[0].data["apis"]
    loaded = load(root, groups=[GROUP], tools=ToolFolder(tmp_path / "env"))
    (doc,) = loaded.entries[0].data["apis"]
    assert (doc["tool_description"], doc["description"]) == ("All about bread", "Finds it")
    assert (doc["required"], doc["optional"]) == ([], [parameter("q")])
    assert doc["template"] == {"bread": "str"}
    assert loaded.warnings == loaded.lacking == []
    # Fields that the file lacks stay as they are.
    null = {"name": "Find bread", "description": None, "required_parameters": None}
    write(path, {"api_list": [null]})
    (doc,) = load(root, groups=[GROUP], tools=ToolFolder(tmp_path / "env")).entries[0].data["apis"]
    assert doc == before


def test_a_tool_directory_that_lacks_tools_says_so(root: Path, tmp_path: Path) -> None:
    folder = tmp_path / "tools"
    write(folder / "Music" / "x.json", {})
    loaded = load(root, tools=ToolFolder(folder))
    assert loaded.lacking == [f"{folder} lacks the tool 'Bakery' (Food)"]
    assert loaded.warnings == []
    assert loaded.entries == load(root).entries
    write(folder / "Food" / "bakery.json", tool(api_list=[]))
    (line,) = load(root, tools=ToolFolder(folder)).lacking
    assert line.endswith("the tool has no API 'Find bread'")


def test_a_category_does_not_leave_the_tool_directory(root: Path, tmp_path: Path) -> None:
    write(tmp_path / "elsewhere" / "bakery.json", tool())
    write(tmp_path / "tools" / "Food" / "x.json", {})
    write(queries_file(root, GROUP), [query(0, api_list=[api(category_name="../elsewhere")])])
    loaded = load(root, groups=[GROUP], tools=ToolFolder(tmp_path / "tools"))
    assert loaded.entries[0].data["apis"][0]["tool_description"] == ""
    assert len(loaded.lacking) == 1


def test_a_bad_tool_directory_is_named(root: Path, tmp_path: Path) -> None:
    for value in ("{", [], {"api_list": 5}, {"api_list": [{"name": 5}]}):
        write(tmp_path / "tools" / "Food" / "bakery.json", value)
        with pytest.raises(UserError, match=r"bakery\.json"):
            load(root, tools=ToolFolder(tmp_path / "tools"))
    with pytest.raises(UserError, match="no such folder"):
        ToolFolder(tmp_path / "x")
    with pytest.raises(UserError, match="no folders of categories"):
        ToolFolder(tmp_path / "tools" / "Food")
