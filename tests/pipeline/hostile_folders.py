"""Run folders that somebody made to do harm: one sound run, and hundreds of ways to spoil it.

`MUTATIONS` has them by name. Each takes a copy of the sound folder and changes one thing in it.
"""

from __future__ import annotations

import io
import json
import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ace_ray.benchmarks.acebench.gold import render_gold
from ace_ray.models.sources import ModelRef
from ace_ray.pipeline.planning.plan import make_manifest
from ace_ray.storage.object_store import LocalStore
from ace_ray.storage.parts import write_parts
from ace_ray.storage.rows import ROWS
from ace_ray.types import Entry, Episode
from tests.pipeline.made_run import judged_rows, planned_run

Mutation = Callable[[Path], None]

NASTY = "x\x1b[31m\x07<b>&|`[a](javascript:1)\n# y\r\u202e\u2028"
"""Markup, a link, a table's bar, line breaks, an escape sequence and a reversal of text."""
PART = "rows/part-00000000000001-aa-0123456789abcdef.parquet"


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


VALUES: dict[str, Any] = {
    "null": None,
    "true": True,
    "negative": -1,
    "huge": 1 << 70,
    "2^63": 1 << 63,
    "fraction": 0.5,
    "largest": 1.7e308,
    "empty text": "",
    "nasty text": NASTY,
    "half character": "\ud800",
    "long text": "y" * 100_000,
    "path": "../../../../etc",
    "list": [],
    "list of lists": [[1], [2]],
    "mapping": {},
    "odd mapping": {NASTY: NASTY, "\ud800": 1},
    "nested": nested(40),
    "deep": nested(300),
}
GONE = object()
NO_PATHS = {"no such user": "~nosuchuser/x", "5,000 characters": "a" * 5000, "a NUL": "a\0b"}

_OF_MANIFEST = (
    "schema_version", "run_id", "ace_ray_version", "declared", "entries", "entries.acebench",
    "config", "config.model", "config.model.source", "config.benchmarks", "config.benchmarks.0",
    "config.benchmarks.0.name", "config.benchmarks.0.languages", "config.backend", "config.limit",
    "config.max_unscored", "config.store", "config.store.endpoint_url", "config.samples",
    "config.sampling", "model", "model.source", "model.revision", "model.parameters", "identity",
    "identity.benchmarks", "identity.benchmarks.acebench", "identity.sampling",
    "identity.sampling.0", "identity.sampling.0.seed", "identity.sampling.0.temperature",
    "identity.roles", "identity.roles.acebench", "identity.engine", "identity.odd", "versions",
    "machine", "engine_args", "chat_template_sha256", "batch_invariant",
)  # fmt: skip
_NOT_THERE = (
    "versions", "machine", "identity.odd", "engine_args", "batch_invariant",
    "chat_template_sha256", "model.parameters", "config.benchmarks.0",
)  # fmt: skip
_OF_SUMMARY = (
    "timing", "timing.engines", "timing.engines.0", "timing.wall_s", "timing.device_s",
    "timing.device_s.idle", "timing.loads", "timing.loads.0", "timing.engine_deaths", "benchmarks",
    "benchmarks.acebench", "benchmarks.acebench.comparable", "rescored",
    "rescored.ace_ray_version", "complete", "tokens",
)  # fmt: skip

_WHOLE = {
    "empty": b"",
    "a bracket": b"{",
    "a list": b"[]",
    "a text": b'"x"',
    "a number": b"7",
    "null": b"null",
    "binary": bytes(range(256)) * 4,
    "not utf-8": b'{"run_id": "\xff\xfe"}',
    "not a number": b'{"schema_version": NaN}',
    "infinite": b'{"schema_version": 1e999}',
    "digits": b'{"schema_version": ' + b"9" * 100_000 + b"}",
    "50,000 brackets": b"[" * 50_000,
    "50,000 braces": b'{"a":' * 50_000,
    "1,100,000 values": b"[" + b"{}," * 1_100_000 + b"{}]",
    "20 MiB": b'{"schema_version": "' + b"x" * (20 << 20) + b'"}',
    "a byte order mark": b"\xef\xbb\xbf{}",
    "one key twice": b'{"schema_version": 1, "schema_version": 2}',
}


