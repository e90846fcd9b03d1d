"""What early decisions would have saved in an earlier sweep, whose runs are complete."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from ace_ray.config import EarlyConfig
from ace_ray.errors import UserError
from ace_ray.run.early import Comparison, Values, check_same
from ace_ray.run.planning.plan import Plan
from ace_ray.run.storage.stored import read_manifest
from ace_ray.store import Store, open_store
from ace_ray.sweeps.early import FIRST_BATCH
from ace_ray.sweeps.ledger import read_ledger


@dataclass(frozen=True)
class Saved:
    """One run of the earlier sweep. ``share``: of its rows that it would have evaluated."""

    label: str
    outcome: str
    share: float
    device_s: float

    @property
    def saved_s(self) -> float:
        return self.device_s * (1 - self.share)


def saved(plan: Plan, store: Store) -> list[Saved]:
    """Of the sweep in ``store``, by the order and the rules of ``plan``, whose ``early`` is set.

    Raises `UserError`: it is no sweep with complete runs of the same entries."""
    early = plan.config.early
    assert early is not None
    lines, _ = read_ledger(store)
    lines = [line for line in lines if line.state == "complete" and line.run_id]
    lines.sort(key=lambda line: -1 if line.step is None else line.step)
    if len(lines) < 2:
        raise UserError(
            "holds no sweep with two complete runs",
            where=store.root,
            fix="name the folder of a sweep that was evaluated whole",
        )
    values = [_values(plan, store.child(line.run_id)) for line in lines]
    fixed = early.against not in ("previous", "baseline", None)
    if fixed:
        assert early.against is not None
        where = plan.config.store
        folder = open_store(early.against, endpoint_url=where.endpoint_url, region=where.region)
        values.insert(0, _values(plan, folder))
    compared = len(values) - 1
    share = early.model_copy(update={"alpha": early.alpha * FIRST_BATCH / compared})
    found: list[Saved] = []
    part = 1.0
    for place, line in enumerate(lines):
        outcome, seconds = "", sum(line.seconds.values())
        if place or fixed:
            own = values[place + fixed]
            # One that would have stopped has no further rows to be compared with.
            before = part if early.against == "previous" else 1.0
            other = values[place - 1 if early.against == "previous" else 0]
            outcome, part = _decided(plan, share, own, other, before)
        found.append(Saved(line.label, outcome, part, seconds))
    return found


def _values(plan: Plan, store: Store) -> Values:
    """Of a stored run. Raises `UserError`: it is none of the same entries."""
    assert plan.drawn is not None
    manifest = read_manifest(store)
    check_same(plan, manifest, store)
    samples = plan.config.samples
    found = Values(store, manifest.all_rule_sets, plan.drawn, plan.entries, samples, final=True)
    found.read()
    return found


def _decided(
    plan: Plan, early: EarlyConfig, own: Values, other: Values, before: float
) -> tuple[str, float]:
    """(outcomes, share of the rows) of one comparison with a run that has the share ``before``."""
    assert plan.drawn is not None
    comparison = Comparison(plan.drawn, early, plan.config.samples)
    for one in comparison.headlines if before < 1 else ():
        one.most = math.floor(before * comparison.units(one))
    comparison.advance(own, other)
    outcomes, part = [], 0.0
    for one in comparison.headlines:
        decision = one.decision
        outcomes.append(decision.outcome.value if decision else "undecided")
        # Benchmarks advance together: the last one to be decided says how far.
        part = max(part, decision.units / comparison.units(one) if decision else 1.0)
    return ", ".join(dict.fromkeys(outcomes)), part


def saving_lines(found: list[Saved], best: int) -> Iterator[str]:
    """For people."""
    for one in found:
        said = f"{one.outcome} after {100 * one.share:.0f} % of the rows" if one.outcome else "all"
        yield f"{one.label}: {said}"
    whole = sum(one.device_s for one in found)
    rows = sum(one.share for one in found) / len(found)
    hours = sum(one.saved_s for one in found) / 3600
    yield (
        f"early decisions there: {100 * rows:.0f} % of the rows, {hours:.2f} of "
        f"{whole / 3600:.2f} device hours saved, before the {best} best are completed"
    )
