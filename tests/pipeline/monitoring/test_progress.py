"""What is said while engines start."""

from __future__ import annotations

from collections import Counter

from ace_ray.pipeline.monitoring.counts import Progress, Tally, start_line


def test_a_start_says_what_the_engines_are_at() -> None:
    tally = Tally()
    view = Progress(5, print)
    assert view.line(tally) == "starting engines ... 0 s"
    tally.phases = Counter({"cache": 1, "weights": 3})
    assert view.line(tally) == "starting engines ... 0 s (3 weights, 1 cache)"


def test_what_a_start_took() -> None:
    facts = {"load_s": 41.2, "start_s": {"fetch": 0.1, "process": 28.6, "warm-up": 12.0}}
    assert start_line(facts) == (
        "the first engine is ready after 41 s: fetch 0 s, process 29 s, warm-up 12 s"
    )
    assert start_line({"load_s": 1, "start_s": {}}) == "the first engine is ready after 1 s"


def test_the_first_start_is_told_once() -> None:
    tally, lines = Tally(), list[str]()
    tally.workers = [{"load_s": 2.0, "start_s": {"fetch": 2.0}}] * 2
    view = Progress(5, lines.append)
    view.show(tally)
    view.show(tally)
    assert lines == ["the first engine is ready after 2 s: fetch 2 s", "0/5 rows"]
