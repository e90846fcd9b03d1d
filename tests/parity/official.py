"""The official evaluator of a clone of its repository, run beside ours in a process of its own.

The environment variable ``ACEBENCH_OFFICIAL`` names the clone. Nothing of it is imported here. The
child gets harmless outputs only (`variations`), and where one turns out to hold more than literals
in an operation all the same, it refuses to evaluate that.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ace_ray.benchmarks.acebench.data.importer import OFFICIAL_COMMIT
from ace_ray.errors import UserError
from ace_ray.types import Entry

VARIABLE = "ACEBENCH_OFFICIAL"
MEMORY_BYTES = 2 << 30
CPU_S = 900
_HERE = Path(__file__).parent

Answer = list[Any] | dict[str, str]
"""``[valid, error type]``, for agents with the process accuracy; ``{"crash": exception class}``;
``{"refused": what stands in the operation}``."""


def clone() -> Path:
    """The clone to compare with. Raises `UserError` when none is named or it is none."""
    named = os.environ.get(VARIABLE, "")
    folder = Path(named).resolve()
    if not named or not (folder / "eval_main.py").is_file():
        raise UserError(
            f"{VARIABLE}={named!r} is no clone of the official ACEBench repository",
            fix=f"clone it at commit {OFFICIAL_COMMIT[:7]} and set {VARIABLE} to its folder",
        )
    return folder


def asked(entry: Entry, outputs: Sequence[Any]) -> dict[str, Any]:
    """One line for the child. Outputs are texts or None, of agents ``(state, process)``."""
    agent = entry.category.startswith("agent_")
    gold = entry.gold if agent else {"ground_truth": entry.gold}
    return {
        "language": entry.language,
        "category": entry.category,
        "row": {"id": entry.id, **entry.data},
        "gold": gold,
        "outputs": [
            {"result": output[0], "process": output[1]} if agent else {"result": output}
            for output in outputs
        ],
    }


def verdicts(lines: Iterable[dict[str, Any]]) -> list[list[Answer]]:
    """The answers to lines of `asked`, in order, one item per output."""
    return answers_of("official_child.py", lines)


def answers_of(script: str, lines: Iterable[dict[str, Any]]) -> list[Any]:
    """What a script of this folder answers, one line a line, run on the clone within limits.

    Raises `RuntimeError` when it dies or leaves lines unanswered.
    """
    sent = [json.dumps(line) for line in lines]
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder) / "work"  # upstream looks for modules in the folder above
        work.mkdir()
        done = subprocess.run(
            [sys.executable, str(_HERE / script), str(clone())],
            input="\n".join(sent),
            capture_output=True,
            text=True,
            cwd=work,
            env={"PATH": os.environ.get("PATH", ""), "PYTHONHASHSEED": "0", "PYTHONUTF8": "1"},
            preexec_fn=_limit,
            check=False,
        )
    if done.returncode != 0:
        raise RuntimeError(f"{script} ended with {done.returncode}: {done.stderr[-2000:]}")
    received = [json.loads(line) for line in done.stdout.splitlines()]
    if len(received) != len(sent):
        raise RuntimeError(f"{script} answered {len(received)} of {len(sent)} lines")
    return received


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
