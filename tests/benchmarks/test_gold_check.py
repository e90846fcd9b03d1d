"""The check of gold answers and mangled ones of any benchmark."""

from __future__ import annotations

from ace_ray.benchmarks.base import Benchmark
from ace_ray.benchmarks.gold_check import Gold
from ace_ray.types import Entry, Episode, Verdict


class Sums(Benchmark):
    """The third published sum is wrong; the fourth entry has no gold answer."""

    name = "sums"

    def entries(self) -> list[Entry]:
        texts = enumerate(("2", "4", "7", None), start=1)
        return [Entry(id=str(n), prompt=f"{n} + {n}", gold=gold) for n, gold in texts]

    def check(self, entry: Entry, episode: Episode) -> Verdict:
        return Verdict(episode.output == str(2 * int(entry.id)), "wrong_sum")

    def gold(self, entry: Entry) -> Gold | None:
        if entry.gold is None:
            return None
        return Gold(Episode(output=entry.gold), Episode(output=f"{entry.gold}1"))


class Forgiving(Sums):
    def gold(self, entry: Entry) -> Gold | None:
        found = super().gold(entry)
        return found and Gold(found.right, found.mangled, may_fail=entry.id == "3")


class Lenient(Forgiving):
    def check(self, entry: Entry, episode: Episode) -> Verdict:
        return Verdict(True)


def test_surprising_gold_answers_are_named() -> None:
    said: list[str] = []
    assert not Sums.check_data("", said.append)
    assert said == [
        "sums: 3 answers, valid: gold 2 correct; mangled 0 correct",
        "3: the gold answer is wrong_sum (correct)",
        "3 gold answers and as many mangled ones: 1 surprises",
    ]
    assert Forgiving.check_data("", said.append), "this one is known to fail"
    assert said[-1] == "3 gold answers and as many mangled ones: 0 surprises"
    assert not Lenient.check_data("", said.append)
    assert "1: a mangled gold answer passes (correct)" in said
