"""``ace-ray show``: rows found by what they are, and one row whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ace_ray.benchmarks.acebench.gold import render_gold
from ace_ray.types import Entry, Episode
from ace_ray.viewer.episode import Change, changes
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


def test_rows_are_listed_by_what_they_are(run: Any, here: Any) -> None:
    folder, rows = run
    ended = here("show", folder)
    assert ended.code == 0
    assert ended.stdout.startswith("8 of 8 rows\n")
    assert all(row["id"] in ended.stdout for row in rows)
    assert "  right\n" in ended.stdout
    assert here("show", folder, "--wrong").stdout.startswith("1 of 8 rows\n")
    assert here("show", folder, "--valid").stdout.startswith("7 of 8 rows\n")
    assert here("show", folder, "--valid", "--limit", 2).stdout.endswith(
        "5 more; --limit 0 shows all\n"
    )
    kind = rows[0]["strict_error_type"]
    found = here("show", folder, "--error-type", kind, "--rules", "strict").stdout
    assert found.startswith("1 of 8 rows\n")
    assert rows[0]["id"] in found
    one = here("show", folder, "--category", "special_incomplete").stdout
    assert one.startswith("4 of 8 rows\n")


def test_a_row_is_shown_whole(run: Any, here: Any) -> None:
    folder, rows = run
    right = rows[1]
    whole = here("show", folder, right["id"]).stdout
    assert f"(acebench, {right['category']}, en; row {right['row_id'][:12]})" in whole
    for part in ("official: right", "question 1", "because", "gold", right["output"]):
        assert part in whole
    assert here("show", folder, right["row_id"][:10]).stdout == whole


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


def test_tools_come_after_what_was_asked(here: Any, tmp_path: Path) -> None:
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


def test_hostile_text_is_text(run: Any, here: Any) -> None:
    folder, rows = run
    for words in ([rows[0]["id"]], []):
        shown = here("show", folder, *words).stdout
        assert "\x1b" not in shown
        assert "\u202e" not in shown
        assert "evil" in shown


def test_as_json_every_text_is_whole(run: Any, here: Any) -> None:
    folder, rows = run
    lines = here("show", folder, "--json", "--limit", 0).stdout.splitlines()
    read = {view["row_id"]: view for view in map(json.loads, lines)}
    assert read.keys() == {row["row_id"] for row in rows}
    for row in rows:
        view = read[row["row_id"]]
        assert view["gold"] == json.loads(row["gold"])
        assert view["steps"][-1]["text"] == row["output"]
        assert view["verdicts"]["official"]["valid"] == row["official_valid"]


def test_as_json_no_row_is_left_out_unasked(here: Any, tmp_path: Path) -> None:
    rows = written_run(tmp_path / "run", answered, samples=4)
    lines = here("show", tmp_path / "run", "--json").stdout.splitlines()
    assert len(lines) == len(rows) == 32
    assert len(here("show", tmp_path / "run", "--json", "--limit", 3).stdout.splitlines()) == 3


def test_many_rows_are_streamed(run: Any, here: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, rows = run
    monkeypatch.setattr("ace_ray.viewer.select.MOST_HELD", 1)
    lines = here("show", folder, "--json").stdout.splitlines()
    assert [json.loads(line)["row_id"] for line in lines] == [row["row_id"] for row in rows]
    listed = here("show", folder).stdout.splitlines()
    for row in rows[1:]:  # each beside its own answer
        (place,) = (n for n, line in enumerate(listed) if line.startswith(f"{row['id']}  "))
        assert listed[place + 1].strip() == " ".join(row["output"].split())[:68].strip()


def test_what_changed_against_another_run(run: Any, here: Any, tmp_path: Path) -> None:
    folder, rows = run
    written_run(tmp_path / "other", wrong)
    changed = here("show", folder, "--changed", tmp_path / "other").stdout
    assert changed.startswith("7 of 8 rows have a different verdict in ")
    assert rows[0]["id"] not in changed
    assert here("show", folder, "--changed", folder).stdout.startswith("0 of 8 rows")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nobody"], "nobody: "),
        (["--category", "x"], "--category: "),
        (["--rules", "x"], "name one of official, strict"),
        (["--status", "x"], "has no row with 'x'"),
    ],
)
def test_what_no_row_can_be_is_one_line(run: Any, here: Any, words: list[str], said: str) -> None:
    ended = here("show", run[0], *words)
    assert (ended.code, ended.stdout) == (2, "")
    assert said in ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1


def test_no_run_is_one_line(here: Any, tmp_path: Path) -> None:
    ended = here("show", tmp_path)
    assert ended.code == 2
    assert len(ended.stderr.strip().splitlines()) == 1


def test_differences_of_states() -> None:
    before = {"a": {"x": 1, "gone": True}, "list": [1, 2], "same": "s", "flag": 1}
    after = {"a": {"x": 2, "new": None}, "list": [1, 3, 4], "same": "s", "flag": True}
    assert changes(before, after) == [
        Change(("a", "x"), "changed", 1, 2),
        Change(("a", "gone"), "removed", before=True),
        Change(("a", "new"), "added", after=None),
        Change(("list", 1), "changed", 2, 3),
        Change(("list", 2), "added", after=4),
        Change(("flag",), "changed", 1, True),
    ]
    assert [one.path for one in changes(before, after)][2:4] == ["a.new", "list[1]"]
    assert changes(after, after) == []
