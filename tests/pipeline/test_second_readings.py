"""Second readings in stored runs: the column, and the diagnosis in summaries."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa

from ace_ray.benchmarks.acebench.gold import render_gold
from ace_ray.models.sources import ModelRef
from ace_ray.parsing.literals import parse_calls
from ace_ray.pipeline.planning.plan import make_manifest
from ace_ray.pipeline.rescore import rescore
from ace_ray.pipeline.summary import as_json
from ace_ray.storage.object_store import LocalStore
from ace_ray.storage.parts import read_ledger, write_parts
from ace_ray.storage.rows import ROWS
from ace_ray.storage.stored import MANIFEST
from ace_ray.types import Entry, Episode
from tests.pipeline.made_run import QUESTION, judged_rows, planned_run


def fenced(number: int, entry: Entry) -> Episode:
    """Answer with the gold calls in a fenced block, which the official checker does not read."""
    calls = parse_calls(render_gold(entry) if entry.category.startswith("normal") else "[f()]")
    written = [{"name": call.name, "arguments": call.args} for call in calls]
    return Episode(QUESTION, f"```json\n{json.dumps(written)}\n```", model_calls=1)


def made(folder: Path, second_reading: str | None) -> LocalStore:
    """Make a run of eight rows with this ``second_reading``."""
    plan = planned_run(folder / "run", ModelRef("fake", "fake", "fake", "fake"))
    store = LocalStore(plan.uri)
    store.put(MANIFEST, as_json(make_manifest(plan, {})))
    rows = [row | {"second_reading": second_reading} for row in judged_rows(plan, fenced)]
    write_parts(store, "00000000000001-aa", pa.Table.from_pylist(rows, schema=ROWS))
    return store


def column(store: LocalStore) -> list[Any]:
    tables = list(read_ledger(store).tables(["second_reading"]))
    return pa.concat_tables(tables).column("second_reading").to_pylist()


def test_rescored_run_names_calls_in_another_format(tmp_path: Path) -> None:
    store = made(tmp_path, None)
    said: list[str] = []
    _, summary = rescore(store.root, said.append)
    assert said[-1] == "no verdict changed"
    assert [json.loads(text)["reader"] for text in column(store)] == ["fenced_json"] * 8
    (finding,) = summary["benchmarks"]["acebench"]["diagnosis"]
    assert (finding["kind"], finding["rows"], finding["of"]) == ("unread_calls", 8, 8)
    assert finding["readers"] == {"fenced_json": 8}
    stored = json.loads(store.get("summary.json") or b"")
    assert stored["benchmarks"]["acebench"]["diagnosis"] == [finding]
