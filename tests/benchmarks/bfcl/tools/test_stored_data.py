"""A run folder that brings tool classes of its own: reading it runs none of them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ace_ray.benchmarks.bfcl.data.upstream_package import TOOL_FOLDER
from ace_ray.benchmarks.bfcl.decode.calls import Answer
from ace_ray.benchmarks.bfcl.tools.own import Bakery
from ace_ray.cli.main import main
from ace_ray.config.schema import RunConfig
from ace_ray.models.sources import ModelRef
from ace_ray.pipeline.actors.judging import judged
from ace_ray.pipeline.planning.plan import make_manifest, make_plan
from ace_ray.pipeline.planning.preflight import make_benchmarks
from ace_ray.pipeline.summary import as_json
from ace_ray.sandbox.attempts import end_processes
from ace_ray.storage.object_store import LocalStore
from ace_ray.storage.parts import write_parts
from ace_ray.storage.rows import ROWS, episode_columns
from ace_ray.storage.stored import MANIFEST
from ace_ray.types import Episode
from tests.benchmarks.bfcl.synthetic_bfcl import write_copy

CLASS = "from typing import Any, Dict\nAnswer = Mapping = Dict\n" + inspect.getsource(
    Bakery
).replace("class Bakery", "class TicketAPI")
PAYLOADS = {
    "a module's module": "import random\nrandom._os.system('touch {marker}')\n",
    "a module's open": "import json\njson.codecs.open('{marker}', 'w')\n",
    "a subclass of object": (
        "for one in object.__subclasses__():\n"
        "    if one.__name__ == '_wrap_close':\n"
        "        one.__init__.__globals__['system']('touch {marker}')\n"
    ),
    "in a call": re.sub(
        r"(def [a-z]\w*\(self.*\) -> Answer:\n)",
        r"\1"
        "        for one in object.__subclasses__():\n"
        "            if one.__name__ == '_wrap_close':\n"
        "                one.__init__.__globals__['system']('touch MARKER')\n",
        CLASS,
    ),
}


def class_file(run: Path) -> Path:
    return run / "data" / "bfcl_eval" / TOOL_FOLDER / "ticket_api.py"


@pytest.fixture(autouse=True)
def processes() -> Iterator[None]:
    yield
    end_processes()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A whole run, made with a copy in its own folder that was harmless then."""
    folder = tmp_path / "run"
    write_copy(folder / "data")
    class_file(folder).write_text(CLASS)
    section = {
        "name": "bfcl",
        "data": str(folder / "data"),
        "categories": ["multi_turn_base"],
    }
    tree = {
        "model": {"source": "none"},
        "backend": "fake",
        "benchmarks": [section],
        "output": str(tmp_path),
        "run_id": "run",
    }
    (benchmark,) = make_benchmarks(config := RunConfig.model_validate(tree))
    plan = make_plan(config, ModelRef("fake", "fake", "fake", "fake"), [benchmark])
    rows = []
    for planned in pa.table(plan.rows.columns()).to_pylist():
        entry = plan.entries[planned["entry"]]
        turns = [[f"[{', '.join(turn)}]", "Done."] if turn else ["Done."] for turn in entry.gold]
        state = {"turns": [[Answer(t).as_json() for t in one] for one in turns], "ended": ""}
        episode = Episode([{"role": "user", "content": "q"}], state=state, model_calls=1)
        row: dict[str, Any] = {
            "row_id": planned["row_id"].decode(),
            "run_id": "run",
            "benchmark": entry.benchmark,
            "category": entry.category,
            "language": entry.language,
            "id": entry.id,
            "group": entry.group,
            "sample": 0,
            "repeat": planned["repeat"],
            "seed": 0,
            "status": "scored",
            "error_class": None,
            "error": None,
            "attempts": 1,
            **episode_columns(episode),
            "started_at": datetime(2026, 1, 1, tzinfo=UTC),
            "duration_s": 0.5,
            "worker": "host:1",
        }
        rows.append(judged(row, entry, benchmark))
    assert any(row["official_valid"] for row in rows)
    store = LocalStore(plan.uri)
    store.put(MANIFEST, as_json(make_manifest(plan, {})))
    write_parts(store, "00000000000001-aa", pa.Table.from_pylist(rows, schema=ROWS))
    return folder


def ended(*arguments: str) -> int:
    with pytest.raises(SystemExit) as caught:
        main(list(arguments))
    return int(caught.value.code or 0)


@pytest.fixture(params=PAYLOADS)
def poisoned(run: Path, tmp_path: Path, request: pytest.FixtureRequest) -> tuple[Path, Path]:
    """The run with code that would write a marker, and the marker's path."""
    marker = tmp_path / "marker"
    payload = PAYLOADS[request.param].replace("MARKER", str(marker))
    if "class TicketAPI" not in payload:
        payload = payload.format(marker=marker) + CLASS
    class_file(run).write_text(payload)
    return run, marker


@pytest.mark.nightly
def test_reading_a_run_runs_nothing_that_it_brought(
    poisoned: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, marker = poisoned
    end_processes()
    before = (run / MANIFEST).read_bytes()
    assert ended("report", str(run), "--out", str(tmp_path / "report")) == 0
    assert ended("score", str(run)) == 2
    said = capsys.readouterr().err
    assert "are not those of bfcl-eval" in said
    assert "score the run with --data" in said
    assert "Traceback" not in said
    ended("compare", str(run), str(run))
    assert ended("compact", str(run)) == 0
    assert not marker.exists()
    assert (run / MANIFEST).read_bytes() == before


@pytest.mark.nightly
def test_classes_that_the_user_named_run_and_reach_nothing(
    poisoned: tuple[Path, Path],
) -> None:
    run, marker = poisoned
    ended("score", str(run), "--data", str(run / "data"))
    ended("data", "check", "bfcl", "--data", str(run / "data"))
    assert not marker.exists()


@pytest.mark.nightly
def test_a_run_is_scored_with_data_that_the_user_names(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended("score", str(run)) == 2
    assert ended("score", str(run), "--data", str(run / "data")) == 0
    assert "no verdict changed" in capsys.readouterr().out
    assert ended("score", str(run), "--data", str(run / "data"), "--benchmark", "bfcl") == 0
    assert ended("score", str(run), "--data", "mini", "--benchmark", "acebench") == 2
    assert "no benchmark 'acebench'" in capsys.readouterr().err
