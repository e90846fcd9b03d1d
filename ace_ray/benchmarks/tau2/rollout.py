"""Run an episode's turns (upstream ``orchestrator/orchestrator.py``); build its transcript."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ace_ray.benchmarks.context import (
    EpisodeContext,
    Truncated,
    arguments_of,
    number_calls,
    to_chat,
)
from ace_ray.benchmarks.tau2.answers import (
    RESULT_MARK,
    Answer,
    Message,
    Tools,
    answer_of,
    results_text,
)
from ace_ray.benchmarks.tau2.upstream_package import DONE, ENDS, STOP
from ace_ray.benchmarks.transcript import Step, steps_of
from ace_ray.errors import PromptTooLong
from ace_ray.sandbox.protocol import Session
from ace_ray.types import Completion, Sampling, ToolCall
from ace_ray.util.safe_loading import check_depth

Speaker = Literal["assistant", "user"]
# Maximum nesting of a call's arguments. Tools need none; upstream's reader fails near 200.
MOST_DEPTH = 100
# Maximum requests for one turn: upstream repeats a request three times if the answer is empty.
FIRST_ANSWERS = 4


@dataclass(frozen=True)
class Settings:
    """Settings of all episodes of a category.

    Attributes:
        native: whether tools are offered through the models' chat templates.
        solo: whether the agent works without a user, and ends the episode with the tool ``done``.
        agent_tools, user_tools: each side's tools in OpenAI's form. A user may have none.
        greeting: the agent's first message, which is fixed; unused in solo mode.
        max_steps, max_errors: limits of an episode, as in upstream."""

    native: bool
    solo: bool
    agent_tools: Tools
    user_tools: Tools
    greeting: str
    max_steps: int
    max_errors: int


@dataclass
class Rollout:
    """One episode.

    ``trajectory`` lists the messages of both sides and the results of calls. Each has ``role`` and
    ``content``. A message with calls also has ``tool_calls``, a list of {"id", "name", "arguments":
    JSON text}. A result also has ``id``, ``requestor`` and ``error``."""

    context: EpisodeContext
    session: Session
    settings: Settings
    user_system: str
    trajectory: list[Message] = field(default_factory=list)
    steps: int = 0
    errors: int = 0
    stopped: bool = False
    """Whether a side ended the episode. A limit may have been reached in the same step."""
    user_calls: dict[str, int] = field(
        default_factory=lambda: {"model_calls": 0, "prompt_tokens": 0, "completion_tokens": 0}
    )
    _user_view: list[Message] = field(default_factory=list)
    _called_done: bool = False
    """Whether a solo agent has called ``done``. If it has not, the text `STOP` is an error."""

    async def play(self, opening: Sequence[Message], history: Sequence[Mapping[str, Any]]) -> str:
        """Play the episode after ``opening`` and the task's ``history``, and return why it ended.
        Raises `RowError` for a failure that the candidate did not cause."""
        self.context.episode.messages += [dict(message) for message in opening]
        if self.user_system:
            self._user_view.append({"role": "system", "content": self.user_system})
        try:
            return await self._play(history)
        except Truncated as truncated:
            return truncated.reason

    async def _play(self, history: Sequence[Mapping[str, Any]]) -> str:
        speaker, answer = await self._begin(history)
        while True:
            reason = self._end_reason(speaker, answer)
            if reason is not None:
                return reason
            if answer is not None and answer.calls:
                await self._run_calls(speaker)
                answer = None
            else:
                # The other side answers a text. The side that made calls answers their results.
                if answer is not None:
                    speaker = "user" if speaker == "assistant" else "assistant"
                answer = await (self._ask_agent() if speaker == "assistant" else self._ask_user())
            self.steps += 1

    def _end_reason(self, speaker: Speaker, answer: Answer | None) -> str | None:
        """Return why the episode ends after a turn, or None if it goes on. Limits are checked only
        if no call is pending. They take precedence over "user_stop" and "agent_stop"."""
        reason = None
        if answer is not None and answer.is_empty:
            return "agent_error" if speaker == "assistant" else "user_error"
        if answer is not None and not answer.calls:
            if speaker == "user":
                if any(mark in answer.text for mark in ENDS):
                    reason = "user_stop"
            elif self.settings.solo:
                reason = "agent_stop" if self._called_done else "agent_error"
        elif answer is not None and self.settings.solo and STOP in answer.text:
            reason = "agent_error"  # upstream's run fails here, before the calls run
        self.stopped = reason in ("user_stop", "agent_stop")
        if reason == "agent_error" or (answer is not None and answer.calls):
            return reason
        if self.errors >= self.settings.max_errors:
            return "too_many_errors"
        if self.steps >= self.settings.max_steps:
            return "max_steps"
        return reason

    async def _begin(self, history: Sequence[Mapping[str, Any]]) -> tuple[Speaker, Answer | None]:
        """Start the episode with the task's ``history``, if any. Return who spoke last, and this
        last turn; None in its place if the last message is a tool's result."""
        if not history and self.settings.solo:
            return "assistant", await self._ask_agent()
        if not history:
            self._add_turn("assistant", Answer(self.settings.greeting))
            return "assistant", Answer(self.settings.greeting)
        for message in history:
            self._remember(message)
        last = history[-1]
        if last["role"] == "tool":
            return last.get("requestor", "assistant"), None
        return last["role"], _answer_of_history(last)

    def _remember(self, message: Mapping[str, Any]) -> None:
        """Record a message of a task's history."""
        if message["role"] == "tool":
            call_id, text = message.get("id", ""), message.get("content") or ""
            call = {"id": call_id, "name": _name(self.trajectory, call_id)}
            speaker = message.get("requestor", "assistant")
            self._add_results(speaker, [(call, text, bool(message.get("error")))])
            return
        answer = _answer_of_history(message)
        if message["role"] == "assistant":
            self.context.episode.messages.append(_assistant(answer.text, _calls_of(answer)))
        self._add_turn(message["role"], answer)

    async def _ask_agent(self) -> Answer:
        """Ask the candidate for its next turn."""
        settings, context = self.settings, self.context
        messages = context.episode.messages
        length = len(messages)

        async def ask(**options: Any) -> Completion:
            del messages[length:]  # an empty answer
            is_first = not context.episode.model_calls
            completion = await context.ask(**options)
            if isinstance(completion, Truncated):
                if completion.reason == "context" and is_first:
                    # The user has answered, so `EpisodeContext.ask` did not raise this itself.
                    problem = "the candidate's first prompt does not fit into the context"
                    raise PromptTooLong(problem)
                raise completion
            return completion

        answer = await self._ask(ask, context.candidate.sampling, settings.agent_tools)
        names = [call.name for call in answer.calls]
        if settings.solo and DONE in names and all(map(_is_readable, answer.calls)):
            answer = Answer(STOP)
            self._called_done = True
        return self._record_turn("assistant", answer)

    async def _ask_user(self) -> Answer:
        """Ask the user simulator for its next turn."""

        async def ask(**options: Any) -> Completion:
            completion = await self.context.ask_role("user", to_chat(self._user_view), **options)
            self.user_calls["model_calls"] += 1
            self.user_calls["prompt_tokens"] += completion.prompt_tokens
            self.user_calls["completion_tokens"] += completion.completion_tokens
            return completion

        sampling = self.context.roles["user"].sampling
        return self._record_turn("user", await self._ask(ask, sampling, self.settings.user_tools))

    async def _ask(
        self, ask: Callable[..., Awaitable[Completion]], sampling: Sampling, tools: Tools
    ) -> Answer:
        """Return the first answer that is not empty. A repeated request gets another seed. In the
        text protocol, a stop text keeps the model from inventing a tool's result."""
        native, answer = self.settings.native, Answer("")
        if tools and not native and RESULT_MARK not in sampling.stop:
            sampling = replace(sampling, stop=(*sampling.stop, RESULT_MARK))
        offered = list(tools) if native and tools else None
        for attempt in range(FIRST_ANSWERS):
            completion = await ask(tools=offered, sampling=sampling.with_sample_seed(attempt))
            answer = answer_of(completion, tools, native=native)
            if not answer.is_empty:
                break
        return answer

    def _record_turn(self, speaker: Speaker, answer: Answer) -> Answer:
        """Record a turn and return it. If a call's arguments are not JSON or too deep, return an
        empty turn, which ends the episode; upstream's run fails."""
        if not all(map(_is_readable, answer.calls)):
            self._add_turn(speaker, Answer(answer.text))
            return Answer("")
        self._add_turn(speaker, answer)
        return answer

    def _add_turn(self, speaker: Speaker, answer: Answer) -> None:
        """Add a turn to the trajectory and the chats. A turn with calls is not added to the other
        side's chat."""
        calls = self._number_calls(speaker, answer)
        message: Message = {"role": speaker, "content": answer.text}
        if calls:
            message["tool_calls"] = calls
        self.trajectory.append(message)
        if speaker == "user":
            self._user_view.append(_assistant(answer.text, calls if self.settings.native else ()))
            if not calls and not answer.is_empty:
                self.context.say("user", answer.text)
        elif not calls and not answer.is_empty:
            self._user_view.append({"role": "user", "content": answer.text})

    def _number_calls(self, speaker: Speaker, answer: Answer) -> list[Message]:
        """Return a turn's calls with ids. Native calls of the agent keep the ids from its chat."""
        calls = _calls_of(answer)
        if calls and speaker == "assistant" and self.settings.native:
            recorded = self.context.episode.messages[-1].get("tool_calls", ())
            for call, recorded_call in zip(calls, recorded, strict=False):
                call["id"] = recorded_call.get("id", "")
        turns = [turn for turn in self.trajectory if turn["role"] == speaker]
        number_calls({"tool_calls": calls}, turns)
        return calls

    async def _run_calls(self, speaker: Speaker) -> None:
        """Run the calls of the last message in order, and record their results."""
        calls, results = self.trajectory[-1]["tool_calls"], []
        for call in calls:
            arguments, is_last = arguments_of(call["arguments"]), call is calls[-1]
            request = {"requestor": speaker, "arguments": arguments, "last": is_last}
            observation = await self.session.call(call["name"], request)
            results.append((call, str(observation.value), bool(observation.error)))
        self.errors += sum(failed for *_, failed in results)
        self._add_results(speaker, results)

    def _add_results(self, speaker: str, results: Sequence[tuple[Message, str, bool]]) -> None:
        """Add (call, result, whether it failed) to the trajectory and to the speaker's chat."""
        for call, text, failed in results:
            result = {"role": "tool", "id": call["id"], "requestor": speaker}
            self.trajectory.append({**result, "content": text, "error": failed})
        is_agent = speaker == "assistant"
        view = self.context.episode.messages if is_agent else self._user_view
        if self.settings.native:
            view += (
                {"role": "tool", "name": call["name"], "tool_call_id": call["id"], "content": text}
                for call, text, _ in results
            )
        else:
            text = results_text([(call["name"], text) for call, text, _ in results])
            view.append({"role": "user", "content": text})


