"""StableToolBench as a benchmark: options, identity, and whole episodes without Ray."""

from __future__ import annotations

import asyncio
import json
import pickle
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ace_ray.benchmarks.context import EpisodeContext, RoleModel
from ace_ray.benchmarks.diagnosis import second_reading
from ace_ray.benchmarks.results import SecondReading
from ace_ray.benchmarks.stabletoolbench.apis.cache import FILE
from ace_ray.benchmarks.stabletoolbench.apis.json_files import import_answers
from ace_ray.benchmarks.stabletoolbench.apis.sources import simulator_sampling
from ace_ray.benchmarks.stabletoolbench.benchmark import StableToolBench
from ace_ray.benchmarks.stabletoolbench.judge import asking
from ace_ray.benchmarks.stabletoolbench.names import GROUPS
from ace_ray.benchmarks.stabletoolbench.options import FOLDERS
from ace_ray.benchmarks.stabletoolbench.queries import MINI
from ace_ray.benchmarks.stabletoolbench.summary import summarize
from ace_ray.benchmarks.stabletoolbench.tables import notes
from ace_ray.benchmarks.stabletoolbench.tools import apis_of
from ace_ray.errors import UserError
from ace_ray.models.roles import parse_role
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


def made(tmp_path: Path, **options: Any) -> StableToolBench:
    given = {"apis": ["cache"], "cache_folder": str(tmp_path / "cache"), **options}
    return StableToolBench.from_options(given)


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
    few = ["G1_instruction", "G3_instruction"]
    for group in set(GROUPS) - set(few):
        (folder / "solvable_queries" / "test_instruction" / f"{group}.json").unlink()
    for options in ({}, {"tool_scope": "all"}):
        benchmark = made(tmp_path, data=str(folder), groups=few, **options)
        assert {entry.category for entry in benchmark.entries()} == set(few)
    with pytest.raises(UserError, match=r"G2_category is missing.*leave the group out"):
        made(tmp_path, data=str(folder), groups=["G2_category"]).entries()
    # A pool holds the APIs of groups that are there and not run.
    one = made(tmp_path, groups=few[:1], tool_scope="all")
    whole = made(tmp_path, tool_scope="all")
    assert one.identity()["episodes"]["pool_sha256"] == whole.identity()["episodes"]["pool_sha256"]
    names = {len(one.tools(entry) or ()) for entry in one.dataset()}
    assert names == {len(whole.tools(whole.dataset()[-1]) or ())}
    assert min(names) > 20


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ({"groups": ["G4"]}, ("no group 'G4'", "G1_tool")),
        ({"method": "BFS"}, ("method", "CoT@")),
        ({"judge": "none", "fac": True}, ("stabletoolbench.fac", "judge is none")),
        (
            {"apis": ["simulator"], "simulator": {"model": {"source": "x/MirrorAPI"}}},
            ("stabletoolbench.simulator", "stabletoolbench.upstream"),
        ),
        ({"apis": ["cashe"]}, ("no backend 'cashe'", "cache")),
        ({"apis": ["real"]}, ("no service is named", "stabletoolbench.real")),
        ({"real": {"service_url": "x.org"}}, ("real.service_url", "not an http(s) URL")),
        ({"reference": "/nowhere"}, ("/nowhere", "no answers")),
    ],
)
def test_invalid_options_are_refused_in_one_line(
    tmp_path: Path, options: dict[str, Any], parts: Sequence[str]
) -> None:
    with pytest.raises(UserError) as caught:
        made(tmp_path, **options).entries()
    assert all(part in str(caught.value) for part in parts), str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_address_in_place_of_a_folder_is_refused(tmp_path: Path) -> None:
    for key in FOLDERS:
        with pytest.raises(UserError) as caught:
            made(tmp_path, **{key: "s3://me:hidden@b/c"})
        where = f"benchmarks.stabletoolbench.{key}: s3:// is no local folder"
        assert str(caught.value).startswith(where)
        assert "hidden" not in str(caught.value)


