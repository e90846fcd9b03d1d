"""Cores that a fork server starts."""

import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import forkserver
from typing import Any

import pytest

from ace_ray.models.core_process import METHOD, CoreContext, start_fork_server


def wait_and_exit(connection: Any) -> None:
    connection.send(os.environ.get("CORE_TEST"))
    connection.recv()
    sys.exit(3)


def test_a_core_has_the_environment_of_its_start_and_tells_all_threads_its_exit_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = forkserver.read_signed

    def slow_read(descriptor: int) -> Any:
        time.sleep(0.1)  # threads that wait for a core meet here
        return read(descriptor)

    monkeypatch.setattr(forkserver, "read_signed", slow_read)
    context = CoreContext()
    context.set_forkserver_preload([])
    for value in ("before", "after"):  # the server keeps the first environment
        monkeypatch.setenv("CORE_TEST", value)
        ours, theirs = context.Pipe()
        core: Any = context.Process(target=wait_and_exit, args=(theirs,))
        core.start()
        assert ours.recv() == value
        with ThreadPoolExecutor(8) as threads:
            codes = [threads.submit(core._popen.wait) for _ in range(8)]
            ours.send("end")
            assert [code.result() for code in codes] == [3] * 8


@pytest.mark.parametrize(
    "arguments", [{"distributed_executor_backend": "ray"}, {"numa_bind": True}, None]
)
def test_some_engines_spawn_their_cores(arguments: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if arguments is None:
        monkeypatch.setenv(METHOD, "spawn")
    assert not start_fork_server(arguments or {})
