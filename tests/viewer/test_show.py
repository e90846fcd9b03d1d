"""``ace-ray show``: lists of rows, and complete rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ace_ray.benchmarks.acebench.gold import render_gold
from ace_ray.types import Entry, Episode
from ace_ray.viewer.episode import changes
from tests.pipeline.made_run import written_run

HOSTILE = "\x1b[2Jgone \u202e evil\r\nline"


def answered(number: int, entry: Entry) -> Episode:
    output = render_gold(entry) if number else HOSTILE
    messages = [
        {"role": "user", "content": f"question {number}"},
        {"role": "assistant", "content": output, "reasoning": "because"},
    ]
    return Episode(messages, output, reasoning="because", model_calls=1, prompt_tokens=7)


def wrong(number: int, entry: Entry) -> Episode:
    return Episode([{"role": "user", "content": "q"}], "[nothing()]", model_calls=1)


@pytest.fixture
def run(tmp_path: Path) -> tuple[Path, list[dict[str, Any]]]:
    return tmp_path / "run", written_run(tmp_path / "run", answered)


def test_rows_are_listed_and_filtered(run: Any, here: Any, tmp_path: Path) -> None:
    folder, rows = run
    listed = here("show", folder).stdout
    assert listed.startswith("8 of 8 rows\n")
    assert all(row["id"] in listed for row in rows)
    assert "  right\n" in listed
    kind = rows[0]["strict_error_type"]
    written_run(tmp_path / "other", wrong)
    for words, start in (
        (["--wrong"], "1 of 8 rows\n"),
        (["--valid"], "7 of 8 rows\n"),
        (["--error-type", kind, "--rules", "strict"], "1 of 8 rows\n"),
        (["--changed", tmp_path / "other"], "7 of 8 rows have a different verdict in "),
        (["--changed", folder], "0 of 8 rows"),
    ):
        assert here("show", folder, *words).stdout.startswith(start), words
    cut = here("show", folder, "--valid", "--limit", 2).stdout
    assert cut.endswith("5 more; --limit 0 shows all\n")


def test_a_row_is_shown_whole_and_harmless(run: Any, here: Any) -> None:
    folder, rows = run
    right = rows[1]
    whole = here("show", folder, right["id"]).stdout
    assert f"(acebench, {right['category']}, en; row {right['row_id'][:12]})" in whole
    for part in ("official: right", "question 1", "because", "gold", right["output"]):
        assert part in whole
    assert here("show", folder, right["row_id"][:10]).stdout == whole
    for words in ([rows[0]["id"]], []):
        shown = here("show", folder, *words).stdout
        assert "\x1b" not in shown
        assert "\u202e" not in shown
        assert "evil" in shown


def test_the_sandbox_is_shown_before_and_after(here: Any, tmp_path: Path) -> None:
    def with_state(number: int, entry: Entry) -> Episode:
        episode = answered(number, entry)
        box = [{"Files": {"a.txt": HOSTILE, "gone": 1}}]
        episode.state = {"before": box, "end": [{"Files": {"a.txt": "b"}}], "steps": []}
        return episode

    rows = written_run(tmp_path / "run", with_state)
    shown = here("show", tmp_path / "run", rows[1]["id"]).stdout
    before, after = shown.split("-- state before ")[1].split("-- state after: changes ")
    assert "a.txt" in before
    assert "[0].Files.gone removed: 1" in after
    assert "\u202e" not in shown
    read = json.loads(here("show", tmp_path / "run", "--json").stdout.splitlines()[0])
    assert read["states"]["after"] == [{"Files": {"a.txt": "b"}}]
    assert read["changes"][0]["place"] == [0, "Files", "a.txt"]


def test_tools_are_shown_after_the_prompt(here: Any, tmp_path: Path) -> None:
    def offered(number: int, entry: Entry) -> Episode:
        episode = answered(number, entry)
        schema = {"type": "object", "properties": {"x": {"type": "string"}}}
        told = {"name": "find", "description": HOSTILE, "parameters": schema}
        late = {"function": {"name": "later"}, "since_answer": 3}
        episode.tools = [{"type": "function", "function": told}, late]
        return episode

    rows = written_run(tmp_path / "run", offered)
    shown = here("show", tmp_path / "run", rows[1]["id"]).stdout
    parts = ["question 1", "-- tools offered, 2 ", "find: ", '{"type": "object"', "because"]
    places = [shown.index(part) for part in parts]
    assert places == sorted(places)
    assert "later (from answer 3): " in shown
    assert "\u202e" not in shown
    read = json.loads(here("show", tmp_path / "run", "--json").stdout.splitlines()[1])
    assert [(one["name"], one["since"]) for one in read["tools"]] == [("find", 1), ("later", 3)]


def test_json_has_all_rows_and_complete_texts(
    here: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, rows = tmp_path / "run", written_run(tmp_path / "run", answered, samples=4)
    lines = [json.loads(line) for line in here("show", folder, "--json").stdout.splitlines()]
    read = {view["row_id"]: view for view in lines}
    assert read.keys() == {row["row_id"] for row in rows}
    assert len(lines) == 32
    for row in rows:
        view = read[row["row_id"]]
        assert view["gold"] == json.loads(row["gold"])
        assert view["steps"][-1]["text"] == row["output"]
        assert view["verdicts"]["official"]["valid"] == row["official_valid"]
    assert len(here("show", folder, "--json", "--limit", 3).stdout.splitlines()) == 3
    # Rows that do not fit into memory together come in the same order.
    monkeypatch.setattr("ace_ray.viewer.select.MOST_HELD", 1)
    streamed = here("show", folder, "--json").stdout.splitlines()
    assert [json.loads(line) for line in streamed] == lines


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nobody"], "nobody: "),
        (["--category", "x"], "--category: "),
        (["--rules", "x"], "name one of official, strict"),
        (["--status", "x"], "has no row with 'x'"),
    ],
)
def test_filters_that_match_no_row_are_refused(
    run: Any, here: Any, words: list[str], said: str
) -> None:
    ended = here("show", run[0], *words)
    assert (ended.code, ended.stdout) == (2, "")
    assert said in ended.stderr


def test_differences_of_states() -> None:
    before = {"a": {"x": 1, "gone": True}, "list": [1, 2], "same": "s", "flag": 1}
    after = {"a": {"x": 2, "new": None}, "list": [1, 3, 4], "same": "s", "flag": True}
    assert [(one.path, one.kind, one.before, one.after) for one in changes(before, after)] == [
        ("a.x", "changed", 1, 2),
        ("a.gone", "removed", True, None),
        ("a.new", "added", None, None),
        ("list[1]", "changed", 2, 3),
        ("list[2]", "added", None, 4),
        ("flag", "changed", 1, True),
    ]
    assert changes(after, after) == []