def make_run(folder: Path) -> Path:
    """A complete run of 8 rows in two parts, with files of all kinds."""
    plan = planned_run(folder, ModelRef("org/Toy-7B", "hub", "org/Toy-7B", "1234"))
    rows = judged_rows(plan, _episode)
    store = LocalStore(str(folder))
    facts = {"versions": {"vllm": "1"}, "machine": {"platform": "p"}}
    session = {"began_at": "2026-01-01T00:00:00+00:00", "versions": {"vllm": "1"}}
    manifest = make_manifest(plan, {**facts, "sessions": [session]})
    store.put("run.json", json.dumps(manifest).encode())
    for name, part in (("00000000000001-aa", rows[:5]), ("00000000000002-aa", rows[5:])):
        write_parts(store, name, pa.Table.from_pylist(part, schema=ROWS))
    summary = {
        "complete": True, "why": "", "scored": 8, "tokens": {"prompt": 1, "completion": 1},
        "timing": {"wall_s": 1.0, "engines": [{"versions": {"vllm": "1"}}],
                   "loads": [{"how": "fresh"}], "engine_deaths": ["x"],
                   "device_s": {"idle": 1.0}},
        "benchmarks": {"acebench": {"comparable": "with itself"}},
        "rescored": {"ace_ray_version": "1"},
    }  # fmt: skip
    store.put("summary.json", json.dumps(summary).encode())
    store.put("_SUCCESS", b"")
    return folder


def _episode(number: int, entry: Entry) -> Episode:
    output = render_gold(entry) if number % 3 else "[nothing()]"
    messages = [{"role": "user", "content": "q"}, {"role": "assistant", "content": output}]
    return Episode(messages, output, model_calls=1, finish_reason="stop")


def _changed(name: str, path: str, value: Any) -> Mutation:
    """``path`` of a JSON file set to ``value``, or taken out."""

    def change(folder: Path) -> None:
        tree = json.loads((folder / name).read_text())
        *parents, last = path.split(".")
        node = tree
        for key in parents:
            node = node.setdefault(key, {}) if isinstance(node, dict) else node[int(key)]
        at: Any = int(last) if isinstance(node, list) else last
        if value is GONE:
            del node[at]
        else:
            node[at] = value
        (folder / name).write_text(json.dumps(tree))

    return change


def _written(name: str, content: bytes) -> Mutation:
    def write(folder: Path) -> None:
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)

    return write


def parquet(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def _sound_table(folder: Path) -> pa.Table:
    return pq.read_table(sorted((folder / "rows").glob("*.parquet"))[0])


def _table(change: Callable[[pa.Table], pa.Table], **options: Any) -> Mutation:
    """The first part written anew with a changed table."""

    def write(folder: Path) -> None:
        part = sorted((folder / "rows").glob("*.parquet"))[0]
        part.write_bytes(parquet(change(_sound_table(folder)), **options))

    return write


def _times(value: Any, n: int) -> list[Any]:
    return [value] * n


def _column(
    name: str, values: Callable[[int], list[Any]], kind: pa.DataType | None = None
) -> Mutation:
    def change(table: pa.Table) -> pa.Table:
        at = table.schema.get_field_index(name)
        made = pa.array(values(table.num_rows), kind or table.schema.field(name).type)
        return table.set_column(at, name, made)

    return _table(change)


def _inflated(table: pa.Table) -> pa.Table:
    """600 rows of a mebibyte each, which a dictionary stores once."""
    rows = table.take(pa.array([0] * 600, pa.int32()))
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 600, pa.int32()), ["x" * (1 << 20)])
    return rows.set_column(rows.schema.get_field_index("output"), "output", texts)


def _cut(share: float) -> Mutation:
    def cut(folder: Path) -> None:
        for part in (folder / "rows").glob("*.parquet"):
            content = part.read_bytes()
            part.write_bytes(content[: int(len(content) * share)])

    return cut


def _flipped(step: int) -> Mutation:
    def flip(folder: Path) -> None:
        for part in (folder / "rows").glob("*.parquet"):
            content = bytearray(part.read_bytes())
            for at in range(step, len(content) - 8, step):
                content[at] ^= 0xFF
            part.write_bytes(content)

    return flip


def _in_place(name: str, make: Callable[[Path], object]) -> Mutation:
    """``name`` replaced by what ``make`` puts there."""

    def replace(folder: Path) -> None:
        target = folder / name
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target)
        else:
            target.unlink(missing_ok=True)
        make(target)

    return replace


def _linked_folder(target: Path) -> None:
    behind = target.parent.parent / f"behind-{target.name}"
    behind.mkdir(exist_ok=True)
    (behind / "part-00000000000001-aa-0123456789abcdef.parquet").write_bytes(b"precious")
    target.symlink_to(behind)


