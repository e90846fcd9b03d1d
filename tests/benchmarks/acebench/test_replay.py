"""Ideal paths in the sandbox: what reaches the gold state, and why the rest cannot."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from ace_ray.benchmarks.acebench.categories import AGENT
from ace_ray.benchmarks.acebench.data.loader import MINI, load
from ace_ray.benchmarks.acebench.scenarios.world import load_worlds
from ace_ray.benchmarks.acebench.scoring.goldcheck import check_gold, lines
from ace_ray.benchmarks.acebench.scoring.replay import replay, report
from ace_ray.records import Entry

WORLDS = load_worlds(MINI)


def agents(data: Path) -> list[Entry]:
    return list(load(data, languages=["en", "zh"], categories=AGENT))


def with_path(entry: Entry, steps: list[Any]) -> Entry:
    return replace(entry, gold={**entry.gold, "mile_stone": steps})


def test_every_path_of_the_mini_set_reaches_its_gold_state() -> None:
    found = [one for entry in agents(MINI) for one in replay(entry, WORLDS)]
    assert len(found) >= 16
    assert all(one.reaches == {"official": True, "strict": True} for one in found)
    assert report(found)["missed"] == []


def test_a_path_that_misses_is_named_with_its_cause() -> None:
    entry = next(e for e in agents(MINI) if e.id == "agent_multi_turn_0")
    bad = with_path(entry, ["[send_message(sender_name='a', receiver_name='b', message='c')]"])
    (one,) = replay(bad, WORLDS)
    assert one.reaches == {"official": False, "strict": False}
    assert one.cause.startswith("step 1, send_message, is refused: ")
    (one,) = replay(with_path(entry, ["[turn_on_wifi("]), WORLDS)
    assert one.cause.startswith("step 1 cannot be read")
    (missed,) = report([one])["missed"]
    assert (missed["id"], missed["path"], missed["official"]) == (entry.id, 0, False)


def test_the_official_paths(shared_data: Path) -> None:
    """The rows are those of the reference study: deleted message 3 for 4, a login left out, a world
    older than the gold state."""
    found = check_gold(shared_data)["replay"]
    reached = {
        (language, category): (cell["n"], cell["official"], cell["strict"])
        for language, categories in found["paths"].items()
        for category, cell in categories.items()
    }
    assert reached == {
        ("en", "agent_multi_turn"): (30, 29, 29),
        ("en", "agent_multi_step"): (26, 16, 16),
        ("zh", "agent_multi_turn"): (30, 29, 29),
        ("zh", "agent_multi_step"): (26, 18, 16),
    }
    rows = {(m["id"], m["path"]) for m in found["missed"] if m["language"] == "en"}
    steps = {(0, 0), (1, 0), (8, 1), (9, 1), *((n, 0) for n in (12, 13, 14, 15, 16, 17))}
    assert rows == {("agent_multi_turn_6", 0), *((f"agent_multi_step_{n}", p) for n, p in steps)}


def test_the_report_says_what_was_replayed() -> None:
    text = "\n".join(lines(check_gold(MINI)))
    assert (
        "en agent_multi_turn: of 4 ideal paths replayed in the sandbox 4 end in a state that the "
        "official rules accept, 4 in the gold state"
    ) in text