def test_resolved_options_make_the_same_benchmark(tmp_path: Path) -> None:
    one = made(tmp_path, tool_scope="all", method="DFS_woFilter_w2", votes=2)
    again = StableToolBench.from_options(json.loads(json.dumps(one.resolved())))
    assert again.identity() == one.identity()
    for mode in ("native", "react"):
        benchmark = made(tmp_path, mode=mode)
        for entry in benchmark.entries():
            assert all(message["content"] for message in benchmark.prompt(entry))
            assert (benchmark.tools(entry) is None) == (mode == "react")
            assert benchmark.template_probe(entry)
        assert len(pickle.dumps(benchmark)) < 200_000


def test_settings_that_move_a_score_are_in_the_identity(tmp_path: Path) -> None:
    changed: dict[str, Any] = {"method": "CoT@2", "mode": "react", "tool_scope": "all", "votes": 1}
    changed |= {"fac": True, "max_steps": 12, "cache": "read", "apis": ["simulator"]}
    identities = [made(tmp_path, **{key: value}).identity() for key, value in changed.items()]
    urls = [{"service_url": f"https://api.example.org/{path}"} for path in "xy"]
    identities += [made(tmp_path, apis=["real"], real=real).identity() for real in urls]
    identities.append(made(tmp_path).identity())
    # Imported answers of the run's APIs count.
    api = apis_of(made(tmp_path).dataset()[0])[0]
    path = tmp_path / "json" / api.std_category / api.std_tool / f"{api.std_api}.json"
    path.parent.mkdir(parents=True)
    for response in (1, 2):
        path.write_text(json.dumps({"{}": {"error": "", "response": response}}))
        import_answers(tmp_path / "json", tmp_path / "cache")
        identities.append(made(tmp_path).identity())
    assert len({digest(one) for one in identities}) == len(identities) == 13


def test_roles_have_their_own_sampling_and_chats(tmp_path: Path) -> None:
    benchmark = made(tmp_path, apis=["simulator"])
    assert set(benchmark.roles()) == {"judge", "simulator"}
    assert set(made(tmp_path, judge="none").roles()) == set()
    assert benchmark.role_sampling("simulator").max_tokens == 1024
    mirror = {"endpoint": {**ENDPOINT["endpoint"], "model": "x/MirrorAPI-Cache"}}
    assert simulator_sampling(parse_role(mirror, "")).max_tokens == 2048
    assert [m["role"] for m in benchmark.role_chat("simulator")] == ["system", "user"]
    assert [m["role"] for m in benchmark.role_chat("judge")] == ["user"]


def test_an_answer_is_judged(tmp_path: Path) -> None:
    benchmark = made(tmp_path, fac=True)
    entry = benchmark.entries()[0]
    for said, valid in (("Solved", True), ("Unsolved", False)):
        judging = ScriptedModel(json.dumps({"reason": "so", "status": said}))
        episode = played(benchmark, entry, judge=judging)
        # A checker gets benchmark and episode from another process.
        state = json.loads(json.dumps(episode.state))
        found = pickle.loads(pickle.dumps(benchmark)).check(entry, replace(episode, state=state))
        assert {rules: verdict.valid for rules, verdict in found.items()} == dict.fromkeys(
            RULE_SETS, valid
        )
        assert len(judging.asked) == 4, "three votes and one on completeness"
        assert episode.model_calls == 2
        assert episode.prompt_tokens == 20, "the judge's tokens are not the candidate's"
        (call,) = episode.state["calls"]
        assert call["failure"] == "no_backend"


def test_a_judge_without_a_verdict_is_no_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    benchmark = made(tmp_path)
    entry = benchmark.entries()[0]
    with pytest.raises(asking.JudgeError, match="no single verdict"):
        played(benchmark, entry, judge=ScriptedModel("Who knows?"))
    monkeypatch.setattr("ace_ray.benchmarks.stabletoolbench.benchmark.JUDGE_S", 0.1)
    with pytest.raises(asking.JudgeError, match="deadline"):
        played(benchmark, entry, judge=ScriptedModel(hang))


