"""The probe on an engine that says what the test tells it to."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest

from ace_ray.models.probe import (
    FLOOR,
    SLACK,
    CannotTell,
    Logprobs,
    Probe,
    ProbeFailed,
    distance,
    weights_hash,
)

OLD: Logprobs = [[-1.0, -2.0], [-3.0]]
NEW: Logprobs = [[-1.5, -2.5], [-3.5]]
NEWER: Logprobs = [[-0.5, -2.0], [-1.0]]


def moved(said: Logprobs, by: float) -> Logprobs:
    return [[value + by for value in text] for text in said]


def jagged(said: Logprobs, by: float, sign: int = 1) -> Logprobs:
    """Moved up and down in turn."""
    return [
        [value + by * sign * (-1) ** (i + j) for j, value in enumerate(text)]
        for i, text in enumerate(said)
    ]


Truths = dict[str, Logprobs | Exception]


class Scripted:
    """Says the next of ``said``; its references are ``truths``, by the folder's name."""

    def __init__(self, *said: Logprobs, truths: Truths) -> None:
        self._said, self._truths = list(said), truths
        self.asked: list[tuple[str, ...]] = []

    async def logprobs(self) -> Logprobs:
        return self._said.pop(0)

    def reference(self, folders: Sequence[Path]) -> list[Logprobs]:
        self.asked.append(tuple(folder.name for folder in folders))
        found = []
        for folder in folders:
            truth = self._truths[folder.name]
            if isinstance(truth, Exception):
                raise truth
            found.append(truth)
        return found


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    """Four checkpoints; the last holds the weights of the one before."""
    made = []
    for name, weights in (("a", b"1"), ("b", b"2"), ("c", b"3"), ("same_as_c", b"3")):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "model.safetensors").write_bytes(weights)
        made.append(folder)
    return made


def swap(engine: Scripted, *folders: Path) -> list[dict[str, float]]:
    """Begin on the first, swap through the others; what each swap found."""

    async def play() -> list[dict[str, float]]:
        probe = Probe(engine)
        await probe.begin(folders[0])
        found = []
        for held, folder in pairwise(folders):
            probe.prepare(held, folder)
            found.append(await probe.swapped(folder))
        return found

    return asyncio.run(play())


class TestFirst:
    def test_right(self, folders: list[Path]) -> None:
        engine = Scripted(OLD, NEW, truths={"a": moved(OLD, 0.01), "b": moved(NEW, 0.02)})
        (found,) = swap(engine, *folders[:2])
        assert found == {"moved": 0.5, "from_reference": 0.02, "before": 0.01, "way": 1.02}
        assert engine.asked == [("a", "b")]

    def test_it_says_what_it_said_before(self, folders: list[Path]) -> None:
        engine = Scripted(OLD, OLD, truths={"a": OLD, "b": NEW})
        with pytest.raises(
            ProbeFailed, match="the weights changed, but the engine's logprobs did not"
        ):
            swap(engine, *folders[:2])

    def test_it_says_neither(self, folders: list[Path]) -> None:
        """A part of the weights was taken, another was not."""
        half: Logprobs = [NEW[0], OLD[1]]
        engine = Scripted(OLD, half, truths={"a": OLD, "b": NEW})
        with pytest.raises(ProbeFailed, match=r"0\.167 nats per token .* was 0\.000 from"):
            swap(engine, *folders[:2])

    @pytest.mark.parametrize("apart", [0.031, 0.001])
    def test_neighbours_in_training_are_told_apart(self, folders: list[Path], apart: float) -> None:
        """Closer than two implementations may be to each other, and yet: taken, or not."""
        near = jagged(OLD, apart)
        truths: Truths = {"a": jagged(OLD, 0.02, -1), "b": jagged(near, 0.02, -1)}
        (found,) = swap(Scripted(OLD, near, truths=truths), *folders[:2])
        assert found["way"] == pytest.approx(1.0, abs=0.01)
        with pytest.raises(ProbeFailed, match=r"inconclusive \(-?0 % of the expected change"):
            swap(Scripted(OLD, moved(OLD, 1e-6), truths=truths), *folders[:2])
        half: Logprobs = [near[0], OLD[1]]
        with pytest.raises(ProbeFailed, match=r"inconclusive \(\d\d % of the expected change"):
            swap(Scripted(OLD, half, truths=truths), *folders[:2])

    def test_references_that_say_the_same_tell_nothing(self, folders: list[Path]) -> None:
        engine = Scripted(OLD, moved(OLD, 1e-6), truths={"a": OLD, "b": OLD})
        with pytest.raises(CannotTell, match="weight-swap check inconclusive"):
            swap(engine, *folders[:2])

    def test_equal_weights_prove_nothing_of_a_swap(self, folders: list[Path]) -> None:
        """The next swap is held against references all the same."""
        a, _, c, same = folders
        truths: Truths = {"c": OLD, "same_as_c": OLD, "a": NEW}
        engine = Scripted(OLD, OLD, NEW, truths=truths)
        first, second = swap(engine, c, same, a)
        assert (first, second["way"]) == ({"moved": 0.0}, 1.0)
        engine = Scripted(OLD, OLD, moved(OLD, 1e-6), truths=truths)
        with pytest.raises(ProbeFailed):
            swap(engine, c, same, a)

    @pytest.mark.parametrize(
        ("before", "after", "fine"),
        [
            (0.0, 0.9 * FLOOR, True),
            (0.0, 1.1 * FLOOR, False),
            (FLOOR, 0.9 * SLACK * FLOOR, True),
            (FLOOR, 1.1 * SLACK * FLOOR, False),
            (-FLOOR, -0.9 * SLACK * FLOOR, True),
            (FLOOR / SLACK / 2, 1.1 * FLOOR, False),
        ],
    )
    def test_how_far_it_was_says_how_far_it_may_be(
        self, folders: list[Path], before: float, after: float, fine: bool
    ) -> None:
        engine = Scripted(OLD, NEW, truths={"a": moved(OLD, before), "b": moved(NEW, after)})
        if fine:
            swap(engine, *folders[:2])
        else:
            with pytest.raises(ProbeFailed, match="from the new weights' reference"):
                swap(engine, *folders[:2])

    def test_the_reference_cannot_be_computed(self, folders: list[Path]) -> None:
        engine = Scripted(OLD, NEW, truths={"a": OLD, "b": ProbeFailed("no memory")})
        with pytest.raises(ProbeFailed, match="no memory"):
            swap(engine, *folders[:2])

    def test_a_reference_of_other_weights_is_none(self, folders: list[Path]) -> None:
        """Prepared ahead for the next checkpoint, and then it is another's turn."""

        async def play(*, again: bool) -> dict[str, float]:
            probe = Probe(engine)
            await probe.begin(folders[0])
            probe.prepare(folders[0], folders[1])
            if again:
                probe.prepare(folders[0], folders[2])
            return await probe.swapped(folders[2])

        truths: Truths = {"a": OLD, "b": NEW, "c": NEWER}
        engine = Scripted(OLD, NEWER, truths=truths)
        assert asyncio.run(play(again=True))["from_reference"] == 0.0
        engine = Scripted(OLD, NEW, truths=truths)
        with pytest.raises(ProbeFailed, match="no reference"):
            asyncio.run(play(again=False))

    def test_it_is_computed_once(self, folders: list[Path]) -> None:
        async def play() -> None:
            probe = Probe(engine)
            await probe.begin(folders[0])
            for _ in range(3):
                probe.prepare(folders[0], folders[1])
            await probe.swapped(folders[1])
            probe.prepare(folders[1], folders[2])

        engine = Scripted(OLD, NEW, truths={"a": OLD, "b": NEW})
        asyncio.run(play())
        assert engine.asked == [("a", "b")]


