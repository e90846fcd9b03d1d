"""A few bytes that stand for gigabytes: each reader refuses them in a line, in little memory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ace_ray.config.schema import load_config
from ace_ray.errors import UserError
from ace_ray.pipeline.open_run import OpenRun
from ace_ray.storage import parts
from ace_ray.storage.object_store import open_store
from ace_ray.storage.rows import AT_ONCE, rows_of
from ace_ray.util.safe_loading import (
    Unbounded,
    json_object,
    json_of_row,
    json_tree,
    yaml_tree,
)
from tests.pipeline.hostile_folders import MUTATIONS, make_run

SCHEMA = pa.schema([("a", pa.large_string()), ("n", pa.int32())])


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "MOST_BYTES", 256 << 20)
    monkeypatch.setattr(parts, "MOST_ROWS", 100_000)


def written(path: Path, table: pa.Table, **options: object) -> Path:
    pq.write_table(table, path, **options)
    return path


def read(path: Path, row: int | None = None) -> pa.Table:
    return parts.read_bounded(pa.OSFile(str(path)), SCHEMA, ["a", "n"], row)


def table(texts: list[str | None]) -> pa.Table:
    return pa.table({"a": texts, "n": list(range(len(texts)))}, schema=SCHEMA)


@pytest.mark.parametrize("compression", ["zstd", "none"])
@pytest.mark.parametrize("dictionary", [True, False])
def test_what_is_written_is_read(tmp_path: Path, compression: str, dictionary: bool) -> None:
    texts = [None, "", "x", "\u00e9" * 500, *(str(i) for i in range(5000))]
    path = written(
        tmp_path / "p",
        table(texts),
        compression=compression,
        use_dictionary=dictionary,
        row_group_size=700,
    )
    assert read(path).column("a").to_pylist() == texts
    assert read(path).schema == SCHEMA
    assert read(path, 1500).column("a").to_pylist() == [texts[1500]]
    with pytest.raises(ValueError, match="is missing"):
        read(path, len(texts))


BOMBS: dict[str, Callable[[Path], Path]] = {
    "one text in all rows": lambda p: written(p, table(["x" * (1 << 20)] * 600)),
    "zeros": lambda p: written(p, table(["\0" * (8 << 20)] * 40), use_dictionary=False,
                               compression="zstd"),
    "rows": lambda p: written(p, table(["x"] * 100_001)),
    "repeated rows": lambda p: written(p, table(["x"] * 90_000).set_column(
        1, "n", pa.repeat(pa.scalar(0, pa.int32()), 90_000))),
    "prefixes": lambda p: written(
        p, table(["x" * 100_000 + str(i) for i in range(3000)]), use_dictionary=False,
        column_encoding={"a": "DELTA_BYTE_ARRAY"}),
}  # fmt: skip


@pytest.mark.nightly
@pytest.mark.parametrize("kind", BOMBS)
def test_a_file_that_unpacks_to_much_is_refused(tmp_path: Path, kind: str) -> None:
    path = BOMBS[kind](tmp_path / "p")
    with pytest.raises((ValueError, OSError), match=r"more than|Not yet implemented: DecodeArrow"):
        read(path)


@pytest.mark.nightly
def test_a_damaged_footer_is_an_error(tmp_path: Path) -> None:
    """A column of pyarrow's own metadata would end the process for some of these."""
    path = written(tmp_path / "p", table(["x"] * 100))
    raw = path.read_bytes()
    for at in range(len(raw) - 8 - int.from_bytes(raw[-8:-4], "little"), len(raw) - 8):
        for value in (0, 25, 127):
            path.write_bytes(raw[:at] + bytes([value]) + raw[at + 1 :])
            with suppress(pa.ArrowException, OSError, ValueError):
                read(path)


@pytest.mark.nightly
def test_a_small_part_takes_little_memory(tmp_path: Path) -> None:
    for name in ("parts: 600 MiB of one text", "parts: millions of rows"):
        folder = make_run(tmp_path / name[-4:].strip())
        MUTATIONS[name](folder)
        assert sum(file.stat().st_size for file in (folder / "rows").iterdir()) < 400_000
        script = (
            "import resource, sys; from ace_ray.storage.parts import read_ledger, read_part; "
            "from ace_ray.storage.rows import ROWS\n"
            "from ace_ray.storage.object_store import LocalStore\n"
            "def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10\n"
            "store = LocalStore(sys.argv[1])\n"
            "read_ledger(LocalStore(sys.argv[2]))\n"
            "before = peak()\n"
            "for name in [o.path for o in store.list('rows/')]:\n"
            "    found = read_part(store, name, ROWS.names)\n"
            "    print(found if isinstance(found, str) else 'read')\n"
            "print(peak() - before)\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", script, str(folder), str(make_run(tmp_path / f"ok{name[-4:]}"))],
            capture_output=True,
            text=True,
            check=True,
        )
        *said, grown = done.stdout.splitlines()
        assert any("more than" in line for line in said), said
        assert int(grown) < 300, done.stdout


MORE = (
    "import resource, sys; from ace_ray.cli.main import main; from ace_ray.storage import lease\n"
    "lease.TTL_S = 0.2\n"
    "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
    "try: main(sys.argv[1:])\n"
    "finally: print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)\n"
)


