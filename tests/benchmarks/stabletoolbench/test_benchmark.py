"""StableToolBench behind the seam: what is asked for and refused, whole episodes without Ray."""

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
from ace_ray.benchmarks.registry import make_benchmark
from ace_ray.benchmarks.stabletoolbench.apis.cache import FILE
from ace_ray.benchmarks.stabletoolbench.apis.json_files import import_answers
from ace_ray.benchmarks.stabletoolbench.benchmark import StableToolBench
from ace_ray.benchmarks.stabletoolbench.judge import asking
from ace_ray.benchmarks.stabletoolbench.names import GROUPS
from ace_ray.benchmarks.stabletoolbench.options import FOLDERS
from ace_ray.benchmarks.stabletoolbench.queries import MINI
from ace_ray.benchmarks.stabletoolbench.summary import summarize
from ace_ray.benchmarks.stabletoolbench.tables import notes
from ace_ray.errors import UserError
from ace_ray.models.roles import parse_role
from ace_ray.types import RULE_SETS, Entry, Episode, Sampling, digest
from tests.benchmarks.scored_row import scored_row
from tests.scripted_model import Request, ScriptedModel, hang

FINISH = ("Finish", {"return_type": "give_answer", "final_answer": "42."})


def calls_once() -> ScriptedModel:
    """Calls its first function once, then finishes."""

    def reply(request: Request) -> Any:
        assert request.tools is not None
        called = request.messages[-1]["role"] == "tool"
        return FINISH if called else (request.tools[0]["function"]["name"], {})

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


def played(benchmark: StableToolBench, entry: Entry, agent: Any, **roles: Any) -> Episode:
    return asyncio.run(benchmark.run(entry, staged(benchmark, agent, **roles)))


def verdicts(benchmark: StableToolBench, entry: Entry, episode: Episode) -> dict[str, bool]:
    """As a checker sees it: benchmark and episode have travelled."""
    travelled: StableToolBench = pickle.loads(pickle.dumps(benchmark))
    state = json.loads(json.dumps(episode.state))
    found = travelled.check(entry, replace(episode, state=state))
    assert set(found) == set(RULE_SETS)
    return {rules: verdict.valid for rules, verdict in found.items()}


def test_all_six_groups(tmp_path: Path) -> None:
    benchmark = make_benchmark("stabletoolbench", {"apis": ["cache"]})
    assert {entry.category for entry in benchmark.entries()} == set(GROUPS)
    assert set(benchmark.roles()) == {"judge"}
    assert set(made(tmp_path, apis=["simulator"], judge="none").roles()) == {"simulator"}


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
    assert len(one.tools(one.dataset()[0]) or ()) > 20


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ({"groups": ["G4"]}, ("no group 'G4'", "G1_tool")),
        ({"data": "/nowhere"}, ("/nowhere",)),
        ({"method": "BFS"}, ("method", "CoT@")),
        ({"method": "CoT@1; x"}, ("method", "CoT@")),
        ({"judge": "none", "fac": True}, ("stabletoolbench.fac", "judge is none")),
        ({"judge": "none", "reference": "/x"}, ("stabletoolbench.reference", "judge is none")),
        ({"max_steps": 999}, ("max_steps", "200")),
        (
            {"apis": ["simulator"], "simulator": {"model": {"source": "x/MirrorAPI"}}},
            ("stabletoolbench.simulator", "stabletoolbench.upstream"),
        ),
        ({"apis": ["cashe"]}, ("no backend 'cashe'", "cache")),
        ({"apis": ["real"]}, ("no service is named", "stabletoolbench.real")),
        ({"real": {"service_url": "x.org"}}, ("real.service_url", "not an http(s) URL")),
        ({"judge": {"url": "x"}}, ("judge", "endpoint")),
        ({"tool_scope": "nearest"}, ("tool_scope",)),
        ({"reference": "/nowhere"}, ("/nowhere", "no answers")),
        ({"upstream": "/nowhere"}, ("/nowhere",)),
        ({"tool_folder": "/nowhere"}, ("/nowhere", "tool directory")),
    ],
)
def test_what_cannot_be_is_one_line(
    tmp_path: Path, options: dict[str, Any], parts: Sequence[str]
) -> None:
    with pytest.raises(UserError) as caught:
        made(tmp_path, **options).entries()
    assert all(part in str(caught.value) for part in parts), str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("key", FOLDERS)
