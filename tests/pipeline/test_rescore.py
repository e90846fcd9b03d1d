"""Stored runs are judged anew and compacted, without an engine and without losing a row."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ace_ray.benchmarks.acebench.benchmark import ACEBench
from ace_ray.benchmarks.acebench.gold import render_gold
from ace_ray.errors import COMPLETE, INCOMPLETE, UserError
from ace_ray.models.sources import ModelRef
from ace_ray.pipeline.planning.plan import make_manifest
from ace_ray.pipeline.rescore import compact_run, rescore
from ace_ray.pipeline.summary import SUCCESS, as_json
from ace_ray.storage import lease as lease_module
from ace_ray.storage.lease import LEASE, Lease
from ace_ray.storage.object_store import LocalStore
from ace_ray.storage.parts import FOLDER, part_names, read_ledger, write_parts
from ace_ray.storage.rows import CHECK_FAILED, ROWS
from ace_ray.storage.stored import MANIFEST, SUMMARY
from ace_ray.types import Entry, Episode, Verdict
from tests.pipeline.made_run import judged_rows, planned_run

EARLY, LATE = "00000000000001-aa", "00000000000002-aa"


@dataclass
class MadeRun:
    """A run folder as `evaluate` leaves it. Every answer but the first is right."""

    store: LocalStore
    manifest: dict[str, Any]
    rows: list[dict[str, Any]]

    @property
    def uri(self) -> str:
        return self.store.root

    def write(self, session: str, rows: list[dict[str, Any]]) -> None:
        write_parts(self.store, session, pa.Table.from_pylist(rows, schema=ROWS))

    def stored(self) -> dict[str, dict[str, Any]]:
        tables = read_ledger(self.store).tables(ROWS.names)
        rows = [row for table in tables for row in table.to_pylist()]
        assert len({row["row_id"] for row in rows}) == len(rows), "a row is read twice"
        return {row["row_id"]: row for row in rows}

    def altered(self, index: int, **changes: Any) -> dict[str, Any]:
        """Return the row without its verdicts, with ``changes``."""
        verdicts = {name: None for name in self.rows[index] if name.startswith(("off", "strict"))}
        return {**self.rows[index], **verdicts, **changes}


Make = Callable[..., MadeRun]


def answered(number: int, entry: Entry) -> Episode:
    output = render_gold(entry) if number else "[nothing()]"
    return Episode([{"role": "user", "content": "q"}], output, model_calls=1)


@pytest.fixture
def make(tmp_path: Path) -> Make:
    def made(*, samples: int = 1) -> MadeRun:
        ref = ModelRef("fake", "fake", "fake", "fake")
        plan = planned_run(tmp_path / "run", ref, samples=samples)
        rows = judged_rows(plan, answered)
        run = MadeRun(LocalStore(plan.uri), make_manifest(plan, {}), rows)
        run.store.put(MANIFEST, as_json(run.manifest))
        return run

    return made


@pytest.fixture
def run(make: Make) -> MadeRun:
    """A complete run of 8 rows in two parts."""
    run = make()
    assert len(run.rows) == 8
    run.write(EARLY, run.rows[:5])
    run.write(LATE, run.rows[5:])
    run.store.put(SUMMARY, as_json({"timing": {"wall_s": 12.5}, "complete": True}))
    run.store.put(SUCCESS, b"")
    return run


def summary_of(run: MadeRun) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run.store.get(SUMMARY) or b"")
    return found


def reject(self: ACEBench, entry: Entry, episode: Episode) -> Mapping[str, Verdict]:
    return {
        "official": Verdict(False, "wrong", "said so"),
        "strict": Verdict(False, "wrong", "said so"),
    }


def test_new_checkers_change_verdicts_only(run: MadeRun, monkeypatch) -> None:
    before = run.stored()
    old = part_names(run.store)
    monkeypatch.setattr(ACEBench, "check", reject)
    said: list[str] = []
    code, summary = rescore(run.uri, said.append)
    after = run.stored()
    assert code == COMPLETE
    assert after.keys() == before.keys()
    verdicts = [name for name in ROWS.names if name.startswith(("official_", "strict_"))]
    for row_id, row in after.items():
        kept = {name: row[name] for name in ROWS.names if name not in verdicts}
        assert kept == {name: before[row_id][name] for name in kept}
        assert (row["official_valid"], row["official_error_type"]) == (False, "wrong")
        assert (row["strict_error"], row["strict_metrics"]) == ("said so", "{}")
    assert "official valid -> invalid: 7" in said
    assert "strict valid -> invalid: 7" in said
    assert any(line.startswith("official error type only: 1") for line in said)
    assert not set(old) & set(part_names(run.store))
    assert read_ledger(run.store).dominated == 0
    assert json.loads(as_json(summary)) == summary_of(run)
    assert summary["timing"] == {"wall_s": 12.5}
    assert summary["rescored"]["at"]
    assert (summary["ignored_files"], summary["uri"]) == ({}, run.uri)
    assert run.store.get(MANIFEST) == as_json(run.manifest)
    monkeypatch.undo()
    rescore(run.uri, lambda line: None)
    assert run.stored() == before
    assert rescore(run.uri, said.append)[0] == COMPLETE
    assert said[-1] == "no verdict changed"
    assert (run.store.get(SUCCESS), run.store.get(LEASE)) == (b"", None)


def test_rows_whose_checker_failed_are_judged_again(run: MadeRun, monkeypatch) -> None:
    def fail(*_: Any) -> Any:
        raise KeyError("hard \ud800 luck")

    before = run.stored()
    with monkeypatch.context() as patch:
        patch.setattr(ACEBench, "check", fail)
        said: list[str] = []
        code, summary = rescore(run.uri, said.append)
        assert (code, summary["infra_error"]) == (INCOMPLETE, 8)
        assert run.store.get(SUCCESS) is None
        assert {row["error_class"] for row in run.stored().values()} == {CHECK_FAILED}
        assert "official valid -> not judged: 7" in said
        rescore(run.uri, lambda line: None)
        assert {row["error_class"] for row in run.stored().values()} == {CHECK_FAILED}
    assert rescore(run.uri, lambda line: None)[0] == COMPLETE
    assert run.stored() == before
    assert run.store.get(SUCCESS) == b""


def test_rows_without_an_episode_stay(make: Make, monkeypatch) -> None:
    run = make()
    others = [
        run.altered(0, status="quarantined", error_class="EngineKilled", error="2 engines died"),
        run.altered(1, status="skipped", error_class="PromptTooLong", error="9 tokens"),
        run.altered(2, status="infra_error", error_class="EpisodeTimeout", error="no end"),
        run.altered(3, status="quarantined", error_class="CheckerKilled", error="2 died"),
    ]
    run.write(EARLY, [*others, *run.rows[4:]])
    monkeypatch.setattr(ACEBench, "check", reject)
    code, summary = rescore(run.uri, lambda line: None)
    after = run.stored()
    assert [after[row["row_id"]] for row in others] == others
    assert [after[row["row_id"]]["official_valid"] for row in run.rows[4:]] == [False] * 4
    assert code == INCOMPLETE
    assert (summary["quarantined"], summary["skipped"], summary["infra_error"]) == (2, 1, 1)
    assert run.store.get(SUCCESS) is None


def test_only_rows_that_count_are_kept(make: Make) -> None:
    run = make(samples=3)
    run.write(EARLY, run.rows[:20])
    run.write(LATE, [run.altered(0, status="infra_error", error_class="Boom")])
    run.write("00000000000003-aa", [{**run.rows[1], "duration_s": 9.0}])
    assert read_ledger(run.store).dominated == 2
    code, summary = rescore(run.uri, lambda line: None)
    assert (code, summary["scored"], summary["missing"]) == (INCOMPLETE, 20, 4)
    assert run.store.get(SUCCESS) is None
    assert read_ledger(run.store).dominated == 0
    assert run.stored()[run.rows[0]["row_id"]]["status"] == "scored"
    assert run.stored()[run.rows[1]["row_id"]]["duration_s"] == 9.0


def unchanged(run: MadeRun, work: Callable[[], Any], words: str) -> None:
    """Check that ``work`` is refused with ``words`` and changes nothing."""
    before = {item.path: run.store.get(item.path) for item in run.store.list()}
    with pytest.raises(UserError, match=words) as caught:
        work()
    assert caught.value.fix
    assert {item.path: run.store.get(item.path) for item in run.store.list()} == before


def test_data_and_config_must_be_those_of_the_run(run: MadeRun) -> None:
    entries = run.manifest["entries"]
    run.store.put(MANIFEST, as_json(run.manifest | {"entries": {**entries, "acebench": "0" * 64}}))
    unchanged(run, lambda: rescore(run.uri, pytest.fail), "data of acebench is not what this run")
    config = {**run.manifest["config"], "telepathy": True}
    run.store.put(MANIFEST, as_json(run.manifest | {"config": config}))
    unchanged(run, lambda: rescore(run.uri, pytest.fail), "unknown key 'telepathy'")
    run.store.put(MANIFEST, as_json(run.manifest | {"declared": 9}))
    run.write("00000000000003-aa", [{**run.rows[0], "row_id": "f" * 32, "id": "of_other_data_1"}])
    with pytest.raises(UserError, match="of_other_data_1"):
        rescore(run.uri, pytest.fail)
    assert run.store.get(LEASE) is None
    assert len(run.stored()) == 9


@pytest.mark.parametrize("work", [rescore, compact_run])
@pytest.mark.parametrize(
    "manifest",
    [None, b"", b"[]", b'{"config": {}}', b"\xff\xfe\x00", b"[" * 50_000],
)
def test_damaged_manifest_is_refused(run: MadeRun, work: Any, manifest: bytes | None) -> None:
    run.store.delete(MANIFEST)
    if manifest is not None:
        run.store.put(MANIFEST, manifest)
    unchanged(
        run, lambda: work(run.uri, pytest.fail), "not a run|is missing|is not (a )?JSON|nested"
    )


@pytest.mark.parametrize("work", [rescore, compact_run])
def test_run_that_is_being_written_is_refused(run: MadeRun, work: Any, monkeypatch) -> None:
    monkeypatch.setattr(lease_module, "BEAT_S", 0.02)
    before = run.stored()
    parts = part_names(run.store)
    lease = Lease.acquire(run.store, pytest.fail)
    try:
        with pytest.raises(UserError, match="the run is being written by process"):
            work(run.uri, lambda line: None)
        lease.check()
    finally:
        lease.release()
    assert part_names(run.store) == parts
    assert run.stored() == before


class Crash(Exception):
    """Stands for the end of the process."""


@pytest.mark.parametrize("survives", [0, 1])
@pytest.mark.parametrize("step", ["put", "delete"])
def test_crash_loses_no_row(run: MadeRun, monkeypatch, step: str, survives: int) -> None:
    before = run.stored()
    real: Callable[..., None] = getattr(LocalStore, step)
    done: list[str] = []

    def crash(self: LocalStore, path: str, *data: bytes) -> None:
        if path.startswith(FOLDER):
            if len(done) == survives:
                raise Crash
            done.append(path)
        real(self, path, *data)

    with monkeypatch.context() as patch:
        patch.setattr(ACEBench, "check", reject)
        patch.setattr(LocalStore, step, crash)
        with pytest.raises(Crash):
            rescore(run.uri, lambda line: None)
    after = run.stored()
    assert after.keys() == before.keys()
    judged_anew = sum(row["official_error_type"] == "wrong" for row in after.values())
    # All parts are written before the first one is deleted.
    assert judged_anew == (8 if step == "delete" else [0, 5][survives])
    assert run.store.get(LEASE) is None
    assert rescore(run.uri, lambda line: None)[0] == COMPLETE
    assert run.stored() == before
    assert read_ledger(run.store).dominated == 0


def test_compacting_merges_parts_and_drops_superseded_rows(run: MadeRun) -> None:
    run.write("00000000000003-aa", [run.altered(0, status="infra_error", error_class="Boom")])
    before = run.stored()
    said: list[str] = []
    compact_run(run.uri, said.append)
    assert run.stored() == before
    assert len(part_names(run.store)) == 1
    assert said == [f"{run.uri}: 8 rows, 1 superseded ones dropped, 3 parts -> 1"]
    assert run.store.get(LEASE) is None
    assert summary_of(run)["complete"]
    assert rescore(run.uri, lambda line: None)[0] == COMPLETE
    assert run.stored() == before
