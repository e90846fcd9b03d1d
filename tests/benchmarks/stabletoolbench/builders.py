"""Queries, scripted agents, episodes and checkouts, with sentences of our own."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ace_ray.benchmarks.context import EpisodeContext, RoleModel
from ace_ray.benchmarks.stabletoolbench.answer_trees import convert_run
from ace_ray.benchmarks.stabletoolbench.apis.answers import ApiAnswer, Source
from ace_ray.benchmarks.stabletoolbench.apis.sources import ApiCaller
from ace_ray.benchmarks.stabletoolbench.callable_names import GROUPS
from ace_ray.benchmarks.stabletoolbench.episode.run import AgentSolution, run_agent
from ace_ray.benchmarks.stabletoolbench.options import Options, Settings
from ace_ray.benchmarks.stabletoolbench.tools import apis_of, schemas
from ace_ray.types import Entry, Sampling
from tests.scripted_model import Call, ScriptedModel, say

QUERY = "Which bread, and where?"
GIVE_UP: Call = ("Finish", {"return_type": "give_up_and_restart"})


def role_of(
    model: ScriptedModel, sampling: Sampling | None = None, /, **identity: Any
) -> RoleModel:
    return RoleModel(model, sampling or Sampling(temperature=0.1, seed=42), identity)


def answer(text: str) -> Call:
    return ("Finish", {"return_type": "give_answer", "final_answer": text})


def parameter(name: str, kind: str = "STRING", default: Any = "") -> dict[str, Any]:
    return {"name": name, "type": kind, "description": f"the {name}", "default": default}


def doc(tool: str, api: str, **fields: Any) -> dict[str, Any]:
    """Make an API as entries hold it."""
    base_fields = {"category": "Food", "tool": tool, "api": api, "description": f"What {api} does"}
    base_fields |= {"tool_description": "", "method": "GET", "url": ""}
    return {**base_fields, "template": None, "required": [parameter("q")], "optional": []} | fields


def entry_of(
    *docs: dict[str, Any],
    query: str = "Which bread?",
    row_id: str = "7",
    relevant: Sequence[Sequence[str]] = (),
) -> Entry:
    data, gold = {"query": query, "apis": list(docs)}, {"relevant": relevant}
    return Entry("stabletoolbench", "G1_tool", "en", row_id, data, gold, row_id)


def entry(row_id: str = "7", relevant: Sequence[Sequence[str]] | None = None) -> Entry:
    docs = (doc("Bakery Finder", api, tool_description="All of it") for api in ("Breads", "Shops"))
    gold = [["Bakery Finder", "Breads"]] if relevant is None else relevant
    return entry_of(*docs, query=QUERY, row_id=row_id, relevant=gold)


CLIQUE = doc(
    "Clique",
    "Player Details",
    category="News, Media",
    description="Details of a player.",
    tool_description="All about sports.",
    required=[parameter("Player ID", default="1")],
    optional=[parameter("from", "DATE")],
    template={"name": "str", "goals": "int"},
)
(API,) = apis_of(entry_of(CLIQUE))
BREAD = entry_of(doc("Bakery", "Find bread"), doc("Bakery", "List shops", required=[]))
ENTRY = entry()
TOOLS = schemas(apis_of(ENTRY))
BREADS, SHOPS = (api.name for api in apis_of(ENTRY))


class Table(ApiCaller):
    """APIs that answer with what ``answers`` has under their name, else with their arguments."""

    def __init__(self, source: Source = "simulator", **answers: ApiAnswer) -> None:
        super().__init__()
        self.source, self.answers = source, answers
        self.calls: list[tuple[str, Any]] = []

    async def call(self, api: Any, arguments: Any) -> ApiAnswer:
        self.calls.append((api.name, arguments))
        return self.answers.get(api.std_api) or ApiAnswer("", {"you sent": arguments}, self.source)


def play(
    model: Any,
    *,
    entry: Entry = BREAD,
    caller: Any = None,
    deadline_s: float | None = None,
    works: Any = None,
    **settings: Any,
) -> AgentSolution:
    """Run an episode of a scripted agent."""
    parsed_settings = Settings(Options(**settings))

    async def episode() -> AgentSolution:
        clock = asyncio.get_running_loop().time()
        deadline = None if deadline_s is None else clock + deadline_s
        context = EpisodeContext(RoleModel(model, Sampling(seed=5)), deadline=deadline, works=works)
        return await run_agent(entry, context, parsed_settings, apis_of(entry), caller or Table())

    agent_run = asyncio.run(episode())
    json.dumps(asdict(agent_run), allow_nan=False)
    return agent_run


Said = tuple[str | None, list[Call]]


def run(script: Sequence[Said], method: str = "CoT@1", **settings: Any) -> dict[str, Any]:
    """Return the run, as JSON, of an agent that says this; the last reply again and again."""
    model = ScriptedModel(*[say(text or "", *calls) for text, calls in script])
    options = {"method": method, "max_steps": 12, "max_queries": 20, **settings}
    agent_run = play(model, entry=ENTRY, caller=Table("cache"), **options)
    run_json: dict[str, Any] = json.loads(json.dumps(asdict(agent_run)))
    return run_json


def state(script: Sequence[Said], votes: Sequence[str] | None = ("Solved",)) -> dict[str, Any]:
    """Return an episode's state, with the votes that a judge might have given."""
    run_json = run(script)
    judged = None if votes is None else [{"status": s, "reason": "", "steps": []} for s in votes]
    fields = {"run": run_json, "answer": convert_run(QUERY, run_json), "calls": run_json["calls"]}
    return fields | {"votes": judged, "fac": None, "sowr": None}


