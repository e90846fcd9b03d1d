"""Queries become entries as published, and their APIs functions with upstream's names."""

from pathlib import Path
from typing import Any

import pytest

from ace_ray.benchmarks.dataset import data_hash, imports_folder
from ace_ray.benchmarks.stabletoolbench import queries as importer
from ace_ray.benchmarks.stabletoolbench.api_schemas import ToolFolder
from ace_ray.benchmarks.stabletoolbench.callable_names import (
    GROUPS,
    api_name,
    function_name,
    standardize,
    standardize_category,
)
from ace_ray.benchmarks.stabletoolbench.episode.rollout import initial_messages
from ace_ray.benchmarks.stabletoolbench.options import Options, Settings
from ace_ray.benchmarks.stabletoolbench.prompts import OWN, read_texts
from ace_ray.benchmarks.stabletoolbench.queries import load, locate, present_groups, unoffered_lines
from ace_ray.benchmarks.stabletoolbench.tools import apis_of, find, schemas, tool_lines
from ace_ray.errors import UserError
from tests.benchmarks.stabletoolbench.builders import (
    SOURCES,
    api,
    doc,
    entry_of,
    ids_file,
    parameter,
    queries_file,
    query,
    write,
    write_checkout,
)

GROUP = GROUPS[0]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_checkout(tmp_path / "checkout")


def test_an_entry_holds_what_was_published(root: Path) -> None:
    for folder in (root, root / "solvable_queries"):
        assert len(load(folder)) == 6
        assert locate(str(folder)) == folder
    (entry,) = load(root, groups=[GROUP])
    assert (entry.key, entry.group) == (("en", GROUP, "0"), "0")
    assert entry.gold == {"relevant": [["Bakery", "Find bread"]]}
    (doc,) = entry.data["apis"]
    required = {"name": "id", "type": "NUMBER", "description": "which", "default": "3"}
    assert (doc["required"], doc["template"]) == ([required], {"bread": "str"})
    # A relevant API that is not offered is a warning.
    write(queries_file(root, GROUP), [query(0, **{"relevant APIs": [["Bakery", "Bake"]]})])
    (line,) = unoffered_lines(root, load(root, groups=[GROUP]))
    assert "query 0: the relevant API Bakery / Bake is not in its api_list" in line


def test_ids_filter_as_list_or_object(root: Path) -> None:
    write(queries_file(root, GROUP), [query(1), query("2"), query(3)])
    for ids, kept in (({"1": 0, "3": 0}, ["1", "3"]), ([3, "1"], ["1", "3"]), (None, [*"123"])):
        write(ids_file(root, GROUP), ids) if ids else ids_file(root, GROUP).unlink()
        assert [entry.id for entry in load(root, groups=[GROUP])] == kept


def refused(root: Path, match: str) -> None:
    with pytest.raises(UserError, match=match) as caught:
        load(root, groups=[GROUP])
    assert "\n" not in str(caught.value)
    assert GROUP in str(caught.value)


def test_bad_queries_are_named(root: Path) -> None:
    for value, match in (
        ('[{"query_id": 1, "query": "Wh', "is not valid JSON .*cut off"),
        ({}, "contains a dict"),
        ([query(None)], "query_id"),
        ([query(0), query("0")], "query_id 0 appears twice"),
        ([query(0, api_list=[api(tool_name=None)])], "api_list.0.tool_name: input"),
        ([query(0, api_list=[])], "query 0: the query has no APIs"),
    ):
        write(queries_file(root, GROUP), value)
        refused(root, match)


def test_bad_ids_and_missing_files_are_named(root: Path, tmp_path: Path) -> None:
    for value in (5, [True]):
        write(ids_file(root, GROUP), value)
        refused(root, "test_query_ids")
    write(ids_file(root, GROUP), list(range(100)))
    refused(root, "1, 2, 3, 4, 5 and 94 more")
    queries_file(root, GROUP).unlink()
    refused(root, f"the group {GROUP} is missing")
    assert len(load(root, groups=GROUPS[1:])) == 5
    for name in ("imported", "nowhere"):
        with pytest.raises(UserError, match="data import stabletoolbench"):
            locate(name)
    packed = write(tmp_path / "x.zip", "x")
    wrong = {packed: "is a file", tmp_path: "has no solvable_queries", tmp_path / "x": "no such"}
    for path, message in wrong.items():
        with pytest.raises(UserError, match=message):
            load(path)


