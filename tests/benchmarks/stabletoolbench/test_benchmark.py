"""StableToolBench as a benchmark: options, identity, and whole episodes without Ray."""

import asyncio
import json
import pickle
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ace_ray.benchmarks.context import EpisodeContext, RoleModel
from ace_ray.benchmarks.diagnosis import second_reader
from ace_ray.benchmarks.stabletoolbench.apis.json_files import import_answers
from ace_ray.benchmarks.stabletoolbench.benchmark import StableToolBench
from ace_ray.benchmarks.stabletoolbench.callable_names import GROUPS
from ace_ray.benchmarks.stabletoolbench.judge import asking
from ace_ray.benchmarks.stabletoolbench.queries import MINI
from ace_ray.benchmarks.stabletoolbench.summary import summarize
from ace_ray.benchmarks.stabletoolbench.tables import notes
from ace_ray.benchmarks.stabletoolbench.tools import apis_of
from ace_ray.errors import UserError
from ace_ray.types import RULE_SETS, Entry, Episode, Sampling, digest
from tests.benchmarks.scored_row import scored_row
from tests.benchmarks.stabletoolbench.builders import answer
from tests.scripted_model import Request, ScriptedModel, hang

ENDPOINT = {"endpoint": {"url": "https://example.org/v1", "model": "m"}}


def calls_once() -> ScriptedModel:
    """Make an agent that calls its first function once, then finishes."""

    def reply(request: Request) -> Any:
        assert request.tools is not None
        called = request.messages[-1]["role"] == "tool"
        return answer("42.") if called else (request.tools[0]["function"]["name"], {})

    return ScriptedModel(reply)


def build(tmp_path: Path, **options: Any) -> StableToolBench:
    settings = {"apis": ["cache"], "cache_folder": str(tmp_path / "cache"), **options}
    return StableToolBench.from_options(settings)


def staged(benchmark: StableToolBench, agent: Any, **roles: Any) -> EpisodeContext:
    service = benchmark.service()

    async def call(method: str, *values: Any) -> Any:
        assert service is not None
        return service.call(method, *values)

    models = {
        name: RoleModel(model, benchmark.role_sampling(name), {"model": name})
        for name, model in roles.items()
    }
    return EpisodeContext(RoleModel(agent, Sampling()), models, service=call if service else None)


def played(benchmark: StableToolBench, entry: Entry, **roles: Any) -> Episode:
    return asyncio.run(benchmark.run(entry, staged(benchmark, calls_once(), **roles)))


def test_only_the_groups_of_the_run_must_be_there(tmp_path: Path) -> None:
    folder = tmp_path / "some"
    shutil.copytree(MINI, folder)
    groups = ["G1_instruction", "G3_instruction"]
    for group in set(GROUPS) - set(groups):
        (folder / "solvable_queries" / "test_instruction" / f"{group}.json").unlink()
    for options in ({}, {"tool_scope": "all"}):
        benchmark = build(tmp_path, data=str(folder), groups=groups, **options)
        assert {entry.category for entry in benchmark.entries()} == set(groups)
    total = build(tmp_path, data=str(folder))
    assert {entry.category for entry in total.entries()} == set(groups)
    (line,) = total.summarize([], 0)["warnings"]
    assert line.endswith("lacks the groups G1_category, G1_tool, G2_instruction, G2_category")
    assert total.resolved()["groups"] == groups
    with pytest.raises(UserError, match=r"G2_category is missing.*leave the group out"):
        build(tmp_path, data=str(folder), groups=["G2_category"]).entries()
    # A pool holds the APIs of groups that are there and not run.
    part, total = (build(tmp_path, groups=run, tool_scope="all") for run in (groups[:1], [*GROUPS]))
    assert part.identity()["episodes"]["pool_sha256"] == total.identity()["episodes"]["pool_sha256"]


MIRROR = {"apis": ["simulator"], "simulator": {"model": {"source": "x/MirrorAPI"}}}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"groups": ["G4"]}, "no group 'G4'"),
        ({"method": "BFS"}, "method.*CoT@"),
        ({"judge": "none", "fac": True}, r"stabletoolbench\.fac.*judge is none"),
        (MIRROR, r"stabletoolbench\.simulator.*stabletoolbench\.upstream"),
        ({"apis": ["cashe"]}, "no backend 'cashe'"),
        ({"apis": ["real"]}, "no service for real APIs"),
        ({"upstream": "s3://me:hidden@b/c"}, r"upstream: s3:// is not a local folder"),
        ({"reference": "/nowhere"}, "/nowhere.*no answers"),
    ],
    ids=["group", "method", "fac", "simulator", "backend", "service", "upstream", "reference"],
)
def test_invalid_options_are_refused_in_one_line(tmp_path: Path, options: Any, message: str):
    with pytest.raises(UserError, match=message) as caught:
        build(tmp_path, **options).entries()
    assert "\n" not in str(caught.value)
    assert "hidden" not in str(caught.value)