def _is_readable(call: ToolCall) -> bool:
    try:
        check_depth(arguments_of(call.arguments), MOST_DEPTH)
    except ValueError:
        return False
    return True


def _calls_of(answer: Answer) -> list[Message]:
    return [{"id": c.id, "name": c.name, "arguments": c.arguments} for c in answer.calls]


def _assistant(text: str, calls: Sequence[Message]) -> Message:
    """Return a turn as an assistant message of a chat."""
    functions = [{"name": call["name"], "arguments": call["arguments"]} for call in calls]
    tool_calls = [
        {"id": call["id"], "type": "function", "function": function}
        for call, function in zip(calls, functions, strict=True)
    ]
    extra = {"tool_calls": tool_calls} if tool_calls else {}
    return {"role": "assistant", "content": text, **extra}


def _answer_of_history(message: Mapping[str, Any]) -> Answer:
    calls = (
        ToolCall(call["name"], json.dumps(call["arguments"]), call.get("id", ""))
        for call in message.get("tool_calls") or ()
    )
    return Answer(message.get("content") or "", tuple(calls))


def _name(trajectory: Sequence[Message], call_id: str) -> str:
    """Return the name of the tool in the call with the id ``call_id``, or ""."""
    calls = [call for message in trajectory for call in message.get("tool_calls", ())]
    return next((call["name"] for call in reversed(calls) if call["id"] == call_id), "")


def transcript(messages: Sequence[Mapping[str, Any]], state: Any) -> list[Step]:
    """Return the steps of a stored episode: the system message, then the trajectory. ``messages``
    provide the reasoning, or all steps if the trajectory is missing."""
    trajectory = state.get("trajectory") if isinstance(state, Mapping) else None
    if not isinstance(trajectory, list):
        return steps_of(messages)
    chat_steps = steps_of(messages)
    turns = iter([step for step in chat_steps if step.role == "assistant"])
    steps = steps_of([message for message in trajectory if isinstance(message, Mapping)])
    for step in steps:
        if step.role == "assistant" and (turn := next(turns, None)) is not None:
            step.reasoning, step.written, step.facts = turn.reasoning, turn.written, turn.facts
    return [*(step for step in chat_steps[:1] if step.role == "system"), *steps]
