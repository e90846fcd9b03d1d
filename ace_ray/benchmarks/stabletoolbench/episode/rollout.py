"""State of an episode in progress: messages to the candidate, its calls, and the tree of nodes.
Each thought, action and action input is one node."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

from ace_ray.benchmarks import context
from ace_ray.benchmarks.context import EpisodeContext, Truncated, number_calls
from ace_ray.benchmarks.stabletoolbench.apis.answers import (
    Answered,
    observation,
    shown_arguments,
    status_code,
)
from ace_ray.benchmarks.stabletoolbench.episode.reading import (
    ANSWERED,
    GAVE_UP,
    react_chat,
    read_finish,
    read_react,
    system_text,
)
from ace_ray.benchmarks.stabletoolbench.names import FINISH, HALLUCINATED
from ace_ray.benchmarks.stabletoolbench.options import MAX_CALLS, MAX_OBSERVATION, Settings
from ace_ray.benchmarks.stabletoolbench.tools import (
    UNKNOWN,
    UNKNOWN_FUNCTION,
    Api,
    call_record,
    find,
    schemas,
    tool_lines,
)
from ace_ray.types import Completion, Entry, ToolCall

Kind = Literal["Thought", "Action", "Action Input"]
Message = dict[str, Any]


@dataclass(eq=False)
class Node:
    """A thought, action or action input; ``messages`` is the stored chat up to and including it.

    ``terminal``: this node or an ancestor gave an answer. ``pruned``: no step follows it.
    ``note`` contains further fields to store (JSON values).
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
    terminal: bool = False
    pruned: bool = False
    note: dict[str, Any] = field(default_factory=dict)

    def path(self) -> Iterator[Node]:
        """Yield this node and its ancestors without the root."""
        node = self
        while node.parent is not None:
            yield node
            node = node.parent

    def as_json(self) -> dict[str, Any]:
        """Return ``{type, parent, depth, description, pruned, terminal}``, and ``observation`` and
        ``code`` if there are any."""
        fields: dict[str, Any] = {
            "type": self.kind,
            "parent": None if self.parent is None else self.parent.index,
            "depth": self.depth,
            "description": self.description,
            "pruned": self.pruned,
            "terminal": self.terminal,
        }
        if self.observation:
            fields["observation"] = self.observation
        if self.code is not None:
            fields["code"] = self.code
        return fields | self.note


class Tree:
    """All nodes of one attempt in the order of their creation; the root is the first."""

    def __init__(self, initial_messages: list[Message]) -> None:
        self.root = Node("Action Input", messages=initial_messages)
        self.nodes = [self.root]

    def add(self, parent: Node, kind: Kind, description: str) -> Node:
        """Add a child of ``parent``, with a copy of its chat."""
        node = Node(
            kind,
            description,
            parent,
            index=len(self.nodes),
            depth=parent.depth + 1,
            messages=list(parent.messages),
            terminal=parent.terminal,
        )
        parent.children.append(node)
        self.nodes.append(node)
        return node

    def as_json(self) -> list[dict[str, Any]]:
        return [node.as_json() for node in self.nodes]


def initial_messages(query: str, apis: Sequence[Api], settings: Settings) -> list[dict[str, Any]]:
    """Return the first messages of an attempt: the system message and the user message."""
    texts = settings.texts
    task = texts.task + tool_lines(apis)
    system = texts.system.replace("{task_description}", task)
    if settings.form == "react":
        system = system_text(system, schemas(apis, texts), texts)
    user = texts.user.replace("{input_description}", query)
    return [{"role": "system", "content": system}, {"role": "user", "content": user}]


def template_probe(apis: Sequence[Api], settings: Settings) -> list[dict[str, Any]]:
    """Return a short chat with every kind of message that a candidate may be sent."""
    name = apis[0].name if apis else "x"
    call = {"id": context.call_id(0), "type": "function"}
    function = {"name": name, "arguments": "{}"}
    seen = {"role": "tool", "name": name, "content": "{}", "tool_call_id": call["id"]}
    stored = [
        *initial_messages("x", apis, settings),
        {"role": "assistant", "content": "x", "tool_calls": [call | {"function": function}]},
        seen,
        {"role": "assistant", "content": "x"},
    ]
    if settings.width:  # the message that asks for another action
        stored.append({"role": "user", "content": "x"})
    return as_sent(stored, settings)


def as_sent(
    messages: Sequence[Mapping[str, Any]], settings: Settings, reasoning: str = "none"
) -> list[dict[str, Any]]:
    """Return the stored messages as they are sent to the candidate."""
    if settings.form == "react":
        return react_chat(messages)
    return context.as_sent(messages, shown_arguments, reasoning=reasoning)


def offered(apis: Sequence[Api], settings: Settings) -> list[dict[str, Any]] | None:
    """Return the tools of the request; None in the ReAct form, whose system message lists them."""
    if settings.form == "react":
        return None
    return schemas(apis, settings.texts)


_TRY_SEED, _CHILD_SEED = 7919, 104_729


