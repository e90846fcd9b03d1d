"""The interactive example runs without Ray, and its context keeps the promises of episodes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from ace_ray.benchmarks.context import EpisodeContext, RoleModel
from ace_ray.benchmarks.registry import make_benchmark
from ace_ray.errors import EpisodeStalled, PromptTooLong
from ace_ray.models.fake import FakeEngine
from ace_ray.sandbox.protocol import LocalSession
from ace_ray.types import Entry, Episode, Sampling
from tests.scripted_model import ScriptedModel, hang

FILE = Path(__file__).resolve().parents[2] / "examples" / "appointments.py"


def load() -> Any:
    return make_benchmark(f"{FILE}:Appointments", {})


def episode_of(
    benchmark: Any,
    entry: Entry,
    agent: ScriptedModel,
    *,
    seconds: float | None = None,
    works: bool = True,
) -> Episode:
    user = FakeEngine({"default": "Monday morning, for Ada.", "replies": {"Goodbye": "DONE"}})

    async def run() -> Episode:
        async def open_sandbox() -> LocalSession:
            return LocalSession(benchmark.scenario(entry))

        async def engine_works() -> bool:
            return works

        context = EpisodeContext(
            RoleModel(agent, Sampling()),
            roles={"user": RoleModel(user, Sampling())},
            open_sandbox=open_sandbox,
            deadline=None if seconds is None else asyncio.get_running_loop().time() + seconds,
            works=engine_works,
        )
        episode: Episode = await benchmark.run(entry, context)
        return episode

    return asyncio.run(run())


BYE = "Goodbye."
SLOTS = ("free_slots", '{"day": "Monday"}')
BOOK = ("book", '{"day": "Monday", "time": "09:00", "name": "Ada"}')


def test_the_file_is_short() -> None:
    assert len(FILE.read_text(encoding="utf-8").splitlines()) <= 120


def test_the_right_booking_is_valid_and_no_other() -> None:
    benchmark = load()
    morning, full = benchmark.dataset()
    episode = episode_of(benchmark, morning, agent := ScriptedModel("Which day?", SLOTS, BOOK, BYE))
    assert episode.state == {"booked": {"Monday 09:00": "Ada"}, "ended": "finished"}
    assert benchmark.check(morning, episode).valid
    assert not benchmark.check(full, episode).valid
    assert not benchmark.check(morning, episode_of(benchmark, morning, ScriptedModel(BYE))).valid

    assert (episode.model_calls, episode.generation_s) == (4, 2.0)
    assert (episode.prompt_tokens, episode.completion_tokens) == (40, 8), "the agent's alone"
    roles = [message["role"] for message in episode.messages]
    calls = ["assistant", "tool"] * 2
    assert roles == ["system", "user", "assistant", "user", *calls, "assistant", "user"]
    call, result = agent.chats[-1][-2:]
    assert call["tool_calls"][0]["function"]["arguments"] == json.loads(BOOK[1])
    assert call["tool_calls"][0]["id"] == result["tool_call_id"] == "call00001"
    assert result["content"] == "booked"


@pytest.mark.parametrize(
    "call",
    [("book", "no JSON"), ("book", "[" * 99_999), ("book", "[1]"), ("erase", "{}"), ("book", "{}")],
)
def test_a_bad_call_is_an_observation(call: tuple[str, str]) -> None:
    benchmark = load()
    episode = episode_of(benchmark, benchmark.dataset()[0], ScriptedModel(call, BOOK, BYE))
    assert episode.state["booked"] == {"Monday 09:00": "Ada"}


def test_a_truncated_episode_keeps_what_it_has_reached() -> None:
    benchmark = load()
    morning = benchmark.dataset()[0]
    episode = episode_of(benchmark, morning, ScriptedModel(BOOK, PromptTooLong("full")))
    assert episode.state == {"booked": {"Monday 09:00": "Ada"}, "ended": "context"}
    episode = episode_of(benchmark, morning, ScriptedModel(BOOK, hang), seconds=0.5)
    assert episode.state == {"booked": {"Monday 09:00": "Ada"}, "ended": "deadline"}
    endless = episode_of(benchmark, morning, ScriptedModel(SLOTS))
    assert endless.state["ended"] == "max_turns"


def test_what_says_nothing_about_the_candidate_is_no_episode() -> None:
    benchmark = load()
    morning = benchmark.dataset()[0]
    with pytest.raises(EpisodeStalled, match="did not answer a health check"):
        episode_of(benchmark, morning, ScriptedModel(BOOK, hang), seconds=0.5, works=False)
    with pytest.raises(EpisodeStalled, match="candidate gave no answer"):
        episode_of(benchmark, morning, ScriptedModel(hang), seconds=0.2)
    with pytest.raises(EpisodeStalled, match="user simulator gave no answer"):
        episode_of(benchmark, morning, ScriptedModel(BYE), seconds=-1)
