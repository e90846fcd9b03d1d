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
from ace_ray.types import Episode, Sampling
from tests.scripted_model import ScriptedModel, hang

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
APPOINTMENTS = make_benchmark(f"{EXAMPLES}/appointments.py:Appointments", {})
MORNING, FULL = APPOINTMENTS.dataset()
BYE = "Goodbye."
SLOTS = ("free_slots", '{"day": "Monday"}')
BOOK = ("book", '{"day": "Monday", "time": "09:00", "name": "Ada"}')
BOOKED = {"Monday 09:00": "Ada"}


def episode_of(*replies: Any, seconds: float | None = None, works: bool = True) -> Episode:
    """Run the first entry with the replies of an agent; or with the agent itself."""
    agent = replies[0] if isinstance(replies[0], ScriptedModel) else ScriptedModel(*replies)
    user = FakeEngine({"default": "Monday morning, for Ada.", "replies": {"Goodbye": "DONE"}})

    async def run() -> Episode:
        async def open_sandbox() -> LocalSession:
            return LocalSession(APPOINTMENTS.scenario(MORNING))

        async def engine_works() -> bool:
            return works

        context = EpisodeContext(
            RoleModel(agent, Sampling()),
            roles={"user": RoleModel(user, Sampling())},
            open_sandbox=open_sandbox,
            deadline=None if seconds is None else asyncio.get_running_loop().time() + seconds,
            works=engine_works,
        )
        return await APPOINTMENTS.run(MORNING, context)

    return asyncio.run(run())


def test_the_right_booking_is_valid_and_no_other() -> None:
    episode = episode_of(agent := ScriptedModel("Which day?", SLOTS, BOOK, BYE))
    assert episode.state == {"booked": BOOKED, "ended": "finished"}
    assert APPOINTMENTS.check(MORNING, episode).valid
    assert not APPOINTMENTS.check(FULL, episode).valid
    assert not APPOINTMENTS.check(MORNING, episode_of(BYE)).valid
    assert (episode.model_calls, episode.generation_s) == (4, 2.0)
    assert (episode.prompt_tokens, episode.completion_tokens) == (40, 8), "the agent's alone"
    roles = [message["role"] for message in episode.messages]
    calls = ["assistant", "tool"] * 2
    assert roles == ["system", "user", "assistant", "user", *calls, "assistant", "user"]
    call, result = agent.chats[-1][-2:]
    assert call["tool_calls"][0]["function"]["arguments"] == json.loads(BOOK[1])
    assert call["tool_calls"][0]["id"] == result["tool_call_id"] == "call00001"
    assert result["content"] == "booked"


def test_a_bad_call_is_an_observation() -> None:
    bad = [*(("book", text) for text in ("no JSON", "[" * 99_999, "[1]", "{}")), ("erase", "{}")]
    assert episode_of(*bad, BOOK, BYE).state["booked"] == BOOKED


def test_a_truncated_episode_keeps_its_state() -> None:
    episode = episode_of(BOOK, PromptTooLong("full"))
    assert episode.state == {"booked": BOOKED, "ended": "context"}
    assert episode_of(BOOK, hang, seconds=0.5).state == {"booked": BOOKED, "ended": "deadline"}
    assert episode_of(SLOTS).state["ended"] == "max_turns"


def test_an_episode_without_an_answer_of_the_candidate_has_stalled() -> None:
    with pytest.raises(EpisodeStalled, match="did not answer a health check"):
        episode_of(BOOK, hang, seconds=0.5, works=False)
    with pytest.raises(EpisodeStalled, match="candidate gave no answer"):
        episode_of(hang, seconds=0.2)
    with pytest.raises(EpisodeStalled, match="user simulator gave no answer"):
        episode_of(BYE, seconds=-1)
