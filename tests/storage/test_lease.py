"""One writer per run: who gets the lease, who is refused, and who notices that it is gone."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ace_ray.errors import UserError
from ace_ray.storage import lease as lease_module
from ace_ray.storage.lease import LEASE, TTL_S, Lease, LeaseLost, this_process
from ace_ray.storage.object_store import LocalStore, Store
from tests.limits import until


class Clock:
    """A clock that moves when the watcher sleeps, and calls `meanwhile` each time."""

    def __init__(self) -> None:
        self.slept = 0.0
        self.meanwhile: Callable[[], Any] = lambda: None

    def monotonic(self) -> float:
        return 1000.0 + self.slept

    def sleep(self, seconds: float) -> None:
        self.slept += seconds
        self.meanwhile()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(lease_module, "time", clock)
    return clock


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Renew leases every 20 ms, and let watchers look as often."""
    monkeypatch.setattr(lease_module, "BEAT_S", 0.02)
    small = SimpleNamespace(monotonic=time.monotonic, sleep=lambda s: time.sleep(s / 50))
    monkeypatch.setattr(lease_module, "time", small)


ELSEWHERE = {"host": "elsewhere", "pid": 4242, "started": "1", "machine": "another boot pid:[1]"}


def claim(**changes: Any) -> bytes:
    """Return the lease of a driver on another machine."""
    fields = {"holder": "0123456789abcdef", "since": "2026-01-01T00:00:00+00:00", "beat": 3}
    return json.dumps({"schema_version": 1, **ELSEWHERE, **fields, **changes}).encode()


def stored(store: Store) -> Any:
    return json.loads(store.get(LEASE) or b"null")


def test_a_free_run_is_taken_at_once_and_given_back(store, clock, log_lines) -> None:
    lease = Lease.acquire(store)
    mine = stored(store)
    assert (mine["host"], mine["pid"]) == (os.uname().nodename, os.getpid())
    assert datetime.fromisoformat(mine["since"]).tzinfo is not None
    assert lease.lost == ""
    lease.renew()
    lease.release()
    assert store.list() == []
    if isinstance(store, LocalStore):
        assert not Path(store.root).exists(), "a run that wrote nothing leaves no folder"
    lease = Lease.acquire(store)
    store.put("run.json", b"{}")
    lease.release()
    assert [item.path for item in store.list()] == ["run.json"]
    assert (clock.slept, log_lines) == (0, [])


def test_a_second_driver_is_refused(store: Store, fast: None, log_lines: list[str]) -> None:
    first = Lease.acquire(store)
    mine = stored(store)
    with pytest.raises(UserError) as caught:
        Lease.acquire(store)
    holder = f"process {mine['pid']} on {mine['host']} since {mine['since']}"
    assert str(caught.value).startswith(f"{store.root}: the run is being written by {holder}; ")
    assert caught.value.fix
    (line,) = log_lines
    assert holder in line
    first.renew()
    assert stored(store)["holder"] == mine["holder"]
    first.release()


def test_a_process_is_known_by_machine_number_and_start(local, clock, log_lines) -> None:
    for changes, waits in (
        ({}, True),
        ({"started": "1"}, False),
        ({"pid": 2**22 + 1}, False),
        ({"pid": -1}, True),
        ({"pid": "17"}, True),
        ({"machine": None, "started": "1"}, True),
    ):
        clock.slept = 0.0
        local.put(LEASE, claim(**{**this_process(), **changes}))
        log_lines.clear()
        Lease.acquire(local).release()
        assert (clock.slept >= TTL_S) == waits == bool(log_lines), changes


def test_a_holder_that_renews_while_it_is_watched_keeps_the_run(local, clock, monkeypatch) -> None:
    def renew() -> None:
        if clock.slept == TTL_S - 1:
            local.put(LEASE, claim(beat=4))

    clock.meanwhile = renew
    local.put(LEASE, claim())
    with pytest.raises(UserError, match="written by process 4242 on elsewhere since"):
        Lease.acquire(local)
    assert clock.slept == TTL_S - 1
    assert local.get(LEASE) == claim(beat=4)
    # Between the last look and the write.
    put_if = LocalStore.put_if

    def late(self: LocalStore, path: str, data: bytes, tag: str | None) -> str | None:
        self.put(LEASE, claim(beat=5))
        return put_if(self, path, data, tag)

    monkeypatch.setattr(LocalStore, "put_if", late)
    with pytest.raises(UserError, match="written by process 4242 on elsewhere since"):
        Lease.acquire(local)
    assert local.get(LEASE) == claim(beat=5)


