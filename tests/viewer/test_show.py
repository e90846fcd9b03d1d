"""``ace-ray show``, rows behind the pages, and the bounded parts of large rows."""

import json
import re
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ace_ray.benchmarks.acebench.gold import render_gold
from ace_ray.errors import UserError
from ace_ray.rescoring.rejudge import compact_run
from ace_ray.storage.object_store import LocalStore, open_store
from ace_ray.storage.parts import write_parts
from ace_ray.storage.rows import ROWS
from ace_ray.storage.stored_run import StoredRun
from ace_ray.types import Entry, Episode
from ace_ray.util.safe_loading import SHOWN_CHARS
from ace_ray.viewer.row_filter import Filter, episodes, select
from ace_ray.viewer.server import render, row_view
from ace_ray.viewer.table import RunTable, tables_of
from tests.pipeline.made_run import written_run, wrong
from tests.report.builders import block, ledger_line, write_run, write_sweep

HOSTILE = "\x1b[2Jgone \u202e evil password='hunter2-42'\r\nline"


def answered(number: int, entry: Entry) -> Episode:
    output = render_gold(entry) if number else HOSTILE
    messages = [
        {"role": "user", "content": f"question {number}"},
        {"role": "assistant", "content": output, "reasoning": "because"},
    ]
    return Episode(messages, output, reasoning="because", model_calls=1, prompt_tokens=7)


@pytest.fixture
def run(tmp_path: Path) -> tuple[Path, list[dict[str, Any]]]:
    return tmp_path / "run", written_run(tmp_path / "run", answered)


def test_rows_are_listed_and_filtered(run: Any, invoke: Any, tmp_path: Path) -> None:
    folder, rows = run
    listed = invoke("show", folder).stdout
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
        assert invoke("show", folder, *words).stdout.startswith(start), words
    cut = invoke("show", folder, "--valid", "--limit", 2).stdout
    assert cut.endswith("5 more; --limit 0 shows all\n")


def test_a_row_is_shown_whole_and_harmless(run: Any, invoke: Any) -> None:
    folder, rows = run
    right = rows[1]
    text = invoke("show", folder, right["id"]).stdout
    assert f"(acebench, {right['category']}, en; row {right['row_id'][:12]})" in text
    for part in ("official: right", "question 1", "because", "gold", right["output"]):
        assert part in text
    assert invoke("show", folder, right["row_id"][:10]).stdout == text
    output = invoke("show", folder, rows[0]["id"]).stdout
    assert "\x1b" not in output
    assert "\u202e" not in output
    assert "evil password='hunter2-42'" in output, "stored texts are not masked"


def test_tools_come_after_the_prompt_and_the_sandbox_at_the_end(invoke, tmp_path) -> None:
    def with_state(number: int, entry: Entry) -> Episode:
        episode = answered(number, entry)
        box = [{"Files": {"a.txt": HOSTILE, "gone": 1}}]
        episode.state = {"before": box, "end": [{"Files": {"a.txt": "b"}}], "steps": []}
        function = {"name": "find", "description": HOSTILE, "parameters": {"type": "object"}}
        late = {"function": {"name": "later"}, "since_answer": 3}
        episode.tools = [{"type": "function", "function": function}, late]
        return episode

    rows = written_run(tmp_path / "run", with_state)
    output = invoke("show", tmp_path / "run", rows[1]["id"]).stdout
    parts = ["question 1", "-- tools offered, 2 ", "find: ", '{"type": "object"', "later (from an"]
    parts += ["because", "-- state before ", "a.txt", "-- state after: changes "]
    offsets = [output.index(part) for part in [*parts, "[0].Files.gone removed: 1"]]
    assert offsets == sorted(offsets)
    assert "\u202e" not in output
    read = json.loads(invoke("show", tmp_path / "run", "--json").stdout.splitlines()[1])
    assert read["changes"][0]["place"] == [0, "Files", "a.txt"]
    assert [(tool["name"], tool["since"]) for tool in read["tools"]] == [("find", 1), ("later", 3)]


def test_json_has_all_rows_and_complete_texts(invoke, tmp_path, monkeypatch) -> None:
    folder, rows = tmp_path / "run", written_run(tmp_path / "run", answered, samples=4)
    lines = [json.loads(line) for line in invoke("show", folder, "--json").stdout.splitlines()]
    read = {view["row_id"]: view for view in lines}
    assert read.keys() == {row["row_id"] for row in rows}
    assert len(lines) == 32
    for stored_row in rows:
        view = read[stored_row["row_id"]]
        assert view["gold"] == json.loads(stored_row["gold"])
        assert view["steps"][-1]["text"] == stored_row["output"]
        assert view["verdicts"]["official"]["valid"] == stored_row["official_valid"]
    # Rows that do not fit into memory together come as they are stored.
    monkeypatch.setattr("ace_ray.viewer.row_filter.GROUP_CHARS", 1)
    streamed = invoke("show", folder, "--json").stdout.splitlines()
    assert {json.loads(line)["row_id"] for line in streamed} == read.keys()