class Caller(Protocol):
    """Answers the agent's API calls. ``arguments`` is the model's text, which is not checked."""

    async def call(self, api: Api, arguments: Mapping[str, Any] | str) -> Answered: ...


@dataclass(frozen=True, slots=True)
class Reply:
    """The candidate's parsed reply."""

    content: str
    """Content of the stored message."""
    thought: str
    calls: Sequence[ToolCall]
    note: dict[str, Any]


@dataclass
class Rollout:
    """State of an episode: its inputs, its attempts (``trees``) and its calls."""

    entry: Entry
    context: EpisodeContext
    settings: Settings
    apis: Sequence[Api]
    caller: Caller
    trees: list[Tree] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    """API calls in order, without Finish."""
    last: Completion | None = None
    dropped_calls: int = 0

    def __post_init__(self) -> None:
        self._tools = offered(self.apis, self.settings)

    def open(self) -> Tree:
        """Open a new attempt at the query."""
        self.trees.append(
            Tree(initial_messages(self.entry.data["query"], self.apis, self.settings))
        )
        return self.trees[-1]

    @property
    def spent(self) -> bool:
        """True if the episode has reached its maximum number of model calls."""
        return self.context.episode.model_calls >= self.settings.max_queries

    async def ask(self, messages: Sequence[Message], child: int = 0) -> Reply | None:
        """Return the candidate's reply to ``messages``, or None if they do not fit the context.

        None ends this chain, but not the episode. ``child`` is the number of earlier replies at the
        same node, which changes the seed. Raises `Truncated` at the deadline, and `RowError` for a
        failure that the candidate did not cause."""
        drawn = self.context.candidate.sampling
        offset = _TRY_SEED * (len(self.trees) - 1) + _CHILD_SEED * child
        completion = await self.context.ask(
            as_sent(messages, self.settings, self.context.replay_reasoning),
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
        if self.settings.form == "react":
            thought, calls = read_react(completion.text)
            return Reply(completion.text, thought, calls, note)
        if completion.tools is None:
            raise ValueError("tool calls in the completion were not parsed")
        answer = completion.tools
        if answer.error:
            note["tool_parser_error"] = answer.error
        self.dropped_calls += max(0, len(answer.calls) - MAX_CALLS)
        return Reply(answer.content, answer.content, answer.calls[:MAX_CALLS], note)

    async def grow(self, tree: Tree, node: Node, reply: Reply) -> Node:
        """Add the reply's nodes below ``node``, make its calls, and return the last node.

        Calls that follow a Finish in the same reply are made, too, as in upstream."""
        message: Message = {"role": "assistant", "content": reply.content}
        if reasoning := reply.note.get("reasoning"):
            message["reasoning"] = reasoning
        first = len(tree.nodes)
        # An empty reply adds a thought, too: without a new node the chain would never end.
        if reply.thought or not reply.calls:
            node = tree.add(node, "Thought", reply.thought)
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
            node = await self._act(tree, node, call)
            made = message["tool_calls"][number]
            if node.code == UNKNOWN:
                made["function"]["name"] = HALLUCINATED
            if number == 0:
                node.messages.append(message)
            node.messages.append(
                {
                    "role": "tool",
                    "name": made["function"]["name"],
                    "content": node.observation,
                    "tool_call_id": made["id"],
                }
            )
        tree.nodes[first].note |= reply.note
        return node

    async def _act(self, tree: Tree, node: Node, call: ToolCall) -> Node:
        node = tree.add(node, "Action", call.name)
        node = tree.add(node, "Action Input", call.arguments)
        if call.name == FINISH:
            end = read_finish(call.arguments, self.settings.texts)
            seen, node.code = end.observation, end.code
            if end.code == ANSWERED:
                node.terminal = True
                node.note["answer"] = end.answer
        else:
            seen, node.code = await self._call(tree, node, call)
        node.pruned = node.code == GAVE_UP
        cut = len(seen) > MAX_OBSERVATION
        node.observation = seen[:MAX_OBSERVATION] + "..." if cut else seen
        return node

    async def _call(self, tree: Tree, node: Node, call: ToolCall) -> tuple[str, int]:
        api = find(self.apis, call.name, exact=self.settings.exact_names)
        made = call_record(call.name, api, call.arguments)
        if api is None:
            name = json.dumps(call.name)[1:-1]  # for use inside a JSON string
            outcome = self.settings.texts.no_function.replace("{name}", name), UNKNOWN
            made |= {"code": UNKNOWN, "source": "none", "error": UNKNOWN_FUNCTION}
        else:
            answered = await self.context.wait_for(
                "an API", lambda: self.caller.call(api, call.arguments)
            )
            if isinstance(answered, Truncated):
                raise answered
            outcome = observation(answered), status_code(answered.error)
            made |= {"code": outcome[1], "source": answered.source, "error": answered.error}
            made |= {"origin": answered.origin, "failure": answered.failure}
            if answered.schema_refused:
                made["schema_refused"] = answered.schema_refused
            node.note["source"] = answered.source
        self.calls.append(made | {"try": len(self.trees) - 1, "node": node.index})
        return outcome
