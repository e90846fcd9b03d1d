"""`ace-ray gate` answers by exit code, and errs at most as often as its confidence says."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import yaml

from ace_ray.reports.gate import Check, Decision, limit_check
from ace_ray.reports.significance import change_of
from tests.report.builders import block, change_manifest, write_run

BOOL = "normal_atom_bool"


def run_of(folder: Path, right: int, of: int, category: str = BOOL, **settings: Any) -> Path:
    return write_run(folder, block("en", category, right, of), **settings)


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Path, Path]:
    """Two runs: 360 and 300 of 400 rows right."""
    return run_of(tmp_path / "a", 360, 400), run_of(tmp_path / "b", 300, 400)


def policy(tmp_path: Path, **tree: Any) -> Path:
    path = tmp_path / "policy.yaml"
    path.write_text(yaml.safe_dump(tree))
    return path


ANSWERS = [
    ({"metrics": [{"at_least": 0.7}]}, 0, "GO"),
    ({"metrics": [{"at_least": 0.9}]}, 3, "NO-GO"),
    ({"metrics": [{"at_least": 0.76}]}, 4, "INCONCLUSIVE"),
    ({"metrics": [{"at_most": 0.8}]}, 0, "GO"),
    ({"metrics": [{"at_most": 0.7}]}, 3, "NO-GO"),
    ({"metrics": [{"at_least": 1}]}, 3, "NO-GO"),
    ({"metrics": [{"rise_at_most": 0}]}, 0, "GO"),
    ({"metrics": [{"drop_at_most": 0.3}]}, 0, "GO"),
    ({"metrics": [{"drop_at_most": 0.02}]}, 3, "NO-GO"),
    ({"unscored_at_most": 0.0}, 0, "GO"),
    ({"equal": ["identity.sampling", "conditions"]}, 0, "GO"),
    ({"equal": ["run_id"]}, 3, "NO-GO"),
]


@pytest.mark.parametrize(("tree", "code", "answer"), ANSWERS)
def test_exit_code_follows_the_answer(tree, code, answer, runs, tmp_path, invoke) -> None:
    command = ("gate", policy(tmp_path, **tree), runs[1], "--against", runs[0], "--json")
    result = invoke(*command, "--junit", tmp_path / "gate.xml")
    assert result.code == code, result.stderr
    decision = json.loads(result.stdout)
    assert decision["answer"] == answer
    assert ("more rows would decide" in decision["checks"][0]["reason"]) == (code == 4)
    suite = ElementTree.parse(tmp_path / "gate.xml").getroot()
    assert suite.get("failures") == str(int(code == 3))
    assert suite.get("errors") == str(int(code == 4))


@pytest.mark.parametrize(
    ("limits", "code"), [((0.76, 0.9), 3), ((0.7, 0.76), 4)], ids=["missed", "open"]
)
def test_the_worst_limit_decides(
    limits: Any, code: int, runs: Any, tmp_path: Path, invoke: Any
) -> None:
    policy_file = policy(tmp_path, metrics=[{"at_least": limit} for limit in limits])
    assert invoke("gate", policy_file, runs[1]).code == code


@pytest.mark.parametrize(
    ("category", "confidence", "share", "drop"),
    [
        (BOOL, 0.95, "[71.7, 98.2]", "[-28.3, +6.1]"),
        (BOOL, 0.99, "[64.2, 99.2]", "[-35.8, +12.5]"),
        # Entries of one task count for less.
        ("agent_multi_step", 0.95, "[52.6, 99.8]", "[-47.4, +26.2]"),
    ],
)
def test_each_bound_errs_at_most_as_often_as_its_confidence_says(
    category: str, confidence: float, share: str, drop: str, tmp_path: Path, invoke: Any
) -> None:
    """18 and 20 of 20 are right: exact bounds of the share, as scipy's, and of the drop."""
    base, run = (run_of(tmp_path / str(right), right, 20, category) for right in (20, 18))
    metric = {"at_least": 0.5, "drop_at_most": 0.5, "confidence": confidence}
    result = invoke("gate", policy(tmp_path, metrics=[metric]), run, "--against", base, "--json")
    assert [check["reason"] for check in json.loads(result.stdout)["checks"]] == [
        f"90.0 {share}, n=20",
        f"-10.0 points {drop}, n=20",
    ]


