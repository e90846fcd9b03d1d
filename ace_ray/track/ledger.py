"""What trackers were sent: ``published.json`` in the folder of a run or a sweep.

No tracker is idempotent by itself, so that each number is sent once is kept here. It is written
after each send: a process that ends between the two sends that publication's points again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pydantic import Field

from ace_ray.bounded import json_object
from ace_ray.config import validated
from ace_ray.errors import UserError
from ace_ray.publishers.base import Point
from ace_ray.run.storage.stored import PUBLISHED, Stored
from ace_ray.run.summary import as_json
from ace_ray.store import Store
from ace_ray.track.publications import by_step

Steps = dict[str, dict[str, float]]


class _Ledger(Stored):
    schema_version: int = 1
    sent: dict[str, dict[str, Steps]] = Field(default_factory=dict)
    """Target -> key of a publication -> step, "" for none -> metric -> value."""


def read_sent(store: Store, target: str, key: str) -> Steps:
    """Raises `UserError`: the file is damaged. Taken for an empty one, all would be sent twice."""
    return _read(store.get(PUBLISHED), store).sent.get(target, {}).get(key, {})


def note_sent(store: Store, target: str, key: str, points: Sequence[Point]) -> None:
    """``points`` are in the tracker. What another process noted meanwhile stays."""
    while True:
        tagged = store.tagged(PUBLISHED)
        ledger = _read(tagged[0] if tagged else None, store)
        steps = ledger.sent.setdefault(target, {}).setdefault(key, {})
        for step, metrics in by_step(points).items():
            steps.setdefault(step, {}).update(metrics)
        content = as_json(ledger.model_dump(mode="json"))
        if store.put_if(PUBLISHED, content, tagged[1] if tagged else None) is not None:
            return


def unsent(points: Sequence[Point], sent: Mapping[str, Mapping[str, float]]) -> list[Point]:
    """What of ``points`` is not in the tracker, or with another value."""
    found = []
    for point, metrics in zip(points, by_step(points).items(), strict=True):
        known = sent.get(metrics[0], {})
        new = {name: value for name, value in metrics[1].items() if known.get(name) != value}
        if new:
            found.append(replace(point, metrics=new))
    return found


def changed(points: Sequence[Point], sent: Mapping[str, Mapping[str, float]]) -> int:
    """How many numbers of ``points`` were sent with another value: the run was scored again."""
    return sum(
        name in sent.get(step, {}) for step, metrics in by_step(points).items() for name in metrics
    )


def _read(content: bytes | None, store: Store) -> _Ledger:
    if content is None:
        return _Ledger()
    where = f"{store.root}/{PUBLISHED}"
    try:
        return validated(_Ledger, json_object(content, where), where=where)
    except UserError as error:
        raise UserError(
            error.what, where=where, fix="remove the file; everything is then sent again"
        ) from error
