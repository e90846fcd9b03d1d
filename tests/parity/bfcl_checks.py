"""Our official rule set against upstream's BFCL evaluator, on variations of every gold answer.

``python tests/parity/bfcl_checks.py --bfcl PACKAGE --python PYTHON --count N [--noise N]
[--seed S]``

PACKAGE is the folder ``bfcl_eval``; PYTHON one that has what upstream's decoders import:
``tree_sitter==0.21.3 tree-sitter-java==0.21.0 tree-sitter-javascript==0.21.4 tenacity filelock``.
Upstream runs in a process of its own (`bfcl_checks_child`), which evaluates operations on literals
at most. Prints counts as a Markdown table, then every difference; exit code 1 when there is any.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import bfcl_variations as vary
from bfcl_noise import noisy

from ace_ray.benchmarks.bfcl.categories import (
    DEFAULT,
    FORMS,
    RELEVANCE,
    SINGLE_TURN,
    Form,
    language_of,
)
from ace_ray.benchmarks.bfcl.check.conversations import check_agentic
from ace_ray.benchmarks.bfcl.check.single import check_single
from ace_ray.benchmarks.bfcl.decode import executable
from ace_ray.benchmarks.bfcl.decode.calls import Answer
from ace_ray.types import ToolCall

_LINES = 4_000
HEADER = "| kind | outputs | judged | valid | equal | upstream crashes | upstream's eval refused |"


class Row(NamedTuple):
    """An entry, as upstream publishes it."""

    category: str
    id: str
    functions: list[dict[str, Any]]
    gold: Any


class Case(NamedTuple):
    """One output for one entry. ``kind`` counts; ``sent`` is the output in upstream's shape."""

    kind: str
    row: Row
    form: Form
    native: bool
    sent: Any
    answers: list[Answer]


def rows(package: Path) -> Iterator[Row]:
    for category in SINGLE_TURN:
        golds = _jsonl(package / f"data/possible_answer/BFCL_v4_{category}.json")
        for place, entry in enumerate(_jsonl(package / f"data/BFCL_v4_{category}.json")):
            gold = golds[place]["ground_truth"] if golds else None
            yield Row(category, entry["id"], entry["function"], gold)


def spoken(package: Path) -> list[Row]:
    """The entries that are answered in words."""
    found = []
    for name in ("memory", "web_search"):
        answers = _jsonl(package / f"data/possible_answer/BFCL_v4_{name}.json")
        found += [Row("agentic", entry["id"], [], entry["ground_truth"]) for entry in answers]
    return found


