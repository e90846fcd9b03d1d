"""Sessions of a run: recorded with their versions, which are named where rows of several mix."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

import ace_ray
from ace_ray.errors import UserError
from ace_ray.models.sources import ModelRef
from ace_ray.pipeline.run_folder import RunFolder
from ace_ray.reports.compared_runs import NotComparable
from ace_ray.reports.comparison import compare_runs
from ace_ray.storage.lease import Lease
from ace_ray.storage.object_store import LocalStore
from ace_ray.storage.stored import MANIFEST, MOST_SESSIONS, read_manifest
from tests.pipeline.made_run import planned_run
from tests.report.builders import change_manifest, everything, loaded, write_run

OLD = {"python": "3.11.1", "vllm": "0.32.0", "torch": "2.9", "transformers": "5.0"}
NEW = {**OLD, "python": "3.12.0", "vllm": "0.33.0"}


def begin(folder: Path, versions: dict[str, str], at: str) -> None:
    """Begin a session of the run in ``folder``, up to its first row."""
    plan = planned_run(folder, ModelRef("fake", "fake", "fake", "fake"))
    config = plan.config.model_copy(update={"backend": "vllm"})
    store = LocalStore(str(folder))
    lease = Lease.acquire(store)
    declared = store.get(MANIFEST) is not None
    plan = dataclasses.replace(plan, config=config)
    run = RunFolder(plan, store, lease, {}, declared, 0.0, 0.0, not declared)
    for _ in range(2):  # two passes are one session
        run.declare({"created_at": at, "versions": versions})
    lease.release()


def recorded(folder: Path) -> list[dict[str, Any]]:
    return list(json.loads((folder / MANIFEST).read_text())["sessions"])


def test_versions_of_all_sessions_are_recorded_and_named_if_they_differ(tmp_path, log_lines):
    run = tmp_path / "run"
    begin(run, OLD, "first")
    begin(run, OLD, "second")
    assert log_lines == []
    begin(run, NEW, "third")
    (line,) = log_lines
    mixed = "rows come from several versions: vllm 0.32.0, 0.33.0"
    assert line == f"{mixed}; --fresh evaluates all rows again"
    assert [session["began_at"] for session in recorded(run)] == ["first", "second", "third"]
    assert recorded(run)[-1]["versions"] == {"ace_ray": ace_ray.__version__, **NEW}
    # The first session, and sessions with other versions, are kept.
    change_manifest(run, sessions=recorded(run)[:1] + recorded(run)[2:] * (MOST_SESSIONS - 1))
    log_lines.clear()
    begin(run, NEW, "last")
    assert log_lines == [line]
    sessions = recorded(run)
    assert len(sessions) == MOST_SESSIONS
    assert (sessions[0]["began_at"], sessions[-1]["began_at"]) == ("first", "last")


@pytest.mark.parametrize("wrong", [[{}] * 1001, [{"versions": {"vllm": 1}}], {}])
def test_sessions_of_another_shape_are_refused(tmp_path: Path, wrong: Any) -> None:
    begin(tmp_path, OLD, "first")
    change_manifest(tmp_path, sessions=wrong)
    with pytest.raises(UserError, match="sessions"):
        read_manifest(LocalStore(str(tmp_path)))


def test_comparisons_name_runs_of_several_versions(tmp_path: Path) -> None:
    engines = [{"versions": {"vllm": version}} for version in ("0.32.0", "0.33.0")]
    runs = [write_run(tmp_path / n, everything({}, of=2), model=f"o/{n}") for n in ("one", "two")]
    change_manifest(runs[0], sessions=engines)
    comparison = compare_runs(loaded(*runs))
    assert "one: rows come from several versions: vllm 0.32.0, 0.33.0" in comparison.notes
    checkers = [{"versions": {"ace_ray": version}} for version in ("0.1.0", "0.2.0")]
    change_manifest(runs[0], sessions=checkers)
    with pytest.raises(NotComparable, match="rules"):
        compare_runs(loaded(*runs))
