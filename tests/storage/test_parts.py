"""Parts on a store: which rows are stored, which of them count, and what is not a part."""

import dataclasses
import io
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ace_ray.errors import UserError
from ace_ray.storage import parts
from ace_ray.storage.object_store import LocalStore, Store
from ace_ray.storage.parts import (
    FOLDER,
    Ledger,
    compact,
    new_session,
    part_name,
    part_names,
    read_ledger,
    write_parts,
)
from ace_ray.storage.rows import CHECK_FAILED, ROWS, verdict_columns
from ace_ray.types import Episode, Verdict
from tests.pipeline.made_run import made_row

EARLY, LATE = "00000000000001-aa", "00000000000002-aa"


def table(*rows: tuple[str, str], **more: Any) -> pa.Table:
    """Return a part's table with (row id, status) rows."""
    verdicts = {"official": Verdict(True), "strict": Verdict(False, "wrong", "said so", {"p": 0.5})}
    made_rows = []
    for row_id, status in rows:
        columns = {
            **{"benchmark": "toy", "category": "all", "language": "en"},
            **{"id": row_id, "group": row_id, "status": status},
            "error_class": None if status == "scored" else "Boom",
            **verdict_columns(verdicts if status == "scored" else {}),
            **more,
        }
        made_rows.append(
            made_row(row_id, Episode(output="said \ud800", state={"a": "é\ud800"}), **columns)
        )
    return pa.Table.from_pylist(made_rows, schema=ROWS)


