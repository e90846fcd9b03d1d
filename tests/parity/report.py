"""Counts of a comparison and what differed in it, for the scripts of this folder."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass
class Found:
    """Counts of cases by group, and a text for each case that differs."""

    of: dict[str, Counter[str]] = field(default_factory=dict)
    answers: Counter[str] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)

    def count(self, group: str, **counts: int) -> None:
        self.of.setdefault(group, Counter()).update(counts)

    def total(self, name: str) -> int:
        return sum(counts[name] for counts in self.of.values())

    def print(self, columns: Sequence[str], limit: int = 20) -> int:
        """Print a Markdown table of the counts, then differences. Return the exit code."""
        print(f"| | {' | '.join(columns)} |\n|---|{'--:|' * len(columns)}")
        groups = {**self.of, "all": sum(self.of.values(), Counter[str]())}
        for group, counts in groups.items():
            print(f"| {group} | {' | '.join(f'{counts[name]:,}' for name in columns)} |")
        if self.answers:
            print("answers:", ", ".join(f"{n} {c:,}" for n, c in self.answers.most_common()))
        print(f"{len(self.differences):,} differences")
        print(*self.differences[:limit], sep="\n", flush=True)
        return int(bool(self.differences))
