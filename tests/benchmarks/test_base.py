"""What a benchmark class must say, what it gets for nothing, and how it is refused."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from ace_ray.benchmarks.base import Benchmark
from ace_ray.benchmarks.context import EpisodeContext, RoleModel
from ace_ray.benchmarks.registry import benchmark_class, installed, make_benchmark, recorded_class
from ace_ray.config.schema import Section
from ace_ray.errors import UserError
from ace_ray.models.fake import FakeEngine
from ace_ray.storage.rows import ResultRow
from ace_ray.types import Entry, Episode, Sampling, Verdict

HEAD = """
from ace_ray.benchmarks.base import Benchmark
from ace_ray.types import Entry, Verdict
class Mine(Benchmark):
    name = "mine"
"""
ENTRIES = "    def entries(self): return [Entry(id='a', prompt='?', gold='1')]\n"
CHECK = "    def check(self, entry, episode): return Verdict(episode.output == entry.gold)\n"


def local(folder: Path, text: str) -> str:
    file = folder / "mine.py"
    file.write_text(text)
    return f"{file}:Mine"


class Mine(Benchmark):
    """Three categories in two languages."""

    name = "mine"
    groups = {"Small": ["a", "b"], "Large": ["c"], "Absent": ["z"]}  # noqa: RUF012 - as users do

    def entries(self) -> list[Entry]:
        return [
            Entry(id=f"{category}{number}", category=category, language=language, prompt="?")
            for language in ("en", "zh")
            for category in "cba"
            for number in range(4)
        ]

    def check(self, entry: Entry, episode: Episode) -> Verdict:
        return Verdict.graded(float(episode.output), "poor")


def rows(benchmark: Benchmark, answer: str) -> list[ResultRow]:
    found = []
    for number, entry in enumerate(benchmark.dataset()):
        row = ResultRow(
            str(number), "mine", entry.category, entry.language, entry.id, entry.group, 0, "scored"
        )
        row.verdicts = benchmark.verdicts(entry, Episode(output=answer))
        found.append(row)
    return found


def test_two_members_are_a_whole_benchmark(tmp_path: Path) -> None:
    mine = make_benchmark(local(tmp_path, HEAD + ENTRIES + CHECK), {})
    (entry,) = mine.dataset()
    assert entry == Entry("mine", "mine", "", "a", {}, "1", "a", "?")
    context = EpisodeContext(RoleModel(FakeEngine({"default": "1"}), Sampling()))
    episode = asyncio.run(mine.run(entry, context))
    assert mine.verdicts(entry, episode) == {"correct": Verdict(True)}
    assert not mine.interactive(entry)
    assert mine.resolved() == {}
    assert re.fullmatch("[0-9a-f]{64}", mine.identity()["data_sha256"])


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (HEAD + ENTRIES, "lacks check"),
        (HEAD, "lacks check and entries"),
        (HEAD + "    name = ''\n" + ENTRIES + CHECK, "the name of"),
        (HEAD + "    rule_sets = 'correct'\n" + ENTRIES + CHECK, "rule_sets"),
        (HEAD + "    rule_sets = ('A',)\n" + ENTRIES + CHECK, "rule_sets"),
        ("import no_such_package\n" + HEAD, "No module named 'no_such_package'"),
        ("def\n", "SyntaxError"),
        ("raise SystemExit(3)\n", "SystemExit"),
        ("Mine = 1\n", "no subclass of Benchmark"),
        ("", "has no Mine"),
    ],
)
def test_a_class_that_lacks_something_is_refused_in_a_line(
    tmp_path: Path, text: str, line: str
) -> None:
    with pytest.raises(UserError, match=re.escape(line)) as refused:
        benchmark_class(local(tmp_path, text))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("entries", "line"),
    [
        ("[Entry(id='a', prompt='?'), Entry(id='a', prompt='!')]", "share the language, category"),
        ("[Entry(id='a', prompt='?', gold={1, 2})]", "is not JSON"),
        ("[Entry(id='a', prompt='?', data={'x': float})]", "is not JSON"),
        ("[Entry(id='a')]", "has no prompt"),
        ("[Entry(prompt='?')]", "its id is ''"),
        ("[Entry(id=1, prompt='?')]", "its id is 1"),
    ],
)
def test_entries_that_cannot_be_are_refused_in_a_line(
    tmp_path: Path, entries: str, line: str
) -> None:
    text = f"{HEAD}    def entries(self): return {entries}\n{CHECK}"
    mine = make_benchmark(local(tmp_path, text), {})
    with pytest.raises(UserError, match=line):
        mine.dataset()


def test_unknown_names_options_and_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no benchmark is called 'nine'.*installed: acebench"):
        benchmark_class("nine")
    with pytest.raises(UserError, match="cannot be read"):
        benchmark_class(f"{tmp_path}/none.py:Mine")
    with pytest.raises(UserError, match="unknown key 'colour'"):
        make_benchmark(local(tmp_path, HEAD + ENTRIES + CHECK), {"colour": 1})


def test_an_edited_file_is_another_class(tmp_path: Path) -> None:
    first = benchmark_class(local(tmp_path, HEAD + ENTRIES + CHECK))
    assert benchmark_class(local(tmp_path, HEAD + ENTRIES + CHECK)) is first
    other = benchmark_class(local(tmp_path, HEAD + ENTRIES + CHECK + "    groups = {}\n"))
    assert other.__module__ != first.__module__


def test_options_are_a_part_of_the_identity() -> None:
    class Options(Section):
        data: str = "here"
        hard: bool = False

    class Optional(Mine):
        def texts(self) -> dict[str, str]:
            return {"system": "Be quick."}

    Optional.Options = Options
    easy, hard = (Optional.from_options({"hard": hard}) for hard in (False, True))
    assert easy.resolved() == {"data": "here", "hard": False}
    assert easy.identity() != hard.identity()
    assert "data" not in easy.identity()["protocol"]
    assert easy.identity()["protocol"]["texts_sha256"]


def test_checks_must_give_what_the_class_says() -> None:
    class Two(Mine):
        rule_sets = ("loose", "tight")

        def check(self, entry: Entry, episode: Episode) -> Any:
            return {"loose": Verdict(True)} if episode.output else Verdict(True)

    two = Two()
    for output in ("", "x"):
        with pytest.raises(ValueError, match="loose, tight"):
            two.verdicts(two.dataset()[0], Episode(output=output))


def test_shares_are_scores() -> None:
    mine = Mine()
    summary = mine.summarize(rows(mine, "0.25"), 0.0)
    stats = summary["rules"]["correct"]
    assert (stats["accuracy"], stats["n"]) == (0.25, 24)
    assert stats["errors"] == {"poor": {"count": 24, "share": 1.0}}
    with pytest.raises(ValueError, match="not between 0 and 1"):
        Verdict.graded(1.5)
    assert Verdict.graded(1) == Verdict(True)


def test_the_default_summary_has_categories_groups_languages_and_a_table() -> None:
    mine = Mine()
    judged = rows(mine, "1")
    judged[0].status, judged[0].verdicts = "infra_error", {}
    summary = mine.summarize(judged, 0.0)
    assert list(summary["categories"]) == ["a", "b", "c"], "in the groups' order"
    assert list(summary["groups"]) == ["Small", "Large"], "without one that is not whole"
    assert summary["languages"]["en"]["categories"]["c"]["unscored"] == 1
    assert summary["incomplete"] == ["en/c: 1 of 4 rows not scored (1 infra_error)"]
    assert not summary["complete"]
    assert summary["table"]["header"] == ["category", "n", "correct"]
    names = [line[0] for line in summary["table"]["lines"]]
    assert names == ["a", "b", "c", "Small", "Large", "language en", "language zh", "all"]
    assert summary["table"]["lines"][-1][2].startswith("100.0 % [")


def test_commands_that_a_benchmark_does_not_offer_are_refused() -> None:
    def say(line: str) -> None:
        raise AssertionError(line)

    for command in (
        lambda: Mine.import_data(Path("x"), say),
        lambda: Mine.pull_data(None, None, say),
        lambda: Mine.check_data("x", say),
    ):
        with pytest.raises(UserError, match="mine offers no data"):
            command()


def test_what_is_installed_is_whole() -> None:
    names = [name for name, _ in installed()]
    assert names == ["acebench", "bfcl", "stabletoolbench", "stabletoolbench_judge", "tau2"]
    assert recorded_class("acebench", ("official", "strict"), {}).has_paper()
    assert not recorded_class("acebench", ("other",), {}).has_paper()
    assert recorded_class("gone", ("a", "b"), {}).rule_sets == ("a", "b")