TRUTHS: Truths = {"a": OLD, "b": NEW}


class TestFurther:
    def test_other_weights_say_other_things(self, folders: list[Path]) -> None:
        engine = Scripted(OLD, NEW, NEWER, truths=TRUTHS)
        found = swap(engine, *folders[:3])
        assert found[1] == {"moved": pytest.approx(4 / 3, abs=1e-4)}
        assert engine.asked == [("a", "b")]

    def test_the_same_from_other_weights_is_a_failure(self, folders: list[Path]) -> None:
        engine = Scripted(OLD, NEW, NEW, truths=TRUTHS)
        with pytest.raises(
            ProbeFailed, match="the weights changed, but the engine's logprobs did not"
        ):
            swap(engine, *folders[:3])

    def test_the_same_from_equal_weights_is_none(self, folders: list[Path]) -> None:
        engine = Scripted(OLD, NEW, NEWER, NEWER, truths=TRUTHS)
        found = swap(engine, *folders)
        assert found[2] == {"moved": 0.0}

    def test_the_last_weights_count_not_the_first(self, folders: list[Path]) -> None:
        engine = Scripted(OLD, NEW, OLD, truths=TRUTHS)
        assert swap(engine, *folders[:3])[1] == {"moved": 0.5}

    def test_a_failed_swap_proves_nothing(self, folders: list[Path]) -> None:
        async def play() -> None:
            probe = Probe(engine)
            await probe.begin(folders[0])
            probe.prepare(folders[0], folders[1])
            with pytest.raises(ProbeFailed):
                await probe.swapped(folders[1])
            with pytest.raises(ProbeFailed):
                await probe.swapped(folders[1])

        engine = Scripted(OLD, moved(NEW, 1.0), moved(NEW, 1.0), truths=TRUTHS)
        asyncio.run(play())


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("at", [0, 1, 2])
def test_what_is_not_finite_fails_whenever(folders: list[Path], bad: float, at: int) -> None:
    said = [OLD, NEW, NEWER]
    said[at] = [[bad, -2.0], [-3.0]]
    with pytest.raises(ProbeFailed, match="not finite"):
        swap(Scripted(*said, truths={"a": OLD, "b": NEW}), *folders[:3])


def test_a_reference_that_is_not_finite_fails(folders: list[Path]) -> None:
    nan: Logprobs = [[math.nan, -2.0], [-3.0]]
    with pytest.raises(ProbeFailed, match="nan nats per token"):
        swap(Scripted(OLD, NEW, truths={"a": OLD, "b": nan}), *folders[:2])


def test_distance() -> None:
    assert distance(OLD, OLD) == 0.0
    assert distance(OLD, NEW) == distance(NEW, OLD) == 0.5
    assert distance([[-1.0], [0.0, 0.0, 0.0]], [[-3.0], [0.0, 0.0, 0.0]]) == 0.5
    assert math.isnan(distance([[math.nan]], [[0.0]]))
    for other in ([[-1.0, -2.0]], [[-1.0], [-3.0]]):
        with pytest.raises(ValueError):
            distance(OLD, other)


def test_the_hash_is_of_the_weights_alone(tmp_path: Path, folders: list[Path]) -> None:
    a, b, c, same = map(weights_hash, folders)
    assert len({a, b, c}) == 3
    assert c == same
    (folders[0] / "config.json").write_text("{}")
    assert weights_hash(folders[0]) == a
    (folders[0] / "model.safetensors").write_bytes(b"2")
    assert weights_hash(folders[0]) == b
