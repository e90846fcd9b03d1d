"""Decide early: compare the stored rows of a run with the stored rows of its reference run.

A look reads new rows of both runs, and decides the headlines that can be decided. A headline is a
benchmark's main score. A unit is one task; its items are entries or dialogues. A row is settled if
it has a verdict or is not retried. An item or a unit is settled if all its rows are settled."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from ace_ray.benchmarks.base import Benchmark
from ace_ray.benchmarks.dataset import data_hash
from ace_ray.benchmarks.validation import user_code
from ace_ray.config.schema import EarlyConfig, RunConfig
from ace_ray.early_stopping.betting import (
    Decision,
    Draws,
    Rule,
    confidence_sequence,
    decide,
    draws_to_decide,
)
from ace_ray.early_stopping.draw import EntryOrder
from ace_ray.early_stopping.units import Bounds, Item, Order, Unit, value_of
from ace_ray.errors import UserError
from ace_ray.storage.lease import Lease
from ace_ray.storage.object_store import Store, open_store
from ace_ray.storage.parts import NOT_RETRYABLE, part_names, read_part
from ace_ray.storage.rows import result_columns, result_rows, rows_schema
from ace_ray.storage.stored import (
    MANIFEST,
    SUCCESS,
    SUMMARY,
    Manifest,
    Restriction,
    as_json,
    differences,
    earlier_summary,
    read_manifest,
)
from ace_ray.storage.stored_run import StoredRun
from ace_ray.types import Entry, ResultRow
from ace_ray.util.safe_loading import json_tree

# Minimum seconds between two looks at the comparison while the run goes on.
LOOK_S = 5.0
# Keys of ``early`` that can change a decision.
_RULES = ("reference", "alpha", "margin", "min_rows")
# (benchmark, language, category, id, sample) of a row.
Key = tuple[str, str, str, str, int]


class RunPlan(Protocol):
    """The parts of a run's plan (`ace_ray.pipeline.planning.plan.Plan`) that a look needs."""

    @property
    def config(self) -> RunConfig: ...

    @property
    def benchmarks(self) -> Mapping[str, Benchmark]: ...

    @property
    def entries(self) -> Sequence[Entry]: ...

    @property
    def identity(self) -> Mapping[str, Any]: ...

    @property
    def restricted(self) -> Mapping[str, Mapping[str, Any]]: ...

    @property
    def drawn(self) -> EntryOrder | None: ...


def is_decided(store: Store) -> bool:
    """Return whether the run in ``store`` was stopped early and no verdict has changed since."""
    early = earlier_summary(store).early
    return early is not None and early.stopped and not early.stale


def update_decision(plan: RunPlan, store: Store) -> bool:
    """Compare a complete run with its reference again, and update its summary. Do nothing if the
    comparison is decided and no verdict has changed since. Return whether the summary has changed.

    Raises `UserError` if the reference is not valid, or if another process works on the run."""
    early = earlier_summary(store).early
    if store.get(SUCCESS) is None or not early or (early.decided and not early.stale):
        return False
    with Lease.acquire(store):
        looks = EarlyStopper(plan, store)
        looks.check_reference(must_exist=True)
        looks.check_rules()
        if looks.look(at_once=True):
            looks.record_look()
        summary = json_tree(store.get(SUMMARY) or b"{}")
        early_tree = json_tree(as_json(looks.summary(stopped=False)))
        if early_tree == summary["early"]:
            return False
        store.put(SUMMARY, as_json({**summary, "early": early_tree}))
        return True


