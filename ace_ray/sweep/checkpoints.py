"""Find checkpoints in a folder or under an S3 prefix, and what is missing from them."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ace_ray.config.schema import StoreConfig
from ace_ray.errors import UserError
from ace_ray.models.adapters import WEIGHTS as ADAPTER_WEIGHTS
from ace_ray.models.checkpoints import ADAPTER_CONFIG, INDEX, index_of, lacking
from ace_ray.storage.object_store import Object, Store, open_store
from ace_ray.sweep.config import SweepOptions
from ace_ray.types import digest

_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint. ``state`` changes whenever one of its files does; ``lacks`` names what is
    missing."""

    name: str
    step: int
    source: str
    state: str
    lacks: str


def find_checkpoints(
    options: SweepOptions,
    store: StoreConfig,
    seen: set[int] | None = None,
    known: Collection[str] = (),
    invalid: dict[str, str] | None = None,
) -> list[Checkpoint]:
    """Return the checkpoints that ``options`` choose, sorted by step, complete or not. While
    watching, there may be none yet.

    ``seen``: steps of earlier calls. The steps of this call are added, because ``every`` must
    choose the same checkpoints when a trainer keeps only the last few. ``invalid``: if given,
    folders without a step of their own are added to it (source -> reason) instead of raising an
    error. Of two folders with the same step, the one whose source is ``known`` is kept.

    Raises `UserError`: nothing matches, a name has no number, or two checkpoints have the same
    step.
    """
    assert options.checkpoints is not None  # only sweeps over checkpoints come here
    root = options.checkpoints.rstrip("/")
    folder = open_store(root, endpoint_url=store.endpoint_url, region=store.region)
    files: dict[str, list[Object]] = {}
    for item in folder.list():
        name, slash, path = item.path.partition("/")
        # A trainer's other files (optimizer, optimizer/shard-0) are not part of the model.
        if (
            (slash or item.broken)
            and "/" not in path
            and fnmatch.fnmatchcase(name, options.pattern)
        ):
            files.setdefault(name, []).append(item)
    if not files and not options.watch:
        raise UserError(
            f"contains no checkpoint folder that matches {options.pattern!r}",
            where=root,
            fix="correct checkpoints or pattern",
        )
    checkpoints = []
    for name, items in files.items():
        if numbers := _NUMBER.findall(name):
            checkpoints.append(_checkpoint(folder, root, name, int(numbers[-1]), items))
        elif invalid is None:
            raise UserError(
                f"the name {name!r} contains no step number", where=root, fix="narrow the pattern"
            )
        else:
            invalid[f"{root}/{name}"] = f"the name {name!r} contains no step number"
    checkpoints.sort(key=lambda checkpoint: checkpoint.step)
    for one, other in pairwise(checkpoints):
        if one.step != other.step:
            continue
        why = f"{one.name} and {other.name} both have step {one.step}"
        if invalid is None:
            raise UserError(why, where=root, fix="narrow the pattern")
        invalid |= {twin.source: why for twin in (one, other) if twin.source not in known}
    checkpoints = [
        checkpoint for checkpoint in checkpoints if checkpoint.source not in (invalid or ())
    ]
    seen = set() if seen is None else seen
    seen.update(checkpoint.step for checkpoint in checkpoints)
    taken = chosen(checkpoints, options, seen)
    if not taken and not options.watch:
        raise UserError(
            f"none of its {len(checkpoints)} checkpoints is between 'from' and 'to'",
            where=root,
            fix=f"the steps are {checkpoints[0].step} to {checkpoints[-1].step}",
        )
    return taken


def chosen(
    checkpoints: Sequence[Checkpoint], options: SweepOptions, seen: Collection[int] = ()
) -> list[Checkpoint]:
    """``from`` and ``to``, then ``every`` n-th step ever seen."""
    low = options.from_step if options.from_step is not None else 0
    high = options.to_step if options.to_step is not None else float("inf")
    all_steps = {*seen, *(checkpoint.step for checkpoint in checkpoints)}
    steps = sorted(step for step in all_steps if low <= step <= high)
    counted = {*steps[:: options.every]}
    taken = [checkpoint for checkpoint in checkpoints if checkpoint.step in counted]
    return taken


def _checkpoint(
    folder: Store, root: str, name: str, step: int, items: Sequence[Object]
) -> Checkpoint:
    names = {item.path.partition("/")[2] for item in items}
    state = digest(sorted((item.path, item.size, item.etag) for item in items))
    broken = [f"{item.path} {item.broken}" for item in items if item.broken]
    lacks = broken[0] if broken else _lacks(folder, name, names)
    return Checkpoint(name, step, f"{root}/{name}", state, lacks)


def _lacks(folder: Store, name: str, names: set[str]) -> str:
    """Return what is missing from a checkpoint, "" for nothing."""
    if ADAPTER_CONFIG in names and "config.json" not in names:
        return "" if ADAPTER_WEIGHTS in names else f"{ADAPTER_WEIGHTS} is missing"
    if "config.json" not in names:
        return "config.json is missing"
    if not names & {"tokenizer.json", "tokenizer.model", "vocab.json", "tokenizer_config.json"}:
        return "the tokenizer is missing"
    if INDEX not in names:
        return lacking(names)
    try:
        shards = set(index_of(folder.get(f"{name}/{INDEX}") or b"").values())
    except ValueError:
        return f"{INDEX} cannot be read"
    missing = sorted(shards - names)
    return f"{missing[0]} is missing" if missing else ""
