"""Prompt texts of the agent: ace_ray's wording, or upstream's wording from a checkout.

Slots are in braces and filled with `str.replace`, because the values come from data and models. The
words that parsers and answers depend on (``Thought:``, ``Action:``, ``Action Input:``, ``Finish``,
``return_type``, ``give_answer``, ``give_up_and_restart``) are upstream's.

Official texts are read as constants from the files in `SOURCES`; no code is executed.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from ace_ray.benchmarks.dataset import assigned_text, python_source
from ace_ray.errors import UserError
from ace_ray.types import digest


@dataclass(frozen=True, slots=True)
class Texts:
    """All sentences of the agent's prompts, without queries, tools and API answers."""

    source: str
    """Author of the texts: ``own`` (ace_ray) or ``upstream``."""
    system: str
    """System message with the slot ``{task_description}``."""
    user: str
    """User message with the slot ``{input_description}`` for the query."""
    task: str
    """Beginning of the task description; a line for each tool follows."""
    function: str
    function_says: str
    """``function`` and ``function_says`` are the two parts of a function's description. Their slots
    are ``{tool}`` and ``{description}``."""
    finish: str
    finish_answer: str
    """``finish`` describes Finish; ``finish_answer`` describes its parameter ``final_answer``."""
    diversity: str
    last_observation: str
    """``diversity`` lists earlier actions in ``{previous_candidate}``, and asks for another one.
    ``last_observation`` ends that list; its slot is ``{observation}``."""
    react_after: str
    """Sentence of ``system`` that is replaced by ``react``; if "", ``react`` follows ``system``."""
    react: str
    """Rules of the ReAct form."""
    react_tools: str
    """Beginning of the list of functions in the ReAct form."""
    no_function: str
    """Observation after a call of an unknown function ``{name}``."""
    no_return_type: str
    no_final_answer: str
    bad_return_type: str
    """These three texts are observations after an invalid call of Finish."""
    gave_up: str
    answered: str
    """These two texts are observations after a valid call of Finish."""

    def sha256(self) -> str:
        return digest(asdict(self))


# The texts that ship with ace_ray.
OWN = Texts(
    source="own",
    system="""\
You solve a task for a user with the help of functions that call web APIs.
Work in rounds. In each round write down briefly (five sentences at most) what the situation is \
and what you will do, and then call a function. You are shown what it returned, and the next round \
begins. Go on until you can answer, then hand your answer over.
- What a call has changed stays changed; to begin anew you have to give up and restart.
- A plan with several attempts may take several rounds, one attempt each.
{task_description}""",
    user="{input_description}",
    task="""\
The task: answer a user's request with the functions below.
- Every piece of work ends with a call of Finish. The user sees nothing but its final_answer, \
so put all that they asked for in there. If the request cannot be met, or the functions keep \
failing, call Finish with return_type give_up_and_restart.
- Call functions by their full names; the names of tools alone cannot be called.
The tools that the functions belong to:
""",
    function='A function of the tool "{tool}". ',
    function_says='It is described as: "{description}"',
    finish="""\
Ends the work. Call it with return_type give_answer and the complete final_answer once you can \
answer the request: the user is shown that text only. Call it with return_type \
give_up_and_restart when there is no way forward from here.""",
    finish_answer="The answer for the user; needed when return_type is give_answer.",
    diversity="""\
You were at this point before, and what you did then did not lead to an answer. These were your \
actions here:
{previous_candidate}
Think about why they failed, and do something that differs from every one of them.""",
    last_observation="The observation that had led you here: {observation}\n",
    react_after="",
    # Small models copy the form up to its last line, so it must end with "Observation".
    react="""
Write every round in exactly this form:
Thought: what the situation is and what you will do
Action: the full name of one function, and nothing else
Action Input: its arguments as a JSON object
Observation: what the function returned; it is given to you
""",
    react_tools="\nThe functions, with their parameters: ",
    no_function='{"error": "there is no function {name}", "response": ""}',
    no_return_type='{"error": "Finish needs return_type"}',
    no_final_answer='{"error": "return_type give_answer needs final_answer"}',
    bad_return_type='{"error": "return_type is neither give_answer nor give_up_and_restart"}',
    gave_up='{"response": "the attempt was given up"}',
    answered='{"response": "the answer was handed over"}',
)


_INFERENCE = "toolbench/inference"
REACT_PROMPTS = f"{_INFERENCE}/Prompts/ReAct_prompts.py"
TREE_PROMPTS = f"{_INFERENCE}/Prompts/Tree_search_prompts.py"
ENVIRONMENT = f"{_INFERENCE}/Downstream_tasks/rapidapi_multithread.py"
SEARCH = f"{_INFERENCE}/Algorithms/DFS.py"
UTILS = "toolbench/utils.py"
# Files with the texts, relative to a checkout.
SOURCES = (REACT_PROMPTS, TREE_PROMPTS, ENVIRONMENT, SEARCH, UTILS)

_FIX = "name an unmodified checkout of StableToolBench"


