"""BFCL's prompts and tools, held against those of upstream's own functions.

    python tests/parity/bfcl_prompts.py FOLDER_OR_WHEEL

Upstream's code runs in a process of its own (`bfcl_prompts_child`), with stand-ins for the packages
that it imports and does not need here. Compared are hashes of JSON texts, so that the order of keys
counts as well: a template shows it. Exit code 1 on any difference.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ace_ray.benchmarks.bfcl.categories import (
    CATEGORIES,
    FORMAT_SENSITIVITY,
    MEMORY,
    MULTI_TURN,
    SINGLE_TURN,
    form_of,
    language_of,
)
from ace_ray.benchmarks.bfcl.data.loader import function_docs, load, prerequisites
from ace_ray.benchmarks.bfcl.data.upstream_package import UPSTREAM, UpstreamPackage
from ace_ray.benchmarks.bfcl.functions import offered
from ace_ray.benchmarks.bfcl.prompts import Prompts, official, with_system
from ace_ray.types import Entry

EMPTY_MEMORY = "(nothing)"
_CHILD = Path(__file__).with_name("bfcl_prompts_child.py")
_TIMEOUT_S = 600


@dataclass
class Compared:
    """What was compared: numbers of equal items by (category, what), and the others."""

    equal: Counter[tuple[str, str]] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)


def compare(copy: UpstreamPackage) -> Compared:
    """Hold all prompts and tools of all categories against upstream's."""
    theirs = _upstream(copy)
    ours = dict(_ours(copy))
    found = Compared()
    for key in sorted(theirs.keys() | ours.keys()):
        if theirs.get(key) == ours.get(key):
            found.equal[key[0], key[2].partition(" ")[0]] += 1
        else:
            found.differences.append(f"{key}: {theirs.get(key)} upstream, {ours.get(key)} here")
    return found


def sha(value: Any) -> str:
    """A hash of a text, or of a JSON value with the order of its keys."""
    text = value if isinstance(value, str) else json.dumps(value)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _ours(copy: UpstreamPackage) -> Iterator[tuple[tuple[str, str, str], str]]:
    prompts, docs = official(copy), function_docs(copy)
    for entry in load(copy, CATEGORIES):
        for what, value in _shown(prompts, docs, entry):
            yield (entry.category, entry.id, what), sha(value)
    for category in MEMORY:
        for scenario, conversations in prerequisites(copy).items():
            for row in conversations:
                row_id = row["id"].replace("memory", category)
                value = _memory(prompts, docs, category, scenario, row["question"][0])
                yield (category, row_id, "messages"), sha(value)


def _shown(prompts: Prompts, docs: Mapping[str, Any], entry: Entry) -> Iterator[tuple[str, Any]]:
    category, data = entry.category, entry.data
    question = data["question"][0]
    if category in MULTI_TURN:
        held_out = data.get("missed_function", {})
        functions, later = offered(docs, data["involved_classes"], held_out)
        yield "messages", prompts.messages(question, functions)
        tools = prompts.tools(functions)
        yield "tools", tools
        for turn, more in later.items():
            yield f"prompt-mode-turn {turn}", prompts.more_functions(more)
            yield f"native-turn {turn}", prompts.more_functions(None)
            tools = tools + prompts.tools(more, hints=0)
            yield f"tools-in-turn {turn}", tools
    elif category in (*SINGLE_TURN, FORMAT_SENSITIVITY):
        language, hints = language_of(category), 2 if category == FORMAT_SENSITIVITY else 1
        functions = data["function"]
        form = form_of(entry.id)
        yield "messages", prompts.messages(question, functions, form, language, hints)
        if category != FORMAT_SENSITIVITY:
            yield "tools", prompts.tools(functions, language)
    else:
        asked = with_system(prompts.texts.agentic, question)
        functions, _ = offered(docs, data["involved_classes"])
        yield "tools", prompts.tools(functions)
        if category in MEMORY:
            yield "messages", _memory(prompts, docs, category, data["scenario"], asked)
        else:
            yield "messages", prompts.messages(asked, functions)


def _memory(
    prompts: Prompts, docs: Mapping[str, Any], category: str, scenario: str, messages: Any
) -> Any:
    backend = category.removeprefix("memory_")
    text = prompts.memory(scenario, backend, EMPTY_MEMORY)
    return prompts.messages(with_system(text, messages), docs[f"MemoryAPI_{backend}"])


def _upstream(copy: UpstreamPackage) -> dict[tuple[str, str, str], str]:
    with tempfile.TemporaryDirectory() as folder:
        root = copy.root
        if root.is_file():
            with zipfile.ZipFile(root) as wheel:
                wheel.extractall(folder)
            root = Path(folder, UPSTREAM.package)
        done = subprocess.run(
            [sys.executable, str(_CHILD), str(root), EMPTY_MEMORY],
            capture_output=True,
            text=True,
            cwd=folder,
            env={
                "PATH": os.environ.get("PATH", ""),
                "PYTHONUTF8": "1",
                "PYTHONDONTWRITEBYTECODE": "1",
                "BFCL_PROJECT_ROOT": folder,  # it makes folders wherever this points
            },
            timeout=_TIMEOUT_S,
            check=False,
        )
    if done.returncode != 0:
        raise RuntimeError(f"upstream's functions ended with {done.returncode}: {done.stderr}")
    lines = map(json.loads, done.stdout.splitlines())
    return {(category, row, what): value for category, row, what, value in lines}


def main() -> int:
    found = compare(UpstreamPackage.locate(sys.argv[1]))
    for (category, what), count in sorted(found.equal.items()):
        print(f"{category:28} {what:18} {count:6,} equal")
    print(f"{found.equal.total():,} equal, {len(found.differences):,} different")
    for difference in found.differences[:20]:
        print(difference)
    return 1 if found.differences else 0


if __name__ == "__main__":
    sys.exit(main())
