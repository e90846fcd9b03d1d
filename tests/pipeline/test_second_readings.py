"""Second readings in stored runs: the column, and what summaries say."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from ace_ray.benchmarks.acebench.benchmark import ACEBench
from ace_ray.benchmarks.acebench.gold import render_gold
from ace_ray.errors import UserError
from ace_ray.models.sources import ModelRef
from ace_ray.parsing.literals import parse_calls
from ace_ray.pipeline.planning.plan import make_manifest
from ace_ray.pipeline.rescore import rescore
from ace_ray.pipeline.score import score_outputs
from ace_ray.pipeline.summary import as_json
from ace_ray.reports.printed_summary import print_summary
from ace_ray.reports.report import make_report
from ace_ray.storage.object_store import LocalStore
from ace_ray.storage.parts import read_ledger
from ace_ray.storage.rows import ROWS
from ace_ray.storage.stored import MANIFEST
from ace_ray.types import Entry, Episode
from tests.pipeline.made_run import judged_rows, planned_run

SAID = "8 rows hold calls that were not read; readers that find them: fenced_json (8)"


def fenced(entry: Entry) -> str:
    calls = parse_calls(render_gold(entry) if entry.category.startswith("normal") else "[f()]")
    written = [{"name": call.name, "arguments": call.args} for call in calls]
    return f"```json\n{json.dumps(written)}\n```"


def answered(number: int, entry: Entry) -> Episode:
    return Episode([{"role": "user", "content": "q"}], fenced(entry), model_calls=1)


def made(folder: Path, *, older: bool, **changes: Any) -> LocalStore:
    """Eight rows with calls in a fenced block; ``older``: without a second reading."""
    plan = planned_run(folder / "run", ModelRef("fake", "fake", "fake", "fake"))
    store = LocalStore(plan.uri)
    store.put(MANIFEST, as_json(make_manifest(plan, {})))
    changes |= {"second_reading": None} if older else {}
    rows = [row | changes for row in judged_rows(plan, answered)]
    table = pa.Table.from_pylist(rows, schema=ROWS)
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    store.put("rows/part-00000000000001-aa-0.parquet", sink.getvalue().to_pybytes())
    return store


def column(store: LocalStore) -> list[Any]:
    tables = list(read_ledger(store).tables(["second_reading"]))
    return pa.concat_tables(tables).column("second_reading").to_pylist()


def printed(summary: dict[str, Any]) -> str:
    out = io.StringIO()
    print_summary(summary, Console(file=out, width=200))
    return " ".join(out.getvalue().split())


def test_a_run_that_is_judged_again_says_what_its_answers_hold(tmp_path: Path) -> None:
    store = made(tmp_path, older=True)
    assert column(store) == [None] * 8
    said: list[str] = []
    _, summary = rescore(store.root, said.append)
    assert said[-1] == "no verdict changed"
    assert [json.loads(text)["reader"] for text in column(store)] == ["fenced_json"] * 8
    (finding,) = summary["benchmarks"]["acebench"]["diagnosis"]
    assert (finding["kind"], finding["rows"], finding["of"]) == ("unread_calls", 8, 8)
    assert finding["readers"] == {"fenced_json": 8}
    stored = json.loads(store.get("summary.json") or b"")
    assert stored["benchmarks"]["acebench"]["diagnosis"] == [finding]
    assert "8 of " + SAID in printed(summary)


@pytest.mark.nightly
def test_a_run_that_is_reported_on_says_so(tmp_path: Path) -> None:
    store = made(tmp_path, older=False)
    out = io.StringIO()
    make_report(
        [store.root], paper=False, out=None, rules=None, console=Console(file=out, width=200)
    )
    assert "8 of " + SAID in out.getvalue()
    page = (store.get("report/report.html") or b"").decode()
    assert "8 of " + SAID in page


@pytest.mark.parametrize(
    "text", ["no JSON", "[]", '{"reader": "<b>", "where": "answer", "answers": 1}']
)
def test_a_damaged_one_is_one_line(tmp_path: Path, text: str) -> None:
    store = made(tmp_path, older=False, second_reading=text)
    with pytest.raises(UserError, match="the column second_reading"):
        list(read_ledger(store).rows())


def test_a_defect_in_a_second_reading_costs_no_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("no second reading today")

    monkeypatch.setattr(ACEBench, "unread", broken)
    store = made(tmp_path, older=True)
    _, summary = rescore(store.root, lambda line: None)
    assert (summary["scored"], summary["infra_error"]) == (8, 0)
    assert "diagnosis" not in summary["benchmarks"]["acebench"]
    assert column(store) == [None] * 8
    assert "no second reading today" in capsys.readouterr().out


def test_outputs_made_elsewhere_say_what_they_hold(tmp_path: Path) -> None:
    entries = [e for e in ACEBench.from_options({"data": "mini"}).dataset()]
    lines = [
        {"language": e.language, "category": e.category, "id": e.id, "output": fenced(e)}
        for e in entries
        if e.category == "normal_atom_bool"
    ]
    path = tmp_path / "outputs.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    store = LocalStore(str(tmp_path / "run"))
    for again in (False, True):
        if again:
            _, summary = rescore(store.root, lambda line: None)
        else:
            summary = score_outputs(
                path,
                benchmark="acebench",
                data="mini",
                model=None,
                store=store,
                say=lambda line: None,
            )
        (finding,) = summary["benchmarks"]["acebench"]["diagnosis"]
        assert finding["readers"] == {"fenced_json": len(lines)}
        assert all(column(store))
