"""Run agent episodes in a sandbox with upstream's loops; read their stored transcripts.

Execution is upstream's name for the part that runs the calls of an agent's message (a batch) and
answers with their results. The protocol ``official`` keeps the faults of upstream's loops; the
protocol ``fixed`` corrects them.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, Literal

from ace_ray.benchmarks.acebench.agent_calls import AgentCall, agent_calls
from ace_ray.benchmarks.acebench.native import answer_text, arguments_of
from ace_ray.benchmarks.acebench.prompts import AgentTexts
from ace_ray.benchmarks.context import EpisodeContext, Truncated, to_chat, tool_messages
from ace_ray.benchmarks.transcript import Call, Step, steps_of, text_of
from ace_ray.sandbox.protocol import Session
from ace_ray.types import Completion, Entry, Episode, ToolAnswer

Protocol = Literal["official", "fixed"]
Loop = Literal["multi_turn", "multi_step"]
FINISH = "finish conversation"
# Arguments that every tool rejects, so that the tool does not run.
_NEVER_TAKEN: dict[str, Any] = {"": None}


@dataclass
class Rollout:
    """State of one agent episode. ``steps`` is the stored transcript, one dict for each message."""

    entry: Entry
    context: EpisodeContext
    texts: AgentTexts
    protocol: Protocol
    max_messages: int
    session: Session
    tools: list[dict[str, Any]] | None = None
    """The functions as tools for the candidate's chat template; None in prompt mode."""
    steps: list[dict[str, Any]] = field(default_factory=list)
    process: list[str] = field(default_factory=list)
    """Texts that were sent to execution. Upstream compares these texts with gold milestones."""
    registered: bool = False
    """True if upstream would have recorded a state."""

    @property
    def episode(self) -> Episode:
        return self.context.episode

    @property
    def is_official(self) -> bool:
        return self.protocol == "official"

    async def ask_agent(self, history: str) -> tuple[str, list[AgentCall] | None]:
        """Return the candidate's message, and its calls or None.

        ``history`` is the transcript as text for the prompt. With native tool calling the candidate
        sees the stored messages instead. Raises `Truncated` at the deadline or a full context."""
        if self.tools is None:
            sent = self.texts.prompt(self.entry, history)
            self._open(sent[0])
        else:
            self._open(self.texts.system(self.entry, "native_"))
            replay = self.context.replay_reasoning
            sent = to_chat(self.episode.messages, arguments_of, reasoning=replay)
        completion = await self.context.ask(sent, tools=self.tools)
        if isinstance(completion, Truncated):
            raise completion
        text, calls = completion.text, None
        if completion.tools is None:
            loop: Loop = "multi_turn" if self._is_multi_turn else "multi_step"
            calls = agent_calls(text, loop=loop, protocol=self.protocol)
        else:
            text, calls = self._native_calls(completion.tools)
        self._record_step("agent", completion, text)
        return text, calls

    def _native_calls(self, answer: ToolAnswer) -> tuple[str, list[AgentCall] | None]:
        """Return a native answer as text with calls in official syntax, and its calls or None."""
        text = answer_text(answer.content, answer.calls, self.entry.data["function"])
        if not answer.calls:
            return text, None
        calls = agent_calls(text, loop="multi_step", protocol="fixed")
        if calls is None:
            calls = [
                AgentCall(c.name, {}, "the arguments are not a JSON object") for c in answer.calls
            ]
        return text, calls

    def _open(self, system: Mapping[str, Any]) -> None:
        if self.episode.model_calls:
            return
        if not self._is_multi_turn:
            question = str(self.entry.data["question"])
            self.context.say("user", question)
        # The user's first message may be stored already: insert the system message before it.
        self.episode.messages.insert(0, dict(system))

    async def ask_user(self, chat: list[dict[str, Any]]) -> str:
        """Return the user simulator's next message, and add it to ``chat``, in which the simulator
        gets the agent's messages without calls. Its tokens do not count as the candidate's."""
        completion = await self.context.ask_role("user", chat)
        chat.append(
            {"role": simulator_chat_role(official=self.is_official), "content": completion.text}
        )
        self.context.say("user", completion.text)
        self._record_step("user", completion, completion.text)
        return completion.text

    def _record_step(self, speaker: str, completion: Completion, text: str) -> None:
        self.steps.append(
            {
                "speaker": speaker,
                "text": text,
                "reasoning": completion.reasoning,
                "finish_reason": completion.finish_reason,
                "prompt_tokens": completion.prompt_tokens,
                "completion_tokens": completion.completion_tokens,
                "seconds": round(completion.seconds, 4),
                **({"model": completion.model} if completion.model else {}),
            }
        )

    async def execute(self, text: str, calls: Sequence[AgentCall]) -> Any:
        """Run the calls of the agent's message ``text`` in order. Store and return the results."""
        start = time.perf_counter()
        observed = []
        for call in calls:
            observed.append(await self._run_call(call))
            if observed[-1][0] and self._batch_ends(observed):
                break
        if self.is_official:
            await self._refresh_answers(observed)
        answer = self._answer(observed)
        self.process.append(text)
        self.steps.append(
            {
                "speaker": "execution",
                "text": str(answer),
                "calls": [{"name": c.name, "arguments": c.arguments} for c in calls],
                "observations": [value for _, value in observed],
                "errors": [error for error, _ in observed],
                "seconds": round(time.perf_counter() - start, 4),
            }
        )
        if self.tools is None:
            self.context.say("tool", str(answer))
        else:
            self.episode.messages += tool_messages(self.episode.messages[-1], answer)
        return answer

    async def _run_call(self, call: AgentCall) -> tuple[str, Any]:
        """Run one call. Return its kind of error ("" if it succeeded) and its answer."""
        if not call.problem:
            answer = await self.session.call(call.name, call.arguments)
            return answer.error, answer.value
        if self.is_official:  # upstream looks up the tool before it fails on the arguments
            answer = await self.session.call(call.tool or call.name, _NEVER_TAKEN)
            if answer.error == "unknown_tool":
                return answer.error, answer.value
        return "bad_arguments", call.problem

    async def _refresh_answers(self, observed: list[tuple[str, Any]]) -> None:
        """Replace each answer by its value at the end of the batch. Upstream writes answers only
        then, and later calls of the batch may have changed objects in earlier answers."""
        answered = [index for index, (error, _) in enumerate(observed) if not error]
        if len(answered) < 2:
            return
        values = await self.session.newest_answers(len(answered))
        for index, value in zip(reversed(answered), reversed(values), strict=False):
            observed[index] = ("", value)

    def refuse(self, text: str) -> str:
        """Return the answer to an agent_multi_step message ``text`` that contains no call. As
        upstream does, add the message to ``process`` nevertheless."""
        answer = self.texts.texts[self.entry.language]["no_questions"]
        self.process.append(text)
        self.steps.append({"speaker": "execution", "text": answer, "errors": ["not_a_call"]})
        self.context.say("tool" if self.tools is None else "user", answer)
        return answer

    @property
    def _is_multi_turn(self) -> bool:
        return self.entry.category == "agent_multi_turn"

    def _batch_ends(self, observed: Sequence[tuple[str, Any]]) -> bool:
        """Return whether a batch ends at its last observed call, which failed. Batches end only in
        agent_multi_turn under ``official``, but not at an unknown tool after the first call."""
        unknown_later = observed[-1][0] == "unknown_tool" and len(observed) > 1
        return self.is_official and self._is_multi_turn and not unknown_later

    def _answer(self, observed: Sequence[tuple[str, Any]]) -> Any:
        texts = self.texts.texts[self.entry.language]
        if not self.is_official:
            return [{"error": value} if error else value for error, value in observed]
        if observed and self._is_multi_turn and observed[-1][0] and self._batch_ends(observed):
            return list(texts["turn_failed"])  # upstream iterates over the characters
        self.registered = True
        answers: list[Any] = []
        previous: Any = None
        is_set = False
        for error, value in observed:
            if error == "unknown_tool" and is_set:
                answers.append(previous)
            elif error:
                text = texts["unset"] if error == "unknown_tool" else str(value)
                answers.append(texts["step_failed"].replace("{error}", text))
            else:
                previous, is_set = value, True
                answers.append(value)
        return answers

    def is_finished(self, index: int, message: Any) -> bool:
        """Return whether `FINISH` in ``message`` ends the conversation. Upstream ignores the first
        three messages. In a list of results, an element must equal `FINISH`."""
        if self.is_official:
            return index > 1 and FINISH in message
        return isinstance(message, str) and FINISH in message

    def state(self, before: Any, end: Any, ending: str) -> dict[str, Any]:
        """Return the state to store, which is enough to score the episode without an engine.

        ``before`` and ``end`` are states of the sandbox. The result's ``after`` is the state that
        upstream judges: under ``official`` it is empty if no batch of calls was completed."""
        user = self.context.roles["user"].identity if self._is_multi_turn else {}
        return {
            "before": before,
            "after": end if self.registered or not self.is_official else [],
            "end": end,
            "process": self.process,
            "steps": self.steps,
            "ended": ending,
            "user": dict(user) or None,
        }


