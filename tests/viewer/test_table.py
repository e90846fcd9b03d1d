"""The rows of a run that pages select from, and where their texts are read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ace_ray.errors import UserError
from ace_ray.pipeline.rescore import compact_run
from ace_ray.storage.object_store import LocalStore, open_store
from ace_ray.storage.parts import write_parts
from ace_ray.storage.rows import ROWS
from ace_ray.viewer.table import NOT_SCORED, Query, RunTable, tables_of
from tests.report.builders import block, ledger_line, row, write_run, write_sweep

ROWS_OF_RUN = [
    {
        **one,
        "output": f'answer {number} says "Grün" \u65e5',
        "messages": json.dumps([{"role": "user", "content": f'question {number} "quoted"'}]),
    }
    for number, one in enumerate(
        [
            *block("en", "normal_atom_bool", 8, 12),
            *block("zh", "special_incomplete", 1, 3),
            row("en", "normal_atom_enum", 0, status="infra_error"),
        ]
    )
]


def table_of(folder: Path, *rows: Any, **options: Any) -> RunTable:
    return RunTable(open_store(str(write_run(folder, rows, **options))))


@pytest.mark.parametrize(
    ("asked", "count"),
    [
        ({}, 16),
        ({"verdict": NOT_SCORED}, 1),
        ({"error_type": "error_detection"}, 2),
        ({"error_type": "detection_failed", "rules": "official"}, 0),
        ({"rules": "unknown", "verdict": "right"}, 9),
        ({"text": 'question 11 "quoted"'}, 1),
        ({"text": "gr\u00fcn", "verdict": "wrong"}, 6),
    ],
)
def test_rows_are_selected_by_filters_and_text(
    tmp_path: Path, asked: dict[str, str], count: int
) -> None:
    ids = [one.id for one in table_of(tmp_path / "run", *ROWS_OF_RUN).select(Query(**asked))]
    assert len(ids) == count
    numbers = [int(one.rpartition("_")[2]) for one in ids if one.startswith("normal_atom_bool")]
    assert numbers == sorted(numbers), "in the order of their entries"


def test_a_run_that_grows_is_read_on(tmp_path: Path) -> None:
    table = table_of(tmp_path / "run", *ROWS_OF_RUN[:10], missing=6, finished=False)
    assert (len(table.rows), table.finished) == (10, False)
    assert not table.refresh()
    more = [{**one, "run_id": "run"} for one in ROWS_OF_RUN[10:]]
    store = LocalStore(str(tmp_path / "run"))
    write_parts(store, "1-a", pa.Table.from_pylist(more, schema=ROWS))
    store.put("_SUCCESS", b"")
    assert table.refresh()
    assert (len(table.rows), table.finished) == (16, True)
    assert not table.refresh()


def test_parts_may_be_merged_meanwhile(tmp_path: Path) -> None:
    table = table_of(tmp_path / "run", *ROWS_OF_RUN[:10], missing=6)
    compact_run(str(tmp_path / "run"), lambda line: None, open_store)
    with pytest.raises(UserError, match="merged into another part meanwhile; run the same command"):
        table.episode(table.rows[0])
    with pytest.raises(UserError, match="merged into another part meanwhile"):
        table.select(Query(text="answer"))
    assert table.refresh()
    assert table.episode(table.rows[0]).key["id"] == "normal_atom_bool_0"


def test_a_sweep_is_its_runs_that_have_begun(tmp_path: Path) -> None:
    rows = block("en", "normal_atom_bool", 1, 2)
    lines = [ledger_line("a"), ledger_line("b"), ledger_line("c", state="pending")]
    sweep = write_sweep(tmp_path / "sweep", lines, {"a": rows, "b": rows})
    assert [table.run_id for table in tables_of([open_store(str(sweep))])] == ["run-a", "run-b"]
    with pytest.raises(UserError, match="is not a run"):
        tables_of([open_store(str(tmp_path / "nowhere"))])
    empty = table_of(tmp_path / "empty", missing=3, finished=False)
    assert len(empty.select(Query(verdict="right", text="x"))) == 0
    assert empty.counts(lambda row: row.category) == []
