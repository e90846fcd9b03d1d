"""``import ace_ray``: look into runs, and call commands as functions; tests/e2e evaluates."""

import json
import os
import subprocess
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from rich.console import Console

import ace_ray
from ace_ray.storage.object_store import LocalStore
from ace_ray.storage.parts import write_parts
from ace_ray.storage.rows import ROWS
from ace_ray.util import log
from tests.pipeline.made_run import answered, written_run, wrong


@pytest.fixture
def toy_run(tmp_path: Path) -> tuple[Path, list[dict[str, Any]]]:
    return tmp_path / "run", written_run(tmp_path / "run", answered)


def test_a_run_is_opened_and_its_rows_are_read(toy_run: Any) -> None:
    folder, rows = toy_run
    run = ace_ray.Run.open(str(folder))
    assert (run.uri, run.status, run.summary) == (str(folder), "incomplete", None)
    assert run.manifest["declared"] == 8
    table = run.rows()
    assert table.column_names == ROWS.names
    assert {row["row_id"] for row in table.to_pylist()} == {row["row_id"] for row in rows}
    assert run.dataframe(["category", "official_valid"]).official_valid.sum() == 7
    (wrong,) = run.episodes(valid=False)
    assert wrong.row_id == rows[0]["row_id"]
    steps = run.episode(rows[1]["id"]).steps
    assert [step.role for step in steps] == ["user", "assistant"]
    assert repr(steps[0]).startswith("<Step user: ")
    assert run.episode(rows[1]["row_id"][:8]).steps == steps

    # Another row with the same id has to be named by its language.
    store = LocalStore(str(folder))
    store.put("run.json", json.dumps({**run.manifest, "declared": 9}).encode())
    chinese = {**rows[1], "language": "zh", "row_id": "f" * 32}
    write_parts(store, "00000000000002-aa", pa.Table.from_pylist([chinese], schema=ROWS))
    run = ace_ray.Run(folder)
    with pytest.raises(ace_ray.UserError, match=r"matches 2 rows: acebench, .*language="):
        run.episode(chinese["id"])
    assert run.episode(chinese["id"], language="zh").row_id == "f" * 32


def test_runs_are_scored_compared_and_reported(toy_run: Any, tmp_path: Path) -> None:
    written_run(tmp_path / "other", wrong)
    runs = [ace_ray.score(toy_run[0]), ace_ray.score(tmp_path / "other")]
    assert runs[0].status == "complete"
    assert runs[0].summary is not None
    assert (runs[0].summary["scored"], runs[0].summary["declared"]) == (8, 8)
    assert len(runs[0].changed(runs[1])) == 7
    assert len(ace_ray.compare(runs, allow_different=True).runs) == 2
    page = ace_ray.report(runs, output=str(tmp_path / "report"))
    assert page == str(tmp_path / "report" / "report.html")
    assert Path(page).is_file()
    assert ace_ray.report(runs[0]) == f"{toy_run[0]}/report/report.html"


def test_functions_print_only_warnings_unless_they_get_a_console(
    toy_run: Any, tmp_path: Path, monkeypatch: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    def work(config: Any, *, console: Console, **_: Any) -> Any:
        with log.use_console(console):
            log.info("progress")
            log.warning("beware")
        return 75, {"uri": str(toy_run[0]), "complete": False}

    monkeypatch.setattr("ace_ray.pipeline.evaluate.evaluate", work)
    call: dict[str, Any] = {"model": "m", "benchmarks": "acebench", "backend": "fake"}
    run = ace_ray.evaluate(**call)
    assert capsys.readouterr() == ("", "beware\n")
    assert repr(run) == f"<Run {toy_run[0]}: 8 of 8 rows>"
    assert "ACE_RAY_LOG_LEVEL" not in os.environ
    page = ace_ray.report(run)
    assert (Path(str(page)).is_file(), capsys.readouterr().out) == (True, "")
    text = StringIO()
    ace_ray.evaluate(**call, console=Console(file=text))
    assert text.getvalue() == "progress\nbeware\n"


def test_mistakes_are_one_line(toy_run: Any, tmp_path: Path) -> None:
    run = ace_ray.Run.open(str(toy_run[0]))
    with pytest.raises(ace_ray.UserError, match="rows have no column 'gld'"):
        run.rows(["gld"])
    with pytest.raises(ace_ray.UserError, match="no such row"):
        run.episode("nobody")
    with pytest.raises(ace_ray.UserError):
        ace_ray.Run.open(str(tmp_path))
    with pytest.raises(ace_ray.UserError, match="name the benchmark"):
        ace_ray.score(tmp_path, output=str(tmp_path / "out"))
    with pytest.raises(ace_ray.UserError, match=r"evaluate\(\): unknown key 'sampling_'"):
        ace_ray.evaluate(model="y", benchmarks="bfcl", sampling_={})


def test_importing_the_package_is_light() -> None:
    code = "import ace_ray, sys, json; print(json.dumps(sorted(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert not {"ray", "vllm", "pyarrow", "pydantic", "scipy"} & set(json.loads(result.stdout))
    commands = {"compare", "evaluate", "export", "publish", "report", "reread", "score", "sweep"}
    assert set(dir(ace_ray)) >= {"Run", "RunFailed", "UserError", "__version__", *commands}
    assert not {"annotations", "import_module", "Any", "api", "TYPE_CHECKING"} & set(dir(ace_ray))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = ace_ray.nothing
