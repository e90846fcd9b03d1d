"""What a benchmark's own code gives is looked at where it comes from, and refused in one line."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ace_ray.benchmarks.base import Benchmark
from ace_ray.benchmarks.checked import check_episode
from ace_ray.benchmarks.registry import benchmark_class, make_benchmark
from ace_ray.config.schema import RunConfig
from ace_ray.errors import UserError
from ace_ray.models.sources import ModelRef
from ace_ray.pipeline.planning.plan import Plan, make_plan
from ace_ray.types import Entry, Episode, Verdict

FAKE = ModelRef("fake", "fake", "fake", "fake")
BODY = {
    "entries": "def entries(self): return [Entry(id='a', prompt='?', gold='1')]",
    "check": "def check(self, entry, episode): return Verdict(True)",
}

Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a file with a class of `BODY` and other members; returns what names the class."""

    def written(**members: str) -> str:
        lines = [
            "from pydantic import BaseModel",
            "from ace_ray.benchmarks.base import Benchmark",
            "from ace_ray.types import Entry, Verdict",
            "class Mine(Benchmark):",
            *(f"    {text}" for text in ({"name": "name = 'mine'"} | BODY | members).values()),
        ]
        file = tmp_path / "mine.py"
        file.write_text("\n".join(lines) + "\n")
        return f"{file}:Mine"

    return written


def planned(name: str) -> Plan:
    config = RunConfig.model_validate(
        {"model": {"source": "fake"}, "benchmarks": [name], "backend": "fake"}
    )
    return make_plan(config, FAKE, [make_benchmark(name, {})])


def test_a_whole_class_is_planned(write: Write) -> None:
    assert len(planned(write()).rows) == 1


@pytest.mark.parametrize(
    ("members", "line"),
    [
        ({"name": "name = 'acebench'"}, "which an installed benchmark has"),
        ({"rules": f"rule_sets = {tuple(f'r{n}' for n in range(21))}"}, "at most 20"),
        ({"rules": "rule_sets = ('right', 'id')"}, "a rule set cannot be called 'id'"),
        ({"rules": "rule_sets = ('scored',)"}, "a rule set cannot be called 'scored'"),
        ({"options": "class Options(BaseModel): pass"}, "Options is no subclass"),
        ({"groups": "groups = ['a']"}, "groups is no mapping"),
        ({"groups": "groups = {'Group': 'a'}"}, "groups is no mapping"),
        ({"groups": "groups = {'Accuracy': ['a']}"}, "a group cannot be called 'Accuracy'"),
        ({"entries": "entries = []"}, "entries is no method"),
        ({"check": "async def check(self, e, p): return 1"}, "check is no method, def check"),
        ({"run": "def run(self, entry, context): return 1"}, "run is no method, async def run"),
    ],
)
def test_a_class_of_the_wrong_shape_is_refused(
    write: Write, members: dict[str, str], line: str
) -> None:
    with pytest.raises(UserError, match=re.escape(line)):
        benchmark_class(write(**members))


@pytest.mark.parametrize(
    "entry",
    [
        *("gold=(1, 2)", "data={1: 2}", "gold={None: 1}", "prompt=[{'role': ('user',)}]"),
        *("gold=float('nan')", "data={'x': [float('inf')]}", "gold=b'1'", "gold={1: 1, '1': 1}"),
    ],
)
def test_what_another_process_would_not_get_is_refused(write: Write, entry: str) -> None:
    text = f"def entries(self): return [Entry(id='a', **({{'prompt': '?'}} | dict({entry})))]"
    with pytest.raises(UserError, match=f"entry 'a': its {entry.partition('=')[0]} is not JSON"):
        planned(write(entries=text))


@pytest.mark.parametrize(
    ("entry", "line"),
    [
        ("Entry(id='\\ud800', prompt='?')", "its id is"),
        ("Entry(id='a', category=3, prompt='?')", "its category is 3"),
        ("Entry(id='a', prompt=3)", "the prompt of entry 'a' fails with TypeError"),
        ("Entry(id='a', prompt=[])", "its prompt is no list of messages"),
        ("Entry(id='a', prompt=[{'content': 'x'}])", "its prompt is no list of messages"),
        ("{'id': 'a'}", "entries gives a dict"),
    ],
)
def test_entries_of_the_wrong_shape_are_refused(write: Write, entry: str, line: str) -> None:
    with pytest.raises(UserError, match=re.escape(line)):
        planned(write(entries=f"def entries(self): return [{entry}]"))


