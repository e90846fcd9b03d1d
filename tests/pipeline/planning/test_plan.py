"""The rows that a run declares: their ids, their order, and the entries that are chosen."""

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from ace_ray.config.schema import RunConfig
from ace_ray.errors import UserError
from ace_ray.pipeline.entries import Entries, entry_table, select
from ace_ray.pipeline.planning.manifest import make_manifest
from ace_ray.pipeline.planning.plan import Plan, make_plan
from ace_ray.types import Entry
from tests.pipeline.planning.toy_benchmark import MODEL, Toy, planned


def ids(plan: Plan) -> set[bytes]:
    return set(plan.rows.ids.tolist())


def test_row_ids_change_with_all_that_changes_answers() -> None:
    thinking = {"source": "org/tiny", "chat_template_kwargs": {"enable_thinking": True}}
    parser = {"source": "org/tiny", "reasoning_parser": "none"}
    changed: list[dict[str, Any]] = [{"model": thinking}, {"model": parser}, {"backend": "fake"}]
    changed += [{"sampling": {"temperature": 0.5}}, {"sampling": {"reasoning_effort": "low"}}]
    for changes in changed:
        assert not ids(planned(**changes)) & ids(planned()), changes
        assert planned(**changes).run_id != planned().run_id


def test_row_ids_change_with_model_prompt_gold_answer_and_protocol() -> None:
    reworded, regraded, revised = Toy(), Toy(), Toy()
    reworded.wording = "write: "
    regraded.answer = "other gold"
    revised.facts = {"variant": "standard", "protocol": {"mode": "other"}}
    plans = [planned(toy) for toy in (reworded, regraded, revised)]
    plans.append(planned(ref=dataclasses.replace(MODEL, revision="commit-2")))
    for plan in plans:
        assert not ids(plan) & ids(planned())


def test_rows_stay_the_same_however_they_are_evaluated() -> None:
    for changes in ({"workers": 4}, {"output": "elsewhere"}, {"engine": {"dtype": "float32"}}):
        plan = planned(**changes)
        assert plan.rows.ids.tolist() == planned().rows.ids.tolist()
        assert (plan.run_id == planned().run_id) is ("engine" not in changes), changes


def test_rows_are_ordered_by_prompt_and_samples_of_an_entry_stay_together() -> None:
    plan = planned(samples=2)
    texts = [plan.openings[entry] for entry in plan.rows.entry]
    assert texts == sorted(texts)
    # The second sample shares its whole prompt with the first one.
    assert plan.rows.common[1::2].tolist() == plan.rows.size[1::2].tolist()
    assert plan.rows.sample.tolist() == [0, 1] * 3
    assert len(ids(plan)) == 6
    assert ids(planned()) < ids(plan) < ids(planned(samples=3))
    chosen = plan.rows.select(plan.rows.sample == 1)
    assert chosen.ids.tolist() == plan.rows.ids[1::2].tolist()
    assert len(plan.rows.select(np.zeros(6, bool))) == 0


class Spoken(Toy):
    """Two ids, each in two languages and two categories."""

    def entries(self) -> Sequence[Entry]:
        return [
            Entry(self.name, category, language, entry_id, {"text": "x"}, "gold", entry_id)
            for language in ("en", "zh")
            for category in ("calls", "chats")
            for entry_id in ("first", "second")
        ]


class Other(Toy):
    name = "other"

    def entries(self) -> Sequence[Entry]:
        return [Entry("other", "all", "en", f"o{n}", {"text": "x"}, "", str(n)) for n in range(4)]


def test_config_of_the_manifest_is_the_same_run() -> None:
    changes: dict[str, Any] = {"samples": 2, "sampling": {"temperature": 1.0, "seed": 4}}
    plan = planned(Spoken(), limit=3, ids=["first"], engine={"dtype": "auto"}, **changes)
    manifest = make_manifest(plan, {"machine": {}})
    again = make_plan(RunConfig.model_validate(manifest["config"]), MODEL, [Spoken()])
    assert again.rows.ids.tolist() == plan.rows.ids.tolist()
    assert (again.run_id, again.identity) == (plan.run_id, plan.identity)
    assert manifest["config"]["model"]["revision"] == "commit-1"
    assert manifest["declared"] == 6
    assert manifest["restricted"] == {"toy": {"ids": ["first"]}}
    assert planned(Spoken(), ids=["first", "second"]).run_id == planned(Spoken()).run_id


def test_workers_read_entries_and_prompts_as_planned() -> None:
    plan = planned()
    entries = Entries(entry_table(plan.entries, plan.openings))
    assert len(entries) == len(plan.entries)
    for number, entry in enumerate(plan.entries):
        assert entries[number] == entry
        assert json.dumps(entries[number].data) == json.dumps(entry.data), "keys in their order"
        opening = plan.benchmarks[entry.benchmark].opening(entry)
        assert entries.opening(number) == tuple(opening)


def config_of(*sections: Any, **changes: Any) -> RunConfig:
    tree = {"model": {"source": "m"}, "benchmarks": list(sections), **changes}
    return RunConfig.model_validate(tree)


@pytest.mark.parametrize(
    ("ids", "chosen"),
    [
        (["first"], ["en/calls", "en/chats", "zh/calls", "zh/chats"]),
        (["calls/first"], ["en/calls", "zh/calls"]),
        (["zh/chats/first", "zh/chats/first"], ["zh/chats"]),
        (["zh/chats/first", "calls/first"], ["en/calls", "zh/calls", "zh/chats"]),
    ],
)
def test_id_names_every_entry_that_has_it(ids: list[str], chosen: list[str]) -> None:
    entries, restricted = select(config_of({"name": "toy", "ids": ids}), [Spoken()])
    assert [f"{entry.language}/{entry.category}" for entry in entries] == chosen
    assert {entry.id for entry in entries} == {"first"}
    assert restricted == {"toy": {"ids": sorted(set(ids))}}


def test_limit_of_a_benchmark_replaces_the_limit_of_the_run() -> None:
    config = config_of({"name": "toy", "limit": 5}, "other", limit=2)
    entries, restricted = select(config, [Spoken(), Other()])
    assert [entry.benchmark for entry in entries] == ["toy"] * 5 + ["other"] * 2
    assert restricted == {"toy": {"limit": 5}}
    assert ids(planned(limit=2)) < ids(planned())
    assert planned(limit=2).run_id != planned().run_id == planned(limit=99).run_id


@pytest.mark.parametrize(
    ("section", "run", "words"),
    [
        ({"ids": ["#", "first"]}, {}, "benchmarks.toy.ids: toy has no entry '#'; write an id such"),
        ({}, {"ids": ["first", "o9"]}, "ids: toy, other have no entry 'o9'"),
        ({}, {"ids": ["?1", "?2", "?3", "?4"]}, "no entry '?1', '?2', '?3' and 1 more"),
    ],
)
def test_id_of_no_entry_is_a_mistake(section: Any, run: Any, words: str) -> None:
    with pytest.raises(UserError) as refused:
        select(config_of({"name": "toy", **section}, "other", **run), [Spoken(), Other()])
    assert words in str(refused.value)


def test_benchmarks_without_entries_are_no_part_of_a_run() -> None:
    odd = dataclasses.replace(MODEL, location="org/Tïny Model (v2)")
    plan = make_plan(config_of("toy", "other", ids=["o1"]), odd, [Toy(), Other()])
    assert list(plan.benchmarks) == ["other"]
    assert plan.run_id.startswith("other-t-ny-model-v2")
    assert planned(run_id="mine").uri == "runs/mine"
    with pytest.raises(UserError, match="nothing to evaluate"):
        planned(Toy([]))
