"""Every gold answer must score under strict rules, and no mangled copy; see the causes named."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from ace_ray.benchmarks.acebench.categories import AGENT, CATEGORIES
from ace_ray.benchmarks.acebench.data.loader import MINI
from ace_ray.benchmarks.acebench.scoring.goldcheck import check_gold, lines
from ace_ray.benchmarks.acebench.scoring.golden import render_gold, render_mangled
from ace_ray.benchmarks.acebench.scoring.golden_agent import gold_state, mangled_state
from ace_ray.errors import UserError
from ace_ray.records import Entry

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


def test_the_mini_set_proves_itself() -> None:
    report = check_gold(MINI)
    assert report["ok"]
    assert set(report["categories"]) == {"en", "zh"}
    for categories in report["categories"].values():
        assert list(categories) == list(CATEGORIES)
        agents_prove_themselves(categories, rows=4)


def agents_prove_themselves(categories: dict[str, Any], rows: int) -> None:
    n = sum(categories[name]["n"] for name in AGENT)
    assert n == rows * len(AGENT)
    for name in AGENT:
        for rule in ("official", "strict"):
            assert categories[name]["gold"][rule]["valid"] == categories[name]["n"]
            assert categories[name]["mangled"][rule]["valid"] == 0


def test_agent_states_are_altered_where_both_rule_sets_look() -> None:
    truth = [{"BaseAPI": {"wifi": True}}, {"Travel": {"users": {"u": {"cash": 1.5}}}}]
    row = entry({"ground_truth": truth, "mile_stone": ["[a()]"]}, "agent_multi_turn")
    assert gold_state(row) == [{"BaseApi": {"wifi": True}}, truth[1]]
    altered = {"Travel": {"users": {"u": {"cash": 2.5}}}}
    assert mangled_state(row) == [{"BaseApi": {"wifi": True}}, altered]
    alone = entry({"ground_truth": truth[:1], "mile_stone": ["[a()]"]}, "agent_multi_turn")
    assert mangled_state(alone) == [{"BaseApi": {"wifi": False}}]
    assert truth[0] == {"BaseAPI": {"wifi": True}}


@needs_official
def test_the_official_set() -> None:
    report = check_gold(OFFICIAL)
    assert report["rejected"]["strict"] == []
    assert report["accepted"]["strict"] == []
    assert report["ok"]
    rejected = report["rejected"]["official"]
    by_language = {
        language: {row["id"] for row in rejected if row["language"] == language}
        for language in ("en", "zh")
    }
    assert len(by_language["en"]) == 29
    single = {i for i in by_language["en"] if "multi_turn" not in i}
    assert single == {"normal_single_turn_parallel_function_42", "normal_preference_40"}
    assert by_language["zh"] == {
        "normal_multi_turn_user_adjust_3_0",
        "normal_multi_turn_user_switch_32_0",
        "normal_single_turn_parallel_function_45",
        "normal_single_turn_parallel_function_80",
        "normal_similar_api_2",
        "normal_similar_api_22",
        "normal_atom_list_28",
        "normal_atom_object_short_1",
    }
    for categories in report["categories"].values():
        agents_prove_themselves(categories, rows=25)
    known = ("whitespace", "empty", "lacks the required", "lacks items", "is cut off")
    assert all(any(phrase in row["cause"] for phrase in known) for row in rejected)
    # The dialogue accuracies that a perfect model reaches under the official rules.
    multi_turn = {
        language: [
            categories[f"normal_multi_turn_user_{kind}"]["gold"]["official"]["accuracy"]
            for kind in ("adjust", "switch")
        ]
        for language, categories in report["categories"].items()
    }
    assert multi_turn == {"en": [0.76, 0.74], "zh": [0.98, 0.98]}
    assert sum(1 for line in lines(report) if "whitespace is deleted" in line) == 29


def test_a_folder_without_data_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no category"):
        check_gold(tmp_path)
