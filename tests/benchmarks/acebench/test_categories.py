"""Which entries are one task asked twice."""

from __future__ import annotations

from pathlib import Path

import pytest
from ace_ray.benchmarks.acebench.categories import AGENT, agent_task

from ace_ray.benchmarks.acebench.data.loader import load


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("category", AGENT)
def test_agent_entries_of_one_question_are_one_task(
    shared_data: Path, category: str, language: str
) -> None:
    by_task: dict[str, set[str]] = {}
    for entry in load(shared_data, languages=[language], categories=[category]):
        # One question has a full stop twice in some of its copies.
        question = str(entry.data["question"]).rstrip("。")
        by_task.setdefault(agent_task(category, entry.id), set()).add(question)
    assert len(by_task) == {"agent_multi_turn": 16, "agent_multi_step": 7}[category]
    assert all(len(questions) == 1 for questions in by_task.values())
    every = [question for questions in by_task.values() for question in questions]
    assert len(set(every)) == len(every)


@pytest.mark.parametrize(
    ("entry_id", "task"),
    [("agent_multi_turn_3", 0), ("agent_multi_turn_4", 4), ("agent_multi_turn_99", 99)],
)
def test_tasks_are_named_by_their_first_entry(entry_id: str, task: int) -> None:
    assert agent_task("agent_multi_turn", entry_id) == f"agent_multi_turn_{task}"


@pytest.mark.parametrize("entry_id", ["x", "agent_multi_turn_", "agent_multi_turn_²", "agent_1_"])
def test_other_ids_stand_alone(entry_id: str) -> None:
    assert agent_task("agent_multi_turn", entry_id).startswith("agent_multi_turn_")
