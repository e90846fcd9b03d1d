"""A run folder that brings tool classes of its own: reading it runs none of them."""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from ace_ray.benchmarks.bfcl.data.upstream_package import TOOL_FOLDER, UpstreamPackage
from ace_ray.benchmarks.bfcl.tools.mini_tools import Bakery
from ace_ray.config.schema import RunConfig
from ace_ray.models.sources import ModelRef
from ace_ray.pipeline.planning.manifest import make_manifest
from ace_ray.pipeline.planning.plan import make_plan
from ace_ray.pipeline.planning.preflight import make_benchmarks
from ace_ray.sandbox.replayed_environment import end_processes
from ace_ray.storage.object_store import LocalStore
from ace_ray.storage.parts import write_parts
from ace_ray.storage.rows import ROWS
from ace_ray.storage.stored import MANIFEST, as_json
from ace_ray.types import Entry, Episode
from tests.benchmarks.bfcl.synthetic_bfcl import write_copy
from tests.pipeline.made_run import judged_rows

SOURCE = inspect.getsource(Bakery).replace("class Bakery", "class TicketAPI")
CLASS = f"from typing import Any, Dict\nAnswer = Mapping = Dict\n{SOURCE}"
ESCAPE = """for one in object.__subclasses__():
    if one.__name__ == '_wrap_close':
        one.__init__.__globals__['system']('touch MARKER')
"""
PAYLOADS = {
    "nothing": CLASS,
    "a subclass of object": ESCAPE + CLASS,
    "in a call": re.sub(
        r"(def [a-z]\w*\(self.*\) -> Answer:\n)",
        lambda head: head[1] + re.sub("^(?=.)", " " * 8, ESCAPE, flags=re.MULTILINE),
        CLASS,
    ),
}


@pytest.fixture(autouse=True)
def processes() -> Iterator[None]:
    yield
    end_processes()


def right(_: int, entry: Entry) -> Episode:
    turns = [[f"[{', '.join(turn)}]", "Done."] if turn else ["Done."] for turn in entry.gold]
    state = {"turns": turns, "ended": ""}
    return Episode([{"role": "user", "content": "q"}], state=state, model_calls=1)


def class_file(run: Path) -> Path:
    return run / "data" / "bfcl_eval" / TOOL_FOLDER / "ticket_api.py"


@pytest.fixture
def run(bfcl_copy: UpstreamPackage, tmp_path: Path) -> Path:
    """A whole run, made with a harmless copy in its own folder."""
    folder = tmp_path / "run"
    write_copy(folder / "data", bfcl_copy)
    class_file(folder).write_text(CLASS)
    section = {"name": "bfcl", "data": str(folder / "data"), "categories": ["multi_turn_base"]}
    tree = {"model": {"source": "none"}, "backend": "fake", "benchmarks": [section]}
    config = RunConfig.model_validate({**tree, "output": str(tmp_path), "run_id": "run"})
    plan = make_plan(config, ModelRef("fake", "fake", "fake", "fake"), make_benchmarks(config))
    rows = judged_rows(plan, right)
    assert any(row["official_valid"] for row in rows)
    store = LocalStore(plan.uri)
    store.put(MANIFEST, as_json(make_manifest(plan, {})))
    write_parts(store, "00000000000001-aa", pa.Table.from_pylist(rows, schema=ROWS))
    end_processes()
    return folder


@pytest.mark.nightly
@pytest.mark.parametrize("payload", PAYLOADS)
def test_reading_a_run_runs_nothing_and_named_classes_reach_nothing(payload, run, tmp_path, invoke):
    marker = tmp_path / "marker"
    class_file(run).write_text(PAYLOADS[payload].replace("MARKER", str(marker)))
    before = (run / MANIFEST).read_bytes()
    assert invoke("report", run, "--out", tmp_path / "report").code == 0
    refused = invoke("score", run)
    assert refused.code == 2
    assert "differ from bfcl-eval" in refused.stderr
    assert "score the run with --data" in refused.stderr
    assert "Traceback" not in refused.stderr
    invoke("compare", run, run)
    assert invoke("compact", run).code == 0
    assert (run / MANIFEST).read_bytes() == before
    assert not marker.exists(), "the run alone names the classes: they are not run"
    result = invoke("score", run, "--data", run / "data")
    if payload == "nothing":
        assert result.code == 0
        assert "no verdict changed" in result.stdout
        result = invoke("score", run, "--data", "mini", "--benchmark", "acebench")
        assert result.code == 2
        assert "no benchmark 'acebench'" in result.stderr
    invoke("data", "check", "bfcl", "--data", run / "data")
    assert not marker.exists(), "the user named the classes: they run, and reach nothing"