class StoredScores:
    """The values of all items (entries or dialogues) of ``plan`` in one stored run."""

    def __init__(
        self, plan: RunPlan, store: Store, rule_sets: Sequence[str], *, final: bool
    ) -> None:
        """Begin without rows. ``final``: whether the run has ended, so that no row is retried."""
        assert plan.drawn is not None
        self._store, self._rule_sets, self._final = store, tuple(rule_sets), final
        self._orders, self._samples = plan.drawn.orders, plan.config.samples
        self._part_names: set[str] = set()
        self._items: dict[Key, tuple[Item, str]] = {}
        # id() of an item -> its rows by (entry id, sample); None: settled without a verdict.
        self._rows: dict[int, dict[tuple[str, int], ResultRow | None]] = {}
        # id() of an item whose rows are all settled -> bounds of its value.
        self._item_bounds: dict[int, Bounds] = {}
        self._worth: dict[tuple[Any, ...], Bounds] = {}
        for name, order in self._orders.items():
            for unit in order.units:
                for item in unit.items:
                    for at in item.entries if item.weight > 0 else ():
                        for sample in range(self._samples):
                            self._items[*plan.entries[at].path, sample] = (item, name)

    def read(self) -> None:
        """Read the rows stored since the last call, the latest first, so that the latest verdict of
        each row counts. The value of a settled item does not change."""
        columns = result_columns(self._rule_sets)
        for name in sorted({*part_names(self._store)} - self._part_names, reverse=True):
            table = read_part(self._store, name, columns, rows_schema(self._rule_sets))
            # For a part that cannot be read, `read_part` returns a string. Its rows stay pending.
            for row in () if isinstance(table, str) else result_rows([table]):
                self._record_row(row)
            self._part_names.add(name)

    def _record_row(self, row: ResultRow) -> None:
        key = (*row.path, row.sample)
        if row.repeat or key not in self._items:
            return
        item, name = self._items[key]
        if id(item) in self._item_bounds and id(item) not in self._rows:
            return
        retried = row.status == "infra_error" and row.error_class not in NOT_RETRYABLE
        if row.status != "scored" and retried and not self._final:
            return
        rows = self._rows.setdefault(id(item), {})
        row_key = (row.id, row.sample)
        if rows.get(row_key) is None:
            rows[row_key] = row if row.status == "scored" else None
        if len(rows) == len(item.entries) * self._samples:
            self._item_bounds[id(item)] = self._bounds(name, rows)
            # Keep rows without a verdict, which a later command may still add.
            if all(r is not None for r in rows.values()):
                del self._rows[id(item)]

    def unit_bounds(self, unit: Unit) -> Bounds | None:
        """Return the bounds, 0 to 1, of a unit's value; None until all its items are settled."""
        low = high = 0.0
        for item in unit.items:
            if item.weight <= 0:
                continue
            if (bounds := self._item_bounds.get(id(item))) is None:
                return None
            share = item.weight / unit.weight
            low, high = low + share * bounds[0], high + share * bounds[1]
        return low, high

    def _bounds(self, name: str, rows: Mapping[Any, ResultRow | None]) -> Bounds:
        order, scored = self._orders[name], [row for row in rows.values() if row is not None]
        if len(scored) < len(rows):
            return 0.0, 1.0
        # Call the benchmark once for each kind of item. A million rows have a few hundred kinds.
        first = scored[0]
        kind = (name, *first.category_key, tuple(sorted(map(_verdict_key, scored))))
        if kind not in self._worth:
            with user_code(order.benchmark, "statistics"):
                value = value_of(order.benchmark, iter(scored), order.rules)
            self._worth[kind] = (value, value)
        return self._worth[kind]


def _verdict_key(row: ResultRow) -> tuple[Any, ...]:
    """Return what a headline may depend on in ``row``: the sample and the verdicts."""
    verdicts = sorted(row.verdicts.items())
    return row.sample, tuple((r, v.valid, *sorted(v.metrics.items())) for r, v in verdicts)


@dataclass
class Headline:
    """The comparison of one benchmark's headline under one rule set."""

    benchmark: str
    order: Order
    differences: list[Bounds] = field(default_factory=list)
    """For each compared unit the bounds of the difference from the reference."""
    values: list[Bounds] = field(default_factory=list)
    """For each compared unit the bounds of its value in this run."""
    decision: Decision | None = None
    max_units: int | None = None
    """Maximum number of units to compare if the reference was stopped early; else None."""

    @property
    def name(self) -> str:
        return f"{self.benchmark}/{self.order.rules}"


