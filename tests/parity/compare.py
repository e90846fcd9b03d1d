"""Our official rule set against the official evaluator, on variations of every row.

``ACEBENCH_OFFICIAL=CLONE python tests/parity/compare.py --data imported --per-row 25 [--seed S]``
prints the counts as a Markdown table, then what differs; exit code 1 when anything does.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from official import Answer, asked, verdicts
from variations import Variation, variations

from ace_ray.benchmarks.acebench.benchmark import check
from ace_ray.benchmarks.acebench.check.agent import check_agent
from ace_ray.benchmarks.acebench.data.loader import load, locate
from ace_ray.errors import UserError
from ace_ray.types import Entry, Verdict

COLUMNS = ("rows", "outputs", "judged", "verdict", "error_type", "process", "crash", "refused")
HEADER = (
    "| language | category | rows | outputs | judged | verdict equal | error_type equal "
    "| process equal | upstream crashes, ours says so | refused, ours says so |\n"
    "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|"
)


@dataclass(frozen=True)
class Difference:
    """An output on which the two do not agree."""

    entry: Entry
    variation: Variation
    official: Answer
    ours: Verdict

    def __str__(self) -> str:
        entry, ours = self.entry, self.ours
        return (
            f"{entry.language} {entry.id} [{self.variation.kind}]\n"
            f"  official {self.official}\n"
            f"  ours     {[ours.valid, ours.error_type, ours.metrics]} {ours.error}\n"
            f"  output   {str(self.variation.output)[:600]!r}"
        )


@dataclass
class Counts:
    """What came of one category in one language."""

    language: str
    category: str
    of: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    answers: Counter[str] = field(default_factory=Counter)
    differences: list[Difference] = field(default_factory=list)

    def __str__(self) -> str:
        cells = [f"{self.of[name]:,}" for name in COLUMNS]
        return f"| {self.language} | {self.category} | {' | '.join(cells)} |"


def compare(entries: Iterable[Entry], per_row: int, seed: int = 0) -> Iterator[Counts]:
    """Counts per language and category of ``entries``, which come sorted by them."""
    for (language, category), group in groupby(entries, lambda e: (e.language, e.category)):
        made = [(entry, list(variations(entry, per_row, seed))) for entry in group]
        lines = [asked(entry, [one.output for one in several]) for entry, several in made]
        counts = Counts(language, category)
        for (entry, several), answers in zip(made, verdicts(lines), strict=True):
            counts.of["rows"] += 1
            for variation, answer in zip(several, answers, strict=True):
                counts.kinds[variation.kind] += 1
                if not _equal(counts, answer, ours := _ours(entry, variation)):
                    counts.differences.append(Difference(entry, variation, answer, ours))
        yield counts


def _ours(entry: Entry, variation: Variation) -> Verdict:
    if entry.category.startswith("agent_"):
        state, process = variation.output
        return check_agent(entry, state, process)["official"]
    return check(entry, variation.output)["official"]


def _equal(counts: Counts, answer: Answer, ours: Verdict) -> bool:
    """Whether the two agree; counted in ``counts`` in any case.

    Where the evaluator crashes or is about to run more than literals there is no verdict of it, and
    ours has to say so.
    """
    count = counts.of
    count["outputs"] += 1
    if isinstance(answer, dict):
        ((why, what),) = answer.items()
        counts.answers[f"{why}: {what}"] += 1
        named = {"crash": "official_crash", "refused": "official_unsafe"}[why]
        said = ours.error_type == named
        count[why] += said and not ours.valid
        return said and not ours.valid
    valid, error_type, *process = answer
    equal = {"verdict": valid == ours.valid, "error_type": error_type == ours.error_type}
    if process:
        equal["process"] = round(ours.metrics["process_accuracy"], 3) == process[0]
    count["judged"] += 1
    count.update(equal)
    counts.answers[error_type or "valid"] += 1
    return all(equal.values())


def table(found: Sequence[Counts]) -> str:
    total = Counts("both", "all", sum((counts.of for counts in found), Counter()))
    return "\n".join([HEADER, *map(str, found), str(total)])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="imported", help="as in a run's config")
    parser.add_argument("--per-row", type=int, default=25, help="outputs per row")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--shown", type=int, default=20, help="differences that are printed")
    asked_for = parser.parse_args()
    try:
        entries = load(locate(asked_for.data))
        found = list(compare(entries, asked_for.per_row, asked_for.seed))
    except UserError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print(table(found))
    kinds = {kind for counts in found for kind in counts.kinds}
    answers = sum((counts.answers for counts in found), Counter[str]())
    print(f"\n{len(kinds)} kinds of variation. The official answers:")
    print(", ".join(f"{name} {count:,}" for name, count in answers.most_common()))
    differences = [difference for counts in found for difference in counts.differences]
    print(f"\n{len(differences)} differences")
    print(*differences[: asked_for.shown], sep="\n")
    return int(bool(differences))


if __name__ == "__main__":
    sys.exit(main())