def test_an_import_serves_as_a_checkout(root: Path, tmp_path: Path, log_lines: list[str]) -> None:
    folder = importer.import_queries(root)
    assert folder.parent == imports_folder("stabletoolbench")
    assert locate("imported") == locate(f"imported:{folder.name}") == folder
    assert data_hash(load(folder)) == data_hash(load(root))
    assert read_texts(folder) == read_texts(root)
    assert all((folder / name).is_file() for name in ("LICENSE", "server/system_prompts.py"))
    assert any("differ from those of commit" in line for line in log_lines)
    assert importer.import_queries(root / "solvable_queries") == folder
    assert any("already imported" in line for line in log_lines)
    plain = write_checkout(tmp_path / "plain", sources=False)
    assert importer.import_queries(plain) != folder
    with pytest.raises(UserError, match="several versions"):
        locate("imported")
    # No link is followed; a failed import leaves nothing.
    before = sorted(folder.parent.rglob("*"))
    (root / "LICENSE").unlink()
    (root / "LICENSE").symlink_to(write(tmp_path / "secret", "[]"))
    with pytest.raises(UserError, match="is a symbolic link"):
        importer.import_queries(root)
    assert sorted(folder.parent.rglob("*")) == before


def test_an_import_takes_the_groups_that_are_there(root: Path, log_lines: list[str]) -> None:
    absent = [group for group in GROUPS if not group.endswith("_instruction")]
    for group in absent:
        queries_file(root, group).unlink()
    folder = importer.import_queries(root)
    assert present_groups(folder) == ["G1_instruction", "G2_instruction", "G3_instruction"]
    assert any(line.endswith(f"lacks the groups {', '.join(absent)}") for line in log_lines)
    for group in present_groups(root):
        queries_file(root, group).unlink()
    with pytest.raises(UserError, match="has no group of queries"):
        importer.import_queries(root)


FIND: dict[str, Any] = {"name": "Find bread", "description": "Finds it", "required_parameters": []}


@pytest.mark.parametrize("file", ["bakery.json", "Bakery/Find bread.json"])
@pytest.mark.parametrize("form", ["tool", "API", "API of a query"])
def test_a_tool_directory_replaces_descriptions(root, tmp_path, file, form) -> None:
    api_row = {**FIND, "optional_parameters": [parameter("q")]}
    if form == "API of a query":
        api_row |= {"api_name": api_row.pop("name"), "api_description": api_row.pop("description")}
    tool = {"tool_description": "All about bread"} | (
        {"api_list": [api_row]} if form == "tool" else api_row
    )
    path = write(tmp_path / "env/toolenv/tools/Food" / file, tool)
    (before,) = load(root, groups=[GROUP])[0].data["apis"]
    after = {"description": "Finds it", "required": [], "optional": [parameter("q")]}
    # Fields that the file lacks stay as they are.
    null = {"name": "Find bread", "description": None, "required_parameters": None}
    for content, expected in ((tool, after | {"tool_description": "All about bread"}), (null, {})):
        write(path, content if expected else {"api_list": [content]})
        tools = ToolFolder(tmp_path / "env")
        (entry,) = load(root, groups=[GROUP], tools=tools)
        assert entry.data["apis"] == [before | expected]
        assert [*tools.lacking, *unoffered_lines(root, [entry])] == []


def test_a_tool_directory_that_lacks_tools_says_so(root: Path, tmp_path: Path) -> None:
    folder = tmp_path / "tools"
    write(folder / "Music" / "x.json", {})
    write(tmp_path / "elsewhere" / "bakery.json", {"api_list": [FIND]})
    tools = ToolFolder(folder)
    assert load(root, tools=tools) == load(root)
    assert list(tools.lacking) == [f"{folder} lacks the tool 'Bakery' (Food)"]
    path = write(folder / "Food" / "bakery.json", {"api_list": []})
    tools = ToolFolder(folder)
    load(root, tools=tools)
    (line,) = tools.lacking
    assert line.endswith("the tool has no API 'Find bread'")
    value: Any
    for value in ("{", {"api_list": 5}, {"tool_name": "Bakery"}):
        write(path, value)
        with pytest.raises(UserError, match=r"bakery\.json"):
            load(root, tools=ToolFolder(folder))
    # The name of a category does not leave the directory.
    write(queries_file(root, GROUP), [query(0, api_list=[api(category_name="../elsewhere")])])
    tools = ToolFolder(folder)
    load(root, groups=[GROUP], tools=tools)
    (line,) = tools.lacking
    assert "../elsewhere" in line
    for path, message in ((tmp_path / "x", "no such folder"), (folder / "Food", "no folders of")):
        with pytest.raises(UserError, match=message):
            ToolFolder(path)


