"""The queries of ``docs/recipes.md`` work on the files of a run."""

import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from ace_ray.benchmarks.acebench.gold import render_gold
from ace_ray.types import Entry, Episode
from tests.pipeline.made_run import written_run

PAGE = (Path(__file__).parents[1] / "docs" / "recipes.md").read_text(encoding="utf-8")
SQL = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)


def answered(number: int, entry: Entry) -> Episode:
    output = render_gold(entry) if number else "[nothing()]"
    state = {"steps": [{"speaker": "execution", "calls": [{"name": "f", "arguments": {"x": 1}}]}]}
    messages = [{"role": "user", "content": "Remind me"}, {"role": "assistant", "content": output}]
    tools = [{"type": "function", "function": {"name": "f"}}]
    return Episode(messages, output, model_calls=1, state=state, tools=tools)


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Return a folder with the run RUN."""
    written_run(tmp_path / "RUN", answered)
    return tmp_path


def query_rows(query: str, runs: Path) -> list[tuple[Any, ...]]:
    duckdb = pytest.importorskip("duckdb")
    connection = duckdb.connect()
    connection.sql(files("ace_ray.viewer").joinpath("rows.sql").read_text())
    query = query.replace("'RUN'", f"'{runs / 'RUN'}'")
    rows: list[tuple[Any, ...]] = connection.sql(query).fetchall()
    return rows


def test_every_query_has_an_answer(runs: Path) -> None:
    answers = {query: query_rows(query, runs) for query in SQL}
    for query, answer in answers.items():
        assert bool(answer) is not ("<> strict_valid" in query or "<> 'scored'" in query), query
    by_category, *_ = answers.values()
    assert [line[:3] for line in by_category] == [
        ("normal_atom_bool", 4, 1.0),
        ("special_incomplete", 4, 0.75),
    ]

    def answer_of(word: str) -> list[tuple[Any, ...]]:
        return next(answer for query, answer in answers.items() if word in query)

    assert [tool for _, tool, _ in answer_of("$.calls")] == ["f"] * 8
    assert answer_of("tools") == [("f", 8)]
