"""Episodes: what a model is sent, what is recorded, and the steps of a stored row."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ace_ray.benchmarks.acebench.benchmark import ACEBench
from ace_ray.benchmarks.context import EpisodeContext, RoleModel
from ace_ray.benchmarks.registry import make_benchmark
from ace_ray.benchmarks.transcript import Call, Step, steps_of
from ace_ray.errors import EpisodeStalled, PromptTooLong
from ace_ray.models.fake import FakeEngine
from ace_ray.types import Completion, Episode, Sampling, ToolAnswer, ToolCall
from tests.benchmarks.play import play, stalled
from tests.scripted_model import ScriptedModel, hang

CALL = ToolCall("find", "{}", "functions.find:0")
THOUGHT = Completion(
    "a", reasoning="why", raw="<think>why</think>a", tools=ToolAnswer("a", (CALL,))
)


def tool(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


@pytest.mark.parametrize(
    ("policy", "expected"), [("none", []), ("tool_steps", [4, 6]), ("all", [1, 4, 6])]
)
def test_reasoning_is_stored_and_replayed_as_the_policy_says(policy, expected) -> None:
    model = ScriptedModel(THOUGHT)
    context = EpisodeContext(RoleModel(model, Sampling()), replay_reasoning=policy)

    async def episode() -> None:
        for role in ("user", "", "user", "system", "", "tool", "", "tool", ""):
            if role:
                context.say(role, "x")
            else:
                await context.ask(tools=[])

    asyncio.run(episode())
    stored = context.episode.messages[1]
    assert stored["reasoning"] == "why"
    assert stored["raw"] == "<think>why</think>a"
    assert stored["tool_calls"][0]["id"] == "functions.find:0"
    last = model.chats[-1]
    assert [at for at, message in enumerate(last) if "reasoning" in message] == expected
    assert not any("raw" in message or "text" in message for message in last)


@pytest.mark.parametrize(
    ("call_id", "ids"),
    [
        pytest.param("functions.find:0", ["functions.find:0", "functions.find:1"], id="name in id"),
        pytest.param("functions.find:1", ["functions.find:1", "functions.find:2"], id="from 1"),
        pytest.param("a1", ["a1", "call00001"], id="another id"),
        pytest.param("call00001", ["call00001", "call00002"], id="an id of ours"),
        pytest.param("", ["call00000", "call00001"], id="no id"),
    ],
)
def test_calls_of_two_answers_have_different_ids(call_id: str, ids: list[str]) -> None:
    call = ToolCall("find", "{}", call_id)
    model = ScriptedModel(Completion("a", tools=ToolAnswer("a", (call,))))
    context = EpisodeContext(RoleModel(model, Sampling()))

    async def episode() -> None:
        context.say("user", "go")
        await context.ask(tools=[tool("find")])
        # Benchmarks may send messages of their own.
        await context.ask(model.chats[0], tools=[tool("find")])

    asyncio.run(episode())
    stored = [message["tool_calls"][0]["id"] for message in context.episode.messages[1:]]
    assert stored == ids


def test_tools_are_stored_once_with_the_answer_that_they_came_for() -> None:
    context = EpisodeContext(RoleModel(ScriptedModel(THOUGHT), Sampling()))

    async def episode() -> None:
        context.say("user", "go")
        await context.ask()
        assert context.episode.tools is None
        for offered in (["a"], ["a"], ["a", "b"], ["b"]):
            await context.ask(tools=[tool(name) for name in offered])

    asyncio.run(episode())
    assert context.episode.tools == [
        {**tool("a"), "since_answer": 2},
        {**tool("b"), "since_answer": 4},
    ]


def call(name: str, arguments: str, **more: str) -> dict[str, Any]:
    return {**more, "type": "function", "function": {"name": name, "arguments": arguments}}


def test_a_tool_answers_the_call_that_it_names() -> None:
    calls = [call("a", "{}", id="c1"), call("b", '{"x": 1}', id="c2")]
    steps = steps_of(
        [
            {"role": "user", "content": "two of them"},
            {
                "role": "assistant",
                "content": "",
                "text": "<tool_call>...",
                "reasoning": "both",
                "tool_calls": calls,
                "tool_parser_error": "odd",
            },
            {"role": "tool", "tool_call_id": "c2", "content": "of b"},
            {"role": "tool", "tool_call_id": "c1", "content": "of a"},
            {"role": "assistant", "content": "done", "tool_calls": [call("c", "{"), call("d", "")]},
            {"role": "tool", "content": [{"type": "text", "text": "of c"}]},
            {"role": "assistant", "content": "[ls()]"},
            {"role": "tool", "name": "ls()", "content": "a.txt"},
        ]
    )
    assert [step.role for step in steps] == ["user", *["assistant"] * 3]
    assert steps[1].calls == [Call("a", "{}", "of a"), Call("b", '{"x": 1}', "of b")]
    assert (steps[1].reasoning, steps[1].written) == ("both", "<tool_call>...")
    assert steps[1].facts == {"tool_parser_error": "odd"}
    # Without an id, results belong to the first calls; a call that was not run has none.
    assert steps[2].calls == [Call("c", "{", "of c"), Call("d", "", None)]
    assert steps[3].calls == [Call("ls()", "", "a.txt")], "the call is in the text"


def test_messages_of_any_shape_are_steps() -> None:
    odd = [None, {"function": None}, {"id": 3}, {}]
    steps = steps_of(
        [
            {},
            {"role": 1, "content": {"a": [1]}},
            {"role": "tool", "content": "alone"},
            {"role": "assistant", "tool_calls": "x", "reasoning": 3},
            {"role": "assistant", "tool_calls": odd},
            {"role": "tool", "tool_call_id": [1]},
        ]
    )
    assert [step.role for step in steps] == ["", "1", "tool", "assistant", "assistant"]
    assert steps[1].text == '{\n  "a": [\n    1\n  ]\n}'
    assert (steps[2].text, steps[3].reasoning) == ("alone", "3")
    calls = [(call.name, call.observation) for call in steps[4].calls]
    assert calls == [("", ""), ("", None), ("", None)]


def test_an_agent_episode_has_its_calls_where_they_were_made() -> None:
    steps = [
        {"speaker": "user", "text": "switch it on", "seconds": 1.0},
        {"speaker": "agent", "text": "[a(x=1), b()]", "reasoning": "r", "finish_reason": "stop"},
        {
            "speaker": "execution",
            "text": "[...]",
            "calls": [{"name": "a", "arguments": {"x": 1}}, {"name": "b", "arguments": {}}],
            "observations": [{"ok": True}],
            "errors": [""],
        },
        {"speaker": "execution", "text": "nobody answers", "errors": ["not_a_call"]},
    ]
    state = {"before": [{"A": {"x": 1}}], "end": [{"A": {"x": 2}}], "steps": steps}
    messages = [{"role": "system", "content": "rules"}, {"role": "user", "content": "switch it on"}]
    system, user, answer, refusal = ACEBench.transcript(messages, state)
    assert (system.text, user.text, answer.reasoning) == ("rules", "switch it on", "r")
    assert [call.name for call in answer.calls] == ["a", "b"]
    assert answer.calls[0].observation == '{\n  "ok": true\n}'
    assert answer.calls[1].observation is None
    assert refusal == Step("tool", "nobody answers")
    assert ACEBench.sandbox_states(state) == ([{"A": {"x": 1}}], [{"A": {"x": 2}}])


EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
APPOINTMENTS: Any = make_benchmark(f"{EXAMPLES}/appointments.py:Appointments", {})
MORNING, FULL = APPOINTMENTS.dataset()
BYE = "Goodbye."
SLOTS = ("free_slots", '{"day": "Monday"}')
BOOK = ("book", '{"day": "Monday", "time": "09:00", "name": "Ada"}')
BOOKED = {"Monday 09:00": "Ada"}


def episode_of(*replies: Any, **more: Any) -> Episode:
    """Play the first entry with the replies of an agent; or with the agent itself."""
    agent = replies[0] if isinstance(replies[0], ScriptedModel) else ScriptedModel(*replies)
    user = FakeEngine({"default": "Monday morning, for Ada.", "replies": {"Goodbye": "DONE"}})
    return play(APPOINTMENTS, MORNING, agent, user, **more)


def test_the_right_booking_is_valid_and_no_other() -> None:
    episode = episode_of(agent := ScriptedModel("Which day?", SLOTS, BOOK, BYE))
    assert episode.state == {"booked": BOOKED, "ended": "finished"}
    assert APPOINTMENTS.check(MORNING, episode).valid
    assert not APPOINTMENTS.check(FULL, episode).valid
    assert not APPOINTMENTS.check(MORNING, episode_of(BYE)).valid
    assert (episode.model_calls, episode.generation_s) == (4, 2.0)
    assert (episode.prompt_tokens, episode.completion_tokens) == (40, 8), "the agent's alone"
    call, result = agent.chats[-1][-2:]
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


@pytest.mark.parametrize("deadline_s", [None, 60.0])
def test_a_timeout_of_the_work_itself_is_not_the_deadline(deadline_s: float | None) -> None:
    async def work() -> None:
        raise TimeoutError("the tool server did not answer")

    async def episode() -> None:
        end = deadline_s and asyncio.get_running_loop().time() + deadline_s
        context = EpisodeContext(RoleModel(ScriptedModel(), Sampling()), deadline=end)
        await context.wait_for("an API", work)

    with pytest.raises(TimeoutError, match="the tool server"):
        asyncio.run(episode())


def test_an_episode_without_an_answer_of_the_candidate_has_stalled() -> None:
    with pytest.raises(EpisodeStalled, match="did not answer a health check"):
        episode_of(BOOK, hang, seconds=0.5, works=stalled)
    with pytest.raises(EpisodeStalled, match="candidate gave no answer"):
        episode_of(hang, seconds=0.2)
    with pytest.raises(EpisodeStalled, match="user simulator gave no answer"):
        episode_of(BYE, seconds=-1)
