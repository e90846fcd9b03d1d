"""The least that a benchmark class must say, its defaults, and refusals of its mistakes."""

import asyncio
import re
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from ace_ray.benchmarks.base import Benchmark
from ace_ray.benchmarks.context import EpisodeContext, RoleModel
from ace_ray.benchmarks.gold_check import Gold
from ace_ray.benchmarks.registry import benchmark_class, class_of, list_classes, make_benchmark
from ace_ray.benchmarks.validation import check_episode
from ace_ray.config.schema import RunConfig, Section
from ace_ray.errors import UserError
from ace_ray.models.fake import FakeEngine
from ace_ray.models.sources import ModelRef
from ace_ray.pipeline.planning.plan import make_plan
from ace_ray.storage.stored import Manifest
from ace_ray.types import Entry, Episode, Sampling, Verdict
from tests.benchmarks.scored_row import scored_row

HEAD = """from pydantic import BaseModel
from ace_ray.benchmarks.base import Benchmark
from ace_ray.types import Entry, Verdict
class Mine(Benchmark):"""
BODY = {
    "name": "name = 'mine'",
    "entries": "def entries(self): return [Entry(id='a', prompt='?', gold='1')]",
    "check": "def check(self, entry, episode): return Verdict(episode.output == entry.gold)",
}
Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a file with a class of `BODY` and other members; returns the name of the class."""

    def written(**members: str) -> str:
        file = tmp_path / "mine.py"
        file.write_text("\n    ".join([HEAD, *(BODY | members).values()]) + "\n")
        return f"{file}:Mine"

    return written


def plan(name: str) -> None:
    tree = {"model": {"source": "fake"}, "benchmarks": [name], "backend": "fake"}
    fake = ModelRef("fake", "fake", "fake", "fake")
    run_plan = make_plan(RunConfig.model_validate(tree), fake, [make_benchmark(name, {})])
    assert len(run_plan.rows) == 1


class Mine(Benchmark):
    """Three categories in two languages."""

    name = "mine"
    groups = {"Small": ["a", "b"], "Large": ["c"], "Absent": ["z"]}  # noqa: RUF012 - as users do
    verdict: Any = None

    def entries(self) -> list[Entry]:
        keys = product(("en", "zh"), "cba", "0123")
        return [Entry(id=c + n, category=c, language=lang, prompt="?") for lang, c, n in keys]

    def check(self, entry: Entry, episode: Episode) -> Any:
        return self.verdict


def test_two_members_are_a_whole_benchmark(write: Write) -> None:
    mine = make_benchmark(write(), {})
    (entry,) = mine.dataset()
    assert entry == Entry("mine", "mine", "", "a", {}, "1", "a", "?")
    context = EpisodeContext(RoleModel(FakeEngine({"default": "1"}), Sampling()))
    episode = asyncio.run(mine.run(entry, context))
    assert mine.verdicts(entry, episode) == {"correct": Verdict(True)}
    assert not mine.interactive(entry)
    plan(write())
    # An edited file is another class.
    assert benchmark_class(write()) is type(mine)
    assert benchmark_class(write(groups="groups = {}")).__module__ != type(mine).__module__


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("import no_such_package", "No module named 'no_such_package'"),
        ("Mine = 1", "not a subclass of Benchmark"),
        ("", "has no Mine"),
    ],
)
def test_a_file_without_a_class_is_refused(tmp_path: Path, text: str, line: str) -> None:
    (tmp_path / "file.py").write_text(text)
    with pytest.raises(UserError, match=line) as refused:
        benchmark_class(f"{tmp_path}/file.py:Mine")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("member", "line"),
    [
        ("name = ''", "the name of"),
        ("name = 'acebench'", "the name of an installed benchmark"),
        ("rule_sets = ('right', 'id')", "a rule set cannot be called 'id'"),
        ("class Options(BaseModel): pass", "Options is not a subclass"),
        ("groups = {'Accuracy': ['a']}", "a group cannot be called 'Accuracy'"),
        ("def run(self, entry, context): return 1", "run must be async def run"),
    ],
)
def test_a_class_of_the_wrong_shape_is_refused(write: Write, member: str, line: str) -> None:
    with pytest.raises(UserError, match=re.escape(line)):
        benchmark_class(write(member=member))


@pytest.mark.parametrize(
    ("entries", "line"),
    [
        ("Entry(id='a', prompt='?'), Entry(id='a', prompt='!')", "share the language, category"),
        ("Entry(id='a')", "has no prompt"),
        ("Entry(id='\\ud800', prompt='?')", "its id is"),
        ("{'id': 'a'}", "entries returned a dict"),
        ("Entry(id='a', prompt='?', gold=(1, 2))", "its gold is not JSON: tuples would become"),
        ("Entry(id='a', prompt=[{'content': 'x'}])", "its prompt is not a list of messages"),
    ],
)
def test_entries_that_cannot_be_stored_are_refused(write: Write, entries: str, line: str) -> None:
    with pytest.raises(UserError, match=re.escape(line)):
        plan(write(entries=f"def entries(self): return [{entries}]"))


@pytest.mark.parametrize(
    ("member", "line"),
    [
        ("def entries(self): return {}['x']", "entries fails with KeyError: 'x' (mine.py:8)"),
        ("def __init__(self, options): {}['x']", "the constructor fails with KeyError"),
        ("def prompt(self, entry): return '?'", "its prompt is not a list of messages"),
        ("def tools(self, entry): return {'f': 1}", "its tools are not a list of tools"),
        ("def ready(self, *, named): {}['x']", "ready fails with KeyError"),
        ("def roles(self): return {'user': 'other'}", "'other' is not a role"),
    ],
)
def test_an_exception_of_the_class_is_one_line(write: Write, member: str, line: str) -> None:
    with pytest.raises(UserError, match=re.escape(line)) as refused:
        plan(write(member=member))
    assert "\n" not in str(refused.value)


def test_texts_and_options_are_in_the_identity() -> None:
    class Optional(Mine):
        class Options(Section):
            data: str = "here"
            hard: bool = False

        def texts(self) -> dict[str, str]:
            return {"system": "Be quick."}

    easy, hard = (Optional.from_options({"hard": hard}) for hard in (False, True))
    assert easy.resolved() == {"data": "here", "hard": False}
    assert easy.identity() != hard.identity()
    assert easy.identity()["protocol"]["texts_sha256"]


def test_unknown_names_options_and_files_are_refused(write: Write, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no benchmark is called 'nine'.*installed: acebench"):
        benchmark_class("nine")
    with pytest.raises(UserError, match="cannot be read"):
        benchmark_class(f"{tmp_path}/none.py:Mine")
    with pytest.raises(UserError, match="unknown key 'data'; known keys: name, limit, ids"):
        make_benchmark(write(), {"data": "mini"})


def judge(verdict: Any) -> Verdict:
    mine = Mine()
    mine.verdict = verdict
    return mine.verdicts(mine.dataset()[0], Episode())["correct"]


@pytest.mark.parametrize(
    ("verdict", "line"),
    [
        (True, "check must return a verdict"),
        ({"other": Verdict(True)}, "check must return a verdict for each of correct"),
        (Verdict(False, None), "are not strings"),  # type: ignore[arg-type]
        (Verdict(False, metrics={"score": float("nan")}), "the metric 'score' is nan"),
        (Verdict(True, metrics={"score": 0.3}), "the verdict is valid, but its score is 0.3"),
    ],
)
def test_a_damaged_verdict_is_never_a_wrong_answer(verdict: Any, line: str) -> None:
    with pytest.raises(ValueError, match=line):
        judge(verdict)


def test_verdicts_are_completed_and_shares_are_bounded() -> None:
    assert judge(Verdict(False)) == Verdict(False, "wrong")
    assert judge(Verdict(None)) == Verdict(None), "no judge saw the answer"
    assert judge(Verdict(True)) == Verdict.graded(1) == Verdict(True)
    with pytest.raises(ValueError, match="not between 0 and 1"):
        Verdict.graded(1.5)


def test_an_episode_that_cannot_be_stored_is_refused() -> None:
    check_episode(Episode(generation_s=1))
    odd: list[Any] = ["text", Episode(messages=["x"])]  # type: ignore[list-item]
    odd += [Episode(**{name: None}) for name in ("output", "prompt_tokens")]  # type: ignore[arg-type]
    for episode in odd:
        with pytest.raises(TypeError):
            check_episode(episode)


def test_the_default_summary_has_categories_groups_languages_and_a_table() -> None:
    mine, verdict = Mine(), {"correct": Verdict.graded(0.25, "poor")}
    rows = [scored_row(e.category, e.id, verdict, language=e.language) for e in mine.dataset()]
    rows[0].status, rows[0].verdicts = "infra_error", {}
    summary = mine.summarize(rows, 0.0)
    assert list(summary["categories"]) == ["a", "b", "c"], "in the groups' order"
    assert list(summary["groups"]) == ["Small", "Large"], "without one that is not whole"
    assert summary["languages"]["en"]["categories"]["c"]["unscored"] == 1
    assert summary["incomplete"] == ["en/c: 1 of 4 rows not scored (1 infra_error)"]
    assert not summary["complete"]
    stats = summary["rules"]["correct"]
    assert (stats["accuracy"], stats["n"]) == (0.25, 23)
    assert stats["errors"] == {"poor": {"count": 23, "share": 1.0}}
    names = [line[0] for line in summary["table"]["lines"]]
    assert names == ["a", "b", "c", "Small", "Large", "language en", "language zh", "all"]


POINTS = "[ace_ray.benchmarks]\nmine = classes:Mine\nbroken = broken:Mine\n"


def test_benchmarks_of_installed_packages_are_offered(write, tmp_path, monkeypatch) -> None:
    names = [name for name, _ in list_classes()]
    built_in = ["acebench", "bfcl", "calls", "stabletoolbench", "stabletoolbench_judge", "tau2"]
    assert names == built_in
    Path(write().partition(":")[0]).rename(tmp_path / "classes.py")
    (tmp_path / "broken.py").write_text("import no_such_package\n")
    metadata = tmp_path / "offered-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: offered\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text(POINTS)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert benchmark_class("mine").name == "mine"
    with pytest.raises(UserError, match=r"broken cannot be imported.*no_such_package"):
        benchmark_class("broken")
    # Reports use an installed class with the recorded rule sets.
    rule_sets: dict[str, Any] = {"rule_sets": {"gone": ["a", "b"]}}
    recorded = Manifest.model_construct(**rule_sets)
    assert class_of("acebench", recorded).has_paper()
    assert class_of("gone", recorded).rule_sets == ("a", "b")


class Sums(Mine):
    """The third published sum is wrong; the fourth entry lacks a gold answer."""

    mistake: str = ""

    def entries(self) -> list[Entry]:
        texts = enumerate(("2", "4", "7", None), start=1)
        return [Entry(id=str(n), prompt=f"{n} + {n}", gold=gold) for n, gold in texts]

    def check(self, entry: Entry, episode: Episode) -> Verdict:
        if self.mistake == "unjudged":
            return Verdict(None)
        right = self.mistake == "all" or episode.output == str(2 * int(entry.id))
        return Verdict(right, "wrong_sum")

    def gold(self, entry: Entry) -> Gold | None:
        if entry.gold is None:
            return None
        mangled = Episode(output=f"{entry.gold}1")
        return Gold(Episode(output=entry.gold), mangled, may_fail=entry.id == self.mistake)


def test_surprising_gold_answers_are_named(monkeypatch, capsys) -> None:
    def printed() -> list[str]:
        return capsys.readouterr().out.splitlines()

    assert not Sums.check_data("")
    assert printed() == [
        "mine: 3 answers, valid: gold 2 correct; wrong copies 0 correct",
        "3: the gold answer is wrong_sum (correct)",
        "3 gold answers and 3 wrong copies: 1 unexpected verdicts",
    ]
    monkeypatch.setattr(Sums, "mistake", "3")
    assert Sums.check_data("")
    assert printed()[-1] == "3 gold answers and 3 wrong copies: 0 unexpected verdicts"
    monkeypatch.setattr(Sums, "mistake", "unjudged")
    assert not Sums.check_data("")
    assert printed()[-2] == "3: the gold answer is not judged (correct)"
    monkeypatch.setattr(Sums, "mistake", "all")
    assert not Sums.check_data("")
    assert "1: a deliberately wrong copy is valid (correct)" in printed()
