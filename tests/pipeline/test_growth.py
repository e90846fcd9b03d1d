"""A stored run that grows: which configs reuse its rows, and which make another run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ace_ray.config.schema import load_config
from ace_ray.errors import UserError
from ace_ray.pipeline.evaluate import plan_run
from ace_ray.pipeline.planning.manifest import make_manifest
from ace_ray.pipeline.planning.plan import Plan
from ace_ray.pipeline.run_folder import open_output, opened, output_store
from ace_ray.storage.parts import read_ledger, write_parts
from ace_ray.storage.rows import ROWS, rows_schema
from ace_ray.storage.stored import MANIFEST, SUCCESS, as_json, read_manifest
from ace_ray.types import digest
from tests.pipeline.made_run import judged_rows, wrong

ACEBENCH = {"name": "acebench", "languages": ["en"], "categories": ["normal_atom_bool"], "limit": 2}
BFCL = {"name": "bfcl", "data": "mini", "categories": ["simple_python"]}


@pytest.fixture
def plan(config_file: Callable[..., Path]) -> Callable[..., Plan]:
    def make(**changes: Any) -> Plan:
        tree = {"benchmarks": [ACEBENCH], "limit": None, "sampling": {"temperature": 0.7}}
        return plan_run(load_config(str(config_file(**{**tree, **changes}))))

    return make


def store(plan: Plan, **facts: Any) -> Plan:
    """Store the complete run of ``plan``."""
    folder = output_store(plan)
    folder.put(MANIFEST, as_json(make_manifest(plan, {"created_at": "2026-01-01", **facts})))
    table = pa.Table.from_pylist(judged_rows(plan, wrong), schema=ROWS)
    write_parts(folder, "00000000000001-aa", table)
    folder.put(SUCCESS, b"")
    return plan


def benchmarks(*more: Any, **changes: Any) -> dict[str, Any]:
    return {"benchmarks": [*more, {**ACEBENCH, **changes}]}


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        pytest.param(benchmarks(limit=4), "acebench.limit 2 -> 4", id="limit"),
        pytest.param({"samples": 3}, "samples 1 -> 3", id="samples"),
        pytest.param({"repeat_fraction": 1.0}, "repeat_fraction 0.0 -> 1.0", id="repeats"),
        pytest.param(benchmarks(BFCL), "bfcl added", id="benchmark before"),
        pytest.param(
            benchmarks(categories=["normal_atom_bool", "agent_multi_turn"], limit=4),
            'acebench.categories ["normal_atom_bool"] -> ["normal_atom_bool","agent_multi_turn"], '
            "acebench.limit 2 -> 4",
            id="interactive category",
        ),
    ],
)
def test_a_grown_run_keeps_its_folder_and_rows(
    plan: Callable[..., Plan], log_lines: list[str], changes: dict[str, Any], what: str
) -> None:
    small = store(plan())
    grown = plan(**changes)
    rows = len(grown.rows)
    assert (grown.run_id, grown.beside, rows > 2) == (small.run_id, "", True)
    for session in range(2):  # the second command continues the grown run
        with opened(plan(**changes), fresh=False, began=0.0) as run:
            assert run.announce() == rows - 2
            assert set(run.pending(again=False).ids) == set(grown.rows.ids) - set(small.rows.ids)
            line = f"{small.run_id}: {rows} rows declared, {rows - 2} to evaluate, "
            assert f"{line}2 stored rows reused" in log_lines[0]
            assert (f"the stored run of 2 rows grows: {what}" in log_lines) is not session
            run.declare({"created_at": "2026-02-02"})
            log_lines.clear()
    manifest = read_manifest(output_store(grown))
    assert output_store(grown).get(SUCCESS) is None
    assert (manifest.declared, manifest.tree["created_at"]) == (rows, "2026-01-01")
    assert manifest.tree["identity"] == json.loads(json.dumps(grown.identity))
    (growth,) = manifest.grown
    assert str(growth) == f"grew from 2 to {rows} rows on {growth.at[:10]} ({what})"


@pytest.mark.parametrize(
    ("changes", "facts", "reason"),
    [
        pytest.param({"sampling": {"max_tokens": 7}}, {}, "differ in sampling", id="sampling"),
        pytest.param({"engine": {"delay_s": 1}}, {}, "differ in engine.delay_s", id="engine"),
        pytest.param(
            benchmarks(variant="minimal", limit=4),
            {},
            "differ in .*benchmarks.acebench.variant",
            id="prompts",
        ),
        pytest.param(
            benchmarks(limit=1), {}, "1 of its 2 stored rows are not among the", id="smaller limit"
        ),
        pytest.param(
            {"samples": 2},
            {"early": {"looked": True}},
            "with early stopping cannot grow",
            id="look",
        ),
        pytest.param({"samples": 2, "early": {}}, {}, "with early stopping cannot", id="early"),
        pytest.param({"samples": 2}, {"declared": 9}, "declares 9 rows, this config 4", id="more"),
    ],
)
def test_what_can_move_a_verdict_makes_another_run(
    plan: Callable[..., Plan], changes: dict[str, Any], facts: dict[str, Any], reason: str
) -> None:
    named = {"run_id": "mine"}
    store(plan(**named), **facts)
    with pytest.raises(UserError, match=reason):
        open_output(plan(**changes, **named))
    stored = store(plan(), **facts)
    other = plan(**changes)
    assert other.run_id != stored.run_id
    if other.growing_ids[0] == stored.run_id:
        assert reason in other.beside
        assert other.run_id.endswith(digest(other.identity)[:10])
    store(other)
    assert plan(**changes).run_id == other.run_id
    assert plan().run_id == stored.run_id


def test_a_run_under_its_former_id_is_continued(plan: Callable[..., Plan]) -> None:
    new = plan()
    former = f"{new.run_id[:-10]}{digest(new.identity)[:10]}"
    assert former != new.run_id
    store(plan(run_id=former))
    assert plan().run_id == former


def test_rows_without_a_later_rule_set_are_read(plan: Callable[..., Plan]) -> None:
    stored = store(plan())
    schema = rows_schema(("official", "strict", "correct"))
    ledger = read_ledger(output_store(stored), schema=schema)
    assert np.array_equal(ledger.ids, np.sort(stored.rows.ids))
    tables = pa.concat_tables(ledger.tables(["correct_valid", "strict_valid"]))
    assert tables.to_pydict() == {"correct_valid": [None] * 2, "strict_valid": [False] * 2}
    assert [*pa.concat_tables(ledger.tables(["correct_error"])).to_pydict()] == ["correct_error"]