class Comparison:
    """Compares all headlines of a run with the headlines of its reference. For each benchmark it
    compares units in the drawn order, and stops at the first unit that one run has not settled."""

    def __init__(self, drawn: EntryOrder, config: EarlyConfig, samples: int) -> None:
        self._config, self._samples = config, samples
        self.headlines = [Headline(name, order) for name, order in drawn.orders.items()]
        self._alpha = config.alpha / len(self.headlines)

    @property
    def is_fully_decided(self) -> bool:
        """Whether every headline is decided."""
        return all(headline.decision is not None for headline in self.headlines)

    def decide_headlines(self, run_values: StoredScores, reference: StoredScores) -> None:
        """Compare the values of both runs, and decide the headlines that can be decided."""
        for headline in self.headlines:
            before = headline.differences
            headline.values, headline.differences = [], []
            for unit in headline.order.units:
                mine, theirs = run_values.unit_bounds(unit), reference.unit_bounds(unit)
                # Units without weight come last and do not change the comparison.
                if mine is None or theirs is None or unit.weight <= 0:
                    break
                if headline.max_units is not None and len(headline.values) >= headline.max_units:
                    break
                headline.values.append(mine)
                headline.differences.append((mine[0] - theirs[1], mine[1] - theirs[0]))
            # Compare bounds, not their number: a known unit may have received a missing verdict.
            if headline.differences != before and headline.decision is None:
                draws = headline.order.draws(headline.differences)
                headline.decision = decide(draws, self._rule(headline))

    def state(self, headline: Headline) -> dict[str, Any]:
        """Return the state of a headline for ``summary.json``. Values are fractions, not percent.
        ``value`` is the headline of this run with its confidence sequence."""
        order, units = headline.order, len(headline.differences)
        difference, low, high = self._estimate(order.draws(headline.differences))
        values = [(2 * low - 1, 2 * high - 1) for low, high in headline.values]
        estimate = self._estimate(order.draws(values))
        names = ("estimate", "low", "high")
        rows, more = order.rows(self._samples), 0
        if headline.decision is None and 0 < units < len(order.units):
            needed = max(abs(difference), self._config.margin / 100 - abs(difference))
            more = draws_to_decide(units, len(order.units), (high - low) / 2, needed)
            more = max(more, self._rule(headline).min_units, units + 1)
            more = 0 if headline.max_units is not None and more > headline.max_units else more
        return {
            "units": units,
            "rows": int(rows[:units].sum()),
            "rows_to_decide": int(rows[units:more].sum()),
            "difference": difference,
            "low": low,
            "high": high,
            "outcome": headline.decision.outcome.value if headline.decision else None,
            "decided_at_units": headline.decision.units if headline.decision else None,
            "of_units": len(order.units),
            "value": {name: (at + 1) / 2 for name, at in zip(names, estimate, strict=True)},
        }

    def _estimate(self, draws: Draws) -> tuple[float, float, float]:
        """Estimate the weighted mean of the units' values. Return (estimate, low, high), where low
        and high limit its confidence sequence."""
        low, high = confidence_sequence(draws, self._alpha) if len(draws) else (-1.0, 1.0)
        return min(max(draws.estimate, low), high), low, high

    def _rule(self, headline: Headline) -> Rule:
        rows = np.cumsum(headline.order.rows(self._samples, weighed=True))
        # `min_rows` may be larger than the benchmark.
        least = int(np.searchsorted(rows, min(self._config.min_rows, int(rows[-1])))) + 1
        return Rule(self._alpha, self._config.margin / 100, least)


class EarlyStopper:
    """Compares a run with its reference repeatedly during the run, and decides when to stop."""

    def __init__(self, plan: RunPlan, store: Store) -> None:
        assert plan.config.early is not None
        assert plan.drawn is not None
        self._plan, self._store, self._config = plan, store, plan.config.early
        self._drawn = plan.drawn
        self.comparison = Comparison(plan.drawn, self._config, plan.config.samples)
        every = (rules for b in plan.benchmarks.values() for rules in b.rule_sets)
        self._values = StoredScores(plan, store, tuple(dict.fromkeys(every)), final=False)
        self._reference: StoredScores | None = None
        self._reference_has_ended: Callable[[], bool] = lambda: False
        # Whether the reference run had ended when it was opened.
        self._is_final = False
        self._looked_at = float("-inf")
        self._is_noted = False

    @property
    def should_stop(self) -> bool:
        """Whether the run must not evaluate further rows."""
        return self.comparison.is_fully_decided and self._config.stop

    def check_reference(self, *, must_exist: bool) -> None:
        """Open the reference. Raise `UserError` if its rows cannot be compared with the run's rows,
        or, with ``must_exist``, if the reference has not begun, that is, has no manifest."""
        against = self._config.reference
        if against is None or self._reference is not None:
            return
        self._reference = self._open_reference(against)
        if self._reference is None and must_exist:
            raise UserError(
                f"the folder contains no {MANIFEST}, so it is not a run to compare with",
                where=against,
                fix="name the folder of a finished run in early.reference",
            )

    def look(self, *, at_once: bool = False) -> bool:
        """Read new rows and decide the headlines that can be decided. Return whether `record_look`
        must still record this in the manifest.

        Do nothing if the last call was less than `LOOK_S` seconds ago, unless ``at_once``."""
        now_s = time.monotonic()
        if self._config.reference is None or (not at_once and now_s < self._looked_at + LOOK_S):
            return False
        if not self._is_final and self._reference_has_ended():
            self._reference = None
        self.check_reference(must_exist=False)
        if self._reference is None:
            return False
        self._values.read()
        self._reference.read()
        self.comparison.decide_headlines(self._values, self._reference)
        self._looked_at = time.monotonic()
        return not self._is_noted and any(h.differences for h in self.comparison.headlines)

    def record_look(self) -> None:
        """Record in the manifest that the comparison was computed, with its rules and orders."""
        early = {**self._drawn.as_json(), "config": self._config.model_dump(mode="json")}
        tree = {**read_manifest(self._store).tree, "early": {**early, "looked": True}}
        self._store.put(MANIFEST, as_json(tree))
        self._is_noted = True

    def check_rules(self) -> None:
        """Raise `UserError` if the comparison was computed before with other rules. A decision is
        not valid if its rules were chosen after a look at the rows."""
        if self._store.get(MANIFEST) is None:
            return
        early = read_manifest(self._store).tree.get("early") or {}
        before, config = early.get("config") or {}, self._config.model_dump(mode="json")
        changed = [key for key in _RULES if before.get(key, config[key]) != config[key]]
        if early.get("looked") and changed:
            key = changed[0]
            raise UserError(
                f"the comparison was begun with early.{key} = {before[key]}, but the config has "
                f"{config[key]}",
                where=self._store.root,
                fix="use the earlier value, or another run_id",
            )
        orders = self._drawn.as_json()["orders"]
        if early.get("looked") and early.get("orders") != json_tree(as_json(orders)):
            raise UserError(
                "the comparison was begun with another order of entries",
                where=self._store.root,
                fix="use the earlier version of ace_ray, or another run_id",
            )

    def summary(self, *, stopped: bool) -> dict[str, Any]:
        """Return the value of the key ``early`` of ``summary.json``. ``stopped``: whether the run
        was stopped before all rows were evaluated."""
        comparison = self.comparison
        return {
            "against": self._config.reference,
            **self._config.model_dump(include={"alpha", "margin"}),
            "decided": comparison.is_fully_decided,
            "stopped": stopped,
            "headlines": {h.name: comparison.state(h) for h in comparison.headlines},
        }

    def _open_reference(self, against: str) -> StoredScores | None:
        """Return the values of the reference run at the URI ``against``; None if it has no manifest
        yet. Raises `UserError` if the two runs cannot be compared."""
        store = open_store(against, **self._plan.config.store.model_dump())
        if store.root == self._store.root:
            raise UserError(
                "the run is compared with itself",
                where=against,
                fix="name another run in early.reference",
            )
        if store.get(MANIFEST) is None:
            return None
        run = StoredRun(store)
        check_same(self._plan, run.manifest, store)
        stopped = not run.is_finished and is_decided(store)
        # Ignore rows after the reference's own decision, which were in flight when it stopped.
        cut = run.summary.early.headlines if stopped and run.summary.early is not None else {}
        for headline in self.comparison.headlines:
            early = cut.get(headline.name)
            headline.max_units = None if early is None else early.decided_at_units
        self._is_final = run.is_finished or stopped
        self._reference_has_ended = lambda: store.get(SUCCESS) is not None or is_decided(store)
        return StoredScores(self._plan, store, run.manifest.all_rule_sets, final=self._is_final)


