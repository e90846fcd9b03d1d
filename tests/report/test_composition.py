"""``ace-ray data show``: counts of a benchmark's data, printed and as files."""

import csv
from pathlib import Path
from typing import Any, ClassVar
from xml.etree import ElementTree

import pytest

from ace_ray.benchmarks.base import Benchmark
from ace_ray.benchmarks.registry import make_benchmark
from ace_ray.sandbox.tools import Parameter, Tool
from ace_ray.types import Entry, Verdict


class Plain(Benchmark):
    name = "plain"
    groups: ClassVar = {"Both": ["a", "b"], "Only b": ["b"]}

    def entries(self) -> list[Entry]:
        kinds = {1: ("a", "en"), 2: ("b", "en"), 3: ("b", "de")}
        prompts = {n: [{"role": "user", "content": "x"}] * n for n in kinds}
        return [Entry("", *kinds[n], str(n), prompt=prompts[n]) for n in kinds]

    def tools(self, entry: Entry) -> list[dict[str, Any]]:
        parameters = (Parameter(entry.category, types=(str,)),)
        return [Tool("f", len, ()).schema(), Tool("g", len, parameters).schema()]

    def check(self, entry: Entry, episode: Any) -> Verdict:
        return Verdict(True)


def test_a_benchmark_without_a_hook_is_counted(tmp_path: Path, invoke: Any) -> None:
    result = invoke("data", "show", f"{__file__}:Plain", "--output", tmp_path)
    assert (result.code, "the data names no domains" in result.stdout) == (0, True)
    tables = {file.stem: list(csv.reader(file.open()))[1:] for file in tmp_path.glob("*.csv")}
    assert tables == {
        "plain-totals": [["entries", "1", "2", "3"], ["APIs", "2", "3", "5"]],
        "plain-categories": [["a", "0", "1", "1"], ["b", "1", "1", "2"]],
        "plain-groups": [["Both", "1", "2", "3"], ["Only b", "1", "1", "2"]],
        "plain-turns": [["1", "0", "1", "1"], ["2", "0", "1", "1"], ["3", "1", "0", "1"]],
        "plain-arguments": [["0", "1", "1", "2"], ["1", "1", "2", "3"]],
    }
    assert all(ElementTree.parse(tmp_path / f"{table}.svg") for table in tables)


@pytest.mark.parametrize(
    ("name", "line"),
    [("stabletoolbench", "Food,7,3,Crumb Finder,3,Pantry & Co,3"), ("bfcl", "MemoryAPI_kv,15")],
)
def test_the_largest_domain(name: str, line: str, tmp_path: Path, invoke: Any) -> None:
    assert invoke("data", "show", name, "--output", tmp_path).code == 0
    assert (tmp_path / f"{name}-domains.csv").read_text().splitlines()[1] == line


def test_acebench_names_domains_in_tags() -> None:
    function = {"name": "f", "tags": ["Travel-Trains"], "arguments": {"properties": {"to": 1}}}
    entry = Entry(data={"function": [function], "question": "user: a\nsystem: b\nuser: c\n"})
    (api,), turns = make_benchmark("acebench", {}).apis_and_turns(entry)
    assert (api.domain, api.subdomain, api.arguments, turns) == ("Travel", "Trains", 1, 2)
