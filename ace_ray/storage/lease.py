"""One writer per run folder: a lease object, taken and renewed by conditional writes.

No wall clock is trusted. The holder rewrites the object every `BEAT_S` seconds. A driver that finds
a lease watches it. If the object changes, the holder is running, and the run is refused. If the
object stays the same for `TTL_S` seconds of the watcher's monotonic clock, the holder is dead. The
watcher then takes the lease over, on condition that the object is still the one it watched. The
process table tells at once that a holder on this machine has ended.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ace_ray.errors import RunFailed, UserError
from ace_ray.storage.object_store import Store

LEASE = "lease.json"
BEAT_S = 5.0
TTL_S = 30.0


class LeaseLost(RunFailed):
    """Another driver has taken the lease of this run. Writing must stop."""

    def __init__(self, why: str) -> None:
        super().__init__(why, resumable=True)


class Lease:
    """The right to write one run. `acquire` takes it, and a thread renews it until `release`."""

    def __init__(self, store: Store, tag: str, claim: dict[str, Any]) -> None:
        self._store, self._quick = store, store.quick()
        self._tag, self._claim = tag, claim
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._lost = ""
        self._thread = threading.Thread(target=self._renewals, name="lease", daemon=True)
        self._thread.start()

    @classmethod
    def acquire(cls, store: Store, say: Callable[[str], None]) -> Lease:
        """Take the lease of the run in ``store``. Wait for the lease of a dead holder to expire.

        Raises `UserError`: another driver holds it, or the store has no conditional writes.
        """
        claim = {
            "schema_version": 1,
            **this_process(),
            "holder": secrets.token_hex(8),
            "since": _now(),
            "beat": 0,
        }
        watched: tuple[str, float] | None = None
        while True:
            stored = store.tagged(LEASE)
            if stored is None:
                tag = store.put_if(LEASE, _json(claim), None)
            elif _claim(stored[0]).get("holder") == claim["holder"]:
                tag = stored[1]  # it was written, and the store's answer was lost
            else:
                content, seen = stored
                dead = has_ended(_claim(content))
                if watched is None and not dead:
                    watched = (seen, time.monotonic())
                    say(f"the run is locked by {_whose(content)}; waiting up to {TTL_S:g} s for it")
                if watched is not None and not dead:
                    if seen != watched[0]:
                        raise UserError(
                            f"the run is being written by {_whose(content)}",
                            where=store.root,
                            fix="wait for it to end, or choose another run_id or --output",
                        )
                    if time.monotonic() - watched[1] < TTL_S:
                        time.sleep(1.0)
                        continue
                tag = store.put_if(LEASE, _json(claim), seen)
            if tag is not None:
                # The object exists now, so a store with conditions refuses to create it.
                if store.put_if(LEASE, _json(claim), None) is not None:
                    store.delete(LEASE)
                    raise UserError(
                        "this store ignores the conditions of conditional writes, which "
                        "prevent two drivers from writing one run",
                        where=store.root,
                        fix="use a store that supports If-Match and If-None-Match",
                    )
                return cls(store, tag, claim)

    def check(self) -> None:
        """Renew the lease now. Raise `LeaseLost` when another driver holds the run."""
        with self._lock:
            if not self._lost:
                self._renew(self._store)
        if self._lost:
            raise LeaseLost(self._lost)

    @property
    def lost(self) -> str:
        """The reason why this process holds the run no longer; "" while it holds it."""
        return self._lost

    def release(self) -> None:
        """Stop renewing and delete the lease. Never raises: a lease that is left expires."""
        self._stop.set()
        self._thread.join(timeout=30)
        try:
            with self._lock:
                stored = self._quick.tagged(LEASE)
                if stored is not None and self._ours(stored[0]):
                    self._quick.delete(LEASE)
        except UserError:
            return

    def _renewals(self) -> None:
        while not self._stop.wait(BEAT_S):
            try:
                with self._lock:
                    self._renew(self._quick)
            except UserError:
                # The store is away for other drivers too. The next beat tries again.
                continue
            if self._lost:
                return

    def _renew(self, store: Store) -> None:
        claim = {**self._claim, "beat": self._claim["beat"] + 1, "renewed": _now()}
        tag = store.put_if(LEASE, _json(claim), self._tag)
        if tag is None:
            # A request that boto3 repeated fails on its own first try. The holder tells.
            stored = store.tagged(LEASE)
            if stored is None or not self._ours(stored[0]):
                self._lost = (
                    f"{_whose(stored[0])} has taken over this run"
                    if stored
                    else f"this run's {LEASE} was removed"
                )
                return
            tag = stored[1]
        self._tag, self._claim = tag, claim

    def _ours(self, content: bytes) -> bool:
        return bool(_claim(content).get("holder") == self._claim["holder"])


def _claim(content: bytes) -> dict[str, Any]:
    """Return the claim in a lease object; empty if it cannot be read."""
    try:
        claim = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    return claim if isinstance(claim, dict) else {}


def _whose(content: bytes) -> str:
    claim = _claim(content)
    if not isinstance(claim.get("host"), str):
        return f"an unreadable {LEASE}"
    parts = (str(claim.get(key, "?"))[:80] for key in ("host", "pid", "since"))
    return "process {1} on {0} since {2}".format(*parts)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _json(claim: dict[str, Any]) -> bytes:
    return json.dumps(claim, indent=2).encode()


def this_process() -> dict[str, Any]:
    """Return the fields by which a claim names this process."""
    return {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "started": _started(os.getpid()),
        "machine": _machine(),
    }


def has_ended(claim: Mapping[str, Any]) -> bool:
    """Return whether the process in a claim ran on this machine and has ended.

    The pid alone is not enough: other boots and containers use the same numbers, and the kernel
    reuses them.
    """
    pid = claim.get("pid")
    if not isinstance(pid, int) or pid < 1 or claim.get("machine") != (_machine() or None):
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:
        pass
    # "" where the processes of other users are hidden. One of them has this pid.
    return _started(pid) not in ("", claim.get("started"))


def _started(pid: int) -> str:
    """Return the start time of a process in the kernel's ticks, or ``ended`` for a zombie, which
    writes no more."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return ("ended" if stat[0] in "ZX" else stat[19]) if len(stat) > 19 else ""


def _machine() -> str:
    """Return the boot and the pid namespace, within which a pid is unique; "" if unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""