@pytest.mark.parametrize(
    ("value", "interval", "answer", "words"),
    [
        (0.55, (0.5, 0.6), "GO", ""),
        (0.45, (0.4, 0.5), "INCONCLUSIVE", "more rows"),
        (0.45, (0.4, 0.499), "NO-GO", ""),
        # Three times as wide as the distance needs nine times as many rows.
        (0.625, (0.25, 0.6875), "INCONCLUSIVE", "about 801 more rows"),
        (0.375, (0.3125, 0.75), "INCONCLUSIVE", "about 801 more rows"),
    ],
)
def test_the_whole_interval_decides(value: float, interval: Any, answer: str, words: str) -> None:
    def scaled(alpha: float, growth: float = 1.0) -> tuple[float, float]:
        low, high = ((end - value) / growth**0.5 for end in interval)
        return value + low, value + high

    estimate: Any = SimpleNamespace(value=value, interval=scaled)
    check = limit_check("", estimate, 0.5, 0.05, 100, "at_least")
    assert (check.answer, words in check.reason) == (answer, True)


@pytest.mark.parametrize("limit", [5e-324, 1e-200, 1e-7])
@pytest.mark.parametrize("kind", ["at_least", "drop_at_most"])
def test_a_tiny_limit_is_not_decided_by_more_rows(kind, limit, tmp_path, invoke) -> None:
    run, base = (run_of(tmp_path / name, 0, 9) for name in ("a", "b"))
    policy_file = policy(tmp_path, metrics=[{kind: limit}])
    result = invoke("gate", policy_file, run, "--against", base)
    assert (result.code, result.stderr) == (4, "")
    assert "more rows may not decide" in result.stdout


def test_junit_file_is_xml_whatever_a_run_contains(tmp_path: Path, invoke: Any) -> None:
    runs = [run_of(tmp_path / version, 1, 2) for version in ("1", "2")]
    for run in runs:
        model = change_manifest(run, sessions=[{"reading": {"vllm": run.name}}])["model"]
        change_manifest(run, model=model | {"source": "m\x1b\x00\ufffe<"})
    command = ("gate", policy(tmp_path, equal=["reading"]), runs[1], "--against", runs[0])
    assert invoke(*command, "--junit", tmp_path / "gate.xml").code == 3
    failure = ElementTree.parse(tmp_path / "gate.xml").find(".//failure")
    assert failure is not None
    assert "\\x1b\\x00\\ufffe" in failure.get("message", "")
    decision = Decision("GO", [Check("\0", "NO-GO", "\ufffe")])
    assert ElementTree.fromstring(decision.as_junit()).get("failures") == "1"


def test_incomplete_run_exits_with_75(tmp_path: Path, invoke: Any) -> None:
    run = run_of(tmp_path / "run", 5, 5, missing=1, finished=False)
    junit = tmp_path / "gate.xml"
    result = invoke("gate", policy(tmp_path, metrics=[{"at_least": 0.1}]), run, "--junit", junit)
    assert result.code == 75
    assert 'errors="1"' in junit.read_text()


MISTAKES = [
    ({"metrics": [{"language": "fr", "at_least": 0.5}]}, "has no language 'fr'"),
    ({"metrics": [{"metric": "process", "at_least": 0.5}]}, "no row with this metric"),
    ({"metrics": [{"group": "nope", "at_least": 0.5}]}, "has no group 'nope'"),
    ({"metrics": [{"rules": "nope", "at_least": 0.5}]}, "has no rule set 'nope'"),
    ({"metrics": [{"benchmark": "nope", "at_least": 0.5}]}, "no shared benchmark 'nope'"),
    ({"metrics": [{}]}, "needs at_least or drop_at_most"),
    ({"metrics": [{"drop_at_most": 0.1}]}, "name one with --against"),
    ({"metrics": [{"metric": "trigger_f1", "at_least": 0.1}]}, "'trigger_f1' compares two runs"),
    ({"metrics": [{"metric": "trigger_f1", "drop_at_most": 0.1}]}, "takes no 'drop_at_most'"),
    ({"at_leats": 1}, "at_leats"),
    ({}, "sets no limit"),
]


@pytest.mark.parametrize(("tree", "message"), MISTAKES)
def test_a_wrong_policy_is_one_line(tree, message, runs, tmp_path, invoke) -> None:
    invoke("gate", policy(tmp_path, **tree), runs[0]).refused(message)


