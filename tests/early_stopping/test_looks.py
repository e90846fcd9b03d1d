"""Early stopping: what the stored rows of a run and of its reference decide."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ace_ray.benchmarks.acebench.benchmark import ACEBench
from ace_ray.config.schema import load_config
from ace_ray.early_stopping.looks import EarlyStopper, Headline, update_decision
from ace_ray.errors import UserError
from ace_ray.pipeline.evaluate import plan_run
from ace_ray.pipeline.planning.manifest import make_manifest
from ace_ray.pipeline.planning.plan import Plan
from ace_ray.storage.object_store import LocalStore
from ace_ray.storage.parts import write_parts
from ace_ray.storage.rows import ROWS
from ace_ray.storage.stored import as_json
from tests.report.builders import row

RULES = ("official", "strict")
ASKED = {"name": "acebench", "languages": ["en"], "categories": ["normal_atom_bool"]}
"""A benchmark of four entries."""


class Stored:
    """A run's folder."""

    def __init__(self, folder: Path) -> None:
        self.store, self.parts = LocalStore(str(folder)), 0

    def put(self, *rows: dict[str, Any]) -> None:
        self.parts += 1
        stored = [{**fields, "run_id": "r"} for fields in rows]
        table = pa.Table.from_pylist(stored, schema=ROWS)
        write_parts(self.store, f"{self.parts:014d}-a", table)

    def state(self) -> Any:
        return json.loads(self.store.get("summary.json") or b"")


def rows_of(right: int) -> list[dict[str, Any]]:
    """Return a row for each entry, the first ``right`` of them right."""
    rows, options = [], {key: ASKED[key] for key in ("languages", "categories")}
    for number, entry in enumerate(ACEBench.from_options(options).dataset()):
        fields = row("en", entry.category, number, official=number < right)
        rows.append(fields | {"id": entry.id, "group": entry.group or entry.id})
    return rows


def unjudged(base_row: dict[str, Any], status: str, error_class: str) -> dict[str, Any]:
    """Return the row without a verdict."""
    none = (f"{r}_{p}" for r in RULES for p in ("valid", "error_type", "error", "metrics"))
    return base_row | {"status": status, "error_class": error_class, **dict.fromkeys(none)}


def planned(config_file: Callable[..., Path], **changes: Any) -> Plan:
    return plan_run(load_config(str(config_file(**changes))))


class Pair:
    """A run and its reference, without rows."""

    def __init__(self, folder: Path, config_file: Callable[..., Path]) -> None:
        self.run, self.reference = Stored(folder / "own"), Stored(folder / "other")
        early = {"reference": self.reference.store.root, "min_rows": 1, "margin": 0.0}
        self.plan = planned(config_file, benchmarks=[ASKED], limit=None, early=early)
        for stored in (self.run, self.reference):
            stored.store.put("run.json", as_json(make_manifest(self.plan, {})))
        self.looks = EarlyStopper(self.plan, self.run.store)
        assert self.plan.drawn is not None
        units = self.plan.drawn.orders["acebench"].units
        self.order = [unit.items[0].entries[0] for unit in units]

    def headline(self) -> Headline:
        """Look at the rows."""
        self.looks.look(at_once=True)
        (headline,) = self.looks.comparison.headlines
        return headline


@pytest.fixture
def pair(tmp_path: Path, config_file: Callable[..., Path]) -> Pair:
    return Pair(tmp_path, config_file)


def test_rows_behind_a_failed_row_wait_until_it_is_settled(pair: Pair) -> None:
    pair.reference.put(*rows_of(1))
    good = rows_of(4)
    failed = unjudged(good[pair.order[1]], "infra_error", "TimeoutError")
    pair.run.put(good[pair.order[0]], failed, good[pair.order[2]], good[pair.order[3]])
    for _ in range(2):
        assert len(pair.headline().differences) == 1
    pair.run.put(good[pair.order[1]])
    assert len(pair.headline().differences) == 4


def test_row_without_a_verdict_may_be_right_or_wrong(pair: Pair) -> None:
    pair.reference.put(*rows_of(0))
    good = rows_of(1)
    pair.run.put(unjudged(good[0], "quarantined", "KilledEngine"), *good[1:])
    headline = pair.headline()
    assert sorted(headline.differences) == [(0.0, 0.0), (0.0, 0.0), (0.0, 0.0), (0.0, 1.0)]
    state = pair.looks.comparison.state(headline)
    assert state["low"] == pytest.approx(0.0, abs=1e-3)
    assert state["high"] == pytest.approx(0.25, abs=1e-3)
    assert not pair.looks.comparison.is_fully_decided
    # A later command gives the verdict, which decides with the same number of units.
    pair.run.put(good[0])
    assert sorted(pair.headline().differences)[-1] == (1.0, 1.0)
    assert pair.looks.comparison.is_fully_decided
    state = pair.looks.comparison.state(headline)
    assert (state["units"], state["rows"], state["outcome"]) == (4, 4, "better")
    assert state["difference"] == pytest.approx(0.25, abs=1e-3)
    assert state["value"]["estimate"] == pytest.approx(0.25, abs=1e-3)


