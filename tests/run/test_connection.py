"""Which Ray is joined, and when."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import ray

from ace_ray.errors import UserError
from ace_ray.run import connection
from ace_ray.run.connection import connect, connecting, running_cluster


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


@contextmanager
def somebody_else() -> Iterator[None]:
    """Root is refused nothing: be a user without rights. Others stay who they are."""
    mine = os.geteuid()
    if mine == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(mine)


class TestARayThatNobodyNamed:
    @pytest.fixture
    def note(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
        """What `ray start` of any user leaves, for all to read."""
        # pytest's own folder is closed to other users.
        folder = Path(tempfile.mkdtemp())
        folder.chmod(0o755)
        monkeypatch.setenv("RAY_TMPDIR", str(folder))
        monkeypatch.delenv("RAY_ADDRESS", raising=False)
        monkeypatch.setattr(connection, "HEAD_S", 2.0)
        (folder / "ray").mkdir()
        yield folder / "ray" / "ray_current_cluster"
        shutil.rmtree(folder)

    @pytest.mark.parametrize("answer", [b"", b"HTTP/1.0 400 Bad Request\r\n\r\n"])
    @pytest.mark.parametrize("named", [False, True])
    def test_what_is_no_head_is_told(
        self, note: Path, monkeypatch: pytest.MonkeyPatch, named: bool, answer: bytes
    ) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            address = f"127.0.0.1:{server.getsockname()[1]}"
            if named:
                monkeypatch.setenv("RAY_ADDRESS", address)
            else:
                note.write_text(address)

            def serve() -> None:
                with suppress(OSError):
                    while True:
                        client, _ = server.accept()
                        # Without an answer it hangs: the connection stays open.
                        held.append(client)
                        if answer:
                            client.sendall(answer)

            held: list[socket.socket] = []
            threading.Thread(target=serve, daemon=True).start()
            with pytest.raises(UserError, match="did not answer as a head") as refused:
                connection.connect()
            server.shutdown(socket.SHUT_RDWR)
            for client in held:
                client.close()
        line = str(refused.value)
        assert address in line
        assert ("check RAY_ADDRESS" in line) is named
        assert ("RAY_ADDRESS=local" in line and "nobody named" in line) is not named
        assert (str(note) in line) is not named

    def test_a_note_that_may_not_be_read_is_told(
        self, note: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        note.write_text("127.0.0.1:6379")
        note.chmod(0)
        refused = pytest.raises(UserError, match=r"ray_current_cluster: .*RAY_ADDRESS=local")
        with somebody_else(), refused:
            running_cluster()
        monkeypatch.setenv("RAY_ADDRESS", "local")
        assert running_cluster() == "local"

    @pytest.mark.skipif(os.getuid() != 0, reason="only root can make another user's files")
    def test_another_users_sockets(self, note: Path) -> None:
        note.write_text("127.0.0.1:6379")
        sockets = note.parent / "session_1" / "sockets"
        sockets.mkdir(parents=True)
        (sockets / "plasma_store").touch(0o755)
        assert connection._owner("127.0.0.1:6379") == ""
        with somebody_else():
            assert connection._owner("127.0.0.1:6379") == "root"
            assert connection._owner("10.0.0.1:6379") == ""
        (sockets / "plasma_store").chmod(0o777)
        with somebody_else():
            assert connection._owner("127.0.0.1:6379") == ""