def parquet(content: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(content, sink)
    return sink.getvalue()


def ids(ledger: Ledger) -> list[str]:
    return [row_id.decode() for row_id in ledger.ids]


def settled(ledger: Ledger) -> set[str]:
    return {row_id.decode() for row_id in ledger.ids[ledger.settled]}


def stored(ledger: Ledger) -> dict[str, dict[str, Any]]:
    """Return the rows that count with all their columns, by id; fail on a row that comes twice."""
    rows = [row for part in ledger.tables(ROWS.names) for row in part.to_pylist()]
    assert len({row["row_id"] for row in rows}) == len(rows)
    return {row["row_id"]: row for row in rows}


def put(store: Store, session: str, content: pa.Table) -> str:
    (name,) = write_parts(store, session, content)
    return name


def test_rows_are_read_back_as_they_were_written(store: Store) -> None:
    empty = read_ledger(store)
    assert (ids(empty), list(empty.rows()), empty.ignored) == ([], [], {})
    assert empty.find(np.array([b"a", b"b"])).tolist() == [-1, -1]
    assert compact(store, empty, EARLY) == (0, 0)
    content = table(("b", "skipped"), ("a", "scored"))
    name = put(store, EARLY, content)
    assert put(store, EARLY, content) == name, "a repeated write replaces its own part"
    assert part_names(store) == [name]
    ledger = read_ledger(store)
    assert ids(ledger) == ["a", "b"]
    assert (ledger.dominated, ledger.ignored) == (0, {})
    rows = {row.row_id: row for row in ledger.rows()}
    assert rows["a"].verdicts["official"].valid
    assert rows["a"].verdicts["strict"] == Verdict(False, "wrong", metrics={"p": 0.5})
    assert (rows["b"].status, rows["b"].verdicts) == ("skipped", {})
    (stored_table,) = ledger.tables(ROWS.names)
    assert stored_table.column("output").to_pylist() == ["said \ufffd"] * 2
    assert stored_table.column("state").to_pylist() == ['{"a": "é\\ud800"}'] * 2
    assert stored_table.schema.remove_metadata() == ROWS


@pytest.mark.parametrize(
    ("first", "second", "winner"),
    [
        *(("infra_error", second, LATE) for second in ("scored", "infra_error", "quarantined")),
        *((first, "infra_error", EARLY) for first in ("scored", "skipped", "quarantined")),
        ("scored", "scored", LATE),
    ],
)
def test_an_evaluated_row_wins_then_the_latest(local, first, second, winner) -> None:
    # Written in the wrong order: names decide, not times of files.
    put(local, LATE, table(("a", second), duration_s=2.0, attempts=7))
    put(local, EARLY, table(("a", first), ("other", "scored"), duration_s=1.0, attempts=3))
    ledger = read_ledger(local)
    assert (ids(ledger), ledger.dominated) == (["a", "other"], 1)
    status, seconds, attempts = (second, 2.0, 7) if winner == LATE else (first, 1.0, 3)
    row = stored(ledger)["a"]
    assert (row["status"], row["duration_s"]) == (status, seconds)
    assert ledger.attempts.tolist() == [attempts, 3]
    assert ("a" in settled(ledger)) == ({first, second} != {"infra_error"})


def test_doubles_failed_checks_and_uncounted_attempts(local: LocalStore) -> None:
    doubles = [table(("a", "scored"), duration_s=at) for at in range(3)]
    failed = table(("a", "infra_error"), ("b", "infra_error"), attempts=None)
    put(local, EARLY, pa.concat_tables([*doubles, failed]))
    put(local, LATE, table(("c", "infra_error"), error_class=CHECK_FAILED, attempts=4))
    ledger = read_ledger(local)
    assert (ids(ledger), ledger.dominated) == (["a", "b", "c"], 3)
    assert stored(ledger)["a"]["duration_s"] == 2.0
    assert ledger.settled.tolist() == [True, False, False]
    assert ledger.retryable.tolist() == [True, True, False]
    assert ledger.attempts.tolist() == [1, 1, 4]


def test_rows_are_found_by_id(local: LocalStore) -> None:
    put(local, "00000000000003-aa", table())
    put(local, LATE, table(("c", "scored"), ("a", "scored")))
    put(local, EARLY, table(("bb", "scored"), ("stranger", "scored")))
    ledger = read_ledger(local, pytest.fail)
    row_ids = np.array([b"c", b"0", b"bb", b"b", b"z", b"a", b"c"], dtype="S32")
    assert ledger.find(row_ids).tolist() == [2, -1, 1, -1, -1, 0, 2]
    assert ledger.find(row_ids[:0]).tolist() == []
    stored_ids = np.array([b"a", b"bb", b"never stored"], dtype="S32")
    matches = [part.column("row_id").to_pylist() for part in ledger.tables(["row_id"], stored_ids)]
    assert sorted(matches) == [["a"], ["bb"]]
    local.put(part_names(local)[0], b"torn")
    assert [part.num_rows for part in ledger.tables(["row_id"], stored_ids[:1])] == [1], "its part"


BAD = table(("bad", "scored"), ("bad2", "scored"))
WHOLE = parquet(BAD)
NO_PARTS: dict[str, bytes] = {
    "without its head": WHOLE[4:],
    "without a byte of its footer": WHOLE[:-9] + WHOLE[-8:],
    "foreign": parquet(pa.table({"name": ["x"]})),
    "without a column": parquet(BAD.drop_columns(["output"])),
    "ids of another type": parquet(BAD.set_column(0, "row_id", pa.array([{"a": 1}] * 2))),
    "no id": parquet(BAD.set_column(0, "row_id", pa.array([None] * 2, "string"))),
    "a further column of lists": parquet(BAD.append_column("more", pa.array([[1]] * 2))),
    "ids too long": parquet(table(("b" * 33, "scored"))),
}


@pytest.mark.parametrize("kind", NO_PARTS)
def test_a_damaged_part_is_named_and_its_rows_are_pending(local: LocalStore, kind: str) -> None:
    put(local, EARLY, table(("a", "scored")))
    bad = f"{FOLDER}part-{LATE}-bad.parquet"
    local.put(bad, NO_PARTS[kind])
    for name in ("rows/.DS_Store", "rows/part-1.parquet.bak", "run.json"):
        local.put(name, b"{}")
    messages: list[str] = []
    ledger = read_ledger(local, messages.append)
    assert ids(ledger) == ["a"]
    assert ledger.find(np.array([b"bad", b"bad2"])).tolist() == [-1, -1]
    assert list(ledger.ignored) == [bad]
    (line,) = messages
    assert line.startswith(f"{local.root}/{bad} is ignored")
    assert ledger.ignored[bad]
    assert line.endswith(ledger.ignored[bad])
    assert "\n" not in line
    assert len(line) < 500
    assert set(stored(ledger)) == {"a"}


def test_a_text_that_is_not_utf_8_damages_its_part(local: LocalStore) -> None:
    texts = pa.Array.from_buffers(pa.string(), 2, pa.array([b"\xff", b"a"], "binary").buffers())
    column = BAD.schema.get_field_index("output")
    name = put(local, LATE, BAD.set_column(column, "output", texts))
    with pytest.raises(UserError, match=f"{re.escape(name)}: is damaged.*UTF8"):
        list(read_ledger(local).tables(["row_id", "output"]))


class Away:
    """A store that lists its files, but fails to `open` or `get` them unless allowed."""

    def __init__(self, inner: Store, *, gets: bool = False) -> None:
        self.inner, self.gets, self.root = inner, gets, inner.root

    def list(self, prefix: str = "") -> Sequence[Any]:
        return self.inner.list(prefix)

    def open(self, path: str) -> Any:
        raise OSError("network is unreachable")

    def get(self, path: str) -> bytes | None:
        if self.gets:
            return self.inner.get(path)
        raise UserError("cannot be reached", where=self.root)


def test_an_outage_is_never_a_torn_part(local: LocalStore) -> None:
    name = put(local, EARLY, table(("a", "scored")))
    away: Any = Away(local)
    with pytest.raises(UserError, match="cannot be reached"):
        read_ledger(away, pytest.fail)
    # Only `open` fails, as when a read of a range breaks off: the part is complete.
    half: Any = Away(local, gets=True)
    ledger = read_ledger(half, pytest.fail)
    assert (ids(ledger), ledger.ignored) == (["a"], {})
    assert set(stored(ledger)) == {"a"}
    # The outage begins when the rows are read.
    ledger = dataclasses.replace(read_ledger(local), store=away)
    with pytest.raises(UserError, match="cannot be reached"):
        list(ledger.rows())
    local.put(name, b"torn")
    with pytest.raises(UserError, match=re.escape(name)):
        list(dataclasses.replace(ledger, store=local).rows())
    names = local.list(FOLDER)
    local.delete(name)
    half.list = lambda prefix: names
    assert read_ledger(half).ignored == {name: "it is gone"}


def test_parts_that_are_merged_while_they_are_read_are_read_once(local: LocalStore) -> None:
    put(local, EARLY, table(("a", "scored"), ("b", "infra_error")))
    put(local, EARLY, table(("c", "scored"), ("d", "scored")))
    put(local, LATE, table(("b", "scored")))
    before = local.list(FOLDER)
    reading = read_ledger(local).tables(["row_id"], np.array([b"a", b"b", b"c"], "S32"))
    first = next(reading).column("row_id").to_pylist()
    compact(local, read_ledger(local), "00000000000003-aa")
    put(local, "00000000000004-aa", table(("e", "scored")))
    later_ids = [row_id for part in reading for row_id in part.column("row_id").to_pylist()]
    assert sorted(first + later_ids) == ["a", "b", "c"]
    behind: Any = Away(local, gets=True)
    listed = [before]
    behind.list = lambda prefix: listed.pop() if listed else local.list(prefix)
    ledger = read_ledger(behind)
    assert (ids(ledger), ledger.ignored) == (["a", "b", "c", "d", "e"], {})


def test_large_tables_are_split(local: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = table(*((f"{i:02}", "scored") for i in range(20)))
    monkeypatch.setattr(parts, "PART_BYTES", rows.nbytes // 3)
    names = write_parts(local, EARLY, rows)
    assert len(names) == len(set(names)) == 4
    assert sorted(names) == part_names(local)
    assert all(pq.read_table(Path(local.root, name)).num_rows == 5 for name in names)
    assert ids(read_ledger(local)) == [f"{i:02}" for i in range(20)]
    # One row is a part, however large.
    monkeypatch.setattr(parts, "PART_BYTES", 1)
    assert len(write_parts(local, LATE, rows)) == 20
    ledger = read_ledger(local)
    assert (len(ledger.ids), ledger.dominated) == (20, 20)
    # Compacted parts hold at least half of the maximum.
    monkeypatch.setattr(parts, "PART_BYTES", 8 * rows.slice(0, 1).nbytes)
    assert compact(local, ledger, "00000000000003-aa") == (24, 5)
    assert len(stored(read_ledger(local))) == 20


@pytest.mark.parametrize(("rows", "groups"), [(100, 1), (300, 2), (5_000, 16)])
def test_row_groups_are_small_and_few(local: LocalStore, rows: int, groups: int) -> None:
    names = pa.array([f"{n:032d}" for n in range(rows)])
    content = table(("x", "scored")).take([0] * rows).set_column(0, "row_id", names)
    file = pq.ParquetFile(Path(local.root, put(local, EARLY, content)))
    assert file.num_row_groups == groups
    assert file.metadata.row_group(0).column(ROWS.names.index("output")).statistics is None
    assert len(read_ledger(local).ids) == rows


class Crash(Exception):
    """The process ends here."""


@pytest.mark.parametrize(
    ("step", "n_calls"), [("put", 0), ("put", 3), ("delete", 0), ("delete", 2)]
)
def test_compacting_keeps_the_rows_that_count_even_if_it_crashes(local, monkeypatch, step, n_calls):
    put(local, "00000000000001-aa", table(("a", "scored"), ("b", "infra_error"), duration_s=1.0))
    put(local, "00000000000002-aa", table(("b", "infra_error"), ("c", "quarantined")))
    put(local, "00000000000003-aa", table(("b", "skipped"), duration_s=3.0))
    put(local, "00000000000004-aa", table(("a", "infra_error"), ("d", "infra_error")))
    local.put(f"{FOLDER}part-foreign.parquet", NO_PARTS["foreign"])
    before = read_ledger(local)
    expected = stored(before)
    assert (ids(before), before.dominated) == (["a", "b", "c", "d"], 3)
    real: Callable[..., None] = getattr(LocalStore, step)
    calls: list[str] = []

    def crash(self: LocalStore, path: str, *data: bytes) -> None:
        if len(calls) == n_calls:
            raise Crash
        calls.append(path)
        real(self, path, *data)

    with monkeypatch.context() as patch:
        patch.setattr(parts, "PART_BYTES", 1)  # a part per row
        patch.setattr(LocalStore, step, crash)
        with pytest.raises(Crash):
            compact(local, before, "00000000000005-zz")
    for _ in range(2):
        after = read_ledger(local)
        assert stored(after) == expected
        assert after.settled.tolist() == before.settled.tolist()
        assert after.ignored == before.ignored
        session = new_session(part_names(local), "zz")
        assert compact(local, after, session) == (len(after.parts), 1)
        names = part_names(local)
        assert names[0].startswith(f"{FOLDER}part-{session}-")
        assert names[1:] == [f"{FOLDER}part-foreign.parquet"]
    assert read_ledger(local).dominated == 0
    # A later attempt still wins.
    put(local, new_session(part_names(local), "yy"), table(("d", "scored"), duration_s=9.0))
    compact(local, read_ledger(local), new_session(part_names(local), "zz"))
    assert stored(read_ledger(local))["d"]["duration_s"] == 9.0


def test_sessions_are_numbered_whatever_the_clock_says() -> None:
    assert new_session([], "ab") == "00000000000001-ab"
    names = [part_name("00000000000007-xy", ["a"]), part_name("00000000000003-zz", ["a"])]
    assert new_session(names, "ab") == "00000000000008-ab"
    odd = ["rows/other.parquet", "rows/part-.parquet", "rows/part-²-a.parquet", "rows/part-x-1"]
    assert new_session([*odd, *names], "ab") == "00000000000008-ab"
    lists = (["a"], ["a", "b"], ["ab"])
    assert len({part_name(session, rows) for session in (EARLY, LATE) for rows in lists}) == 6