LATER = "2999-01-01T00:00:00+00:00"  # no wall clock is trusted
SILENT = {
    "elsewhere": (claim(since=LATER, renewed=LATER), f"process 4242 on elsewhere since {LATER}"),
    "list": (b"[1, 2]", ""),
    "large number": (b'{"host": "h", "pid": 1' + b"0" * 9000 + b"}", ""),
    "deep": (b"[" * 100_000, ""),
    "types": (claim(pid={"a": [1]}, since=None, holder=7, beat="x", started=[], machine=3), ""),
    "long texts": (claim(host="h" * 100_000, since="s" * 100_000), ""),
}


@pytest.mark.parametrize(("content", "holder"), SILENT.values(), ids=SILENT)
def test_a_silent_or_corrupt_lease_expires(store, clock, log_lines, content, holder) -> None:
    store.put(LEASE, content)
    lease = Lease.acquire(store)
    assert TTL_S <= clock.slept <= TTL_S + 2
    (line,) = log_lines
    assert holder in line
    assert f"{TTL_S:g} s" in line
    assert len(line) < 400
    lease.renew()
    assert stored(store)["pid"] == os.getpid()
    store.put(LEASE, content)
    with pytest.raises(LeaseLost):
        lease.renew()
    lease.release()
    assert store.get(LEASE) == content


def test_a_lease_is_renewed_until_it_is_released(store, fast, log_lines) -> None:
    before = set(threading.enumerate())
    lease = Lease.acquire(store)
    assert not log_lines
    first = stored(store)
    until(lambda: stored(store)["beat"] >= 3)
    later = stored(store)
    assert later["beat"] > first["beat"]
    assert all(later[key] == first[key] for key in ("holder", "since", "pid", "started"))
    assert lease.lost == ""
    lease.release()
    assert store.get(LEASE) is None
    new = set(threading.enumerate()) - before
    assert not [thread for thread in new if thread.name == "lease"]


def test_a_loss_is_noticed_and_stays(store: Store, fast: None, log_lines: list[str]) -> None:
    lease = Lease.acquire(store)
    assert not log_lines
    store.put(LEASE, claim())
    until(lambda: lease.lost)
    assert "process 4242 on elsewhere" in lease.lost
    with pytest.raises(LeaseLost, match="process 4242 on elsewhere") as caught:
        lease.renew()
    assert not caught.value.again, "another driver has the run: this one must not go on"
    lease.release()
    assert store.get(LEASE) == claim(), "another driver's lease is never deleted"


def test_a_lease_that_was_removed_is_lost_and_not_made_anew(store, log_lines) -> None:
    lease = Lease.acquire(store)
    assert not log_lines
    store.delete(LEASE)
    with pytest.raises(LeaseLost, match="removed"):
        lease.renew()
    lease.release()
    assert store.list() == []
    assert not isinstance(store, LocalStore) or not Path(store.root).exists()


class FailingWrites:
    """A store whose conditional writes fail as told: before or after they take effect."""

    def __init__(self, store: Store) -> None:
        self.inner = store
        self.failure = "none"
        self.attempts = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def with_short_timeout(self) -> FailingWrites:
        return self

    def put_if(self, path: str, data: bytes, tag: str | None) -> str | None:
        self.attempts += 1
        if self.failure == "away":
            raise UserError("cannot be reached", where=self.inner.root)
        result = self.inner.put_if(path, data, tag)
        if self.failure == "answer lost":
            raise UserError("the connection broke", where=self.inner.root)
        if self.failure == "repeated":
            return None  # botocore repeats the request, which meets its own first try
        return result


def test_a_store_without_conditions_is_refused(local, monkeypatch, log_lines) -> None:
    def refuse(store: LocalStore) -> None:
        raise UserError("ignores the conditions", where=store.root)

    monkeypatch.setattr(LocalStore, "check_conditions", refuse)
    with pytest.raises(UserError, match="ignores the conditions"):
        Lease.acquire(local)
    assert local.get(LEASE) is None
    assert not log_lines


@pytest.mark.parametrize("failure", ["away", "answer lost", "repeated"])
def test_a_lease_survives_an_outage(local, fast, failure, log_lines) -> None:
    failing: Any = FailingWrites(local)
    failing.failure = failure if failure == "repeated" else "none"
    lease = Lease.acquire(failing)  # which may meet its own first try
    assert not log_lines
    holder = stored(local)["holder"]
    failing.failure, attempts = failure, failing.attempts
    until(lambda: failing.attempts >= attempts + 3)
    assert lease.lost == ""
    failing.failure = "none"
    beat = stored(local)["beat"] + 2
    until(lambda: stored(local)["beat"] >= beat)
    assert (lease.lost, stored(local)["holder"]) == ("", holder)
    lease.release()
