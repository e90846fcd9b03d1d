"""What many rows share and an engine does once: when it kills, it costs what one row costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from ace_ray.benchmarks.bfcl.data.loader import load, prerequisites
from ace_ray.benchmarks.bfcl.data.upstream_package import UpstreamPackage
from tests.faults.fault_runs import Driver, Run

pytestmark = [pytest.mark.ray, pytest.mark.nightly]

PACKAGE = UpstreamPackage.locate("mini")
SCENARIO = next(iter(prerequisites(PACKAGE)))


@pytest.fixture(scope="module")
def faulty(tmp_path_factory) -> Iterator[tuple[Run, Driver]]:
    talks = prerequisites(PACKAGE)[SCENARIO]
    first = talks[0]["question"][0][-1]["content"]
    with Run(tmp_path_factory.mktemp("prepared")) as run:
        run.entries = load(PACKAGE, ["memory_kv"])
        run.write(
            engine={"die": {first: ""}},
            benchmarks=[{"name": "bfcl", "categories": ["memory_kv", "irrelevance"]}],
        )
        yield run, run.to_the_end()


def test_its_rows_are_quarantined_together_and_no_others(faulty):
    run, driver = faulty
    killed = {e.id for e in run.entries if e.data["scenario"] == SCENARIO}
    assert len(killed) > 1
    rows = run.rows()
    assert {row["id"] for row in rows if row["status"] == "quarantined"} == killed, driver.text
    assert Counter(row["status"] for row in rows)["scored"] == len(rows) - len(killed) > 0
    for row in rows:
        if row["id"] in killed:
            assert row["error_class"] == "PreparationKilled"
            assert "5 engines died while they worked on what this row shares" in row["error"]


def test_it_costs_the_engines_that_one_row_does(faulty):
    run, _ = faulty
    assert len(run.summary()["timing"]["engine_deaths"]) == 5
