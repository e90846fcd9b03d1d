"""Our official multi-turn verdicts against upstream's checker, on conversations near every key.

``python tests/parity/bfcl_multi_turn.py --data installed --per-entry 12 [--seed S]`` prints the
counts as a Markdown table, then what differs; exit code 1 when a verdict or an error type does.
Upstream runs in a process of its own and evaluates the texts of the cases, which are all made here.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bfcl_multi_turn_cases import Case, Mutator

from ace_ray.benchmarks.bfcl.categories import MULTI_TURN
from ace_ray.benchmarks.bfcl.check.conversations import check_multi_turn
from ace_ray.benchmarks.bfcl.data.loader import function_docs, load
from ace_ray.benchmarks.bfcl.data.upstream_package import UpstreamPackage
from ace_ray.benchmarks.bfcl.decode.calls import Answer
from ace_ray.benchmarks.bfcl.tools.environment import Docs, initial_state_of, open_environment
from ace_ray.benchmarks.bfcl.tools.sources import ToolSources, tool_sources
from ace_ray.errors import UserError
from ace_ray.types import Entry, Verdict

CHILD = Path(__file__).with_name("bfcl_multi_turn_child.py")
# What is documented to differ in a result's text: a step that Python cannot parse, or that is more
# than a call, is refused in our own words, and sets print in an order of their own.
_OWN_WORDS = re.compile(r"^Error during execution: ")


@dataclass
class Counts:
    """What came of one category."""

    category: str
    of: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    verdicts: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        columns = ("entries", "cases", "valid", "same", "texts", "same texts", "own words")
        return f"| {self.category} | {' | '.join(f'{self.of[name]:,}' for name in columns)} |"


HEADER = (
    "| category | entries | cases | valid upstream | verdict and error type equal | results"
    " | equal texts | errors in other words |\n|---|--:|--:|--:|--:|--:|--:|--:|"
)


def upstream(folder: Path, entries: Sequence[tuple[Entry, Sequence[Case]]]) -> list[list[Any]]:
    """Upstream's verdicts on the cases of each entry."""
    with tempfile.TemporaryDirectory() as empty:
        lines = [
            json.dumps(
                {
                    "entry": {"id": entry.id, **entry.data},
                    "gold": entry.gold,
                    "cases": [case.turns for case in cases],
                }
            )
            for entry, cases in entries
        ]
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-B", str(CHILD), str(folder)],
            input="\n".join(lines) + "\n",
            capture_output=True,
            text=True,
            cwd=empty,
            check=False,
            env={"PYTHONHASHSEED": "0"},
        )
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return [json.loads(line) for line in done.stdout.splitlines()]


def ours(
    entry: Entry, case: Case, sources: ToolSources, docs: Docs
) -> tuple[Verdict, list[list[str]]]:
    """Our official verdict, and the texts of every execution in upstream's order."""
    answers = [[_answer(step) for step in turn] for turn in case.turns]
    verdicts = check_multi_turn(entry, answers, "", sources, docs, executable=_executable)
    shared: dict[int, Any] = {}
    initial_state = initial_state_of(entry, docs)
    model, gold = (open_environment(sources, initial_state, shared) for _ in range(2))
    texts = []
    for turn, wanted in zip(case.turns, entry.gold, strict=False):
        texts += [model.step(step) for step in turn if step and step != [""]]
        texts.append(gold.step(wanted))
    return verdicts["official"], texts


def _answer(step: list[str] | None) -> Answer:
    return Answer(json.dumps(step))


def _executable(answer: Answer) -> list[str] | None:
    step: list[str] | None = json.loads(answer.text or "null")
    return step if step and step != [""] else None


def compare(copy: UpstreamPackage, folder: Path, per_entry: int, seed: int = 0) -> Iterator[Counts]:
    """Counts per category; ``folder`` is the package's, ``copy`` the same as data."""
    docs, sources = function_docs(copy), tool_sources(copy)
    for category in MULTI_TURN:
        counts = Counts(category)
        made = []
        for entry in load(copy, [category]):
            mine = [doc for name in entry.data["involved_classes"] for doc in docs[name]]
            made.append((entry, Mutator(entry.gold, mine, f"{seed}:{entry.id}").cases(per_entry)))
        for (entry, cases), answers in zip(made, upstream(folder, made), strict=True):
            counts.of["entries"] += 1
            for case, theirs in zip(cases, answers, strict=True):
                _count(counts, entry, case, theirs, *ours(entry, case, sources, docs))
        yield counts


def _count(
    counts: Counts, entry: Entry, case: Case, theirs: Any, found: Verdict, texts: list[list[str]]
) -> None:
    counts.of["cases"] += 1
    counts.of["valid"] += theirs["valid"]
    counts.kinds[case.kind.partition(" +")[0]] += 1
    counts.errors[theirs["error_type"]] += 1
    if [found.valid, found.error_type] == [theirs["valid"], theirs["error_type"]]:
        counts.of["same"] += 1
    else:
        counts.verdicts.append(
            f"{entry.id} [{case.kind}] upstream {theirs['valid']} {theirs['error_type']}, ours"
            f" {found.valid} {found.error_type} ({found.error}): {str(case.turns)[:1500]}"
        )
    # Upstream stops at the first turn that fails.
    for mine, other in zip(texts, theirs["texts"], strict=False):
        for one, two in zip(mine, other, strict=True):
            counts.of["texts"] += 1
            if one == two:
                counts.of["same texts"] += 1
            elif _OWN_WORDS.match(one) and _OWN_WORDS.match(two):
                counts.of["own words"] += 1
                counts.texts.append(
                    f"(error) {entry.id} [{case.kind}]\n  {one[:200]}\n  {two[:200]}"
                )
            else:
                counts.texts.append(f"{entry.id} [{case.kind}]\n  {one[:300]}\n  {two[:300]}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="installed")
    parser.add_argument("--per-entry", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", type=int, default=40, help="differences to print")
    options = parser.parse_args()
    try:
        copy = UpstreamPackage.locate(options.data)
    except UserError as error:
        print(error, file=sys.stderr)
        return 2
    differ = 0
    found = []
    print(HEADER)
    for counts in compare(copy, copy.root, options.per_entry, options.seed):
        print(counts, flush=True)
        found.append(counts)
        differ += len(counts.verdicts)
    print("\nkinds:", dict(sum((c.kinds for c in found), Counter())))
    print("error types:", dict(sum((c.errors for c in found), Counter())))
    for line in [line for c in found for line in c.verdicts][: options.show]:
        print("VERDICT", line)
    texts = [line for c in found for line in c.texts]
    for line in sorted(texts, key=lambda line: line.startswith("(error)"))[: options.show]:
        print("TEXT", line)
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
