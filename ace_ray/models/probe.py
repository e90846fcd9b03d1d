"""Check that an engine uses the new weights after a swap, by its logprobs of fixed texts.

A swap replaces the weights of a running engine. It may fail without an error: on the CPU, a tied
output head kept its old packed weights. After the first swap of an engine, its logprobs are
compared with references, which transformers computes from the old and the new weights. There are
two tests:

- The distance from the reference must not be much larger after the swap than before it.
- The logprobs must change as much as the references do. This test also detects a failed swap
  between similar checkpoints, which differ less than two correct implementations.

After each later swap, the logprobs must differ from the earlier ones if the weights differ."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from ace_ray.models.checkpoints import content_sha256, shards_of, weight_bytes
from ace_ray.util.subprocesses import run_module

# Probe texts: prose, a call and data.
TEXTS = (
    "The train to the coast leaves at seven in the morning and takes about three hours.",
    'set_alarm(time="06:30", days=["Monday", "Friday"], label="swimming")',
    '{"city": "Lisbon", "guests": 2, "breakfast": true, "price": 118.5}',
)

# Distance of two correct implementations (bfloat16, different kernels), in nats per token.
FLOOR = 0.05

# Maximum ratio of the distance after the swap to the distance before it.
SLACK = 3.0

# Allowed range of `progress`: 0 if no weights were replaced, 1 if all were. An engine outside of
# this range is restarted, which is safe even if rounding is the cause.
WAY = (0.75, 1.25)

# For each text, the logprob of each token except the first.
Logprobs = Sequence[Sequence[float]]


class ProbeFailed(Exception):
    """The engine's logprobs do not match the new weights."""


class NoVerdict(ProbeFailed):
    """The probe cannot decide whether the swap worked: the references are too close, or the
    engine's logprobs are not finite."""


class Probe:
    """Checks after each swap of weights that the engine computes with the new weights."""

    def __init__(self, engine: Any, *, proven: bool = False) -> None:
        """Prepare to check ``engine``. ``proven``: do not compare it with references at all."""
        self._engine = engine
        self._folder: Path | None = None
        self._logprobs: Logprobs = ()
        self._proven = proven
        # (old folder, new folder) -> references. The next checkpoint may change after `prepare`.
        self._references: dict[tuple[Path, Path], list[Logprobs] | ProbeFailed] = {}

    async def begin(self, folder: Path) -> None:
        """Record the logprobs of a new engine with the weights in ``folder``. Raises `ProbeFailed`
        if the logprobs are not finite."""
        self._folder, self._logprobs = folder, await self._engine.logprobs()
        if not _is_finite(self._logprobs):
            raise ProbeFailed(_NOT_FINITE)

    def prepare(self, old_folder: Path, folder: Path) -> None:
        """Compute the references for a first swap, from ``old_folder`` to ``folder``. Blocks."""
        if not self._proven and (old_folder, folder) not in self._references:
            try:
                self._references[old_folder, folder] = self._engine.reference([old_folder, folder])
            except ProbeFailed as error:
                self._references[old_folder, folder] = error

    async def check_swap(self, folder: Path) -> dict[str, Any]:
        """Check the engine after a swap to the weights in ``folder``. Return the measured distances
        for the log. Raises `ProbeFailed` if the engine's logprobs do not match the new weights.
        Before the first swap, `prepare` must have been called."""
        logprobs = await self._engine.logprobs()
        assert self._folder is not None  # `begin` comes first
        if not _is_finite(logprobs):
            raise NoVerdict(_NOT_FINITE)  # a new engine will show whether the weights are bad
        facts: dict[str, Any] = {"moved": round(distance(self._logprobs, logprobs), 4)}
        is_equal = logprobs == self._logprobs and weights_hash(folder) == weights_hash(self._folder)
        if logprobs == self._logprobs and not is_equal:
            raise ProbeFailed(
                "weight-swap check failed: the weights changed, but the engine's logprobs did not"
            )
        # Equal weights do not show whether a swap works.
        if not self._proven and not is_equal:
            facts |= self._distances(self._folder, folder, logprobs)
            self._proven = True
        self._folder, self._logprobs = folder, logprobs
        return facts

    def _distances(self, old_folder: Path, folder: Path, logprobs: Logprobs) -> dict[str, float]:
        references = self._references.get((old_folder, folder))
        if references is None:
            raise ProbeFailed("weight-swap check failed: there is no reference for the first swap")
        if isinstance(references, ProbeFailed):
            raise references
        before, after = references
        old_gap, gap = distance(before, self._logprobs), distance(after, logprobs)
        if not gap <= max(FLOOR, SLACK * old_gap):
            raise ProbeFailed(
                f"weight-swap check failed: after the swap the engine is {gap:.3f} nats "
                f"per token from the new weights' reference; before, it was {old_gap:.3f} "
                "from the old weights' reference"
            )
        way = progress(before, after, self._logprobs, logprobs)
        if not WAY[0] <= way <= WAY[1]:
            raise NoVerdict(
                f"weight-swap check inconclusive ({100 * way:.0f} % of the expected "
                f"change; needs {100 * WAY[0]:.0f} to {100 * WAY[1]:.0f} %)"
            )
        return {"from_reference": round(gap, 4), "before": round(old_gap, 4), "way": round(way, 2)}


