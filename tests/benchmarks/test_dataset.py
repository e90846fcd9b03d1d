"""Files of users as editors and other systems write them, with byte order marks."""

from __future__ import annotations

import codecs
import shutil
from pathlib import Path

import pytest

import ace_ray.benchmarks
from ace_ray.benchmarks.dataset import json_lines
from ace_ray.benchmarks.outputs import read_rows
from ace_ray.benchmarks.registry import make_benchmark
from ace_ray.config.schema import config_text
from ace_ray.errors import UserError
from tests.benchmarks.bfcl.synthetic_bfcl import write_copy

BENCHMARKS = Path(ace_ray.benchmarks.__file__).parent


@pytest.mark.parametrize("name", ["acebench", "bfcl"])
def test_a_byte_order_mark_changes_no_entry(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    if name == "bfcl":
        write_copy(folder, version=None)
    else:
        shutil.copytree(BENCHMARKS / name / "mini", folder)

    def rewrite(mark: bytes, encoding: str) -> None:
        for path in filter(Path.is_file, folder.rglob("*")):
            path.write_bytes(mark + path.read_text("utf-8").encode(encoding))

    before = make_benchmark(name, {"data": str(folder)}).identity()
    rewrite(codecs.BOM_UTF8, "utf-8")
    assert make_benchmark(name, {"data": str(folder)}).identity() == before
    rewrite(codecs.BOM_UTF16_LE, "utf-16-le")
    with pytest.raises(UserError, match=r"is UTF-16 text.*; save it as UTF-8$"):
        make_benchmark(name, {"data": str(folder)}).identity()


def test_joined_files_have_marks_in_the_middle(tmp_path: Path) -> None:
    path = tmp_path / "outputs.jsonl"
    path.write_bytes(codecs.BOM_UTF8 + b'{"id": 1}\n' + codecs.BOM_UTF8 + b'{"id": 2}\n')
    rows = [{"id": 1}, {"id": 2}]
    assert [row for _, row in read_rows(path)] == rows
    assert [row for _, row in json_lines(path.read_bytes(), path)] == rows
    path.write_bytes(codecs.BOM_UTF8 + b"output: results\n")
    assert config_text(str(path)) == "output: results\n"


def test_outputs_and_configs_of_another_encoding_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for mark, encoding in ((codecs.BOM_UTF16_BE, "UTF-16"), (codecs.BOM_UTF32_LE, "UTF-32")):
        path.write_bytes(mark + '{"id": 1}\n'.encode(encoding))
        said = f"is {encoding} text, according to its byte order mark; save it as UTF-8$"
        with pytest.raises(UserError, match=said):
            list(read_rows(path))
        with pytest.raises(UserError, match=said):
            config_text(str(path))
