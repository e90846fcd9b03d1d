"""Find checkpoints in a folder or under an S3 prefix, check them, and watch for new ones."""

from __future__ import annotations

import fnmatch
import math
import os
import re
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from ace_ray.config.schema import StoreConfig
from ace_ray.errors import UserError
from ace_ray.models.adapters import WEIGHTS as ADAPTER_WEIGHTS
from ace_ray.models.checkpoints import ADAPTER_CONFIG, INDEX, index_of, missing_weights, suggest_fix
from ace_ray.storage.object_store import LocalStore, Object, Store, open_store
from ace_ray.sweep.config import SweepOptions
from ace_ray.types import digest

# Expressions for the number of a step in a name, the surest first.
_STEPS = (
    r"(?i)(?:step|iter|iteration)s?[-_=.]?(\d+)(?![a-z\d])",
    # A number by itself. It is not a part of w4a16, 7b, fp8, v2.5, seed-1, 4-bit or q8_0.
    r"(?i)(?<![a-z\d])(?<!\d\.)(?<!seed[-_=])(?<!q\d_)(\d+)(?!\.?\d|[a-z]|[-_]bit)",
    r"(?i)(?:checkpoint|ckpt|epoch)(\d+)(?![a-z\d])",
    r"(\d+)",
)
_NARROW = "narrow the pattern, or make a folder of links with names such as step_500"


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint folder. ``state`` is a hash of its list of files. ``lacks`` says which file is
    missing, for messages; it is "" for a complete checkpoint."""

    name: str
    step: int
    source: str
    state: str
    lacks: str


def find_checkpoints(
    options: SweepOptions,
    store: StoreConfig,
    steps: set[int] | None = None,
    sources: Collection[str] = (),
    invalid: dict[str, str] | None = None,
) -> list[Checkpoint]:
    """Return the checkpoints that ``options`` select, sorted by step, complete or not.

    Args:
        steps: steps that earlier searches found; this search adds its steps. ``every`` counts all
            these steps, even if a checkpoint has been deleted since.
        sources: sources of checkpoints that earlier searches found. These checkpoints remain valid
            if a new folder has the same step.
        invalid: receives folders without a unique step, and the reasons. If it is None, an error is
            raised for such a folder.

    Raises `UserError` if no folder matches (unless the sweep watches), if a name has no number, or
    if two folders have the same step."""
    assert options.checkpoints is not None  # not called for other sweeps
    root = options.checkpoints.rstrip("/")
    folder = open_store(root, **store.model_dump())
    files = _folders(folder, options.pattern.strip("/"))
    if not files and not options.watch:
        raise UserError(
            f"contains no checkpoint folder that matches {options.pattern!r}",
            where=root,
            fix=suggest_fix(folder) or "correct the option checkpoints or pattern",
        )
    checkpoints: list[Checkpoint] = []
    problems: dict[str, str] = {}
    for name, items in files.items():
        if (step := step_of(name)) is None:
            problems[f"{root}/{name}"] = f"the name {name!r} contains no step number"
        else:
            checkpoints.append(_checkpoint(folder, root, name, step, items))
    checkpoints.sort(key=lambda checkpoint: checkpoint.step)
    for pair in pairwise(checkpoints):
        if pair[0].step == pair[1].step:
            why = f"{pair[0].name} and {pair[1].name} both have step {pair[0].step}"
            problems |= {twin.source: why for twin in pair if twin.source not in sources}
    if invalid is None and problems:
        raise UserError(next(iter(problems.values())), where=root, fix=_NARROW)
    if invalid is not None:
        invalid |= problems
    checkpoints = [c for c in checkpoints if c.source not in problems]
    steps = set() if steps is None else steps
    steps.update(checkpoint.step for checkpoint in checkpoints)
    selection = select_checkpoints(checkpoints, options, steps)
    if not selection and not options.watch:
        raise UserError(
            f"none of its {len(checkpoints)} checkpoints is between 'from' and 'to'",
            where=root,
            fix=f"the steps are {checkpoints[0].step} to {checkpoints[-1].step}",
        )
    return selection


def select_checkpoints(
    checkpoints: Sequence[Checkpoint], options: SweepOptions, steps: Collection[int] = ()
) -> list[Checkpoint]:
    """Return every n-th checkpoint from step ``from`` to step ``to``; n is ``every``. Steps in
    ``steps`` count even if their checkpoints have been deleted."""
    low, high = options.from_step or 0, math.inf if options.to_step is None else options.to_step
    all_steps = {*steps, *(checkpoint.step for checkpoint in checkpoints)}
    counted = sorted(step for step in all_steps if low <= step <= high)[:: options.every]
    return [checkpoint for checkpoint in checkpoints if checkpoint.step in counted]


def step_of(name: str) -> int | None:
    """Return the training step in the path of a checkpoint: the number after "step" or "iter", else
    the last number that is not a part of a word. Return None if there is no number."""
    for expression in _STEPS:
        if numbers := re.findall(expression, name):
            return int(numbers[-1])
    return None


def _folders(store: Store, pattern: str) -> dict[str, list[Object]]:
    """Return the files of each folder of ``store`` whose path matches ``pattern``."""
    depth = pattern.count("/") + 1
    files: dict[str, list[Object]] = {}
    for file in store.list(links=depth) if isinstance(store, LocalStore) else store.list():
        is_checkpoint = file.broken and file.path.count("/") < depth
        name = file.path if is_checkpoint else file.path.rpartition("/")[0]
        # Deeper files, such as optimizer/shard-0, are not part of the model.
        if name and name.count("/") == depth - 1 and fnmatch.fnmatchcase(name, pattern):
            files.setdefault(name, []).append(file)
    if isinstance(store, LocalStore):
        top = os.path.realpath(store.root)
        targets = {name: os.path.realpath(f"{top}/{name}") for name in files}
        plain = {path for name, path in targets.items() if path == f"{top}/{name}"}
        for name, path in targets.items():
            # A second name of a checkpoint, or a link such as best, which has no step.
            if path != f"{top}/{name}" and (path in plain or step_of(name) is None):
                del files[name]
    return files


def _checkpoint(
    folder: Store, root: str, name: str, step: int, items: Sequence[Object]
) -> Checkpoint:
    names = {item.path.removeprefix(f"{name}/") for item in items}
    state = digest(sorted((item.path, item.size, item.etag) for item in items))
    broken = [f"{item.path} {item.broken}" for item in items if item.broken]
    lacks = broken[0] if broken else _missing_part(folder, name, names)
    if lacks and not broken and (fix := suggest_fix(folder.child(name))):
        lacks += f"; {fix}"
    return Checkpoint(name, step, f"{root}/{name}", state, lacks)


def _missing_part(folder: Store, name: str, names: set[str]) -> str:
    """Return a message about a missing file of the checkpoint; "" if no file is missing."""
    if ADAPTER_CONFIG in names and "config.json" not in names:
        return "" if ADAPTER_WEIGHTS in names else f"{ADAPTER_WEIGHTS} is missing"
    if "config.json" not in names:
        return "config.json is missing"
    if not names & {"tokenizer.json", "tokenizer.model", "vocab.json", "tokenizer_config.json"}:
        return "the tokenizer is missing"
    if INDEX not in names:
        return missing_weights(names)
    try:
        shards = set(index_of(folder.get(f"{name}/{INDEX}") or b"").values())
    except ValueError:
        return f"{INDEX} cannot be read"
    missing = sorted(shards - names)
    return f"{missing[0]} is missing" if missing else ""


LEAST_POLL_S, MOST_POLL_S = 1.0, 30.0


@dataclass(eq=False)
class CheckpointWatch:
    """Watches a folder for checkpoints until the stop file exists. A checkpoint has settled if its
    files have not changed for ``settle_s`` seconds, so that no trainer is writing them.

    Checkpoints that exist when the stop file appears may still settle: a trainer often writes the
    last checkpoint and the stop file together."""

    options: SweepOptions
    store: StoreConfig
    clock: Callable[[], float] = time.monotonic
    steps: set[int] = field(default_factory=set)
    """Steps of checkpoints that earlier executions, and this watch, found."""
    invalid: dict[str, str] = field(default_factory=dict)
    """Folders without a unique step in the last call of `find_new`, and the reasons."""
    failed: bool = False
    """Whether the last call of `find_new` could not list the folder."""
    # Sources of checkpoints; None before the first call of `find_new`, which raises an error for an
    # invalid folder. Later calls only add the folder to `invalid`.
    _sources: set[str] | None = None
    # Source -> (state, time at which this state was first seen).
    _unchanged: dict[str, tuple[str, float]] = field(default_factory=dict)
    _taken_states: dict[str, str] = field(default_factory=dict)
    # Deadline for the last checkpoints to settle; None before the stop file exists.
    _until: float | None = None
    # Sources that existed when the stop file appeared; later sources are ignored.
    _last: set[str] | None = None
    _open: list[Checkpoint] = field(default_factory=list)

    def __post_init__(self) -> None:
        path = self.options.stop_file
        self._is_over = _stop_file(path, self.store) if path else lambda: False

    def find_new(self) -> list[Checkpoint]:
        """List the folder. Return complete, settled checkpoints that are new or have changed since
        `mark_taken`. Raises `UserError` if the folder cannot be read now."""
        invalid: dict[str, str] | None = None if self._sources is None else {}
        sources = self._sources or set()
        try:
            if self._until is None and self._is_over():
                self._until = self.clock() + self.options.settle_s
            checkpoints = find_checkpoints(self.options, self.store, self.steps, sources, invalid)
        except UserError:
            self.failed = True
            raise
        self.failed, self.invalid = False, invalid or {}
        self._sources = sources | {checkpoint.source for checkpoint in checkpoints}
        for checkpoint in checkpoints:
            if self._unchanged.get(checkpoint.source, ("", 0.0))[0] != checkpoint.state:
                self._unchanged[checkpoint.source] = (checkpoint.state, self.clock())
        if self._until is not None:
            if self._last is None:
                self._last = {checkpoint.source for checkpoint in checkpoints}
                self._until = self.clock() + self.options.settle_s
            checkpoints = [c for c in checkpoints if c.source in self._last]
        self._open = [c for c in checkpoints if self._taken_states.get(c.source) != c.state]
        return self.pending_checkpoints()

    def mark_taken(self, checkpoint: Checkpoint) -> None:
        """Mark ``checkpoint`` as taken: `find_new` returns it again only if it changes."""
        self._taken_states[checkpoint.source] = checkpoint.state

    @property
    def poll_s(self) -> float:
        """Seconds between two calls of `find_new`: half of ``settle_s``, within bounds."""
        return min(max(LEAST_POLL_S, self.options.settle_s / 2), MOST_POLL_S)

    @property
    def wait_s(self) -> float:
        """Seconds until the next call of `find_new`; 0 if the watch has ended."""
        if self._until is None:
            return self.poll_s
        if not (self.failed or self.list_unfinished() or self.pending_checkpoints()):
            return 0.0
        return max(0.0, min(self.poll_s, self._until - self.clock()))

    def list_unfinished(self) -> list[Checkpoint]:
        """Return checkpoints that have not settled and may still be written."""
        return [c for c in self._open if not self._has_settled(c)]

    def list_incomplete(self) -> list[Checkpoint]:
        """Return checkpoints that have settled but are not complete."""
        return [c for c in self._open if c.lacks and self._has_settled(c)]

    def pending_checkpoints(self) -> list[Checkpoint]:
        """Return complete, settled checkpoints that were not taken."""
        checkpoints = [c for c in self._open if not c.lacks and self._has_settled(c)]
        return [c for c in checkpoints if self._taken_states.get(c.source) != c.state]

    def _has_settled(self, checkpoint: Checkpoint) -> bool:
        return self.clock() - self._unchanged[checkpoint.source][1] >= self.options.settle_s


def _stop_file(path: str, store: StoreConfig) -> Callable[[], bool]:
    """Return a function that tells whether the stop file exists, on a disk or on S3.
    Raises `UserError` if ``path`` is not a valid path or URI."""
    if "://" not in path:
        return Path(path).exists
    folder, _, name = path.rpartition("/")
    # For s3://FILE without a bucket, folder is "s3:/", a local path; "s3://" raises.
    uri = folder if "://" in folder else "s3://"
    parent = open_store(uri, **store.model_dump()).with_short_timeout()
    return lambda: parent.get(name) is not None