@pytest.mark.parametrize(
    ("members", "line"),
    [
        ({"entries": "def entries(self): return {}['x']"}, "entries fails with KeyError: 'x'"),
        ({"entries": "def entries(self): pass"}, "entries fails with TypeError"),
        ({"init": "def __init__(self, options): {}['x']"}, "the constructor fails with KeyError"),
        ({"init": "def __init__(self): pass"}, "the constructor fails with TypeError"),
        ({"prompt": "def prompt(self, entry): pass"}, "its prompt is no list of messages"),
        ({"prompt": "def prompt(self, entry): return '?'"}, "its prompt is no list of messages"),
        ({"prompt": "def prompt(self, entry): {}['x']"}, "the prompt of entry 'a' fails"),
        ({"tools": "def tools(self, entry): return ['f']"}, "its tools are no list of tools"),
        ({"tools": "def tools(self, entry): return {'f': 1}"}, "its tools are no list of tools"),
        ({"texts": "def texts(self): return {'a': {1}}"}, "identity fails with TypeError"),
        ({"ready": "def ready(self, *, named): {}['x']"}, "ready fails with KeyError"),
        ({"roles": "def roles(self): pass"}, "roles fails with AttributeError"),
        ({"roles": "def roles(self): return {'user': 'other'}"}, "'other' is not a role"),
    ],
)
def test_what_its_code_raises_is_one_line(write: Write, members: dict[str, str], line: str) -> None:
    with pytest.raises(UserError, match=re.escape(line)) as refused:
        planned(write(**members))
    assert "\n" not in str(refused.value)


def test_the_line_says_where_the_code_failed(write: Write) -> None:
    with pytest.raises(UserError, match=r"\(mine.py:6\)"):
        planned(write(entries="def entries(self): return {}['x']"))


class Judging(Benchmark):
    """Gives whatever it is told as its verdict."""

    name = "judging"
    verdict: Any = None

    def entries(self) -> list[Entry]:
        return [Entry(id="a", prompt="?")]

    def check(self, entry: Entry, episode: Episode) -> Any:
        return self.verdict


def judge(verdict: Any) -> Verdict:
    benchmark = Judging()
    benchmark.verdict = verdict
    return benchmark.verdicts(benchmark.dataset()[0], Episode())["correct"]


@pytest.mark.parametrize(
    "verdict",
    [
        *(None, True, (True, ""), {}, {"other": Verdict(True)}, {"correct": True}),
        *(Verdict(1), Verdict(None), Verdict("no")),  # type: ignore[arg-type]
        *(Verdict(False, None), Verdict(False, "x", None)),  # type: ignore[arg-type]
        *(Verdict(False, metrics={"score": score}) for score in (-1, 7, float("nan"))),
        *(Verdict(False, metrics={"score": "0.5"}),),  # type: ignore[dict-item]
        *(Verdict(False, metrics={"other": None}),),  # type: ignore[dict-item]
        Verdict(True, metrics={"score": 0.3}),
    ],
)
def test_what_is_no_verdict_is_never_a_wrong_answer(verdict: Any) -> None:
    with pytest.raises(ValueError, match=r"check gives|valid is|no texts|metric|score"):
        judge(verdict)


def test_a_verdict_without_a_reason_counts_as_wrong() -> None:
    assert judge(Verdict(False)) == Verdict(False, "wrong")
    assert judge(Verdict(True)) == Verdict(True)


@pytest.mark.parametrize(
    "episode",
    [
        *(None, "text", Episode(output=None), Episode(finish_reason=3)),  # type: ignore[arg-type]
        *(Episode(messages=["x"]), Episode(prompt_tokens=None)),  # type: ignore[list-item,arg-type]
    ],
)
def test_what_cannot_be_stored_is_no_episode(episode: Any) -> None:
    check_episode(Episode())
    with pytest.raises(TypeError):
        check_episode(episode)


def test_a_module_beside_a_local_file_is_not_imported(write: Write, tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("")
    name = write(entries="import beside")
    with pytest.raises(UserError, match=r"No module named 'beside'.*cannot import its neighbours"):
        benchmark_class(name)


def test_a_benchmark_without_options_says_so(write: Write) -> None:
    with pytest.raises(UserError, match="unknown key 'data'; known keys: name, limit, ids"):
        make_benchmark(write(), {"data": "mini"})


POINTS = """[ace_ray.benchmarks]
bfcl = offered.classes:Mine
moved = offered.classes:Mine
mine = offered.classes:Mine
broken = offered.broken:Mine
"""


def test_what_an_installed_package_offers(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Path(write().partition(":")[0]).read_text()
    package, metadata = tmp_path / "offered", tmp_path / "offered-1.dist-info"
    package.mkdir()
    metadata.mkdir()
    (package / "classes.py").write_text(source)
    (package / "broken.py").write_text("import no_such_package\n")
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: offered\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text(POINTS)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert benchmark_class("mine").name == "mine"
    with pytest.raises(UserError, match=r"broken cannot be imported.*no_such_package"):
        benchmark_class("broken")
    with pytest.raises(UserError, match="moved leads to a class that is called 'mine'"):
        benchmark_class("moved")
    assert benchmark_class("acebench").name == "acebench"
