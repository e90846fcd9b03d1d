"""The smallest example is a whole benchmark."""

from __future__ import annotations

import asyncio
from pathlib import Path

from ace_ray.benchmarks.context import EpisodeContext, RoleModel
from ace_ray.benchmarks.registry import make_benchmark
from ace_ray.models.fake import FakeEngine
from ace_ray.types import Sampling

FILE = Path(__file__).resolve().parents[2] / "examples" / "arith.py"


def test_the_file_is_short() -> None:
    assert len(FILE.read_text(encoding="utf-8").splitlines()) <= 40


def test_gold_answers_are_right_and_no_others() -> None:
    arith = make_benchmark(f"{FILE}:Arith", {})
    engine = FakeEngine({"default": "It is 4."})
    for entry in arith.dataset():
        context = EpisodeContext(RoleModel(engine, Sampling()))
        episode = asyncio.run(arith.run(entry, context))
        verdict = arith.verdicts(entry, episode)["correct"]
        assert verdict.valid == (entry.gold == "4")
        assert verdict.error_type == ("" if verdict.valid else "wrong_sum")
        episode.output = entry.gold
        assert arith.verdicts(entry, episode)["correct"].valid
