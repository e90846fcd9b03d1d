"""Every gold answer must score under strict rules, and no mangled copy; see the causes named."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ace_ray.benchmarks.acebench.benchmark import ACEBench
from ace_ray.benchmarks.acebench.categories import AGENT, CATEGORIES, GENERATION, LANGUAGES
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

FUNCTIONS = [{"name": "f", "parameters": {"type": "object"}}, {"name": "g_2", "parameters": {}}]


def entry(gold: object, category: str = "normal_atom_bool") -> Entry:
    return Entry("acebench", category, "en", f"{category}_0", {"function": FUNCTIONS}, gold)


GOLDS: list[tuple[Any, str, str]] = [
    ({"f": {"a": "it's"}}, """[f(a="it's")]""", """[f(a="it's altered")]"""),
    ({"f": {"a": [True, 1]}}, "[f(a=[True, 1])]", "[f(a=[False, 1])]"),
    ({"f": {"a": {"k": 2.5}}}, "[f(a={'k': 2.5})]", "[f(a={'k': 3.5})]"),
    ({"f": {"a": {}}}, "[f(a={})]", "[f(a='altered')]"),
    ({"g_2": {}}, "[g_2()]", "[g_2_altered()]"),
    # The mangled copy is none of the alternatives.
    ([{"f": {"a": 1}}, {"f": {"a": 2}}], "[f(a=1)]", "[f_altered(a=1)]"),
]


def test_gold_answers_are_written_and_mangled() -> None:
    for gold, text, mangled in GOLDS:
        assert render_gold(entry(gold)) == text
        assert render_mangled(entry(gold)) == mangled
    repeated = entry({"f_1": {"a": 1}, "f_2": {"a": 2.5}})
    assert render_gold(repeated) == "[f(a=1), f(a=2.5)]"
    incomplete = entry({"f": ["a", "b"]}, "special_incomplete")
    assert render_gold(incomplete) == '["Missing necessary parameters (a, b) for the api (f)"]'
    wrong = entry({"a": ["x"]}, "special_error_param")
    assert render_gold(wrong) == (
        '["There is incorrect value (x) for the parameters (a) in the conversation history."]'
    )


def test_agent_states_are_altered_where_both_rule_sets_look() -> None:
    truth = [{"BaseAPI": {"wifi": True}}, {"Travel": {"users": {"u": {"cash": 1.5}}}}]
    row = entry({"ground_truth": truth, "mile_stone": ["[a()]"]}, "agent_multi_turn")
    assert gold_state(row) == [{"BaseApi": {"wifi": True}}, truth[1]]
    altered = {"Travel": {"users": {"u": {"cash": 2.5}}}}
    assert mangled_state(row) == [{"BaseApi": {"wifi": True}}, altered]
    alone = entry({"ground_truth": truth[:1], "mile_stone": ["[a()]"]}, "agent_multi_turn")
    assert mangled_state(alone) == [{"BaseApi": {"wifi": False}}]
    assert truth[0] == {"BaseAPI": {"wifi": True}}


def checked(data: Path) -> tuple[bool, list[str]]:
    said: list[str] = []
    return ACEBench.check_data(str(data), said.append), said


def test_the_mini_set_proves_itself() -> None:
    entries = load(MINI)
    counts = Counter((entry.language, entry.category) for entry in entries)
    assert counts == {(language, c): 4 for language in LANGUAGES for c in CATEGORIES}
    assert len({entry.key for entry in entries}) == 136
    sound, said = checked(MINI)
    assert sound
    assert [line.split(":")[0] for line in said[: len(CATEGORIES)]] == list(CATEGORIES)
    assert "136 gold answers and as many mangled ones: 0 surprises" in said
    assert (
        "en agent_multi_turn: of 4 ideal paths replayed in the sandbox 4 end in a state that the "
        "official rules accept, 4 in the gold state"
    ) in said


@pytest.mark.nightly
def test_the_official_set_proves_itself_but_for_known_rows(shared_data: Path) -> None:
    """Some ideal paths miss the gold state: a login left out, another message deleted, an initial
    state older than the gold state."""
    sound, said = checked(shared_data)
    assert sound
    rejected = [
        f"{row.language} {row.id}"
        for row in load(shared_data, categories=GENERATION)
        if not check(row, render_gold(row))["official"].valid
    ]
    assert Counter(name.split()[0] for name in rejected) == {"en": 29, "zh": 8}
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


def test_a_path_that_misses_has_the_step_that_was_refused() -> None:
    app_specs = load_app_specs(MINI)
    entry = next(e for e in load(MINI, categories=AGENT) if e.id == "agent_multi_turn_0")

    def replayed(step: str) -> Any:
        (found,) = replay(replace(entry, gold={**entry.gold, "mile_stone": [step]}), app_specs)
        return found

    call = "[send_message(sender_name='a', receiver_name='b', message='c')]"
    number, verdicts, refused = replayed(call)
    assert (number, verdicts["strict"].valid) == (1, False)
    assert refused[0].startswith("step 1, send_message, is refused: ")
    assert replayed("[turn_on_wifi(")[2] == ["step 1 cannot be read"]