@pytest.mark.parametrize("address", ["s3://me:hidden@b/c"])
def test_an_address_is_no_folder(tmp_path: Path, key: str, address: str) -> None:
    with pytest.raises(UserError) as caught:
        made(tmp_path, **{key: address})
    where = f"benchmarks.stabletoolbench.{key}: {address.partition('://')[0]}:// is no local folder"
    assert str(caught.value).startswith(where)
    assert "hidden" not in str(caught.value)


def test_what_is_resolved_makes_the_same_benchmark(tmp_path: Path) -> None:
    one = made(tmp_path, tool_scope="all", method="DFS_woFilter_w2", votes=2)
    again = StableToolBench.from_options(json.loads(json.dumps(one.resolved())))
    assert again.identity() == one.identity()
    entry = one.entries()[0]
    assert again.prompt(entry) == one.prompt(entry)
    assert again.tools(entry) == one.tools(entry)


@pytest.mark.parametrize(
    "options",
    [
        {"method": "CoT@2"},
        {"mode": "react"},
        {"tool_scope": "all"},
        {"apis": ["simulator"]},
        {"votes": 1},
        {"fac": True},
        {"judge": "none"},
        {"max_steps": 12},
        {"cache": "read"},
    ],
)
def test_what_moves_a_score_is_in_the_identity(tmp_path: Path, options: dict[str, Any]) -> None:
    assert made(tmp_path, **options).identity() != made(tmp_path).identity()


def test_recorded_answers_and_real_apis_are_in_the_identity(tmp_path: Path) -> None:
    found = [made(tmp_path).identity()]
    category, tool, api = json.loads(next(made(tmp_path)._api_keys()))
    path = tmp_path / "json" / category / tool / f"{api}.json"
    path.parent.mkdir(parents=True)
    for response in (1, 2):
        path.write_text(json.dumps({"{}": {"error": "", "response": response}}))
        import_answers(tmp_path / "json", tmp_path / "cache")
        found.append(made(tmp_path).identity())
    assert len({digest(one) for one in found}) == 3
    asked = {"service_url": "https://api.example.org/y"}
    other = {"service_url": "https://api.example.org/x"}
    both = [made(tmp_path, apis=["real"], real=real) for real in (asked, other)]
    assert both[0].identity() != both[1].identity()


def test_roles_are_sent_chats_of_their_shape(tmp_path: Path) -> None:
    endpoint = {"endpoint": {"url": "https://example.org/v1", "model": "x/MirrorAPI-Cache"}}
    plain, mirror = made(tmp_path, apis=["simulator"]), made(tmp_path, apis=["simulator"])
    mirror._roles["simulator"] = parse_role(endpoint, "")  # the option needs a checkout
    assert mirror.role_sampling("simulator").max_tokens == 2048
    assert plain.role_sampling("simulator").max_tokens == 1024
    roles = [message["role"] for message in plain.role_chat("simulator")]
    assert roles == ["system", "user"]
    assert [message["role"] for message in plain.role_chat("judge")] == ["user"]
    episode = played(
        plain,
        plain.entries()[0],
        calls_once(),
        simulator=ScriptedModel('{"response": 1}'),
        judge=ScriptedModel("Solved"),
    )
    assert episode.state["simulator"]["form"] == "own"
    assert episode.state["simulator"]["model"] == "simulator"