def test_another_sampling_is_refused_unless_the_policy_allows_it(
    runs: tuple[Path, Path], tmp_path: Path, invoke: Any
) -> None:
    short = run_of(tmp_path / "c", 300, 400, sampling={"max_tokens": 9})
    for across, code in (([], 2), (["sampling"], 0)):
        file = policy(tmp_path, metrics=[{"drop_at_most": 0.3}], across=across)
        result = invoke("gate", file, short, "--against", runs[0])
        (first, *_) = (result.stdout or result.stderr).splitlines()
        assert result.code == code
        assert "sampling: max_tokens is 1200 in " in first.replace("sampling.", "sampling: ")
        assert ("add across: [sampling] to the policy" in first) == (code == 2)


def test_runs_without_shared_rows_are_refused(tmp_path: Path, invoke: Any) -> None:
    first = run_of(tmp_path / "a", 5, 5)
    second = run_of(tmp_path / "b", 5, 5, "normal_atom_enum")
    policy_file = policy(tmp_path, metrics=[{"drop_at_most": 0.1}])
    assert invoke("compare", first, second, "--explain", "--allow-different").code == 2
    invoke("gate", policy_file, first, "--against", second).refused("share no")


def test_a_policy_of_another_kind_and_a_remote_junit_are_refused(runs, tmp_path, invoke) -> None:
    (path := tmp_path / "list.yaml").write_text("- metrics\n")
    invoke("gate", path, runs[0]).refused(f"{path}: is not a mapping")
    command = ("gate", policy(tmp_path, unscored_at_most=0), runs[0])
    invoke(*command, "--junit", "s3://bucket/gate.xml").refused("name a local file")


def test_rows_without_a_verdict_are_counted(tmp_path: Path, invoke: Any) -> None:
    full, rest = block("en", BOOL, 100, 100), block("en", "normal_atom_enum", 1, 1)
    failed = block("en", BOOL, 0, 100, status="infra_error")
    base, half, none = (
        write_run(tmp_path / name, rows)
        for name, rows in (("a", full + rest), ("b", full[:40] + failed[40:]), ("c", failed + rest))
    )
    metric = {"group": BOOL, "at_least": 0.5, "drop_at_most": 0.2}
    limits = policy(tmp_path, metrics=[metric])
    result = invoke("gate", limits, half, "--against", base).ok()
    counted = [line.partition("; ")[2] for line in result.stdout.splitlines()[:2]]
    assert counted == ["60 of 100 have no verdict", "60 of 100 have no verdict in both runs"]
    result = invoke("gate", limits, none, "--against", base)
    assert result.code == 3, result.stderr
    assert result.stdout.count("no row of the run has a verdict") == 2
    for most, code in ((0.6, 0), (0.5, 3)):
        assert invoke("gate", policy(tmp_path, unscored_at_most=most), half).code == code


def test_other_parsers_are_not_equal(tmp_path: Path, invoke: Any) -> None:
    one, twice, two = (run_of(tmp_path / versions, 1, 2) for versions in ("1", "11", "12"))
    for run in (one, twice, two):
        change_manifest(run, sessions=[{"reading": {"vllm": version}} for version in run.name])
    command = ("gate", policy(tmp_path, equal=["reading"]))
    assert invoke(*command, twice, "--against", one).code == 0
    result = invoke(*command, two, "--against", one)
    assert result.code == 3, result.stderr
    assert "vllm is" in result.stdout


@pytest.mark.parametrize(
    ("drop", "least", "max_rate"),
    [(0.0, 0.8, 1.0), (0.01, 0.5, 0.8), (0.02, 0.0, 0.064), (0.05, 0, 0)],
)
def test_simulated_pairs_go_at_the_nominal_rate(drop: float, least: float, max_rate: float) -> None:
    """At a true drop of the limit, 2 points, at most 5 % and two standard errors say GO."""
    draw, rows, pairs, flips = np.random.default_rng(7), 4000, 1000, 0.10
    answers = []
    for _ in range(pairs):
        drawn = draw.random(rows)
        moves = (drawn > 1 - (flips - drop) / 2).astype(float) - (drawn < (flips + drop) / 2)
        change = change_of(moves, np.ones(rows), rows)
        check = limit_check("", change, 0.02, 0.05, rows, "drop_at_most")
        answers.append(check.answer)
    assert least <= answers.count("GO") / pairs <= max_rate