def _jsonl(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def cases(package: Path, count: int, seed: int) -> Iterator[Case]:
    rng = random.Random(seed)
    everything, words = list(rows(package)), spoken(package)
    answered = [row for row in everything if row.gold]
    for row in answered:  # each gold answer as it is, then whatever fits into the count
        yield _case(row, rng, changes=0)
    scripts = [row for row in everything if language_of(row.category) != "python"]
    small = [row for row in everything if "parallel" in row.category]
    for _ in range(max(0, count - len(answered))):
        kind = rng.random()
        if kind < 0.03:
            yield _agentic(rng.choice(words), rng, everything)
        elif kind < 0.08:
            yield _executable(rng.choice(everything), rng)
        else:
            several = scripts if kind < 0.25 else small if kind < 0.35 else everything
            yield _case(rng.choice(several), rng, rng.choice([0, 1, 1, 1, 2, 3]))


def noise(package: Path, count: int, seed: int) -> Iterator[Case]:
    """Outputs with noise in their texts, as many in each language, and one in ten for what episodes
    execute of it."""
    rng = random.Random(f"noise {seed}")
    everything = list(rows(package))
    by_language = [
        [row for row in everything if language_of(row.category) == language]
        for language in ("python", "java", "javascript")
    ]
    for number in range(count):
        if rng.random() < 0.1:
            yield _executable(rng.choice(by_language[0]), rng, noise=True)
            continue
        yield _case(rng.choice(by_language[number % 3]), rng, rng.choice([0, 0, 1]), noise=True)


def _calls(row: Row, rng: random.Random, changes: int) -> vary.Calls:
    calls: vary.Calls = vary.gold(row.gold, rng) if row.gold else []
    if not row.gold and row.functions:
        function = rng.choice(row.functions)
        params = list(function["parameters"]["properties"])[:3]
        calls = [(function["name"], [(param, rng.choice([1, "x", True])) for param in params])]
    names = [function["name"] for function in row.functions]
    for _ in range(changes):
        calls = vary.changed(calls, rng, language_of(row.category), names)
    return calls


def _case(row: Row, rng: random.Random, changes: int, *, noise: bool = False) -> Case:
    language = language_of(row.category)
    calls = _calls(row, rng, changes)
    if changes and not noise and rng.random() < 0.12:
        return _native(row, rng, calls)
    form = DEFAULT
    if language == "java":
        text = vary.java_text(calls)
    elif language == "javascript":
        text = vary.javascript_text(calls)
    else:
        if changes and rng.random() < 0.3 and row.category not in RELEVANCE:
            form = rng.choice(FORMS)
        if form.returned == "json":
            text = vary.json_text(calls, rng)
        elif form.returned == "python":
            text = vary.python_text(calls)
        else:
            text = vary.xml_text(calls, rng, verbose=form.returned == "verbose_xml")
        if form.tagged and rng.random() < 0.9:
            text = f"<TOOLCALL>{text}</TOOLCALL>"
    kind = row.category if form is DEFAULT else f"form {form.returned}"
    if noise:
        text = noisy(text, rng, language)
        kind = f"{kind}, noise"
    while changes and rng.random() < 0.3:
        text = vary.changed_text(text, rng)
    return Case(kind, row, form, False, text, [Answer(text)])


def _native(row: Row, rng: random.Random, calls: vary.Calls) -> Case:
    if rng.random() < 0.1:
        text = rng.choice(["", "I cannot.", "f(a=1)", "[]"])
        return Case("native", row, DEFAULT, True, text, [Answer(text, ())])
    made = _tool_calls(rng, calls)
    sent = [{call.name: call.arguments} for call in made]
    return Case("native", row, DEFAULT, True, sent, [Answer("", tuple(made))])


def _tool_calls(rng: random.Random, calls: vary.Calls) -> list[ToolCall]:
    made = []
    for name, args in calls:
        arguments = json.dumps({key: vary._jsonable(value) for key, value in args})
        if rng.random() < 0.1:
            arguments = rng.choice([arguments[:-1], "[]", "null", "", "5", f'"{name}"', "{'a': 1}"])
        made.append(ToolCall(name.replace(".", "_") if rng.random() < 0.95 else name, arguments))
    return made


def _executable(row: Row, rng: random.Random, *, noise: bool = False) -> Case:
    calls = _calls(row, rng, rng.choice([0, 1, 2]))
    row = row._replace(category="executable")
    if noise:
        text = noisy(vary.python_text(calls), rng, "python")
        return Case("executable, noise", row, DEFAULT, False, text, [Answer(text)])
    if rng.random() < 0.3 and calls:
        case = _native(row, rng, calls)
        return case._replace(kind="executable")
    text = vary.python_text(calls)
    if rng.random() < 0.4:
        text = vary.changed_text(text, rng)
    return Case("executable", row, DEFAULT, False, text, [Answer(text)])


def _agentic(row: Row, rng: random.Random, everything: list[Row]) -> Case:
    native = rng.random() < 0.4
    sent: list[Any] = []
    answers = []
    for _ in range(rng.randint(1, 4)):
        calls = _calls(rng.choice(everything), rng, 0)
        if rng.random() < 0.5 and native and calls:
            made = _tool_calls(rng, calls)
            sent.append([{call.name: call.arguments} for call in made])
            answers.append(Answer("", tuple(made)))
            continue
        text = vary.python_text(calls) if rng.random() < 0.3 else _said(row, rng)
        sent.append(text)
        answers.append(Answer(text, () if native else None))
    return Case("agentic", row, DEFAULT, native, [sent], answers)


def _said(row: Row, rng: random.Random) -> str:
    answer = str(rng.choice(row.gold))
    if rng.random() < 0.5:
        answer = str(vary._near_text(answer, rng))
    template = rng.choice([
        "{}", "The answer is {}.", "{{'answer': '{}', 'context': 'found'}}", "x{}", "{}s", "", " ",
        "I do not know", "answer(a='{}')", "({})", "é{}", "{}-{}",
    ])  # fmt: skip
    return template.format(answer, answer)


def upstream(package: Path, python: Path, asked: list[Case]) -> list[Any]:
    lines = _child(package, python, "\n".join([json.dumps(_line(case)) for case in asked]))
    if len(lines) != len(asked):
        raise RuntimeError(f"{len(lines)} of {len(asked)} answered")
    return [line[0] for line in lines]


def known_names(package: Path, python: Path) -> list[str]:
    """The names that mean something to upstream's ``eval``."""
    (names,) = _child(package, python, "", "names")
    return list(names)


def _child(package: Path, python: Path, lines: str, *more: str) -> list[Any]:
    child = Path(__file__).with_name("bfcl_checks_child.py")
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [str(python), str(child), str(package.parent), *more],
            input=lines,
            capture_output=True,
            text=True,
            cwd=folder,
            env={
                "PATH": os.environ.get("PATH", ""),
                "BFCL_PROJECT_ROOT": folder,
                "PYTHONUTF8": "1",
            },
            timeout=1_800,
            check=False,
        )
    if done.returncode:
        raise RuntimeError(done.stderr[-3000:])
    return [json.loads(line) for line in done.stdout.splitlines()]


