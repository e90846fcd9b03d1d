"""BFCL's prompts and tools against those of upstream's own functions.

    python tests/parity/bfcl_prompts.py FOLDER_OR_WHEEL

Compares hashes of JSON texts, so that the order of keys counts as well: a template shows it.
Prints counts as a Markdown table; exit code 1 on any difference.
"""

from __future__ import annotations

import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bfcl_child import sha
from official import answers_of
from report import Found

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


def compare(copy: UpstreamPackage) -> Found:
    """Compare all prompts and tools of all categories."""
    theirs, ours, found = upstream(copy, CATEGORIES), dict(_ours(copy)), Found()
    for key in sorted(theirs.keys() | ours.keys()):
        category, what = key[0], key[2].partition(" ")[0]
        equal = theirs.get(key) == ours.get(key)
        found.count(category, items=1, equal=equal, **{what: 1})
        if not equal:
            found.differences.append(f"{key}: {theirs.get(key)} upstream, {ours.get(key)} here")
    return found


def _ours(copy: UpstreamPackage) -> Iterator[tuple[tuple[str, str, str], str]]:
    prompts, docs = official(copy), function_docs(copy)
    for entry in load(copy, CATEGORIES):
        for what, value in shown(prompts, docs, entry):
            yield (entry.category, entry.id, what), sha(value)
    for category in MEMORY:
        for scenario, conversations in prerequisites(copy).items():
            for row in conversations:
                row_id = row["id"].replace("memory", category)
                value = _memory(prompts, docs, category, scenario, row["question"][0])
                yield (category, row_id, "messages"), sha(value)


def shown(prompts: Prompts, docs: Mapping[str, Any], entry: Entry) -> Iterator[tuple[str, Any]]:
    """Yield what a model is shown of an entry, by what it is."""
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
        functions, form = data["function"], form_of(entry.id)
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
    text = prompts.memory(scenario, category.removeprefix("memory_"), EMPTY_MEMORY)
    functions = docs[category.replace("memory", "MemoryAPI")]
    return prompts.messages(with_system(text, messages), functions)


def upstream(copy: UpstreamPackage, categories: tuple[str, ...]) -> dict[tuple[str, str, str], str]:
    """Return upstream's hashes by category, entry id and what it is."""
    with tempfile.TemporaryDirectory() as folder:
        root = copy.root
        if root.is_file():
            with zipfile.ZipFile(root) as wheel:
                wheel.extractall(folder)
            root = Path(folder, UPSTREAM.package)
        lines = [[category, EMPTY_MEMORY] for category in categories]
        asked = "bfcl_child.py", [root.parent, "prompts"], lines, sys.executable
        answers = answers_of(*asked, "BFCL_PROJECT_ROOT")
    return {
        (category, row, what): value
        for category, answer in zip(categories, answers, strict=True)
        for row, what, value in answer
    }


def main() -> int:
    found = compare(UpstreamPackage.locate(sys.argv[1]))
    return found.print(("items", "messages", "tools", "equal"))


if __name__ == "__main__":
    sys.exit(main())
