"""Memory entries: the conversations that fill a memory, and the questions that start from it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest
from ace_ray.benchmarks.bfcl.episode.memory import prepare, rollout

from ace_ray.benchmarks.bfcl.benchmark import BFCL
from ace_ray.benchmarks.bfcl.check.conversations import check_agentic
from ace_ray.benchmarks.bfcl.data.loader import function_docs, load, prerequisites
from ace_ray.benchmarks.bfcl.data.upstream_package import UpstreamPackage
from ace_ray.benchmarks.bfcl.episode.conversation import EpisodeSettings
from ace_ray.benchmarks.bfcl.prompts import own
from ace_ray.benchmarks.bfcl.score.summary import with_metrics
from ace_ray.benchmarks.bfcl.tools.environment import initial_state_of, open_environment
from ace_ray.benchmarks.bfcl.tools.sources import tool_sources
from ace_ray.benchmarks.context import EpisodeContext, RoleModel
from ace_ray.errors import EpisodeStalled, PromptTooLong
from ace_ray.sandbox.protocol import LocalSession
from ace_ray.types import Entry, Episode, Sampling, digest
from tests.benchmarks.bfcl.mini_set import COPY, DOCS, SOURCES
from tests.scripted_model import Reply, ScriptedModel, hang

TALKS = [
    {"id": f"talk-{n}", "question": [[{"role": "user", "content": f"fact {n}"}]] * 2}
    for n in range(3)
]


def entry_of(backend: str = "kv") -> Entry:
    return load(COPY, [f"memory_{backend}"])[0]


def context_for(
    entry: Entry, model: ScriptedModel, sources: Any = SOURCES, docs: Any = DOCS, **more: Any
) -> EpisodeContext:
    async def opened() -> LocalSession:
        return LocalSession(open_environment(sources, initial_state_of(entry, docs)))

    return EpisodeContext(RoleModel(model, Sampling()), open_sandbox=opened, **more)


def filled(
    entry: Entry, model: ScriptedModel, talks: Any = TALKS, **options: Any
) -> dict[str, Any]:
    context = context_for(entry, model)
    return asyncio.run(prepare(entry, context, EpisodeSettings(own(), DOCS), talks, **options))


def asked(entry: Entry, model: ScriptedModel, snapshot: Any) -> Episode:
    context = context_for(entry, model, prepared={"snapshot": snapshot})
    return asyncio.run(rollout(entry, context, EpisodeSettings(own(), DOCS)))


def add(key: str) -> str:
    return f"[core_memory_add(key='{key}', value='v')]"


def test_each_conversation_starts_from_the_memory_before() -> None:
    model = ScriptedModel(add("one"), "ok", "ok", "ok", add("two"), "ok")
    context = context_for(entry_of(), model)
    found = asyncio.run(prepare(entry_of(), context, EpisodeSettings(own(), DOCS), TALKS))
    assert found["snapshot"]["core_memory"] == {"one": "v", "two": "v"}
    used = context.episode
    assert used.model_calls == 8
    assert (used.prompt_tokens, used.completion_tokens) == (80, 16)
    talks = found["conversations"]
    assert [talk["id"] for talk in talks] == ["talk-0", "talk-1", "talk-2"]
    assert [talk["ended"] for talk in talks] == [""] * 3
    systems = [talk["messages"][0]["content"] for talk in talks]
    assert "one" in systems[1]
    assert own().texts.agentic not in systems[0]
    assert json.loads(json.dumps(found)) == found


def test_the_system_prompt_shows_functions_then_memory() -> None:
    entry = entry_of()
    model = ScriptedModel("ok")
    filled(entry, model, TALKS[:1])
    system = model.chats[0][0]["content"]
    functions = own().system(DOCS["MemoryAPI_kv"])
    memory = own().memory(entry.data["scenario"], "kv", "(empty)")
    assert system == f"{functions}\n\n{memory}"


def test_a_question_starts_from_the_snapshot() -> None:
    entry = entry_of()
    snapshot = {"core_memory": {"a_key": "kept"}, "archival_memory": {"b_key": "deep"}}
    model = ScriptedModel("[archival_memory_retrieve(key='b_key')]", "{'answer': 'deep'}")
    episode = asked(entry, model, snapshot)
    system, *rest = model.chats[0]
    assert system["content"].endswith(f"\n\n{own().texts.agentic}")
    assert '"a_key": "kept"' in system["content"]
    assert rest == entry.data["question"][0]
    assert episode.state["results"] == [[['{"value": "deep"}']]]
    assert episode.state["memory"] == snapshot
    assert len(episode.state["turns"]) == 1
    assert BFCL.sandbox_states(episode.state) == (snapshot, snapshot)
    kept = asked(entry, ScriptedModel(add("new"), "ok"), snapshot)
    assert kept.state["memory"] == snapshot
    assert kept.state["memory_end"]["core_memory"] == {"a_key": "kept", "new": "v"}


def test_native_mode() -> None:
    entry = entry_of("rec_sum")
    model = ScriptedModel("ok")
    context = context_for(entry, model, prepared={"snapshot": {"memory": "the text"}})
    asyncio.run(rollout(entry, context, EpisodeSettings(own(), DOCS, native=True)))
    assert model.asked[0].tools == own().tools(DOCS["MemoryAPI_rec_sum"])
    memory = own().memory(entry.data["scenario"], "rec_sum", "the text")
    assert model.chats[0][0]["content"] == f"{memory}\n\n{own().texts.agentic}"


def test_what_a_cut_conversation_wrote() -> None:
    full = ScriptedModel(
        *(add("one"), "ok", "ok", add("two"), PromptTooLong("x"), add("three"), "ok")
    )
    found = filled(entry_of(), full)
    assert found["snapshot"]["core_memory"] == {"one": "v", "three": "v"}
    assert [talk["ended"] for talk in found["conversations"]] == ["", "context", ""]
    endless = ScriptedModel(*["[core_memory_list_keys()]"] * 20, add("late"), "ok")
    found = filled(entry_of(), endless)
    assert found["conversations"][0]["ended"] == "steps"
    assert found["snapshot"]["core_memory"] == {"late": "v"}
    nothing = filled(entry_of(), ScriptedModel(PromptTooLong("x")))
    assert nothing["snapshot"] == {}
    assert asked(entry_of(), ScriptedModel("ok"), nothing["snapshot"]).state["memory"] == {}


def test_a_deadline_ends_the_preparation() -> None:
    async def run(*replies: Reply) -> dict[str, Any]:
        entry = entry_of()
        deadline = asyncio.get_running_loop().time() + 0.3
        context = context_for(entry, ScriptedModel(*replies), deadline=deadline)
        return await prepare(entry, context, EpisodeSettings(own(), DOCS), TALKS)

    found = asyncio.run(run(add("one"), "ok", "ok", hang))
    assert [talk["ended"] for talk in found["conversations"]] == ["", "deadline", "deadline"]
    assert found["snapshot"]["core_memory"] == {"one": "v"}
    with pytest.raises(EpisodeStalled):
        asyncio.run(run(hang))


def test_an_engine_that_stalls_in_the_preparation_leaves_no_memory() -> None:
    async def stalled() -> bool:
        return False

    async def run() -> dict[str, Any]:
        deadline = asyncio.get_running_loop().time() + 0.3
        model = ScriptedModel(add("one"), "ok", "ok", hang)
        context = context_for(entry_of(), model, deadline=deadline, works=stalled)
        return await prepare(entry_of(), context, EpisodeSettings(own(), DOCS), TALKS)

    with pytest.raises(EpisodeStalled):
        asyncio.run(run())


@pytest.mark.parametrize("cut", ["context", "deadline"])
def test_a_question_tells_that_its_preparation_was_cut(cut: str) -> None:
    entry, before = entry_of(), [{"id": "a", "ended": ""}, {"id": "b", "ended": cut}]
    value = {"snapshot": {"core_memory": {"k": "v"}}, "conversations": before}

    def ended(*replies: Reply) -> Any:
        context = context_for(entry, ScriptedModel(*replies), prepared=value)
        return asyncio.run(rollout(entry, context, EpisodeSettings(own(), DOCS))).state

    state = ended("{'answer': 'x'}")
    assert state["prepared"] == before
    assert state["memory_sha256"] == digest(value["snapshot"])
    assert state["ended"] == "preparation"
    verdicts = with_metrics(check_agentic([], ["x"]), ended=state["ended"])
    assert verdicts["official"].metrics == {"ended_preparation": 1}
    assert ended("[core_memory_list_keys()]", PromptTooLong("x"))["ended"] == "context"
    before[1]["ended"] = "steps"  # upstream keeps what such a conversation wrote
    assert ended("{'answer': 'x'}")["ended"] == ""


def test_the_mini_sets_conversations() -> None:
    for scenario, talks in prerequisites(COPY).items():
        entry = next(e for e in load(COPY, ["memory_kv"]) if e.data["scenario"] == scenario)
        model = ScriptedModel("ok")
        filled(entry, model, talks)
        assert len(model.asked) == sum(len(talk["question"]) for talk in talks)


def test_vector_memory(bfcl_copy: UpstreamPackage) -> None:
    """Vectors come from outside, for every text that a call may embed."""
    docs, sources = function_docs(bfcl_copy), tool_sources(bfcl_copy)
    entry = next(iter(load(bfcl_copy, ["memory_vector"])))
    wanted: list[str] = []

    async def embed(texts: Sequence[str]) -> list[list[float]]:
        wanted.extend(texts)
        return [[float(len(text)), 1.0] for text in texts]

    model = ScriptedModel(
        *("[core_memory_add(text='cats')]", "ok", "ok", "[core_memory_retrieve(query='pet')]", "ok")
    )
    context = context_for(entry, model, sources, docs)
    found = asyncio.run(
        prepare(entry, context, EpisodeSettings(own(), docs), TALKS[:2], embed=embed)
    )
    assert list(found["snapshot"]["core_memory"]["store"].values()) == ["cats"]
    assert wanted == ["cats", "cats", "pet"]
    results = found["conversations"][1]["results"][0][0]
    assert json.loads(results[0])["result"][0]["text"] == "cats"
