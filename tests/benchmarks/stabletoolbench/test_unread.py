"""Which of an agent's messages hold calls that nobody read."""

from __future__ import annotations

from typing import Any

from ace_ray.benchmarks.diagnosis import second_reading
from ace_ray.benchmarks.results import SecondReading
from ace_ray.benchmarks.stabletoolbench.benchmark import StableToolBench
from ace_ray.types import Episode

FENCED = '```json\n{"name": "f", "arguments": {}}\n```'


def test_messages_without_calls_are_counted() -> None:
    benchmark = StableToolBench.from_options({"data": "mini", "apis": ["cache"], "judge": "none"})
    called = {"type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": FENCED},
        {"role": "assistant", "content": FENCED},
        {"role": "assistant", "content": FENCED, "tool_calls": [called]},
        {"role": "tool", "content": FENCED},
        {"role": "assistant", "content": "I think."},
        {"role": "assistant", "content": FENCED},
    ]
    (one, *_) = benchmark.dataset()
    found = second_reading(benchmark, one, Episode(messages=messages))
    assert found == SecondReading("fenced_json", "answer", 2)
    assert second_reading(benchmark, one, Episode(messages=messages[:1])) is None
