"""Files that users hand over, as editors and tools of other systems write them."""

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


@pytest.fixture(params=["acebench", "bfcl", "stabletoolbench"])
def mini(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path]:
    """A benchmark, and a copy of its mini data in the layout of the published data."""
    copy = tmp_path / "copy"
    if request.param == "bfcl":
        write_copy(copy, version=None)
    else:
        shutil.copytree(BENCHMARKS / request.param / "mini", copy)
    return request.param, copy


def rewritten(folder: Path, mark: bytes, encoding: str) -> None:
    for path in filter(Path.is_file, folder.rglob("*")):
        path.write_bytes(mark + path.read_text("utf-8").encode(encoding))


def test_a_byte_order_mark_changes_no_entry(mini: tuple[str, Path]) -> None:
    name, folder = mini
    before = make_benchmark(name, {"data": str(folder)}).identity()
    rewritten(folder, codecs.BOM_UTF8, "utf-8")
    assert make_benchmark(name, {"data": str(folder)}).identity() == before


def test_the_mark_of_another_encoding_is_named(mini: tuple[str, Path]) -> None:
    name, folder = mini
    rewritten(folder, codecs.BOM_UTF16_LE, "utf-16-le")
    with pytest.raises(UserError, match=r"is UTF-16 text.*; save it as UTF-8$"):
        make_benchmark(name, {"data": str(folder)}).identity()


def test_rows_of_joined_files(tmp_path: Path) -> None:
    """Each of them had a mark."""
    path = tmp_path / "outputs.jsonl"
    path.write_bytes(codecs.BOM_UTF8 + b'{"id": 1}\n' + codecs.BOM_UTF8 + b'{"id": 2}\n')
    rows = [{"id": 1}, {"id": 2}]
    assert [row for _, row in read_rows(path)] == rows
    assert [row for _, row in json_lines(path.read_bytes(), path)] == rows


@pytest.mark.parametrize(
    ("mark", "encoding"),
    [
        (codecs.BOM_UTF16_LE, "UTF-16"),
        (codecs.BOM_UTF16_BE, "UTF-16"),
        (codecs.BOM_UTF32_LE, "UTF-32"),
        (codecs.BOM_UTF32_BE, "UTF-32"),
    ],
)
def test_outputs_and_configs_of_another_encoding(
    tmp_path: Path, mark: bytes, encoding: str
) -> None:
    path = tmp_path / "file"
    path.write_bytes(mark + '{"id": 1}\n'.encode(encoding))
    said = f"{path}(:1)?: is {encoding} text, according to its byte order mark; save it as UTF-8$"
    with pytest.raises(UserError, match=said):
        list(read_rows(path))
    with pytest.raises(UserError, match=said):
        config_text(str(path))


def test_a_config_with_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_bytes(codecs.BOM_UTF8 + b"output: results\n")
    assert config_text(str(path)) == "output: results\n"
