"""What runs' stored rows come to in a comparison: settled, failed and repeated ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ace_ray.benchmarks.acebench.benchmark import ACEBench
from ace_ray.config.schema import EarlyConfig, load_config
from ace_ray.early_stopping.betting import Outcome
from ace_ray.early_stopping.draw import draw
from ace_ray.errors import UserError
from ace_ray.pipeline.early import Comparison, EarlyLooks, Values, _asked, decide_again, is_decided
from ace_ray.pipeline.evaluate import plan_run
from ace_ray.pipeline.planning.plan import Plan, make_manifest
from ace_ray.pipeline.summary import as_json
from ace_ray.storage.object_store import LocalStore
from ace_ray.storage.parts import write_parts
from ace_ray.storage.rows import ROWS
from tests.report.builders import row

RULES = ("official", "strict")


class Stored:
    """A run's folder with the rows of all entries of the mini set in English that have one turn."""

    def __init__(self, folder: Path) -> None:
        self.store, self.parts = LocalStore(str(folder)), 0

    def put(self, *rows: dict[str, Any]) -> None:
        self.parts += 1
        stored = [{**one, "run_id": "r"} for one in rows]
        table = pa.Table.from_pylist(stored, schema=ROWS)
        write_parts(self.store, f"{self.parts:014d}-a", table)


@pytest.fixture(scope="module")
def benchmark() -> ACEBench:
    return ACEBench.from_options({"languages": ["en"], "categories": ["normal_atom_bool"]})


def rows_of(benchmark: ACEBench, right: int, **more: Any) -> list[dict[str, Any]]:
    made = []
    for number, entry in enumerate(benchmark.dataset()):
        one = row("en", entry.category, number, official=number < right)
        made.append(one | {"id": entry.id, "group": entry.group or entry.id} | more)
    return made


def unjudged(one: dict[str, Any], status: str, error_class: str) -> dict[str, Any]:
    """The row without a verdict."""
    none = (f"{r}_{p}" for r in RULES for p in ("valid", "error_type", "error", "metrics"))
    return one | {"status": status, "error_class": error_class, **dict.fromkeys(none)}


def values(benchmark: ACEBench, stored: Stored, drawn: Any, *, final: bool) -> Values:
    return Values(stored.store, RULES, drawn, benchmark.dataset(), 1, final=final)


@pytest.fixture
def drawn(benchmark: ACEBench) -> Any:
    config = EarlyConfig(min_rows=1, margin=0.0)
    return draw(config, {"acebench": benchmark}, benchmark.dataset(), 1)


def compared(benchmark: ACEBench, drawn: Any) -> Comparison:
    return Comparison(drawn, EarlyConfig(min_rows=1, margin=0.0), 1)


def both(benchmark: ACEBench, drawn: Any, own: Stored, other: Stored) -> tuple[Values, Values]:
    """What has been stored of a run and of its reference, which is whole."""
    mine = values(benchmark, own, drawn, final=False)
    theirs = values(benchmark, other, drawn, final=True)
    mine.read()
    theirs.read()
    return mine, theirs


def test_all_rows_say_what_the_benchmark_says(
    benchmark: ACEBench, drawn: Any, tmp_path: Path
) -> None:
    own, other = Stored(tmp_path / "own"), Stored(tmp_path / "other")
    own.put(*rows_of(benchmark, 3))
    other.put(*rows_of(benchmark, 1))
    mine, theirs = both(benchmark, drawn, own, other)
    comparison = compared(benchmark, drawn)
    comparison.advance(mine, theirs)
    (one,) = comparison.headlines
    assert one.decision is not None
    assert one.decision.outcome is Outcome.BETTER
    state = comparison.state(one)
    assert (state["units"], state["rows"]) == (4, 4)
    assert state["difference"] == pytest.approx(0.5, abs=1e-3)
    assert state["value"]["estimate"] == pytest.approx(0.75, abs=1e-3)


def test_a_failed_row_stops_the_clock_until_it_is_settled(
    benchmark: ACEBench, drawn: Any, tmp_path: Path
) -> None:
    own, other = Stored(tmp_path / "own"), Stored(tmp_path / "other")
    other.put(*rows_of(benchmark, 1))
    good = rows_of(benchmark, 4)
    order = [unit.items[0].entries[0] for unit in drawn.orders["acebench"].units]
    failed = unjudged(good[order[1]], "infra_error", "TimeoutError")
    own.put(good[order[0]], failed, good[order[2]], good[order[3]])
    mine, theirs = both(benchmark, drawn, own, other)
    comparison = compared(benchmark, drawn)
    for _ in range(2):
        mine.read()
        comparison.advance(mine, theirs)
        (one,) = comparison.headlines
        assert len(one.differences) == 1, "those behind it do not count yet"
    # It is tried again.
    own.put(good[order[1]])
    mine.read()
    comparison.advance(mine, theirs)
    assert len(comparison.headlines[0].differences) == 4