def _line(case: Case) -> dict[str, Any]:
    row = case.row
    # Format sensitivity is dispatched by the original id, which names its category.
    return {
        "id": row.id,
        "category": row.category,
        "language": language_of(row.category),
        "form": case.form.returned
        if language_of(row.category) == "python"
        else language_of(row.category),
        "tagged": case.form.tagged,
        "native": case.native,
        "function": row.functions,
        "gold": row.gold,
        "outputs": [case.sent],
    }


def ours(case: Case) -> list[Any]:
    row = case.row
    if row.category == "executable":
        return [executable(case.answers[0])]
    if row.category == "agentic":
        verdict = check_agentic(case.answers, row.gold)["official"]
    else:
        verdict = check_single(row.category, row.functions, row.gold, case.answers[0], case.form)[
            "official"
        ]
    assert verdict.valid or 0 < len(verdict.error) < 600
    return [verdict.valid, verdict.error_type]


def same(case: Case, answer: Any, found: list[Any]) -> bool:
    """Equal, or named as what upstream gives no verdict on."""
    if not isinstance(answer, dict):
        return bool(answer == found)
    if case.row.category == "executable":
        return found == [None]  # what is refused is not executed
    return found == [False, "official_crash" if "crash" in answer else "official_unsafe"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bfcl", type=Path, required=True, help="the folder bfcl_eval")
    parser.add_argument("--python", type=Path, required=True, help="with upstream's imports")
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--noise", type=int, default=0, help="outputs with noise in their texts")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--shown", type=int, default=60, help="differences that are printed")
    asked = parser.parse_args()
    counts: dict[str, Counter[str]] = {}
    types: Counter[str] = Counter()
    different = 0
    made = list(cases(asked.bfcl, asked.count, asked.seed)) if asked.count else []
    made += noise(asked.bfcl, asked.noise, asked.seed)
    for start in range(0, len(made), _LINES):
        part = made[start : start + _LINES]
        for case, answer in zip(part, upstream(asked.bfcl, asked.python, part), strict=True):
            found = ours(case)
            count = counts.setdefault(case.kind, Counter())
            count["outputs"] += 1
            if isinstance(answer, dict):
                count[next(iter(answer))] += 1
            else:
                count["judged"] += 1
                count["valid"] += bool(answer[0])
                if case.row.category != "executable":
                    types[answer[1]] += 1
            if same(case, answer, found):
                count["equal"] += 1
                continue
            different += 1
            if different <= asked.shown:
                print(f"{case.kind} {case.row.id} {case.form} native={case.native}")
                print(f"  upstream {str(answer)[:300]}\n  ours     {str(found)[:300]}")
                print(f"  output   {str(case.sent)[:500]!r}", flush=True)
    print(HEADER, "|---|--:|--:|--:|--:|--:|--:|", sep="\n")
    counts["all"] = sum(counts.values(), Counter())
    for kind, count in counts.items():
        cells = [count[c] for c in ("outputs", "judged", "valid", "equal", "crash", "refused")]
        print(f"| {kind} | {' | '.join(f'{cell:,}' for cell in cells)} |")
    print(f"{different:,} differences")
    print("error types:", dict(types.most_common()))
    return different > 0


if __name__ == "__main__":
    sys.exit(main())
