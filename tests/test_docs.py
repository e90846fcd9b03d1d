"""Pages that are made from the code are up to date, and the queries of the recipes work."""

import importlib.util
import re
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from ace_ray.benchmarks.acebench.gold import render_gold
from ace_ray.storage.rows import ROWS
from ace_ray.types import Entry, Episode
from tests.pipeline.made_run import written_run

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize(
    ("name", "page", "function"),
    [
        ("generate", "configuration.md", "page"),
        ("generate", "serving-variants.md", "hazards"),
        ("reference_runs", "reference-runs/index.md", "page"),
        ("published", "reference-runs/published.md", "page"),
    ],
)
def test_a_generated_page_is_up_to_date(
    name: str, page: str, function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    script: Any = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, script)
    spec.loader.exec_module(script)
    made = getattr(script, function)()
    assert (ROOT / "docs" / page).read_text(encoding="utf-8") == made, "run make docs"
    for title, _, model in getattr(script, "SECTIONS", ()):
        for key, meaning in script.meanings(model).items():
            assert meaning, f"{title}: {key}"


def test_every_column_of_the_rows_is_documented() -> None:
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    assert [name for name in ROWS.names if f"`{name}`" not in page] == []


RECIPES = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
SQL = re.findall(r"```sql\n(.*?)```", RECIPES, re.DOTALL)


def answered(number: int, entry: Entry) -> Episode:
    output = render_gold(entry) if number else "[nothing()]"
    state = {"steps": [{"speaker": "execution", "calls": [{"name": "f", "arguments": {"x": 1}}]}]}
    messages = [{"role": "user", "content": "Remind me"}, {"role": "assistant", "content": output}]
    tools = [{"type": "function", "function": {"name": "f"}}]
    return Episode(messages, output, model_calls=1, state=state, tools=tools)


def test_every_query_has_an_answer(tmp_path: Path) -> None:
    connection = pytest.importorskip("duckdb").connect()
    connection.sql(files("ace_ray.viewer").joinpath("rows.sql").read_text())
    written_run(tmp_path / "RUN", answered)
    answers: dict[str, list[tuple[Any, ...]]] = {
        query: connection.sql(query.replace("'RUN'", f"'{tmp_path}/RUN'")).fetchall()
        for query in SQL
    }
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
