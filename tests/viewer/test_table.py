"""The narrow table of a run: what lists select, and where texts are read from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from ace_ray.errors import UserError
from ace_ray.pipeline.rescore import compact_run
from ace_ray.storage import parts
from ace_ray.storage.object_store import LocalStore, open_store
from ace_ray.storage.parts import write_parts
from ace_ray.storage.rows import ROWS
from ace_ray.viewer.select import key_of
from ace_ray.viewer.table import NOT_SCORED, Query, RunTable, tables_of
from tests.report.builders import Row, block, ledger_line, row, write_run, write_sweep


def said(number: int, found: Row) -> Row:
    """With texts of its own."""
    text = f'answer {number} says "Grün" \u65e5'
    messages = json.dumps([{"role": "user", "content": f'question {number} "quoted"'}])
    return {**found, "output": text, "messages": messages}


ROWS_OF_RUN = [
    said(i, one)
    for i, one in enumerate(
        [
            *block("en", "normal_atom_bool", 8, 12),
            *block("zh", "special_incomplete", 1, 3),
            row("en", "normal_atom_enum", 0, status="infra_error"),
        ]
    )
]


@pytest.fixture
def table(tmp_path: Path) -> RunTable:
    return RunTable(open_store(str(write_run(tmp_path / "run", ROWS_OF_RUN))))


def ids(table: RunTable, **asked: str) -> list[str]:
    return [row.id for row in table.select(Query(**asked))]


def test_rows_are_in_the_order_of_their_entries(table: RunTable) -> None:
    assert ids(table)[:3] == ["normal_atom_bool_0", "normal_atom_bool_1", "normal_atom_bool_2"]
    assert ids(table)[9:12] == ["normal_atom_bool_9", "normal_atom_bool_10", "normal_atom_bool_11"]
    assert len(ids(table)) == 16


@pytest.mark.parametrize(
    ("asked", "count"),
    [
        ({"category": "special_incomplete"}, 3),
        ({"verdict": "right"}, 9),
        ({"verdict": NOT_SCORED}, 1),
        ({"error_type": "error_detection"}, 2),
        ({"error_type": "detection_failed", "rules": "official"}, 0),
        ({"rules": "unknown", "verdict": "right"}, 9),
        ({"text": 'question 11 "quoted"'}, 1),
        ({"text": "gr\u00fcn", "verdict": "wrong"}, 6),
    ],
)
def test_what_is_selected(table: RunTable, asked: dict[str, str], count: int) -> None:
    assert len(ids(table, **asked)) == count


def test_a_row_is_read_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but its group of rows is unpacked."""
    monkeypatch.setattr(parts, "GROUP_ROWS", 4)
    table = RunTable(open_store(str(write_run(tmp_path / "run", ROWS_OF_RUN))))
    rows: list[int] = []
    read = pa.parquet.ParquetFile.iter_batches

    def watched(self: Any, size: int, groups: list[int], **asked: Any) -> Any:
        rows.extend(self.metadata.row_group(number).num_rows for number in groups)
        return read(self, size, groups, **asked)

    monkeypatch.setattr(pa.parquet.ParquetFile, "iter_batches", watched)
    for found in table.rows:
        view = table.episode(found)
        assert (view.row_id, view.key["id"]) == (found.row_id, found.id)
    assert rows == [4] * 16


def test_a_run_that_grows_is_read_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_run(tmp_path / "run", ROWS_OF_RUN[:10], missing=6, finished=False)
    table = RunTable(open_store(str(folder)))
    assert (len(table.rows), table.finished) == (10, False)
    read: list[str] = []
    whole = parts.read_part

    def watched(store: Any, name: str, *more: Any) -> Any:
        read.append(name)
        return whole(store, name, *more)

    monkeypatch.setattr("ace_ray.viewer.table.read_part", watched)
    assert not table.refresh()
    more = [{**one, "run_id": "run"} for one in ROWS_OF_RUN[10:]]
    store = LocalStore(str(folder))
    (name,) = write_parts(store, "1-a", pa.Table.from_pylist(more, schema=ROWS))
    store.put("_SUCCESS", b"")
    assert table.refresh()
    assert (len(table.rows), table.finished) == (16, True)
    assert read == [name], "what was read before is not read again"
    assert not table.refresh()


def test_a_failed_attempt_does_not_count(tmp_path: Path) -> None:
    failed = row("en", "normal_atom_bool", 0, status="infra_error")
    folder = write_run(tmp_path / "run", [failed, *block("en", "normal_atom_bool", 0, 2)[1:]])
    again = {**row("en", "normal_atom_bool", 0), "run_id": "run", "attempts": 2}
    write_parts(LocalStore(str(folder)), "1-a", pa.Table.from_pylist([again], schema=ROWS))
    table = RunTable(open_store(str(folder)))
    assert [row.verdicts["official"].valid for row in table.rows] == [True, False]


def test_parts_may_be_merged_meanwhile(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", ROWS_OF_RUN[:10], missing=6)
    table = RunTable(open_store(str(folder)))
    compact_run(str(folder), lambda line: None, open_store)
    with pytest.raises(
        UserError, match="merged into another part meanwhile; run the same command again"
    ):
        table.episode(table.rows[0])
    with pytest.raises(UserError, match="merged into another part meanwhile"):
        table.select(Query(text="answer"))
    assert table.refresh()
    assert table.episode(table.rows[0]).key["id"] == "normal_atom_bool_0"


def test_the_same_rows_of_another_run(tmp_path: Path) -> None:
    one, other = (
        RunTable(open_store(str(write_run(tmp_path / name, block("en", "normal_atom_bool", n, 4)))))
        for name, n in (("one", 3), ("other", 1))
    )
    changed = one.select(Query(verdict="changed"), other)
    assert [row.id for row in changed] == ["normal_atom_bool_1", "normal_atom_bool_2"]
    assert other.by_key[key_of(changed[0])].id == "normal_atom_bool_1"


def test_a_sweep_is_its_runs(tmp_path: Path) -> None:
    rows = block("en", "normal_atom_bool", 1, 2)
    lines = [ledger_line("a"), ledger_line("b"), ledger_line("c", state="pending")]
    sweep = write_sweep(tmp_path / "sweep", lines, {"a": rows, "b": rows})
    assert [table.run_id for table in tables_of([open_store(str(sweep))])] == ["run-a", "run-b"]
    with pytest.raises(UserError, match="is not a run"):
        tables_of([open_store(str(tmp_path / "nowhere"))])


def test_a_run_without_rows_yet(tmp_path: Path) -> None:
    table = RunTable(open_store(str(write_run(tmp_path / "run", [], missing=3, finished=False))))
    assert len(table.select(Query(verdict="right", text="x"))) == 0
    assert table.counts(lambda row: row.category) == []
