"""Measure what the tests catch: break one line of the package, run the tests of that line, repeat.

    python tests/tools/mutants.py sample              # choose 100 mutants -> mutants.jsonl
    python tests/tools/mutants.py record -n 2         # pytest: which test runs which line
    python tests/tools/mutants.py run RESULTS.jsonl   # each mutant in a copy of the tree

`record` needs pytest-cov. `run` tries the tests of `make test`, then nightly ones, until the first
failure. Mutants keep the text of their line, so the same sample runs after an edit.
"""

from __future__ import annotations

import ast
import copy
import json
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = Path(__file__).with_name("mutants.jsonl")
COVERAGE = ROOT / "build" / "mutants"
COUNT, SEED, LIMIT_S, PROCESSES = 100, 1, 120, 2
SWAPS: dict[Any, Any] = {ast.Lt: ast.LtE, ast.Gt: ast.GtE, ast.Eq: ast.NotEq, ast.And: ast.Or}
SWAPS |= {ast.In: ast.NotIn, ast.Is: ast.IsNot}
SWAPS |= {new: old for old, new in SWAPS.items()}
KINDS = ("comparison", "constant", "boolean", "deleted", "arguments")
TRIVIAL = ("isinstance", "issubclass", "getattr", "hasattr", "setattr", "zip")
COMMANDS = {"make test": "not nightly", "make test-all": "nightly and not cluster"}
IGNORED = shutil.ignore_patterns(".git", ".venv", "build", "runs", "__pycache__")
RUNS = ["tests/e2e", "tests/faults"]
"""Tests of lines that run in processes of their own, where coverage sees nothing."""


def changes(tree: ast.AST) -> Iterator[tuple[Any, str, ast.AST]]:
    """Yield each node that can be changed, the kind of change, and what takes the node's place."""
    for node in ast.walk(tree):
        new: Any = copy.deepcopy(node)
        match node:
            case ast.Compare(ops=[op, *_]) if type(op) in SWAPS:
                new.ops[0] = SWAPS[type(op)]()
                yield node, "comparison", new
            case ast.BoolOp():
                new.op = SWAPS[type(node.op)]()
                yield node, "boolean", new
            case ast.UnaryOp(op=ast.Not()):
                yield node, "boolean", ast.Call(ast.Name("bool"), [node.operand], [])
            case ast.Constant(value=bool()):
                yield node, "boolean", ast.Constant(not node.value)
            case ast.Constant(value=int() | float() as value):
                yield node, "constant", ast.Constant(value + 1)
            case ast.AugAssign() | ast.Expr(value=ast.Call() | ast.Await()):
                yield node, "deleted", ast.Pass()
            case ast.Call(args=[one, two, *_]) if ast.unparse(node.func) not in TRIVIAL:
                new.args[:2] = two, one
                yield node, "arguments", new


