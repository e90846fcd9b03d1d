"""banking_knowledge and the rewards of 1.0.1: inspect-evals' copy, and a checkout of 1.0.1."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ace_ray.benchmarks.context import RoleModel
from ace_ray.benchmarks.tau2.benchmark import Tau2
from ace_ray.benchmarks.tau2.environment.banking import Search
from ace_ray.benchmarks.tau2.judge import JUDGE_SAMPLING, ask_judge, read_answers
from ace_ray.benchmarks.tau2.options import INSPECT, NVIDIA, OTHER_BANKING, SIERRA
from ace_ray.benchmarks.tau2.tasks import call_messages, gold_episode, silent_episode
from ace_ray.benchmarks.tau2.upstream_package import PromptTexts
from ace_ray.benchmarks.tau2.verdicts import NL_MET, nl_assertions
from ace_ray.errors import UserError
from ace_ray.types import RULE_SETS, Entry, Episode, Verdict
from tests.benchmarks.play import play
from tests.benchmarks.scored_row import scored_row
from tests.benchmarks.tau2.scripted import build, entry_of
from tests.scripted_model import ScriptedModel

DISPUTE = "submit_cash_back_dispute_0589"
# A write that no gold path makes, by domain.
FOREIGN_WRITES: Mapping[str, tuple[str, dict[str, Any]]] = {
    "airline": ("send_certificate", {"user_id": "mia_li_3668", "amount": 1}),
    "retail": (
        "modify_user_address",
        {"user_id": "yusuf_rossi_9620", "address1": "1", "address2": "", "city": "x"}
        | {"state": "x", "country": "x", "zip": "1"},
    ),
    "banking_knowledge": ("change_user_email", {"user_id": "6680a37184", "new_email": "x@x.xx"}),
}


def banking(data: str, **options: Any) -> Tau2:
    name = OTHER_BANKING if "inspect_evals" in data else "banking_knowledge"
    benchmark = build(data=data, domains=[name], **options)
    benchmark.ready(named=True)
    return benchmark


@pytest.fixture(scope="module")
def inspect_copy(inspect_folder: str) -> Tau2:
    return banking(inspect_folder)


def call(environment: Any, name: str, side: str = "assistant", **arguments: Any) -> str:
    request = {"requestor": side, "arguments": arguments, "last": True}
    return str(environment.call(name, request).value)


def judged(entry: Entry, episode: Episode) -> Episode:
    """Return an episode whose assertions in natural language a judge has affirmed."""
    met = [True] * len(nl_assertions(entry))
    return replace(episode, state={**episode.state, NL_MET: met})


def test_a_copy_of_another_revision_is_named(inspect_copy: Tau2, inspect_folder: str) -> None:
    assert "not 1.0.1" in INSPECT
    assert inspect_copy.identity()["version"] == inspect_copy.identity()["rewards"] == INSPECT
    assert len(inspect_copy.dataset()) == 97
    row = scored_row(OTHER_BANKING, "task_001", dict.fromkeys(RULE_SETS, Verdict(True)))
    summary = inspect_copy.summarize([row], 0.0)
    assert all(INSPECT in t["title"] for t in (summary["table"], *summary["further_tables"]))
    assert "not comparable" in summary["comparable"]
    with pytest.raises(UserError, match=rf"has no banking_knowledge, .* name data of {SIERRA}"):
        build(data=inspect_folder, domains=["banking_knowledge"])
    with pytest.raises(UserError, match=rf"{NVIDIA} has no banking_knowledge"):
        build(domains=["banking_knowledge"])


@pytest.mark.parametrize(
    ("knowledge", "tools", "policy"),
    [
        ("no_knowledge", [], "Rho-Bank Customer Service Policy"),
        ("full_kb", [], "<knowledge_base>"),
        ("grep", ["grep"], "`grep` tool"),
    ],
)
def test_knowledge(inspect_folder, knowledge, tools, policy) -> None:
    benchmark = banking(inspect_folder, knowledge=knowledge)
    entry = benchmark.dataset()[0]
    names = [tool["function"]["name"] for tool in benchmark.tools(entry) or ()]
    assert names[14:] == tools
    system = benchmark.prompt(entry)[0]["content"]
    assert policy in system
    assert (len(system) > 800_000) == (knowledge == "full_kb")
    assert ("grep" in benchmark.shorter_prompts(0, 4.0)) == (knowledge == "full_kb")
    assert benchmark.identity()["protocol"]["knowledge"] == knowledge


@pytest.mark.parametrize("knowledge", ["alltools", "openai_embeddings", "bm25"])
def test_knowledge_that_is_not_offered(inspect_folder: str, knowledge: str) -> None:
    with pytest.raises(UserError, match=f"'{knowledge}' is not offered: no embeddings.*grep"):
        banking(inspect_folder, knowledge=knowledge)


def test_tools_are_found_unlocked_and_handed_over(inspect_copy: Tau2) -> None:
    environment = inspect_copy.scenario(inspect_copy.dataset()[0])
    document = call(environment, "grep", pattern="submit_cash_back_dispute")
    assert DISPUTE in document
    assert document.startswith("1. ")
    slow = r"((\w+\s*)+)+\$\$"  # takes exponential time
    assert "more than 1 s" in call(environment, "grep", pattern=slow)
    hidden = {"agent_tool_name": "get_user_dispute_history_7291"}
    reads = {**hidden, "arguments": '{"user_id": "0f9a8c7b6d"}'}
    assert "has not been unlocked" in call(environment, "call_discoverable_agent_tool", **reads)
    assert "Tool unlocked" in call(environment, "unlock_discoverable_agent_tool", **hidden)
    assert "dispute" in call(environment, "call_discoverable_agent_tool", **reads)
    mine = {"user_id": "0f9a8c7b6d", "transaction_id": "txn_x"}
    given = {"discoverable_tool_name": DISPUTE, "arguments": json.dumps(mine)}
    asks = (environment, "call_discoverable_user_tool", "user")
    assert "has not been given" in call(*asks, **given)
    assert "Tool given" in call(environment, "give_discoverable_user_tool", **given)
    assert "Dispute ID" in call(*asks, **given)
    assert "not found" in call(environment, hidden["agent_tool_name"], user_id="x")
    _, after = environment.state()
    assert list(after) == ["assistant"], "both sides share a database"
    assert any("SUBMITTED" in json.dumps(table) for table in after["assistant"].values())


def test_an_episode_with_the_tools_that_the_task_names(inspect_copy: Tau2) -> None:
    entry = entry_of(inspect_copy, OTHER_BANKING, "task_001")
    actions = [(a["name"], a["arguments"]) for a in entry.gold["actions"]]
    user = ScriptedModel("I want a card.", *actions, "###STOP###")
    episode = play(inspect_copy, entry, ScriptedModel("Take the best one."), user)
    assert episode.state["ended"] == "user_stop"
    names = [tool["function"]["name"] for tool in user.requests[0].tools or ()]
    assert names == entry.data["user_tools"] == ["apply_for_credit_card"]
    assert {v.valid for v in inspect_copy.verdicts(entry, episode).values()} == {True}


def test_calls_that_change_nothing_are_not_replayed(inspect_copy: Tau2) -> None:
    entry = entry_of(inspect_copy, OTHER_BANKING, "task_001")
    episode = gold_episode(inspect_copy.scenario(entry), entry)
    odd = [
        {"role": "assistant", "content": "", "tool_calls": [{"id": "z", "name": "z"}]},
        {"role": "tool", "id": "z", "requestor": "assistant", "content": "?", "error": True},
    ]
    odd[0]["tool_calls"][0]["arguments"] = "{}"  # type: ignore[index]
    trajectory = [*odd, *episode.state["trajectory"]]
    verdicts = inspect_copy.verdicts(
        entry, Episode(state={**episode.state, "trajectory": trajectory})
    )
    assert verdicts["official"].valid


@pytest.mark.parametrize(
    ("reply", "answers"),
    [
        ('x {"results": [{"metExpectation": true}, {"metExpectation": false}]} y', [True, False]),
        ('{"results": [{"metExpectation": true}]}', None),
        ('{"results": [{"metExpectation": 1}, {"metExpectation": true}]}', None),
        ('{"results": {"a": {}}}', None),
        ("yes", None),
        ('{"a":' * 300 + "1" + "}" * 300, None),
    ],
    ids=["both", "too few", "a number", "no list", "no JSON", "deep"],
)
def test_a_judges_reply(reply: str, answers: Any) -> None:
    assert read_answers(reply, 2) == answers


def test_assertions_need_a_judge(inspect_copy: Tau2) -> None:
    entry = entry_of(inspect_copy, OTHER_BANKING, "task_001")
    basis = {"nl_assertions": ["A.", "B."], "reward_basis": ["DB", "NL_ASSERTION"]}
    entry = replace(entry, id="made up", gold={**entry.gold, **basis})
    episode = gold_episode(inspect_copy.scenario(entry), entry)
    verdict = inspect_copy.verdicts(entry, episode)["official"]
    assert (verdict.valid, verdict.error_type) == (None, "not_judged")
    reply = '{"results": [{"metExpectation": true}, {"metExpectation": %s}]}'
    unused = ("", "", "", "", "", "", "", "")
    texts = PromptTexts(*unused, "Judge.", "{trajectory_str} {nl_assertions}")
    for second in ("true", "false"):
        model = ScriptedModel("?", reply % second)
        judge = RoleModel(model, JUDGE_SAMPLING)
        episode.state[NL_MET] = asyncio.run(ask_judge(judge, texts, entry, episode.state))
        assert "['A.', 'B.']" in model.chats[0][1]["content"]
        verdict = inspect_copy.verdicts(entry, episode)["official"]
        assert verdict.valid == (second == "true")
        assert verdict.metrics["nl_assertion"] == (second == "true")


def test_the_share_of_tasks_that_pass_by_doing_nothing(inspect_copy: Tau2) -> None:
    rows = []
    for entry in inspect_copy.dataset()[:30]:
        verdicts = inspect_copy.verdicts(entry, silent_episode(entry))
        assert verdicts["official"].metrics["inaction"] == verdicts["official"].valid
        rows.append(scored_row(entry.category, entry.id, verdicts))
    summary = inspect_copy.summarize(rows, 0.0)
    passed = sum(row.verdicts["official"].valid is True for row in rows)
    assert summary["inaction"] == {OTHER_BANKING: [passed, 30]}
    assert f"{OTHER_BANKING} {passed} of 30 tasks" in summary["floor"]


def test_bm25_ranks_as_the_library() -> None:
    rank_bm25 = pytest.importorskip("rank_bm25")
    contents = ["a card is lost", "a card a card", "the fee", "lost and found"]
    documents = [{"id": f"d{n}", "title": "T", "content": c} for n, c in enumerate(contents)]
    scores = rank_bm25.BM25Okapi([c.split() for c in contents]).get_scores(["lost", "card"])
    results = Search("bm25", documents).retrieve("Lost CARD", return_timing=True).results
    assert dict(results) == {f"d{n}": score for n, score in enumerate(scores)}
    assert results[0][1] == max(scores)
    assert Search("bm25", documents).retrieve(" ") == []
    assert Search("grep", documents).retrieve("A CARD") == [("d1", 2.0), ("d0", 1.0)]
    assert Search("grep", documents).retrieve("(") == []


def check_paths(benchmark: Tau2, domain: str, entry: Entry) -> None:
    """Check that the gold path has reward 1 without a failed call, and a mangled one has not."""
    gold = judged(entry, gold_episode(benchmark.scenario(entry), entry))
    assert all(verdict.valid for verdict in benchmark.verdicts(entry, gold).values()), entry.id
    mangled = judged(entry, silent_episode(entry))
    if benchmark.verdicts(entry, mangled)["official"].valid:
        name, arguments = FOREIGN_WRITES[domain]
        write = [*call_messages(benchmark.scenario(entry), "assistant", "w", name, arguments)]
        assert not write[1]["content"].startswith("Error"), write
        trajectory = [*write, *mangled.state["trajectory"]]
        mangled = Episode(state={**mangled.state, "trajectory": trajectory})
    verdicts = benchmark.verdicts(entry, mangled)
    assert not any(verdict.valid for verdict in verdicts.values()), entry.id


@pytest.mark.nightly
def test_gold_and_mangled_paths_of_inspect_evals(inspect_copy: Tau2) -> None:
    for entry in inspect_copy.dataset():
        check_paths(inspect_copy, "banking_knowledge", entry)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "name", ["airline", "retail", "telecom", "telecom_solo", "banking_knowledge"]
)
def test_gold_and_mangled_paths_of_1_0_1(checkout: str, name: str) -> None:
    benchmark = build(data=checkout, domains=[name])
    benchmark.ready(named=True)
    assert benchmark._package.has_official_data()
    for entry in benchmark.dataset():
        check_paths(benchmark, name, entry)


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["airline", "retail", "telecom", "telecom_solo"])
def test_gold_and_mangled_paths_of_26_3(package: object, name: str) -> None:
    benchmark = build(domains=[name])
    for entry in benchmark.dataset():
        check_paths(benchmark, name, entry)


def test_a_checkout(checkout: str, tmp_path: Path) -> None:
    benchmark = banking(checkout, knowledge="bm25_grep")
    assert benchmark.identity()["version"] == benchmark.identity()["rewards"] == SIERRA
    entry = benchmark.dataset()[0]
    names = [tool["function"]["name"] for tool in benchmark.tools(entry) or ()]
    assert {"KB_search", "grep"} <= set(names)
    environment = benchmark.scenario(entry)
    assert "Score" in call(environment, "KB_search", query="lost card")
    other = tmp_path / "src" / "tau2"
    other.mkdir(parents=True)
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "0.2.0"\n')
    with pytest.raises(UserError, match=r"is 0\.2\.0 of tau2-bench, not 1\.0\.1"):
        banking(str(tmp_path))