def test_an_answer_that_is_judged(tmp_path: Path) -> None:
    benchmark = made(tmp_path, fac=True)
    entry = benchmark.entries()[0]
    for said, official in (("Solved", True), ("Unsolved", False)):
        agent, judging = calls_once(), ScriptedModel(json.dumps({"reason": "so", "status": said}))
        episode = played(benchmark, entry, agent, judge=judging)
        assert verdicts(benchmark, entry, episode) == dict.fromkeys(RULE_SETS, official)
        assert len(judging.asked) == 4, "three votes and one on completeness"
        assert episode.model_calls == len(agent.asked) == 2
        assert episode.prompt_tokens == 20, "the judge's tokens are not the candidate's"
        (call,) = episode.state["calls"]
        assert call["failure"] == "no_backend"


def test_a_judge_that_names_no_verdict_is_no_verdict(tmp_path: Path) -> None:
    benchmark = made(tmp_path)
    with pytest.raises(asking.JudgeError):
        played(benchmark, benchmark.entries()[0], calls_once(), judge=ScriptedModel("Who knows?"))


def test_a_judge_is_asked_with_other_seeds_when_a_row_is_tried_again(tmp_path: Path) -> None:
    benchmark = made(tmp_path, apis=["cache"], fac=True)
    asked = []
    for attempt in (1, 1, 2, 3):
        judging = ScriptedModel("Unsolved")
        context = replace(staged(benchmark, calls_once(), judge=judging), attempt=attempt)
        asyncio.run(benchmark.run(benchmark.entries()[0], context))
        asked.append({request.sampling.seed for request in judging.asked})
    assert asked[0] == asked[1]
    assert not (asked[1] & asked[2])
    assert not (asked[2] & asked[3])


def fac_drawn(benchmark: StableToolBench, given: Sampling) -> Sampling:
    """How the question on completeness is drawn by a judge with this sampling."""
    judging = ScriptedModel("Answer Status: Solved")
    context = staged(benchmark, calls_once())
    context = replace(context, roles={"judge": RoleModel(judging, given, {})})
    asyncio.run(benchmark.run(benchmark.entries()[0], context))
    assert len(judging.asked) == 4
    last = judging.asked[-1].sampling
    assert json.loads(last.schema)["properties"]["answer_status"]["enum"] == ["Solved", "Unsolved"]
    return replace(last, seed=given.seed, schema="")


def test_fac_is_drawn_as_upstreams_unless_the_config_says_otherwise(tmp_path: Path) -> None:
    endpoint = {"endpoint": {"url": "https://example.org/v1", "model": "m"}}
    own = {"temperature": 0.6, "top_p": 0.9, "max_tokens": 2000, "stop": ["</s>"], "seed": 4}
    default = asking.SAMPLING
    said = Sampling(0.6, top_p=0.9, max_tokens=2000, stop=("</s>",), seed=4)
    for role, given, wanted in (
        ("same", default, asking.FAC_SAMPLING),
        ("same", replace(default, max_tokens=64), Sampling(0.0, max_tokens=64)),
        (endpoint, default, asking.FAC_SAMPLING),
        (endpoint | {"sampling": own}, said, said),
    ):
        benchmark = made(tmp_path, apis=["cache"], fac=True, judge=role)
        assert fac_drawn(benchmark, given) == wanted
        identity = benchmark.identity()["episodes"]["judge"].get("fac_sampling")
        # A sampling of the judge's own is in the identity of the role.
        assert identity == (None if wanted is said else asking.FAC_SAMPLING.as_json())
    assert "fac_sampling" not in made(tmp_path).identity()["episodes"]["judge"]


@pytest.mark.parametrize("nodes", [450, 5_000])
def test_a_reference_that_is_nested_too_deeply_is_named(tmp_path: Path, nodes: int) -> None:
    entry = made(tmp_path).entries()[0]
    folder = Path(a_reference(tmp_path, [entry]))
    path = folder / f"{entry.category}.json"
    opened, closed = '[{"role": "assistant", "message": "x", "next": ' * nodes, "}]" * nodes
    answer = f'{{"final_answer": "x", "answer_details": {opened}[]{closed}}}'
    path.write_text(f'{{"{entry.id}": {{"answer": {answer}}}}}')
    with pytest.raises(UserError, match="too deeply") as found:
        made(tmp_path, apis=["cache"], reference=str(folder))
    assert str(path) in str(found.value)


