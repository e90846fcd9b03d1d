"""The context of an episode: models, a sandbox, a service, a deadline.

`EpisodeContext` calls models and records messages and tokens. At the deadline, or when the context
is full, it decides whether the episode is scored. The benchmark chooses the messages::

    context.say("user", question)
    async with context.sandbox() as session:
        reply = await context.ask(tools=TOOLS)
        while not isinstance(reply, Truncated) and reply.tools and reply.tools.calls:
            await context.execute(session, reply.tools.calls)
            reply = await context.ask(tools=TOOLS)
    return context.episode
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from ace_ray.errors import EpisodeStalled, PromptTooLong
from ace_ray.sandbox.protocol import Observation, Session
from ace_ray.types import Completion, Episode, Sampling, ToolCall

Message = Mapping[str, Any]
_T = TypeVar("_T")
_TITLES = {"user": "user simulator", "simulator": "API simulator"}
_KEYS = ("role", "content", "name", "tool_call_id")


class Model(Protocol):
    """A chat model. `chat` raises `RowError` if the model cannot answer this request, and
    `EngineDead` if the model cannot answer any further request."""

    async def chat(
        self,
        messages: Sequence[Message],
        sampling: Sampling,
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> Completion: ...


@dataclass(frozen=True, slots=True)
class RoleModel:
    """A model in a role of an episode, with its sampling.

    ``identity`` contains everything about the model that can change a score, as JSON values that
    are stored with the row. ``on_answer`` is called with every answer."""

    model: Model
    sampling: Sampling
    identity: Mapping[str, Any] = field(default_factory=dict)
    on_answer: Callable[[Completion], None] | None = None

    async def ask(
        self,
        messages: Sequence[Message],
        sampling: Sampling | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        schema: Mapping[str, Any] | None = None,
    ) -> Completion:
        """Return the model's answer. Raises the errors of `Model`.

        ``sampling`` replaces the role's sampling. ``schema`` is a JSON schema for the answer. If an
        engine refuses the schema, the answer may have any form, and `Completion.schema_refused`
        gives the reason. Always check answers."""
        drawn = sampling or self.sampling
        if schema is not None:
            drawn = drawn.with_schema(schema)
        completion = await self.model.chat(messages, drawn, tools)
        if self.on_answer is not None:
            self.on_answer(completion)
        return completion


class Service(Protocol):
    """An object that all episodes of a run share and one process owns, such as a cache."""

    def open(self) -> None:
        """Open the service, in the process that owns it, before any engine starts. Raises
        `UserError` if another run has opened it."""

    def call(self, method: str, *arguments: Any) -> Any:
        """Call ``method``. Values are plain. Raises `RowError` if the row cannot continue."""


class Truncated(Exception):
    """The episode cannot continue; it is scored in its present state.

    ``reason`` is "context" (the candidate's context is full), "deadline", or the name of a limit of
    the benchmark. `EpisodeContext.ask` returns a `Truncated`. A benchmark may raise it in a nested
    function and catch it where the episode ends."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass
class EpisodeContext:
    """The models and tools of one episode, and its record so far (``episode``).

    Attributes:
        candidate: the model under evaluation.
        roles: the other models, by the names of `Benchmark.roles`.
        open_sandbox: opens the sandbox of `Benchmark.scenario` for the entry; see `sandbox`.
        deadline: the end of the episode, in seconds of the event loop's clock; None: no deadline.
        works: returns whether the candidate's engine passes a health check.
        prepared: the value that `Benchmark.prepare` returned for the entry.
        token_logprobs: takes messages and an answer; returns the candidate's logprob of each token
            of the answer. Raises as `Model.chat` does.
        service: calls a method of `Benchmark.service`; takes the method's name and arguments.
        attempt: the number of the row's attempt, from 1.
        opening: the value of `Benchmark.opening`, computed when the run was planned; None for an
            episode outside a run.
        replay_reasoning: earlier answers that are sent to the candidate with their reasoning:
            ``none``, ``tool_steps`` (answers after the last user message) or ``all``.
        episode: the record to store. `dataclasses.replace` gives the new context an empty record.
    """

    candidate: RoleModel
    roles: Mapping[str, RoleModel] = field(default_factory=dict)
    open_sandbox: Callable[[], Awaitable[Session]] | None = None
    deadline: float | None = None
    works: Callable[[], Awaitable[bool]] | None = None
    prepared: Any = None
    token_logprobs: Callable[[Sequence[Message], str], Awaitable[list[float]]] | None = None
    service: Callable[..., Awaitable[Any]] | None = None
    attempt: int = 1
    replay_reasoning: str = "none"
    opening: tuple[list[dict[str, Any]], list[dict[str, Any]] | None] | None = None
    episode: Episode = field(default_factory=Episode, init=False)
    _has_begun: bool = field(default=False, init=False, repr=False)
    """True if a model has answered. Before the first answer there is nothing to score."""

    def say(self, role: str, content: str) -> None:
        """Record a message that is sent to the candidate with the next `ask`."""
        self.episode.messages.append({"role": role, "content": content})

    async def answer(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] | None = None
    ) -> Completion:
        """Make and record the only model call of an episode, and return its answer.

        The row's timeout applies, but not the episode's deadline: at the deadline, there would be
        nothing to score. Raises the errors of `Model`."""
        self.episode.messages = [dict(message) for message in messages]
        self.episode.record_tools(tools)
        completion = await self.candidate.ask(messages, tools=tools)
        self.episode.record(completion)
        return completion

    async def ask(
        self,
        messages: Sequence[Message] | None = None,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        sampling: Sampling | None = None,
        record: bool = True,
    ) -> Completion | Truncated:
        """Return the candidate's next answer, and record it with its tokens and seconds.

        Args:
            messages: the messages to send in place of the recorded messages.
            tools: tools for the model's chat template, in OpenAI's form. If they are given, the
                answer has ``tools``, and calls in the recorded messages have ids.
            sampling: replaces the candidate's sampling.
            record: whether the answer is added to the messages. Tokens are always recorded.

        Returns:
            The answer; or `Truncated`, at the deadline or if the context is full. After
            `Truncated`, the benchmark must end the episode.

        Raises:
            PromptTooLong: the prompt does not fit the context, and no model of the episode has
                answered yet.
            EpisodeStalled: the deadline has passed, and the row cannot be scored: the candidate has
                never answered, or its engine does not pass a health check.
            RowError, EngineDead: as `Model`."""
        recorded = self.episode.messages
        self.episode.record_tools(tools)
        if messages is None:
            messages = to_chat(recorded, reasoning=self.replay_reasoning)
        try:
            async with asyncio.timeout(self.remaining_s):
                completion = await self.candidate.ask(messages, sampling, tools)
        except TimeoutError:
            return await self._truncate()
        except PromptTooLong:
            if not self._has_begun:
                raise
            return Truncated("context")
        self._has_begun = True
        if not record:
            self.episode.add_usage(completion)
            return completion
        self.episode.record(completion)
        number_calls(recorded[-1], recorded[:-1])
        return completion

    async def ask_role(
        self,
        role: str,
        messages: Sequence[Message],
        schema: Mapping[str, Any] | None = None,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        sampling: Sampling | None = None,
    ) -> Completion:
        """Return the answer of the model in ``role``. Nothing is recorded.

        Args:
            role: a role that `Benchmark.roles` names.
            messages: the messages to send.
            schema: a JSON schema for the answer, as in `RoleModel.ask`.
            tools: tools to offer, which `Benchmark.role_tools` declares. If the caller stores the
                answer, it must number the answer's calls (`number_calls`).
            sampling: replaces the role's sampling, including the row's seed in it.

        Raises:
            RowError: the model failed, or did not answer before the deadline (`EpisodeStalled`).
                Then the row is not scored.
            EngineDead: as `Model`."""
        who = f"the {_TITLES.get(role, role)}"
        try:
            async with asyncio.timeout(self.remaining_s):
                completion = await self.roles[role].ask(messages, sampling, tools, schema)
        except TimeoutError:
            raise _stalled(who) from None
        except PromptTooLong as error:
            raise PromptTooLong(f"{who}: {error}") from error
        self._has_begun = True
        return completion

    async def wait_for(self, who: str, work: Callable[[], Awaitable[_T]]) -> _T | Truncated:
        """Await ``work``, such as a request to a service, and return its value.

        ``who`` names the service in errors. If the deadline has passed before ``work`` begins,
        return `Truncated` or raise `EpisodeStalled`, as `ask` does. If the deadline passes during
        ``work``, raise `EpisodeStalled`."""
        remaining_s = self.remaining_s
        if remaining_s is not None and remaining_s <= 0:
            return await self._truncate()
        try:
            async with asyncio.timeout(remaining_s) as limit:
                return await work()
        except TimeoutError:
            if not limit.expired():
                raise  # of `work` itself
            raise _stalled(who) from None

    async def execute(self, session: Session, calls: Sequence[ToolCall]) -> list[Observation]:
        """Run ``calls`` of the last recorded answer, in order. Record and return the results."""
        observations = []
        for call in calls:
            try:
                observation = await session.call(call.name, arguments_of(call.arguments))
            except ValueError as error:
                observation = Observation(str(error), "bad_arguments")
            observations.append(observation)
        values = [observation.value for observation in observations]
        self.episode.messages += tool_messages(self.episode.messages[-1], values)
        return observations

    @asynccontextmanager
    async def sandbox(self) -> AsyncIterator[Session]:
        """Open the entry's sandbox for a ``with`` block. Raises `SandboxLost` if that fails."""
        if self.open_sandbox is None:
            raise ValueError("this episode has no sandbox")
        session = await self.open_sandbox()
        try:
            yield session
        finally:
            await session.close()

    @property
    def remaining_s(self) -> float | None:
        """Return the seconds until the deadline, negative after it; None without a deadline."""
        return None if self.deadline is None else self.deadline - asyncio.get_running_loop().time()

    async def _truncate(self) -> Truncated:
        """Return `Truncated` if the row can be scored at the deadline; else raise `EpisodeStalled`.

        The row can be scored if the candidate has answered and its engine is healthy."""
        if not self.episode.model_calls:
            raise _stalled("the candidate")
        if self.works is not None and not await self.works():
            raise EpisodeStalled(
                "the engine did not answer a health check at the episode's deadline"
            )
        return Truncated("deadline")


