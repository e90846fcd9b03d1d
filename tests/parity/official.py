"""The official evaluator of a clone of ACEBench's repository, run in a process of its own.

The environment variable ``ACEBENCH_OFFICIAL`` names the clone. Nothing of it is imported here.
"""

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
Answer = list[Any] | dict[str, str]
"""``[valid, error type]``, for agents with the process accuracy; ``{"crash": exception class}``;
``{"refused": what stands in the operation}``."""


def clone() -> Path:
    """Return the clone to compare with. Raises `UserError` when none is named."""
    location = os.environ.get(VARIABLE, "")
    folder = Path(location).resolve()
    if not location or not (folder / "eval_main.py").is_file():
        raise UserError(
            f"{VARIABLE}={location!r} is no clone of the official ACEBench repository",
            fix=f"clone it at commit {OFFICIAL_COMMIT[:7]} and set {VARIABLE} to its folder",
        )
    return folder


def request(entry: Entry, outputs: Sequence[Any]) -> dict[str, Any]:
    """Return one line for the child. Outputs are texts or None, of agents ``(state, process)``."""
    agent = entry.category.startswith("agent_")
    gold = entry.gold if agent else {"ground_truth": entry.gold}
    results = [{"result": o[0], "process": o[1]} if agent else {"result": o} for o in outputs]
    row = {"id": entry.id, **entry.data}
    return {"language": entry.language, "category": entry.category, "row": row, "gold": gold,
            "outputs": results}  # fmt: skip


def verdicts(lines: Iterable[dict[str, Any]]) -> list[list[Answer]]:
    """Return the answers to lines of `request`, one item per output."""
    return answers_of("official_child.py", [clone()], lines)


def answers_of(
    script: str,
    arguments: Sequence[object],
    lines: Iterable[Any],
    variable: str = "PYTHONHASHSEED",
) -> list[Any]:
    """Run a script of this folder within limits, in an empty folder; one answer line a line.

    ``variable`` is an environment variable that names the empty folder. Raises `RuntimeError` when
    the script fails or leaves lines unanswered.
    """
    sent = [json.dumps(line) for line in lines]
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder) / "work"  # upstream looks for modules in the folder above
        work.mkdir()
        environment = {variable: str(work), "PYTHONHASHSEED": "0", "PYTHONUTF8": "1"}
        result = subprocess.run(
            [sys.executable, "-B", str(Path(__file__).parent / script), *map(str, arguments)],
            input="".join(f"{line}\n" for line in sent),
            capture_output=True,
            text=True,
            cwd=work,
            env={"PATH": os.environ.get("PATH", ""), **environment},
            preexec_fn=_limit,
            check=False,
        )
    if result.returncode != 0:
        raise RuntimeError(f"{script} ended with {result.returncode}: {result.stderr[-2000:]}")
    received = [json.loads(line) for line in result.stdout.splitlines()]
    if sent and len(received) != len(sent):
        raise RuntimeError(f"{script} answered {len(received)} of {len(sent)} lines")
    return received


def _limit() -> None:
    for kind, limit in ((resource.RLIMIT_AS, 4 << 30), (resource.RLIMIT_CPU, 1_800)):
        resource.setrlimit(kind, (limit, limit))
