"""Our official multi-turn verdicts against upstream's checker, on conversations near every key.

``python tests/parity/bfcl_multi_turn.py --data installed --per-entry 12 [--seed S]`` prints the
counts as a Markdown table, then what differs; exit code 1 when a verdict or an error type does.
Upstream evaluates the texts of the cases in a process of its own (`bfcl_child`); they hold literals
and calls of tools only.
"""

import argparse
import ast
import json
import random
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from unicodedata import normalize

from official import answers_of
from report import Found
from variations import CHANGES, VALUES, Args, NotHere, source, value_changed

from ace_ray.benchmarks.bfcl.categories import MULTI_TURN
from ace_ray.benchmarks.bfcl.check.conversations import check_multi_turn
from ace_ray.benchmarks.bfcl.data.loader import function_docs, load
from ace_ray.benchmarks.bfcl.data.upstream_package import UpstreamPackage
from ace_ray.benchmarks.bfcl.decode.calls import Answer
from ace_ray.benchmarks.bfcl.tools.environment import Docs
from ace_ray.benchmarks.bfcl.tools.sources import ToolSources, tool_sources
from ace_ray.errors import UserError
from ace_ray.types import Entry, Verdict

COLUMNS = ("entries", "cases", "valid", "equal")
Turns = list[list[list[str] | None]]
"""The steps of each turn, as decoded; None stands for a step without calls."""
Rng = random.Random
_CHANGES = [change for name, change in CHANGES.items() if name != "arguments spread"]
"""No decoder of upstream's makes a text with ``**``."""


def turns_of(entry: Entry, docs: Docs, rng: Rng) -> Turns:
    """Make a conversation near the key of an entry."""
    turns: Turns = [[list(turn)] if turn else [] for turn in entry.gold]
    functions = [doc for name in entry.data["involved_classes"] for doc in docs[name]]
    bare_entry = replace(entry, data={"function": functions})
    for _ in range(rng.choice([0, 1, 1, 1, 2])):
        change = rng.choice(_CONVERSATIONS) if rng.random() < 0.4 else _changed_step
        change(turns, bare_entry, rng)
    return turns


def _step(turns: Turns, rng: Rng) -> list[str]:
    """A step with calls; a new one where there is none."""
    steps = [step for turn in turns for step in turn if step]
    return rng.choice(steps) if steps else []


def _changed_step(turns: Turns, entry: Entry, rng: Rng) -> None:
    """Change values, names, arguments, order or number of one step's calls, or one call's text."""
    step = _step(turns, rng)
    parsed = [(text, _parsed(text)) for text in step]
    calls = [call for _, call in parsed if call is not None]
    try:
        if rng.random() < 0.15 and step:
            index = rng.randrange(len(step))
            step[index] = rng.choice(_SYNTAX)(step[index])
            return
        if rng.random() < 0.5:
            calls = rng.choice(_CHANGES)(calls, entry, rng)
        else:
            change = rng.choice(list(VALUES.values()))
            calls = value_changed(calls, change, rng, inside=rng.random() < 0.2)
    except NotHere:
        return
    # As decoders do.
    step[:] = [source([(normalize("NFKC", name), args)])[1:-1] for name, args in calls]


def _parsed(text: str) -> tuple[str, Args] | None:
    try:
        tree = ast.parse(text, mode="eval").body
        assert isinstance(tree, ast.Call)
        args = [(str(keyword.arg), ast.literal_eval(keyword.value)) for keyword in tree.keywords]
        return ast.unparse(tree.func), [("", ast.literal_eval(arg)) for arg in tree.args] + args
    except (AssertionError, SyntaxError, ValueError):
        return None


def _added(call: Callable[[Sequence[Mapping[str, Any]], Rng], str]) -> Callable[..., None]:
    def change(turns: Turns, entry: Entry, rng: Rng) -> None:
        text, turn = call(entry.data["function"], rng), rng.choice(turns or [[]])
        steps = [step for step in turn if step]
        if not steps or rng.random() < 0.3:
            turn.insert(rng.randint(0, len(turn)), [text])
        else:
            step = rng.choice(steps)
            step.insert(rng.randint(0, len(step)), text)

    return change


def _any_call(docs: Sequence[Mapping[str, Any]], rng: Rng) -> str:
    doc = rng.choice(docs)
    inner = rng.choice(["{}()", "[{}()]", "({}(), 1)"]).format(rng.choice(docs)["name"])
    values = ["'report.txt'", "'x'", "0", "12446", "1.5", "True", "[1, 2]", "{'a': 1}", inner]
    required = doc["parameters"].get("required", [])
    return f"{doc['name']}({', '.join(f'{name}={rng.choice(values)}' for name in required)})"


