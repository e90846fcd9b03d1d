"""Files of users: outputs for any benchmark, and byte order marks."""

import codecs
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import ace_ray.benchmarks
from ace_ray.benchmarks.external_outputs import Entries, Output, read_json_lines, unique_outputs
from ace_ray.benchmarks.registry import make_benchmark
from ace_ray.errors import UserError
from ace_ray.types import Entry


def entry(entry_id: str, category: str = "sums", language: str = "en") -> Entry:
    return Entry("made-up", category, language, entry_id, {}, None, entry_id)


ALL = [entry("1"), entry("2"), entry("1", "products"), entry("3"), entry("3", language="zh")]
ENTRIES = Entries.from_entries(ALL)


def write(path: Path, rows: Sequence[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def outputs(path: Path, entries: Entries = ENTRIES) -> list[Output]:
    return list(unique_outputs(read_json_lines(path, entries), path))


def test_an_id_names_its_entry_where_it_is_the_only_one(tmp_path: Path) -> None:
    rows = [
        {"id": "2", "output": "4"},
        {"id": "1", "category": "products", "output": None, "sample": "x"},
        {"id": "3", "language": "zh", "output": "\ud800", "sample": 2},
    ]
    parsed = outputs(write(tmp_path / "a.jsonl", rows))
    assert [output.entry for output in parsed] == [ALL[1], ALL[2], ALL[4]]
    assert [output.sample for output in parsed] == [0, "x", 2]
    assert [output.episode.output for output in parsed] == ["4", "", "\ud800"]
    assert parsed[0].episode.messages == [{"role": "assistant", "content": "4"}]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"id": "1"}, "\"category\" is missing: '1' is an id of en/sums, en/products"),
        ({"id": "22"}, "unknown id: '22'; the nearest known id is '2'"),
        ({"id": "2", "category": "sum"}, "unknown category: 'sum'; the nearest known category is"),
        ({"id": "2", "sample": [1]}, '"sample" is [1], not an integer or a string'),
        ({"id": "2", "output": {}}, "the output is {}, not a string or null"),
        ({"id": "2", "sample": 0}, "id '2' (en/sums) with sample 0 was given before"),
    ],
)
def test_a_wrong_line_is_refused_with_its_place(tmp_path, row, message) -> None:
    first = {"id": "2", "output": "x"}
    path = write(tmp_path / "a.jsonl", [first, first | {"sample": "0"}, {"output": "x"} | row])
    with pytest.raises(UserError) as caught:
        outputs(path)
    assert message in str(caught.value)
    assert f"{path}:3" in str(caught.value)


def test_files_without_outputs_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    for rows, message in (([], "contains no outputs"), ([{"id": "2"}], '"output" is missing')):
        with pytest.raises(UserError, match=message):
            outputs(write(path, rows))
    path.write_text('{"id": ' + "[" * 700 + "]" * 700 + "}")
    with pytest.raises(UserError, match=r"not a string|nested too deeply"):
        outputs(path)
    with pytest.raises(UserError, match="is not a plain file"):
        outputs(tmp_path)
    with pytest.raises(UserError, match="cannot be read"):
        outputs(tmp_path / "none")


def test_a_byte_order_mark_changes_no_entry(tmp_path: Path) -> None:
    mini = Path(ace_ray.benchmarks.__file__).parent / "acebench" / "mini"
    folder = shutil.copytree(mini, tmp_path / "copy")
    copy = {"data": str(folder)}
    before = make_benchmark("acebench", copy).identity()
    files = [path for path in folder.rglob("*") if path.is_file()]
    for path in files:
        path.write_bytes(codecs.BOM_UTF8 + path.read_bytes())
    assert make_benchmark("acebench", copy).identity() == before
    for path in files:
        path.write_bytes(codecs.BOM_UTF16_LE + path.read_text("utf-8-sig").encode("utf-16-le"))
    with pytest.raises(UserError, match=r"is UTF-16 text.*; save it as UTF-8$"):
        make_benchmark("acebench", copy).identity()