def test_resolved_options_make_the_same_benchmark(tmp_path: Path) -> None:
    original = build(tmp_path, tool_scope="all", method="DFS_woFilter_w2", votes=2)
    again = StableToolBench.from_options(json.loads(json.dumps(original.resolved())))
    assert again.identity() == original.identity()
    for mode in ("native", "react"):
        benchmark = build(tmp_path, mode=mode)
        entry = benchmark.entries()[0]
        assert all(message["content"] for message in benchmark.prompt(entry))
        assert (benchmark.tools(entry) is None) == (mode == "react")


def test_settings_that_move_a_score_are_in_the_identity(tmp_path: Path) -> None:
    changed: dict[str, Any] = {"method": "CoT@2", "mode": "react", "tool_scope": "all", "votes": 1}
    changed |= {"fac": True, "max_steps": 12, "cache": "read", "apis": ["simulator"]}
    identities = [build(tmp_path, **{key: value}).identity() for key, value in changed.items()]
    real = {"service_url": "https://api.example.org/x"}
    identities.append(build(tmp_path, apis=["real"], real=real).identity())
    identities.append(build(tmp_path).identity())
    # Imported answers of the run's APIs count.
    api = apis_of(build(tmp_path).dataset()[0])[0]
    path = tmp_path / "json" / api.std_category / api.std_tool / f"{api.std_api}.json"
    path.parent.mkdir(parents=True)
    for response in (1, 2):
        path.write_text(json.dumps({"{}": {"error": "", "response": response}}))
        import_answers(tmp_path / "json", tmp_path / "cache")
        identities.append(build(tmp_path).identity())
    assert len({digest(identity) for identity in identities}) == len(identities) == 12


def test_an_answer_is_judged(tmp_path: Path) -> None:
    benchmark = build(tmp_path, fac=True)
    entry, seeds = benchmark.entries()[0], []
    for attempt in (1, 1, 2):
        judging = ScriptedModel(json.dumps({"reason": "so", "status": "Solved"}))
        context = replace(staged(benchmark, calls_once(), judge=judging), attempt=attempt)
        episode = asyncio.run(benchmark.run(entry, context))
        seeds.append({request.sampling.seed for request in judging.requests})
        assert len(judging.requests) == 4, "three votes and one on completeness"
    assert seeds[0] == seeds[1]
    assert not (seeds[1] & seeds[2]), "a repeated row is judged with other seeds"
    # A checker gets benchmark and episode from another process.
    state = json.loads(json.dumps(episode.state))
    verdicts = pickle.loads(pickle.dumps(benchmark)).check(entry, replace(episode, state=state))
    assert [verdicts[rules].valid for rules in RULE_SETS] == [True] * 2
    assert (episode.model_calls, episode.prompt_tokens) == (2, 20), "without the judge's tokens"
    (call,) = episode.state["calls"]
    assert call["failure"] == "no_backend"


OWN: dict[str, Any] = {"temperature": 0.6, "top_p": 0.9, "max_tokens": 2000, "seed": 4}


@pytest.mark.parametrize(
    ("role", "role_sampling", "drawn"),
    [
        (ENDPOINT, asking.SAMPLING, Sampling(0.0, max_tokens=512)),
        (ENDPOINT | {"sampling": OWN}, Sampling(**OWN), Sampling(**OWN)),
    ],
    ids=["upstream's sampling", "sampling of the config"],
)
def test_fac_is_drawn_as_upstreams_unless_the_config_says_otherwise(
    tmp_path, role, role_sampling, drawn
) -> None:
    benchmark, judging = build(tmp_path, fac=True, judge=role), ScriptedModel("Solved")
    context = staged(benchmark, calls_once())
    context = replace(context, roles={"judge": RoleModel(judging, role_sampling, {})})
    asyncio.run(benchmark.run(benchmark.entries()[0], context))
    sampling = judging.requests[-1].sampling
    assert replace(sampling, seed=role_sampling.seed, schema="") == drawn
    # A sampling of the judge's own is in the identity of the role.
    identity = benchmark.identity()["episodes"]["judge"]
    assert ("fac_sampling" in identity) is (drawn.top_p == 1)


def test_a_judge_that_hangs_is_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    benchmark = build(tmp_path)
    entry = benchmark.entries()[0]
    monkeypatch.setattr("ace_ray.benchmarks.stabletoolbench.benchmark.JUDGE_S", 0.1)
    with pytest.raises(asking.JudgeError, match="deadline"):
        played(benchmark, entry, judge=ScriptedModel(hang))


