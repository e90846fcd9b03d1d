"""JSON lines of outputs for any benchmark: which entry a line answers, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ace_ray.benchmarks.outputs import (
    Entries,
    Output,
    each_once,
    read_json_lines,
    read_rows,
)
from ace_ray.errors import UserError
from ace_ray.types import Entry


def entry(entry_id: str, category: str = "sums", language: str = "en") -> Entry:
    return Entry("made-up", category, language, entry_id, {}, None, entry_id)


ALL = [entry("1"), entry("2"), entry("1", "products"), entry("3"), entry("3", language="zh")]
ENTRIES = Entries.among(ALL)


def write(path: Path, rows: Sequence[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def outputs(path: Path, entries: Entries = ENTRIES) -> list[Output]:
    return list(each_once(read_json_lines(path, entries), path))


def refused(path: Path, message: str, where: str = "", entries: Entries = ENTRIES) -> None:
    with pytest.raises(UserError) as caught:
        outputs(path, entries)
    assert message in str(caught.value)
    assert where in str(caught.value)


def test_an_id_names_its_entry_where_it_is_the_only_one(tmp_path: Path) -> None:
    rows = [
        {"id": "2", "output": "4"},
        {"id": "1", "category": "products", "output": None, "sample": "x"},
        {"id": "3", "language": "zh", "output": "\ud800"},
        {"id": "3", "language": "en", "category": "sums", "output": "9", "sample": 2},
    ]
    found = outputs(write(tmp_path / "a.jsonl", rows))
    assert [one.entry.key for one in found] == [
        ("en", "sums", "2"),
        ("en", "products", "1"),
        ("zh", "sums", "3"),
        ("en", "sums", "3"),
    ]
    assert [one.sample for one in found] == [0, "x", 0, 2]
    assert [one.episode.output for one in found] == ["4", "", "\ud800", "9"]
    assert found[0].episode.messages == [{"role": "assistant", "content": "4"}]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"id": "1"}, "\"category\" is missing: '1' is an id of en/sums, en/products"),
        ({"id": "3"}, "\"language\" is missing: '3' is an id of en/sums, zh/sums"),
        ({"id": "22"}, "unknown id: '22'; the nearest known one is '2'"),
        ({"id": "22", "category": "sums", "language": "zh"}, "unknown id of zh/sums: '22'"),
        ({"id": "2", "category": "sum"}, "unknown category: 'sum'; the nearest known one is"),
        ({"id": "2", "language": "fr"}, "unknown language: 'fr'"),
        ({"id": "2", "language": None}, '"language" is None, not a text'),
        ({"output": ""}, '"id" is missing'),
        ({"id": "2", "sample": [1]}, '"sample" is [1], not an integer or a text'),
        ({"id": "2", "output": {}}, "the output is {}, not a text or null"),
        ({"id": "3", "language": "en"}, '"output" is missing'),
    ],
)
def test_lines_that_name_no_entry(tmp_path: Path, row: dict[str, Any], message: str) -> None:
    if "is missing" not in message:
        row = {"output": "x"} | row
    path = write(tmp_path / "a.jsonl", [{"id": "2", "output": "x"}, row])
    refused(path, message, f"{path}:2")


def test_the_same_id_and_sample_twice(tmp_path: Path) -> None:
    rows = [{"id": "2", "output": "x", "sample": sample} for sample in (0, "0", 0)]
    path = write(tmp_path / "a.jsonl", rows)
    refused(path, "id '2' (en/sums) with sample 0 was given before", f"{path}:3")
    refused(write(path, []), "holds no outputs", str(path))
    refused(tmp_path, "is not a plain file")
    refused(tmp_path / "none", "cannot be read")


def test_categories_are_loaded_as_they_are_asked_for(tmp_path: Path) -> None:
    asked = []

    def load(language: str, category: str) -> list[Entry]:
        asked.append((language, category))
        return [entry("1", category, language)]

    entries = Entries(load, languages=["en"], categories=["sums", "products"])
    rows = [{"id": "1", "category": "sums", "output": "", "sample": sample} for sample in (0, 1)]
    assert len(outputs(write(tmp_path / "a.jsonl", rows), entries)) == 2
    assert asked == [("en", "sums")]


def test_a_value_that_is_nested_deeply_is_named_and_not_shown(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"id": ' + "[" * 700 + "]" * 700 + "}")
    with pytest.raises(UserError, match=r"not a text|nested too deeply"):
        outputs(path)
    assert [where for where, _ in read_rows(write(path, [{}, {}]))] == [f"{path}:1", f"{path}:2"]