def _stalled(who: str) -> EpisodeStalled:
    return EpisodeStalled(f"{who} gave no answer before the episode's deadline")


def call_id(number: int) -> str:
    """Return the id of call ``number``: nine characters, which some chat templates require."""
    return f"call{number:05d}"


def number_calls(message: Message, before: Sequence[Message]) -> None:
    """Give each call of a recorded ``message`` a unique id.

    An id from an endpoint or the model is kept, unless a call in the messages ``before`` has the
    same id: some models start numbering again in every answer. An id like ``functions.NAME:0``
    then keeps its name, since Kimi's template shows the model no other name of the call."""
    earlier = [call for sent in before for call in sent.get("tool_calls", ())]
    call_ids = {call.get("id") for call in earlier}
    for number, call in enumerate(message.get("tool_calls", ()), start=len(earlier)):
        if not call.get("id") or call["id"] in call_ids:
            stem, colon, digits = (call.get("id") or "").rpartition(":")
            keeps_name = colon and digits.isdigit()
            ids = (f"{stem}:{n}" if keeps_name else call_id(n) for n in itertools.count(number))
            call["id"] = next(free for free in ids if free not in call_ids)
        call_ids.add(call["id"])


def arguments_of(text: str) -> dict[str, Any]:
    """Parse a tool call's arguments. Raises `ValueError` if ``text`` is not a JSON object."""
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError("the arguments are nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError("the arguments are not a JSON object")
    return value


def to_chat(
    messages: Sequence[Message],
    arguments: Callable[[str], dict[str, Any]] = arguments_of,
    *,
    reasoning: str = "none",
) -> list[dict[str, Any]]:
    """Return recorded messages in the form that chat templates require.

    ``arguments`` parses the arguments of calls; if it raises `ValueError`, use {} instead. A call
    without an id gets an id from its position in the message. ``reasoning`` selects the answers
    that are sent with their reasoning, as `EpisodeContext.replay_reasoning` does."""
    chat = []
    start = max((at for at, message in enumerate(messages) if message["role"] == "user"), default=0)
    for at, message in enumerate(messages):
        sent = {key: message[key] for key in _KEYS if key in message}
        replays = reasoning == "all" or (reasoning == "tool_steps" and at > start)
        if replays and message.get("reasoning"):
            sent["reasoning"] = message["reasoning"]
        if calls := message.get("tool_calls"):
            sent["tool_calls"] = [
                {
                    "id": call.get("id", call_id(number)),
                    "type": "function",
                    "function": _function(call["function"], arguments),
                }
                for number, call in enumerate(calls)
            ]
        chat.append(sent)
    return chat


def _function(call: Message, arguments: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    try:
        values = arguments(call["arguments"])
    except ValueError:
        values = {}
    return {"name": call["name"], "arguments": values}


def tool_messages(message: Message, results: Sequence[Any]) -> list[dict[str, Any]]:
    """Return the tool messages with ``results``, one per call of the assistant's ``message``.

    Results that are not strings are converted to JSON."""
    return [
        {
            "role": "tool",
            "name": call["function"]["name"],
            "tool_call_id": call.get("id", call_id(number)),
            "content": result
            if isinstance(result, str)
            else json.dumps(result, ensure_ascii=False, default=str),
        }
        for number, (call, result) in enumerate(
            zip(message.get("tool_calls", ()), results, strict=False)
        )
    ]
