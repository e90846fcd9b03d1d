"""Which Ray a run joins."""

import os
import socket

import pytest

from ace_ray.cluster.connection import running_cluster
from ace_ray.errors import UserError


def test_only_a_head_that_answers_is_joined(tmp_path, monkeypatch) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{listener.getsockname()[1]}"  # bound without a listener
        (tmp_path / "ray").mkdir()
        (tmp_path / "ray" / "ray_current_cluster").write_text(address)
        monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
        monkeypatch.delenv("RAY_ADDRESS", raising=False)
        assert running_cluster() == "local"
        monkeypatch.setenv("RAY_ADDRESS", address)
        with pytest.raises(UserError, match="nothing answers at this address"):
            running_cluster()
        listener.listen()
        assert running_cluster() == address
        monkeypatch.delenv("RAY_ADDRESS")
        assert running_cluster() == address
        monkeypatch.setenv("RAY_ADDRESS", "local")
        assert running_cluster() == "local"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make another user's files")
def test_ray_of_another_user_is_joined_by_name_only(tmp_path, monkeypatch) -> None:
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