def test_one_that_gets_no_verdict_may_be_anything_and_its_verdict_may_still_come(
    benchmark: ACEBench, drawn: Any, tmp_path: Path
) -> None:
    own, other = Stored(tmp_path / "own"), Stored(tmp_path / "other")
    other.put(*rows_of(benchmark, 4))
    good = rows_of(benchmark, 4)
    bad = unjudged(good[0], "quarantined", "KilledEngine")
    own.put(bad, *good[1:])
    mine, theirs = both(benchmark, drawn, own, other)
    comparison = compared(benchmark, drawn)
    comparison.advance(mine, theirs)
    (one,) = comparison.headlines
    assert sorted(one.differences) == [(-1.0, 0.0), (0.0, 0.0), (0.0, 0.0), (0.0, 0.0)]
    state = comparison.state(one)
    assert state["low"] == pytest.approx(-0.25, abs=1e-3)
    assert state["high"] == pytest.approx(0.0, abs=1e-3)
    own.put(good[0])
    mine.read()
    comparison.advance(mine, theirs)
    assert set(one.differences) == {(0.0, 0.0)}


def test_a_verdict_that_comes_last_decides(benchmark: ACEBench, drawn: Any, tmp_path: Path) -> None:
    """As many units as before: what is new is that one of them is known."""
    own, other = Stored(tmp_path / "own"), Stored(tmp_path / "other")
    other.put(*rows_of(benchmark, 0))
    good = rows_of(benchmark, 1)
    bad = unjudged(good[0], "quarantined", "KilledEngine")
    own.put(bad, *good[1:])
    mine, theirs = both(benchmark, drawn, own, other)
    comparison = compared(benchmark, drawn)
    comparison.advance(mine, theirs)
    assert not comparison.decided
    own.put(good[0])
    mine.read()
    comparison.advance(mine, theirs)
    assert comparison.decided


def test_of_two_verdicts_the_later_one_counts(
    benchmark: ACEBench, drawn: Any, tmp_path: Path
) -> None:
    """As in the ledger: rows were judged anew, and the older part is still there."""
    own, other = Stored(tmp_path / "own"), Stored(tmp_path / "other")
    other.put(*rows_of(benchmark, 0))
    own.put(*rows_of(benchmark, 0))
    own.put(*rows_of(benchmark, 3)[:3])
    mine, theirs = both(benchmark, drawn, own, other)
    comparison = compared(benchmark, drawn)
    comparison.advance(mine, theirs)
    (one,) = comparison.headlines
    assert sorted(one.differences) == [(0.0, 0.0), (1.0, 1.0), (1.0, 1.0), (1.0, 1.0)]


def test_a_stopped_reference_counts_up_to_its_own_decision(
    benchmark: ACEBench, config_file: Callable[..., Path], tmp_path: Path
) -> None:
    """What else was in flight when it was stopped is there by chance."""
    own, other = Stored(tmp_path / "own"), Stored(tmp_path / "other")
    asked = {"name": "acebench", "languages": ["en"], "categories": ["normal_atom_bool"]}
    early = {"against": other.store.root, "min_rows": 1, "margin": 0.0}
    plan = planned(config_file, benchmarks=[asked], limit=None, early=early)
    other.store.put("run.json", as_json(make_manifest(plan, {})))
    own.store.put("run.json", as_json(make_manifest(plan, {})))
    other.put(*rows_of(benchmark, 0))
    own.put(*rows_of(benchmark, 0))
    before = EarlyLooks(plan, own.store)
    before.look(at_once=True)
    assert len(before.comparison.headlines[0].differences) == 4, "it is at work"
    headline = {"outcome": "worse", "decided_at_units": 2, "units": 4}
    decided = {"decided": True, "stopped": True, "headlines": {"acebench/official": headline}}
    other.store.put("summary.json", as_json({"early": decided}))
    looks = EarlyLooks(plan, own.store)
    for one in (looks, before):
        one.look(at_once=True)
        assert len(one.comparison.headlines[0].differences) == 2
    # Completed later, it counts whole.
    other.store.put("_SUCCESS", b"")
    looks = EarlyLooks(plan, own.store)
    looks.look(at_once=True)
    assert len(looks.comparison.headlines[0].differences) == 4


def planned(config_file: Callable[..., Path], **changes: Any) -> Plan:
    return plan_run(load_config(str(config_file(**changes))))


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"samples": 2}, "1 samples an entry"),
        ({"sampling": {"max_tokens": 7}}, "asked in another way"),
        ({"limit": 1}, "its limit is 2"),
        ({"benchmarks": [{"name": "acebench", "languages": ["zh"]}]}, "its entries of acebench"),
    ],
)
def test_a_run_of_other_rows_is_no_reference(
    config_file: Callable[..., Path], tmp_path: Path, changes: dict[str, Any], what: str
) -> None:
    other = LocalStore(str(tmp_path / "other"))
    other.put("run.json", as_json(make_manifest(planned(config_file), {})))
    early = {"against": other.root, "min_rows": 1}
    own = LocalStore(str(tmp_path / "own"))
    EarlyLooks(planned(config_file, early=early), own).check(begun=True)
    # What two seeds differ by is chance.
    EarlyLooks(planned(config_file, early=early, sampling={"seed": 3}), own).check(begun=True)
    with pytest.raises(UserError, match=what):
        EarlyLooks(planned(config_file, early=early, **changes), own).check(begun=True)