def test_a_repeated_row_is_judged_with_other_seeds(tmp_path: Path) -> None:
    benchmark = made(tmp_path, fac=True)
    asked = []
    for attempt in (1, 1, 2, 3):
        judging = ScriptedModel("Unsolved")
        context = replace(staged(benchmark, calls_once(), judge=judging), attempt=attempt)
        asyncio.run(benchmark.run(benchmark.entries()[0], context))
        asked.append({request.sampling.seed for request in judging.asked})
    assert asked[0] == asked[1]
    assert not (asked[1] & asked[2])
    assert not (asked[2] & asked[3])


def test_fac_is_drawn_as_upstreams_unless_the_config_says_otherwise(tmp_path: Path) -> None:
    own = {"temperature": 0.6, "top_p": 0.9, "max_tokens": 2000, "stop": ["</s>"], "seed": 4}
    default = asking.SAMPLING
    said = Sampling(0.6, top_p=0.9, max_tokens=2000, stop=("</s>",), seed=4)
    for role, given, wanted in (
        ("same", replace(default, max_tokens=64), Sampling(0.0, max_tokens=64)),
        (ENDPOINT, default, asking.FAC_SAMPLING),
        (ENDPOINT | {"sampling": own}, said, said),
    ):
        benchmark, judging = made(tmp_path, fac=True, judge=role), ScriptedModel("Solved")
        roles = {"judge": RoleModel(judging, given, {})}
        context = replace(staged(benchmark, calls_once()), roles=roles)
        asyncio.run(benchmark.run(benchmark.entries()[0], context))
        last = judging.asked[-1].sampling
        assert replace(last, seed=given.seed, schema="") == wanted
        identity = benchmark.identity()["episodes"]["judge"].get("fac_sampling")
        # A sampling of the judge's own is in the identity of the role.
        assert identity == (None if wanted is said else asking.FAC_SAMPLING.as_json())


def test_a_query_that_the_reference_lacks_is_not_won(tmp_path: Path) -> None:
    entries = made(tmp_path).entries()
    details: list[Any] = []
    for _ in range(300):  # too deep for pickle
        details = [{"role": "assistant", "message": "rye", "next": details}]
    given = {"method": "CoT@1", "final_answer": "{}", "answer_details": details}
    path = tmp_path / "reference" / f"{entries[0].category}.json"
    path.parent.mkdir()
    path.write_text(json.dumps({entries[0].id: {"answer": given}}))
    benchmark = made(tmp_path, reference=str(path.parent))
    benchmark = pickle.loads(pickle.dumps(benchmark))
    group = [one for one in entries if one.category == entries[0].category]
    rows = []
    for entry in group:
        episode = played(benchmark, entry, judge=ScriptedModel("Solved"))
        assert (episode.state["sowr"] is None) == (entry is not group[0])
        rows.append(scored_row(entry.category, entry.id, benchmark.check(entry, episode)))
    found = summarize(rows)
    sowr = found["categories"][entries[0].category]["sowr"]
    assert (sowr["missing"], sowr["win"]["n"]) == (len(group) - 1, 1)
    assert any("no SoWR" in note for note in notes(found))


def test_a_second_run_comes_from_the_cache(tmp_path: Path) -> None:
    benchmark = made(tmp_path, apis=["cache", "simulator"], judge="none")
    entry = benchmark.entries()[0]
    simulator = ScriptedModel(json.dumps({"error": "", "response": {"answer": "rye"}}))
    first = played(benchmark, entry, simulator=simulator)
    assert first.state["simulator"]["form"] == "own"
    again = made(tmp_path, apis=["cache", "simulator"], judge="none", cache="read")
    silent = ScriptedModel("nothing")
    second = played(again, entry, simulator=silent)
    assert (len(simulator.asked), len(silent.asked)) == (1, 0)
    assert [call["source"] for call in first.state["calls"]] == ["simulator"]
    assert [call["source"] for call in second.state["calls"]] == ["cache"]
    assert second.messages == first.messages
    assert second.state["answer"] == first.state["answer"]