def test_names_follow_upstream() -> None:
    names = {"/api/Tracking/": "api_tracking", "4chan Feed": "get_4chan_feed", "a^b": "a^b"}
    names |= {"Vidéo & Co": "vid_o_co", "__": "", "天气 2": "天气_2", "_7_": "get_7"}
    assert {name: standardize(name) for name in names} == names
    reserved = {"id": "is_id", "from": "is_from", "ID": "is_id", "ids": "ids"}
    assert {name: api_name(name) for name in reserved} == reserved
    categories = {"News, Media": "News_Media", "a , b": "a__b", "Food": "Food"}
    assert {name: standardize_category(name) for name in categories} == categories
    assert function_name("id", "Crumb Finder") == "is_id_for_crumb_finder"
    assert function_name("a" * 60, "tool") == "a" * 55 + "_for_tool", "the last 64 characters"


def test_functions_have_upstreams_losses() -> None:
    parameters = [
        parameter("id", "NUMBER", "3"),
        parameter("on", "BOOLEAN", True),
        parameter("what", "string", "") | {"description": "y" * 300},
        parameter("zero", "NUMBER", 0),
    ]
    optional = [parameter("list", "ARRAY", "[1]")]
    words = {"description": "get song x " * 100, "tool_description": "x\ny" + "z" * 600}
    apis = apis_of(
        entry_of(
            doc("A", "get song", required=parameters, optional=optional, **words),
            doc("A", "song", required=[], optional=parameters, description=" "),
            doc("Mill", "Song"),
        )
    )
    function, lost, _ = apis
    assert function.parameters["required"] == ["", "is_id", "on", "what", "zero"]
    assert function.parameters["optional"] == ["", "list"]
    properties = function.parameters["properties"]
    kinds = [properties[name]["type"] for name in ("is_id", "list", "on")]
    assert kinds == ["integer", "string", "boolean"]
    assert (properties["is_id"]["example_value"], properties["zero"]["example_value"]) == ("3", 0)
    assert "example_value" not in properties["what"]
    assert len(properties["what"]["description"]) == 256
    # The description is cut, and the function's name is put in there.
    assert "get_song_for_a x" in function.description
    assert len(function.description) < 320
    # Optional parameters are lost without a required one.
    nothing = {"type": "object", "properties": {}, "required": [""], "optional": [""]}
    assert (lost.parameters, lost.description) == (nothing, 'A function of the tool "a".')
    assert tool_lines([function, function]) == "1.a: xy" + "z" * 509 + "\n"
    assert find(apis, "song_for_a") is find(apis, "") is function, "the first that ends in the name"
    assert find([], "") is find(apis, "x" * 10**6) is None
    assert schemas(apis)[-1]["function"]["parameters"]["required"] == ["return_type"]


def test_texts_come_from_a_checkout_without_running_it(tmp_path: Path) -> None:
    texts = read_texts(write_checkout(tmp_path))
    assert texts.system.startswith("Do it with calls.")
    assert texts.task == 'Use "Finish" at last.\nTools:\n'
    assert (texts.finish, texts.finish_answer) == ("The end.", "What they read.")
    assert (texts.no_return_type, texts.gave_up) == ("no type", "given up")
    assert texts.answered == "thanks"
    assert texts.no_function == '{"error": "Nothing called {name}", "response": ""}'
    assert texts.last_observation == "again, your former look: {observation}\n"
    entry = entry_of(doc("Bakery", "Find"))
    settings = Settings(Options(mode="react"), texts)
    system, user = initial_messages("Q?", apis_of(entry, texts), settings)
    assert user["content"] == "\n>Q?<\n"
    assert "\nThe functions: [{'name': 'find_for_bakery'" in system["content"]
    assert texts.sha256() != OWN.sha256()
    # A file that is not upstream's is named.
    for name in SOURCES:
        for text in ("", "x = (") if name.startswith("toolbench") else ():
            write(write_checkout(tmp_path) / name, text)
            with pytest.raises(UserError, match=str(tmp_path)) as caught:
                read_texts(tmp_path)
            assert "\n" not in str(caught.value)
