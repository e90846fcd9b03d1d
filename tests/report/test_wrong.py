"""The sample of wrong answers: which rows it takes, what it reads of them, where gold is from."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ace_ray.benchmarks.acebench.data.loader import MINI
from ace_ray.benchmarks.base import Benchmark
from ace_ray.config import RunConfig
from ace_ray.errors import UserError
from ace_ray.reports.html.answers import MESSAGES, TEXT, answers
from ace_ray.reports.runs import Run, load_runs
from ace_ray.reports.wrong import GoldAnswers, choose
from ace_ray.run.planning.preflight import make_benchmarks
from tests.report.builders import Row, block, row, write_run

RULES = ("official", "strict")
KINDS = [{"official": f"o{i}", "strict": f"s{i}"} for i in range(3)]


def loaded(*folders: Path) -> list[Run]:
    return load_runs([str(folder) for folder in folders])


def wrong(category: str, number: int, **more: Any) -> Row:
    return row("en", category, number, official=False, **more)


def chat(*messages: dict[str, Any]) -> str:
    return json.dumps(list(messages))


def test_only_what_is_wrong_under_some_rule_set_is_taken(tmp_path: Path) -> None:
    rows = [
        row("en", "special_incomplete", 0),
        row("en", "special_incomplete", 1, official=False, strict=True),
        row("en", "special_incomplete", 2, official=True, strict=False),
        row("en", "special_incomplete", 3, status="infra_error"),
        row("en", "special_incomplete", 4, status="quarantined"),
        row("en", "special_incomplete", 5, official=False),
    ]
    found = choose(loaded(write_run(tmp_path / "run", rows)), 10)
    assert {answer.id[-1] for answer in found} == {"1", "2", "5"}
    (sample,) = found.categories
    assert (sample.wrong, sample.shown) == (3, 3)


def test_error_types_take_turns(tmp_path: Path) -> None:
    rows = [wrong("normal_atom_bool", i, errors=KINDS[0]) for i in range(20)]
    rows += [wrong("normal_atom_bool", 20 + i, errors=KINDS[1]) for i in range(5)]
    rows.append(wrong("normal_atom_bool", 30, errors=KINDS[2]))
    found = list(choose(loaded(write_run(tmp_path / "run", rows)), 5))
    kinds = [answer.judgements[0].error_type for answer in found]
    assert Counter(kinds[:3]) == {"o0": 1, "o1": 1, "o2": 1}
    assert Counter(kinds) == {"o0": 2, "o1": 2, "o2": 1}


def test_runs_that_fail_alike_show_the_same_entries(tmp_path: Path) -> None:
    rows = block("en", "special_incomplete", 0, 30)
    folders = [
        write_run(tmp_path / n, rows[::step], model=f"o/{n}") for n, step in (("A", 1), ("B", -1))
    ]
    found = list(choose(loaded(*folders), 4))
    by_run = [[a.id for a in found if a.run == name] for name in ("A", "B")]
    assert by_run[0] == by_run[1]
    assert len(set(by_run[0])) == 4


def test_there_is_a_bound_per_category_and_one_for_all(tmp_path: Path) -> None:
    rows = [
        r
        for lang in ("en", "zh")
        for c in ("special_incomplete", "normal_atom_bool")
        for r in block(lang, c, 0, 9)
    ]
    folders = [write_run(tmp_path / name, rows, model=f"o/{name}") for name in "AB"]
    found = choose(loaded(*folders), 3)
    assert {(t.wrong, t.shown) for t in found.categories} == {(9, 3)}
    assert len(found.categories) == 8
    few = choose(loaded(*folders), 3, most=11)
    assert sorted(t.shown for t in few.categories) == [1] * 5 + [2] * 3, "first each gives one"
    assert len(list(few)) == 11
    assert list(choose(loaded(*folders), 0)) == []


def test_a_repeated_row_is_no_answer_of_its_own(tmp_path: Path) -> None:
    rows = [wrong("special_incomplete", 0), {**wrong("special_incomplete", 1), "repeat": 1}]
    assert len(list(choose(loaded(write_run(tmp_path / "run", rows)), 5))) == 1


def test_the_answer_is_not_among_the_messages_of_a_single_call(tmp_path: Path) -> None:
    asked = {"role": "user", "content": "q"}
    said = {"role": "assistant", "content": "[f()]"}
    rows = [
        {**wrong("special_incomplete", 0), "messages": chat(asked, said)},
        {**wrong("agent_multi_step", 0), "messages": chat(asked, said), "state": '{"end": [1]}'},
        {**wrong("special_incomplete", 1), "messages": chat(asked)},
        {**wrong("special_incomplete", 2), "messages": "[]"},
    ]
    found = {a.id: a for a in choose(loaded(write_run(tmp_path / "run", rows)), 5)}
    assert found["special_incomplete_0"].messages == [asked]
    assert found["agent_multi_step_0"].messages == [asked, said]
    assert found["agent_multi_step_0"].state == '{"end": [1]}'
    assert found["special_incomplete_1"].messages == [asked]
    assert found["special_incomplete_2"].messages == []


def section(folder: Path) -> Any:
    runs = loaded(folder)
    return answers(choose(runs, 5), GoldAnswers(runs), RULES).view


def test_what_a_page_cuts_is_not_held(tmp_path: Path) -> None:
    long = "x" * (1 << 20)
    told = chat({"role": "user", "content": long})
    texts = {"messages": told, "output": long, "state": json.dumps(long), "strict_error": long}
    (view,) = section(write_run(tmp_path / "run", [wrong("special_incomplete", 0) | texts]))[
        "answers"
    ]
    assert len(str(view)) < 60_000


def test_gold_answers_stand_beside(tmp_path: Path) -> None:
    rows = [wrong("normal_atom_bool", 0), wrong("normal_atom_bool", 999)]
    views = section(write_run(tmp_path / "run", rows))["answers"]
    found = {view["answer"].id: view for view in views}
    gold = found["normal_atom_bool_0"]["gold"].parts[0].text
    assert json.loads(gold) == {
        "greenhouse_water": {"bed": "T3", "minutes": 20, "check_rain": False}
    }
    assert found["normal_atom_bool_999"]["gold"] is None


def test_data_that_is_not_at_hand_is_said_and_no_failure(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", [wrong("normal_atom_bool", 0)])
    manifest = json.loads((folder / "run.json").read_text())
    manifest["config"]["benchmarks"][0]["data"] = str(tmp_path / "elsewhere")
    (folder / "run.json").write_text(json.dumps(manifest))
    found = section(folder)
    assert found["answers"][0]["gold"] is None
    (why,) = found["missing"].values()
    assert "elsewhere" in why


def test_other_data_is_not_shown_as_the_run_s(tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(MINI, data)
    file = data / "data_en" / "possible_answer" / "data_normal_atom_bool.json"
    file.write_text(file.read_text().replace('"T3"', '"T9"'))
    folder = write_run(tmp_path / "run", [wrong("normal_atom_bool", 0)])
    manifest = json.loads((folder / "run.json").read_text())
    manifest["config"]["benchmarks"][0]["data"] = str(data)
    (folder / "run.json").write_text(json.dumps(manifest))
    found = section(folder)
    assert found["answers"][0]["gold"] is None
    assert "is not what the run was made with" in next(iter(found["missing"].values()))


@pytest.mark.parametrize(
    "config", [{"model": {"source": "x"}}, {"benchmarks": [{"name": "nobody"}]}]
)
def test_a_manifest_that_this_version_cannot_read_has_no_gold(
    tmp_path: Path, config: dict[str, Any]
) -> None:
    folder = write_run(tmp_path / "run", [wrong("normal_atom_bool", 0)])
    manifest = json.loads((folder / "run.json").read_text())
    manifest["config"] |= {**config, "a_later_key": 1}
    (folder / "run.json").write_text(json.dumps(manifest))
    assert list(GoldAnswers(loaded(folder)).missing) == ["Toy-7B-Instruct"]


def test_runs_of_the_same_data_read_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []

    def counted(config: RunConfig) -> list[Benchmark]:
        made.append(config)
        return make_benchmarks(config)

    monkeypatch.setattr("ace_ray.reports.wrong.make_benchmarks", counted)
    rows = [wrong("normal_atom_bool", 0)]
    GoldAnswers(loaded(*(write_run(tmp_path / n, rows, model=f"o/{n}") for n in "ABC")))
    assert len(made) == 1


def test_long_texts_and_many_messages_are_cut(tmp_path: Path) -> None:
    long = "x" * 1_000_000
    messages = [{"role": "user", "content": "y" * 3_000} for _ in range(50)]
    rows = [
        {
            **wrong("normal_atom_bool", 0),
            **dict.fromkeys(("output", "reasoning", "official_error", "strict_error"), long),
            "messages": json.dumps(messages),
            "state": json.dumps({"end": long}),
        }
    ]
    (found,) = section(write_run(tmp_path / "run", rows))["answers"]
    assert (found["output"].size, found["output"].left_out) == (TEXT, 1_000_000 - TEXT)
    assert found["reasoning"].left_out == 1_000_000 - TEXT
    assert found["state"].size == TEXT
    assert sum(message["text"].size for message in found["messages"]) == MESSAGES
    assert found["left_out"] == 50 - len(found["messages"])
    assert all(judged["reason"].size <= 1000 for judged in found["judgements"])


def test_a_native_answer_is_shown_as_the_model_wrote_it(tmp_path: Path) -> None:
    calls = [{"type": "function", "function": {"name": "f", "arguments": "{}"}}]
    messages = [
        {"role": "system", "content": "s"},
        {"role": "assistant", "content": "", "text": "<tool>f</tool>", "tool_calls": calls},
        {"role": "tool", "content": [{"ok": True}]},
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "user", "content": None},
    ]
    rows = [{**wrong("agent_multi_step", 0), "messages": json.dumps(messages), "state": "{}"}]
    (found,) = section(write_run(tmp_path / "run", rows))["answers"]
    texts = ["".join(part.text for part in message["text"].parts) for message in found["messages"]]
    assert texts[:2] == ["s", "<tool>f</tool>"]
    assert json.loads(texts[2]) == [{"ok": True}]
    assert json.loads(texts[3]) == calls
    assert texts[4] == ""
    assert [message["open"] for message in found["messages"]] == [False, True, True, True, True]


def test_rows_that_went_away_meanwhile_end_the_report_with_a_word(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", [wrong("normal_atom_bool", 0)])
    chosen = choose(loaded(folder), 5)
    for part in (folder / "rows").iterdir():
        part.unlink()
    with pytest.raises(UserError, match="1 rows have gone while they were read"):
        list(chosen)