def test_who_plays_with_the_candidate_has_to_be_the_same() -> None:
    def identity(**role: Any) -> dict[str, Any]:
        return {"benchmarks": {}, "sampling": [], "roles": {"tau2": {"user": role}}}

    one = _asked(identity(kind="served", model="u", sampling={"temperature": 0, "seed": 1}))
    assert one == _asked(
        identity(kind="served", model="u", sampling={"temperature": 0, "seed": 2})
    ), "what two seeds differ by is chance"
    assert one != _asked(identity(kind="served", model="v", sampling={"temperature": 0}))
    assert one != _asked(identity(kind="served", model="u", sampling={"temperature": 1}))
    assert one != _asked(identity(kind="same", model="u"))
    assert _asked(identity(kind="same", model="u")) == _asked(identity(kind="same", model="v"))


def test_another_order_is_not_gone_on_with(
    config_file: Callable[..., Path], tmp_path: Path
) -> None:
    plan = planned(config_file, early={"against": str(tmp_path / "no")})
    store = LocalStore(str(tmp_path / "own"))
    store.put("run.json", as_json(make_manifest(plan, {})))
    looks = EarlyLooks(plan, store)
    looks.check_rules()  # nobody has looked
    looks.note()
    looks.check_rules()
    tree = json.loads(store.get("run.json") or b"")
    tree["early"]["orders"]["acebench"]["sha256"] = "0"
    store.put("run.json", as_json(tree))
    with pytest.raises(UserError, match="in another order of its entries"):
        looks.check_rules()


def test_there_has_to_be_a_reference_and_another_one(
    config_file: Callable[..., Path], tmp_path: Path
) -> None:
    store = LocalStore(str(tmp_path / "own"))
    looks = EarlyLooks(planned(config_file, early={"against": str(tmp_path / "no")}), store)
    looks.check(begun=False)
    with pytest.raises(UserError, match="there is no run to compare with"):
        looks.check(begun=True)
    looks = EarlyLooks(planned(config_file, early={"against": store.root}), store)
    with pytest.raises(UserError, match="is compared with itself"):
        looks.check(begun=True)
    looks = EarlyLooks(planned(config_file, early={"against": None}), store)
    looks.check(begun=True)
    assert not looks.look(at_once=True)


def test_what_ended_undecided_is_looked_at_again(
    benchmark: ACEBench, config_file: Callable[..., Path], tmp_path: Path
) -> None:
    """Its reference ends later, as one in another lane does, or is completed."""
    own, other = Stored(tmp_path / "own"), Stored(tmp_path / "other")
    asked = {"name": "acebench", "languages": ["en"], "categories": ["normal_atom_bool"]}
    early = {"against": other.store.root, "min_rows": 1, "margin": 0.0}
    plan = planned(config_file, benchmarks=[asked], limit=None, early=early)
    for stored in (own, other):
        stored.store.put("run.json", as_json(make_manifest(plan, {})))
    own.put(*rows_of(benchmark, 4))
    theirs = rows_of(benchmark, 0)
    assert plan.drawn is not None
    order = [unit.items[0].entries[0] for unit in plan.drawn.orders["acebench"].units]
    other.put(theirs[order[0]])
    looks = EarlyLooks(plan, own.store)
    assert looks.look(at_once=True)
    looks.note()
    summary: dict[str, Any] = {"complete": True, "early": looks.summary(stopped=False)}
    assert not summary["early"]["decided"]
    own.store.put("summary.json", as_json(summary))
    assert not decide_again(plan, own.store, print), "not complete"
    own.store.put("_SUCCESS", b"")
    assert not decide_again(plan, own.store, print), "nothing new"

    other.put(*(theirs[at] for at in order[1:]))
    assert decide_again(plan, own.store, print)
    after = json.loads(own.store.get("summary.json") or b"")
    assert after["complete"]
    assert after["early"]["decided"]
    assert not after["early"]["stopped"]
    (headline,) = after["early"]["headlines"].values()
    assert (headline["outcome"], headline["units"]) == ("better", 4)
    assert own.store.get("lease.json") is None
    assert not decide_again(plan, own.store, print), "it is decided"
    stale = {**after, "early": {**after["early"], "stale": True}}
    own.store.put("summary.json", as_json(stale))
    assert decide_again(plan, own.store, print), "by verdicts that were made anew since"
    assert json.loads(own.store.get("summary.json") or b"") == after


def test_whether_a_folder_is_decided(tmp_path: Path) -> None:
    store = LocalStore(str(tmp_path / "run"))
    assert not is_decided(store)
    for content, decided in (
        (b"{}", False), (b"[", False), (b'{"early": 3}', False),
        (b'{"early": {"stopped": false}}', False), (b'{"early": {"stopped": true}}', True),
        (b'{"early": {"stopped": true, "stale": true}}', False),
    ):  # fmt: skip
        store.put("summary.json", content)
        assert is_decided(store) is decided