def _loop(target: Path) -> None:
    target.symlink_to(target)


def _shut(name: str) -> Mutation:
    def shut(folder: Path) -> None:
        (folder / name).chmod(0)

    return shut


def _named(name: str) -> Mutation:
    def write(folder: Path) -> None:
        (folder / "rows" / name).write_bytes(b"x")

    return write


def _all() -> Iterator[tuple[str, Mutation]]:
    values = list(VALUES.items())
    for number, path in enumerate(_OF_MANIFEST):
        # Six of the values in turns, so that each meets many paths.
        for step in range(6):
            kind, value = values[(number * 6 + step) % len(values)]
            yield f"run.json {path}: {kind}", _changed("run.json", path, value)
        if path not in _NOT_THERE:
            yield f"run.json {path}: gone", _changed("run.json", path, GONE)
    for kind, text in NO_PATHS.items():
        yield (
            f"run.json config.benchmarks.0.data: {kind}",
            _changed("run.json", "config.benchmarks.0.data", text),
        )
        for key in ("data", "upstream", "reference", "cache_folder", "tool_folder"):
            section = {"name": "stabletoolbench", "data": "mini", "apis": ["cache"], key: text}
            yield (
                f"run.json stabletoolbench.{key}: {kind}",
                _changed("run.json", "config.benchmarks.0", section),
            )
        section = {"name": "stabletoolbench_judge", "labels": text}
        yield (
            f"run.json stabletoolbench_judge.labels: {kind}",
            _changed("run.json", "config.benchmarks.0", section),
        )
    for number, path in enumerate(_OF_SUMMARY):
        for step in range(5):
            kind, value = values[(number * 5 + step) % len(values)]
            yield f"summary.json {path}: {kind}", _changed("summary.json", path, value)
    for kind, content in _WHOLE.items():
        yield f"run.json: {kind}", _written("run.json", content)
        yield f"summary.json: {kind}", _written("summary.json", content)
        yield f"report.json: {kind}", _written("report/report.json", content)
    for name in ("run.json", "summary.json", "_SUCCESS", "rows", "files", "report"):
        yield f"{name}: a folder", _in_place(name, lambda target: target.mkdir())
        yield f"{name}: a link to itself", _in_place(name, _loop)
        yield f"{name}: a link to nothing", _in_place(name, lambda target: target.symlink_to("no"))
        yield f"{name}: a pipe", _in_place(name, os.mkfifo)
        yield f"{name}: a file", _in_place(name, lambda target: target.write_bytes(b"x"))
        yield f"{name}: a device", _in_place(name, lambda target: target.symlink_to("/dev/zero"))
        yield f"{name}: a link to a folder", _in_place(name, _linked_folder)
    for name in ("run.json", "summary.json", "rows"):
        yield f"{name}: shut", _shut(name)
    for kind, content in {
        "empty": b"", "garbage": b"x" * 1000, "magic": b"PAR1PAR1",
        "a long footer": b"PAR1" + bytes(50) + (1 << 31).to_bytes(4, "little") + b"PAR1",
        "a footer of ones": b"PAR1" + b"\xff" * 200 + (200).to_bytes(4, "little") + b"PAR1",
        "deep footer": b"PAR1" + b"\x1c" * 5000 + (5000).to_bytes(4, "little") + b"PAR1",
        "long lists": (
            b"PAR1" + b"\x19\xfc\xff\xff\xff\xff\x0f" * 30 + (210).to_bytes(4, "little") + b"PAR1"
        ),
    }.items():  # fmt: skip
        yield f"part: {kind}", _written(PART, content)
    yield "part: a pipe", _in_place(PART, os.mkfifo)
    yield "part: a device", _in_place(PART, lambda target: target.symlink_to("/dev/zero"))
    yield "part: a folder", _in_place(PART, lambda target: target.mkdir())
    yield "part: a link to itself", _in_place(PART, _loop)
    for share in (0.1, 0.5, 0.9, 0.999):
        yield f"parts: the first {share:.1%}", _cut(share)
    for step in (3, 50, 333, 2000):
        yield f"parts: every byte {step} turned", _flipped(step)
    yield "parts: of another schema", _table(lambda table: pa.table({"name": ["x"]}))
    yield "parts: without rows", _table(lambda table: table.slice(0, 0))
    yield "parts: every row twice", _table(lambda table: pa.concat_tables([table, table]))
    yield "parts: brotli", _table(lambda table: table, compression="brotli")
    yield (
        "parts: deltas",
        _table(
            lambda table: table,
            use_dictionary=False,
            column_encoding={"output": "DELTA_BYTE_ARRAY"},
        ),
    )
    yield (
        "parts: a column more",
        _table(lambda table: table.append_column(NASTY, pa.array([nested(30)] * table.num_rows))),
    )
    yield (
        "parts: columns in lists",
        _table(
            lambda table: pa.table(
                {n: pa.array([[1]] * table.num_rows) for n in table.column_names}
            )
        ),
    )
    yield (
        "parts: columns in structures",
        _table(lambda table: pa.table({"row_id": table.to_struct_array().combine_chunks()})),
    )
    yield (
        "parts: two columns of one name",
        _table(lambda table: table.append_column("status", table.column("status"))),
    )
    yield "parts: 600 MiB of one text", _table(_inflated)
    yield (
        "parts: millions of rows",
        _table(
            lambda table: pa.concat_tables([table.slice(0, 1)] * 3).take(
                pa.array([0] * 2_000_000, pa.int32())
            )
        ),
    )
    for name in ROWS.names:
        yield f"parts: {name} null", _column(name, lambda n: [None] * n)
    for name in ("row_id", "benchmark", "category", "language", "id", "group", "status",
                 "error_class", "error", "output", "reasoning", "finish_reason", "worker",
                 "official_error_type", "official_error", "strict_metrics", "messages",
                 "state"):  # fmt: skip
        yield f"parts: {name} nasty", _column(name, lambda n: [f"{NASTY}{i}" for i in range(n)])
        yield f"parts: {name} a number", _column(name, lambda n: list(range(n)), pa.int64())
        yield f"parts: {name} long", _column(name, lambda n: ["z" * 50_000] * n)
        yield f"parts: {name} no text", _column(name, lambda n: [b"\xff\xfe\x80"] * n, pa.binary())
    for name in ("sample", "repeat", "attempts", "prompt_tokens", "model_calls"):
        for value in (-1, (1 << 31) - 1):
            yield f"parts: {name} {value}", _column(name, partial(_times, value))
    for name in ("generation_s", "duration_s"):
        for value in (float("nan"), float("inf"), -1.0, 1e308):
            yield f"parts: {name} {value}", _column(name, partial(_times, value))
    for at in (-(1 << 62), 1 << 62):
        yield (
            f"parts: started_at {at}",
            _column("started_at", partial(_times, at), pa.timestamp("us", tz="UTC")),
        )
    for kind, text in {
        "empty": "", "a list": "[]", "a number": "7", "deep": "[" * 900 + "]" * 900,
        "deeper": "[" * 90_000, "not a number": '{"p": NaN}', "texts": '{"p": "x"}',
        "huge": '{"p": 1e999}', "null": "null", "a nested mapping": '{"p": {"q": 1}}',
        "digits": '{"p": ' + "9" * 5000 + "}", "half": '{"p": "\\ud800"}',
    }.items():  # fmt: skip
        for name in ("messages", "state", "endpoint", "official_metrics"):
            yield f"parts: {name} {kind}", _column(name, partial(_times, text))
    for name in ("a\nb.parquet", "\x1b[2Jx.parquet", "part-\u202e.parquet", "part-1.parquet",
                 "part-00000000000009-aa-x.parquet", "part-99999999999999999999-a.parquet",
                 "-rf.parquet", "%2e%2e%2fx.parquet"):  # fmt: skip
        yield f"rows: a file named {name!a}", _named(name)
    for kind, lease in {
        "empty": b"", "garbage": b"\xff\x00", "a list": b"[1]", "deep": b"[" * 50_000,
        "odd": json.dumps({"holder": [1], "pid": "x", "host": NASTY, "machine": {}}).encode(),
        "huge": json.dumps({"host": "h" * 100_000, "pid": 1 << 80, "since": NASTY}).encode(),
    }.items():  # fmt: skip
        yield f"lease.json: {kind}", _written("lease.json", lease)
    yield "lease.json: a folder", _in_place("lease.json", lambda target: target.mkdir())
    yield "lease.json: a pipe", _in_place("lease.json", os.mkfifo)
    yield (
        "lease.json: a link",
        _in_place("lease.json", lambda target: target.symlink_to("run.json")),
    )
    files = {"made_by": "ace-ray report", "files": [["x"], {}, 1, None, "../run.json", "a\0b", ""]}
    yield "report.json: odd files", _written("report/report.json", json.dumps(files).encode())


MUTATIONS: dict[str, Mutation] = dict(_all())
