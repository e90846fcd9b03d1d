"""Which Ray is joined, and when."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import pytest
import ray

from ace_ray.cluster import connection
from ace_ray.cluster.connection import connect, connecting, running_cluster
from ace_ray.errors import UserError


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    said: list[str] = []
    monkeypatch.setattr(ray, "shutdown", lambda: said.append("shutdown"))
    return said


def parent() -> threading.Thread | None:
    return next((t for t in threading.enumerate() if t.name == "connecting"), None)


def test_its_thread_outlives_all_that_is_done_with_ray(
    monkeypatch: pytest.MonkeyPatch, events: list[str]
) -> None:
    monkeypatch.setattr(
        connection, "_connect", lambda: events.append(threading.current_thread().name)
    )
    with connecting():
        connect()
        thread = parent()
        assert thread is not None
        assert events == ["connecting"]
        connect()  # of a later pass
        assert events == ["connecting", "MainThread"]
    thread.join()
    assert events[2:] == ["shutdown"]


def test_what_it_raises_is_raised_where_it_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, events: list[str]
) -> None:
    def refuse() -> None:
        raise UserError("no", where="Ray", fix="yes")

    monkeypatch.setattr(connection, "_connect", refuse)
    with pytest.raises(UserError, match="Ray: no; yes"), connecting():
        connect()
    assert events == ["shutdown"]


@pytest.mark.parametrize(("error", "ends"), [(UserError, True), (KeyboardInterrupt, False)])
def test_an_error_beside_it_ends_ray_after_it_has_come(
    monkeypatch: pytest.MonkeyPatch, events: list[str], error: type[BaseException], ends: bool
) -> None:
    """A wish to end at once waits for nothing: Ray goes with the process."""
    goes_on = threading.Event()

    def start() -> None:
        goes_on.wait()
        events.append("there")

    monkeypatch.setattr(connection, "_connect", start)
    if ends:
        goes_on.set()
    raised = UserError("no", where="x", fix="y") if error is UserError else error()
    with pytest.raises(error), connecting():
        raise raised
    assert events == (["there", "shutdown"] if ends else [])
    goes_on.set()


def test_a_dead_head_is_not_waited_for(tmp_path, monkeypatch):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"  # bound, but nobody listens
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


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make another user's files")
def test_a_ray_of_another_user_is_joined_by_its_name_only(
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