@pytest.mark.parametrize("own", [False, True])
def test_answers_of_the_candidate_as_simulator_belong_to_its_engine(
    tmp_path: Path, own: bool
) -> None:
    more = {"simulator": ENDPOINT} if own else {}
    benchmark = made(tmp_path, apis=["cache", "simulator"], judge="none", **more)
    entry, simulator = benchmark.entries()[0], ScriptedModel('{"response": 1}')
    context = staged(benchmark, calls_once(), simulator=simulator)
    candidates = ({"revision": "a"}, {"revision": "b"}, {"engine": {"dtype": "float16"}})
    for makers, identity in enumerate(candidates, start=1):
        for _ in range(2):
            again = replace(context, candidate=RoleModel(calls_once(), Sampling(), identity))
            episode = asyncio.run(benchmark.run(entry, again))
            assert len(simulator.asked) == (1 if own else makers)
            assert (identity.items() <= episode.state["simulator"].items()) is not own


def test_missing_tools_are_a_number_in_the_headline(tmp_path: Path) -> None:
    (tmp_path / "tools" / "Food").mkdir(parents=True)
    benchmark = made(tmp_path, tool_folder=str(tmp_path / "tools"))
    rows = [scored_row(entry.category, entry.id, status="skipped") for entry in benchmark.entries()]
    found = benchmark.summarize(rows, 1)
    assert found["rules"]["official"]["sopr"]["n"] == len(rows), "skipped queries count"
    lacking = [line for line in found["warnings"] if "lacks the tool" in line]
    assert len(lacking) == 10
    assert "lacks 10 tools or APIs (see warnings)." in found["comparable"]
    assert lacking[0] not in found["comparable"]


def test_a_broken_cache_is_named_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / FILE).write_text("no database")
    with pytest.raises(UserError, match=FILE):
        made(tmp_path).service()


def test_files_of_a_run_are_written_and_compared_with(tmp_path: Path) -> None:
    benchmark = made(tmp_path)
    rows = []
    judging = ScriptedModel('{"status": "Solved"}')
    for entry in benchmark.entries():
        state = json.dumps(played(benchmark, entry, judge=judging).state)
        row = {"language": "en", "category": entry.category, "id": entry.id, "sample": 0}
        rows.append({**row, "status": "scored", "state": state})
    rows[0] |= {"status": "infra_error", "state": None}
    rows.append(rows[1] | {"sample": 1})
    summary = {"timing": {"wall_s": 3}, "model": {"source": "org/tiny"}}
    files = dict(benchmark.files(lambda: rows, summary))
    result = "results/tools/tiny_all.json"
    assert set(files) == {result, *(f"converted/{group}.json" for group in GROUPS)}
    seed = json.loads(files[result])
    assert seed["summary"]["solved_count"] == len(rows) - 1
    assert seed["metadata"]["config"]["evaluator_model"] == "org/tiny"
    assert seed["summary"]["total_evaluations"] == len(rows) - 1, "all samples"
    assert set(seed["results"][0]["scores"]) == {"sopr_score", "api_call_score"}
    converted = json.loads(files[f"converted/{rows[1]['category']}.json"])
    assert converted[rows[1]["id"]]["available_tools"][-1]["function"]["name"] == "Finish"
    for path, content in files.items():
        place = tmp_path / "run" / "files" / "stabletoolbench" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    compared = made(tmp_path, reference=str(tmp_path / "run"))
    sowr = played(compared, compared.entries()[1], judge=judging).state["sowr"]
    assert sowr["by"] in ("coin", "judge", "status")


def test_calls_that_were_not_read_are_counted(tmp_path: Path) -> None:
    benchmark = made(tmp_path, judge="none")
    fenced = '```json\n{"name": "f", "arguments": {}}\n```'
    called = {"type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": fenced},
        {"role": "assistant", "content": fenced},
        {"role": "assistant", "content": fenced, "tool_calls": [called]},
        {"role": "tool", "content": fenced},
        {"role": "assistant", "content": "I think."},
        {"role": "assistant", "content": fenced},
    ]
    (one, *_) = benchmark.dataset()
    found = second_reading(benchmark, one, Episode(messages=messages))
    assert found == SecondReading("fenced_json", "answer", 2)
    assert second_reading(benchmark, one, Episode(messages=messages[:1])) is None
