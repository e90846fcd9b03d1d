"""Checks by logprobs of fixed texts that an engine has taken new weights.

A swap may fail without an error (on the CPU a tied output head kept its old packed weights). The
first one of an engine is held against references computed by transformers from the old weights and
from the new: how far engine and reference are apart before the swap says how far they may be after
it, and the engine must have gone the way from one reference to the other. The latter tells also
neighbours in training apart, which lie closer than two right implementations do. Each further swap
is held against the checkpoint before: other weights must say other things.
"""

from __future__ import annotations

import hashlib
import json
import math
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import psutil

from ace_ray.models.checkpoints import shards_of, weight_bytes
from ace_ray.util.subprocesses import module_command, module_environment

CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUP = Path("/proc/self/cgroup")

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

WAY = (0.75, 1.25)
"""Share of the way from the old reference to the new that the engine must have gone: 0 of it with
weights that were not taken, 1 with all of them. An engine that two implementations' rounding takes
out of this range is started anew, which is the right answer where nothing can be told."""

Logprobs = Sequence[Sequence[float]]
"""Per text, the logprob of each token but the first."""


class ProbeFailed(Exception):
    """The engine does not say what the new weights should."""


class CannotTell(ProbeFailed):
    """Nobody can tell whether the swap worked: the references of old and new weights are too close,
    or the engine says no numbers."""


class Probed(Protocol):
    async def logprobs(self) -> Logprobs:
        """Of `TEXTS`."""

    def reference(self, folders: Sequence[Path]) -> list[Logprobs]:
        """What each checkpoint should say, from another implementation. Blocks; runs in a thread.
        Raises `ProbeFailed`."""


class Probe:
    """The probe of one live engine."""

    def __init__(self, engine: Probed, *, proven: bool = False) -> None:
        """``proven``: nobody needs to show that a swap takes effect at all."""
        self._engine = engine
        self._held: Path | None = None
        self._said: Logprobs = ()
        self._proven = proven
        self._references: dict[tuple[Path, Path], list[Logprobs] | ProbeFailed] = {}
        """By what was held and what was to come: it may be another checkpoint's turn after all."""

    async def begin(self, folder: Path) -> None:
        """The engine is new and holds the weights in ``folder``. Raises `ProbeFailed`: they say
        nothing that is a number."""
        self._held, self._said = folder, await self._engine.logprobs()
        if not _is_finite(self._said):
            raise ProbeFailed(_NOT_FINITE)

    def prepare(self, held: Path, folder: Path) -> None:
        """Compute the references of the first swap ahead; blocks."""
        if not self._proven and (held, folder) not in self._references:
            try:
                self._references[held, folder] = self._engine.reference([held, folder])
            except ProbeFailed as error:
                self._references[held, folder] = error

    async def swapped(self, folder: Path) -> dict[str, Any]:
        """The engine was told to hold those in ``folder``. Returns what was found.

        Raises `ProbeFailed`. `prepare` must have been called for the first swap.
        """
        logprobs = await self._engine.logprobs()
        assert self._held is not None  # `begin` comes first
        if not _is_finite(logprobs):
            raise CannotTell(_NOT_FINITE)  # a new engine shows whether the weights are to blame
        facts: dict[str, Any] = {"moved": round(distance(self._said, logprobs), 4)}
        same = logprobs == self._said and weights_hash(folder) == weights_hash(self._held)
        if logprobs == self._said and not same:
            raise ProbeFailed("the weights are others, and the engine says the same as before")
        # Equal weights prove nothing of a swap.
        if not self._proven and not same:
            facts |= self._against_references(self._held, folder, logprobs)
            self._proven = True
        self._held, self._said = folder, logprobs
        return facts

    def _against_references(self, held: Path, folder: Path, logprobs: Logprobs) -> dict[str, float]:
        references = self._references.get((held, folder))
        if references is None:
            raise ProbeFailed("there is no reference to hold the first swap against")
        if isinstance(references, ProbeFailed):
            raise references
        before, after = references
        usual, now = distance(before, self._said), distance(after, logprobs)
        if not now <= max(FLOOR, SLACK * usual):
            raise ProbeFailed(
                f"the engine is {now:.3f} nats a token from what the new weights say, it was "
                f"{usual:.3f} from what the old ones say"
            )
        way = way_gone(before, after, self._said, logprobs)
        if not WAY[0] <= way <= WAY[1]:
            raise CannotTell(
                f"what the old weights say and what the new ones do are "
                f"{distance(before, after):.4f} nats a token apart, and the engine went "
                f"{100 * way:.0f} % of that way: it cannot be told whether it took them"
            )
        return {"from_reference": round(now, 4), "before": round(usual, 4), "way": round(way, 2)}


