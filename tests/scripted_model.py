"""A chat model that gives the replies of a test and keeps the requests."""

import asyncio
import copy
import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ace_ray.types import Completion, Sampling, ToolAnswer, ToolCall

Call = tuple[str, Any]
"""A name, and arguments: an object, or a text for arguments that are not JSON."""
Reply = str | Exception | Completion | ToolAnswer | Call | Callable[["Request"], Any]
"""A text, an exception to raise, an answer, one call, or a function of the request (it may wait)
that returns one of these."""


@dataclass(frozen=True)
class Request:
    messages: list[dict[str, Any]]
    sampling: Sampling
    tools: Sequence[Mapping[str, Any]] | None

    @property
    def prompt(self) -> str:
        """Content of the last message."""
        return str(self.messages[-1]["content"])


class ScriptedModel:
    """Gives its replies in order, then the last one for ever. Each takes 10 and 2 tokens."""

    def __init__(self, *replies: Reply) -> None:
        self.replies = replies
        self.requests: list[Request] = []

    @property
    def chats(self) -> list[list[dict[str, Any]]]:
        """Messages of each request."""
        return [request.messages for request in self.requests]

    async def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        sampling: Sampling,
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> Completion:
        request = Request(copy.deepcopy([dict(message) for message in messages]), sampling, tools)
        self.requests.append(request)
        reply: Any = self.replies[min(len(self.requests), len(self.replies)) - 1]
        await asyncio.sleep(0)
        if callable(reply):
            reply = reply(request)
            reply = await reply if inspect.isawaitable(reply) else reply
        if isinstance(reply, Exception):
            raise reply
        if isinstance(reply, Completion):
            return reply
        if isinstance(reply, tuple):
            reply = say("", reply)
        answer = ToolAnswer(reply) if isinstance(reply, str) else reply
        text = "<call>" if answer.calls and not answer.content else answer.content
        read = None if tools is None else answer
        return Completion(text, prompt_tokens=10, completion_tokens=2, seconds=0.5, tools=read)


def say(text: str, *calls: Call) -> ToolAnswer:
    """Make an answer with calls."""
    tool_calls = (
        ToolCall(name, arguments if isinstance(arguments, str) else json.dumps(arguments))
        for name, arguments in calls
    )
    return ToolAnswer(text, tuple(tool_calls))


async def hang(_: Request) -> str:
    """Never reply."""
    await asyncio.Event().wait()
    raise AssertionError
