"""Damaged run folders, and folders made to do harm: every command ends in one line."""

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
from tests.report.builders import change_manifest, complete_run

COMMANDS = ("report", "compare", "score", "compact")
NASTY = "x\x1b[31m\x07<b>&|`[a](javascript:1)\n# y\r\u202e\u2028"
"""Markup, a link, line breaks, an escape sequence and a reversal of text."""
DEEP = json.loads("[" * 300 + "]" * 300)
LONG_FOOTER = b"PAR1" + bytes(50) + (1 << 31).to_bytes(4, "little") + b"PAR1"
PART = "rows/part-00000000000009-aa-0123456789abcdef.parquet"

Mutation = Callable[[Path], object]


def written(name: str, content: bytes) -> Mutation:
    return lambda run: (run / name).write_bytes(content)


def table(change: Callable[[pa.Table], pa.Table]) -> Mutation:
    """Change the rows of the first part."""

    def write(run: Path) -> None:
        part = min((run / "rows").iterdir())
        pq.write_table(change(pq.read_table(part)), part)

    return write


def column(name: str, value: Any, kind: pa.DataType | None = None) -> Mutation:
    def change(rows: pa.Table) -> pa.Table:
        values = pa.array([value] * rows.num_rows, kind)
        return rows.set_column(rows.schema.get_field_index(name), name, values)

    return table(change)


def rows_as_a_file(run: Path) -> None:
    shutil.rmtree(run / "rows")
    (run / "rows").touch()


MUTATIONS: dict[str, list[Mutation]] = {
    "values": [
        lambda run: change_manifest(run, run_id=NASTY),
        lambda run: change_manifest(run, config={"benchmarks": [[1], [2]]}),
        lambda run: change_manifest(run, identity={"benchmarks": {NASTY: NASTY, "\ud800": 1}}),
        lambda run: change_manifest(run, versions=DEEP),
    ],
    "files": [
        written("run.json", b'{"run_id": "\xff\xfe"}'),
        written("rows/\x1b[2Jx.parquet", b"x"),
        written("lease.json", json.dumps({"host": NASTY, "pid": 1 << 80}).encode()),
        written(PART, LONG_FOOTER),
        lambda run: os.mkfifo(run / PART),
        rows_as_a_file,
    ],
    "parts": [
        table(lambda rows: pa.table({"row_id": rows.to_struct_array().combine_chunks()})),
        table(lambda rows: rows.append_column("status", rows.column("status"))),
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


@pytest.mark.parametrize(
    "arguments",
    [
        "show RUN --json",
        "export RUN --to lm-eval",
        "report RUN",
        "compare RUN OTHER",
        "publish RUN --to tensorboard --option folder=TMP",
        "score RUN",
        "compact RUN",
    ],
)
def test_every_command_names_a_torn_part_once(arguments, tmp_path, invoke) -> None:
    run = complete_run(tmp_path / "run")
    second_run = complete_run(tmp_path / "other") if "OTHER" in arguments else run
    (run / PART).write_bytes(b"torn")
    values = {"RUN": str(run), "OTHER": str(second_run)}
    words = [values.get(word, word).replace("TMP", str(tmp_path)) for word in arguments.split()]
    result = invoke(*words)
    assert (result.stderr + result.stdout).count(f"{PART} is ignored") == 1
    assert (run / PART).read_bytes() == b"torn"
