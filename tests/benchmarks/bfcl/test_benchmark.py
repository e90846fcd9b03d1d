"""BFCL as a benchmark: options, identity, and whole episodes without Ray."""

import asyncio
import itertools
import json
import pickle
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from ace_ray.benchmarks.bfcl import categories as groups
from ace_ray.benchmarks.bfcl.benchmark import BFCL
from ace_ray.benchmarks.bfcl.data.upstream_package import TOOL_FOLDER
from ace_ray.benchmarks.bfcl.decode.calls import Answer
from ace_ray.benchmarks.bfcl.functions import tool_name
from ace_ray.benchmarks.bfcl.gold import gold_calls, gold_text
from ace_ray.benchmarks.dataset import data_hash
from ace_ray.benchmarks.diagnosis import second_reader
from ace_ray.errors import PromptTooLong, UserError
from ace_ray.types import RULE_SETS, Completion, Entry, Episode, ToolAnswer
from tests.benchmarks.bfcl.synthetic_bfcl import bfcl, entry_of
from tests.benchmarks.play import context_of, play
from tests.scripted_model import Reply, ScriptedModel

NOT_RUN = {"memory_vector", *groups.WEB_SEARCH}
ENDPOINT = {"url": "http://e", "model": "m"}
RIGHT = dict.fromkeys(RULE_SETS, (True, ""))
FAILED = (False, "ast_decoder:decoder_failed")


def web(fetch: str) -> dict[str, Any]:
    return {"search": {"url": "http://s"}, "fetch": {"url": fetch}}


def verdicts(
    benchmark: BFCL, entry: Entry, *replies: Reply, **more: Any
) -> dict[str, tuple[bool | None, str]]:
    """Play an episode and check it as a checker does: benchmark and state have travelled."""
    episode = play(benchmark, entry, ScriptedModel(*replies), **more)
    travelled: BFCL = pickle.loads(pickle.dumps(benchmark))
    state = None if episode.state is None else json.loads(json.dumps(episode.state))
    outcome = travelled.check(entry, replace(episode, state=state))
    return {rules: (verdict.valid, verdict.error_type) for rules, verdict in outcome.items()}


def test_all_categories_that_can_run_are_run_and_the_others_named() -> None:
    benchmark = bfcl()
    assert {entry.category for entry in benchmark.entries()} == set(groups.SCORING) - NOT_RUN
    summary = benchmark.summarize([], 0.0)
    assert set(summary["not_run"]) == NOT_RUN
    assert "memory_vector was not run: no embedding endpoint" in summary["comparable"]
    assert bfcl("non_live").summarize([], 0.0)["not_run"] == {}


@pytest.mark.parametrize(
    ("category", "options", "message"),
    [
        ("memory_vector", {}, "no embedding endpoint"),
        ("ruby", {}, "no category or group 'ruby'.*simple_python"),
        ("format_sensitivity", {"mode": "native"}, "formats need prompt mode"),
        ("all", {"contamination": True, "mode": "native"}, "contamination.*mode: prompt"),
        ("memory_vector", {"embedding": ENDPOINT}, "mini set has no tool class MemoryAPI_vector"),
        ("all", {"embedding": {**ENDPOINT, "api_key_env": "NO_KEY"}}, "NO_KEY is not set"),
    ],
    ids=["no endpoint", "category", "native formats", "native contamination", "class", "no key"],
)
def test_options_that_cannot_be_are_refused(category, options, message) -> None:
    with pytest.raises(UserError, match=message) as caught:
        bfcl(category, **options).ready(named=True)
    assert "\n" not in str(caught.value)


def test_resolved_options_make_the_same_benchmark_and_scores_have_an_identity() -> None:
    identities = []
    for options in (
        {},
        {"mode": "native"},
        {"system": "user"},
        {"contamination": True},
        {"categories": ["multiple"]},
        {"web_search": web("http://a"), "categories": ["web_search"]},
        {"embedding": ENDPOINT, "categories": ["multi_turn"]},
        {"embedding": {**ENDPOINT, "model": "two"}, "categories": ["multi_turn"]},
    ):
        benchmark = bfcl(**options)
        again = bfcl(**json.loads(json.dumps(benchmark.resolved())))
        assert again.identity() == benchmark.identity()
        assert data_hash(again.dataset()) == data_hash(benchmark.dataset())
        assert len(pickle.dumps(benchmark)) < 200_000, "entries travel by themselves"
        identities.append(json.dumps(benchmark.identity(), sort_keys=True))
    assert len(set(identities)) == len(identities)