@pytest.mark.nightly
@pytest.mark.parametrize("command", ["report", "score", "compact", "compare"])
def test_rows_that_a_run_does_not_declare_are_refused(tmp_path: Path, command: str) -> None:
    folder = make_run(tmp_path / "run")
    first = pq.read_table(sorted((folder / "rows").iterdir())[0])
    count = 200_000
    rows = first.take(pa.array([0] * count, pa.int32()))
    ids = pa.array([f"{number:032x}" for number in range(count)], first.schema.field("row_id").type)
    rows = rows.set_column(first.schema.get_field_index("row_id"), "row_id", ids)
    written(folder / "rows" / "part-00000000000009-aa-0123456789abcdef.parquet", rows)
    runs = [str(folder), str(make_run(tmp_path / "other"))][: 2 if command == "compare" else 1]
    before = sorted(path.name for path in (folder / "rows").iterdir())
    done = subprocess.run(
        [sys.executable, "-c", MORE, command, *runs], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert f"declares 8 rows in run.json and holds {count + 8}" in done.stderr
    assert "Traceback" not in done.stderr
    assert int(done.stdout.splitlines()[-1]) < 400
    assert sorted(path.name for path in (folder / "rows").iterdir()) == before


def test_a_run_with_such_rows_is_not_continued(tmp_path: Path) -> None:
    """However many rows are pending."""
    folder = make_run(tmp_path / "run")
    files = sorted((folder / "rows").iterdir())
    first = pq.read_table(files[0]).slice(0, 1)
    ids = [row_id for part in files for row_id in pq.read_table(part)["row_id"].to_pylist()]
    run: Any = object.__new__(OpenRun)
    run.store, run.declared = open_store(str(folder)), True
    bench = SimpleNamespace(rule_sets=("official", "strict"))
    rows = SimpleNamespace(ids=np.array(ids, "S32"))
    run.plan = SimpleNamespace(rows=rows, benchmarks={"acebench": bench})
    run.read()
    run.check_declared()
    files[1].unlink()
    at = first.schema.get_field_index("row_id")
    other = first.set_column(at, "row_id", pa.array(["f" * 32], first.schema.field(at).type))
    written(folder / "rows" / "part-00000000000009-aa-0123456789abcdef.parquet", other)
    run.read()
    with pytest.raises(UserError, match="holds 1 rows that the run does not declare, such as ffff"):
        run.check_declared()


def test_rows_become_values_a_few_at_a_time() -> None:
    given = pa.table({"n": list(range(2 * AT_ONCE + 1))})
    assert [row["n"] for row in rows_of(given)] == given.column("n").to_pylist()
    assert list(rows_of(given.slice(0, 0))) == []


@pytest.mark.nightly
@pytest.mark.parametrize(
    "text",
    ["a: &a [*a]", "[" * 5000, "- " * 3000 + "x", "a: !!python/object/apply:os.system [x]",
     "{[1]: 2}", "run_id: 9" + "9" * 5000, '{"a": ' + "[" * 2000],
)  # fmt: skip
def test_a_hostile_config_is_refused_in_a_line(tmp_path: Path, text: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(text)
    with pytest.raises(UserError) as caught:
        load_config(str(path))
    line = str(caught.value)
    assert line.startswith(str(path))
    assert "\n" not in line
    assert len(line) < 1000
    with pytest.raises(UserError):
        load_config(str(path), [f"model={text}"])


def test_aliases_that_a_person_writes_are_read() -> None:
    text = "base: &b {seed: 1}\none: *b\ntwo: {<<: *b, top_k: 2}"
    assert yaml_tree(text)["two"] == {"seed": 1, "top_k": 2}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\nb: 2\na: 3", "names 'a' twice, in line 1 and in line 3"),
        ("x:\n  - {a: 1, 'a': 1}", "names 'a' twice, in line 2 and in line 2"),
    ],
)
def test_a_key_is_named_once(text: str, said: str) -> None:
    with pytest.raises(Unbounded) as refused:
        yaml_tree(text)
    assert str(refused.value) == said


def test_a_merged_key_may_be_written_over() -> None:
    text = "a: &a {x: 1, y: 1}\nb: &b {<<: *a, x: 2}\nc: {<<: *b, y: 3}\n1: n\n'1': t"
    assert yaml_tree(text) == {
        "a": {"x": 1, "y": 1},
        "b": {"x": 2, "y": 1},
        "c": {"x": 2, "y": 3},
        1: "n",
        "1": "t",
    }


@pytest.mark.parametrize("text", ["!!int ''", "!!float ''", "!!bool x", "!!timestamp x", "!!int _"])
def test_a_tag_that_does_not_fit_is_refused(text: str) -> None:
    with pytest.raises(Unbounded):
        yaml_tree(f"a: {text}")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"[" * 60 + b"]" * 60, ""),
        (b"[" * 100_000, "nested"),
        (b"[" + b"{}," * 1_000_001 + b"{}]", "values"),
        (b'"' + b"x" * (9 << 20) + b'"', "larger"),
        (b"NaN", "NaN"),
        (b"1e999", "finite"),
        (b"9" * 30, "64 bits"),
        (b"9" * 5000, "not JSON"),
    ],
)
def test_json_is_read_within_bounds(content: bytes, why: str) -> None:
    if not why:
        json_tree(content)
        return
    with pytest.raises(Unbounded, match=why):
        json_tree(content)
    with pytest.raises(UserError, match=r"^file: .*; name an intact run$"):
        json_object(content, "file")


def test_half_characters_become_whole_ones() -> None:
    assert json_tree('{"\\ud800": "a\\udc00"}') == {"\ufffd": "a\ufffd"}


def test_a_row_s_json_is_as_the_model_wrote_it() -> None:
    assert json_of_row('["\\ud800", 1e999, ' + "9" * 100 + "]")[0] == "\ud800"
    for text in ("[" * 300 + "]" * 300, "[" * 100_000, "x", None):
        with pytest.raises(Unbounded):
            json_of_row(text)
