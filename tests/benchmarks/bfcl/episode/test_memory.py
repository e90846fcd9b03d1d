"""Memory entries: the conversations that fill a memory, and the questions that start from it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest

from ace_ray.benchmarks.bfcl.benchmark import BFCL
from ace_ray.benchmarks.bfcl.check.conversations import check_agentic
from ace_ray.benchmarks.bfcl.data.loader import function_docs, load
from ace_ray.benchmarks.bfcl.data.upstream_package import UpstreamPackage
from ace_ray.benchmarks.bfcl.episode.conversation import EpisodeSettings
from ace_ray.benchmarks.bfcl.episode.memory import prepare, rollout
from ace_ray.benchmarks.bfcl.prompts import own
from ace_ray.benchmarks.bfcl.score.summary import with_metrics
from ace_ray.benchmarks.bfcl.tools.environment import initial_state_of, open_environment
from ace_ray.benchmarks.bfcl.tools.sources import tool_sources
from ace_ray.benchmarks.context import EpisodeContext, RoleModel
from ace_ray.errors import EpisodeStalled, PromptTooLong
from ace_ray.sandbox.protocol import LocalSession
from ace_ray.types import Episode, Sampling, digest
from tests.benchmarks.bfcl.synthetic_bfcl import COPY, DOCS, SOURCES
from tests.scripted_model import Reply, ScriptedModel, hang

TALKS = [
    {"id": f"talk-{n}", "question": [[{"role": "user", "content": f"fact {n}"}]] * 2}
    for n in range(3)
]
KV, SUMMARY = (load(COPY, [f"memory_{backend}"])[0] for backend in ("kv", "rec_sum"))
SETTINGS = EpisodeSettings(own(), DOCS)


def context_for(model: ScriptedModel, entry: Any = KV, **more: Any) -> EpisodeContext:
    async def opened() -> LocalSession:
        return LocalSession(open_environment(SOURCES, initial_state_of(entry, DOCS)))

    return EpisodeContext(RoleModel(model, Sampling()), open_sandbox=opened, **more)


def filled(*replies: Reply, works: Any = None) -> dict[str, Any]:
    """Hold the conversations; those that hang end after 0.3 s."""

    async def run() -> dict[str, Any]:
        deadline = asyncio.get_running_loop().time() + 0.3 if hang in replies else None
        context = context_for(ScriptedModel(*replies), deadline=deadline, works=works)
        return await prepare(KV, context, SETTINGS, TALKS)

    return asyncio.run(run())


def asked(model: ScriptedModel, prepared: Any) -> Episode:
    return asyncio.run(rollout(KV, context_for(model, prepared=prepared), SETTINGS))


def add(key: str) -> str:
    return f"[core_memory_add(key='{key}', value='v')]"


def test_each_conversation_starts_from_the_memory_before() -> None:
    model = ScriptedModel(add("one"), "ok", "ok", "ok", add("two"), "ok")
    context = context_for(model)
    found = asyncio.run(prepare(KV, context, SETTINGS, TALKS))
    assert found["snapshot"]["core_memory"] == {"one": "v", "two": "v"}
    used = context.episode
    assert (used.model_calls, used.prompt_tokens, used.completion_tokens) == (8, 80, 16)
    talks = found["conversations"]
    assert [talk["id"] for talk in talks] == ["talk-0", "talk-1", "talk-2"]
    assert [talk["ended"] for talk in talks] == [""] * 3
    first, second, _ = (talk["messages"][0]["content"] for talk in talks)
    functions = own().system(DOCS["MemoryAPI_kv"])
    assert first == f"{functions}\n\n{own().memory(KV.data['scenario'], 'kv', '(empty)')}"
    assert "one" in second
    assert json.loads(json.dumps(found)) == found


def test_question_starts_from_the_snapshot() -> None:
    snapshot = {"core_memory": {"a_key": "kept"}, "archival_memory": {"b_key": "submerged"}}
    model = ScriptedModel(
        "[archival_memory_retrieve(key='b_key'), core_memory_add(key='new', value='v')]", "ok"
    )
    episode = asked(model, {"snapshot": snapshot})
    system, *rest = model.chats[0]
    assert system["content"].endswith(f"\n\n{own().texts.agentic}")
    assert '"a_key": "kept"' in system["content"]
    assert "submerged" not in system["content"]
    assert rest == KV.data["question"][0]
    assert episode.state["results"][0][0][0] == '{"value": "submerged"}'
    before, end = BFCL.sandbox_states(episode.state) or ({}, {})
    assert before == snapshot == episode.state["memory"]
    assert end["core_memory"] == {"a_key": "kept", "new": "v"}


def test_native_mode_shows_the_memory_beside_the_tools() -> None:
    model = ScriptedModel("ok")
    context = context_for(model, SUMMARY, prepared={"snapshot": {"memory": "the text"}})
    asyncio.run(rollout(SUMMARY, context, EpisodeSettings(own(), DOCS, native=True)))
    assert model.asked[0].tools == own().tools(DOCS["MemoryAPI_rec_sum"])
    memory = own().memory(SUMMARY.data["scenario"], "rec_sum", "the text")
    assert model.chats[0][0]["content"] == f"{memory}\n\n{own().texts.agentic}"


@pytest.mark.parametrize(
    ("replies", "endings", "memory"),
    [
        (
            [add("one"), "ok", "ok", add("two"), PromptTooLong("x"), add("three"), "ok"],
            ["", "context", ""],
            {"one": "v", "three": "v"},
        ),
        (
            [*["[core_memory_list_keys()]"] * 20, add("late"), "ok"],
            ["steps", "", ""],
            {"late": "v"},
        ),
        ([PromptTooLong("x")], ["context"] * 3, None),
        ([add("one"), "ok", "ok", hang], ["", "deadline", "deadline"], {"one": "v"}),
    ],
)
def test_conversation_that_context_or_deadline_cut_writes_nothing(
    replies: list[Reply], endings: list[str], memory: dict[str, str] | None
) -> None:
    found = filled(*replies)
    assert [talk["ended"] for talk in found["conversations"]] == endings
    assert found["snapshot"].get("core_memory") == memory
    assert asked(ScriptedModel("ok"), found).state["memory"] == found["snapshot"]


def test_stalled_engine_or_silent_model_leaves_no_memory() -> None:
    async def stalled() -> bool:
        return False

    with pytest.raises(EpisodeStalled):
        filled(hang)
    with pytest.raises(EpisodeStalled):
        filled(add("one"), "ok", "ok", hang, works=stalled)


@pytest.mark.parametrize("cut", ["context", "deadline"])
def test_question_tells_that_its_preparation_was_cut(cut: str) -> None:
    before = [{"id": "a", "ended": ""}, {"id": "b", "ended": cut}]
    value = {"snapshot": {"core_memory": {"k": "v"}}, "conversations": before}
    state = asked(ScriptedModel("{'answer': 'x'}"), value).state
    assert state["prepared"] == before
    assert state["memory_sha256"] == digest(value["snapshot"])
    assert state["ended"] == "preparation"
    verdicts = with_metrics(check_agentic([], ["x"]), ended=state["ended"])
    assert verdicts["official"].metrics == {"ended_preparation": 1}
    full = ScriptedModel("[core_memory_list_keys()]", PromptTooLong("x"))
    assert asked(full, value).state["ended"] == "context"
    before[1]["ended"] = "steps"  # upstream keeps what such a conversation wrote
    assert asked(ScriptedModel("{'answer': 'x'}"), value).state["ended"] == ""


def test_vector_memory_asks_for_the_vectors_of_each_text(bfcl_copy: UpstreamPackage) -> None:
    docs, sources = function_docs(bfcl_copy), tool_sources(bfcl_copy)
    entry = load(bfcl_copy, ["memory_vector"])[0]
    wanted: list[str] = []

    async def embed(texts: Sequence[str]) -> list[list[float]]:
        wanted.extend(texts)
        return [[float(len(text)), 1.0] for text in texts]

    async def opened() -> LocalSession:
        return LocalSession(open_environment(sources, initial_state_of(entry, docs)))

    model = ScriptedModel(
        *("[core_memory_add(text='cats')]", "ok", "ok", "[core_memory_retrieve(query='pet')]", "ok")
    )
    context = EpisodeContext(RoleModel(model, Sampling()), open_sandbox=opened)
    settings = EpisodeSettings(own(), docs)
    found = asyncio.run(prepare(entry, context, settings, TALKS[:2], embed=embed))
    assert list(found["snapshot"]["core_memory"]["store"].values()) == ["cats"]
    assert wanted == ["cats", "cats", "pet"]
    results = found["conversations"][1]["results"][0][0]
    assert json.loads(results[0])["result"][0]["text"] == "cats"
