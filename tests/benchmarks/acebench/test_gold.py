"""Every gold answer must score under strict rules, and no mangled copy; see the causes named."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ace_ray.benchmarks.acebench.categories import AGENT, CATEGORIES, GENERATION

from ace_ray.benchmarks.acebench.benchmark import ACEBench
from ace_ray.benchmarks.acebench.check import check
from ace_ray.benchmarks.acebench.data.loader import MINI, load
from ace_ray.benchmarks.acebench.environment.environment import load_app_specs
from ace_ray.benchmarks.acebench.gold import (
    gold_state,
    mangled_state,
    render_gold,
    render_mangled,
    replay,
)
from ace_ray.types import Entry

SHARED = Path(os.environ.get("ACE_RAY_SHARED", Path(__file__).parents[4] / "shared"))
OFFICIAL = SHARED / "data" / "acebench"
needs_official = pytest.mark.skipif(
    not OFFICIAL.is_dir(), reason="the official data is not here: set ACE_RAY_SHARED"
)
FUNCTIONS = [{"name": "f", "parameters": {"type": "object"}}, {"name": "g_2", "parameters": {}}]


def entry(gold: object, category: str = "normal_atom_bool") -> Entry:
    return Entry("acebench", category, "en", f"{category}_0", {"function": FUNCTIONS}, gold)


@pytest.mark.parametrize(
    ("gold", "text"),
    [
        ({"f": {"a": "it's", "b": [1, None, True]}}, """[f(a="it's", b=[1, None, True])]"""),
        ({"f_1": {"a": 1}, "f_2": {"a": 2.5}}, "[f(a=1), f(a=2.5)]"),
        ({"g_2": {}}, "[g_2()]"),
        ([{"f": {"a": 1}}, {"f": {"a": 2}}], "[f(a=1)]"),
    ],
)
def test_gold_calls_are_written_as_a_model_would(gold: object, text: str) -> None:
    assert render_gold(entry(gold)) == text


def test_gold_messages_are_written_as_the_prompt_asks() -> None:
    incomplete = entry({"f": ["a", "b"]}, "special_incomplete")
    assert render_gold(incomplete) == '["Missing necessary parameters (a, b) for the api (f)"]'
    wrong = entry({"a": ["x"]}, "special_error_param")
    assert render_gold(wrong) == (
        '["There is incorrect value (x) for the parameters (a) in the conversation history."]'
    )


def test_mangling_avoids_the_other_answers_and_never_changes() -> None:
    either = entry([{"f": {"a": 1}}, {"f": {"a": 2}}])
    assert render_mangled(either) == "[f_altered(a=1)]"
    assert render_mangled(entry({"f": {"a": [True, 1]}})) == "[f(a=[False, 1])]"
    assert render_mangled(entry({"f": {"a": {}}})) == "[f(a='altered')]"
    assert render_mangled(entry({"f": {}})) == "[f_altered()]"


def checked(data: Path) -> tuple[bool, list[str]]:
    said: list[str] = []
    return ACEBench.check_data(str(data), said.append), said


def test_the_mini_set_proves_itself() -> None:
    sound, said = checked(MINI)
    assert sound
    assert [line.split(":")[0] for line in said[: len(CATEGORIES)]] == list(CATEGORIES)
    assert "136 gold answers and as many mangled ones: 0 surprises" in said
    assert (
        "en agent_multi_turn: of 4 ideal paths replayed in the sandbox 4 end in a state that the "
        "official rules accept, 4 in the gold state"
    ) in said


def test_agent_states_are_altered_where_both_rule_sets_look() -> None:
    truth = [{"BaseAPI": {"wifi": True}}, {"Travel": {"users": {"u": {"cash": 1.5}}}}]
    row = entry({"ground_truth": truth, "mile_stone": ["[a()]"]}, "agent_multi_turn")
    assert gold_state(row) == [{"BaseApi": {"wifi": True}}, truth[1]]
    altered = {"Travel": {"users": {"u": {"cash": 2.5}}}}
    assert mangled_state(row) == [{"BaseApi": {"wifi": True}}, altered]
    alone = entry({"ground_truth": truth[:1], "mile_stone": ["[a()]"]}, "agent_multi_turn")
    assert mangled_state(alone) == [{"BaseApi": {"wifi": False}}]
    assert truth[0] == {"BaseAPI": {"wifi": True}}


@pytest.mark.nightly
@needs_official
def test_the_official_set() -> None:
    """Which gold answers the official rules reject, and which ideal paths miss the gold state: a
    login left out, another message deleted, an initial state older than the gold state."""
    sound, said = checked(OFFICIAL)
    assert sound
    rejected = [
        f"{row.language} {row.id}"
        for row in load(OFFICIAL, categories=GENERATION)
        if not check(row, render_gold(row))["official"].valid
    ]
    english = [name for name in rejected if name.startswith("en ")]
    assert len(english) == 29
    assert {name for name in english if "multi_turn" not in name} == {
        "en normal_single_turn_parallel_function_42",
        "en normal_preference_40",
    }
    assert {name for name in rejected if name.startswith("zh ")} == {
        "zh normal_multi_turn_user_adjust_3_0",
        "zh normal_multi_turn_user_switch_32_0",
        "zh normal_single_turn_parallel_function_45",
        "zh normal_single_turn_parallel_function_80",
        "zh normal_similar_api_2",
        "zh normal_similar_api_22",
        "zh normal_atom_list_28",
        "zh normal_atom_object_short_1",
    }
    found = {
        " ".join(line.split()[:2]).rstrip(":"): [int(n) for n in re.findall(r"\b\d+\b", line)]
        for line in said
        if "ideal paths" in line
    }
    assert found == {
        "en agent_multi_turn": [30, 29, 29],
        "en agent_multi_step": [26, 16, 16],
        "zh agent_multi_turn": [30, 29, 29],
        "zh agent_multi_step": [26, 18, 16],
    }
    missed = {line.split(":")[0].split()[1] for line in said if line.startswith("  en ")}
    steps = (0, 1, 8, 9, 12, 13, 14, 15, 16, 17)
    assert missed == {"agent_multi_turn_6,", *(f"agent_multi_step_{n}," for n in steps)}


APP_SPECS = load_app_specs(MINI)


def with_path(entry: Entry, steps: list[Any]) -> Entry:
    return replace(entry, gold={**entry.gold, "mile_stone": steps})


def test_a_path_that_misses_has_the_step_that_was_refused() -> None:
    entry = next(e for e in load(MINI, categories=AGENT) if e.id == "agent_multi_turn_0")
    bad = with_path(entry, ["[send_message(sender_name='a', receiver_name='b', message='c')]"])
    ((number, verdicts, refused),) = replay(bad, APP_SPECS)
    assert number == 1
    assert not verdicts["strict"].valid
    assert refused[0].startswith("step 1, send_message, is refused: ")
    ((_, _, refused),) = replay(with_path(entry, ["[turn_on_wifi("]), APP_SPECS)
    assert refused == ["step 1 cannot be read"]
