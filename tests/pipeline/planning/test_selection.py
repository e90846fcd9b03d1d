"""Which entries a run evaluates: all, those that `ids` name, and at most `limit` of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from ace_ray.pipeline.planning.selection import select

from ace_ray.config.schema import RunConfig
from ace_ray.errors import UserError
from ace_ray.pipeline.planning.plan import make_manifest, make_plan
from ace_ray.types import Entry
from tests.pipeline.planning.toy_benchmark import MODEL, Toy, planned


class Spoken(Toy):
    """Each of two ids in two languages and two categories."""

    def entries(self) -> Sequence[Entry]:
        return [
            Entry(self.name, category, language, one, {"text": "x"}, "gold", one)
            for language in ("en", "zh")
            for category in ("calls", "chats")
            for one in ("first", "second")
        ]


class Other(Toy):
    name = "other"

    def entries(self) -> Sequence[Entry]:
        return [Entry("other", "all", "en", f"o{n}", {"text": "x"}, "", str(n)) for n in range(4)]


def config_of(*sections: Any, **changes: Any) -> RunConfig:
    tree = {"model": {"source": "m"}, "benchmarks": list(sections), **changes}
    return RunConfig.model_validate(tree)


@pytest.mark.parametrize(
    ("ids", "found"),
    [
        (["first"], ["en/calls", "en/chats", "zh/calls", "zh/chats"]),
        (["calls/first"], ["en/calls", "zh/calls"]),
        (["zh/chats/first", "zh/chats/first"], ["zh/chats"]),
        (["zh/chats/first", "calls/first"], ["en/calls", "zh/calls", "zh/chats"]),
    ],
)
def test_an_id_names_every_entry_that_has_it(ids: list[str], found: list[str]) -> None:
    entries, restricted = select(config_of({"name": "toy", "ids": ids}), [Spoken()])
    assert [f"{entry.language}/{entry.category}" for entry in entries] == found
    assert {entry.id for entry in entries} == {"first"}
    assert restricted == {"toy": {"ids": sorted(set(ids))}}


def test_a_limit_of_named_entries_takes_some_of_them() -> None:
    entries, _ = select(config_of({"name": "toy", "ids": ["first"], "limit": 3}), [Spoken()])
    assert len(entries) == 3


def test_a_benchmarks_own_limit_takes_the_place_of_the_runs() -> None:
    benchmarks = [Spoken(), Other()]
    entries, restricted = select(config_of({"name": "toy", "limit": 5}, "other"), benchmarks)
    assert [entry.benchmark for entry in entries] == ["toy"] * 5 + ["other"] * 4
    entries, restricted = select(
        config_of({"name": "toy", "limit": 5}, "other", limit=2), benchmarks
    )
    assert [entry.benchmark for entry in entries] == ["toy"] * 5 + ["other"] * 2
    assert restricted == {"toy": {"limit": 5}}


@pytest.mark.parametrize(
    ("section", "run", "words"),
    [
        ({"ids": ["#", "first"]}, {}, "benchmarks.toy.ids: toy has no entry '#'; write an id such"),
        ({}, {"ids": ["first", "o9"]}, "ids: toy, other have no entry 'o9'"),
        ({}, {"ids": ["?1", "?2", "?3", "?4"]}, "no entry '?1', '?2', '?3' and 1 more"),
    ],
)
def test_an_id_of_no_entry_is_a_mistake(section: Any, run: Any, words: str) -> None:
    with pytest.raises(UserError) as refused:
        select(config_of({"name": "toy", **section}, "other", **run), [Spoken(), Other()])
    assert words in str(refused.value)


def test_a_benchmark_with_none_of_the_ids_is_no_part_of_the_run() -> None:
    config = config_of("toy", "other", ids=["o1"])
    plan = make_plan(config, MODEL, [Toy(), Other()])
    assert list(plan.benchmarks) == ["other"]
    assert plan.run_id.startswith("other-")


def test_named_entries_are_another_run_and_its_config_runs_again() -> None:
    plan = planned(Spoken(), ids=["first"], limit=3)
    assert plan.run_id != planned(Spoken()).run_id
    manifest = make_manifest(plan, {"machine": {}})
    again = make_plan(RunConfig.model_validate(manifest["config"]), MODEL, [Spoken()])
    assert (again.run_id, again.identity) == (plan.run_id, plan.identity)
    assert manifest["restricted"] == {"toy": {"ids": ["first"]}}


def test_the_names_of_all_entries_are_the_whole_run() -> None:
    plan = planned(Spoken(), ids=["first", "second"])
    assert (plan.run_id, plan.restricted) == (planned(Spoken()).run_id, {})
