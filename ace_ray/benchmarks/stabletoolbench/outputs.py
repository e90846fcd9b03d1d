"""Read answers of other programs, and convert them to the episodes that a run would have stored.

Upstream (``tooleval/convert_to_answer_format.py``) writes answers to ``<model>/<group>.json``:
``{query id: {"query", "available_tools", "answer"}}`` (see `converted`). Its judge
(``eval_pass_rate.py``) writes votes to ``<group>_<model>.json``; ``is_solved`` of a query is
``{number of the vote: "AnswerStatus.Solved"}``. If a file of votes is in the folder of the answers,
its votes are used. Otherwise the episodes are not judged.

``answer_details`` is a tree of thoughts and calls. Calls are read from all branches. Judges and
messages get upstream's chain, the first child of each node.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ace_ray.benchmarks import external_outputs
from ace_ray.benchmarks.dataset import Row
from ace_ray.benchmarks.external_outputs import Entries, Output, Placed
from ace_ray.benchmarks.stabletoolbench import answer_trees, tools
from ace_ray.benchmarks.stabletoolbench.answer_trees import Node
from ace_ray.benchmarks.stabletoolbench.apis.answers import status_code
from ace_ray.benchmarks.stabletoolbench.callable_names import (
    FINISH,
    GROUPS,
    HALLUCINATED,
    standardize,
)
from ace_ray.benchmarks.stabletoolbench.judge.measures import POINTS
from ace_ray.benchmarks.stabletoolbench.tools import Api
from ace_ray.errors import UserError
from ace_ray.types import Entry, Episode

MAX_VOTES = 100
_STATUS = "AnswerStatus."
_ERROR = '{"error": '
_VOTES_FIX = "give upstream's votes on these answers (eval_pass_rate.py), or remove the file"
_RESULT_FILE = re.compile(rb'(?:\xef\xbb\xbf)?\s*\{\s*"(?:metadata|summary|results)"\s*:')
_RESULT_FIX = "give results: [{query_id, system_answer: {final_answer, answer_details}}]"


def read_outputs(path: Path, entries: Entries) -> Iterator[Output]:
    """Yield the outputs at ``path``.

    ``path`` is a folder of converted answers (``<group>.json``), one such file, a result file
    (`result_json`), or JSON lines with ``id``, ``output`` (a final or a converted answer) and
    optionally ``sample``. Raises `UserError` if an answer is invalid, if its query differs from the
    query in the data, or if it has no votes although its group has a file of votes."""
    return external_outputs.unique_outputs(_outputs(path, entries), path)


def _outputs(path: Path, entries: Entries) -> Iterator[Placed]:
    if path.is_file() and path.name not in [f"{group}.json" for group in GROUPS]:
        if _is_result_file(path):
            yield from _results(path, entries)
        else:
            yield from external_outputs.read_json_lines(path, entries, _line_episode)
        return
    if not path.exists():
        raise UserError("no such file or folder", where=str(path), fix="name the outputs to score")
    files = [path] if path.is_file() else [path / f"{group}.json" for group in GROUPS]
    files = [file for file in files if file.is_file()]
    if not files:
        fix = f"name a folder of converted answers, with {GROUPS[0]}.json or others like it"
        raise UserError("contains no <group>.json", where=str(path), fix=fix)
    for file in files:
        votes = _read_votes(file)
        for query_id, tree, location in answer_trees.converted_answers(file):
            entry = entries.find(query_id, location, category=file.stem)
            if votes is not None and query_id not in votes:
                problem = "has no votes, but other queries of its group have votes"
                fix = "judge this query, too, or remove the file of votes"
                raise UserError(problem, where=location, fix=fix)
            statuses = None if votes is None else votes[query_id]
            yield location, Output(entry, 0, _episode(entry, tree, statuses, location))


def _is_result_file(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return bool(_RESULT_FILE.match(file.read(1000)))
    except OSError:
        return False  # the reader of JSON lines names the error


def _results(path: Path, entries: Entries) -> Iterator[Placed]:
    """Yield a result file's answers; several of one query are samples. Scores are not used."""
    results = answer_trees.json_object(path, _RESULT_FIX).get("results")
    if not isinstance(results, list):
        raise UserError("contains no list of results", where=str(path), fix=_RESULT_FIX)
    samples: Counter[str] = Counter()
    for number, result in enumerate(results):
        location = f"{path}, result {number}"
        row = result if isinstance(result, dict) else {}
        entry = entries.find(external_outputs.text_of(row, "query_id", location), location)
        answer = row.get("system_answer")
        if not answer_trees.is_answer(answer):
            raise UserError("has no answer (system_answer)", where=location, fix=_RESULT_FIX)
        query = row.get("query_text", entry.data["query"])
        episode = _episode(entry, {"query": query, "answer": answer}, None, location)
        yield location, Output(entry, samples[entry.id], episode)
        samples[entry.id] += 1


def _read_votes(file: Path) -> dict[str, list[str]] | None:
    """Return the votes on a group's answers by query id, None if the file of votes is missing."""
    files = sorted(file.parent.glob(f"{file.stem}_*.json"))
    if not files:
        return None
    if len(files) > 1:
        problem = f"contains two files of votes on {file.name}: {files[0].name} and {files[1].name}"
        raise UserError(problem, where=str(file.parent), fix="remove one of them")
    votes = {}
    for query_id, row in answer_trees.json_object(files[0], _VOTES_FIX).items():
        location = f"{files[0]}, query {query_id:.60}"
        statuses = row.get("is_solved") if isinstance(row, dict) else None
        if not isinstance(statuses, dict) or not 0 < len(statuses) <= MAX_VOTES:
            raise UserError("has no votes (is_solved)", where=location, fix=_VOTES_FIX)
        # The keys are the numbers of the votes, without leading zeros.
        numbers = sorted(statuses, key=lambda number: (len(number), number))
        votes[query_id] = [_status(statuses[number], location) for number in numbers]
    return votes


