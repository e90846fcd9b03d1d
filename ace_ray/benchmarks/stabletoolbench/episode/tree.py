"""Chains and trees of what an agent did, one node for each thought, action and action input."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["Thought", "Action", "Action Input"]
Message = dict[str, Any]

ANSWERED, GAVE_UP = 3, 4
"""Upstream's status codes of Finish; 1 is a function that does not exist, 2 a bad Finish."""


@dataclass(eq=False)
class Node:
    """A node; ``messages`` is the chat up to and with it, as it is stored.

    ``terminal``: an answer was given here or above. ``pruned``: nothing is tried below. ``note``
    holds what else is worth storing (JSON values).
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
        """This node and its ancestors, the root not among them."""
        node = self
        while node.parent is not None:
            yield node
            node = node.parent

    def as_json(self) -> dict[str, Any]:
        """``{type, parent, depth, description, pruned, terminal}``, and ``observation``
        and ``code`` where there are any."""
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
    """All nodes of one attempt in the order in which they came to be; the root is the first."""

    def __init__(self, initial_messages: list[Message]) -> None:
        self.root = Node("Action Input", messages=initial_messages)
        self.nodes = [self.root]

    def add(self, parent: Node, kind: Kind, description: str) -> Node:
        """A new child of ``parent``, with a copy of its chat."""
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
