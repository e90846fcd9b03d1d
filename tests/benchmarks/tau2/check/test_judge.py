"""The judge of expectations: asked where a reward needs it, read with care."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from ace_ray.benchmarks.tau2.benchmark import Tau2
from ace_ray.benchmarks.tau2.check.judge import TRIES, JudgeError, read
from ace_ray.records import Entry
from tests.benchmarks.tau2.scripted import Scripted, entry_of, made, play

pytestmark = pytest.mark.usefixtures("package")


def results(*met: Any) -> str:
    found = [
        {"expectation": number, "reasoning": "r", "met": one}
        for number, one in enumerate(met, start=1)
    ]
    return json.dumps({"results": found})


def judged(expectations: list[str]) -> tuple[Tau2, Entry]:
    benchmark = made(domains=["airline"], judge="same")
    entry = entry_of(benchmark, "airline")
    basis = ["COMMUNICATE", "NL_ASSERTION"]
    gold = {"nl_assertions": expectations, "reward_basis": basis}
    return benchmark, replace(entry, gold=gold)


@pytest.mark.parametrize(("met", "valid"), [((True, True), True), ((True, False), False)])
def test_all_expectations_have_to_be_met(met: tuple[bool, bool], valid: bool) -> None:
    benchmark, entry = judged(["be nice", "be quick"])
    judge = Scripted("Here you are: " + results(*met))
    episode = play(benchmark, entry, Scripted("Yes."), Scripted("Hi", "###STOP###"), judge)
    assert [one["met"] for one in episode.state["judge"]["results"]] == list(met)
    assert "1. be nice\n2. be quick" in judge.asked[0][1]["content"]
    verdict = benchmark.verdicts(entry, episode)["official"]
    assert verdict.valid == valid
    assert verdict.metrics["nl_assertion"] == float(valid)


def test_a_judge_that_answers_neither() -> None:
    benchmark, entry = judged(["be nice"])
    judge = Scripted("Perhaps.")
    with pytest.raises(JudgeError, match="no verdict on each expectation"):
        play(benchmark, entry, Scripted("Yes."), Scripted("Hi", "###STOP###"), judge)
    assert len(judge.asked) == TRIES


def test_a_judge_that_answers_when_asked_again() -> None:
    benchmark, entry = judged(["be nice"])
    judge = Scripted(results(), results("yes"), results(True))
    episode = play(benchmark, entry, Scripted("Yes."), Scripted("Hi", "###STOP###"), judge)
    assert benchmark.verdicts(entry, episode)["official"].valid
    assert len(judge.asked[2]) == 4


def test_nobody_is_asked_where_nothing_depends_on_it() -> None:
    benchmark, entry = judged(["be nice"])
    judge = Scripted(results(False))
    agent, user = Scripted(""), Scripted("Hi")
    assert play(benchmark, entry, agent, user, judge).state["judge"] is None
    plain = entry_of(benchmark, "airline")
    assert plain.gold is not None
    assert plain.gold["nl_assertions"]
    episode = play(benchmark, plain, Scripted("Yes."), Scripted("Hi", "###STOP###"), judge)
    assert episode.state["judge"] is None
    assert judge.asked == []


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", '{"results": 3}', '{"results": [3]}', results("true"), results(1),
     results(True, True), results(True).replace("1", "2"),
     '{"results": [{}]}', "[" * 100_000, "{" * 100_000 + "}" * 100_000],
)  # fmt: skip
def test_what_is_no_verdict(text: str) -> None:
    assert read(text, 1) is None