def test_skipped_queries_count_in_what_was_asked_for(tmp_path: Path) -> None:
    entries = made(tmp_path).entries()
    rows = [scored_row(entry.category, entry.id, status="skipped") for entry in entries]
    every = made(tmp_path, apis=["cache"]).summarize(rows, 1)
    assert every["rules"]["official"]["sopr"]["n"] == len(entries)


def test_a_judge_that_hangs_is_no_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ace_ray.benchmarks.stabletoolbench.benchmark.JUDGE_S", 0.1)

    benchmark = made(tmp_path)
    with pytest.raises(asking.JudgeError, match="deadline"):
        played(benchmark, benchmark.entries()[0], calls_once(), judge=ScriptedModel(hang))


def a_reference(tmp_path: Path, entries: Sequence[Entry], nodes: int = 1) -> str:
    """A folder of answers to these entries, with chains of so many nodes."""
    details: list[Any] = []
    for _ in range(nodes):
        details = [{"role": "assistant", "message": "rye", "next": details}]
    final = json.dumps({"return_type": "give_answer", "final_answer": "rye"})
    answer = {"method": "CoT@1", "final_answer": final, "answer_details": details}
    folder = tmp_path / "reference"
    folder.mkdir()
    for group in {entry.category for entry in entries}:
        found = {one.id: {"answer": answer} for one in entries if one.category == group}
        (folder / f"{group}.json").write_text(json.dumps(found))
    return str(folder)


def test_a_reference_with_a_long_chain_travels(tmp_path: Path) -> None:
    entries = made(tmp_path).entries()[:1]
    benchmark = made(tmp_path, apis=["cache"], reference=a_reference(tmp_path, entries, 300))
    travelled = pickle.loads(pickle.dumps(benchmark))
    judging = ScriptedModel("Index: 0\nAnswer Status: Unsolved")
    episode = played(travelled, entries[0], calls_once(), judge=judging)
    assert episode.state["sowr"]["outcome"] in ("win", "lose", "tie")


def test_what_the_reference_did_not_answer_is_not_won(tmp_path: Path) -> None:
    entries = made(tmp_path).entries()
    reference = a_reference(tmp_path, entries[:1])
    benchmark = made(tmp_path, apis=["cache"], reference=reference)
    group = [one for one in entries if one.category == entries[0].category]
    rows = []
    for entry in group:
        episode = played(benchmark, entry, calls_once(), judge=ScriptedModel("Solved"))
        assert (episode.state["sowr"] is None) == (entry is not group[0])
        row = scored_row(entry.category, entry.id, verdicts=benchmark.check(entry, episode))
        rows.append(row)
    found = summarize(rows)
    sowr = found["categories"][entries[0].category]["sowr"]
    assert (sowr["missing"], sowr["win"]["n"]) == (len(group) - 1, 1)
    assert any("no SoWR" in note for note in notes(found))


def test_a_second_run_comes_from_the_cache(tmp_path: Path) -> None:
    benchmark = made(tmp_path, apis=["cache", "simulator"], judge="none")
    entry = benchmark.entries()[0]
    simulator = ScriptedModel(json.dumps({"error": "", "response": {"answer": "rye"}}))
    first = played(benchmark, entry, calls_once(), simulator=simulator)
    again = made(tmp_path, apis=["cache", "simulator"], judge="none", cache="read")
    silent = ScriptedModel("nothing")
    second = played(again, entry, calls_once(), simulator=silent)
    assert (len(simulator.asked), len(silent.asked)) == (1, 0)
    assert [call["source"] for call in first.state["calls"]] == ["simulator"]
    assert [call["source"] for call in second.state["calls"]] == ["cache"]
    assert second.messages == first.messages
    assert second.state["answer"] == first.state["answer"]


