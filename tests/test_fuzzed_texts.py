"""Random hostile texts through all readers and checkers: none raises.

Random texts are mutated gold answers, pieces of syntax, and pieces repeated up to 20,000 times.
"""

import random
import resource
from collections.abc import Iterable, Iterator
from itertools import islice

import pytest

from tests.limits import cpu_limit
from tests.text_readers import PIECES, READERS, checks_and_golds

TEXTS, SEED = 5_000, 0
GROWTH_MIB = 1_024
"""Maximum growth of the peak memory of the process."""


class Texts:
    """An endless stream, the same for the same seed."""

    def __init__(self, seed: int, golds: list[str]) -> None:
        self._random, self._golds = random.Random(seed), golds

    def __iter__(self) -> Iterator[str]:
        kinds = (self._mutated, self._mutated, self._pieces, self._repeated, self._wrapped)
        while True:
            yield self._random.choice(kinds)()

    def _pieces(self) -> str:
        count = int(self._random.expovariate(1 / 20)) + 1
        return "".join(self._random.choice(PIECES) for _ in range(count))

    def _repeated(self) -> str:
        unit = "".join(self._random.choice(PIECES) for _ in range(self._random.randrange(1, 4)))
        times = int(10 ** self._random.uniform(0, 4.3 if self._random.random() < 0.02 else 2.5))
        return self._random.choice(("", "[f(a=", "f(", "{")) + unit * times + self._pieces()[:20]

    def _wrapped(self) -> str:
        opening, right = self._random.choice(
            (("(", ")"), ("[", "]"), ("{'a':", "}"), ("f(a=", ")"))
        )
        depth = int(10 ** self._random.uniform(0, 2.7))
        return opening * depth + self._mutated() + right * self._random.choice((depth, depth - 1))

    def _mutated(self) -> str:
        text = self._random.choice(self._golds)
        for _ in range(self._random.randrange(1, 5)):
            at = self._random.randrange(len(text) + 1)
            to = min(len(text), at + int(self._random.expovariate(1 / 6)))
            before, cut, after = text[:at], text[at:to], text[to:]
            piece = self._random.choice(PIECES)
            changed = (before + piece + cut + after, before + after, before + piece + after)
            text = self._random.choice((*changed, before + cut * 2 + after, before, after + before))
        return text


def read_all(texts: Iterable[str]) -> None:
    """Give each text to each reader and checker."""
    readers = {**READERS, **checks_and_golds()[0]}
    for number, text in enumerate(texts):
        for name, read in readers.items():
            with cpu_limit(f"{name}: {text[:200]!r}"):
                try:
                    read(text, number)
                except Exception as error:  # noqa: BLE001 - what no reader may do
                    pytest.fail(f"{name} on text {number}, {text[:200]!r}: {error!r}")


@pytest.mark.nightly
def test_no_reader_raises_takes_long_or_grows() -> None:
    texts = Texts(SEED, checks_and_golds()[1])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    read_all(islice(texts, TEXTS))
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert (after - before) / 1024 < GROWTH_MIB
