"""Measure what the tests catch: break one line of the package, run the tests of that line, repeat.

python tests/tools/mutants.py sample              # choose 100 mutants -> mutants.jsonl
python tests/tools/mutants.py record -n 2         # pytest with pytest-cov: lines of each test
python tests/tools/mutants.py run RESULTS.jsonl   # until a test of a mutant's line fails
"""

import ast
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = Path(__file__).with_name("mutants.jsonl")
COUNT, SEED, LIMIT_S = 100, 1, 120
SWAPS: dict[Any, Any] = {ast.Lt: ast.LtE, ast.Gt: ast.GtE, ast.Eq: ast.NotEq, ast.And: ast.Or}
SWAPS |= {ast.In: ast.NotIn, ast.Is: ast.IsNot}
SWAPS |= {new: old for old, new in SWAPS.items()}
KINDS = ("comparison", "constant", "boolean", "deleted", "arguments")
TRIVIAL = ("isinstance", "issubclass", "getattr", "hasattr", "setattr", "zip")
COMMANDS = {"make test": "not nightly", "make test-all": "nightly and not cluster"}
IGNORED = shutil.ignore_patterns(".git", ".venv", ".coverage", "build", "runs", "__pycache__")
RUNS = ["tests/e2e", "tests/faults"]  # for lines of child processes, which coverage does not see


def change(node: Any):
    """Return the kind of change that fits a node, "" if none does, and what takes its place."""
    match node:
        case ast.Compare(ops=[op, *_]) if type(op) in SWAPS:
            node.ops[0] = SWAPS[type(op)]()
            return "comparison", node
        case ast.BoolOp():
            node.op = SWAPS[type(node.op)]()
            return "boolean", node
        case ast.UnaryOp(op=ast.Not()):
            return "boolean", ast.Call(ast.Name("bool"), [node.operand], [])
        case ast.Constant(value=bool()):
            return "boolean", ast.Constant(not node.value)
        case ast.Constant(value=int() | float() as value):
            return "constant", ast.Constant(value + 1)
        case ast.AugAssign() | ast.Expr(value=ast.Call() | ast.Await()):
            return "deleted", ast.Pass()
        case ast.Call(args=[first, two, *_]) if ast.unparse(node.func) not in TRIVIAL:
            node.args[:2] = two, first
            return "arguments", node
    return "", node


def sample():
    """Choose mutants: draw a file by its share of the package's lines, then a line of it."""
    files = sorted((ROOT / "ace_ray").rglob("*.py"))
    weights = [len(path.read_text().splitlines()) for path in files]
    draw, sample_lines = random.Random(SEED), list[str]()
    while len(sample_lines) < COUNT:
        [path] = draw.choices(files, weights)
        lines, candidates = path.read_text().splitlines(), []
        for node in list[Any](ast.walk(ast.parse(path.read_text()))):
            kind, new = change(node)
            if kind == KINDS[len(sample_lines) % len(KINDS)] and node.lineno == node.end_lineno:
                old = lines[node.lineno - 1]
                head, tail = old.encode()[: node.col_offset], old.encode()[node.end_col_offset :]
                text = {"old": old, "new": head.decode() + ast.unparse(new) + tail.decode()}
                location = {"file": str(path.relative_to(ROOT)), "line": node.lineno, "kind": kind}
                # A frozen class and `zip(strict=True)` change nothing in a sound program.
                if not re.search(r"\b(frozen|strict)=", old):
                    candidates.append({"id": len(sample_lines)} | location | text)
        sample_lines += [json.dumps(draw.choice(candidates))] if candidates else []
    SAMPLE.write_text("\n".join(sample_lines) + "\n")


def record(*options):
    """Run pytest and record which test runs which line and branch of the package."""
    cover = ["--cov=ace_ray", "--cov-branch", "--cov-context=test", "--cov-append", "--cov-report="]
    subprocess.run([sys.executable, "-m", "pytest", *cover, *options], cwd=ROOT)


def find_line(mutant):
    """Return file and number of the mutant's line in the tree of today; ("", 0) without it."""
    for path in (ROOT / mutant["file"], *sorted((ROOT / "ace_ray").rglob("*.py"))):
        lines = enumerate(path.read_text().splitlines() if path.exists() else [], 1)
        if matches := [n for n, line in lines if line == mutant["old"]]:
            return str(path.relative_to(ROOT)), min(matches, key=lambda n: abs(n - mutant["line"]))
    return "", 0


def tests_of(file, line):
    """Return the tests that run the line, else those that run its file, the nearest first."""
    from coverage import CoverageData  # type: ignore[import-not-found, unused-ignore]

    data = CoverageData(str(ROOT / ".coverage"))
    data.read()
    contexts = data.contexts_by_lineno(str(ROOT / file))
    names = contexts.get(line) or [name for names in contexts.values() for name in names]
    files = {re.split(r"[\[|]", name)[0] for name in names if name}
    words = set(Path(file).with_suffix("").parts)
    return sorted(files, key=lambda t: (-len(words & set(t.split("::")[0].split("/"))), t)) or RUNS


def first_failure(tree, file, lines, marker, tests):
    """Run tests on a file with these lines. Return the first test that fails, "" if none does."""
    (Path(tree) / file).write_text("".join(lines))
    command = [sys.executable, "-m", "pytest", "-xq", "--timeout=60", "-m", marker, *tests]
    env = os.environ | {"PYTHONPATH": f"{tree}:{os.environ.get('PYTHONPATH', '')}"}
    result = subprocess.run(command, cwd=tree, env=env, capture_output=True, timeout=LIMIT_S)
    failed = re.findall(r"(?m)^(?:FAILED|ERROR) (tests/[^\s\[]+)", result.stdout.decode())
    return "" if result.returncode in (0, 5) else (failed or tests)[0]


def try_mutant(mutant):
    """Break the line in a copy of the tree and run its tests, but not those that fail anyway."""
    file, line = find_line(mutant)
    if not line:
        return mutant | {"outcome": "line is gone"}
    tests = tests_of(file, line)
    with tempfile.TemporaryDirectory() as tree:
        shutil.copytree(ROOT, tree, ignore=IGNORED, dirs_exist_ok=True)
        lines = (ROOT / file).read_text().splitlines(keepends=True)
        broken = [*lines[: line - 1], mutant["new"] + "\n", *lines[line:]]
        for name, marker in COMMANDS.items():
            try:
                while by := first_failure(tree, file, broken, marker, tests):
                    if not first_failure(tree, file, lines, marker, [by]):
                        return mutant | {"outcome": name, "by": by}
                    tests = [*tests, f"--deselect={by}"]
            except subprocess.TimeoutExpired:
                return mutant | {"outcome": "time is up"}
    return mutant | {"outcome": "survived"}


def run(results):
    """Run the mutants of the sample that have no result yet, two at a time."""
    with ThreadPoolExecutor(2) as pool, Path(results).open("a+") as file:
        file.seek(0)
        ids = {json.loads(line)["id"] for line in file}
        mutants = map(json.loads, SAMPLE.read_text().splitlines())
        for result in pool.map(try_mutant, [m for m in mutants if m["id"] not in ids]):
            print(json.dumps(result), file=file, flush=True)


if __name__ == "__main__":
    commands: dict[str, Any] = {"sample": sample, "record": record, "run": run}
    commands[sys.argv[1]](*sys.argv[2:])