def test_row_without_a_verdict_in_the_reference_may_be_right_or_wrong(pair: Pair) -> None:
    theirs = rows_of(0)
    pair.reference.put(unjudged(theirs[0], "quarantined", "KilledEngine"), *theirs[1:])
    pair.run.put(*rows_of(4))
    pair.run.put(*(fields | {"repeat": 1} for fields in rows_of(0)))
    for _ in range(2):
        assert sorted(pair.headline().differences) == [(0.0, 1.0), *[(1.0, 1.0)] * 3]
        pair.run.put(*rows_of(0))  # settled values stay


def test_stopped_reference_counts_up_to_its_own_decision(pair: Pair) -> None:
    pair.reference.put(*rows_of(0))
    pair.run.put(*rows_of(0))
    assert len(pair.headline().differences) == 4, "it is at work"
    headline = {"outcome": "worse", "decided_at_units": 2, "units": 4}
    decided = {"decided": True, "stopped": True, "headlines": {"acebench/official": headline}}
    pair.reference.store.put("summary.json", as_json({"early": decided}))
    for looks in (EarlyStopper(pair.plan, pair.run.store), pair.looks):
        looks.look(at_once=True)
        assert len(looks.comparison.headlines[0].differences) == 2
    # Completed later, all of it counts.
    pair.reference.store.put("_SUCCESS", b"")
    pair.looks = EarlyStopper(pair.plan, pair.run.store)
    assert len(pair.headline().differences) == 4


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"samples": 2}, "1 samples per entry"),
        ({"sampling": {"max_tokens": 7}}, "its settings differ"),
        ({"limit": 1}, "its limit is 2"),
        ({"benchmarks": [{"name": "acebench", "languages": ["zh"]}]}, "its entries of acebench"),
    ],
)
def test_run_of_other_rows_is_no_reference(config_file, tmp_path, changes, message) -> None:
    reference = LocalStore(str(tmp_path / "other"))
    reference.put("run.json", as_json(make_manifest(planned(config_file), {})))
    early = {"reference": reference.root, "min_rows": 1}
    store = LocalStore(str(tmp_path / "own"))
    EarlyStopper(planned(config_file, early=early), store).check_reference(must_exist=True)
    # Runs may differ in their seeds.
    reseeded = planned(config_file, early=early, sampling={"seed": 3})
    EarlyStopper(reseeded, store).check_reference(must_exist=True)
    with pytest.raises(UserError, match=message):
        EarlyStopper(planned(config_file, early=early, **changes), store).check_reference(
            must_exist=True
        )


def test_rules_and_order_may_not_change_after_a_look(pair, config_file) -> None:
    pair.looks.check_rules()  # before the first look
    pair.looks.record_look()
    pair.looks.check_rules()
    early = {"reference": pair.reference.store.root, "min_rows": 1, "margin": 1.0}
    plan = planned(config_file, benchmarks=[ASKED], limit=None, early=early)
    with pytest.raises(UserError, match=r"early\.margin = 0\.0, but the config has 1\.0"):
        EarlyStopper(plan, pair.run.store).check_rules()
    tree = json.loads(pair.run.store.get("run.json") or b"")
    tree["early"]["orders"]["acebench"]["sha256"] = "0"
    pair.run.store.put("run.json", as_json(tree))
    with pytest.raises(UserError, match="with another order of entries"):
        pair.looks.check_rules()


def test_reference_must_exist_and_be_another_run(config_file, tmp_path) -> None:
    store = LocalStore(str(tmp_path / "own"))
    looks = EarlyStopper(planned(config_file, early={"reference": str(tmp_path / "no")}), store)
    looks.check_reference(must_exist=False)
    with pytest.raises(UserError, match="not a run to compare with"):
        looks.check_reference(must_exist=True)
    looks = EarlyStopper(planned(config_file, early={"reference": store.root}), store)
    with pytest.raises(UserError, match="is compared with itself"):
        looks.check_reference(must_exist=True)
    looks = EarlyStopper(planned(config_file, early={"reference": None}), store)
    looks.check_reference(must_exist=True)
    assert not looks.look(at_once=True)


def test_undecided_run_is_decided_when_its_reference_ends(pair: Pair) -> None:
    store, theirs = pair.run.store, rows_of(0)
    pair.run.put(*rows_of(4))
    pair.reference.put(theirs[pair.order[0]])
    assert pair.looks.look(at_once=True)
    pair.looks.record_look()
    summary: dict[str, Any] = {"complete": True, "early": pair.looks.summary(stopped=False)}
    assert not summary["early"]["decided"]
    store.put("summary.json", as_json(summary))
    assert not update_decision(pair.plan, store), "not complete"
    store.put("_SUCCESS", b"")
    assert not update_decision(pair.plan, store), "nothing new"

    pair.reference.put(*(theirs[at] for at in pair.order[1:]))
    assert update_decision(pair.plan, store)
    after = pair.run.state()
    assert after["complete"]
    assert (after["early"]["decided"], after["early"]["stopped"]) == (True, False)
    (headline,) = after["early"]["headlines"].values()
    assert (headline["outcome"], headline["units"]) == ("better", 4)
    assert store.get("lease.json") is None
    assert not update_decision(pair.plan, store), "it is decided"
    store.put("summary.json", as_json({**after, "early": {**after["early"], "stale": True}}))
    assert update_decision(pair.plan, store), "verdicts were made anew"
    assert pair.run.state() == after
