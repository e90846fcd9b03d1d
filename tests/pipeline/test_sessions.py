"""The sessions of a run: recorded with their versions, and said where rows of two versions mix."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

import ace_ray
from ace_ray.errors import UserError
from ace_ray.models.sources import ModelRef
from ace_ray.pipeline.open_run import OpenRun
from ace_ray.reports.compared_runs import NotComparable
from ace_ray.reports.comparison import compare_runs
from ace_ray.reports.runs import load_runs
from ace_ray.storage.lease import Lease
from ace_ray.storage.object_store import LocalStore
from ace_ray.storage.stored import MANIFEST, MOST_SESSIONS, read_manifest
from tests.pipeline.made_run import planned_run
from tests.report.builders import everything, write_run

OLD = {"python": "3.11.1", "vllm": "0.32.0", "torch": "2.9", "transformers": "5.0"}
NEW = {**OLD, "python": "3.12.0", "vllm": "0.33.0"}


class Sessions:
    """Sessions of one run, each of a command of its own, up to the first row."""

    def __init__(self, folder: Path, backend: str = "vllm") -> None:
        plan = planned_run(folder, ModelRef("fake", "fake", "fake", "fake"))
        config = plan.config.model_copy(update={"backend": backend})
        self.plan = dataclasses.replace(plan, config=config)
        self.store = LocalStore(str(folder))

    def begin(self, versions: dict[str, str], at: str = "2026-11-27T00:00:00+00:00") -> list[str]:
        """Return what the session says."""
        told: list[str] = []
        lease = Lease.acquire(self.store, told.append)
        declared = self.store.get(MANIFEST) is not None
        run = OpenRun(
            self.plan, self.store, lease, {}, declared, 0.0, 0.0, not declared, told.append
        )
        for _ in range(2):  # two passes are one session
            run.declare({"created_at": at, "versions": versions})
        lease.release()
        return told

    @property
    def recorded(self) -> list[dict[str, Any]]:
        return list(json.loads(self.store.get(MANIFEST) or b"")["sessions"])


def test_sessions_are_recorded_with_their_versions(tmp_path: Path) -> None:
    sessions = Sessions(tmp_path / "run")
    assert sessions.begin(OLD, "first") == []
    assert sessions.begin(OLD, "second") == []
    (line,) = sessions.begin(NEW, "third")
    mixed = "rows come from several versions: vllm 0.32.0, 0.33.0"
    assert line == f"{mixed}; --fresh evaluates all of them anew"
    assert [one["began_at"] for one in sessions.recorded] == ["first", "second", "third"]
    assert sessions.recorded[-1]["versions"] == {"ace_ray": ace_ray.__version__, **NEW}
    assert sessions.begin(NEW) == [line], "its rows are mixed still"


def test_another_ace_ray_is_named_whatever_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions = Sessions(tmp_path / "run", backend="endpoint")
    sessions.begin(OLD)
    monkeypatch.setattr(ace_ray, "__version__", "9.0")
    (line,) = sessions.begin(NEW)
    assert line.startswith(f"rows come from several versions: ace_ray {_version()}, 9.0;")
    assert "vllm" not in line, "no engine of this machine answers"


def _version() -> str:
    from importlib.metadata import version

    return version("ace_ray")


def test_sessions_are_few_and_no_version_is_forgotten(tmp_path: Path) -> None:
    sessions = Sessions(tmp_path / "run")
    sessions.begin(OLD, "first")
    tree = json.loads(sessions.store.get(MANIFEST) or b"")
    tree["sessions"] += [{**tree["sessions"][0], "versions": NEW}] * (MOST_SESSIONS - 1)
    sessions.store.put(MANIFEST, json.dumps(tree).encode())
    sessions.begin(NEW, "last")
    assert len(sessions.recorded) == MOST_SESSIONS
    assert (sessions.recorded[0]["began_at"], sessions.recorded[-1]["began_at"]) == (
        "first",
        "last",
    )


@pytest.mark.parametrize("wrong", [[{}] * 1001, [{"versions": {"vllm": 1}}], {}])
def test_sessions_of_another_shape_are_refused(tmp_path: Path, wrong: Any) -> None:
    folder = with_sessions(write_run(tmp_path / "run", everything({})), wrong)
    with pytest.raises(UserError, match="sessions"):
        read_manifest(LocalStore(str(folder)))


def with_sessions(folder: Path, sessions: Any) -> Path:
    tree = json.loads((folder / MANIFEST).read_text())
    (folder / MANIFEST).write_text(json.dumps({**tree, "sessions": sessions}))
    return folder


def test_comparisons_name_runs_of_several_versions(tmp_path: Path) -> None:
    engines = [{"versions": {"vllm": one}} for one in ("0.32.0", "0.33.0")]
    one = with_sessions(write_run(tmp_path / "one", everything({}, of=2), model="o/one"), engines)
    two = write_run(tmp_path / "two", everything({}, of=2), model="o/two")
    found = compare_runs(load_runs([str(one), str(two)]))
    assert "one: rows come from several versions: vllm 0.32.0, 0.33.0" in found.notes
    checkers = [{"versions": {"ace_ray": one}} for one in ("0.1.0", "0.2.0")]
    with_sessions(one, checkers)
    with pytest.raises(NotComparable, match="rules"):
        compare_runs(load_runs([str(one), str(two)]))
