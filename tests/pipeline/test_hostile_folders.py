"""Run folders made to do harm: every command ends in one line and an exit code."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ace_ray.storage import lease
from tests.pipeline.made_run import sound_run

COMMANDS = ("report", "compare", "score", "compact")
NASTY = "x\x1b[31m\x07<b>&|`[a](javascript:1)\n# y\r\u202e\u2028"
"""Markup, a link, line breaks, an escape sequence and a reversal of text."""

Mutation = Callable[[Path], object]


def changed(name: str, path: str, value: Any) -> Mutation:
    """Set ``path`` of a JSON file."""

    def change(folder: Path) -> None:
        tree = node = json.loads((folder / name).read_text())
        *parents, last = path.split(".")
        for key in parents:
            node = node[key]
        node[last] = value
        (folder / name).write_text(json.dumps(tree))

    return change


def written(name: str, content: bytes) -> Mutation:
    return lambda folder: (folder / name).write_bytes(content)


def replaced(name: str, make: Callable[[Path], object]) -> Mutation:
    """Put in the place of ``name`` what ``make`` makes there."""

    def replace(folder: Path) -> None:
        target = folder / name
        shutil.rmtree(target) if target.is_dir() else target.unlink()
        make(target)

    return replace


def first_part(folder: Path) -> Path:
    return min((folder / "rows").iterdir())


def flipped(folder: Path) -> None:
    content = bytearray(first_part(folder).read_bytes())
    for at in range(50, len(content) - 8, 50):
        content[at] ^= 0xFF
    first_part(folder).write_bytes(content)


def table(change: Callable[[pa.Table], pa.Table]) -> Mutation:
    def write(folder: Path) -> None:
        pq.write_table(change(pq.read_table(first_part(folder))), first_part(folder))

    return write


def column(name: str, value: Any, kind: pa.DataType | None = None) -> Mutation:
    def change(rows: pa.Table) -> pa.Table:
        values = pa.array([value] * rows.num_rows, kind)
        return rows.set_column(rows.schema.get_field_index(name), name, values)

    return table(change)


LONG_FOOTER = b"PAR1" + bytes(50) + (1 << 31).to_bytes(4, "little") + b"PAR1"
MUTATIONS: dict[str, list[Mutation]] = {
    "values": [
        changed("run.json", "run_id", NASTY),
        changed("run.json", "config.benchmarks", [[1], [2]]),
        changed("run.json", "identity.benchmarks", {NASTY: NASTY, "\ud800": 1}),
        changed("run.json", "versions", json.loads("[" * 300 + "]" * 300)),
    ],
    "whole files": [
        written("run.json", b'{"run_id": "\xff\xfe"}'),
        written("summary.json", b"[" + b"{}," * 1_100_000 + b"{}]"),
        written("lease.json", json.dumps({"host": NASTY, "pid": 1 << 80}).encode()),
        written("rows/\x1b[2Jx.parquet", b"x"),
        written("rows/part-00000000000009-aa-0123456789abcdef.parquet", LONG_FOOTER),
    ],
    "no files": [
        replaced("run.json", lambda target: target.mkdir()),
        replaced("run.json", os.mkfifo),
        replaced("summary.json", lambda target: target.symlink_to("/dev/zero")),
        replaced("rows", lambda target: target.write_bytes(b"x")),
        lambda folder: os.mkfifo(folder / "rows/part-00000000000009-aa-0123456789abcdef.parquet"),
    ],
    "parts": [
        flipped,
        table(lambda rows: rows.append_column("status", rows.column("status"))),
        table(lambda rows: pa.table({"row_id": rows.to_struct_array().combine_chunks()})),
    ],
    "columns": [
        column("output", b"\xff\xfe\x80", pa.binary()),
        column("messages", "[" * 90_000),
        column("started_at", 1 << 62, pa.timestamp("us", tz="UTC")),
    ],
}


def ends_in_a_line(result: Any) -> None:
    output = result.stdout + result.stderr
    assert "Traceback" not in output, output[-400:]
    assert result.code in (0, 1, 2, 75)
    assert not result.code or output.strip(), "an exit code without a message"
    assert not any(sign in output for sign in "\x1b\x07\u202e\u2028\x9b"), output
    assert result.code != 2 or "ace-ray: " in result.stderr, result.stderr[:200]


@pytest.mark.nightly
@pytest.mark.parametrize("kind", MUTATIONS)
def test_hostile_run_ends_in_a_line(kind, tmp_path, invoke, monkeypatch) -> None:
    monkeypatch.setattr(lease, "TTL_S", 0.2)
    sound = sound_run(tmp_path / "sound")
    for number, mutate in enumerate(MUTATIONS[kind]):
        folder = tmp_path / str(number) / "run"
        shutil.copytree(sound, folder)
        mutate(folder)
        command = COMMANDS[number % len(COMMANDS)]
        ends_in_a_line(invoke(command, folder, *([sound] * (command == "compare"))))
