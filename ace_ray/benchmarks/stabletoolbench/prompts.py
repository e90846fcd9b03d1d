"""Prompt texts of the agent: ace_ray's wording, or upstream's wording from a checkout.

Slots are in braces and filled with `str.replace`, because the values come from data and models. The
words that parsers and answers depend on (``Thought:``, ``Action:``, ``Action Input:``, ``Finish``,
``return_type``, ``give_answer``, ``give_up_and_restart``) are upstream's.

Official texts are read as constants from the files in `SOURCES`; no code is executed.
"""

from __future__ import annotations

import ast
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from ace_ray.benchmarks.dataset import assigned_text, parse_python
from ace_ray.errors import UserError
from ace_ray.types import digest

_T = TypeVar("_T")


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

# Texts of Finish by upstream's status code.
_FINISH_TEXTS = {
    2: ("no_return_type", "no_final_answer", "bad_return_type"),
    3: ("answered",),
    4: ("gave_up",),
}
_FIX = "name an unmodified checkout of StableToolBench"


def read_texts(root: Path) -> Texts:
    """Read upstream's texts from ``root``, a checkout. Raises `UserError` if a text is missing."""
    prompts, tree, environment, search, utils = (
        parse_python(root, source, _FIX) for source in SOURCES
    )
    in_environment = root / ENVIRONMENT
    function = _function(utils, "process_system_message", root / UTILS)
    constants = [node for node in ast.walk(function) if isinstance(node, ast.Constant)]
    constants.sort(key=lambda node: (node.lineno, node.col_offset))
    react = [c.value for c in constants if isinstance(c.value, str) and " " in c.value]
    if len(react) < 4:
        raise _missing_error("the ReAct form", root / UTILS)
    system, user = (
        _first([assigned_text(prompts, name)], name, root / REACT_PROMPTS)
        for name in ("FORMAT_INSTRUCTIONS_SYSTEM_FUNCTION", "FORMAT_INSTRUCTIONS_USER_FUNCTION")
    )
    diversity = [assigned_text(tree, "DIVERSITY_PROMPT")]
    finish = map(_finish_texts, _assigned_values(environment, "finish_func"))
    task = map(_text, _assigned_values(environment, "self.task_description"))
    described = "The description of this function"
    return Texts(
        source="upstream",
        system=system,
        user=user,
        diversity=_first(diversity, "DIVERSITY_PROMPT", root / TREE_PROMPTS),
        task=_first(task, "self.task_description", in_environment),
        function=_template(environment, "This is the subfunction", "{tool}", root),
        function_says=_template(environment, described, "{description}", root),
        last_observation=_template(search, "again, your former", "{observation}", root),
        react_after=react[1],
        react=react[2],
        react_tools=react[3],
        **_first(finish, "the function Finish", in_environment),
        **_observations(_function(environment, "_step", in_environment), in_environment),
    )


def _first(values: Iterable[_T | None], subject: str, path: Path) -> _T:
    """Return the first value that is not None. Raises `UserError` about ``subject`` if all are."""
    for value in values:
        if value is not None:
            return value
    raise _missing_error(subject, path)


def _missing_error(subject: str, path: Path) -> UserError:
    return UserError(f"{subject} is missing", where=str(path), fix=_FIX)


def _function(tree: ast.Module, name: str, path: Path) -> ast.FunctionDef:
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    return _first((node for node in functions if node.name == name), name, path)


def _assigned_values(tree: ast.Module, target: str) -> Iterator[ast.expr]:
    """Yield the values that are assigned to ``target`` anywhere in ``tree``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == target:
            yield node.value


def _text(node: ast.AST, placeholder: str = "") -> str | None:
    """Return the text of a string or f-string, with ``placeholder`` for expressions, or None."""
    if isinstance(node, ast.JoinedStr):
        parts = map(_text, node.values)
        return "".join(placeholder if part is None else part for part in parts)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def _template(tree: ast.Module, opening: str, placeholder: str, root: Path) -> str:
    """Return the f-string that begins with ``opening``; ``placeholder`` replaces expressions."""
    formatted = (node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr))
    texts = (_text(node, placeholder) or "" for node in formatted)
    fitting = (text for text in texts if text.startswith(opening))
    return _first(fitting, f"the text that begins with {opening!r}", root)


def _finish_texts(node: ast.expr) -> dict[str, str] | None:
    """Return the texts of Finish from its schema; None if ``node`` is not its schema."""
    try:
        function = ast.literal_eval(node)["function"]
        answer = function["parameters"]["properties"]["final_answer"]
        return {"finish": function["description"], "finish_answer": answer["description"]}
    except (ValueError, TypeError, KeyError, RecursionError, MemoryError):
        return None


def _observations(step: ast.FunctionDef, path: Path) -> dict[str, str]:
    """Return the observations in ``_step`` for Finish and for functions that do not exist.

    Its statements are ``return text, code``; texts of one code are in the source's order."""
    by_code: dict[Any, list[ast.expr]] = defaultdict(list)
    returns = [node for node in ast.walk(step) if isinstance(node, ast.Return)]
    for node in sorted(returns, key=lambda node: node.lineno):
        if isinstance(node.value, ast.Tuple) and len(node.value.elts) == 2:
            text, status = node.value.elts
            if isinstance(status, ast.Constant):
                by_code[status.value].append(text)
    texts: dict[str, str] = {}
    for code, keys in _FINISH_TEXTS.items():
        values = [text for text in map(_text, by_code[code]) if text is not None]
        if len(values) != len(keys):
            raise _missing_error("the observations of Finish", path)
        texts |= dict(zip(keys, values, strict=True))
    parts = (part for node in by_code[1] for part in ast.walk(node))
    unknown = (_text(part, "{name}") for part in parts if isinstance(part, ast.JoinedStr))
    error = _first(unknown, "the observation of a missing function", path)
    return {**texts, "no_function": json.dumps({"error": error, "response": ""})}
