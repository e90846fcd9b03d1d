"""Expected durations of entries, learnt from stored rows."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ace_ray.errors import UserError
from ace_ray.models.sources import ModelRef
from ace_ray.pipeline.planning.manifest import make_manifest
from ace_ray.pipeline.planning.plan import Plan
from ace_ray.pipeline.run_folder import open_folder
from ace_ray.storage.object_store import LocalStore
from ace_ray.storage.parts import write_parts
from ace_ray.storage.rows import ROWS
from ace_ray.storage.stored import MANIFEST, as_json
from tests.pipeline.made_run import answered, judged_rows, planned_run

# Changes of the first rows, which have one category. Others took 1 s for 10 tokens.
QUEUED = {"duration_s": 4.0, "first_token_s": 1.0, "completion_tokens": 30}
WAITED = {"duration_s": 9.5, "endpoint": '{"attempts":1,"waited_s":7.5}'}
FAILED = {"duration_s": 3600.0, "status": "infra_error"}
KNOWN = [(3.0, 30.0, 1.5), (2.0, 10.0, 1.0), (2.0, 10.0, 1.0), (1.0, 10.0, 0.5)]
MEDIAN = [(2.0, 10.0, 1.0)]


def stored(folder: Path, *changes: dict[str, Any]) -> Plan:
    """Store one row for each of ``changes``. Return the run's plan."""
    plan = planned_run(folder, ModelRef("fake", "fake", "fake", "fake"))
    usual = {"duration_s": 1.0, "completion_tokens": 10}
    rows = judged_rows(plan, answered)[: len(changes)]
    rows = [row | usual | change for row, change in zip(rows, changes, strict=True)]
    store = LocalStore(plan.uri)
    store.put(MANIFEST, as_json(make_manifest(plan, {})))
    write_parts(store, "00000000000001-aa", pa.Table.from_pylist(rows, schema=ROWS))
    return plan


def learnt(plan: Plan, source: str | None = None) -> list[tuple[float, ...]]:
    """Return (seconds, tokens, length) of each row's entry, as a command learns them."""
    config = plan.config.model_copy(update={"durations_from": source})
    with open_folder(replace(plan, config=config), fresh=False, began=0.0) as run:
        columns = [column[plan.rows.entry].tolist() for column in vars(run.durations).values()]
    return list(zip(*columns, strict=True))


def test_a_run_learns_from_another_run_and_from_its_own_rows(tmp_path: Path) -> None:
    source = stored(tmp_path / "source", QUEUED, WAITED, FAILED, {})
    new = planned_run(tmp_path / "new", ModelRef("other", "hub", "other", "1"))
    assert learnt(new) == [(0.0, 0.0, 1.0)] * 8
    assert learnt(new, source.uri) == [*KNOWN, *MEDIAN * 4]
    assert learnt(source) == [*KNOWN, *MEDIAN * 4], "a resumed run"
    resumed = stored(tmp_path / "resumed", QUEUED | {"duration_s": 50.0}, {}, {}, {}, QUEUED)
    # The source has entries 0, 1 and 3, the run's own rows the others and the second category.
    seconds = [3.0, 2.0, 1.0, 1.0, *[3.0] * 4]
    assert [row[0] for row in learnt(resumed, source.uri)] == seconds


def test_the_source_of_durations_is_no_part_of_a_run(tmp_path: Path) -> None:
    plan = planned_run(tmp_path / "run", ModelRef("fake", "fake", "fake", "fake"))
    config = plan.config.model_copy(update={"durations_from": "runs/earlier"})
    assert make_manifest(replace(plan, config=config), {}) == make_manifest(plan, {})


def test_a_source_without_durations_is_refused_in_a_line(tmp_path: Path) -> None:
    plan, empty = planned_run(tmp_path / "run", ModelRef("a", "fake", "a", "a")), tmp_path / "empty"
    with pytest.raises(UserError, match=r"empty: is not a run: run.json is missing; name the fold"):
        learnt(plan, str(empty))
    stored(empty, FAILED)
    with pytest.raises(UserError, match=r"^durations_from: .*/empty has no rows of this run's ent"):
        learnt(plan, str(empty))
