"""The lease of a run folder, a stored object that allows only one driver to write the run.

The driver that has the lease, its holder, rewrites the object every `BEAT_S` seconds. A second
driver that finds the object watches it. If the object changes, the holder is running, and the
second driver is refused. If the object does not change for `TTL_S` seconds, the lease has expired,
and the second driver replaces the object by a conditional write. The watching driver's monotonic
clock counts. A lease expires at once if its holder ran on the same machine and has ended."""

from __future__ import annotations

import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

from ace_ray.errors import RunFailed, UserError
from ace_ray.storage.object_store import Store
from ace_ray.storage.stored import as_json, timestamp
from ace_ray.util import log

LEASE = "lease.json"
BEAT_S = 5.0  # between two renewals
TTL_S = 30.0  # without a renewal until the lease has expired


class LeaseLost(RunFailed):
    """Raised if this driver has lost the lease of its run, so that it must stop writing."""

    def __init__(self, why: str) -> None:
        super().__init__(why, resumable=True)


class Lease(AbstractContextManager["Lease"]):
    """The right to write one run. A thread renews it from `acquire` until `release`."""

    def __init__(self, store: Store, tag: str, claim: dict[str, Any]) -> None:
        self._store, self._quick = store, store.with_short_timeout()
        self._tag, self._claim = tag, claim
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self.lost = ""
        """The reason why this driver lost the lease; "" while it has the lease."""
        self._thread = threading.Thread(target=self._renewals, name="lease", daemon=True)
        self._thread.start()

    @classmethod
    def acquire(cls, store: Store) -> Lease:
        """Acquire the lease of the run in ``store``. Wait until an abandoned lease expires.

        Raises `UserError` if a driver keeps the lease, or the store lacks conditional writes."""
        claim = {
            "schema_version": 1,
            **this_process(),
            "holder": secrets.token_hex(8),
            "since": timestamp(),
            "beat": 0,
        }
        watched: tuple[str, float] | None = None
        store.check_conditions()
        while True:
            content, tag = store.get_tagged(LEASE) or (b"", None)
            # This driver wrote the object, but the store's answer was lost.
            if tag and _has_same_holder(claim, content):
                return cls(store, tag, claim)
            if tag and not has_ended(_claim(content)):
                if watched is None:
                    watched = (tag, time.monotonic())
                    holder = _holder_text(content)
                    log.info(f"the run is locked by {holder}; waiting up to {TTL_S:g} s")
                if tag != watched[0]:
                    raise UserError(
                        f"the run is being written by {_holder_text(content)}",
                        where=store.root,
                        fix="wait for it to end, or choose another run_id or --output",
                    )
                if time.monotonic() - watched[1] < TTL_S:
                    time.sleep(1.0)
                    continue
            if written := store.put_if(LEASE, as_json(claim), tag):
                return cls(store, written, claim)

    def renew(self) -> None:
        """Renew the lease now. Raise `LeaseLost` if this driver no longer has it."""
        with self._lock:
            if not self.lost:
                self._renew(self._store)
        if self.lost:
            raise LeaseLost(self.lost)

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Stop renewing and delete the lease. Never raises: if this fails, the lease expires."""
        self._stop.set()
        self._thread.join(timeout=30)
        with suppress(UserError), self._lock:
            if _has_same_holder(self._claim, self._quick.get(LEASE)):
                self._quick.delete(LEASE)

    def _renewals(self) -> None:
        while not self.lost and not self._stop.wait(BEAT_S):
            # An outage also affects other drivers. The next beat tries again.
            with suppress(UserError), self._lock:
                self._renew(self._quick)

    def _renew(self, store: Store) -> None:
        claim = {**self._claim, "beat": self._claim["beat"] + 1, "renewed": timestamp()}
        tag = store.put_if(LEASE, as_json(claim), self._tag)
        if tag is None:
            # If boto3 repeated the request, its first try may have succeeded. Check the holder.
            content, tag = store.get_tagged(LEASE) or (b"", None)
            if tag is None:
                self.lost = f"this run's {LEASE} was removed"
                return
            if not _has_same_holder(claim, content):
                self.lost = f"{_holder_text(content)} has taken over this run"
                return
        self._tag, self._claim = tag, claim


def _claim(content: bytes | None) -> dict[str, Any]:
    """Return the claim (facts about the holder) in a lease object; {} if the object is damaged."""
    try:
        claim = json.loads(content or b"")
    except (ValueError, RecursionError):
        return {}
    return claim if isinstance(claim, dict) else {}


def _has_same_holder(claim: Mapping[str, Any], content: bytes | None) -> bool:
    """Return whether the holder in ``claim`` wrote the ``content`` of a lease object."""
    return bool(_claim(content).get("holder") == claim["holder"])


def _holder_text(content: bytes) -> str:
    claim = _claim(content)
    if not isinstance(claim.get("host"), str):
        return f"an unreadable {LEASE}"
    parts = (str(claim.get(key, "?"))[:80] for key in ("host", "pid", "since"))
    return "process {1} on {0} since {2}".format(*parts)


def this_process() -> dict[str, Any]:
    """Return the fields that identify this process in the claim of a lease."""
    return {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "started": _start_time(os.getpid()),
        "machine": _machine(),
    }


def has_ended(claim: Mapping[str, Any]) -> bool:
    """Return whether the process that ``claim`` identifies ran on this machine and has ended.

    The pid alone is not enough: other boots and containers use the same pids, and the kernel reuses
    pids."""
    pid = claim.get("pid")
    if not isinstance(pid, int) or pid < 1 or claim.get("machine") != (_machine() or None):
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:
        pass
    # `_start_time` returns "" if the system hides a running process of another user.
    return _start_time(pid) not in ("", claim.get("started"))


def _start_time(pid: int) -> str:
    """Return the start time of a process in clock ticks since boot; ``ended`` for a zombie process,
    "" if the time is unknown."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return ("ended" if stat[0] in "ZX" else stat[19]) if len(stat) > 19 else ""


def _machine() -> str:
    """Return the ids of the boot and the pid namespace, in which a pid is unique; "" if unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""
