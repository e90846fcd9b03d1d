"""The parts are the ledger: which rows are stored, which of them count, and what is no part."""

from __future__ import annotations

import dataclasses
import io
import json
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
from ace_ray.storage.object_store import LocalStore, Store, open_store
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
from ace_ray.storage.rows import CHECK_FAILED, ROWS, entry_columns, episode_columns, verdict_columns
from ace_ray.types import Entry, Episode, Verdict
from tests.pipeline.made_run import made_row

EARLY, LATE = "00000000000001-aa", "00000000000002-aa"


def table(*rows: tuple[str, str], **more: Any) -> pa.Table:
    """A part's table with (row id, status) rows."""
    verdicts = {"official": Verdict(True), "strict": Verdict(False, "wrong", "said so", {"p": 0.5})}
    return pa.Table.from_pylist(
        [
            made_row(
                row_id,
                Episode(output="said \ud800", state={"a": [1]}),
                **{
                    **{"benchmark": "toy", "category": "all", "language": "en"},
                    **{"id": row_id, "group": row_id, "status": status},
                    "error_class": None if status == "scored" else "Boom",
                    **verdict_columns(verdicts if status == "scored" else {}),
                    **more,
                },
            )
            for row_id, status in rows
        ],
        schema=ROWS,
    )


def parquet(content: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(content, sink)
    return sink.getvalue()


def ids(ledger: Ledger) -> list[str]:
    return [row_id.decode() for row_id in ledger.ids]


def settled(ledger: Ledger) -> set[str]:
    return {row_id.decode() for row_id in ledger.ids[ledger.settled]}


def stored(ledger: Ledger) -> dict[str, dict[str, Any]]:
    """The rows that count with all their columns, by id; fails on a row that comes twice."""
    rows = [row for part in ledger.tables(ROWS.names) for row in part.to_pylist()]
    assert len({row["row_id"] for row in rows}) == len(rows)
    return {row["row_id"]: row for row in rows}


def put(store: Store, session: str, content: pa.Table) -> str:
    (name,) = write_parts(store, session, content)
    return name


@pytest.fixture(params=["local", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "local":
        return LocalStore(str(tmp_path))
    s3 = request.getfixturevalue("s3")
    return open_store(f"s3://{s3.bucket}/{tmp_path.name}")


@pytest.fixture
def local(tmp_path: Path) -> LocalStore:
    return LocalStore(str(tmp_path))


def test_what_is_written_is_read_back(store: Store) -> None:
    name = put(store, EARLY, table(("b", "skipped"), ("a", "scored")))
    assert part_names(store) == [name]
    ledger = read_ledger(store)
    assert ids(ledger) == ["a", "b"]
    assert (ledger.dominated, ledger.ignored) == (0, {})
    rows = {row.row_id: row for row in ledger.rows()}
    assert rows["a"].verdicts["official"].valid
    assert rows["a"].verdicts["strict"] == Verdict(False, "wrong", metrics={"p": 0.5})
    assert (rows["b"].status, rows["b"].verdicts) == ("skipped", {})
    (whole,) = ledger.tables(ROWS.names)
    assert whole.column("output").to_pylist() == ["said \ufffd"] * 2
    assert whole.schema.remove_metadata() == ROWS


def test_no_parts_no_rows(store: Store) -> None:
    ledger = read_ledger(store)
    assert (ids(ledger), list(ledger.rows()), ledger.ignored) == ([], [], {})
    assert ledger.find(np.array([b"a", b"b"])).tolist() == [-1, -1]


def test_a_part_without_rows_is_one(local: LocalStore) -> None:
    put(local, EARLY, table())
    put(local, LATE, table(("a", "scored")))
    ledger = read_ledger(local)
    assert (ids(ledger), settled(ledger), ledger.ignored) == (["a"], {"a"}, {})


def test_parts_never_share_a_name() -> None:
    names = {
        part_name(session, rows)
        for session in (EARLY, LATE)
        for rows in (["a"], ["b"], ["a", "b"], ["ab"])
    }
    assert len(names) == 8
    assert all(name.startswith(FOLDER) and name.endswith(".parquet") for name in names)


def test_a_repeated_write_replaces_its_own_part(store: Store) -> None:
    first = put(store, EARLY, table(("a", "scored")))
    assert put(store, EARLY, table(("a", "scored"))) == first
    assert part_names(store) == [first]


@pytest.mark.parametrize(
    ("first", "second", "kept"),
    [
        ("infra_error", "scored", LATE),
        ("scored", "infra_error", EARLY),
        ("skipped", "infra_error", EARLY),
        ("quarantined", "infra_error", EARLY),
        ("infra_error", "infra_error", LATE),
        ("infra_error", "quarantined", LATE),
        ("skipped", "scored", LATE),
        ("scored", "scored", LATE),
    ],
)
def test_an_evaluated_row_wins_then_the_latest(
    local: LocalStore, first: str, second: str, kept: str
) -> None:
    # Written in the wrong order: names decide, not times of files.
    put(local, LATE, table(("a", second), duration_s=2.0, attempts=7))
    put(local, EARLY, table(("a", first), ("other", "scored"), duration_s=1.0, attempts=3))
    ledger = read_ledger(local)
    assert (ids(ledger), ledger.dominated) == (["a", "other"], 1)
    late = kept == LATE
    assert stored(ledger)["a"]["duration_s"] == (2.0 if late else 1.0)
    assert stored(ledger)["a"]["status"] == (second if late else first)
    assert ledger.attempts.tolist() == [7 if late else 3, 3]
    assert ("a" in settled(ledger)) == ({first, second} != {"infra_error"})


def test_doubles_within_one_part_count_once(local: LocalStore) -> None:
    rows = [table(("a", status), duration_s=at) for at, status in enumerate(["scored"] * 3)]
    put(local, EARLY, pa.concat_tables([*rows, table(("a", "infra_error"))]))
    ledger = read_ledger(local)
    assert (ids(ledger), ledger.dominated) == (["a"], 3)
    assert stored(ledger)["a"]["duration_s"] == 2.0


def test_only_failed_rows_are_pending_again(store: Store) -> None:
    statuses = [("a", "scored"), ("b", "infra_error"), ("c", "skipped"), ("d", "quarantined")]
    put(store, EARLY, table(*statuses))
    assert settled(read_ledger(store)) == {"a", "c", "d"}
    put(store, LATE, table(("b", "scored")))
    assert settled(read_ledger(store)) == {"a", "b", "c", "d"}


def test_a_failed_check_is_told_from_a_failed_evaluation(local: LocalStore) -> None:
    put(local, EARLY, table(("a", "infra_error"), ("b", "scored")))
    put(local, LATE, table(("c", "infra_error"), error_class=CHECK_FAILED))
    ledger = read_ledger(local)
    assert ledger.settled.tolist() == [False, True, False]
    assert ledger.retryable.tolist() == [True, True, False]


def test_attempts_that_nobody_counted_are_one(local: LocalStore) -> None:
    put(local, EARLY, table(("a", "infra_error"), attempts=None))
    assert read_ledger(local).attempts.tolist() == [1]


def test_rows_are_found_by_id(local: LocalStore) -> None:
    put(local, LATE, table(("c", "scored"), ("a", "scored")))
    put(local, EARLY, table(("bb", "scored")))
    ledger = read_ledger(local)
    asked = np.array([b"c", b"0", b"bb", b"b", b"z", b"a", b"c"], dtype="S32")
    assert ledger.find(asked).tolist() == [2, -1, 1, -1, -1, 0, 2]
    assert ledger.find(asked[:0]).tolist() == []


def test_only_known_rows_are_read(local: LocalStore) -> None:
    put(local, EARLY, table(("a", "scored"), ("stranger", "scored"), ("b", "scored")))
    put(local, LATE, table(("z", "scored")))
    ledger = read_ledger(local)
    known = np.array([b"a", b"b", b"never stored"], dtype="S32")
    assert sorted(row.row_id for row in ledger.rows(known)) == ["a", "b"]
    assert sorted(row.row_id for row in ledger.rows()) == ["a", "b", "stranger", "z"]


def test_none_known_none_read(local: LocalStore) -> None:
    put(local, EARLY, table(("a", "scored")))
    assert list(read_ledger(local).rows(np.array([], dtype="S32"))) == []


WHOLE = parquet(table(("bad", "scored"), ("bad2", "scored")))
NO_PARTS: dict[str, bytes] = {
    "empty": b"",
    "without its head": WHOLE[4:],
    "without a byte of its footer": WHOLE[:-9] + WHOLE[-8:],
    "foreign": parquet(pa.table({"name": ["x"]})),
    "ids only": parquet(table(("bad", "scored")).select(["row_id"])),
    "ids of another type": parquet(
        table(("bad", "scored")).set_column(0, "row_id", pa.array([{"a": 1}]))
    ),
    "no id": parquet(table(("bad", "scored")).set_column(0, "row_id", pa.array([None], "string"))),
    "ids too long": parquet(table(("b" * 33, "scored"))),
}


@pytest.mark.nightly
@pytest.mark.parametrize("kind", NO_PARTS)
def test_what_is_no_part_is_named_and_its_rows_are_pending(store: Store, kind: str) -> None:
    put(store, EARLY, table(("a", "scored")))
    bad = f"{FOLDER}part-{LATE}-bad.parquet"
    store.put(bad, NO_PARTS[kind])
    said: list[str] = []
    ledger = read_ledger(store, said.append)
    assert ids(ledger) == ["a"]
    assert ledger.find(np.array([b"bad", b"bad2"])).tolist() == [-1, -1]
    assert list(ledger.ignored) == [bad]
    (line,) = said
    assert line.startswith(f"{store.root}/{bad} is ignored")
    assert ledger.ignored[bad]
    assert line.endswith(ledger.ignored[bad])
    assert "\n" not in line
    assert len(line) < 500
    assert set(stored(ledger)) == {"a"}


def test_files_that_are_no_parquet_are_none_of_its_business(local: LocalStore) -> None:
    put(local, EARLY, table(("a", "scored")))
    for name in ("rows/.DS_Store", "rows/notes.txt", "rows/part-1.parquet.bak", "run.json"):
        local.put(name, b"{}")
    ledger = read_ledger(local, pytest.fail)
    assert (ids(ledger), ledger.ignored) == (["a"], {})


@pytest.mark.nightly
def test_a_part_torn_anywhere_is_ignored(local: LocalStore) -> None:
    """A crash of a file system may leave any beginning of a file."""
    put(local, EARLY, table(("a", "scored")))
    name = put(local, LATE, table(("b", "scored"), ("c", "scored")))
    whole = local.get(name)
    assert whole is not None
    cuts = {*range(0, len(whole), len(whole) // 40), *range(len(whole) - 12, len(whole))}
    for cut in sorted(cuts):
        local.put(name, whole[:cut])
        ledger = read_ledger(local)
        assert (ids(ledger), list(ledger.ignored)) == (["a"], [name]), f"cut at {cut}"
        # A file system may also keep the length and lose the content.
        local.put(name, whole[:cut] + bytes(len(whole) - cut))
        assert list(read_ledger(local).ignored) == [name], f"zeros from {cut}"
    local.put(name, whole)
    assert ids(read_ledger(local)) == ["a", "b", "c"]


@pytest.mark.parametrize("missing", ["output", "official_valid"])
def test_a_part_that_lacks_a_column_is_no_part(local: LocalStore, missing: str) -> None:
    put(local, EARLY, table(("a", "scored")))
    bad = f"{FOLDER}part-{LATE}-bad.parquet"
    local.put(bad, parquet(table(("b", "scored")).drop_columns([missing])))
    ledger = read_ledger(local)
    assert list(ledger.ignored) == [bad]
    assert set(stored(ledger)) == {"a"}


class Away:
    """A store out of reach: what is listed cannot be read, or only through one of its doors."""

    def __init__(self, inner: Store, *, opens: bool = False, gets: bool = False) -> None:
        self._inner, self._opens, self._gets = inner, opens, gets
        self.root = inner.root

    def list(self, prefix: str = "") -> Sequence[Any]:
        return self._inner.list(prefix)

    def open(self, path: str) -> Any:
        if self._opens:
            return self._inner.open(path)
        raise OSError("network is unreachable")

    def get(self, path: str) -> bytes | None:
        if self._gets:
            return self._inner.get(path)
        raise UserError("cannot be reached", where=self.root)


def test_an_outage_is_never_a_torn_part(local: LocalStore) -> None:
    put(local, EARLY, table(("a", "scored")))
    away: Any = Away(local)
    with pytest.raises(UserError, match="cannot be reached"):
        read_ledger(away, pytest.fail)
    # Only `open` fails, as when a read of a range breaks off: the part is whole.
    half: Any = Away(local, gets=True)
    ledger = read_ledger(half, pytest.fail)
    assert (ids(ledger), ledger.ignored) == (["a"], {})
    assert set(stored(ledger)) == {"a"}
    # It comes later, when the rows are read.
    ledger = dataclasses.replace(read_ledger(local), store=away)
    with pytest.raises(UserError, match="cannot be reached"):
        list(ledger.rows())


def test_an_outage_while_listing_is_an_outage(local: LocalStore, monkeypatch) -> None:
    def away(*_: Any) -> Any:
        raise UserError("cannot be reached")

    put(local, EARLY, table(("a", "scored")))
    monkeypatch.setattr(LocalStore, "list", away)
    with pytest.raises(UserError, match="cannot be reached"):
        read_ledger(local)


def test_a_part_that_goes_while_it_is_read_is_named(local: LocalStore) -> None:
    name = put(local, EARLY, table(("a", "scored")))
    gone: Any = Away(local, gets=True)
    names = local.list(FOLDER)
    local.delete(name)
    gone.list = lambda prefix: names
    assert read_ledger(gone).ignored == {name: "it is gone"}


def test_rows_of_a_part_that_has_gone_are_not_passed_over(local: LocalStore) -> None:
    name = put(local, EARLY, table(("a", "scored")))
    ledger = read_ledger(local)
    local.put(name, b"torn")
    with pytest.raises(UserError, match=re.escape(name)):
        list(ledger.rows())


def test_parts_that_are_merged_while_they_are_read_are_read_once(store: Store) -> None:
    put(store, EARLY, table(("a", "scored"), ("b", "infra_error")))
    put(store, EARLY, table(("c", "scored"), ("d", "scored")))
    put(store, LATE, table(("b", "scored")))
    reading = read_ledger(store).tables(["row_id"], np.array([b"a", b"b", b"c"], "S32"))
    first = next(reading).column("row_id").to_pylist()
    compact(store, read_ledger(store), "00000000000003-aa")
    put(store, "00000000000004-aa", table(("e", "scored")))
    rest = [row_id for part in reading for row_id in part.column("row_id").to_pylist()]
    assert sorted(first + rest) == ["a", "b", "c"]


def test_parts_that_are_merged_while_they_are_listed_are_listed_again(local: LocalStore) -> None:
    names = [
        put(local, session, table((row, "scored"))) for session, row in ((EARLY, "a"), (LATE, "b"))
    ]
    listed = [local.list(FOLDER)]
    compact(local, read_ledger(local), "00000000000003-aa")
    behind: Any = Away(local, gets=True)
    behind.list = lambda prefix: listed.pop() if listed else local.list(prefix)
    ledger = read_ledger(behind)
    assert (ids(ledger), ledger.ignored) == (["a", "b"], {})
    assert not set(names) & set(ledger.parts)


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


def messy(store: Store) -> None:
    """A run after some accidents: 4 rows that count, 3 that do not, a file that is no part."""
    put(store, "00000000000001-aa", table(("a", "scored"), ("b", "infra_error"), duration_s=1.0))
    put(store, "00000000000002-aa", table(("b", "infra_error"), ("c", "quarantined")))
    put(store, "00000000000003-aa", table(("b", "skipped"), duration_s=3.0))
    put(store, "00000000000004-aa", table(("a", "infra_error"), ("d", "infra_error")))
    store.put(f"{FOLDER}part-foreign.parquet", NO_PARTS["foreign"])


@pytest.mark.nightly
def test_compacting_keeps_what_counts(store: Store) -> None:
    messy(store)
    before = read_ledger(store)
    expected = stored(before)
    assert (ids(before), before.dominated) == (["a", "b", "c", "d"], 3)
    session = new_session(part_names(store), "zz")
    counts = compact(store, before, session)
    after = read_ledger(store)
    names = part_names(store)
    assert len(names) == 2
    assert names[0].startswith(f"{FOLDER}part-00000000000005-zz-")
    assert names[1] == f"{FOLDER}part-foreign.parquet"
    assert counts[1] == 1
    assert stored(after) == expected
    assert after.dominated == 0
    assert (settled(after), after.ignored) == (settled(before), before.ignored)
    # A later attempt still wins, and so does a second compaction.
    put(store, new_session(part_names(store), "yy"), table(("d", "scored"), duration_s=9.0))
    assert stored(read_ledger(store))["d"]["duration_s"] == 9.0
    compact(store, read_ledger(store), new_session(part_names(store), "zz"))
    assert stored(read_ledger(store))["d"]["duration_s"] == 9.0
    assert len(part_names(store)) == 2


def test_compacting_nothing(local: LocalStore) -> None:
    assert compact(local, read_ledger(local), EARLY) == (0, 0)
    assert local.list() == []


def test_compacted_parts_are_of_a_sensible_size(
    local: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for i in range(12):
        put(local, EARLY, table((f"{i:02}", "scored")))
    monkeypatch.setattr(parts, "PART_BYTES", 8 * table(("00", "scored")).nbytes)
    assert compact(local, read_ledger(local), LATE) == (12, 3)
    assert len(stored(read_ledger(local))) == 12


class Crash(Exception):
    """The process ends here."""


@pytest.mark.nightly
@pytest.mark.parametrize("survives", range(6))
@pytest.mark.parametrize("step", ["put", "delete"])
def test_a_crash_while_compacting_loses_nothing(
    local: LocalStore, monkeypatch: pytest.MonkeyPatch, step: str, survives: int
) -> None:
    messy(local)
    before = read_ledger(local)
    expected = stored(before)
    monkeypatch.setattr(parts, "PART_BYTES", 1)  # a part per row
    real: Callable[..., None] = getattr(LocalStore, step)
    done: list[str] = []

    def crash(self: LocalStore, path: str, *data: bytes) -> None:
        if len(done) == survives:
            raise Crash
        done.append(path)
        real(self, path, *data)

    with monkeypatch.context() as patch:
        patch.setattr(LocalStore, step, crash)
        try:
            compact(local, before, "00000000000005-zz")
            assert survives >= 4
        except Crash:
            assert survives < 4
    after = read_ledger(local)
    assert stored(after) == expected
    assert after.settled.tolist() == before.settled.tolist()
    assert after.ignored == before.ignored
    compact(local, after, new_session(part_names(local), "zz"))
    assert stored(read_ledger(local)) == expected
    assert len(part_names(local)) == len(expected) + 1


def test_sessions_are_counted() -> None:
    assert new_session([], "ab") == "00000000000001-ab"
    names = [part_name("00000000000007-xy", ["a"]), part_name("00000000000003-zz", ["a"])]
    assert new_session(names, "ab") == "00000000000008-ab"
    assert new_session(names, "ab") != new_session(names, "cd")
    odd = ["rows/other.parquet", "rows/part-.parquet", "rows/part-²-a.parquet", "rows/part-x-1"]
    assert new_session([*odd, *names], "ab") == "00000000000008-ab"


@pytest.mark.nightly
def test_a_later_session_sorts_later(local: LocalStore) -> None:
    """Whatever the clock says, and after a compaction too."""
    sessions = []
    for turn in range(25):
        session = new_session(part_names(local), ("ff", "00")[turn % 2])
        sessions.append(session)
        put(local, session, table(("a", "scored"), duration_s=float(turn)))
        assert stored(read_ledger(local))["a"]["duration_s"] == turn
        if turn % 10 == 9:
            session = new_session(part_names(local), "aa")
            sessions.append(session)
            compact(local, read_ledger(local), session)
            assert len(part_names(local)) == 1
    assert sessions == sorted(set(sessions))


@pytest.mark.nightly
def test_a_hundred_thousand_rows(local: LocalStore) -> None:
    """The ledger works on columns; a loop over rows would show here."""
    one = table(("x", "scored"))
    total, each = 100_000, 25_000

    def numbered(start: int, status: str) -> pa.Table:
        content = one.take([0] * each)
        names = pa.array([f"{i:032d}" for i in range(start, start + each)])
        content = content.set_column(0, "row_id", names)
        at = content.schema.get_field_index("status")
        return content.set_column(at, "status", pa.array([status] * each))

    for start in range(0, total, each):
        put(local, EARLY, numbered(start, "infra_error" if start else "scored"))
    put(local, LATE, numbered(each // 2, "scored"))
    ledger = read_ledger(local)
    assert (len(ledger.ids), ledger.dominated) == (total, each)
    assert int(ledger.settled.sum()) == each + each // 2
    assert np.array_equal(ledger.find(ledger.ids), np.arange(total))
    assert sum(len(positions) for positions in ledger.kept.values()) == total
    known = ledger.ids[:: total // 10]
    assert sorted(row.row_id for row in ledger.rows(known)) == [i.decode() for i in known]


def test_texts_in_json_columns_are_found_by_a_search() -> None:
    episode = Episode(
        messages=[{"role": "assistant", "content": "日本 \ud83d \ud800x 😀"}],
        state={"b": "é", "a": [1]},
    )
    columns = episode_columns(episode)
    assert "日本" in columns["messages"]
    assert "😀" in columns["messages"]
    assert "é" in columns["state"]
    columns["messages"].encode("utf-8")
    # Half characters come back as they were: rows are judged again from this.
    assert json.loads(columns["messages"]) == list(episode.messages)
    assert json.loads(columns["state"]) == episode.state


def test_a_row_has_its_gold_answer() -> None:
    entry = Entry("toy", "all", "en", "7", prompt="x", gold=[{"city": "Zürich"}])
    columns = entry_columns(entry)
    assert (columns["id"], columns["group"]) == ("7", "7")
    assert columns["gold"] == '[{"city": "Zürich"}]'


@pytest.mark.nightly
@pytest.mark.parametrize(("rows", "groups"), [(100, 1), (300, 2), (20_000, 16)])
def test_row_groups_are_small_and_few(tmp_path: Path, rows: int, groups: int) -> None:
    store = open_store(str(tmp_path))
    names = write_parts(store, EARLY, table(*((f"{n:032d}", "scored") for n in range(rows))))
    (name,) = names
    file = pq.ParquetFile(tmp_path / name)
    assert file.num_row_groups == groups
    statistics = file.metadata.row_group(0).column(ROWS.names.index("output")).statistics
    assert statistics is None
    assert len(read_ledger(store).ids) == rows