def candidates(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the mutants of a file whose node stands on one line."""
    lines = path.read_text().splitlines()
    for node, kind, new in changes(ast.parse(path.read_text())):
        old = lines[node.lineno - 1]
        head, tail = old.encode()[: node.col_offset], old.encode()[node.end_col_offset :]
        line = head.decode() + ast.unparse(new) + tail.decode()
        # A frozen class and `zip(strict=True)` change nothing in a sound program.
        if node.lineno == node.end_lineno and not {"frozen=", "strict="} & set(
            re.findall(r"\w+=", old)
        ):
            place = {"file": str(path.relative_to(ROOT)), "line": node.lineno, "kind": kind}
            yield {**place, "old": old, "new": line}


def sample() -> None:
    """Choose mutants: draw a file by its share of the package's lines, then a line of it."""
    files = sorted((ROOT / "ace_ray").rglob("*.py"))
    weights = [len(path.read_text().splitlines()) for path in files]
    draw, kept = random.Random(SEED), list[dict[str, Any]]()
    while len(kept) < COUNT:
        [path] = draw.choices(files, weights)
        kind = KINDS[len(kept) % len(KINDS)]
        if found := [one for one in candidates(path) if one["kind"] == kind]:
            kept.append({"id": len(kept), **draw.choice(found)})
    SAMPLE.write_text("".join(json.dumps(mutant) + "\n" for mutant in kept))


def load(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def record(options: list[str]) -> None:
    """Run pytest and record which test runs which line of the package."""
    COVERAGE.mkdir(parents=True, exist_ok=True)
    settings = COVERAGE / "coveragerc"
    settings.write_text(f"[run]\ndata_file = {COVERAGE / 'data'}\nsource = ace_ray\n")
    cover = ["--cov", "--cov-config", str(settings), "--cov-context=test", "--cov-append"]
    subprocess.run([sys.executable, "-m", "pytest", *cover, "--cov-report=", *options], cwd=ROOT)


def find_line(mutant: dict[str, Any]) -> tuple[str, int]:
    """Return file and number of the mutant's line in the tree of today; ("", 0) without it."""
    for path in (ROOT / mutant["file"], *sorted((ROOT / "ace_ray").rglob("*.py"))):
        lines = enumerate(path.read_text().splitlines() if path.exists() else [], 1)
        if same := [n for n, line in lines if line == mutant["old"]]:
            return str(path.relative_to(ROOT)), min(same, key=lambda n: abs(n - mutant["line"]))
    return "", 0


def tests_of(file: str, line: int) -> list[str]:
    """Return the tests that run the line, else those that run its file, the nearest first."""
    from coverage import CoverageData  # type: ignore[import-not-found, unused-ignore]

    data = CoverageData(str(COVERAGE / "data"))
    data.read()
    tests = {n: {c.split("|")[0] for c in names if c} for n, names in data.contexts_by_lineno(
        str(ROOT / file)).items()}  # fmt: skip
    found = tests.get(line) or set().union(*tests.values())
    words = set(Path(file).with_suffix("").parts)
    return sorted(found, key=lambda t: (-len(words & set(Path(t.split("::")[0]).parts)), t)) or RUNS


def try_mutant(mutant: dict[str, Any]) -> dict[str, Any]:
    """Break the line in a copy of the tree and run its tests."""
    file, line = find_line(mutant)
    if not line:
        return {**mutant, "outcome": "line is gone"}
    began, outcome, by, tests = time.monotonic(), "survived", "", tests_of(file, line)
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(shutil.copytree(ROOT, folder, ignore=IGNORED, dirs_exist_ok=True))
        lines = (tree / file).read_text().splitlines()
        lines[line - 1] = mutant["new"]
        (tree / file).write_text("\n".join(lines) + "\n")
        (tree / "tests.txt").write_text("\n".join(tests))
        for name, marker in COMMANDS.items():
            command = [sys.executable, "-m", "pytest", "-xq", "--timeout", "60", "-m", marker]
            left = max(20, LIMIT_S - (time.monotonic() - began))
            try:
                done = subprocess.run(
                    [*command, "@tests.txt"], cwd=tree, capture_output=True, text=True, timeout=left
                )
            except subprocess.TimeoutExpired:
                outcome = "time is up"
                continue
            if done.returncode not in (0, 5):
                failed = [x for x in done.stdout.splitlines() if x.startswith(("FAILED", "ERROR"))]
                outcome, by = name, (failed or [done.stdout[-200:]])[0][:200]
                break
    return {**mutant, "outcome": outcome, "by": by, "tests": len(tests)}


def run(results: Path) -> None:
    """Run the mutants of the sample that have no result yet, two at a time."""
    done = {mutant["id"] for mutant in load(results)}
    with ThreadPoolExecutor(PROCESSES) as pool, results.open("a") as file:
        for result in pool.map(try_mutant, [m for m in load(SAMPLE) if m["id"] not in done]):
            print(json.dumps(result), file=file, flush=True)
            print(result["id"], result["file"], result["outcome"], result.get("by", ""), flush=True)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["sample"]:
            sample()
        case ["record", *options]:
            record(options)
        case ["run", results]:
            run(Path(results))
        case _:
            print(__doc__)
