"""Rows that fail, hang, crash engines or checkers, are hostile or slow: each has its own end."""

import json
from collections import Counter

import pytest

from ace_ray.benchmarks.acebench.data.loader import load, locate
from ace_ray.storage.object_store import LocalStore
from ace_ray.storage.session_log import read_logs

pytestmark = [pytest.mark.ray, pytest.mark.nightly]

QUARANTINED = (0, "quarantined", "EngineKilled")


@pytest.mark.parametrize(
    ("fault", "end", "cause"),
    [
        ("hang", QUARANTINED, "no answer for"),
        ("die", QUARANTINED, "told to die"),
        ("abort", QUARANTINED, "its process crashed: Fatal Python error: Aborted"),
        # Nothing distinguishes it from an operator who kills the engine each time.
        ("crash", (75, "infra_error", "KilledFromOutside"), "its process was killed"),
    ],
)
def test_only_the_row_that_ends_engines_is_quarantined(make_run, fault, end, cause) -> None:
    run = make_run()
    run.write(engine={fault: {run.questions[6]: ""}, "delay_s": 0.2})
    if fault == "hang":
        run.write(engine_stall_timeout_s=3.0)
    driver = run.to_the_end()
    row = run.row(6)
    assert (driver.code, row["status"], row["error_class"]) == end, driver.text
    assert "no headline number" in driver.text
    deaths = run.summary()["timing"]["engine_deaths"]
    assert len(deaths) == sum(cause in death for death in deaths) == 5, deaths
    stored = [json.loads(line) for line in read_logs(LocalStore(str(run.path)))]
    died = [line for line in stored if line.get("event") == "engine_died"]
    assert [cause in line["message"] and bool(line["engine_log"]) for line in died] == [True] * 5
    assert {run.row(entry)["status"] for entry in range(12) if entry != 6} == {"scored"}


FATAL = '''
import os, signal
from ace_ray.benchmarks.base import Benchmark
from ace_ray.types import Entry, Verdict


class Fatal(Benchmark):
    """Ten questions. The check of the fourth kills its process, the check of the sixth raises."""

    name = "fatal"
    rule_sets = ("official", "strict")

    def entries(self):
        return [Entry(id=f"q{i}", prompt=f"q{i}") for i in range(10)]

    def check(self, entry, episode):
        if entry.id == "q3":
            os.kill(os.getpid(), signal.SIGKILL)
        if entry.id == "q5":
            raise RecursionError("too deep")
        return {rules: Verdict(True) for rules in ("official", "strict")}
'''


def test_row_that_kills_checkers_is_quarantined(make_run, monkeypatch):
    run = make_run()
    info = run.folder / "fatal-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: fatal\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[ace_ray.benchmarks]\nfatal = fatal:Fatal\n")
    (run.folder / "fatal.py").write_text(FATAL)
    monkeypatch.setenv("PYTHONPATH", str(run.folder))
    run.write(benchmarks=["fatal"], rows_per_block=10, max_attempts=2)

    run.to_the_end(code=75)
    rows = {row["id"]: row for row in run.rows()}
    assert len(rows) == 10
    killer, raiser = rows.pop("q3"), rows.pop("q5")
    assert (killer["status"], killer["error_class"]) == ("quarantined", "CheckerKilled")
    assert killer["output"] == raiser["output"] == "[]"
    assert (raiser["status"], raiser["error_class"]) == ("infra_error", "CheckFailed")
    assert raiser["error"] == "RecursionError: too deep"
    assert raiser["attempts"] == 1, "a failed check is not evaluated again"
    assert {row["status"] for row in rows.values()} == {"scored"}
    assert all(row["official_valid"] and row["strict_valid"] for row in rows.values())
    summary = run.summary()
    assert (summary["scored"], summary["quarantined"], summary["infra_error"]) == (8, 1, 1)


OUTPUTS = {
    "10 MB of text": ["x", 10_000_000],
    "10 MB that looks like a call": ["[f(a='", 1_700_000],
    "nested brackets": ["[", 100_000],
    "nested braces in a call": ["[f(a=" + "{'a': " * 50, 2_000],
    "null bytes": ["\0", 100_000],
    "lone surrogates": ["\ud800", 1_000],
    "a million calls": ["f(a=1), ", 1_000_000],
    "a number of a million digits": ["9", 1_000_000],
    "an unclosed thought": ["<think>", 200_000],
}
ENDLESS = len(OUTPUTS)


def test_hostile_outputs_are_judged_and_an_endless_one_times_out(make_run):
    run = make_run(episode_timeout_s=8.0, max_attempts=1)
    repeat = {
        question: {"text": text, "times": times}
        for question, (text, times) in zip(run.questions, OUTPUTS.values(), strict=False)
    }
    run.write(engine={"repeat": repeat, "endless": [run.questions[ENDLESS]]})
    run.to_the_end(code=75)
    assert Counter(row["status"] for row in run.rows()) == {"scored": 11, "infra_error": 1}
    assert run.summary()["timing"]["engine_deaths"] == []
    assert run.summary()["timing"]["passes"] == 1
    rows = {name: run.row(number) for number, name in enumerate(OUTPUTS)}
    for name, row in rows.items():
        assert row["status"] == "scored", name
        assert (row["official_valid"], row["strict_valid"]) == (False, False), name
        assert row["official_error_type"]
        assert len(row["official_error"]) < 10_000
    assert rows["10 MB of text"]["output"] == "x" * 10_000_000
    assert rows["null bytes"]["output"] == "\0" * 100_000
    assert rows["lone surrogates"]["output"] == "\ufffd" * 1_000
    late = run.row(ENDLESS)
    assert (late["status"], late["error_class"]) == ("infra_error", "EpisodeTimeout")
    assert "timed out after 8 s (episode_timeout_s)" in late["error"]


def test_prompts_over_the_context_are_skipped(make_run):
    run = make_run()
    run.to_the_end(code=0)
    lengths = sorted(row["prompt_tokens"] for row in run.rows())
    limited = make_run(engine={"max_model_len": lengths[5]})
    driver = limited.to_the_end(code=0)
    assert "no headline number" in driver.text
    skipped = [row for row in limited.rows() if row["status"] == "skipped"]
    assert len(skipped) == sum(length >= lengths[5] for length in lengths)
    assert {row["error_class"] for row in skipped} == {"PromptTooLong"}


PLACES = 16


def test_slow_rows_do_not_keep_others_from_the_engine(make_run):
    """All other rows have begun when the first slow row times out."""
    slow = PLACES - 4
    questions = [
        entry.data["question"]
        for entry in load(locate("mini"), languages=["en"])
        if not entry.category.startswith("agent")
    ]
    run = make_run(concurrency=PLACES, max_attempts=1, rows_per_block=8, episode_timeout_s=15.0)
    benchmark = {"name": "acebench", "languages": ["en"], "categories": ["normal", "special"]}
    endless = questions[:: len(questions) // slow][:slow]
    run.write(benchmarks=[benchmark], engine={"endless": endless})
    driver = run.to_the_end()
    rows = run.rows()
    late = [row for row in rows if row["error_class"] == "EpisodeTimeout"]
    assert (len(rows), len(late)) == (60, slow), driver.text
    first_end = min(row["started_at"].timestamp() + row["duration_s"] for row in late)
    assert [row["id"] for row in rows if row["started_at"].timestamp() >= first_end] == []
