"""Outputs and prompts made to break things: each becomes a row, in bounded time and memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from tests.faults.fault_runs import Driver, Run

pytestmark = [pytest.mark.ray, pytest.mark.nightly]

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


@pytest.fixture(scope="module")
def hostile(tmp_path_factory) -> Iterator[tuple[Run, Driver]]:
    with Run(tmp_path_factory.mktemp("hostile")) as run:
        asked = run.questions
        run.write(
            engine={
                "repeat": {
                    question: {"text": text, "times": times}
                    for question, (text, times) in zip(asked, OUTPUTS.values(), strict=False)
                },
                "endless": [asked[ENDLESS]],
            },
            episode_timeout_s=8.0,
            max_attempts=1,
        )
        yield run, run.to_the_end()


def test_every_one_is_a_row(hostile):
    run, driver = hostile
    assert driver.code == 75, driver.text
    rows = run.rows()
    assert len(rows) == 12
    assert Counter(row["status"] for row in rows) == {"scored": 11, "infra_error": 1}
    assert run.summary()["timing"]["engine_deaths"] == []
    assert run.summary()["timing"]["passes"] == 1


@pytest.mark.parametrize("name", OUTPUTS)
def test_a_hostile_output_is_judged_and_wrong(hostile, name):
    row = hostile[0].row(list(OUTPUTS).index(name))
    assert row["status"] == "scored"
    assert (row["official_valid"], row["strict_valid"]) == (False, False)
    assert row["official_error_type"]
    assert len(row["official_error"]) < 10_000


def test_what_the_model_said_is_kept(hostile):
    run, _ = hostile
    assert run.row(0)["output"] == "x" * 10_000_000
    assert run.row(list(OUTPUTS).index("null bytes"))["output"] == "\0" * 100_000
    surrogates = run.row(list(OUTPUTS).index("lone surrogates"))
    assert surrogates["output"] == "\ufffd" * 1_000


def test_an_endless_generation_ends_at_its_deadline(hostile):
    row = hostile[0].row(ENDLESS)
    assert (row["status"], row["error_class"]) == ("infra_error", "EpisodeTimeout")
    assert "episode_timeout_s = 8" in row["error"]


def test_prompts_over_the_context_are_skipped(make_run):
    run = make_run()
    rows = run.to_the_end()
    assert rows.code == 0, rows.text
    lengths = sorted(row["prompt_tokens"] for row in run.rows())
    limited = make_run(engine={"max_model_len": lengths[5]})
    driver = limited.to_the_end()
    assert driver.code == 0, driver.text
    assert "no headline number" in driver.text
    skipped = [row for row in limited.rows() if row["status"] == "skipped"]
    assert len(skipped) == sum(length >= lengths[5] for length in lengths)
    assert {row["error_class"] for row in skipped} == {"PromptTooLong"}
