"""A checkout in upstream's layout, with sentences of our own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ace_ray.benchmarks.stabletoolbench.names import GROUPS

SOURCES = {
    "toolbench/inference/Prompts/ReAct_prompts.py": '''
FORMAT_INSTRUCTIONS_SYSTEM_FUNCTION = """Do it with calls.
Here: {task_description}"""
FORMAT_INSTRUCTIONS_USER_FUNCTION = """
>{input_description}<
"""
''',
    "toolbench/inference/Prompts/Tree_search_prompts.py": """
DIVERSITY_PROMPT = \'\'\'You did {previous_candidate} Do else.\'\'\'
""",
    "toolbench/inference/Downstream_tasks/rapidapi_multithread.py": """
import os
os.abort()
class wrapper:
    def __init__(self):
        finish_func = {"type": "function", "function": {"name": "Finish",
            "description": "The end.", "parameters": {"type": "object", "properties": {
                "return_type": {"type": "string"},
                "final_answer": {"type": "string", "description": "What they read."}}}}}
        self.task_description = f\'\'\'Use \\"Finish\\" at last.
Tools:\\n\'\'\'
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
    "toolbench/inference/Algorithms/DFS.py": """
text = text + f"again, your former look: {node.observation}\\n"
""",
    "toolbench/utils.py": """
import torch
def process_system_message(system_message, functions):
    assert "with calls." in system_message
    system_message = system_message.replace("with calls.", "with calls. So:\\nThought:\\nAction:")
    return system_message + "\\nThe functions: " + str(functions)
""",
    "server/system_prompts.py": "SYSTEM = 'x'\n",
}


def api(tool: str = "Bakery", name: str = "Find bread", **fields: Any) -> dict[str, Any]:
    return {
        "category_name": "Food",
        "tool_name": tool,
        "api_name": name,
        "api_description": "Finds bread",
        "required_parameters": [
            {"name": "id", "type": "NUMBER", "description": "which", "default": "3"}
        ],
        "optional_parameters": [],
        "method": "GET",
        "template_response": {"bread": "str"},
    } | fields


def query(row_id: Any = 1, **fields: Any) -> dict[str, Any]:
    return {
        "query_id": row_id,
        "query": "Which bread?",
        "relevant APIs": [["Bakery", "Find bread"], ["Bakery", "Find bread"]],
        "api_list": [api()],
    } | fields


def write(path: Path, value: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return path


def queries_file(root: Path, group: str) -> Path:
    return root / "solvable_queries" / "test_instruction" / f"{group}.json"


def ids_file(root: Path, group: str) -> Path:
    return root / "solvable_queries" / "test_query_ids" / f"{group}.json"


def write_checkout(root: Path, *, sources: bool = True, licence: bool = True) -> Path:
    """All six groups with one query each, ids 0 to 5."""
    for number, group in enumerate(GROUPS):
        write(queries_file(root, group), [query(number)])
        write(ids_file(root, group), {str(number): 0})
    for name, text in SOURCES.items() if sources else ():
        write(root / name, text)
    if licence:
        write(root / "LICENSE", "of our own\n")
    return root
