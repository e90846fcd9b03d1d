"""A preparation that crashes engines costs what one row costs."""

from __future__ import annotations

import pytest

from ace_ray.benchmarks.bfcl.data.loader import load, prerequisites
from ace_ray.benchmarks.bfcl.data.upstream_package import UpstreamPackage

pytestmark = [pytest.mark.ray, pytest.mark.nightly]


def test_rows_of_a_preparation_that_crashes_engines_are_quarantined(make_run):
    package = UpstreamPackage.locate("mini")
    scenario, talks = next(iter(prerequisites(package).items()))
    first = talks[0]["question"][0][-1]["content"]
    run = make_run(
        engine={"die": {first: ""}},
        benchmarks=[{"name": "bfcl", "categories": ["memory_kv", "irrelevance"]}],
    )
    driver = run.to_the_end()
    entries = load(package, ["memory_kv"])
    killed = {entry.id for entry in entries if entry.data["scenario"] == scenario}
    assert len(killed) > 1
    rows = run.rows()
    assert {row["id"] for row in rows if row["status"] == "quarantined"} == killed, driver.text
    assert sum(row["status"] == "scored" for row in rows) == len(rows) - len(killed) > 0
    for row in rows:
        if row["id"] in killed:
            assert row["error_class"] == "PreparationKilled"
            assert "5 engines crashed while working on the preparation" in row["error"]
    assert len(run.summary()["timing"]["engine_deaths"]) == 5