_LABELS = {"user": "user:", "agent": "agent:", "execution": "execution:"}


async def run_agent(
    entry: Entry,
    context: EpisodeContext,
    texts: AgentTexts,
    *,
    protocol: Protocol,
    max_messages: int,
    tools: list[dict[str, Any]] | None,
) -> Episode:
    """Run the episode of an agent entry.

    ``tools`` are the functions for native tool calling, None in prompt mode. If the deadline, the
    context length or the message limit ends the episode, its state at that moment is scored.
    Raises `RowError` if the simulator or the sandbox fails."""
    async with context.sandbox() as session:
        before = await session.state()
        rollout = Rollout(entry, context, texts, protocol, max_messages, session, tools)
        try:
            if entry.category == "agent_multi_turn":
                ending = await _run_multi_turn(rollout)
            else:
                ending = await _run_multi_step(rollout)
        except Truncated as truncated:
            ending = truncated.reason
        end = await session.state()
    context.episode.state = rollout.state(before, end, ending)
    return context.episode


async def _run_multi_step(rollout: Rollout) -> str:
    """Run an episode of agent_multi_step. Return its ending: "finished" or "max_messages".

    Every message of the agent goes to execution. Under ``official`` the agent never sees its own
    messages. Raises `Truncated` at the deadline or a full context."""
    history = f"user:{rollout.entry.data['question']}\n"
    for index in range(0, rollout.max_messages, 2):
        text, calls = await rollout.ask_agent(history)
        if not rollout.is_official:
            history += f"agent:{text}\n"
        # Under "fixed" a message with a call does not end the episode, whatever its text.
        if (rollout.is_official or calls is None) and rollout.is_finished(index, text):
            return "finished"
        if index + 1 == rollout.max_messages:
            break
        answer = rollout.refuse(text) if calls is None else await rollout.execute(text, calls)
        history += f"execution result:{answer}\n"
        if rollout.is_official and rollout.is_finished(index + 1, answer):
            return "finished"
    return "max_messages"