def test_native_calls_are_offered_stored_and_judged() -> None:
    benchmark = bfcl("multiple", mode="native")
    entry = entry_of(benchmark, "multiple")
    (call,) = gold_calls(entry.gold, entry.data["function"])
    model = ScriptedModel((tool_name(call.name), call.args))
    play(benchmark, entry, model)
    assert [tool["function"]["name"] for tool in model.requests[0].tools or ()] == [
        tool_name(function["name"]) for function in entry.data["function"]
    ]
    assert verdicts(benchmark, entry, *model.replies) == RIGHT
    assert verdicts(benchmark, entry, (tool_name(call.name), "{"))["official"] == FAILED


def test_form_of_format_sensitivity_decides_how_an_answer_is_read() -> None:
    benchmark = bfcl("format_sensitivity")
    form = "ret_fmt=json&tool_call_tag=True"
    entry = next(e for e in benchmark.entries() if form in e.id and len(e.gold) == 1)
    (call,) = gold_calls(entry.gold, entry.data["function"])
    answer = json.dumps([{"function": call.name, "parameters": call.args}])
    assert verdicts(benchmark, entry, f"<TOOLCALL>{answer}</TOOLCALL>") == RIGHT
    assert verdicts(benchmark, entry, answer)["official"] == FAILED


def test_contamination_asks_the_engine_for_the_probability_of_the_gold_calls() -> None:
    benchmark = bfcl("multiple", "simple_java", contamination=True)
    requests = []

    async def token_logprobs(messages: Sequence[Mapping[str, Any]], text: str) -> list[float]:
        requests.append((list(messages), text))
        return [-1.0, -3.0]

    async def too_long(*_: Any) -> list[float]:
        raise PromptTooLong("no room for the gold calls")

    entry = entry_of(benchmark, "multiple")
    right = gold_text(entry.gold, entry.data["function"])
    episode = play(benchmark, entry, ScriptedModel("[]"), token_logprobs=token_logprobs)
    assert requests == [(benchmark.prompt(entry), right)]
    metrics = benchmark.check(entry, episode)["strict"].metrics
    assert metrics == {"gold_token_probability": pytest.approx(0.1353352832366127)}
    play(benchmark, java := entry_of(benchmark, "simple_java"), ScriptedModel("[]"))
    assert "Java" in benchmark.prompt(java)[0]["content"]
    assert len(requests) == 1, "Java has no gold text of its own"
    assert verdicts(benchmark, entry, right, token_logprobs=too_long) == RIGHT


def test_multi_turn_entry_played_by_its_key_is_right() -> None:
    benchmark = bfcl("multi_turn")
    entry = entry_of(benchmark, "multi_turn_miss_func")
    answers = []
    for turn in entry.gold:
        answers += [f"[{', '.join(turn)}]", "Done."] if turn else ["I have no function for it."]
    assert verdicts(benchmark, entry, *answers) == RIGHT
    episode = play(benchmark, entry, ScriptedModel(*answers))
    metrics = benchmark.check(entry, episode)["official"].metrics
    assert metrics["turns_passed"] == 1 == metrics["ended_finished"]


def test_memory_is_filled_once_and_asked_from_a_copy() -> None:
    benchmark = bfcl("memory_kv")
    questions = [e for e in benchmark.entries() if e.data["scenario"] == "student"]
    assert {benchmark.preparation(entry) for entry in questions} == {"memory_kv/student"}
    text = "[core_memory_add(key='hardest', value='statistics')]"
    context = context_of(benchmark, questions[0], ScriptedModel(text, "Noted."))
    prepared = asyncio.run(benchmark.prepare(questions[0], context))
    entry = next(e for e in questions if e.gold["ground_truth"] == ["statistics"])
    for answer, valid in (("Statistics, surely.", True), ("Botany.", False)):
        reader = ScriptedModel("[core_memory_clear()]", answer)
        outcome = verdicts(benchmark, entry, *reader.replies, prepared=prepared)
        assert outcome["official"][0] is valid
        play(benchmark, entry, reader, prepared=prepared)
        assert "statistics" in reader.chats[0][0]["content"], "no other question cleared it"


