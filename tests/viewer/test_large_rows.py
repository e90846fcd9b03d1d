"""Commands show and export a bounded part of a large row, and say how much they leave out."""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ace_ray.models.sources import ModelRef
from ace_ray.pipeline.planning.plan import make_manifest
from ace_ray.pipeline.summary import as_json
from ace_ray.storage.object_store import LocalStore, open_store
from ace_ray.storage.parts import write_parts
from ace_ray.storage.rows import ROWS
from ace_ray.storage.stored import MANIFEST
from ace_ray.util.safe_loading import SHOWN_CHARS, SHOWN_VALUES, shortened
from ace_ray.viewer.select import Filter, StoredRun, select
from ace_ray.viewer.server import render, row_view
from tests.pipeline.made_run import judged_rows, planned_run
from tests.viewer.test_show import wrong

MANY = 400_000
INVISIBLE = "a\u200b" * (1 << 20)
LONG = "some words on a line\n" * (SHOWN_CHARS // 4)
LARGE: dict[str, dict[str, str]] = {
    "deep gold": {"gold": "[" * 190 + "0," * MANY + "0" + "]" * 190},
    "messages": {"messages": json.dumps([{}] * MANY)},
    "text": {"messages": json.dumps([{"role": "assistant", "content": LONG}])},
    "tools": {"tools": json.dumps([{}] * MANY)},
    "states": {"state": json.dumps({"before": [0] * MANY, "end": [1] * MANY})},
    "reason": {"strict_error": INVISIBLE},
}
"""Columns of a row that take a few kilobytes in a part."""


def run_with(folder: Path, changed: dict[str, str]) -> str:
    """Write a run in which one row has these columns. Returns the id of the row."""
    plan = planned_run(folder, ModelRef("fake", "fake", "fake", "fake"))
    rows = judged_rows(plan, wrong)
    rows[0] |= changed
    store = LocalStore(plan.uri)
    store.put(MANIFEST, as_json(make_manifest(plan, {})))
    write_parts(store, "00000000000001-aa", pa.Table.from_pylist(rows, schema=ROWS))
    row_id: str = rows[0]["row_id"]
    return row_id


@pytest.mark.nightly
@pytest.mark.parametrize("name", LARGE)
def test_a_large_row_is_shown_in_part(name: str, tmp_path: Path, here: Any) -> None:
    folder = tmp_path / "run"
    row_id = run_with(folder, LARGE[name])
    stored = StoredRun(open_store(str(folder)))
    (view,) = stored.whole(select(stored, Filter(entry=row_id)))
    turn = {"place": "", "previous": "", "next": ""}
    sides = [{"name": "run", "row": row_view(view)}]
    page = render(
        "row.html.j2", {"title": "x", "back": "", "turn": turn, "sides": sides, "pairs": []}
    )
    printed = here("show", folder, row_id).stdout
    lines = here("show", folder, row_id, "--json").stdout
    for text in (page, printed, lines):
        assert len(text) < 6 * SHOWN_CHARS
        assert re.search("more values|more characters|in part|left out", text)
    assert "\u200b" not in printed
    exported = here("export", folder, "--to", "inspect", "--output", tmp_path / "export")
    assert exported.code == 0
    (log,) = (tmp_path / "export").iterdir()
    assert log.stat().st_size < SHOWN_CHARS
    with zipfile.ZipFile(log) as files:  # of which a viewer holds this list
        assert files.getinfo("summaries.json").file_size < 100_000


def test_long_values_are_cut() -> None:
    assert shortened({"a": [1, "x" * 10]}, chars=8) == {"a": [1, "xxxxxxx [3 more characters]"]}
    assert shortened([[1, 2], [3, 4]], values=4) == [[1, 2], "[1 more values]"]
    assert shortened({"a": 1, "b": 2}, values=2) == {"a": 1, "...": "[1 more values]"}
    whole: dict[str, Any] = {"a": [None, True, 1.5, "x", {}], "b": []}
    assert shortened(whole) == whole
    assert len(shortened([0] * MANY)) == SHOWN_VALUES


def test_stored_texts_are_not_masked(tmp_path: Path, here: Any) -> None:
    said = "login(password='hunter2-42', api_key='sk-abcdefghijklmnopqrstuvwxyz')\x1b[2J"
    told = [{"role": "user", "content": "q"}, {"role": "assistant", "content": said}]
    error = f"expected {said}"
    row_id = run_with(tmp_path, {"messages": json.dumps(told), "strict_error": error})
    whole, listed = here("show", tmp_path, row_id).stdout, here("show", tmp_path).stdout
    for shown in (whole, listed):
        assert "login(password='hunter2-42'" in shown
        assert "***" not in shown
        assert "\x1b" not in shown
    assert "expected login(password='hunter2-42'" in whole
