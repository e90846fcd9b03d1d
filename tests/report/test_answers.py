"""Answers in reports: flips between two runs, and the sample of wrong answers."""

import json
from pathlib import Path
from typing import Any

from ace_ray.reports.flips import Flips, flip_table, flips_of
from ace_ray.reports.html.answers import MESSAGES, TEXT, answers, choose
from tests.report.builders import Row, loaded, row, write_run


def between(tmp_path: Path, base: list[Row], second: list[Row], rules: str = "strict") -> Flips:
    one, other = loaded(write_run(tmp_path / "A", base), write_run(tmp_path / "B", second))
    return flips_of(one, other, "acebench", rules)


def test_flips_have_both_answers_and_directions(tmp_path: Path) -> None:
    base, second = (
        [row("en", "normal_preference", i, official=i != wrong) | {"output": f"{name} {i}"}
         for i in range(4)]
        for name, wrong in (("base", 1), ("other", 2))
    )  # fmt: skip
    # Row ids of two models differ.
    flips = between(tmp_path, base, [r | {"row_id": r["row_id"][::-1]} for r in second])
    assert flips.paired == 4
    assert [(flip["change"], flip["id"]) for flip in flips.flips] == [
        ("gained", "normal_preference_1"),
        ("lost", "normal_preference_2"),
    ]
    gained, lost = flips.flips
    assert (gained["base_output"], gained["other_output"]) == ("base 1", "other 1")
    assert (lost["base_error_type"], lost["other_error_type"]) == ("", "param_value")
    assert flip_table(flips).lines == [["normal_preference", 1, 1]]


def wrong(category: str, number: int, **columns: Any) -> Row:
    return {**row("en", category, number, official=False), **columns}


def section(folder: Path) -> Any:
    return answers(choose(loaded(folder), 5), ("official", "strict")).view


def views(folder: Path, *rows: Row) -> dict[str, Any]:
    """Return the views of wrong rows by id."""
    return {view["id"]: view for view in section(write_run(folder, rows))["answers"]}


def chat(*messages: dict[str, Any]) -> str:
    return json.dumps(list(messages))


def test_rows_that_are_wrong_under_some_rule_set_are_shown(tmp_path: Path) -> None:
    rows = [
        row("en", "special_incomplete", 0),
        row("en", "special_incomplete", 1, official=False, strict=True),
        row("en", "special_incomplete", 2, official=True, strict=False),
        row("en", "special_incomplete", 3, status="infra_error"),
        wrong("special_incomplete", 5),
        wrong("special_incomplete", 6, repeat=1),
    ]
    content = section(write_run(tmp_path / "run", rows))
    assert {view["id"][-1] for view in content["answers"]} == {"1", "2", "5"}
    assert content["wrong"] == 3


def test_messages_are_shown_as_the_model_wrote_them(tmp_path: Path) -> None:
    calls = [{"type": "function", "function": {"name": "f", "arguments": "{}"}}]
    messages = chat(
        {"role": "system", "content": None, "text": "<tool>f</tool>", "tool_calls": calls},
        {"role": "tool", "content": [{"ok": True}]},
        {"role": "assistant", "content": None, "tool_calls": calls},
    )
    agent, single = views(
        tmp_path / "run",
        wrong("special_incomplete", 0, messages=messages, gold='{"f":[1]}'),
        wrong("agent_multi_step", 0, messages=messages, state='{"end": [1]}'),
    ).values()
    texts = [message["text"].text for message in agent["messages"]]
    assert (texts[0], *map(json.loads, texts[1:])) == ("<tool>f</tool>", [{"ok": True}], calls)
    assert [message["open"] for message in agent["messages"]] == [False, True, True]
    assert [message["role"] for message in single["messages"]] == ["system", "tool"]
    assert json.loads(agent["state"].text) == {"end": [1]}
    assert json.loads(single["gold"].text) == {"f": [1]}
    assert agent["gold"] is None


def test_long_texts_and_many_messages_are_cut(tmp_path: Path) -> None:
    long = "x" * 1_000_000
    columns = dict.fromkeys(("output", "reasoning", "official_error", "strict_error"), long)
    messages = chat(*({"role": "user", "content": "y" * 3_000} for _ in range(50)))
    columns |= {"messages": messages, "state": json.dumps({"end": long})}
    (view,) = views(tmp_path / "run", wrong("normal_atom_bool", 0, **columns)).values()
    assert (len(view["output"].text), view["output"].left_out) == (TEXT, 1_000_000 - TEXT)
    assert len(view["state"].text) == TEXT
    assert sum(len(message["text"].text) for message in view["messages"]) == MESSAGES
    assert view["left_out"] == 50 - len(view["messages"])
    assert all(len(judged["reason"].text) <= 1000 for judged in view["judgements"])
