"""Agents are offered APIs of a pool: by retrieval, among distractors, or all of them."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from ace_ray.benchmarks.external_outputs import Entries
from ace_ray.benchmarks.stabletoolbench.benchmark import StableToolBench
from ace_ray.benchmarks.stabletoolbench.check import verdicts
from ace_ray.benchmarks.stabletoolbench.outputs import read_outputs
from ace_ray.benchmarks.stabletoolbench.tools import distinct_apis, find
from ace_ray.errors import UserError
from tests.benchmarks.scored_row import scored_row
from tests.benchmarks.stabletoolbench.builders import (
    answer,
    api,
    doc,
    entry_of,
    queries_file,
    query,
    write,
)
from tests.benchmarks.stabletoolbench.test_benchmark import staged
from tests.conftest import Cli
from tests.scripted_model import Request, ScriptedModel

GROUP = "G1_instruction"
SCOPES: list[Any] = ["all", {"retrieved": 1}, {"distractors": 2}]


def plain(tool: str, name: str, **fields: Any) -> dict[str, Any]:
    base = {"tool_name": tool, "api_name": name, "api_description": "", "required_parameters": []}
    return api(**base, **fields)


OTHER = plain("Radio", "Find bread")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write two queries, and a group that is not run, whose API the first query's text names."""
    bread = query(0, query="Find bread", api_list=[plain("Bakery", "Loaves")])
    bread["relevant APIs"] = [["Bakery", "Loaves"]]
    music = query(1, query="Songs by year, or the songs of a year, please?")
    music["api_list"] = [plain("Radio", name) for name in ("Songs", "Years of songs")]
    music["relevant APIs"] = [["Radio", "Songs"], ["Radio", "Years of songs"]]
    write(queries_file(tmp_path / "queries", GROUP), [bread, music])
    write(queries_file(tmp_path / "queries", "G1_tool"), [query(2, api_list=[OTHER])])
    return tmp_path / "queries"


def build(folder: Path, scope: Any, **options: Any) -> StableToolBench:
    settings: dict[str, Any] = {"data": str(folder), "groups": [GROUP], "tool_scope": scope}
    settings |= {"apis": ["cache"], "cache_folder": str(folder.parent / "cache"), "judge": "none"}
    return StableToolBench.from_options({**settings, **options})


def offered(benchmark: StableToolBench, number: int = 0) -> list[str]:
    tools = benchmark.tools(benchmark.dataset()[number])
    return [tool["function"]["name"] for tool in tools or ()][:-1]


def test_every_api_of_a_pool_has_a_name_that_reaches_it() -> None:
    long = "over two and a half goals in the second half of the match of the day"
    docs = [
        doc("Shop", "Get song"),
        doc("Shop", "song"),
        *(doc("Demo", "Me", category=category) for category in ("Media", "Events")),
        *(doc("Football", f"{day} {long}") for day in ("Today", "Tomorrow")),
    ]
    apis = distinct_apis(docs)
    assert [find(apis, offered_api.name, exact=True) for offered_api in apis] == apis
    assert max(len(offered_api.name) for offered_api in apis) <= 64
    assert apis[0].name == "get_song_for_shop", "only names that are repeated change"
    assert apis[4].name.startswith("today_over")
    assert find(apis, "", exact=True) is find(apis, "for_shop", exact=True) is None


def test_the_best_apis_for_the_text_are_offered(folder: Path) -> None:
    benchmark = build(folder, {"retrieved": 2})
    assert offered(benchmark)[0] == "find_bread_for_radio"
    assert set(offered(benchmark, 1)) == {"songs_for_radio", "years_of_songs_for_radio"}
    write(queries_file(folder, GROUP), [query(0, query="the ?!"), query(1)])
    assert len(offered(build(folder, {"retrieved": 1}))) == 1, "a text without words"


def test_distractors_are_drawn_by_the_seed(folder: Path) -> None:
    draws: dict[int, list[str]] = {}
    for seed in (0, 0, 1, 2, 3):
        names = offered(build(folder, {"distractors": 2, "seed": seed}))
        assert len(set(names)) == 3
        assert "loaves_for_bakery" in names
        assert draws.setdefault(seed, names) == names
    assert len(set(map(tuple, draws.values()))) > 1