SCRIPTS: dict[str, list[Said]] = {
    "answered": [
        ("I look.", [(BREADS, {"q": "rye"})]),
        (None, [(SHOPS, {"q": "here"}), (BREADS, {"q": "wheat"})]),
        ("Now I know.", []),
        (None, [answer("Rye, at the “Mill”.")]),
    ],
    "beside": [("Both at once.", [(BREADS, {"q": "rye"}), answer("Rye.")])],
    "hallucinated": [(None, [("oven", {})]), (None, [answer("None.")])],
    "hopeless": [("Still looking.", [(BREADS, {"q": "rye"})])],
    "gave_up": [(None, [(BREADS, "no JSON")]), ("No.", [GIVE_UP])],
    "talks": [("Bread is good.", [])],
    "bad_finish": [(None, [("Finish", "{")])],
}
SOURCES = {
    "toolbench/inference/Prompts/ReAct_prompts.py": """
FORMAT_INSTRUCTIONS_SYSTEM_FUNCTION = "Do it with calls.\\nHere: {task_description}"
FORMAT_INSTRUCTIONS_USER_FUNCTION = "\\n>{input_description}<\\n"
""",
    "toolbench/inference/Prompts/Tree_search_prompts.py": "DIVERSITY_PROMPT = 'Do else.'\n",
    "toolbench/inference/Downstream_tasks/rapidapi_multithread.py": """
import os
os.abort()
class wrapper:
    def __init__(self):
        finish_func = {"type": "function", "function": {"name": "Finish", "description": "The end.",
            "parameters": {"properties": {"final_answer": {"description": "What they read."}}}}}
        self.task_description = f"Use \\"Finish\\" at last.\\nTools:\\n"
    def to_json(self, name, what):
        a = f"This is the subfunction of {name}."
        b = f"The description of this function says {what}."
    def _step(self, action_name="", action_input=""):
        if a:
            return "no type", 2
        if b:
            return "given up", 4
        elif c:
            if d:
                return "no answer", 2
            return "thanks", 3
        else:
            return "odd type", 2
        return json.dumps({"error": f"Timeout", "response": ""}), 5
        return json.dumps(response), status_code
        return json.dumps({"error": f"Nothing called {action_name}", "response": ""}), 1
""",
    "toolbench/inference/Algorithms/DFS.py": 'f"again, your former look: {node.observation}\\n"\n',
    "toolbench/utils.py": """
import torch
def process_system_message(system_message, functions):
    assert "with calls." in system_message
    system_message = system_message.replace("with calls.", "with calls. So:\\nThought:\\nAction:")
    return system_message + "\\nThe functions: " + str(functions)
""",
    "server/system_prompts.py": "SYSTEM = 'x'\n",
}


def api(**fields: Any) -> dict[str, Any]:
    base_fields: Any = {"category_name": "Food", "tool_name": "Bakery", "api_name": "Find bread"}
    required = [{"name": "id", "type": "NUMBER", "description": "which", "default": "3"}]
    base_fields |= {"api_description": "Finds bread", "template_response": {"bread": "str"}}
    return base_fields | {"required_parameters": required, "optional_parameters": []} | fields


def query(row_id: Any = 1, **fields: Any) -> dict[str, Any]:
    base_fields = {"query_id": row_id, "query": "Which bread?", "api_list": [api()]}
    return base_fields | {"relevant APIs": [["Bakery", "Find bread"]] * 2} | fields


def write(path: Path, value: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return path


def queries_file(root: Path, group: str) -> Path:
    return root / "solvable_queries" / "test_instruction" / f"{group}.json"


def ids_file(root: Path, group: str) -> Path:
    return root / "solvable_queries" / "test_query_ids" / f"{group}.json"


def write_checkout(root: Path, *, sources: bool = True) -> Path:
    """Write six groups of one query each, ids 0 to 5."""
    for number, group in enumerate(GROUPS):
        write(queries_file(root, group), [query(number)])
        write(ids_file(root, group), {str(number): 0})
    for name, text in SOURCES.items() if sources else ():
        write(root / name, text)
    write(root / "LICENSE", "of our own\n")
    return root
