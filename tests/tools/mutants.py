"""Prove that a test watches over each promise: break the line that keeps it, and see a test fail.

python tests/tools/mutants.py [NAME...]   # names of mutants or of files of the package; or all

Each line of ``mutants.jsonl`` is a mutant: the text ``old``, which occurs once in ``file``, becomes
``new``, which breaks ``promise``, and one of ``tests`` fails. Mutants are made in a copy of the
tree. The exit code is 1 if a mutant survives or does not fit the tree. All of them take an hour.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
MUTANTS = Path(__file__).with_name("mutants.jsonl")
LIMIT_S = 300
IGNORED = shutil.ignore_patterns(".git", ".venv", "build", "runs", "__pycache__")


@cache
def exit_code(tree: Path, tests: tuple[str, ...], mutant: str = "") -> int:
    """Run tests, in a file without its nightly tests. A mutant without an end is killed, too."""
    marker = "" if any("::" in test for test in tests) else "not nightly"
    command = [sys.executable, "-m", "pytest", "-xq", "-m", marker, *tests]
    env = os.environ | {"PYTHONPATH": f"{tree}:{os.environ.get('PYTHONPATH', '')}"}
    try:
        result = subprocess.run(command, cwd=tree, env=env, capture_output=True, timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        return 1
    return result.returncode


def outcome(tree: Path, mutant: dict[str, Any]) -> str:
    """Break the line in ``tree`` and run its tests."""
    path, tests = tree / mutant["file"], tuple(mutant["tests"])
    source = path.read_text() if path.exists() else ""
    if source.count(mutant["old"]) != 1:
        return "STALE: the old text does not occur once"
    if exit_code(tree, tests) != 0:
        return "UNPROVEN: its tests fail without it"
    try:
        path.write_text(source.replace(mutant["old"], mutant["new"]))
        # Compiled code counts as new if its source has the same size and second of change.
        shutil.rmtree(path.parent / "__pycache__", ignore_errors=True)
        return "killed" if exit_code(tree, tests, mutant["name"]) else "SURVIVED"
    finally:
        path.write_text(source)
        shutil.rmtree(path.parent / "__pycache__", ignore_errors=True)


def main(names: list[str]) -> int:
    """Try the mutants with these names or files. Return the exit code."""
    every = [json.loads(line) for line in MUTANTS.read_text().splitlines()]
    mutants = [m for m in every if not names or m["name"] in names or m["file"] in names]
    if unknown := {*names} - {m[key] for m in mutants for key in ("name", "file")}:
        sys.exit(f"no mutants: {', '.join(sorted(unknown))}")
    lost = 0
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(shutil.copytree(ROOT, Path(folder, "tree"), ignore=IGNORED))
        for mutant in mutants:
            result = outcome(tree, mutant)
            lost += result != "killed"
            print(f"{result:8}  {mutant['name']:24}  {mutant['promise']}", flush=True)
    print(f"{len(mutants) - lost} of {len(mutants)} killed")
    return int(lost > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