def read_texts(root: Path) -> Texts:
    """Read upstream's texts from ``root``, a checkout or an import. Raises `UserError`."""
    prompts, tree = _parse(root, REACT_PROMPTS), _parse(root, TREE_PROMPTS)
    environment, utils = _parse(root, ENVIRONMENT), _parse(root, UTILS)
    finish = _finish(environment, root)
    observations = _observations(environment, root)
    react = [
        text
        for text in _texts(_function(utils, "process_system_message", root / UTILS))
        if " " in text
    ]
    if len(react) < 4:
        raise _missing("the ReAct form", root / UTILS)
    values = {
        "system": _constant(prompts, "FORMAT_INSTRUCTIONS_SYSTEM_FUNCTION", root / REACT_PROMPTS),
        "user": _constant(prompts, "FORMAT_INSTRUCTIONS_USER_FUNCTION", root / REACT_PROMPTS),
        "diversity": _constant(tree, "DIVERSITY_PROMPT", root / TREE_PROMPTS),
        "task": _assigned_to(environment, "self.task_description", root),
        "function": _template(environment, "This is the subfunction", "{tool}", root),
        "function_says": _template(
            environment, "The description of this function", "{description}", root
        ),
        "finish": finish["description"],
        "finish_answer": finish["final_answer"],
        "last_observation": _template(
            _parse(root, SEARCH), "again, your former", "{observation}", root
        ),
        "react_after": react[1],
        "react": react[2],
        "react_tools": react[3],
        **observations,
    }
    return Texts(source="upstream", **values)


def _parse(root: Path, relative: str) -> ast.Module:
    return python_source(root, relative, _FIX)


def _constant(tree: ast.Module, name: str, where: Path) -> str:
    text = assigned_text(tree, name)
    if text is None:
        raise _missing(name, where)
    return text


def _function(tree: ast.Module, name: str, where: Path) -> ast.FunctionDef:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return node
    raise _missing(name, where)


def _texts(tree: ast.AST) -> list[str]:
    """Return the string constants of ``tree`` in the order of the source."""
    constants = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    constants.sort(key=lambda node: (node.lineno, node.col_offset))
    return [str(node.value) for node in constants]


def _fill(formatted: ast.JoinedStr, placeholder: str) -> str:
    return "".join(
        str(part.value) if isinstance(part, ast.Constant) else placeholder
        for part in formatted.values
    )


def _assigned_to(tree: ast.Module, target: str, root: Path) -> str:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == target:
            if isinstance(node.value, ast.JoinedStr):
                return _fill(node.value, "")
            if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
                return node.value.value
    raise _missing(target, root / ENVIRONMENT)


def _template(tree: ast.Module, opening: str, placeholder: str, root: Path) -> str:
    """Return the f-string that begins with ``opening``; ``placeholder`` replaces expressions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr) and (text := _fill(node, placeholder)).startswith(
            opening
        ):
            return text
    raise _missing(f"the text that begins with {opening!r}", root)


def _finish(tree: ast.Module, root: Path) -> dict[str, str]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Dict):
            continue
        if ast.unparse(node.targets[0]) != "finish_func":
            continue
        try:
            function = ast.literal_eval(node.value)["function"]
            answer = function["parameters"]["properties"]["final_answer"]
            return {"description": function["description"], "final_answer": answer["description"]}
        except (ValueError, TypeError, KeyError, RecursionError, MemoryError):
            break
    raise _missing("the function Finish", root / ENVIRONMENT)


def _observations(tree: ast.Module, root: Path) -> dict[str, str]:
    """Return the observations in ``_step`` for Finish and for functions that do not exist."""
    by_code: dict[int, list[ast.expr]] = {}
    for text, code in _returns(_function(tree, "_step", root / ENVIRONMENT)):
        by_code.setdefault(code, []).append(text)
    names: dict[int, tuple[str, ...]] = {
        2: ("no_return_type", "no_final_answer", "bad_return_type"),
        3: ("answered",),
        4: ("gave_up",),
    }
    texts: dict[str, str] = {}
    for code, keys in names.items():
        values = [
            node.value
            for node in by_code.get(code, [])
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        ]
        if len(values) != len(keys):
            raise _missing("the observations of Finish", root / ENVIRONMENT)
        texts |= dict(zip(keys, values, strict=True))
    for node in by_code.get(1, []):
        for part in ast.walk(node):
            if isinstance(part, ast.JoinedStr):
                texts["no_function"] = json.dumps({"error": _fill(part, "{name}"), "response": ""})
    if "no_function" not in texts:
        raise _missing("the observation of a missing function", root / ENVIRONMENT)
    return texts


def _returns(function: ast.FunctionDef) -> Iterator[tuple[ast.expr, int]]:
    """Yield (text, code) of each ``return text, code``, in the order of the source."""
    nodes = [node for node in ast.walk(function) if isinstance(node, ast.Return)]
    for node in sorted(nodes, key=lambda node: node.lineno):
        if isinstance(node.value, ast.Tuple) and len(node.value.elts) == 2:
            text, code = node.value.elts
            if isinstance(code, ast.Constant) and isinstance(code.value, int):
                yield text, code.value


def _missing(what: str, where: Path) -> UserError:
    return UserError(f"{what} is missing", where=str(where), fix=_FIX)
