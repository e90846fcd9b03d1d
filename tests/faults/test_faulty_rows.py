"""Rows that fail, hang and crash their engines, each with its own end."""

import json

import pytest

from ace_ray.storage.object_store import LocalStore
from ace_ray.storage.session_log import read_logs

pytestmark = [pytest.mark.ray, pytest.mark.nightly]

QUARANTINED = (0, "quarantined", "EngineKilled")


@pytest.mark.parametrize(
    ("fault", "end", "cause"),
    [
        ("hang", QUARANTINED, "no answer for"),
        ("die", QUARANTINED, "told to die"),
        ("abort", QUARANTINED, "its process crashed: Fatal Python error: Aborted"),
        # Nothing distinguishes it from an operator who kills the engine each time.
        ("crash", (75, "infra_error", "KilledFromOutside"), "its process was killed"),
    ],
)
def test_only_the_row_that_ends_engines_is_quarantined(make_run, fault, end, cause) -> None:
    run = make_run()
    run.write(engine={fault: {run.questions[6]: ""}, "delay_s": 0.2})
    if fault == "hang":
        run.write(engine_stall_timeout_s=3.0)
    driver = run.to_the_end()
    row = run.row(6)
    assert (driver.code, row["status"], row["error_class"]) == end, driver.text
    assert "no headline number" in driver.text
    deaths = run.summary()["timing"]["engine_deaths"]
    assert len(deaths) == sum(cause in death for death in deaths) == 5, deaths
    stored = [json.loads(line) for line in read_logs(LocalStore(str(run.path)))]
    died = [line for line in stored if line.get("event") == "engine_died"]
    assert [cause in line["message"] and bool(line["engine_log"]) for line in died] == [True] * 5
    assert {run.row(entry)["status"] for entry in range(12) if entry != 6} == {"scored"}


LATE = """
from ace_ray.benchmarks.base import Benchmark
from ace_ray.types import Entry

class Late(Benchmark):
    name = "late"

    def entries(self):
        return [Entry(id=f"e{n}", category="c", prompt="x", gold="4") for n in range(3)]

    async def run(self, entry, context):
        raise RAISED

    def check(self, entry, episode):
        raise NotImplementedError
"""


@pytest.mark.parametrize("raised", ["TimeoutError", "SystemExit", "asyncio.CancelledError"])
def test_a_timeout_or_an_exit_in_the_code_of_a_benchmark_is_its_bug(make_run, tmp_path, raised):
    code = tmp_path / "late.py"
    code.write_text("import asyncio\n" + LATE.replace("RAISED", f'{raised}("of the server")'))
    run = make_run(benchmarks=[{"name": f"{code}:Late"}])
    driver = run.to_the_end()
    assert driver.code == 1, driver.text
    assert f"{raised.rpartition('.')[2]}: of the server" in driver.text
    assert "EpisodeTimeout" not in driver.text
