"""Replies of a candidate, APIs that answer from a table, and entries made by hand."""

from __future__ import annotations

from typing import Any

from ace_ray.benchmarks.stabletoolbench.apis.answers import Answered
from ace_ray.types import Entry


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


def answer(text: str) -> tuple[str, dict[str, str]]:
    return ("Finish", {"return_type": "give_answer", "final_answer": text})


GIVE_UP = ("Finish", {"return_type": "give_up_and_restart"})


class Table:
    """APIs that answer with what ``answers`` has under their name, else with their arguments."""

    def __init__(self, **answers: Answered) -> None:
        self.answers = answers
        self.calls: list[tuple[str, Any]] = []

    async def call(self, api: Any, arguments: Any) -> Answered:
        self.calls.append((api.name, arguments))
        return self.answers.get(api.std_api) or Answered("", {"you sent": arguments}, "simulator")


BREAD = entry_of(doc("Bakery", "Find bread"), doc("Bakery", "List shops", required=[]))
