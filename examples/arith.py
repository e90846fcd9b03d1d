"""A whole benchmark: five sums."""

from ace_ray.benchmarks.base import Benchmark
from ace_ray.types import Entry, Episode, Verdict

SUMS = {
    "one_digit": {"2 + 2": "4", "3 + 5": "8"},
    "two_digits": {"12 + 30": "42", "17 + 25": "42", "99 + 1": "100"},
}


class Arith(Benchmark):
    """An answer is right when it ends in the number."""

    name = "arith"

    def entries(self) -> list[Entry]:
        return [
            Entry(
                id=question,
                category=category,
                prompt=f"What is {question}? End your answer with the number.",
                gold=answer,
            )
            for category, sums in SUMS.items()
            for question, answer in sums.items()
        ]

    def check(self, entry: Entry, episode: Episode) -> Verdict:
        words = episode.output.rstrip(" .\n").split()
        if words and words[-1] == entry.gold:
            return Verdict(True)
        return Verdict(False, "wrong_sum", f"the answer does not end in {entry.gold}")
