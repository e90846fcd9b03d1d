"""The check of swapped weights, on an engine that answers from a script."""

import asyncio
import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from ace_ray.models.probe import FLOOR, SLACK, Logprobs, Probe, ProbeFailed

OLD: Logprobs = [[-1.0, -2.0], [-3.0]]
NEW: Logprobs = [[-1.5, -2.5], [-3.5]]
NEWER: Logprobs = [[-0.5, -2.0], [-1.0]]
NAN: Logprobs = [[math.nan, -2.0], [-3.0]]
CHECKPOINTS = {"a": b"1", "b": b"2", "c": b"3", "c again": b"3"}


def moved(logprobs: Logprobs, by: float) -> Logprobs:
    return [[value + by for value in text] for text in logprobs]


class Scripted:
    """Answers the next of ``answers``; its references are ``truths``, by the folder's name."""

    def __init__(self, answers: Sequence[Logprobs], truths: dict[str, Any]) -> None:
        self._answers, self._truths = list(answers), truths
        self.folder_names: list[tuple[str, ...]] = []

    async def logprobs(self) -> Logprobs:
        return self._answers.pop(0)

    def reference(self, folders: Sequence[Path]) -> list[Logprobs]:
        self.folder_names.append(tuple(folder.name for folder in folders))
        truths = [self._truths[folder.name] for folder in folders]
        for truth in truths:
            if isinstance(truth, Exception):
                raise truth
        return truths


Swap = Callable[..., tuple[list[dict[str, Any]], Any]]


@pytest.fixture
def swap(tmp_path: Path) -> Swap:
    """Begin with the first folder and swap through the others; return the facts of each swap."""
    for name, weights in CHECKPOINTS.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.safetensors").write_bytes(weights)

    def run(names: Sequence[str], *answers: Logprobs, prepared: str = "", **truths: Any) -> Any:
        engine = Scripted(answers, {"a": OLD, "b": NEW, **truths})
        folders = [tmp_path / name for name in names]

        async def play() -> list[dict[str, Any]]:
            probe = Probe(engine)
            await probe.begin(folders[0])
            outcomes = []
            for old_folder, folder in pairwise(folders):
                for _ in range(2):
                    probe.prepare(old_folder, tmp_path / prepared if prepared else folder)
                outcomes.append(await probe.check_swap(folder))
            return outcomes

        return asyncio.run(play()), engine.folder_names

    return run


def test_only_the_first_swap_is_compared_with_references(swap: Swap) -> None:
    answers = (OLD, NEW, NEWER, NEWER)
    outcomes, folder_names = swap(
        ["a", "b", "c", "c again"], *answers, a=moved(OLD, 0.01), b=moved(NEW, 0.02)
    )
    assert outcomes == [
        {"moved": 0.5, "from_reference": 0.02, "before": 0.01, "way": 1.02},
        {"moved": pytest.approx(4 / 3, abs=1e-4)},
        {"moved": 0.0},
    ]
    assert folder_names == [("a", "b")]
    # The last weights count, not the first.
    assert swap(["a", "b", "c"], OLD, NEW, OLD)[0][1] == {"moved": 0.5}


def test_equal_weights_prove_nothing_about_a_swap(swap: Swap) -> None:
    truths = {"c": OLD, "c again": OLD, "a": NEW}
    (first, second), _ = swap(["c", "c again", "a"], OLD, OLD, NEW, **truths)
    assert (first, second["way"]) == ({"moved": 0.0}, 1.0)
    with pytest.raises(ProbeFailed):
        swap(["c", "c again", "a"], OLD, OLD, moved(OLD, 1e-6), **truths)


UNCHANGED = "the weights changed, but the engine's logprobs did not"


@pytest.mark.parametrize(
    ("answers", "truths", "why"),
    [
        ([OLD, OLD], {}, UNCHANGED),
        ([OLD, NEW, NEW], {}, UNCHANGED),
        ([OLD, [NEW[0], OLD[1]]], {}, r"0\.167 nats per token .* was 0\.000 from"),
        ([OLD, moved(OLD, 1e-6)], {"b": OLD}, "weight-swap check inconclusive"),
        ([OLD, NEW], {"prepared": "c", "c": NEWER}, "no reference"),
        ([OLD, NEW], {"b": NAN}, "nan nats per token"),
        ([NAN, NEW], {}, "not finite"),
        ([OLD, NEW, NAN], {}, "not finite"),
    ],
    ids=["first", "second", "part of the weights", "small change", "no reference",
         "reference not finite", "first not finite", "last not finite"],
)  # fmt: skip
def test_a_failed_swap_is_noticed(swap: Swap, answers: Any, truths: Any, why: str) -> None:
    with pytest.raises(ProbeFailed, match=why):
        swap(["a", "b", "c"][: len(answers)], *answers, **truths)


@pytest.mark.parametrize(
    ("before", "after", "fine"),
    [
        pytest.param(0.0, 0.9 * FLOOR, True, id="below the floor"),
        pytest.param(0.0, 1.1 * FLOOR, False, id="above the floor"),
        pytest.param(-FLOOR, -0.9 * SLACK * FLOOR, True, id="below the slack"),
        pytest.param(FLOOR, 1.1 * SLACK * FLOOR, False, id="above the slack"),
        pytest.param(FLOOR / SLACK / 2, 1.1 * FLOOR, False, id="small before"),
    ],
)
def test_the_distance_before_a_swap_bounds_the_distance_after_it(swap, before, after, fine) -> None:
    truths = {"a": moved(OLD, before), "b": moved(NEW, after)}
    failure = pytest.raises(ProbeFailed, match="from the new weights' reference")
    with nullcontext() if fine else failure:
        assert swap(["a", "b"], OLD, NEW, **truths)[0]