def test_all_reads_the_tool_directory(folder: Path, tmp_path: Path) -> None:
    tool = {"tool_name": "Bakery", "api_list": [{"name": "Loaves"}, {"name": "Rolls"}]}
    write(tmp_path / "tools" / "Food" / "bakery.json", tool)
    write(tmp_path / "tools" / "Food" / "Bakery" / "hidden.json", {"name": "Of no tool's file"})
    write(tmp_path / "tools" / "Food" / "Oven" / "Bake.json", {"name": "Bake"})
    names = offered(build(folder, "all", tool_folder=str(tmp_path / "tools")))
    assert names == [*offered(build(folder, "all")), "rolls_for_bakery", "bake_for_oven"]


@pytest.mark.parametrize("scope", SCOPES, ids=str)
def test_rows_and_summary_have_the_recall_of_the_offered_apis(folder: Path, scope: Any) -> None:
    def reply(request: Request) -> Any:
        return answer("Rye.") if request.messages[-1]["role"] == "tool" else (names[-1], {"q": 1})

    benchmark, rows, states = build(folder, scope), [], []
    for number, entry in enumerate(benchmark.dataset()):
        names = offered(benchmark, number)
        episode = asyncio.run(benchmark.run(entry, staged(benchmark, ScriptedModel(reply))))
        states.append(episode.state)
        verdicts = benchmark.verdicts(entry, episode)
        rows.append(scored_row(GROUP, entry.id, verdicts, "not_judged"))
    recalls = [row.metrics("official")["offered_recall"] for row in rows]
    assert recalls == ([0, 0.5] if scope == {"retrieved": 1} else [1, 1])
    summary = benchmark.summarize(rows, 0)
    assert summary["categories"][GROUP]["shares"]["offered_recall"]["value"] == sum(recalls) / 2
    assert summary["tool_scope"] == benchmark.identity()["episodes"]["tool_scope"]
    assert "offered_recall" in json.dumps(summary["further_tables"])
    assert states[0]["calls"][0]["tool"] in ("Bakery", "Radio"), "the name was read back"


def test_scores_read_names_of_a_pool_back(tmp_path: Path) -> None:
    docs = [doc("Demo", "Me", category=name) for name in ("Media", "Events")]
    entry = entry_of(docs[0], query="Who?", relevant=[["Demo", "Me"]])
    (name, second_name) = (offered_api.name for offered_api in distinct_apis(docs))
    nodes: dict[str, Any] = {"role": "system", "message": "", "next": []}
    below = nodes["next"]
    for called in (name, second_name, "me_for_demo", "a_for_x"):
        message = {"name": called, "arguments": "{}", "response": ""}
        below.append({"role": "tool", "message": message, "next": []})
        below = below[0]["next"]
    tools = [{"function": {"name": key}} for key in (name, second_name, "a_for_x", "Finish")]
    record: dict[str, Any] = {"query": "Who?", "available_tools": tools}
    record["answer"] = {"final_answer": "", "answer_details": [nodes]}
    path = write(tmp_path / "G1_tool.json", {entry.id: record})
    (output,) = read_outputs(path, Entries.from_entries([entry]))
    calls = output.episode.state["calls"]
    assert [call["api"] for call in calls] == ["Me", None, "Me", None]
    assert verdicts(entry, output.episode.state)["official"].metrics["api_precision"] == 1 / 3


@pytest.mark.parametrize(
    ("scope", "message"),
    [
        ({"retrieved": 5}, "only 4 such APIs; write at most 4"),
        ({"distractors": 3}, "only 2 such APIs"),
        ({"retrieved": 0}, "tool_scope"),
        ({"retreived": 4}, "retreived"),
        ("every", "tool_scope"),
    ],
    ids=str,
)
def test_a_scope_that_does_not_fit_is_one_line(folder: Path, scope: Any, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        build(folder, scope).entries()
    assert "\n" not in str(caught.value)


def test_doctor_says_what_fits(folder: Path, invoke: Cli, config_file: Any) -> None:
    apis = [plain("Radio", f"Song number {n}") for n in range(200)]
    write(queries_file(folder, GROUP), [query(n, api_list=apis) for n in (0, 1)])
    options: dict[str, Any] = {"name": "stabletoolbench", "data": str(folder), "groups": [GROUP]}
    options |= {"tool_scope": "all", "judge": "none", "apis": ["simulator"], "mode": "react"}
    settings = {"benchmarks": [options], "engine": {"max_model_len": 1000}}
    result = invoke("doctor", config_file(**settings))
    assert "no prompt fits" in result.stdout
    count = int(result.stdout.partition("set tool_scope: {retrieved: ")[2].partition("}")[0])
    options["tool_scope"] = {"retrieved": count}
    assert "2 of 2 prompts fit" in invoke("doctor", config_file(**settings)).stdout
