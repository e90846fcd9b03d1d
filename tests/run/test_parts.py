from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ace_ray.errors import UserError
from ace_ray.records import Episode, Verdict
from ace_ray.run.parts import (
    FOLDER,
    latest_rows,
    part_name,
    part_names,
    read_parts,
    settled_ids,
    write_part,
)
from ace_ray.run.rows import ROWS, episode_columns, verdict_columns
from ace_ray.store import LocalStore, Store, open_store

EARLY, LATE = "00000000000001-aa", "00000000000002-aa"


def table(*rows: tuple[str, str], **more: Any) -> pa.Table:
    """A part's table with (row id, status) rows."""
    verdicts = {"official": Verdict(True), "strict": Verdict(False, "wrong", "said so", {"p": 0.5})}
    return pa.Table.from_pylist(
        [
            {
                "row_id": row_id,
                "run_id": "run",
                "benchmark": "toy",
                "category": "all",
                "language": "en",
                "id": row_id,
                "group": row_id,
                "sample": 0,
                "seed": 0,
                "status": status,
                "error_class": None if status == "scored" else "Boom",
                "error": None,
                "attempts": 1,
                **episode_columns(Episode(output="said \ud800", state={"a": [1]})),
                "started_at": datetime.now(UTC),
                "duration_s": 0.5,
                "worker": "w",
                **verdict_columns(verdicts if status == "scored" else {}),
                **more,
            }
            for row_id, status in rows
        ],
        schema=ROWS,
    )


@pytest.fixture(params=["local", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "local":
        return LocalStore(str(tmp_path))
    s3 = request.getfixturevalue("s3")
    return open_store(f"s3://{s3.bucket}/{tmp_path.name}")


def test_what_is_written_is_read_back(store: Store) -> None:
    name = write_part(store, EARLY, table(("a", "scored"), ("b", "skipped")))
    assert part_names(store) == [name]
    rows = latest_rows(store)
    assert set(rows) == {"a", "b"}
    assert rows["a"].verdicts["official"].valid
    assert rows["a"].verdicts["strict"] == Verdict(False, "wrong", metrics={"p": 0.5})
    assert (rows["b"].status, rows["b"].verdicts) == ("skipped", {})
    (whole,) = read_parts(store, ROWS.names)
    assert whole.column("output").to_pylist() == ["said \ufffd"] * 2
    assert whole.schema.equals(ROWS)


def test_parts_never_share_a_name() -> None:
    names = {
        part_name(session, rows)
        for session in (EARLY, LATE)
        for rows in (["a"], ["b"], ["a", "b"], ["ab"])
    }
    assert len(names) == 8
    assert all(name.startswith(FOLDER) and name.endswith(".parquet") for name in names)


def test_a_repeated_write_replaces_its_own_part(store: Store) -> None:
    assert write_part(store, EARLY, table(("a", "scored"))) == write_part(
        store, EARLY, table(("a", "scored"))
    )
    assert len(part_names(store)) == 1


@pytest.mark.parametrize(
    ("first", "second", "kept"),
    [
        ("infra_error", "scored", LATE),
        ("scored", "infra_error", EARLY),
        ("infra_error", "infra_error", LATE),
        ("skipped", "scored", LATE),
        ("scored", "scored", LATE),
    ],
)
def test_an_evaluated_row_wins_then_the_latest(
    tmp_path: Path, first: str, second: str, kept: str
) -> None:
    store = LocalStore(str(tmp_path))
    # Written in the wrong order: names decide, not times of files.
    write_part(store, LATE, table(("a", second), duration_s=2.0))
    write_part(store, EARLY, table(("a", first), duration_s=1.0))
    assert latest_rows(store)["a"].duration_s == (2.0 if kept == LATE else 1.0)


def test_failed_rows_are_owed_again(store: Store) -> None:
    statuses = [("a", "scored"), ("b", "infra_error"), ("c", "skipped"), ("d", "quarantined")]
    write_part(store, EARLY, table(*statuses))
    assert settled_ids(store) == {"a", "c", "d"}
    write_part(store, LATE, table(("b", "scored")))
    assert settled_ids(store) == {"a", "b", "c", "d"}


def test_no_parts_no_rows(store: Store) -> None:
    assert latest_rows(store) == {}
    assert settled_ids(store) == set()


@pytest.mark.parametrize("damage", [b"", b"PAR1 half a part", b"x" * 100])
def test_a_part_that_cannot_be_read_is_named(store: Store, damage: bytes) -> None:
    write_part(store, EARLY, table(("a", "scored")))
    store.put(f"{FOLDER}part-broken.parquet", damage)
    for read in (latest_rows, settled_ids):
        with pytest.raises(UserError, match=r"part-broken\.parquet.*remove the file") as caught:
            read(store)
        assert str(caught.value).count("\n") == 0


def test_a_part_of_something_else_is_named(store: Store, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"row_id": ["a"]}), sink)
    store.put(f"{FOLDER}part-other.parquet", sink.getvalue().to_pybytes())
    for read in (latest_rows, settled_ids):
        with pytest.raises(UserError, match=r"part-other\.parquet"):
            read(store)
