"""Every gold answer must score under strict rules, and no mangled copy; see the causes named."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ace_ray.benchmarks.acebench.categories import AGENT, CATEGORIES
from ace_ray.benchmarks.acebench.data.loader import MINI, load
from ace_ray.benchmarks.acebench.environment.environment import load_app_specs
from ace_ray.benchmarks.acebench.gold import gold_state, mangled_state, render_gold, render_mangled
from ace_ray.benchmarks.acebench.goldcheck import check_gold, lines, reached, replay
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


@pytest.mark.nightly
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


APP_SPECS = load_app_specs(MINI)


def agents(data: Path) -> list[Entry]:
    return list(load(data, languages=["en", "zh"], categories=AGENT))


def with_path(entry: Entry, steps: list[Any]) -> Entry:
    return replace(entry, gold={**entry.gold, "mile_stone": steps})


def test_every_path_of_the_mini_set_reaches_its_gold_state() -> None:
    found = [one for entry in agents(MINI) for one in replay(entry, APP_SPECS)]
    assert len(found) >= 16
    assert all(one.reaches == {"official": True, "strict": True} for one in found)
    assert reached(found)["missed"] == []


def test_a_path_that_misses_is_named_with_its_cause() -> None:
    entry = next(e for e in agents(MINI) if e.id == "agent_multi_turn_0")
    bad = with_path(entry, ["[send_message(sender_name='a', receiver_name='b', message='c')]"])
    (one,) = replay(bad, APP_SPECS)
    assert one.reaches == {"official": False, "strict": False}
    assert one.cause.startswith("step 1, send_message, is refused: ")
    (one,) = replay(with_path(entry, ["[turn_on_wifi("]), APP_SPECS)
    assert one.cause.startswith("step 1 cannot be read")
    (missed,) = reached([one])["missed"]
    assert (missed["id"], missed["path"], missed["official"]) == (entry.id, 0, False)


@pytest.mark.nightly
def test_the_official_paths(shared_data: Path) -> None:
    """The rows are those of the reference study: deleted message 3 for 4, a login left out, an
    initial state older than the gold state."""
    found = check_gold(shared_data)["replay"]
    counts = {
        (language, category): (cell["n"], cell["official"], cell["strict"])
        for language, categories in found["paths"].items()
        for category, cell in categories.items()
    }
    assert counts == {
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
