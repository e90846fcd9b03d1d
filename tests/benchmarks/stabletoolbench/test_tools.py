"""Functions as models see them, with upstream's names and losses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ace_ray.benchmarks.stabletoolbench.episode.rollout import initial_messages
from ace_ray.benchmarks.stabletoolbench.names import (
    api_name,
    function_name,
    standardize,
    standardize_category,
)
from ace_ray.benchmarks.stabletoolbench.options import Settings
from ace_ray.benchmarks.stabletoolbench.prompts import OWN, read_texts
from ace_ray.benchmarks.stabletoolbench.tools import apis_of, find, schemas, tool_lines
from ace_ray.errors import UserError
from tests.benchmarks.stabletoolbench.builders import (
    SOURCES,
    doc,
    entry_of,
    parameter,
    write,
    write_checkout,
)


def test_names_follow_upstream() -> None:
    names = {"/api/Tracking/": "api_tracking", "4chan Feed": "get_4chan_feed", "Vidéo": "vid_o"}
    names |= {
        "Pack & Send": "pack_send",
        "a^b": "a^b",
        "__": "",
        "天气 2": "天气_2",
        "_7_": "get_7",
    }
    assert {name: standardize(name) for name in names} == names
    reserved = {"id": "is_id", "from": "is_from", "ID": "is_id", "ids": "ids"}
    assert {name: api_name(name) for name in reserved} == reserved
    categories = {"News, Media": "News_Media", "a , b": "a__b", "Food": "Food"}
    assert {name: standardize_category(name) for name in categories} == categories
    assert function_name("id", "Crumb Finder") == "is_id_for_crumb_finder"
    assert function_name("a" * 60, "tool") == "a" * 55 + "_for_tool", "the last 64 characters"


def parameters(**fields: Any) -> dict[str, Any]:
    (api,) = apis_of(entry_of(doc("Bakery", "Find", **fields)))
    return api.parameters


def test_types_and_examples_of_parameters() -> None:
    given = [
        parameter("id", "NUMBER", "3"),
        parameter("on", "BOOLEAN", True),
        parameter("what", "string", ""),
        parameter("zero", "NUMBER", 0),
    ]
    shown = parameters(required=given, optional=[parameter("list", "ARRAY", "[1]")])
    assert shown["required"] == ["", "is_id", "on", "what", "zero"]
    assert shown["optional"] == ["", "list"]
    kinds = {name: one["type"] for name, one in shown["properties"].items()}
    numbers, texts = {"is_id": "integer", "zero": "integer"}, {"what": "string", "list": "string"}
    assert kinds == numbers | texts | {"on": "boolean"}
    assert shown["properties"]["is_id"]["example_value"] == "3"
    assert shown["properties"]["zero"]["example_value"] == 0
    assert "example_value" not in shown["properties"]["what"]
    # Upstream loses optional parameters without a required one.
    lost = parameters(required=[], optional=given)
    assert lost == {"type": "object", "properties": {}, "required": [""], "optional": [""]}


def test_descriptions_are_cut() -> None:
    required = [parameter("a") | {"description": "y" * 300}]
    (api,) = apis_of(
        entry_of(doc("Bakery", "Find", description="Find x " * 100, required=required))
    )
    assert "find_for_bakery x" in api.description, "upstream puts the function's name in there"
    assert len(api.description) < 320
    assert len(api.parameters["properties"]["a"]["description"]) == 256
    assert api.api_description == "Find x " * 100
    (silent,) = apis_of(entry_of(doc("Bakery", "Find", description=" ")))
    assert silent.description == 'A function of the tool "bakery".'
    long = doc("Bakery", "a", tool_description="x\ny" + "z" * 600)
    lines = tool_lines(apis_of(entry_of(long, long, doc("Mill", "b"))))
    assert lines == "1.bakery: xy" + "z" * 509 + "\n2.mill: None\n"


def test_finish_is_offered_and_suffixes_reach_functions() -> None:
    apis = apis_of(entry_of(doc("A", "get song"), doc("A", "song"), doc("A", "Song")))
    *_, finish = schemas(apis)
    assert finish["function"]["name"] == "Finish"
    shown = finish["function"]["parameters"]
    assert shown["properties"]["return_type"]["enum"] == ["give_answer", "give_up_and_restart"]
    assert shown["required"] == ["return_type"]
    assert find(apis, "song_for_a") is find(apis, "") is apis[0]
    assert find([], "") is find(apis, "x" * 10**6) is None


def test_texts_come_from_a_checkout_without_running_it(tmp_path: Path) -> None:
    texts = read_texts(write_checkout(tmp_path))
    assert texts.source == "upstream"
    assert texts.system.startswith("Do it with calls.")
    assert texts.task == 'Use "Finish" at last.\nTools:\n'
    assert (texts.finish, texts.finish_answer) == ("The end.", "What they read.")
    bad = (texts.no_return_type, texts.no_final_answer, texts.bad_return_type)
    assert bad == ("no type", "no answer", "odd type")
    assert (texts.gave_up, texts.answered) == ("given up", "thanks")
    assert texts.no_function == '{"error": "Nothing called {name}", "response": ""}'
    assert texts.last_observation == "again, your former look: {observation}\n"
    entry = entry_of(doc("Bakery", "Find"))
    settings = Settings(form="react", texts=texts)
    system, user = initial_messages("Q?", apis_of(entry, texts), settings)
    assert user["content"] == "\n>Q?<\n"
    assert "Do it with calls. So:\nThought:\nAction:\nHere: Use" in system["content"]
    assert "\nThe functions: [{'name': 'find_for_bakery'" in system["content"]
    assert texts.sha256() != OWN.sha256()
    # A file that is not upstream's is named.
    for name in SOURCES:
        for text in ("", "x = (") if name.startswith("toolbench") else ():
            write(write_checkout(tmp_path) / name, text)
            with pytest.raises(UserError) as caught:
                read_texts(tmp_path)
            assert "\n" not in str(caught.value)
            assert str(tmp_path) in str(caught.value)
