"""Conversations with tools: what a model sees, what is stored, how they end, and memory."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from ace_ray.benchmarks.bfcl.benchmark import BFCL
from ace_ray.benchmarks.bfcl.check.conversations import check_agentic
from ace_ray.benchmarks.bfcl.data.upstream_package import UpstreamPackage
from ace_ray.benchmarks.bfcl.episode.agentic import prepare_memory
from ace_ray.benchmarks.bfcl.episode.conversation import Embedder, EpisodeSettings
from ace_ray.benchmarks.bfcl.prompts import own_prompts
from ace_ray.benchmarks.bfcl.score.summary import add_metrics
from ace_ray.errors import EpisodeStalled, PromptTooLong
from ace_ray.sandbox.protocol import LocalSession
from ace_ray.types import Episode, digest
from tests.benchmarks.bfcl.synthetic_bfcl import DOCS, bfcl, entry_of
from tests.benchmarks.play import context_of, play, stalled
from tests.scripted_model import Reply, ScriptedModel, hang, say

MINI = bfcl("multi_turn", "memory_kv", "memory_rec_sum")
BASE, MISS_FUNC, KV, SUMMARY = (
    entry_of(MINI, name)
    for name in ("multi_turn_base", "multi_turn_miss_func", "memory_kv", "memory_rec_sum")
)
TALKS = [
    {"id": f"talk-{n}", "question": [[{"role": "user", "content": f"fact {n}"}]] * 2}
    for n in range(3)
]


def test_prompted_model_sees_functions_calls_and_results() -> None:
    text = "[close_day(), total(customer='x')]"
    model = ScriptedModel(text, "fine", "bye")
    episode = play(MINI, BASE, model)
    first, second, third = model.chats
    assert first == own_prompts().messages(BASE.data["question"][0], DOCS["Bakery"])
    ((results,), _) = episode.state["results"]
    tool_messages = [
        {"role": "tool", "name": call, "content": result}
        for call, result in zip(["close_day()", "total(customer='x')"], results, strict=True)
    ]
    assert second == [*first, {"role": "assistant", "content": text}, *tool_messages]
    assert third == [*second, {"role": "assistant", "content": "fine"}, *BASE.data["question"][1]]
    assert [request.tools for request in model.requests] == [None, None, None]
    assert episode.messages == [*third, {"role": "assistant", "content": "bye"}]
    assert episode.state["turns"] == [[text, "fine"], ["bye"]]
    assert (episode.model_calls, episode.prompt_tokens) == (3, 30)
    before, after = BFCL.sandbox_states(episode.state) or ({}, {})
    assert before["Bakery"]["orders"] == BASE.data["initial_config"]["Bakery"]["orders"]
    assert (before["Bakery"]["open"], after["Bakery"]["open"]) == (True, False)
    assert BFCL.sandbox_states({"before": [], "end": {}}) is None
    play(bfcl(results="user"), BASE, model := ScriptedModel(text, "fine"))
    assert model.chats[1][-1] == {"role": "user", "content": repr(tool_messages)}


def test_model_with_tools_sees_numbered_calls_and_their_results() -> None:
    calls = [("get_price", {"item": "roll"}), ("total", {"customer": "x"})]
    model = ScriptedModel(say("", *calls), "fine", ("close_day", {}), ("close_day", "no json"))
    episode = play(bfcl(mode="native"), BASE, model)
    assert model.chats[0] == BASE.data["question"][0]
    assert model.requests[0].tools == own_prompts().tools(DOCS["Bakery"])
    assistant, first, two = model.chats[1][-3:]
    assert assistant["tool_calls"] == [
        {
            "id": f"call0000{n}",
            "type": "function",
            "function": {"name": name, "arguments": arguments},
        }
        for n, (name, arguments) in enumerate(calls)
    ]
    assert [first["content"], two["content"]] == episode.state["results"][0][0]
    assert [first["tool_call_id"], two["tool_call_id"]] == ["call00000", "call00001"]
    assert (first["role"], first["name"]) == ("tool", "get_price")
    # Arguments that are no JSON are no call: the turn is over.
    assert episode.state["turns"][1][1]["calls"] == [["close_day", "no json"]]
    assert len(episode.state["results"][1]) == 1


@pytest.mark.parametrize("native", [False, True])
def test_held_out_functions_come_in_their_turn(native: bool) -> None:
    ((turn, (name,)),) = MISS_FUNC.data["missed_function"].items()
    model = ScriptedModel("?")
    play(bfcl(mode="native") if native else MINI, MISS_FUNC, model)
    new_doc = next(doc for doc in DOCS["Bakery"] if doc["name"] == name)
    text = own_prompts().more_functions(None if native else [new_doc])
    assert model.chats[int(turn)][-1] == {"role": "user", "content": text}
    before, after = (model.requests[number].tools or () for number in (0, int(turn)))
    assert list(after) == [*before, *(own_prompts().tools([new_doc], hints=0) if native else ())]
    assert name not in str([model.chats[0], *before])


@pytest.mark.parametrize(
    ("replies", "turns", "ending"),
    [
        (["[get_price(item='roll')]"], [21], "steps"),
        (["[close_day()]", PromptTooLong("full")], [1], "context"),
        (["[close_day()]", hang], [1], "deadline"),
        (["Sure: [close_day()]", "[]"], [1, 1], ""),
    ],
)
def test_words_steps_context_or_deadline_end_a_conversation(replies, turns, ending) -> None:
    seconds = 0.2 if hang in replies else None
    episode = play(MINI, BASE, ScriptedModel(*replies), seconds=seconds)
    assert [len(turn) for turn in episode.state["turns"]] == turns
    assert episode.state["ended"] == ending
    assert episode.state["end"]["Bakery"]["open"] is (replies[0] != "[close_day()]")


@pytest.mark.parametrize(
    ("replies", "works", "error", "message"),
    [
        (["fine", hang], stalled, EpisodeStalled, "engine"),
        ([hang], None, EpisodeStalled, "candidate"),
        ([PromptTooLong("full")], None, PromptTooLong, "full"),
    ],
    ids=["stalled engine", "silent candidate", "long first prompt"],
)
def test_failures_that_give_no_verdict_close_the_session(
    replies, works, error, message, monkeypatch
) -> None:
    closed: list[LocalSession] = []

    async def close(session: LocalSession) -> None:
        closed.append(session)

    monkeypatch.setattr(LocalSession, "close", close)
    with pytest.raises(error, match=message):
        play(MINI, BASE, ScriptedModel(*replies), seconds=0.5, works=works)
    assert len(closed) == 1


def filled(
    *replies: Reply, works: Any = None, benchmark: BFCL = MINI, embed: Embedder | None = None
) -> tuple[dict[str, Any], Episode]:
    """Fill a memory; conversations that hang end after 0.5 s."""
    entry = KV if embed is None else entry_of(benchmark, "memory_vector")
    seconds = 0.5 if hang in replies else None
    context = context_of(benchmark, entry, ScriptedModel(*replies), seconds=seconds, works=works)
    prepared = prepare_memory(entry, context, EpisodeSettings(own_prompts(), DOCS), TALKS, embed)
    return asyncio.run(prepared), context.episode


def add(key: str) -> str:
    return f"[core_memory_add(key='{key}', value='v')]"


def test_each_conversation_starts_from_the_memory_before() -> None:
    prepared, usage = filled(add("one"), "ok", "ok", "ok", add("two"), "ok")
    assert prepared["snapshot"]["core_memory"] == {"one": "v", "two": "v"}
    assert (usage.model_calls, usage.prompt_tokens, usage.completion_tokens) == (8, 80, 16)
    talks = prepared["conversations"]
    assert [(talk["id"], talk["ended"]) for talk in talks] == [(talk["id"], "") for talk in TALKS]
    first, second, _ = (talk["messages"][0]["content"] for talk in talks)
    functions = own_prompts().system(DOCS["MemoryAPI_kv"])
    assert first == f"{functions}\n\n{own_prompts().memory(KV.data['scenario'], 'kv', '(empty)')}"
    assert "one" in second


def test_question_starts_from_the_snapshot() -> None:
    snapshot = {"core_memory": {"a_key": "kept"}, "archival_memory": {"b_key": "submerged"}}
    text = "[archival_memory_retrieve(key='b_key'), core_memory_add(key='new', value='v')]"
    model = ScriptedModel(text, "ok")
    episode = play(MINI, KV, model, prepared={"snapshot": snapshot})
    system = model.chats[0][0]
    assert system["content"].endswith(f"\n\n{own_prompts().texts.agentic}")
    assert '"a_key": "kept"' in system["content"]
    assert "submerged" not in system["content"]
    assert episode.state["results"][0][0][0] == '{"value": "submerged"}'
    before, end = BFCL.sandbox_states(episode.state) or ({}, {})
    assert before == snapshot == episode.state["memory"]
    assert end["core_memory"] == {"a_key": "kept", "new": "v"}


def test_native_mode_shows_the_memory_beside_the_tools() -> None:
    prepared = {"snapshot": {"memory": "the text"}}
    play(bfcl(mode="native"), SUMMARY, model := ScriptedModel("ok"), prepared=prepared)
    assert model.requests[0].tools == own_prompts().tools(DOCS["MemoryAPI_rec_sum"])
    text = own_prompts().memory(SUMMARY.data["scenario"], "rec_sum", "the text")
    assert model.chats[0][0]["content"] == f"{text}\n\n{own_prompts().texts.agentic}"


@pytest.mark.parametrize(
    ("replies", "endings", "memory"),
    [
        (
            [add("one"), "ok", "ok", add("two"), PromptTooLong("x"), add("three"), "ok"],
            ["", "context", ""],
            {"one": "v", "three": "v"},
        ),
        ([*["[core_memory_list_keys()]"] * 20, add("a"), "ok"], ["steps", "", ""], {"a": "v"}),
        ([add("one"), "ok", "ok", hang], ["", "deadline", "deadline"], {"one": "v"}),
    ],
)
def test_conversation_that_context_or_deadline_cut_writes_nothing(replies, endings, memory) -> None:
    prepared, _ = filled(*replies)
    assert [talk["ended"] for talk in prepared["conversations"]] == endings
    assert prepared["snapshot"].get("core_memory") == memory
    state = play(MINI, KV, ScriptedModel("ok"), prepared=prepared).state
    assert state["memory"] == prepared["snapshot"]
    assert state["memory_sha256"] == digest(prepared["snapshot"])
    assert [talk["ended"] for talk in state["prepared"]] == endings
    cut = {"context", "deadline"} & set(endings)  # upstream keeps what "steps" wrote
    assert state["ended"] == ("preparation" if cut else "")
    verdicts = add_metrics(check_agentic([], ["x"]), ending=state["ended"])
    assert verdicts["official"].metrics == ({"ended_preparation": 1} if cut else {})


def test_stalled_engine_or_silent_model_leaves_no_memory() -> None:
    with pytest.raises(EpisodeStalled):
        filled(hang)
    with pytest.raises(EpisodeStalled):
        filled(add("one"), "ok", "ok", hang, works=stalled)


def test_vector_memory_is_searched_by_the_vectors_of_its_texts(bfcl_copy: UpstreamPackage) -> None:
    vectors = {"cats": [3.0, 0.0], "dogs": [1.0, 1.0], "pet": [0.6, 0.8]}
    embedded_texts: list[str] = []

    async def embed(texts: Sequence[str]) -> list[list[float]]:
        embedded_texts.extend(texts)
        return [vectors[text] for text in texts]

    changes = "core_memory_remove(vec_id=1), core_memory_update(vec_id=2, new_text='cats')"
    search = "core_memory_retrieve(query='pet')"
    endpoint = {"url": "http://e", "model": "m"}
    prepared, _ = filled(
        *("[core_memory_add(text='cats'), core_memory_add(text='dogs')]", "ok", "ok"),
        *(f"[{search}, {changes}, core_memory_clear(), {search}]", "ok"),
        benchmark=bfcl("memory_vector", data=bfcl_copy.name, embedding=endpoint),
        embed=embed,
    )
    assert embedded_texts == ["cats", "dogs", "cats", "dogs", "pet"]
    ranked, *_, emptied = prepared["conversations"][1]["results"][0][0]
    best, second = json.loads(ranked)["result"]
    assert (best["text"], second["text"]) == ("dogs", "cats")
    assert best["similarity_score"] == pytest.approx(1.4 / 2**0.5)
    assert emptied == '{"result": []}'