_NOT_FINITE = "the engine's logprobs are not finite: the weights hold NaN or infinite values"


def _is_finite(logprobs: Logprobs) -> bool:
    return all(math.isfinite(value) for text in logprobs for value in text)


def way_gone(before: Logprobs, after: Logprobs, said_old: Logprobs, said_new: Logprobs) -> float:
    """The share of the way from ``before`` to ``after`` by which ``said_new`` is further than
    ``said_old``: the slope of the engine's changes, token by token, on the references'. NaN where
    the references do not differ."""
    expected, seen = _changes(before, after), _changes(said_old, said_new)
    length = sum(change * change for change in expected)
    along = sum(a * b for a, b in zip(expected, seen, strict=True))
    return along / length if length else math.nan


def _changes(one: Logprobs, other: Logprobs) -> list[float]:
    return [
        b - a for text, of in zip(one, other, strict=True) for a, b in zip(text, of, strict=True)
    ]


def distance(one: Logprobs, other: Logprobs) -> float:
    """Mean absolute difference of two lists of logprobs, nats per token; NaN where one has one."""
    moves = [abs(change) for change in _changes(one, other)]
    return sum(moves) / len(moves)


def computed_references(folders: Sequence[Path], texts: Sequence[Sequence[int]]) -> list[Logprobs]:
    """What transformers says of ``texts``, token ids, with the weights in each of ``folders``.

    Raises `ProbeFailed`: it could not be computed."""
    need = 1.2 * max(weight_bytes(folder) for folder in folders)
    if need > (free := available_bytes()):
        raise ProbeFailed(
            f"a reference takes {need / 2**30:.1f} GiB of memory, {free / 2**30:.1f} are free"
        )
    done = subprocess.run(
        module_command("ace_ray.models.reference", *map(str, folders)),
        env=module_environment(),
        input=json.dumps(texts),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["it ended without an error message"]
        raise ProbeFailed(f"no reference could be computed: {lines[-1]}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def available_bytes(root: Path = CGROUPS, own: Path = OWN_CGROUP) -> int:
    """The host memory that this process can still have: of a container its limit, not the node's.

    Linux limits groups of processes (cgroups, version 2), each within those above it."""
    free = [int(psutil.virtual_memory().available)]
    with suppress(OSError, ValueError):
        place = root / own.read_text().rpartition("0::/")[2].strip()
        for folder in (place, *place.parents):
            if not folder.is_relative_to(root):
                break
            with suppress(OSError, ValueError, KeyError):  # "max", or not told
                stat = dict(line.split() for line in (folder / "memory.stat").open())
                used = int((folder / "memory.current").read_text()) - int(stat["inactive_file"])
                free.append(int((folder / "memory.max").read_text()) - used)
    return max(0, min(free))


def weights_hash(folder: Path) -> str:
    """SHA-256 over the weight files' contents."""
    total = hashlib.sha256()
    for shard in shards_of(folder):
        with (folder / shard).open("rb") as file:
            total.update(hashlib.file_digest(file, "sha256").digest())
    return total.hexdigest()