def _status(value: Any, location: str) -> str:
    status = value.removeprefix(_STATUS) if isinstance(value, str) else value
    if not isinstance(status, str) or status not in POINTS:
        problem = f"a vote is {external_outputs.quote(value)}, not a status"
        raise UserError(problem, where=location, fix=_VOTES_FIX)
    return status


def _line_episode(entry: Entry, row: Row, location: str) -> Episode:
    value = external_outputs.value_of(row, "output", location)
    if isinstance(value, Mapping):
        return _episode(entry, value if "answer" in value else {"answer": value}, None, location)
    if value is not None and not isinstance(value, str):
        quoted = external_outputs.quote(value)
        problem = f"the output is {quoted}, not a string, a converted answer or null"
        raise UserError(problem, where=location)
    no_answer: dict[str, Any] = {"final_answer": "", "answer_details": answer_trees.link_nodes([])}
    answer = no_answer if value is None else answer_trees.answer_of_text(value)
    return _episode(entry, {"answer": answer}, None, location)


def _episode(entry: Entry, tree: Any, votes: Sequence[str] | None, location: str) -> Episode:
    """Return the episode of a converted answer, with the state that a run would have stored."""
    answer = answer_trees.answer_of(tree, location)
    query = entry.data["query"]
    text = tree.get("query", query)
    if not isinstance(text, str) or text.split() != query.split():
        raise UserError(
            f"the query is {external_outputs.quote(text)}, but in the data it is "
            f"{external_outputs.quote(query)}",
            where=location,
            fix="give the data that these answers were made with",
        )
    nodes = _nodes(answer_trees.walk_chain(answer))
    final, method = answer["final_answer"], str(answer.get("method", ""))[:100]
    branches = _nodes(answer_trees.walk_graph(answer))
    judged = None if votes is None else [{"status": v, "reason": "", "steps": []} for v in votes]
    return Episode(
        messages=_messages(query, nodes),
        output=answer_trees.final_text(final),
        state={
            "run": None,
            "answer": answer_trees.converted_answer(query, method, nodes, final),
            "calls": _calls(branches, tools.apis_of(entry), _offered_names(tree)),
            "votes": judged,
            "fac": None,
            "sowr": None,
        },
    )


def _nodes(steps: Iterable[Mapping[str, Any]]) -> list[Node]:
    """Return a node for each thought and call among ``steps``, with all values as strings."""
    nodes = []
    for step in steps:
        if step.get("role") == "assistant":
            nodes.append(answer_trees.node("assistant", _text(step.get("message"))))
        elif (message := answer_trees.tool_message(step)) is not None:
            texts = [_text(message.get(key)) for key in ("name", "arguments", "response")]
            nodes.append(answer_trees.tool_node(*texts))
    return nodes


def _messages(query: str, nodes: Sequence[Node]) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": query}]
    for step in nodes:
        if step["role"] == "assistant":
            messages.append({"role": "assistant", "content": step["message"]})
            continue
        name, arguments, response = step["message"].values()
        calls = [{"type": "function", "function": {"name": name, "arguments": arguments}}]
        messages.append({"role": "assistant", "content": "", "tool_calls": calls})
        if name != FINISH:
            messages.append({"role": "tool", "name": name, "content": response})
    return messages


def _calls(
    nodes: Sequence[Node], apis: Sequence[Api], offered: frozenset[str]
) -> list[dict[str, Any]]:
    """Return the calls as a run stores them, with the source "none". A function is unknown if it is
    neither an API of the query nor in ``offered``: upstream can offer further functions. Other
    frameworks call the query's APIs ``<tool>_<api>`` or ``<tool>.<api>``."""
    calls = []
    messages = [step["message"] for step in nodes if step["role"] == "tool"]
    names = {api.name: api for api in reversed(apis)}
    has_pool = not offered <= {*names, FINISH}  # then only exact names reach an API
    names |= {tools.unique_name(api.doc): api for api in apis}
    documented = {standardize(f"{api.doc['tool']}_{api.doc['api']}"): api for api in reversed(apis)}
    for name, arguments, response in (message.values() for message in messages):
        if name == FINISH:
            continue
        api = None if has_pool else tools.find(apis, name)
        api = api or names.get(name) or documented.get(standardize(name))
        api = None if name == HALLUCINATED else api
        error = _error(response)
        code = status_code(error)
        if api is None and name not in offered:
            error, code = tools.UNKNOWN_FUNCTION, tools.UNKNOWN
        outcome = {"code": code, "source": "none", "error": error}
        calls.append(tools.call_record(name, api, arguments) | outcome)
    return calls


def _offered_names(tree: Mapping[str, Any]) -> frozenset[str]:
    """Return the function names in ``available_tools``, whichever upstream version wrote them."""
    listed = tree.get("available_tools")
    listed = listed if isinstance(listed, list) else ()
    functions = [tool.get("function", tool) for tool in listed if isinstance(tool, Mapping)]
    names = [function.get("name") for function in functions if isinstance(function, Mapping)]
    return frozenset(name for name in names if isinstance(name, str))


def _error(response: str) -> str:
    """Return the error in an observation, or "". The observation may have been cut."""
    error = None
    if response.startswith(_ERROR):
        with suppress(ValueError, RecursionError):
            error, _ = json.JSONDecoder().raw_decode(response, len(_ERROR))
    return error if isinstance(error, str) else ""


def _text(value: Any) -> str:
    return "" if value is None else answer_trees.plain_text(value, ensure_ascii=True)
