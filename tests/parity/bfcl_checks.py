"""Our official rules against upstream's BFCL evaluator, on variations of every gold answer.

``python tests/parity/bfcl_checks.py --bfcl PACKAGE --python PYTHON --count N [--noise N]
[--seed S]``

PACKAGE is the folder ``bfcl_eval``; PYTHON one that has what upstream's decoders import:
``tree_sitter==0.21.3 tree-sitter-java==0.21.0 tree-sitter-javascript==0.21.4 tenacity filelock``.
Upstream runs in a process of its own (`bfcl_child`), which evaluates operations on literals
at most. Prints counts as a Markdown table, then differences; exit code 1 when there is any.
"""

import argparse
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import bfcl_variations as vary
from official import answers_of
from report import Found
from variations import Calls

from ace_ray.benchmarks.bfcl import categories
from ace_ray.benchmarks.bfcl.check.conversations import check_agentic
from ace_ray.benchmarks.bfcl.check.single import check_single
from ace_ray.benchmarks.bfcl.decode import executable_calls
from ace_ray.benchmarks.bfcl.decode.calls import Answer
from ace_ray.types import Entry, ToolCall

_LINES = 4_000
COLUMNS = ("outputs", "judged", "valid", "equal", "crash", "refused")


class Case(NamedTuple):
    """One output for one entry. ``sent`` is the output in upstream's shape."""

    kind: str
    entry: Entry
    form: categories.Form
    native: bool
    sent: Any
    answers: list[Answer]


def entries(package: Path) -> list[Entry]:
    """Return all single-turn entries as upstream publishes them."""
    entry_list = []
    for category in categories.SINGLE_TURN:
        golds = rows_of(package / f"data/possible_answer/BFCL_v4_{category}.json")
        for index, row in enumerate(rows_of(package / f"data/BFCL_v4_{category}.json")):
            gold = golds[index]["ground_truth"] if golds else None
            data = {"function": row["function"]}
            entry_list.append(Entry("bfcl", category, "en", row["id"], data, gold))
    return entry_list


