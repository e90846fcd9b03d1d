"""Outputs and prompts made to break things: each becomes a row, in bounded time and memory."""

from collections import Counter

import pytest

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


def test_hostile_outputs_are_judged_and_an_endless_one_times_out(make_run):
    run = make_run(episode_timeout_s=8.0, max_attempts=1)
    repeat = {
        question: {"text": text, "times": times}
        for question, (text, times) in zip(run.questions, OUTPUTS.values(), strict=False)
    }
    run.write(engine={"repeat": repeat, "endless": [run.questions[ENDLESS]]})
    driver = run.to_the_end()
    assert driver.code == 75, driver.text
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
