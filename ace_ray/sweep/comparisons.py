"""Manage the comparisons of a sweep: the reference and alpha of each run, and early stopping.

A run is compared with a reference run. The sweep's alpha limits the probability of any wrong
decision. Each run gets a share of alpha. The shares are stored in ``early.json`` in the sweep's
folder: shares computed again from the current number of runs could together exceed alpha."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ace_ray.config.schema import EarlyConfig, RunConfig
from ace_ray.early_stopping.looks import update_decision
from ace_ray.errors import UserError
from ace_ray.storage.object_store import Store, open_store
from ace_ray.storage.stored import as_json, read_manifest
from ace_ray.sweep.packing import Lane
from ace_ray.sweep.runs import SweepEntry
from ace_ray.util import log
from ace_ray.util.safe_loading import InvalidContent, json_tree

EARLY = "early.json"
# Share of the sweep's alpha for all comparisons of the first call.
FIRST_BATCH = 0.9


class Share(BaseModel):
    """The reference and the alpha of a run. ``against`` is the folder of the reference run; None
    for a run that is itself the reference."""

    model_config = ConfigDict(allow_inf_nan=False)
    against: str | None
    alpha: float = Field(ge=0, le=1)


class Shares(BaseModel):
    model_config = ConfigDict(allow_inf_nan=False)
    schema_version: Literal[1] = 1
    shares: dict[str, Share] = Field(default_factory=dict)
    """Shares by run id."""
    batches: int = 0
    """Number of times that comparisons were added."""
    comparisons: int = 0

    def give(
        self, config: EarlyConfig, run_ids: Sequence[str], store: Store, *, watched: bool
    ) -> bool:
        """Give a share to each of ``run_ids`` (in training order) that has none. Return whether
        there was such a run.

        All shares together do not exceed alpha. With ``watched``, the k-th comparison gets
        6 / (pi k)^2 of alpha. Otherwise, the comparisons of the first call divide 0.9 of alpha
        equally, and those of the b-th later call divide 6 / (pi b)^2 of the remaining 0.1."""
        new = [run_id for run_id in run_ids if run_id not in self.shares]
        against = {run_id: self._reference_of(config, run_ids, run_id, store) for run_id in new}
        compared = sum(reference is not None for reference in against.values())
        part = _alpha_fraction(self.batches) if self.batches else FIRST_BATCH
        equal_alpha = self._remaining_alpha(config) * part / max(1, compared)
        for run_id, reference in against.items():
            alpha = config.alpha if reference is None else equal_alpha
            if reference is not None and watched:
                self.comparisons += 1
                alpha = self._remaining_alpha(config) * _alpha_fraction(self.comparisons)
            self.shares[run_id] = Share(against=reference, alpha=alpha)
        self.batches += bool(compared)
        return bool(new)

    def _remaining_alpha(self, config: EarlyConfig) -> float:
        total = sum(share.alpha for share in self.shares.values() if share.against is not None)
        return max(0.0, config.alpha - total)

    def _reference_of(
        self, config: EarlyConfig, run_ids: Sequence[str], run_id: str, store: Store
    ) -> str | None:
        if config.reference not in ("previous", "baseline"):
            return config.reference
        index = run_ids.index(run_id)
        if config.reference == "previous":
            return store.child(run_ids[index - 1]).root if index else None
        # The baseline remains the first run of all calls, even if its checkpoint was deleted.
        first = next((name for name, s in self.shares.items() if s.against is None), run_ids[0])
        return None if run_id == first else store.child(first).root


def _alpha_fraction(k: int) -> float:
    """Return 6 / (pi k)^2 divided by the sum of 6 / (pi j)^2 over all j >= k."""
    weights = [6 / (math.pi * j) ** 2 for j in range(1, k + 1)]
    return weights[-1] / (1 - sum(weights[:-1]))


class Comparisons:
    """The comparisons of the sweep in ``store``; none if the config has no section ``early``."""

    def __init__(self, any_run: RunConfig, store: Store) -> None:
        self._early, self._store_options = any_run.early, any_run.store
        self._store = store
        # Ids of the runs that must evaluate all rows, even after their comparison is decided.
        self.completing: set[str] = set()
        self.read()

    def read(self) -> None:
        """Read the stored shares again. Raises `UserError` if they are damaged."""
        self._shares = Shares()
        if self._early is None or (content := self._store.get(EARLY)) is None:
            return
        try:
            self._shares = Shares.model_validate(json_tree(content))
        except (InvalidContent, ValidationError) as error:
            raise UserError(
                "the file cannot be read, so it is unknown how comparisons share alpha",
                where=f"{self._store.root}/{EARLY}",
                fix="restore the file, or choose another sweep_id",
            ) from error

    def check_reference(self) -> None:
        """Raise `UserError` if `early.reference` names a folder that is not a run."""
        against = self._early.reference if self._early else None
        if against not in (None, "previous", "baseline"):
            read_manifest(open_store(against, **self._store_options.model_dump()))

    def give_shares(self, runs: Sequence[SweepEntry], *, watched: bool, keep: bool) -> None:
        """Give each of ``runs`` (in training order) that has none a share of the sweep's alpha.
        ``watched``: more runs may come. ``keep``: store the shares. Raises `UserError` without
        a store."""
        if self._early is None:
            return
        run_ids = [run.run_id for run in runs]
        if self._shares.give(self._early, run_ids, self._store, watched=watched) and keep:
            self._store.put(EARLY, as_json(self._shares.model_dump(mode="json")))

    def early_of(self, run: SweepEntry) -> dict[str, Any] | None:
        """Return the section ``early`` for a run's config, with the run's reference and alpha."""
        assert run.plan is not None
        early = run.plan.config.early
        if early is None:
            return None
        share = self._shares.shares[run.run_id]
        return {
            **early.model_dump(),
            "reference": share.against,
            "alpha": share.alpha,
            "stop": early.stop and run.run_id not in self.completing,
        }

    def has_reference_in(self, lane: Lane, lanes: Sequence[Lane]) -> bool:
        """Return whether ``lane`` must start after another lane of ``lanes``, because a run of
        ``lane`` is compared with a run of that lane."""
        theirs = {run.run_id for peer in lanes if peer is not lane for run in peer.runs}
        shares = (self._shares.shares.get(run.run_id) for run in lane.runs)
        against = {share.against for share in shares if share is not None and share.against}
        return any(uri.rstrip("/").rsplit("/", 1)[-1] in theirs for uri in against)

    def update_comparison(self, run: SweepEntry) -> None:
        """Update the comparison of a run that ended undecided. The reference run may have more rows
        now, from another lane or another execution of the sweep."""
        early = self.early_of(run)
        if early is None or early["reference"] is None or run.plan is None:
            return
        config = run.plan.config.model_copy(update={"early": EarlyConfig(**early)})
        plan = replace(run.plan, config=config)
        try:
            new = update_decision(plan, self._store.child(run.run_id))
        except UserError as error:
            log.warning(f"{run.label}: its comparison cannot be updated: {error}")
            return
        if new:
            log.info(f"{run.label}: its comparison was updated")

    def disable_early_stop(self, labels: Sequence[str], runs: Sequence[SweepEntry]) -> None:
        """Turn off early stopping for the ``runs`` with these labels; "all" selects every run.
        Raises `UserError` if a label is unknown."""
        by_label = {run.label: run.run_id for run in runs}
        if unknown := [label for label in labels if label != "all" and label not in by_label]:
            raise UserError(
                f"the sweep has no run {unknown[0]!r}",
                where="--complete",
                fix=f"name one of {', '.join(by_label)}, or all",
            )
        self.completing |= {
            run_id for label, run_id in by_label.items() if {label, "all"} & {*labels}
        }
