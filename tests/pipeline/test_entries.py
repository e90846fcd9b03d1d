"""Entries and their prompts are as planned wherever they are read, and are parsed once."""

from __future__ import annotations

import json

from ace_ray.pipeline.entries import Entries, entry_table
from tests.pipeline.planning.toy_benchmark import planned


def test_entries_and_openings_are_as_planned() -> None:
    plan = planned()
    entries = Entries(entry_table(plan.entries, plan.openings))
    assert len(entries) == len(plan.entries)
    for number, entry in enumerate(plan.entries):
        assert entries[number] == entry
        assert json.dumps(entries[number].data) == json.dumps(entry.data), "keys in their order"
        messages, tools = plan.benchmarks[entry.benchmark].opening(entry)
        assert entries.opening(number) == (messages, tools)


def test_an_entry_is_parsed_once() -> None:
    plan = planned()
    entries = Entries(entry_table(plan.entries, plan.openings))
    assert entries[0] is entries[0]
    assert entries.opening(0)[0] is entries.opening(0)[0]