def _unknown(docs: Sequence[Mapping[str, Any]], rng: Rng) -> str:
    names = (
        "no_such_tool GorillaFileSystem.ls math.sqrt os.remove exit a.run self.cd ls.x a.b.unlink"
    )
    arguments = rng.choice(["", "x=1", "folder='a'", "x=ls()", "x=nan"])
    return f"{rng.choice(names.split())}({arguments})"


def _moved(turns: Turns, entry: Entry, rng: Rng) -> None:
    if len(turns) > 1:
        index = rng.randrange(len(turns) - 1)
        start, target = rng.choice([(index, index + 1), (index + 1, index)])
        step = turns[start][0] if turns[start] else None
        if step:
            turns[target].insert(0, [step.pop(0)])


def _every_call_alone(turns: Turns, entry: Entry, rng: Rng) -> None:
    for turn in turns:
        turn[:] = [[text] for step in turn if step for text in step]


def _talk(turns: Turns, entry: Entry, rng: Rng) -> None:
    """Add steps that are no calls."""
    for turn in turns:
        turn.insert(rng.randint(0, len(turn)), rng.choice([None, [], [""]]))


_CONVERSATIONS: list[Callable[[Turns, Entry, Rng], Any]] = [
    _added(_any_call),
    _added(_any_call),
    _added(_unknown),
    _moved,
    _every_call_alone,
    _talk,
    lambda turns, entry, rng: turns and turns.__setitem__(rng.randrange(len(turns)), []),
    lambda turns, entry, rng: turns.__delitem__(slice(rng.randint(0, len(turns)), None)),
    lambda turns, entry, rng: turns.append(rng.choice([[["ls()"]], []])),
]
_SYNTAX: list[Callable[[str], str]] = [
    lambda text: text[:-1],
    lambda text: f" {text} ",
    lambda text: text.replace("(", "((", 1),
    lambda text: text.replace("(", " (", 1),
    lambda text: f"x = {text}",
    lambda text: f"{text}; ls()",
    lambda text: text.replace("='", "=b'", 1),
    # Tools' names and spaces before brackets in string arguments.
    lambda text: re.sub(r"'\)$", " ls (x)')", text),
    lambda text: re.sub(r"'\)$", " (z)')", text),
]


def upstream(
    copy: UpstreamPackage, case_lists: Sequence[tuple[Entry, Sequence[Turns]]]
) -> list[Any]:
    """Return upstream's verdicts on the cases of each entry."""
    lines = [
        {"entry": {"id": e.id, **e.data}, "gold": e.gold, "cases": cases} for e, cases in case_lists
    ]
    request = "bfcl_child.py", [copy.root.parent, "conversations"], lines
    return answers_of(*request, "BFCL_PROJECT_ROOT")


def verdict_of(entry: Entry, turns: Turns, sources: ToolSources, docs: Docs) -> Verdict:
    answers = [[Answer(json.dumps(step)) for step in turn] for turn in turns]
    return check_multi_turn(entry, answers, "", sources, docs, executable=_executable)["official"]


def _executable(answer: Answer) -> list[str] | None:
    step: list[str] | None = json.loads(answer.text or "null")
    return step if step and step != [""] else None


def compare(copy: UpstreamPackage, per_entry: int, seed: int = 0) -> Found:
    docs, sources, report = function_docs(copy), tool_sources(copy), Found()
    for category in MULTI_TURN:
        case_lists: list[tuple[Entry, list[Turns]]] = []
        for entry in load(copy, [category]):
            rng = Rng(f"{seed}:{entry.id}")
            case_lists.append((entry, [turns_of(entry, docs, rng) for _ in range(per_entry)]))
        for (entry, cases), answers in zip(case_lists, upstream(copy, case_lists), strict=True):
            report.count(category, entries=1)
            for turns, theirs in zip(cases, answers, strict=True):
                verdict = verdict_of(entry, turns, sources, docs)
                ours = [verdict.valid, verdict.error_type]
                report.count(category, cases=1, valid=theirs[0], equal=ours == theirs)
                report.answers[theirs[1] or "valid"] += 1
                if ours != theirs:
                    text = f"{entry.id} ours {ours} upstream {theirs} {verdict.error}"
                    report.differences.append(f"{text}\n  {str(turns)[:1500]}")
    return report


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="installed")
    parser.add_argument("--per-entry", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    try:
        copy = UpstreamPackage.locate(options.data)
    except UserError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return compare(copy, options.per_entry, options.seed).print(COLUMNS)


if __name__ == "__main__":
    sys.exit(main())