def test_messages_for_templates_without_system() -> None:
    benchmark = bfcl("multiple", "multi_turn_base", system="user", results="user")
    for category in ("multiple", "multi_turn_base"):
        model = ScriptedModel("[list_orders()]", "Done.", "Done.")
        entry = entry_of(benchmark, category)
        play(benchmark, entry, model)
        roles = [message["role"] for message in model.chats[-1]]
        assert set(roles) <= {"user", "assistant"}
        assert all(first_role != two for first_role, two in itertools.pairwise(roles))
        assert {m["role"] for m in benchmark.template_probe(entry)} == {"user", "assistant"}


def test_gold_answers_of_the_mini_set(capsys: pytest.CaptureFixture[str]) -> None:
    assert BFCL.check_data("mini"), capsys.readouterr().out
    benchmark = bfcl("multiple")
    gold: Any = benchmark.gold(entry := entry_of(benchmark, "multiple"))
    kinds = {verdict.error_type for verdict in benchmark.verdicts(entry, gold.mangled).values()}
    assert kinds == {"value_error:string"}, "wrong values, not fewer calls"


def test_real_copy_is_comparable_and_an_altered_one_is_not(bfcl_copy, tmp_path) -> None:
    benchmark = bfcl("live_parallel", "memory_rec_sum", "sql", "rest", data=bfcl_copy.name)
    assert benchmark.identity()["prompts"] == "official"
    note = benchmark.summarize([], 0.0)["comparable"]
    assert "comparable per category with bfcl-eval's prompt-mode models, except sql, rest" in note
    shutil.copytree(bfcl_copy.root, tmp_path / "bfcl_eval")
    for name in ("constants/default_prompts.py", f"{TOOL_FOLDER}/math_api.py"):
        path = tmp_path / "bfcl_eval" / name
        altered = path.read_text().replace("expert in composing", "expert at composing")
        path.write_text(altered + "# altered\n")
    services = {"embedding": ENDPOINT, "web_search": web("http://f")}
    note = bfcl("agentic", data=str(tmp_path), results="user", **services).summarize([], 0.0)[
        "comparable"
    ]
    for phrase in (
        *("the tools are not", "the prompts are not", "memory_vector uses another embedding"),
        *("messages have other roles than", "the web was searched on another day"),
    ):
        assert phrase in note


CALL = '```json\n{"name": "f", "arguments": {}}\n```'


def unread(mode: str, category: str, text: str, **state: Any) -> tuple[bool | None, Any]:
    """Tell whether an answer without a call is right, and what a second reading finds in it."""
    benchmark = bfcl(mode=mode)
    episode = Episode(messages=[{"role": "user", "content": "q"}])
    episode.record(Completion(text, tools=ToolAnswer(text) if mode == "native" else None))
    if state or mode == "native":
        episode.state = {"turns": [[Answer(text, ()).as_json()]], "ended": "", **state}
    entry = entry_of(benchmark, category)
    valid = benchmark.verdicts(entry, episode)["official"].valid
    return valid, second_reader(benchmark, entry, episode)


def test_calls_that_were_not_read_are_found() -> None:
    fenced = "fenced_json"
    for mode in ("native", "prompt"):
        assert unread(mode, "simple_python", CALL) == (False, fenced)
        assert unread(mode, "irrelevance", CALL) == (True, fenced)
        read: Any = "[ls()]" if mode == "prompt" else {"content": CALL, "calls": [["ls", "{}"]]}
        lost = CALL if mode == "prompt" else {"content": CALL, "calls": []}
        _, reader = unread(mode, "multi_turn_base", "", turns=[[read], [lost], [lost]])
        assert reader == "fenced_json"
    # Answers that were read or failed are not read again.
    assert unread("prompt", "simple_python", '[f(x="```json {}```")]') == (False, None)
    assert unread("native", "simple_python", CALL, ended="inference") == (False, None)