def check_same(plan: RunPlan, manifest: Manifest, store: Store) -> None:
    """Raise `UserError` if the reference in ``store`` differs from the run in its entries, its
    restrictions, its samples or its settings."""
    theirs: Mapping[str, Any] = manifest.tree.get("config", {})
    limit, samples = theirs.get("limit"), theirs.get("samples", 1)
    problem = ""
    for name, benchmark in plan.benchmarks.items():
        if manifest.entries.get(name) != data_hash(benchmark.dataset()):
            problem = f"its entries of {name} differ"
    if limit is not None and limit != plan.config.limit:
        problem = f"its limit is {limit}"
    for name in plan.benchmarks:
        part = manifest.restricted.get(name, Restriction())
        if part.description and part != Restriction.model_validate(plan.restricted.get(name, {})):
            problem = f"it is limited to {part.description} of {name}"
    if samples != plan.config.samples:
        problem = f"it has {samples} samples per entry"
    mine, their_settings = _settings(plan.identity), _settings(manifest.tree.get("identity") or {})
    if not problem and (keys := differences(their_settings, mine)):
        problem = f"its settings differ ({keys[0]} differs)"
    if problem:
        raise UserError(
            f"this run cannot serve as the reference: {problem}",
            where=store.root,
            fix="name a run of the same benchmarks, limit and samples in early.reference",
        )


# Keys in the identity of a role that the candidate plays, which name the candidate.
_OF_THE_CANDIDATE = ("model", "revision", "adapter")


def _settings(identity: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts of a run's identity that must be equal in two runs that are compared."""
    tree = json_tree(json.dumps(identity, default=vars))
    keys = ("benchmarks", "roles", "sampling", "episode_timeout_s", "replay_reasoning")
    settings = {key: tree[key] for key in keys if tree.get(key)}
    for roles in settings.get("roles", {}).values():
        for part in roles.values():
            for key in _OF_THE_CANDIDATE if part.get("kind") == "same" else ():
                part.pop(key, None)
            (part.get("sampling") or {}).pop("seed", None)
    for sampling in settings.get("sampling", ()):
        sampling.pop("seed", None)
    return settings