def rows_of(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def cases(package: Path, count: int, seed: int) -> Iterator[Case]:
    """Yield each gold answer as it is, then mutated answers until there are ``count``."""
    rng = random.Random(seed)
    everything = entries(package)
    answered = [entry for entry in everything if entry.gold]
    for entry in answered:
        yield case_of(entry, rng, changes=0)
    scripts = [entry for entry in everything if categories.language_of(entry.category) != "python"]
    parallel = [entry for entry in everything if "parallel" in entry.category]
    for _ in range(max(0, count - len(answered))):
        kind = rng.random()
        if kind < 0.05:
            yield _executable(rng.choice(everything), rng)
        else:
            several = scripts if kind < 0.25 else parallel if kind < 0.35 else everything
            yield case_of(rng.choice(several), rng, rng.choice([0, 1, 1, 1, 2, 3]))


def noise(package: Path, count: int, seed: int) -> Iterator[Case]:
    """Yield outputs with noise in their texts, as many in each language; one in ten is read as
    calls that an episode executes."""
    rng = random.Random(f"noise {seed}")
    everything = entries(package)
    by_language = [
        [entry for entry in everything if categories.language_of(entry.category) == language]
        for language in ("python", "java", "javascript")
    ]
    for number in range(count):
        if rng.random() < 0.1:
            yield _executable(rng.choice(by_language[0]), rng, noise=True)
        else:
            entry = rng.choice(by_language[number % 3])
            yield case_of(entry, rng, rng.choice([0, 0, 1]), noise=True)


def _calls(entry: Entry, rng: random.Random, changes: int) -> Calls:
    calls: Calls = vary.gold(entry.gold, rng) if entry.gold else []
    if not entry.gold and entry.data["function"]:
        function = rng.choice(entry.data["function"])
        params = list(function["parameters"]["properties"])[:3]
        calls = [(function["name"], [(param, rng.choice([1, "x", True])) for param in params])]
    for _ in range(changes):
        calls = vary.changed(calls, rng, categories.language_of(entry.category), entry)
    return calls


def case_of(entry: Entry, rng: random.Random, changes: int, *, noise: bool = False) -> Case:
    """Make a case of an entry, with some changes to the calls of its gold answer."""
    language = categories.language_of(entry.category)
    calls = _calls(entry, rng, changes)
    if changes and not noise and rng.random() < 0.12:
        return native_case(entry, rng, calls)
    form = categories.DEFAULT
    if language != "python":
        text = vary.script_text(calls, language)[:8_000]  # longer ones are `decoder_failed` here
    else:
        if changes and rng.random() < 0.3 and entry.category not in categories.RELEVANCE:
            form = rng.choice(categories.FORMS)
        if form.returned == "json":
            text = vary.json_text(calls, rng)
        elif form.returned == "python":
            text = vary.python_text(calls)
        else:
            text = vary.xml_text(calls, rng, verbose=form.returned == "verbose_xml")
        if form.tagged and rng.random() < 0.9:
            text = f"<TOOLCALL>{text}</TOOLCALL>"
    kind = entry.category if form is categories.DEFAULT else f"form {form.returned}"
    if noise:
        text, kind = vary.noisy(text, rng, language), f"{kind}, noise"
    while changes and rng.random() < 0.3:
        text = vary.changed_text(text, rng)
    return Case(kind, entry, form, False, text, [Answer(text)])


def native_case(entry: Entry, rng: random.Random, calls: Calls) -> Case:
    if rng.random() < 0.1:
        text = rng.choice(["", "I cannot.", "f(a=1)", "[]"])
        return Case("native", entry, categories.DEFAULT, True, text, [Answer(text, ())])
    tool_calls = []
    for name, args in calls:
        arguments = json.dumps({key: vary.jsonable(value) for key, value in args})
        if rng.random() < 0.1:
            arguments = rng.choice([arguments[:-1], "[]", "null", "", "5", f'"{name}"', "{'a': 1}"])
        tool_calls.append(
            ToolCall(name.replace(".", "_") if rng.random() < 0.95 else name, arguments)
        )
    sent = [{call.name: call.arguments} for call in tool_calls]
    return Case("native", entry, categories.DEFAULT, True, sent, [Answer("", tuple(tool_calls))])


def _executable(entry: Entry, rng: random.Random, *, noise: bool = False) -> Case:
    calls = _calls(entry, rng, rng.choice([0, 1, 2]))
    data: dict[str, Any] = {"function": []}
    entry = Entry("bfcl", "executable", "en", entry.id, data, entry.gold)
    if not noise and rng.random() < 0.3 and calls:
        return native_case(entry, rng, calls)._replace(kind="executable")
    text = vary.python_text(calls)
    if noise:
        text = vary.noisy(text, rng, "python")
    elif rng.random() < 0.4:
        text = vary.changed_text(text, rng)
    kind = "executable, noise" if noise else "executable"
    return Case(kind, entry, categories.DEFAULT, False, text, [Answer(text)])


def upstream(package: Path, python: Path, cases: list[Case]) -> list[Any]:
    """Return upstream's verdicts ``[valid, error type]``, or why there is none."""
    request = "bfcl_child.py", [package.parent, "single"], map(_line, cases), python
    return answers_of(*request, "BFCL_PROJECT_ROOT")


def _line(case: Case) -> dict[str, Any]:
    language = categories.language_of(case.entry.category)
    form = {"form": case.form.returned if language == "python" else language}
    # Format sensitivity is dispatched by the original id, which names its category.
    about = {"id": case.entry.id, "category": case.entry.category, "language": language, **form}
    task = {"function": case.entry.data["function"], "gold": case.entry.gold, "output": case.sent}
    return {**about, **task, "tagged": case.form.tagged, "native": case.native}


def ours(case: Case) -> list[Any]:
    entry = case.entry
    if entry.category == "executable":
        return [executable_calls(case.answers[0])]
    if entry.category == "agentic":
        verdict = check_agentic(case.answers, entry.gold)["official"]
    else:
        functions = entry.data["function"]
        verdicts = check_single(entry.category, functions, entry.gold, case.answers[0], case.form)
        verdict = verdicts["official"]
    assert verdict.valid or 0 < len(verdict.error) < 600
    return [verdict.valid, verdict.error_type]


def agrees(case: Case, answer: Any, result: list[Any]) -> bool:
    """Whether the two are equal, or ours says that upstream gives no verdict."""
    if not isinstance(answer, dict):
        # An operation that is not on numbers and strings is not computed.
        return bool(answer == result) or result == [False, "official_unsafe"]
    if case.entry.category == "executable":
        return result == [None]  # what is refused is not executed
    return result == [False, "official_crash" if "crash" in answer else "official_unsafe"]


def compare(package: Path, python: Path, cases: list[Case]) -> Found:
    report = Found()
    for start in range(0, len(cases), _LINES):
        part = cases[start : start + _LINES]
        for case, answer in zip(part, upstream(package, python, part), strict=True):
            result = ours(case)
            equal = agrees(case, answer, result)
            if isinstance(answer, dict):
                facts = dict.fromkeys(answer, 1)
            else:
                facts = {"judged": 1, "valid": bool(answer[0])}
                if case.entry.category != "executable":
                    report.answers[answer[1] or "valid"] += 1
            report.count(case.kind, outputs=1, equal=equal, **facts)
            if not equal:
                report.differences.append(
                    f"{case.kind} {case.entry.id} {case.form} native={case.native}\n"
                    f"  upstream {str(answer)[:300]}\n  ours     {str(result)[:300]}\n"
                    f"  output   {str(case.sent)[:500]!r}"
                )
    return report


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bfcl", type=Path, required=True, help="the folder bfcl_eval")
    parser.add_argument("--python", type=Path, required=True, help="with upstream's imports")
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--noise", type=int, default=0, help="outputs with noise in their texts")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    all_cases = list(cases(options.bfcl, options.count, options.seed)) if options.count else []
    all_cases += noise(options.bfcl, options.noise, options.seed)
    return compare(options.bfcl, options.python, all_cases).print(COLUMNS, limit=60)


if __name__ == "__main__":
    sys.exit(main())