_NOT_FINITE = "the engine's logprobs are not finite: the weights contain NaN or infinite values"


def _is_finite(logprobs: Logprobs) -> bool:
    return all(math.isfinite(value) for text in logprobs for value in text)


def progress(before: Logprobs, after: Logprobs, said_old: Logprobs, said_new: Logprobs) -> float:
    """Return how far the engine has moved from old to new weights: 0 not at all, 1 completely.

    ``before`` and ``after`` are the references of the old and new weights; ``said_old`` and
    ``said_new`` are the engine's logprobs. The result is the slope of a regression, over tokens, of
    the engine's changes on the references' changes. It is NaN if the references are equal."""
    expected, actual = _changes(before, after), _changes(said_old, said_new)
    length = sum(change * change for change in expected)
    along = sum(a * b for a, b in zip(expected, actual, strict=True))
    return along / length if length else math.nan


def _changes(before: Logprobs, after: Logprobs) -> list[float]:
    return [
        b - a for text, of in zip(before, after, strict=True) for a, b in zip(text, of, strict=True)
    ]


def distance(before: Logprobs, after: Logprobs) -> float:
    """Return the mean absolute difference of logprobs in nats per token; NaN if one is NaN."""
    moves = [abs(change) for change in _changes(before, after)]
    return sum(moves) / len(moves)


def compute_references(folders: Sequence[Path], texts: Sequence[Sequence[int]]) -> list[Logprobs]:
    """Compute logprobs of ``texts`` (token ids) with transformers and the weights in each folder.
    Raises `ProbeFailed` if there is too little memory or the computation fails."""
    need = 1.2 * max(weight_bytes(folder) for folder in folders)
    if need > (free := available_bytes()):
        raise ProbeFailed(
            f"a reference needs {need / 2**30:.1f} GiB of memory, but only "
            f"{free / 2**30:.1f} GiB are free"
        )
    process = run_module("ace_ray.models.reference", *map(str, folders), stdin=json.dumps(texts))
    if process.returncode != 0:
        lines = process.stderr.strip().splitlines() or ["it ended without an error message"]
        raise ProbeFailed(f"the reference could not be computed: {lines[-1]}")
    return [json.loads(line) for line in process.stdout.splitlines()]


def available_bytes() -> int:
    """Return the host memory that is available to this process, within a container's limit.

    Linux limits groups of processes (cgroups version 2), and parent groups limit their children."""
    root, free = Path("/sys/fs/cgroup"), [int(psutil.virtual_memory().available)]
    with suppress(OSError, ValueError):
        group = root / Path("/proc/self/cgroup").read_text().rpartition("0::/")[2].strip()
        for folder in (group, *group.parents):
            if not folder.is_relative_to(root):
                break
            with suppress(OSError, ValueError, KeyError):  # "max" means unlimited
                stat = dict(line.split() for line in (folder / "memory.stat").open())
                usage = int((folder / "memory.current").read_text()) - int(stat["inactive_file"])
                free.append(int((folder / "memory.max").read_text()) - usage)
    return max(0, min(free))


def weights_hash(folder: Path) -> str:
    """Return the SHA-256 of the contents of the weight files."""
    return content_sha256(folder / shard for shard in shards_of(folder))
