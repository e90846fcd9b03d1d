"""A scripted candidate, APIs that answer from a table, and entries made by hand."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ace_ray.benchmarks.stabletoolbench.apis.answers import Answered
from ace_ray.types import Completion, Entry, Sampling, ToolAnswer, ToolCall


def doc(tool: str, api: str, **fields: Any) -> dict[str, Any]:
    """An API as entries hold it."""
    given = {
        "category": "Food",
        "tool": tool,
        "api": api,
        "description": f"What {api} does",
        "tool_description": "",
        "method": "GET",
        "url": "",
        "required": [parameter("q")],
        "optional": [],
        "template": None,
    }
    return given | fields


def parameter(name: str, kind: str = "STRING", default: Any = "") -> dict[str, Any]:
    return {"name": name, "type": kind, "description": f"the {name}", "default": default}


def entry_of(*docs: dict[str, Any], query: str = "Which bread?", row_id: str = "7") -> Entry:
    data = {"query": query, "apis": list(docs)}
    return Entry("stabletoolbench", "G1_tool", "en", row_id, data, {"relevant": []}, row_id)


def say(content: str, *calls: tuple[str, Any]) -> ToolAnswer:
    """A native reply; arguments that are no text are written as JSON."""
    made = tuple(
        ToolCall(name, given if isinstance(given, str) else json.dumps(given))
        for name, given in calls
    )
    return ToolAnswer(content, made)


def answer(text: str) -> tuple[str, dict[str, str]]:
    return ("Finish", {"return_type": "give_answer", "final_answer": text})


GIVE_UP = ("Finish", {"return_type": "give_up_and_restart"})


class Scripted:
    """Says one thing after another, and the last one for ever; an exception is raised.

    ``chats`` keeps what it was sent, ``seeds`` with which seed.
    """

    def __init__(self, *script: ToolAnswer | str | Exception) -> None:
        self.script = script
        self.chats: list[list[dict[str, Any]]] = []
        self.tools: list[Any] = []
        self.seeds: list[int] = []

    async def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        sampling: Sampling,
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> Completion:
        said = self.script[min(len(self.chats), len(self.script) - 1)]
        self.chats.append(json.loads(json.dumps(messages)))
        self.tools.append(tools)
        self.seeds.append(sampling.seed)
        if isinstance(said, Exception):
            raise said
        if isinstance(said, str):
            return Completion(said, prompt_tokens=10, completion_tokens=2)
        return Completion("(raw)", prompt_tokens=10, completion_tokens=2, tools=said)


class Table:
    """APIs that answer with what ``answers`` has under their name, else with their arguments."""

    def __init__(self, **answers: Answered) -> None:
        self.answers = answers
        self.calls: list[tuple[str, Any]] = []

    async def call(self, api: Any, arguments: Any) -> Answered:
        self.calls.append((api.name, arguments))
        return self.answers.get(api.std_api) or Answered("", {"you sent": arguments}, "simulator")


BREAD = entry_of(doc("Bakery", "Find bread"), doc("Bakery", "List shops", required=[]))
