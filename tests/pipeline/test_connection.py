"""Which Ray a run joins, and when it is left. Ray itself is not started."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
import ray

from ace_ray.cluster import connection
from ace_ray.cluster.connection import connect, connecting, running_cluster
from ace_ray.errors import RunFailed, UserError


class Starts:
    """Starts of Ray, by thread, and its ends."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.error: Exception | None = None
        self.may_start = threading.Event()
        self.may_start.set()

    def init(self, *_: Any, **__: Any) -> None:
        self.may_start.wait()
        if self.error is not None:
            raise self.error
        self.events.append(threading.current_thread().name)


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> Starts:
    starts = Starts()
    for name in ("RAY_enable_metrics_collection", "RAY_task_events_report_interval_ms"):
        monkeypatch.setenv(name, "0")
    monkeypatch.setenv("RAY_ADDRESS", "local")
    monkeypatch.setattr(connection, "LOCAL_STARTS", 1)
    monkeypatch.setattr(ray, "init", starts.init)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "shutdown", lambda: starts.events.append("shutdown"))
    return starts


def test_ray_starts_in_a_thread_and_ends_with_the_context(starts: Starts) -> None:
    with connecting():
        connect()
        assert starts.events == ["connecting"]
        connect()  # of a later pass
        assert starts.events == ["connecting", "MainThread"]
    assert starts.events[2:] == ["shutdown"]


def test_failed_start_is_raised_where_it_is_waited_for(
    starts: Starts, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts.error = RuntimeError("no room")
    with pytest.raises(RunFailed, match=r"cannot be started: .*no room"), connecting():
        connect()
    assert starts.events[-1] == "shutdown"
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        monkeypatch.setenv("RAY_ADDRESS", address)
        with pytest.raises(UserError, match=f"Ray at {address}: cannot join Ray: no room; check"):
            connect()


@pytest.mark.parametrize(
    ("error", "waits"), [(UserError("no"), True), (KeyboardInterrupt(), False)]
)
def test_error_in_the_context_ends_ray(starts: Starts, error: BaseException, waits: bool) -> None:
    """An interrupt waits for nothing: Ray ends with the process."""
    if not waits:
        starts.may_start.clear()
    with pytest.raises(type(error)), connecting():
        raise error
    assert starts.events == (["connecting", "shutdown"] if waits else [])
    starts.may_start.set()


def test_only_a_head_that_answers_is_joined(tmp_path, monkeypatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"  # bound without a listener
        (tmp_path / "ray").mkdir()
        (tmp_path / "ray" / "ray_current_cluster").write_text(address)
        monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
        monkeypatch.delenv("RAY_ADDRESS", raising=False)
        assert running_cluster() == "local"
        monkeypatch.setenv("RAY_ADDRESS", address)
        with pytest.raises(UserError, match="nothing answers at this address"):
            running_cluster()
        taken.listen()
        assert running_cluster() == address
        monkeypatch.delenv("RAY_ADDRESS")
        assert running_cluster() == address
        monkeypatch.setenv("RAY_ADDRESS", "local")
        assert running_cluster() == "local"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make another user's files")
def test_ray_of_another_user_is_joined_by_name_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        note = tmp_path / "ray" / "ray_current_cluster"
        note.parent.mkdir()
        note.write_text(address)
        os.chown(note, 65534, 65534)
        monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
        monkeypatch.delenv("RAY_ADDRESS", raising=False)
        assert running_cluster() == "local"
        monkeypatch.setenv("RAY_ADDRESS", address)
        assert running_cluster() == address
