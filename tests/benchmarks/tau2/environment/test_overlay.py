"""A mapping over one that others read: whatever happens to it, it is a mapping of its own."""

from __future__ import annotations

import random

from pydantic import BaseModel

from ace_ray.benchmarks.tau2.environment.sources import Overlay


class Record(BaseModel):
    value: int
    parts: list[int] = []


def test_it_does_what_a_deep_copy_does() -> None:
    draw = random.Random(5)
    for _ in range(300):
        base = {str(key): Record(value=key) for key in range(draw.randint(0, 4))}
        kept = {key: record.model_dump() for key, record in base.items()}
        copy = {key: record.model_copy(deep=True) for key, record in base.items()}
        ours = Overlay(base)
        for _ in range(draw.randint(1, 12)):
            key = str(draw.randint(0, 6))
            action = draw.randint(0, 4)
            if action == 0:
                ours[key], copy[key] = Record(value=9), Record(value=9)
            elif action == 1 and key in copy:
                del ours[key], copy[key]
            elif action == 2 and key in copy:
                ours[key].parts.append(1)
                copy[key].parts.append(1)
            elif action == 3:
                for one, other in zip(ours.values(), copy.values(), strict=True):
                    one.value += 1
                    other.value += 1
            assert (key in ours) == (key in copy)
            assert len(ours) == len(copy)
            assert ours.get(key) == copy.get(key)
        assert dict(ours) == copy
        assert list(ours) == list(copy)
        assert {key: record.model_dump() for key, record in base.items()} == kept
        differing = {
            key
            for key in kept.keys() | copy.keys()
            if kept.get(key) != (copy[key].model_dump() if key in copy else None)
        }
        assert set(ours.changed()) == differing


def test_reading_copies_nothing() -> None:
    base = {"a": Record(value=1)}
    ours = Overlay(base)
    ours.copies = False
    assert ours["a"] is base["a"]
    assert next(iter(ours.values())) is base["a"]
    ours.copies = True
    assert ours["a"] is not base["a"]
    assert not ours.changed()
