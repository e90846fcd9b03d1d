from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from ace_ray.config.schema import RunConfig
from ace_ray.errors import UserError
from ace_ray.pipeline.planning.plan import Plan, PlannedRows, make_manifest, make_plan
from tests.pipeline.planning.toy_benchmark import MODEL, Toy, planned


def same(one: PlannedRows, other: PlannedRows) -> bool:
    columns = zip(vars(one).values(), vars(other).values(), strict=True)
    return all(np.array_equal(mine, theirs) for mine, theirs in columns)


def ids(plan: Plan) -> set[bytes]:
    return set(plan.rows.ids.tolist())


def test_row_ids_are_stable() -> None:
    assert same(planned().rows, planned().rows)
    assert planned().run_id == planned().run_id
    assert len(ids(planned(samples=3))) == 9


@pytest.mark.parametrize(
    "changes",
    [
        {"sampling": {"temperature": 0.5}},
        {"sampling": {"seed": 1}},
        {"sampling": {"max_tokens": 7}},
        {"sampling": {"stop": ["\n"]}},
        {"model": {"source": "org/tiny", "chat_template_kwargs": {"enable_thinking": True}}},
        {"model": {"source": "org/tiny", "reasoning_parser": "none"}},
        {"backend": "fake"},
    ],
    ids=str,
)
def test_row_ids_change_with_what_is_asked(changes: dict[str, Any]) -> None:
    assert not ids(planned(**changes)) & ids(planned())
    assert planned(**changes).run_id != planned().run_id


def test_row_ids_change_with_the_model_and_the_texts() -> None:
    before = ids(planned())
    other = dataclasses.replace(MODEL, revision="commit-2")
    assert not ids(planned(ref=other)) & before
    reworded, regraded, revised = Toy(), Toy(), Toy()
    reworded.wording = "write: "
    regraded.answer = "other gold"
    revised.facts = {"variant": "standard", "protocol": {"mode": "other"}}
    for toy in (reworded, regraded, revised):
        assert not ids(planned(toy)) & before


@pytest.mark.parametrize(
    "changes",
    [
        {"workers": 4},
        {"rows_per_block": 5},
        {"episode_timeout_s": 5.0},
        {"max_unscored": 0.5},
        {"max_attempts": 7},
        {"stall_s": 77.0},
        {"output": "elsewhere"},
    ],
    ids=str,
)
def test_a_run_stays_the_same_however_it_is_carried_out(changes: dict[str, Any]) -> None:
    assert same(planned(**changes).rows, planned().rows)
    assert planned(**changes).run_id == planned().run_id


def test_engine_arguments_make_another_run_of_the_same_rows() -> None:
    plan = planned(engine={"dtype": "float32"})
    assert same(plan.rows, planned().rows)
    assert plan.run_id != planned().run_id


def test_more_samples_keep_the_first() -> None:
    assert ids(planned(samples=1)) < ids(planned(samples=2)) < ids(planned(samples=3))


def test_the_longest_work_comes_first() -> None:
    plan = planned(samples=2)
    sizes = plan.rows.size.tolist()
    assert sizes == sorted(sizes, reverse=True)
    assert plan.rows.entry.tolist() == [1, 1, 2, 2, 0, 0]


def test_a_limit_takes_some_of_the_rows() -> None:
    plan = planned(limit=2)
    assert len(plan.entries) == 2
    assert ids(plan) < ids(planned())
    assert plan.run_id != planned().run_id
    assert planned(limit=99).run_id == planned().run_id


def test_nothing_to_run_is_a_mistake() -> None:
    with pytest.raises(UserError, match="nothing to evaluate"):
        planned(Toy([]))


def test_run_ids_are_names_that_every_store_takes() -> None:
    odd = dataclasses.replace(MODEL, location="org/Tïny Model (v2)")
    run_id = planned(ref=odd).run_id
    assert run_id.startswith("toy-t-ny-model-v2")
    assert RunConfig.model_fields["run_id"]
    assert planned(ref=odd, run_id=run_id).run_id == run_id
    assert planned(run_id="mine").uri == "runs/mine"


def test_the_config_of_the_manifest_is_the_same_run() -> None:
    plan = planned(samples=2, sampling={"temperature": 1.0, "seed": 4}, engine={"dtype": "auto"})
    manifest = make_manifest(plan, {"machine": {}})
    again = make_plan(RunConfig.model_validate(manifest["config"]), MODEL, [Toy()])
    assert same(again.rows, plan.rows)
    assert (again.run_id, again.identity) == (plan.run_id, plan.identity)
    assert manifest["config"]["model"]["revision"] == "commit-1"
    assert manifest["declared"] == 6


def test_planned_rows_are_chosen_by_a_mask() -> None:
    rows = planned(samples=2).rows
    chosen = rows.where(rows.sample == 1)
    assert chosen.ids.tolist() == rows.ids[rows.sample == 1].tolist()
    assert len(rows.where(np.zeros(len(rows), bool))) == 0


def test_a_plan_of_many_rows_is_small() -> None:
    """Columns, not objects: a million rows take some 50 MB."""
    plan = planned(Toy([f"text {i}" for i in range(100)]), samples=50)
    assert (len(plan.rows), len(ids(plan))) == (5000, 5000)
    held = sum(column.nbytes for column in vars(plan.rows).values())
    assert held == 58 * 5000
    # The samples of an entry stay side by side, in order.
    assert plan.rows.sample[:50].tolist() == list(range(50))
    assert len({*plan.rows.entry[:50].tolist()}) == 1