def test_a_query_that_the_reference_lacks_is_not_won(tmp_path: Path) -> None:
    entries = build(tmp_path).entries()
    details: list[Any] = []
    for _ in range(300):  # too deep for pickle
        details = [{"role": "assistant", "message": "rye", "next": details}]
    record = {"method": "CoT@1", "final_answer": "{}", "answer_details": details}
    path = tmp_path / "reference" / f"{entries[0].category}.json"
    path.parent.mkdir()
    path.write_text(json.dumps({entries[0].id: {"answer": record}}))
    benchmark = build(tmp_path, reference=str(path.parent))
    benchmark = pickle.loads(pickle.dumps(benchmark))
    group = [row for row in entries if row.category == entries[0].category]
    rows = []
    for entry in group:
        episode = played(benchmark, entry, judge=ScriptedModel("Solved"))
        assert (episode.state["sowr"] is None) == (entry is not group[0])
        rows.append(scored_row(entry.category, entry.id, benchmark.check(entry, episode)))
    summary = summarize(rows)
    sowr = summary["categories"][entries[0].category]["sowr"]
    assert (sowr["missing"], sowr["win"]["n"]) == (len(group) - 1, 1)
    assert any("no SoWR" in note for note in notes(summary))


@pytest.mark.parametrize("endpoint", [False, True])
def test_a_second_run_of_the_same_simulator_comes_from_the_cache(tmp_path, endpoint) -> None:
    """Settings of the candidate count if it is the simulator."""
    more = {"simulator": ENDPOINT} if endpoint else {}
    benchmark = build(tmp_path, apis=["cache", "simulator"], judge="none", **more)
    entry, simulator = benchmark.entries()[0], ScriptedModel('{"response": 1}')
    assert benchmark.role_sampling("simulator").max_tokens == 1024
    context = staged(benchmark, calls_once(), simulator=simulator)
    candidates: list[Any] = [{"revision": "a"}, {"revision": "b"}, {"engine": {"dtype": "float16"}}]
    for makers, identity in enumerate(candidates, start=1):
        episodes = []
        for _ in range(2):
            again = replace(context, candidate=RoleModel(calls_once(), Sampling(), identity))
            episodes.append(asyncio.run(benchmark.run(entry, again)))
            assert len(simulator.requests) == (1 if endpoint else makers)
            assert (identity.items() <= episodes[-1].state["simulator"].items()) is not endpoint
        assert episodes[1].state["calls"][0]["source"] == "cache"
        assert episodes[0].messages == episodes[1].messages


def test_files_of_a_run_are_written_and_compared_with(tmp_path: Path) -> None:
    benchmark = build(tmp_path)
    rows = []
    judging = ScriptedModel('{"status": "Solved"}')
    for entry in benchmark.entries():
        state = json.dumps(played(benchmark, entry, judge=judging).state)
        row = {"language": "en", "category": entry.category, "id": entry.id, "sample": 0}
        rows.append({**row, "status": "scored", "state": state})
    rows[0] |= {"status": "infra_error", "state": None}
    rows.append(rows[1] | {"sample": 1})
    summary = {"timing": {"wall_s": 3}, "model": {"source": "org/ti \n<ny"}}
    files = dict(benchmark.files(lambda: rows, summary))
    result = "results/tools/ti-ny_all.json"
    assert set(files) == {result, *(f"converted/{group}.json" for group in GROUPS)}
    seed = json.loads(files[result])
    assert seed["summary"]["solved_count"] == len(rows) - 1
    assert seed["metadata"]["config"]["evaluator_model"] == "org/ti \n<ny"
    converted = json.loads(files[f"converted/{rows[1]['category']}.json"])
    assert converted[rows[1]["id"]]["available_tools"][-1]["function"]["name"] == "Finish"
    for path, content in files.items():
        target = tmp_path / "run" / "files" / "stabletoolbench" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    compared = build(tmp_path, reference=str(tmp_path / "run"))
    sowr = played(compared, compared.entries()[1], judge=judging).state["sowr"]
    assert sowr["by"] in ("coin", "judge", "status")
    # Calls that were not read are counted.
    fenced = '```json\n{"name": "f", "arguments": {}}\n```'
    messages = [{"role": "assistant", "content": fenced}, {"role": "tool", "content": fenced}]
    unread = second_reader(benchmark, benchmark.dataset()[0], Episode(messages=messages))
    assert unread == "fenced_json"


def test_what_a_tool_directory_lacks_is_a_number_in_the_headline(tmp_path: Path) -> None:
    (tmp_path / "tools" / "Food").mkdir(parents=True)
    benchmark = build(tmp_path, apis=["cache"], tool_folder=str(tmp_path / "tools"))
    rows = [scored_row(entry.category, entry.id, status="skipped") for entry in benchmark.entries()]
    summary = benchmark.summarize(rows, 1)
    lacking = [line for line in summary["warnings"] if "lacks the tool" in line]
    assert f"lacks {len(lacking)} tools or APIs (see warnings)" in summary["comparable"]
