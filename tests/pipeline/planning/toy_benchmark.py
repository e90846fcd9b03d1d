"""A benchmark of sentences with a plan."""

from collections.abc import Mapping, Sequence
from typing import Any

from ace_ray.benchmarks.base import Benchmark
from ace_ray.config.schema import RunConfig
from ace_ray.models.sources import ModelRef
from ace_ray.pipeline.planning.plan import Plan, make_plan
from ace_ray.types import Entry, Episode, Verdict

MODEL = ModelRef("org/tiny", "hub", "org/tiny", "commit-1")


class Toy(Benchmark):
    """A benchmark of sentences."""

    name = "toy"

    def __init__(self, texts: Sequence[str] = ("short", "a longer text", "mid text")) -> None:
        self.sentences, self.wording = list(texts), "say: "
        self.facts: dict[str, Any] = {"variant": "standard"}
        self.answer = "gold"

    def entries(self) -> Sequence[Entry]:
        return [
            Entry("toy", "all", "en", str(i), {"text": text}, self.answer, str(i))
            for i, text in enumerate(self.sentences)
        ]

    def identity(self) -> Mapping[str, Any]:
        return self.facts

    def resolved(self) -> dict[str, Any]:
        return {"texts": self.sentences}

    def prompt(self, entry: Entry) -> list[dict[str, Any]]:
        return [{"role": "user", "content": self.wording + entry.data["text"]}]

    def check(self, entry: Entry, episode: Episode) -> Mapping[str, Verdict]:
        raise NotImplementedError


def planned(toy: Toy | None = None, ref: ModelRef = MODEL, **changes: Any) -> Plan:
    tree = {"model": {"source": "org/tiny"}, "benchmarks": ["toy"], **changes}
    return make_plan(RunConfig.model_validate(tree), ref, [toy or Toy()])