def test_filters_that_match_no_row_are_refused(run: Any, invoke: Any) -> None:
    kind = run[1][0]["official_error_type"]
    for words, problem in (
        (["nobody"], "nobody: "),
        (["--rules", "x"], "name one of official, strict"),
        (["--status", "x"], "has no row with 'x'"),
        (["--error-type", "typ"], f"has no row with 'typ'; name one of {kind}"),
    ):
        invoke("show", run[0], *words).refused(problem)


ROWS_OF_RUN = [*block("en", "normal_atom_bool", 8, 13), *block("zh", "special_incomplete", 1, 3)]


def table_of(folder: Path, *rows: Any, **options: Any) -> RunTable:
    return RunTable(open_store(str(write_run(folder, rows, **options))))


def test_a_run_that_grows_is_read_on(tmp_path: Path) -> None:
    table = table_of(tmp_path / "run", *ROWS_OF_RUN[:10], missing=6, finished=False)
    assert (len(table.rows), table.finished) == (10, False)
    assert not table.refresh()
    more = [{**base_row, "run_id": "run"} for base_row in ROWS_OF_RUN[10:]]
    store = LocalStore(str(tmp_path / "run"))
    write_parts(store, "1-a", pa.Table.from_pylist(more, schema=ROWS))
    store.put("_SUCCESS", b"")
    assert table.refresh()
    assert (len(table.rows), table.finished) == (16, True)
    assert not table.refresh()


def test_parts_may_be_merged_meanwhile(tmp_path: Path) -> None:
    table = table_of(tmp_path / "run", *ROWS_OF_RUN[:10], missing=6)
    compact_run(str(tmp_path / "run"), open_store)
    assert table.episode(table.rows[0]).key["id"] == "normal_atom_bool_0"
    assert table.refresh()


def test_a_sweep_is_its_runs_that_have_begun(tmp_path: Path) -> None:
    rows = block("en", "normal_atom_bool", 1, 2)
    lines = [ledger_line("a"), ledger_line("b"), ledger_line("c", state="pending")]
    sweep = write_sweep(tmp_path / "sweep", lines, {"a": rows, "b": rows})
    assert [table.run_id for table in tables_of([open_store(str(sweep))])] == ["run-a", "run-b"]
    with pytest.raises(UserError, match="is not a run"):
        tables_of([open_store(str(tmp_path / "nowhere"))])


MANY = 400_000
INVISIBLE = "a\u200b" * (1 << 20)
LONG = "some words on a line\n" * (SHOWN_CHARS // 4)
LARGE: dict[str, dict[str, str]] = {
    "deep gold": {"gold": "[" * 190 + "0," * MANY + "0" + "]" * 190},
    "messages": {"messages": json.dumps([{}] * MANY)},
    "text": {"messages": json.dumps([{"role": "assistant", "content": LONG}])},
    "states": {"state": json.dumps({"before": [0] * MANY, "end": [1] * MANY})},
    "reason": {"strict_error": INVISIBLE},
}
"""Columns of a row that take a few kilobytes in a part."""


def run_with(folder: Path, changed: dict[str, str]) -> str:
    """Write a run in which one row has these columns. Returns the id of the row."""
    changed_row = written_run(folder, wrong)[0] | changed
    table = pa.Table.from_pylist([changed_row | {"attempts": 2}], schema=ROWS)
    write_parts(LocalStore(str(folder)), "00000000000002-aa", table)
    return str(changed_row["row_id"])


@pytest.mark.nightly
def test_eight_mebibytes_of_all_messages_and_one_of_each_are_shown(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "x" * 2 * SHOWN_CHARS}] * 10
    row_id = run_with(tmp_path / "run", {"messages": json.dumps(messages)})
    stored = StoredRun(open_store(str(tmp_path / "run")))
    (view,) = episodes(stored, select(stored, Filter(entry=row_id)))
    lengths = [len(step.text) for step in view.steps]
    assert max(lengths) < SHOWN_CHARS + 100
    assert 7 * SHOWN_CHARS < sum(lengths) < 8 * SHOWN_CHARS + 2_000


@pytest.mark.nightly
@pytest.mark.parametrize("name", LARGE)
def test_a_large_row_is_shown_in_part(name: str, tmp_path: Path, invoke: Any) -> None:
    folder = tmp_path / "run"
    row_id = run_with(folder, LARGE[name])
    stored = StoredRun(open_store(str(folder)))
    (view,) = episodes(stored, select(stored, Filter(entry=row_id)))
    turn = {"place": "", "previous": "", "next": ""}
    sides = [{"name": "run", "row": row_view(view)}]
    page = render(
        "row.html.j2", {"title": "x", "back": "", "turn": turn, "sides": sides, "pairs": []}
    )
    printed = invoke("show", folder, row_id).stdout
    lines = invoke("show", folder, row_id, "--json").stdout
    for text in (page, printed, lines):
        assert len(text) < 6 * SHOWN_CHARS
        assert re.search("more values|more characters|are shortened", text)
    assert "\u200b" not in printed
    invoke("export", folder, "--to", "inspect", "--output", tmp_path / "export").ok()
    (log,) = (tmp_path / "export").iterdir()
    assert log.stat().st_size < SHOWN_CHARS
    with zipfile.ZipFile(log) as files:  # of which a viewer holds this list
        assert files.getinfo("summaries.json").file_size < 100_000