def simulator_chat_role(*, official: bool) -> str:
    """Return the role of the user simulator's own messages in its chat; upstream's is "system"."""
    return "system" if official else "assistant"


async def _run_multi_turn(rollout: Rollout) -> str:
    """Run an episode of agent_multi_turn. Return its ending: "finished" or "max_messages".

    The agent's messages with calls go to execution, its other messages to the user simulator
    (upstream's ``Scene``). Raises `Truncated` at the deadline or a full context."""
    entry, texts = rollout.entry, rollout.texts
    chat: list[dict[str, Any]] = [
        texts.simulator_system(entry),
        {"role": "user", "content": texts.texts[entry.language]["opener"]},
    ]
    speaker, message = "user", await rollout.ask_user(chat)
    calls = None
    history = ""
    for index in range(rollout.max_messages):
        history += f"{_LABELS[speaker]}{message}\n"
        if speaker == "agent" and calls is not None:
            speaker, message = "execution", await rollout.execute(message, calls)
        elif speaker == "agent":
            prefix = next((p for p in ("user:", "agent:") if message.startswith(p)), "")
            chat.append({"role": "user", "content": message.removeprefix(prefix)})
            speaker, message = "user", await rollout.ask_user(chat)
        else:
            speaker = "agent"
            message, calls = await rollout.ask_agent(history)
            if calls is not None and not rollout.is_official:
                continue  # a message with a call does not end the episode
        if rollout.is_finished(index, message):
            return "finished"
    return "max_messages"


def texts_without_calls(steps: Any) -> list[str]:
    """Return the texts of the agent's messages that contain no call, from a stored transcript."""
    if not isinstance(steps, list):
        return []
    mappings = [step for step in steps if isinstance(step, Mapping)]
    return [
        str(step.get("text", ""))
        for step, following in zip(mappings, [*mappings[1:], {}], strict=True)
        if step.get("speaker") == "agent" and not following.get("calls")
    ]


_ROLES = {"user": "user", "agent": "assistant", "execution": "tool"}
_FACTS = ("finish_reason", "prompt_tokens", "completion_tokens", "seconds", "model")
_MOST_SECONDS = 1e9


def transcript(messages: Sequence[Mapping[str, Any]], state: Any) -> list[Step]:
    """Return the stored steps of an agent row, or the messages of any other row as steps."""
    stored = state.get("steps") if isinstance(state, Mapping) else None
    spoken = [s for s in stored if isinstance(s, Mapping)] if isinstance(stored, list) else []
    if not spoken:
        return steps_of(messages)
    # The opening is the system message, and in agent_multi_step also the task.
    opening = ("system",) if spoken[0].get("speaker") == "user" else ("system", "user")
    steps = steps_of(list(takewhile(lambda message: message.get("role") in opening, messages)))
    for record in spoken:
        role = _ROLES.get(text_of(record.get("speaker")), "tool")
        if role == "tool" and record.get("calls") and steps and steps[-1].role == "assistant":
            steps[-1].calls += _calls(record)
            continue
        step = Step(role, text_of(record.get("text")), text_of(record.get("reasoning")))
        step.facts = {name: record[name] for name in _FACTS if record.get(name) not in (None, "")}
        seconds = step.facts.get("seconds", 0)
        # A stored row may contain NaN or 10**400.
        if not isinstance(seconds, int | float) or not 0 <= seconds <= _MOST_SECONDS:
            del step.facts["seconds"]
        steps.append(step)
    return steps


def _calls(execution: Mapping[str, Any]) -> list[Call]:
    """Return the calls of an execution step. Calls that did not run have no result or error."""
    observations, errors = (
        value if isinstance(value := execution.get(name), list) else []
        for name in ("observations", "errors")
    )
    calls = execution["calls"] if isinstance(execution["calls"], list) else []
    return [
        Call(
            text_of(call.get("name")),
            text_of(call.get("arguments")),
            text_of(observations[index]) if index < len(observations) else None,
            text_of(errors[index]) if index < len(errors) else "",
        )
        for index, call in enumerate(calls)
        if isinstance(call, Mapping)
    ]