def test_answers_of_the_same_simulator_are_those_of_its_engine(tmp_path: Path) -> None:
    benchmark = made(tmp_path, apis=["cache", "simulator"], judge="none")
    entry = benchmark.entries()[0]
    simulator = ScriptedModel('{"response": 1}')
    context = staged(benchmark, calls_once(), simulator=simulator)
    candidates: list[dict[str, Any]] = [
        {"revision": "a"},
        {"revision": "b"},
        {"engine": {"dtype": "float16"}},
    ]
    for makers, identity in enumerate(candidates, start=1):
        for _ in range(2):
            again = replace(context, candidate=RoleModel(calls_once(), Sampling(), identity))
            episode = asyncio.run(benchmark.run(entry, again))
            assert len(simulator.asked) == makers
            assert identity.items() <= episode.state["simulator"].items()


def test_a_simulator_of_its_own_is_the_same_for_every_candidate(tmp_path: Path) -> None:
    served = {"endpoint": {"url": "https://example.org/v1", "model": "m"}}
    benchmark = made(tmp_path, apis=["cache", "simulator"], judge="none", simulator=served)
    entry, simulator = benchmark.entries()[0], ScriptedModel('{"response": 1}')
    context = staged(benchmark, calls_once(), simulator=simulator)
    for dtype in ("float16", "bfloat16"):
        candidate = RoleModel(calls_once(), Sampling(), {"engine": {"dtype": dtype}})
        episode = asyncio.run(benchmark.run(entry, replace(context, candidate=candidate)))
        assert "engine" not in episode.state["simulator"]
    assert len(simulator.asked) == 1


def test_what_a_tool_directory_lacks_is_a_number_in_the_headline(tmp_path: Path) -> None:
    (tmp_path / "tools" / "Food").mkdir(parents=True)
    benchmark = made(tmp_path, apis=["cache"], tool_folder=str(tmp_path / "tools"))
    rows = [scored_row(entry.category, entry.id, status="skipped") for entry in benchmark.entries()]
    found = benchmark.summarize(rows, 1)
    lacking = [line for line in found["warnings"] if "lacks the tool" in line]
    assert len(lacking) == 10
    said = f"the tool directory lacks {len(lacking)} tools or APIs (see warnings)."
    assert said in found["comparable"]
    assert len(found["comparable"]) < 1000
    assert lacking[0] not in found["comparable"]


def test_a_broken_cache_is_named_before_anything_starts(tmp_path: Path) -> None:
    benchmark = made(tmp_path)
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / FILE).write_text("no database")
    with pytest.raises(UserError, match=FILE):
        benchmark.service()


def test_files_for_others(tmp_path: Path) -> None:
    benchmark = made(tmp_path)
    rows = []
    judging = ScriptedModel('{"status": "Solved"}')
    for entry in benchmark.entries():
        episode = played(benchmark, entry, calls_once(), judge=judging)
        row = {"language": "en", "category": entry.category, "id": entry.id, "sample": 0}
        rows.append({**row, "status": "scored", "state": json.dumps(episode.state)})
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

    # And back: another run is compared with these.
    for path, content in files.items():
        place = tmp_path / "run" / "files" / "stabletoolbench" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    compared = made(tmp_path, apis=["cache"], reference=str(tmp_path / "run"))
    entry = compared.entries()[1]
    sowr = played(compared, entry, calls_once(), judge=judging).state["sowr"]
    assert sowr["by"] in ("coin", "judge", "status")


def test_every_entry_has_a_prompt_and_a_template_probe(tmp_path: Path) -> None:
    for mode in ("native", "react"):
        benchmark = made(tmp_path, mode=mode)
        for entry in benchmark.entries():
            assert all(message["content"] for message in benchmark.prompt(entry))
            assert (benchmark.tools(entry) is None) == (mode == "react")
            assert benchmark.template_probe(entry)
        assert len(pickle.dumps(benchmark)) < 200_000
