"""State of an episode in progress: messages to the candidate, its calls, and the tree of nodes.
Each thought, action and action input is one node."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ace_ray.benchmarks import context
from ace_ray.benchmarks.context import EpisodeContext, Truncated, number_calls
from ace_ray.benchmarks.stabletoolbench import tools
from ace_ray.benchmarks.stabletoolbench.apis.answers import (
    object_arguments,
    observation,
    status_code,
)
from ace_ray.benchmarks.stabletoolbench.apis.sources import ApiCaller
from ace_ray.benchmarks.stabletoolbench.callable_names import FINISH, HALLUCINATED
from ace_ray.benchmarks.stabletoolbench.episode import reading
from ace_ray.benchmarks.stabletoolbench.options import MAX_CALLS, MAX_OBSERVATION, Settings
from ace_ray.benchmarks.stabletoolbench.tools import Api
from ace_ray.types import Completion, Entry, ToolCall

Kind = Literal["Thought", "Action", "Action Input"]
Message = dict[str, Any]


@dataclass(eq=False)
class Node:
    """A thought, action or action input; ``messages`` is the stored chat up to and including it.

    ``answer``: the final answer that this node or an ancestor gave, if any. ``pruned``: no step
    follows this node. ``note`` contains further fields to store (JSON values).
    """

    kind: Kind
    description: str = ""
    parent: Node | None = None
    index: int = 0
    depth: int = 0
    messages: list[Message] = field(default_factory=list)
    children: list[Node] = field(default_factory=list)
    observation: str = ""
    code: int | None = None
    answer: str | None = None
    pruned: bool = False
    note: dict[str, Any] = field(default_factory=dict)

    @property
    def is_terminal(self) -> bool:
        return self.answer is not None

    def as_json(self) -> dict[str, Any]:
        """Return ``{type, parent, depth, description, pruned, terminal}``, and ``observation`` and
        ``code`` if there are any."""
        fields: dict[str, Any] = {
            "type": self.kind,
            "parent": None if self.parent is None else self.parent.index,
            "depth": self.depth,
            "description": self.description,
            "pruned": self.pruned,
            "terminal": self.is_terminal,
        }
        if self.observation:
            fields["observation"] = self.observation
        if self.code is not None:
            fields["code"] = self.code
        return fields | self.note


def initial_messages(query: str, apis: Sequence[Api], settings: Settings) -> list[dict[str, Any]]:
    """Return the first messages of an attempt: the system message and the user message."""
    texts = settings.texts
    task = texts.task + tools.tool_lines(apis)
    system = texts.system.replace("{task_description}", task)
    if settings.is_react:
        if texts.react_after and texts.react_after in system:
            system = system.replace(texts.react_after, texts.react)
        else:
            system += texts.react
        functions = [tool["function"] for tool in tools.schemas(apis, texts)]
        system += texts.react_tools + str(functions)  # as Python prints it, as in upstream
    user = texts.user.replace("{input_description}", query)
    return [{"role": "system", "content": system}, {"role": "user", "content": user}]


def template_probe(apis: Sequence[Api], settings: Settings) -> list[dict[str, Any]]:
    """Return a short chat with every kind of message that a candidate may be sent."""
    name = apis[0].name if apis else "x"
    call_id, function = context.call_id(0), {"name": name, "arguments": "{}"}
    call = {"id": call_id, "type": "function", "function": function}
    stored = [
        *initial_messages("x", apis, settings),
        {"role": "assistant", "content": "x", "tool_calls": [call]},
        {"role": "tool", "name": name, "content": "{}", "tool_call_id": call_id},
        {"role": "assistant", "content": "x"},
    ]
    if settings.width:  # the message that asks for another action
        stored.append({"role": "user", "content": "x"})
    return sent_messages(stored, settings)


def sent_messages(
    messages: Sequence[Mapping[str, Any]], settings: Settings, reasoning: str = "none"
) -> list[dict[str, Any]]:
    """Return the stored messages as they are sent to the candidate."""
    if settings.is_react:
        return reading.react_chat(messages)
    return context.to_chat(messages, object_arguments, reasoning=reasoning)


def offered_tools(apis: Sequence[Api], settings: Settings) -> list[dict[str, Any]] | None:
    """Return the tools of the request; None in the ReAct form, whose system message lists them."""
    return None if settings.is_react else tools.schemas(apis, settings.texts)


_TRY_SEED, _CHILD_SEED = 7919, 104_729


@dataclass(frozen=True, slots=True)
class Reply:
    """The candidate's parsed reply."""

    content: str
    """Content of the stored message, and the thought."""
    calls: Sequence[ToolCall]
    note: dict[str, Any]


