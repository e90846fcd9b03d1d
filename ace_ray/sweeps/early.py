"""What each run of a sweep is compared with, and its share of the sweep's alpha: given once.

A share that followed from how many runs there are now would be another one in the next call, and
all shares together more than the sweep's alpha. ``early.json`` in the sweep's folder holds them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ace_ray.bounded import Unbounded, json_tree
from ace_ray.config import EarlyConfig
from ace_ray.errors import UserError
from ace_ray.run.summary import as_json
from ace_ray.store import Store

EARLY = "early.json"
FIRST_BATCH = 0.9
"""Of the alpha, for the comparisons that the first call knows of."""


class Share(BaseModel):
    """``against``: a run's folder; None: it is what others are compared with."""

    model_config = ConfigDict(allow_inf_nan=False)
    against: str | None
    alpha: float = Field(ge=0, le=1)


class Shares(BaseModel):
    model_config = ConfigDict(allow_inf_nan=False)
    schema_version: Literal[1] = 1
    shares: dict[str, Share] = Field(default_factory=dict)
    """By run id."""
    batches: int = 0
    """Calls, or looks of a watch, in which comparisons came."""
    comparisons: int = 0
    best: list[str] = Field(default_factory=list)
    """Run ids that were chosen to be completed, once nothing else was left to do."""
    best_of: list[str] = Field(default_factory=list)
    """Run ids that they were chosen of."""

    def give(
        self, config: EarlyConfig, run_ids: Sequence[str], store: Store, *, watched: bool
    ) -> bool:
        """Give those of ``run_ids``, in the order of training, that have none their share; whether
        there were any.

        Each takes a part of what is left, so that all add up to no more than the alpha, whatever
        calls and watches follow each other. The comparisons of a first call have 0.9 of it, alike,
        those of the b-th after it 6 / (pi b)^2 of what the first left; a sweep that watches gives
        the k-th comparison 6 / (pi k)^2 of all."""
        new = [run_id for run_id in run_ids if run_id not in self.shares]
        against = {run_id: self._against(config, run_ids, run_id, store) for run_id in new}
        compared = [run_id for run_id in new if against[run_id] is not None]
        part = _of_the_rest(self.batches) if self.batches else FIRST_BATCH
        each = self._left(config) * part / max(1, len(compared))
        for run_id in new:
            alpha = config.alpha
            if against[run_id] is not None and watched:
                self.comparisons += 1
                alpha = self._left(config) * _of_the_rest(self.comparisons)
            elif against[run_id] is not None:
                alpha = each
            self.shares[run_id] = Share(against=against[run_id], alpha=alpha)
        self.batches += bool(compared)
        return bool(new)

    def _left(self, config: EarlyConfig) -> float:
        given = sum(one.alpha for one in self.shares.values() if one.against is not None)
        return max(0.0, config.alpha - given)

    def _against(
        self, config: EarlyConfig, run_ids: Sequence[str], run_id: str, store: Store
    ) -> str | None:
        if config.against not in ("previous", "baseline"):
            return config.against
        place = run_ids.index(run_id)
        if config.against == "previous":
            return store.child(run_ids[place - 1]).root if place else None
        # The first one that there ever was, whatever has become of its checkpoint.
        first = next((name for name, one in self.shares.items() if one.against is None), run_ids[0])
        return None if run_id == first else store.child(first).root


def _of_the_rest(k: int) -> float:
    """The k-th of the weights 6 / (pi j)^2, which add up to 1, as a share of those from it on."""
    weights = [6 / (math.pi * j) ** 2 for j in range(1, k + 1)]
    return weights[-1] / (1 - sum(weights[:-1]))


def read_shares(store: Store) -> Shares:
    """Those of the sweep in ``store``. Raises `UserError`: they cannot be read."""
    content = store.get(EARLY)
    if content is None:
        return Shares()
    try:
        return Shares.model_validate(json_tree(content))
    except (Unbounded, ValidationError) as error:
        raise UserError(
            "cannot be read, and holds what alpha was given to whom",
            where=f"{store.root}/{EARLY}",
            fix="restore it, or choose another sweep_id",
        ) from error


def write_shares(store: Store, shares: Shares) -> None:
    tree: dict[str, Any] = shares.model_dump(mode="json")
    store.put(EARLY, as_json(tree))
