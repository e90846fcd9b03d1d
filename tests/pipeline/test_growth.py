"""A stored run that grows: which configs reuse its rows, and which make another run."""

from __future__ import annotations

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
from ace_ray.pipeline.run_folder import open_folder, open_output, output_store
from ace_ray.storage.parts import read_ledger, write_parts
from ace_ray.storage.rows import ROWS, rows_schema
from ace_ray.storage.stored import MANIFEST, SUCCESS, as_json, read_manifest
from ace_ray.types import digest
from tests.pipeline.made_run import judged_rows, wrong

Planned = Callable[..., Plan]
BOOL = "normal_atom_bool"
ACEBENCH = {"name": "acebench", "languages": ["en"], "categories": [BOOL], "limit": 2}
BFCL = {"name": "bfcl", "data": "mini", "categories": ["simple_python"]}
AGENTS = {"categories": [BOOL, "agent_multi_turn"], "limit": 4}
IDS = {"ids": [f"{BOOL}_{number}" for number in (1, 2, 3)], "limit": None}
LOOKED, EARLY = {"early": {"looked": True}}, "a run with early stopping cannot grow"


@pytest.fixture
def plan(config_file: Callable[..., Path]) -> Planned:
    def make(*more: Any, section: Any = None, **changes: Any) -> Plan:
        benchmarks = [*more, {**ACEBENCH, **(section or {})}]
        tree = {"benchmarks": benchmarks, "limit": None, "sampling": {"temperature": 0.7}}
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


@pytest.mark.parametrize(
    ("more", "changes", "what"),
    [
        pytest.param([], {"section": {"limit": 4}}, "acebench.limit 2 -> 4", id="limit"),
        pytest.param([], {"samples": 3}, "samples 1 -> 3", id="samples"),
        pytest.param([], {"repeat_fraction": 1.0}, "repeat_fraction 0.0 -> 1.0", id="repeats"),
        pytest.param([BFCL], {}, "bfcl added", id="benchmark before the first"),
        pytest.param(
            [], {"section": AGENTS}, 'acebench.categories ["normal_atom_bool"] -> ', id="agents"
        ),
    ],
)
def test_a_grown_run_keeps_its_folder_and_rows(
    plan: Planned, log_lines: list[str], more: list[Any], changes: dict[str, Any], what: str
) -> None:
    small, grown = store(plan()), plan(*more, **changes)
    rows = len(grown.rows)
    assert (grown.run_id, grown.conflict_line, rows > 2) == (small.run_id, "", True)
    for grows in (True, False):  # the second command continues the grown run
        with open_folder(plan(*more, **changes), fresh=False, began=0.0) as run:
            assert run.announce() == rows - 2
            assert set(run.pending(again=False).ids) == set(grown.rows.ids) - set(small.rows.ids)
            line = f"{rows} rows declared, {rows - 2} to evaluate, 2 stored rows reused ("
            assert line in log_lines[0]
            assert any(f"the stored run grows: {what}" in n for n in log_lines) or not grows
            run.declare({"created_at": "2026-02-02"})
            log_lines.clear()
    manifest = read_manifest(output_store(grown))
    assert output_store(grown).get(SUCCESS) is None
    assert (manifest.declared, manifest.tree["created_at"]) == (rows, "2026-01-01")
    assert str(*manifest.grown).startswith(f"grew from 2 to {rows} rows on 20")


@pytest.mark.parametrize(
    ("changes", "facts", "reason"),
    [
        pytest.param({"sampling": {"max_tokens": 7}}, {}, "differ in sampling", id="sampling"),
        pytest.param({"engine": {"delay_s": 1}}, {}, "differ in engine.delay_s", id="engine"),
        pytest.param({"section": {"variant": "minimal"}}, {}, "acebench.variant", id="prompts"),
        pytest.param({"section": {"limit": 1}}, {}, r"\(2 and 1 rows", id="smaller limit"),
        pytest.param({"section": IDS}, {}, "stored rows are not among", id="ids"),
        pytest.param({"samples": 2}, LOOKED, EARLY, id="looked at"),
        pytest.param({"samples": 2, "early": {}}, {}, EARLY, id="early stopping"),
        pytest.param({"samples": 2}, {"declared": 9}, r"\(9 and 4 rows", id="declares more"),
    ],
)
def test_what_can_move_a_verdict_makes_another_run(
    plan: Planned, changes: dict[str, Any], facts: dict[str, Any], reason: str
) -> None:
    store(plan(run_id="mine"), **facts)
    with pytest.raises(UserError, match=reason):
        open_output(plan(**changes, run_id="mine"))
    stored, other = store(plan(), **facts), plan(**changes)
    assert other.run_id != stored.run_id
    assert bool(other.conflict_line) is other.run_id.endswith(digest(other.identity)[:10])
    store(other)
    assert (plan().run_id, plan(**changes).run_id) == (stored.run_id, other.run_id)


def test_a_run_under_its_former_id_is_continued(plan: Planned) -> None:
    new = plan()
    former = f"{new.run_id[:-10]}{digest(new.identity)[:10]}"
    store(plan(run_id=former))
    assert plan().run_id == former != new.run_id


def test_rows_without_a_later_rule_set_are_read(plan: Planned) -> None:
    stored = store(plan())
    ledger = read_ledger(output_store(stored), schema=rows_schema(("official", "correct")))
    assert np.array_equal(ledger.ids, np.sort(stored.rows.ids))
    for column in ("correct_valid", "correct_error"):
        assert pa.concat_tables(ledger.tables([column])).to_pydict() == {column: [None] * 2}
