"""Stored runs are judged anew and compacted, without an engine and without losing a row."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ace_ray.benchmarks.acebench.benchmark import ACEBench
from ace_ray.errors import COMPLETE, INCOMPLETE, UserError
from ace_ray.rescoring.rejudge import compact_run, rejudge_run
from ace_ray.storage import lease as lease_module
from ace_ray.storage.lease import LEASE, Lease
from ace_ray.storage.object_store import LocalStore
from ace_ray.storage.parts import FOLDER, part_names, read_ledger, write_parts
from ace_ray.storage.rows import CHECK_FAILED, ROWS
from ace_ray.storage.stored import MANIFEST, SUCCESS, SUMMARY, as_json
from ace_ray.types import Entry, Episode, Verdict
from tests.pipeline.made_run import sound_run


class MadeRun:
    """A complete run of eight rows in two parts, all answers right."""

    def __init__(self, folder: Path) -> None:
        self.uri = str(sound_run(folder))
        self.store = LocalStore(self.uri)
        self.rows = list(self.stored().values())

    def write(self, session: int, *rows: dict[str, Any]) -> None:
        table = pa.Table.from_pylist(list(rows), schema=ROWS)
        write_parts(self.store, f"{session:014}-aa", table)

    def stored(self) -> dict[str, dict[str, Any]]:
        tables = read_ledger(self.store).tables(ROWS.names)
        rows = [row for table in tables for row in table.to_pylist()]
        assert len({row["row_id"] for row in rows}) == len(rows), "a row is read twice"
        return {row["row_id"]: row for row in rows}

    def without_verdict(self, index: int, **changes: Any) -> dict[str, Any]:
        verdicts = {name: None for name in self.rows[index] if name.startswith(("off", "strict"))}
        return {**self.rows[index], **verdicts, **changes}

    def rejudge_run(self) -> tuple[int, dict[str, Any]]:
        return rejudge_run(self.uri)


@pytest.fixture
def run(tmp_path: Path) -> MadeRun:
    return MadeRun(tmp_path / "run")


def reject(self: ACEBench, entry: Entry, episode: Episode) -> Mapping[str, Verdict]:
    return {rules: Verdict(False, "wrong", "said so") for rules in ("official", "strict")}


def test_new_checkers_change_verdicts_only(run: MadeRun, log_lines: list[str], monkeypatch) -> None:
    before, manifest, old = run.stored(), run.store.get(MANIFEST), part_names(run.store)
    monkeypatch.setattr(ACEBench, "check", reject)
    code, summary = run.rejudge_run()
    after = run.stored()
    assert (code, summary["scored"], summary["complete"]) == (COMPLETE, 8, True)
    assert after.keys() == before.keys()
    for row_id, row in after.items():
        columns = {name: row[name] for name in row if not name.startswith(("official_", "strict_"))}
        assert columns == {name: before[row_id][name] for name in columns}
        assert (row["official_valid"], row["official_error_type"]) == (False, "wrong")
        assert (row["strict_error"], row["strict_metrics"]) == ("said so", "{}")
    assert {"official valid -> invalid: 8", "strict valid -> invalid: 8"} <= {*log_lines}
    assert not {*old} & {*part_names(run.store)}
    assert json.loads(as_json(summary)) == json.loads(run.store.get(SUMMARY) or b"")
    assert summary["timing"]["wall_s"] == 1.0, "the times of the engines stay"
    assert summary["rescored"]["at"]
    assert (summary["ignored_files"], summary["uri"]) == ({}, run.uri)
    monkeypatch.undo()
    assert run.rejudge_run()[0] == COMPLETE
    assert run.stored() == before
    run.rejudge_run()
    assert log_lines[-1] == "no verdict changed"
    assert (run.store.get(SUCCESS), run.store.get(LEASE)) == (b"", None)
    assert run.store.get(MANIFEST) == manifest


def test_rows_whose_checker_failed_are_judged_again(run, log_lines, monkeypatch) -> None:
    def fail(*_: Any) -> Any:
        raise KeyError("hard \ud800 luck")

    before = run.stored()
    with monkeypatch.context() as patch:
        patch.setattr(ACEBench, "check", fail)
        for _ in range(2):
            code, summary = run.rejudge_run()
            assert (code, summary["infra_error"]) == (INCOMPLETE, 8)
            assert run.store.get(SUCCESS) is None
            assert {row["error_class"] for row in run.stored().values()} == {CHECK_FAILED}
        assert "official valid -> not judged: 8" in log_lines
    assert run.rejudge_run()[0] == COMPLETE
    assert run.stored() == before
    assert run.store.get(SUCCESS) == b""


def test_rows_without_an_episode_stay(run: MadeRun, monkeypatch) -> None:
    failed_rows = [
        run.without_verdict(0, status="quarantined", error_class="EngineKilled", error="2 died"),
        run.without_verdict(1, status="skipped", error_class="PromptTooLong", error="9 tokens"),
        run.without_verdict(2, status="infra_error", error_class="EpisodeTimeout", error="no end"),
        run.without_verdict(3, status="quarantined", error_class="CheckerKilled", error="2 died"),
    ]
    for name in part_names(run.store):
        run.store.delete(name)
    run.write(3, *failed_rows, *run.rows[4:7])
    monkeypatch.setattr(ACEBench, "check", reject)
    code, summary = run.rejudge_run()
    after = run.stored()
    assert [after[row["row_id"]] for row in failed_rows] == failed_rows
    assert [after[row["row_id"]]["official_valid"] for row in run.rows[4:7]] == [False] * 3
    assert code == INCOMPLETE
    assert (summary["quarantined"], summary["skipped"], summary["infra_error"]) == (2, 1, 1)
    assert (summary["scored"], summary["missing"]) == (3, 1)
    assert run.store.get(SUCCESS) is None


@pytest.mark.parametrize("work", [rejudge_run, compact_run])
def test_only_rows_that_count_are_kept(run: MadeRun, work: Any, log_lines: list[str]) -> None:
    run.write(3, run.without_verdict(0, status="infra_error", error_class="Boom"))
    run.write(4, {**run.rows[1], "duration_s": 9.0})
    before = run.stored()
    assert read_ledger(run.store).dominated == 2
    log_lines.clear()
    work(run.uri)
    assert read_ledger(run.store).dominated == 0
    assert run.stored() == before
    assert before[run.rows[0]["row_id"]]["status"] == "scored"
    assert before[run.rows[1]["row_id"]]["duration_s"] == 9.0
    assert json.loads(run.store.get(SUMMARY) or b"")["complete"]
    assert run.store.get(LEASE) is None
    if work is compact_run:
        assert log_lines == [f"{run.uri}: 8 rows, 2 superseded rows dropped, 4 parts -> 1"]
        assert len(part_names(run.store)) == 1


def unchanged(run: MadeRun, work: Callable[[], Any], words: str) -> None:
    """Check that ``work`` is refused with ``words`` and changes nothing."""
    before = {item.path: run.store.get(item.path) for item in run.store.list()}
    with pytest.raises(UserError, match=words) as caught:
        work()
    assert caught.value.fix
    assert {item.path: run.store.get(item.path) for item in run.store.list()} == before


def test_data_and_config_must_be_those_of_the_run(run: MadeRun) -> None:
    manifest = json.loads(run.store.get(MANIFEST) or b"")
    for change, words in (
        ({"entries": {"acebench": "0" * 64}}, "data of acebench differs"),
        ({"config": {**manifest["config"], "telepathy": True}}, "unknown key 'telepathy'"),
    ):
        run.store.put(MANIFEST, as_json(manifest | change))
        unchanged(run, run.rejudge_run, words)
    run.store.put(MANIFEST, as_json(manifest | {"declared": 9}))
    run.write(3, {**run.rows[0], "row_id": "f" * 32, "id": "of_other_data_1"})
    with pytest.raises(UserError, match="of_other_data_1"):
        run.rejudge_run()
    assert run.store.get(LEASE) is None
    assert len(run.stored()) == 9


@pytest.mark.parametrize("work", [rejudge_run, compact_run])
def test_run_that_is_being_written_is_refused(run, work, log_lines, monkeypatch) -> None:
    monkeypatch.setattr(lease_module, "BEAT_S", 0.02)
    parts = part_names(run.store)
    lease = Lease.acquire(run.store)
    try:
        assert log_lines == []
        with pytest.raises(UserError, match="the run is being written by process"):
            work(run.uri)
        lease.renew()
    finally:
        lease.release()
    assert part_names(run.store) == parts


class Crash(Exception):
    """Stands for the end of the process."""


@pytest.mark.parametrize("survives", [0, 1])
@pytest.mark.parametrize("step", ["put", "delete"])
def test_crash_loses_no_row(run: MadeRun, monkeypatch, step: str, survives: int) -> None:
    before = run.stored()
    real: Callable[..., None] = getattr(LocalStore, step)
    paths: list[str] = []

    def crash(self: LocalStore, path: str, *data: bytes) -> None:
        if path.startswith(FOLDER):
            if len(paths) == survives:
                raise Crash
            paths.append(path)
        real(self, path, *data)

    with monkeypatch.context() as patch:
        patch.setattr(ACEBench, "check", reject)
        patch.setattr(LocalStore, step, crash)
        with pytest.raises(Crash):
            run.rejudge_run()
    after = run.stored()
    assert after.keys() == before.keys()
    judged_anew = sum(row["official_error_type"] == "wrong" for row in after.values())
    # All parts are written before the first one is deleted.
    assert judged_anew == (8 if step == "delete" else [0, 5][survives])
    assert run.store.get(LEASE) is None
    assert run.rejudge_run()[0] == COMPLETE
    assert run.stored() == before
    assert read_ledger(run.store).dominated == 0
