"""``import ace_ray``: runs to look into, and commands as functions; evaluating is in tests/e2e."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from rich.console import Console

import ace_ray
from ace_ray.api import _config
from ace_ray.benchmarks.acebench.gold import render_gold
from ace_ray.storage.object_store import LocalStore, open_store
from ace_ray.storage.parts import write_parts
from ace_ray.storage.rows import ROWS
from ace_ray.types import Entry, Episode
from tests.pipeline.made_run import written_run


def answered(number: int, entry: Entry) -> Episode:
    output = render_gold(entry) if number else "[nothing()]"
    messages = [{"role": "user", "content": "q"}, {"role": "assistant", "content": output}]
    return Episode(messages, output, model_calls=1)


def silent(number: int, entry: Entry) -> Episode:
    return Episode([{"role": "user", "content": "q"}], "[nothing()]", model_calls=1)


@pytest.fixture
def made(tmp_path: Path) -> tuple[Path, list[dict[str, Any]]]:
    return tmp_path / "run", written_run(tmp_path / "run", answered)


def test_a_run_is_opened_and_looked_into(made: Any) -> None:
    folder, rows = made
    run = ace_ray.Run.open(str(folder))
    assert (run.uri, run.status, run.summary) == (str(folder), "incomplete", None)
    assert run.manifest["declared"] == 8
    table = run.rows()
    assert table.column_names == ROWS.names
    assert {row["row_id"] for row in table.to_pylist()} == {row["row_id"] for row in rows}
    frame = run.dataframe(["category", "official_valid"])
    assert frame.official_valid.sum() == 7
    (wrong,) = run.episodes(valid=False)
    assert wrong.row_id == rows[0]["row_id"]
    steps = run.episode(rows[1]["id"]).steps
    assert [step.role for step in steps] == ["user", "assistant"]
    assert run.episode(rows[1]["row_id"][:8]).steps == steps


def test_what_is_returned_is_shown_in_a_line(tmp_path: Path) -> None:
    long = "x" * 100_000

    def said(number: int, entry: Entry) -> Episode:
        return Episode([{"role": "assistant", "content": long}], long, model_calls=1)

    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        written_run(folder, said)
        store = LocalStore(str(folder))
        store.put(
            "summary.json", json.dumps({"benchmarks": {"a": {"x": long}}, "why": long}).encode()
        )
    one, two = (ace_ray.Run.open(str(folder)) for folder in folders)
    first = one.rows().column("id")[0].as_py()
    comparison = ace_ray.compare([one, two], console=Console(quiet=True))
    shown = {
        "run": one,
        "episode": one.episode(first),
        "steps": one.episode(first).steps,
        "changed": one.changed(two),
        "comparison": comparison,
        "results": comparison.results[0],
        "compared": comparison.runs[0],
    }
    sizes = {name: len(repr(value)) for name, value in shown.items()}
    assert max(sizes.values()) < 2_000, sizes
    assert repr(one) == f"<Run {one.uri}: 8 of 8 rows>"
    assert repr(shown["comparison"]).startswith("<Comparison of fake (one), fake (two): ")


def test_an_id_of_several_rows_is_not_guessed(tmp_path: Path) -> None:
    plan_rows = written_run(tmp_path / "run", answered)
    store = LocalStore(str(tmp_path / "run"))
    manifest = json.loads(store.get("run.json") or b"")
    store.put("run.json", json.dumps({**manifest, "declared": 9}).encode())
    chinese = {**plan_rows[1], "language": "zh", "row_id": "f" * 32}
    part = pa.Table.from_pylist([chinese], schema=ROWS)
    write_parts(store, "00000000000002-aa", part)
    run = ace_ray.Run.open(str(tmp_path / "run"))
    with pytest.raises(ace_ray.UserError, match=r"2 rows are called so: acebench, .*language="):
        run.episode(chinese["id"])
    assert run.episode(chinese["id"], language="zh").row_id == "f" * 32


@pytest.mark.nightly
def test_a_run_on_another_store_is_read_there(
    tmp_path: Path, s3: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was opened at an endpoint of its own is not looked for where the environment says."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    written_run(tmp_path / "run", answered)
    uri = f"s3://{s3.bucket}/{tmp_path.name}/run"
    target = open_store(uri, endpoint_url=s3.endpoint_url)
    local = LocalStore(str(tmp_path / "run"))
    for one in local.list():
        target.put(one.path, local.get(one.path) or b"")
    run = ace_ray.score(uri, endpoint_url=s3.endpoint_url)
    assert (run.uri, run.status) == (uri, "complete")
    opened = ace_ray.Run.open(uri, endpoint_url=s3.endpoint_url)
    assert ace_ray.report(opened) == f"{uri}/report/report.html"


def test_a_finished_run_has_a_summary(made: Any) -> None:
    folder, _ = made
    run = ace_ray.score(folder)
    assert run.status == "complete"
    assert run.summary is not None
    assert (run.summary["scored"], run.summary["declared"]) == (8, 8)


@pytest.mark.nightly
def test_two_runs(made: Any, tmp_path: Path) -> None:
    folder, _ = made
    written_run(tmp_path / "other", silent)
    runs = [ace_ray.score(folder), ace_ray.score(tmp_path / "other")]
    assert len(runs[0].changed(runs[1])) == 7
    comparison = ace_ray.compare(runs, allow_different=True)
    assert len(comparison.runs) == 2
    page = ace_ray.report(runs, output=str(tmp_path / "report"))
    assert page == str(tmp_path / "report" / "report.html")
    assert Path(page).is_file()
    assert ace_ray.report(runs[0]) == f"{folder}/report/report.html"


def test_mistakes_are_one_line(made: Any, tmp_path: Path) -> None:
    run = ace_ray.Run.open(str(made[0]))
    with pytest.raises(ace_ray.UserError, match="rows have no column 'gld'"):
        run.rows(["gld"])
    with pytest.raises(ace_ray.UserError, match="no such row"):
        run.episode("nobody")
    with pytest.raises(ace_ray.UserError):
        ace_ray.Run.open(str(tmp_path))
    with pytest.raises(ace_ray.UserError, match="name the benchmark"):
        ace_ray.score(tmp_path, output=str(tmp_path / "out"))


def test_a_config_is_made_of_what_is_given(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("model: {source: x, tool_parser: hermes}\nbenchmarks: [acebench]\n")
    given = {"output": "out", "limit": 3, "ids": ["a"], "sampling": {"temperature": 0.5}}
    config = _config(file, "y", None, given)
    assert (config.model.source, config.model.tool_parser) == ("y", "hermes")
    assert (config.output, config.limit, config.ids) == ("out", 3, ["a"])
    assert config.sampling.temperature == 0.5
    keywords = _config(None, "y", "bfcl", {"backend": "fake"})
    assert [one.name for one in keywords.benchmarks] == ["bfcl"]
    assert _config(keywords, None, None, {}) == keywords
    mapping = {"model": {"source": "z"}, "benchmarks": [{"name": "bfcl", "mode": "native"}]}
    assert _config(mapping, None, None, {}).model.source == "z"
    with pytest.raises(ace_ray.UserError, match=r"evaluate\(\): unknown key 'sampling_'"):
        _config(None, "y", "bfcl", {"sampling_": {}})


def test_importing_it_is_light() -> None:
    """A command starts at once, and what it needs is imported then."""
    code = "import ace_ray, sys, json; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = json.loads(done.stdout)
    assert not {"ray", "vllm", "pyarrow", "pydantic", "scipy"} & set(loaded)
    assert {"Run", "evaluate", "sweep", "score", "report", "compare"} <= set(dir(ace_ray))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = ace_ray.nothing
