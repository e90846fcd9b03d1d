"""A few bytes that stand for gigabytes: readers refuse them in one line and little memory."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ace_ray.errors import UserError
from ace_ray.models.sources import ModelRef
from ace_ray.pipeline.run_folder import RunFolder
from ace_ray.storage import parts
from ace_ray.storage.object_store import LocalStore
from ace_ray.util.safe_loading import InvalidContent, json_object, json_of_row, json_tree, yaml_tree
from tests.pipeline.made_run import planned_run, sound_run

SCHEMA = pa.schema([("a", pa.large_string()), ("n", pa.int32())])


@pytest.fixture(autouse=True)
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "MOST_ROWS", 100_000)


def sparse(path: Path, size: int) -> Path:
    path.touch()
    os.truncate(path, size)
    return path


def written(path: Path, table: pa.Table, **options: object) -> Path:
    pq.write_table(table, path, **options)
    return path


def read(path: Path, row: int | None = None) -> pa.Table:
    return parts.read_bounded(pa.OSFile(str(path)), SCHEMA.names, SCHEMA, row)


def table(texts: list[str | None]) -> pa.Table:
    return pa.table({"a": texts, "n": list(range(len(texts)))}, schema=SCHEMA)


def one_number(count: int) -> pa.Table:
    numbers = pa.repeat(pa.scalar(0, pa.int32()), count)
    return table(["x"] * count).set_column(1, "n", numbers)


BOMBS: dict[str, Callable[[Path], Path]] = {
    "one text in all rows": lambda path: written(path, table(["x" * (1 << 20)] * 600)),
    "zeros": lambda path: written(
        path, table(["\0" * (8 << 20)] * 40), use_dictionary=False, compression="zstd"
    ),
    "rows": lambda path: written(path, table(["x"] * 100_001)),
    "file": lambda path: sparse(path, parts.MOST_BYTES + 1),
    "repeated rows": lambda path: written(path, one_number(90_000)),
    "prefixes": lambda path: written(
        path,
        table(["x" * 100_000 + str(i) for i in range(3000)]),
        use_dictionary=False,
        column_encoding={"a": "DELTA_BYTE_ARRAY"},
    ),
}


@pytest.mark.nightly
@pytest.mark.parametrize("kind", BOMBS)
def test_a_part_that_unpacks_to_too_much_is_refused(tmp_path: Path, kind: str) -> None:
    path = BOMBS[kind](tmp_path / "p")
    with pytest.raises((ValueError, OSError), match=r"more than|Not yet implemented: DecodeArrow"):
        read(path)


COMMAND = """
import resource, sys
from ace_ray.cli.main import main
from ace_ray.storage import lease
lease.TTL_S = 0.2
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try: main(sys.argv[1:])
finally: print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
"""


@pytest.mark.nightly
@pytest.mark.parametrize("command", ["report", "score", "compact", "compare"])
def test_rows_that_a_run_does_not_declare_are_refused(tmp_path: Path, command: str) -> None:
    folder = sound_run(tmp_path / "run")
    first = pq.read_table(min((folder / "rows").iterdir()))
    count = 200_000
    rows = first.take(pa.array([0] * count, pa.int32()))
    ids = pa.array([f"{number:032x}" for number in range(count)], first.schema.field("row_id").type)
    rows = rows.set_column(first.schema.get_field_index("row_id"), "row_id", ids)
    written(folder / "rows" / "part-00000000000009-aa-0123456789abcdef.parquet", rows)
    runs = [str(folder), str(sound_run(tmp_path / "other"))][: 2 if command == "compare" else 1]
    before = sorted(path.name for path in (folder / "rows").iterdir())
    result = subprocess.run(
        [sys.executable, "-c", COMMAND, command, *runs], capture_output=True, text=True, check=False
    )
    assert result.returncode == 2
    assert f"declares 8 rows in run.json but contains {count + 8}" in result.stderr
    assert "Traceback" not in result.stderr
    assert int(result.stdout.splitlines()[-1]) < 400
    assert sorted(path.name for path in (folder / "rows").iterdir()) == before


def test_run_with_foreign_rows_is_not_continued(tmp_path: Path, log_lines: list[str]) -> None:
    folder = sound_run(tmp_path / "run")
    plan = planned_run(folder, ModelRef("org/Toy-7B", "hub", "org/Toy-7B", "1234"))
    store, lease = LocalStore(str(folder)), cast(Any, None)
    run = RunFolder(plan, store, lease, {}, True, 0.0, 0.0, False)
    run.read()
    run.check_declared()
    first = pq.read_table(min((folder / "rows").iterdir())).slice(0, 1)
    at = first.schema.get_field_index("row_id")
    foreign_rows = first.set_column(at, "row_id", pa.array(["f" * 32], first.schema.field(at).type))
    written(folder / "rows" / "part-00000000000009-aa-0123456789abcdef.parquet", foreign_rows)
    run.read()
    with pytest.raises(UserError, match="contains 1 rows that the run does not declare, such as f"):
        run.check_declared()
    assert log_lines == []


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"[" * 100_000, "nested"),
        (b"[" * 66 + b"]" * 66, "nested"),
        (b"[" + b"{}," * 1_000_001 + b"{}]", "values"),
        (b'"' + b"x" * (9 << 20) + b'"', "larger"),
        (b"NaN", "not finite"),
        (b"1e999", "finite"),
        (b"9" * 30, "64 bits"),
        (b"9" * 5000, "not JSON"),
    ],
)
def test_json_is_read_within_bounds(content: bytes, why: str) -> None:
    with pytest.raises(InvalidContent, match=why):
        json_tree(content)
    with pytest.raises(UserError, match=r"^file: .*; name an intact run$"):
        json_object(content, "file")


def test_json_of_a_manifest_and_of_a_row_keep_what_they_can() -> None:
    assert json_tree(b"[" * 60 + b"]" * 60)
    assert json_tree('{"\\ud800": "a\\udc00"}') == {"\ufffd": "a\ufffd"}
    assert json_of_row('["\\ud800", 1e999, ' + "9" * 100 + "]")[0] == "\ud800"
    with pytest.raises(InvalidContent, match="names 'a' twice"):
        yaml_tree("a: 1\na: 2")
    many = f"[{'0,' * 2_000_000}0]"
    for text in ("[" * 300 + "]" * 300, "[" * 100_000, many, "x", None):
        with pytest.raises(InvalidContent):
            json_of_row(text)
