"""Does an engine hold the weights it was told to take? Its logprobs of fixed texts tell.

A swap may fail without a word (on the CPU a tied output head kept its old packed weights). The
first one of an engine is held against a reference computed from the new weights by transformers;
how far engine and reference are apart before the swap says how far they may be after it. Each
further one is held against the checkpoint before: other weights must say other things.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from ace_ray.models.checkpoints import shards_of

TEXTS = (
    "The train to the coast leaves at seven in the morning and takes about three hours.",
    'set_alarm(time="06:30", days=["Monday", "Friday"], label="swimming")',
    '{"city": "Lisbon", "guests": 2, "breakfast": true, "price": 118.5}',
)
"""Prose, a call, and data: what these models read."""

FLOOR = 0.05
"""Nats per token by which two right implementations may differ: bfloat16 on other kernels."""

SLACK = 3.0
"""Times the distance before the swap that is allowed after it."""

Logprobs = Sequence[Sequence[float]]
"""Per text, the logprob of each token but the first."""


class ProbeFailed(Exception):
    """The engine does not say what the new weights should."""


class Probed(Protocol):
    async def logprobs(self) -> Logprobs:
        """Of `TEXTS`."""

    def reference(self, folders: Sequence[Path]) -> list[Logprobs]:
        """What each checkpoint should say, from another implementation. Blocks; runs in a thread.
        Raises `ProbeFailed`."""


class Probe:
    """The probe of one live engine."""

    def __init__(self, engine: Probed) -> None:
        self._engine = engine
        self._held: Path | None = None
        self._said: Logprobs = ()
        self._proven = False
        self._references: dict[tuple[Path, Path], list[Logprobs] | ProbeFailed] = {}
        """By what was held and what was to come: it may be another checkpoint's turn after all."""

    async def begin(self, folder: Path) -> None:
        """The engine is new and holds the weights in ``folder``."""
        self._held, self._said = folder, await self._engine.logprobs()

    def prepare(self, held: Path, folder: Path) -> None:
        """Compute the reference of the first swap ahead; blocks."""
        if not self._proven and (held, folder) not in self._references:
            try:
                self._references[held, folder] = self._engine.reference([held, folder])
            except ProbeFailed as error:
                self._references[held, folder] = error

    async def swapped(self, folder: Path) -> dict[str, Any]:
        """The engine was told to hold those in ``folder``. Returns what was found.

        Raises `ProbeFailed`. `prepare` must have been called for the first swap.
        """
        said = await self._engine.logprobs()
        assert self._held is not None  # `begin` comes first
        found: dict[str, Any] = {"moved": round(distance(self._said, said), 4)}
        if not all(math.isfinite(value) for text in said for value in text):
            raise ProbeFailed("the engine's logprobs are not finite")
        if said == self._said and weights_hash(folder) != weights_hash(self._held):
            raise ProbeFailed("the weights are others, and the engine says the same as before")
        if not self._proven:
            found |= self._against_reference(self._held, folder, said)
            self._proven = True
        self._held, self._said = folder, said
        return found

    def _against_reference(self, held: Path, folder: Path, said: Logprobs) -> dict[str, float]:
        references = self._references.get((held, folder))
        if references is None:
            raise ProbeFailed("there is no reference to hold the first swap against")
        if isinstance(references, ProbeFailed):
            raise references
        before, after = references
        usual, now = distance(before, self._said), distance(after, said)
        if not now <= max(FLOOR, SLACK * usual):
            raise ProbeFailed(
                f"the engine is {now:.3f} nats a token from what the new weights say, it was "
                f"{usual:.3f} from what the old ones say"
            )
        return {"from_reference": round(now, 4), "before": round(usual, 4)}


def distance(one: Logprobs, other: Logprobs) -> float:
    """Mean absolute difference of two lists of logprobs, nats per token; NaN where one has one."""
    pairs = [
        abs(a - b)
        for text, of in zip(one, other, strict=True)
        for a, b in zip(text, of, strict=True)
    ]
    return sum(pairs) / len(pairs)


def weights_hash(folder: Path) -> str:
    """SHA-256 over the weight files' contents."""
    total = hashlib.sha256()
    for shard in shards_of(folder):
        with (folder / shard).open("rb") as file:
            total.update(hashlib.file_digest(file, "sha256").digest())
    return total.hexdigest()
