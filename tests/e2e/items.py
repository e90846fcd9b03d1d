"""A benchmark of many entries, for runs that are to stop before they have evaluated them all."""

from ace_ray.benchmarks.base import Benchmark
from ace_ray.types import Entry, Episode, Verdict

ITEMS = 900


class Items(Benchmark):
    """Every answer but "no" is right."""

    name = "items"
    groups = {"all": ["first", "second"]}  # noqa: RUF012

    def entries(self) -> list[Entry]:
        return [
            Entry(
                id=f"<{number:04}>",
                category="first" if number % 3 else "second",
                group=f"g{number // 6}" if number % 3 == 1 else "",
                prompt=f"Item <{number:04}>?",
                gold="yes",
            )
            for number in range(ITEMS)
        ]

    def check(self, entry: Entry, episode: Episode) -> Verdict:
        return Verdict(episode.output != "no", "" if episode.output != "no" else "no")
