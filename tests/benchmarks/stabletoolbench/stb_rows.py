"""Runs of a scripted agent, and rows, for the tests of results and scores."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from ace_ray.benchmarks.context import EpisodeContext, RoleModel
from ace_ray.benchmarks.stabletoolbench.apis.answers import Answered
from ace_ray.benchmarks.stabletoolbench.converted import converted
from ace_ray.benchmarks.stabletoolbench.episode.run import run_agent
from ace_ray.benchmarks.stabletoolbench.options import Settings
from ace_ray.benchmarks.stabletoolbench.tools import apis_of, schemas
from ace_ray.types import Entry, Sampling
from tests.benchmarks.stabletoolbench.scripted_agent import doc
from tests.scripted_model import ScriptedModel, say

QUERY = "Which bread, and where?"


def _doc(api: str) -> dict[str, Any]:
    return doc("Bakery Finder", api, tool_description="All about bread")


def entry(row_id: str = "7", relevant: Sequence[Sequence[str]] | None = None) -> Entry:
    gold = [["Bakery Finder", "Breads"]] if relevant is None else relevant
    data = {"query": QUERY, "apis": [_doc("Breads"), _doc("Shops")]}
    return Entry("stabletoolbench", "G1_tool", "en", row_id, data, {"relevant": gold}, row_id)


ENTRY = entry()
APIS = apis_of(ENTRY)
TOOLS = schemas(APIS)
BREADS, SHOPS = (api.name for api in APIS)

Call = tuple[str, Any]
Said = tuple[str | None, list[Call]]


def finish(text: str) -> Call:
    return "Finish", {"return_type": "give_answer", "final_answer": text}


GIVE_UP: Call = ("Finish", {"return_type": "give_up_and_restart"})


class _Caller:
    async def call(self, api: Any, arguments: Any) -> Answered:
        return Answered("", {"api": api.api, "given": str(arguments)}, "cache")


def run(script: Sequence[Said], method: str = "CoT@1", **settings: Any) -> dict[str, Any]:
    """The run, as JSON, of an agent that says this; the last reply again and again."""
    context = EpisodeContext(
        RoleModel(ScriptedModel(*[say(text or "", *calls) for text, calls in script]), Sampling())
    )
    given = Settings(method=method, **{"max_steps": 12, "max_queries": 20, **settings})
    made = asyncio.run(run_agent(ENTRY, context, given, APIS, _Caller()))
    found: dict[str, Any] = json.loads(json.dumps(made.as_json()))
    return found


def state(script: Sequence[Said], votes: Sequence[str] | None = ("Solved",)) -> dict[str, Any]:
    """An episode's state, with the votes that a judge might have given."""
    made = run(script)
    judged = None if votes is None else [{"status": s, "reason": "", "steps": []} for s in votes]
    return {
        "run": made,
        "answer": converted(QUERY, TOOLS, made),
        "calls": made["calls"],
        "votes": judged,
        "fac": None,
        "sowr": None,
    }


SCRIPTS: dict[str, list[Said]] = {
    "answered": [
        ("I look.", [(BREADS, {"q": "rye"})]),
        (None, [(SHOPS, {"q": "here"}), (BREADS, {"q": "wheat"})]),
        ("Now I know.", []),
        (None, [finish("Rye, at the “Mill”.")]),
    ],
    "beside": [("Both at once.", [(BREADS, {"q": "rye"}), finish("Rye.")])],
    "hallucinated": [(None, [("oven", {})]), (None, [finish("None.")])],
    "hopeless": [("Still looking.", [(BREADS, {"q": "rye"})])],
    "gave_up": [(None, [(BREADS, "no JSON")]), ("No.", [GIVE_UP])],
    "talks": [("Bread is good.", [])],
    "bad_finish": [(None, [("Finish", "{")])],
}