@dataclass
class Rollout:
    """State of an episode: its inputs, its attempts and its calls.

    ``tries`` has the nodes of each attempt in the order of their creation, the root first."""

    entry: Entry
    context: EpisodeContext
    settings: Settings
    apis: Sequence[Api]
    caller: ApiCaller
    tries: list[list[Node]] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    """API calls in order, without Finish."""
    last: Completion | None = None
    dropped_calls: int = 0

    def __post_init__(self) -> None:
        self._tools = offered_tools(self.apis, self.settings)

    def open(self) -> Node:
        """Open a new attempt at the query, and return its root."""
        messages = initial_messages(self.entry.data["query"], self.apis, self.settings)
        self.tries.append([Node("Action Input", messages=messages)])
        return self.tries[-1][0]

    def _add(self, parent: Node, kind: Kind, description: str) -> Node:
        """Add a child of ``parent``, with a copy of its chat."""
        nodes = self.tries[-1]
        node = Node(
            kind,
            description,
            parent,
            index=len(nodes),
            depth=parent.depth + 1,
            messages=list(parent.messages),
            answer=parent.answer,
        )
        parent.children.append(node)
        nodes.append(node)
        return node

    async def ask(self, messages: Sequence[Message], child: int = 0) -> Reply | None:
        """Return the candidate's reply to ``messages``, or None if they do not fit the context.

        None ends this chain, but not the episode. ``child`` is the number of earlier replies at the
        same node, which changes the seed. Raises `Truncated` at the deadline, and `RowError` for a
        failure that the candidate did not cause."""
        drawn = self.context.candidate.sampling
        offset = _TRY_SEED * (len(self.tries) - 1) + _CHILD_SEED * child
        completion = await self.context.ask(
            sent_messages(messages, self.settings, self.context.replay_reasoning),
            tools=self._tools,
            sampling=replace(drawn, seed=drawn.seed + offset),
            record=False,
        )
        if isinstance(completion, Truncated):
            if completion.reason == "context":
                return None
            raise completion
        self.last = completion
        note: dict[str, Any] = {
            "finish_reason": completion.finish_reason,
            "tokens": completion.prompt_tokens + completion.completion_tokens,
        }
        if completion.reasoning:
            note["reasoning"] = completion.reasoning
        if self.settings.is_react:
            return Reply(*reading.read_react(completion.text), note)
        if completion.tools is None:
            raise ValueError("tool calls in the completion were not parsed")
        answer = completion.tools
        if answer.error:
            note["tool_parser_error"] = answer.error
        self.dropped_calls += max(0, len(answer.calls) - MAX_CALLS)
        return Reply(answer.content, answer.calls[:MAX_CALLS], note)

    async def grow(self, node: Node, reply: Reply) -> Node:
        """Add the reply's nodes below ``node``, make its calls, and return the last node.

        Calls that follow a Finish in the same reply are made, too, as in upstream."""
        message: Message = {"role": "assistant", "content": reply.content}
        if reasoning := reply.note.get("reasoning"):
            message["reasoning"] = reasoning
        first = len(self.tries[-1])
        # An empty reply adds a thought, too: without a new node the chain would never end.
        if reply.content or not reply.calls:
            node = self._add(node, "Thought", reply.content)
        if not reply.calls:
            node.messages.append(message)
        else:
            message["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for call in reply.calls
            ]
            number_calls(message, node.messages)
        for number, call in enumerate(reply.calls):
            node = await self._act(node, call)
            tool_call = message["tool_calls"][number]
            function = tool_call["function"]
            if node.code == tools.UNKNOWN:
                function["name"] = HALLUCINATED
            if number == 0:
                node.messages.append(message)
            result = {"role": "tool", "name": function["name"], "content": node.observation}
            node.messages.append(result | {"tool_call_id": tool_call["id"]})
        self.tries[-1][first].note |= reply.note
        return node

    async def _act(self, node: Node, call: ToolCall) -> Node:
        node = self._add(node, "Action", call.name)
        node = self._add(node, "Action Input", call.arguments)
        if call.name == FINISH:
            end = reading.read_finish(call.arguments, self.settings.texts)
            text, node.code = end.observation, end.code
            if end.code == reading.ANSWERED:
                node.answer = node.note["answer"] = end.answer
        else:
            text, node.code = await self._call(node, call)
        node.pruned = node.code == reading.GAVE_UP
        cut = len(text) > MAX_OBSERVATION
        node.observation = text[:MAX_OBSERVATION] + "..." if cut else text
        return node

    async def _call(self, node: Node, call: ToolCall) -> tuple[str, int]:
        api = tools.find(self.apis, call.name, exact=self.settings.exact_names)
        record = tools.call_record(call.name, api, call.arguments)
        if api is None:
            name = json.dumps(call.name)[1:-1]  # for use inside a JSON string
            outcome = self.settings.texts.no_function.replace("{name}", name), tools.UNKNOWN
            record |= {"code": tools.UNKNOWN, "source": "none", "error": tools.UNKNOWN_FUNCTION}
        else:
            answered = await self.context.wait_for(
                "an API", lambda: self.caller.call(api, call.arguments)
            )
            if isinstance(answered, Truncated):
                raise answered
            outcome = observation(answered), status_code(answered.error)
            record |= {"code": outcome[1], "source": answered.source, "error": answered.error}
            record |= {"origin": answered.origin, "failure": answered.failure}
            if answered.schema_refused:
                record["schema_refused"] = answered.schema_refused
            node.note["source"] = answered.source
        self.calls.append(record | {"try": len(self.tries) - 1, "node": node.index})
        return outcome
