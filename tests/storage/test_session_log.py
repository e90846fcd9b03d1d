"""The log of a session is stored in the run folder, and `ace-ray show --log` prints it."""

import json
import time
from typing import Any

import pytest

from ace_ray.errors import UserError
from ace_ray.storage import session_log
from ace_ray.storage.object_store import LocalStore, Store
from ace_ray.storage.run_files import LOGS
from ace_ray.storage.session_log import read_logs, store_log
from ace_ray.util import log
from tests.limits import until

SECRET = "sk-abcdefghijklmnopqrstuvwxyz"


def messages(store: Store) -> list[str]:
    return [json.loads(line)["message"] for line in read_logs(store)]


def test_lines_since_the_command_began_are_stored_without_secrets(store: Store) -> None:
    log.info("of an earlier command")
    began = time.monotonic()
    log.info("while planning")
    with store_log(store, began):
        log.warning(f"the key is {SECRET}", event="engine_died", engine_log=["last", SECRET])
    assert messages(store) == ["while planning", "the key is ***"]
    assert json.loads(list(read_logs(store))[1])["engine_log"] == ["last", "***"]
    with store_log(store, time.monotonic()):
        log.info("the next session")
    # Logs of the same second are in any order.
    assert sorted(messages(store)) == ["the key is ***", "the next session", "while planning"]
    assert len(store.list(LOGS)) == 2


def test_the_log_of_a_session_that_still_runs_is_stored(store, monkeypatch) -> None:
    monkeypatch.setattr(session_log, "WRITE_S", 0.01)
    with store_log(store, time.monotonic()):
        log.info("begin")
        until(lambda: bool(store.list(LOGS)))
    assert messages(store) == ["begin"]


def test_an_error_that_ends_the_session_is_the_last_line(local: LocalStore) -> None:
    with pytest.raises(KeyError), store_log(local, time.monotonic()):
        raise KeyError("gone")
    assert messages(local) == ["KeyError: 'gone'"]


def test_nothing_is_stored_for_a_run_that_does_not_list_the_session(local: LocalStore) -> None:
    with store_log(local, time.monotonic(), lambda: False):
        log.info("refused")
    with pytest.raises(UserError, match="has no stored log"):
        list(read_logs(local))


def test_a_store_that_refuses_does_not_end_the_session(local, monkeypatch, log_lines) -> None:
    def refuse(*_: object) -> None:
        raise UserError("no space left")

    monkeypatch.setattr(LocalStore, "put", refuse)
    with store_log(local, time.monotonic()):
        log.info("begin")
    assert log_lines[-1] == "the session's log is not stored: no space left"


def test_show_prints_stored_lines(local: LocalStore, invoke: Any) -> None:
    lines = [
        {"time": "T", "level": "info", "message": "begin"},
        {"message": "died", "engine_log": ["one \x1b[31m", 2], "traceback": "a\nb"},
    ]
    text = "".join(f"{json.dumps(line)}\n" for line in lines)
    local.put(f"{LOGS}a.jsonl", f"{text}[7\n".encode())
    printed = invoke("show", local.root, "--log").stdout.splitlines()
    assert printed == ["T info begin", "died", "    a", "    b", "    one ", "    2", "[7"]
    first = invoke("show", local.root, "--log", "--json").stdout.splitlines()[0]
    assert json.loads(first) == lines[0]
