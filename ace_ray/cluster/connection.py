"""Join a Ray cluster, or start a local Ray.

A local Ray has one node and ends with the run. A cluster's address is tested first, because
`ray.init` waits for minutes if no server answers."""

from __future__ import annotations

import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ace_ray.errors import RunFailed, UserError, first_line
from ace_ray.util import log

# Environment variable that Ray sets for the driver of a job.
_JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"

# Maximum number of attempts to start a local Ray.
LOCAL_STARTS = 3


def set_environment() -> None:
    """Set the environment variables that Ray reads when it is imported and when it starts."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Otherwise a call of Ray after `ray.shutdown` would start a Ray, or join another Ray and hang.
    os.environ["RAY_ENABLE_AUTO_CONNECT"] = "0"
    # By default Ray runs workers at niceness 15, so on a small machine an engine would wait for
    # Ray's own processes at every step. The setting applies only to a Ray that is started here.
    os.environ.setdefault("RAY_worker_niceness", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    # The executor reads the small metadata of a block itself, and passes the block on at once. With
    # a thread the block would wait for the executor's next step.
    os.environ.setdefault("RAY_DATA_METADATA_PREFETCH_ON_THREAD", "0")


_is_own = False


def has_own_ray() -> bool:
    """Return whether this process started the Ray that it is connected to."""
    return _is_own


# Result of the thread that connects; None if there is no such thread (`connect_early`).
_connecting: Future[None] | None = None


@contextmanager
def connect_early() -> Iterator[None]:
    """Connect to Ray in a thread, and disconnect when the context ends. `connect` waits for the
    thread and raises the thread's error.

    A local Ray takes 2 to 8 s to start. The caller can plan meanwhile, but must not import Ray:
    Ray's circular imports fail if two threads import it at the same time."""
    global _connecting
    future: Future[None] = Future()
    over = threading.Event()

    def work() -> None:
        try:
            _connect()
            future.set_result(None)
        except BaseException as error:  # noqa: BLE001 - `connect` raises it
            future.set_exception(error)
        # Keep this thread: when it ends, Linux ends the local Ray's processes that it started.
        over.wait()

    _connecting = future
    # A daemon thread, because this process may end while Ray still starts.
    threading.Thread(target=work, name="connecting", daemon=True).start()
    try:
        yield
    finally:
        _connecting = None
        # After Ctrl-C do not wait for the thread: Ray ends with this process.
        if not isinstance(sys.exception(), KeyboardInterrupt):
            future.exception()  # waits for the thread
            import ray

            ray.shutdown()
            over.set()


def connect() -> None:
    """Join the cluster at ``RAY_ADDRESS`` or on this machine; without a cluster, start a local Ray.

    Raises `UserError` if Ray is not installed or the cluster refuses the connection, and
    `RunFailed` if a local Ray does not start."""
    global _connecting
    future, _connecting = _connecting, None
    if future is not None:
        future.result()
    else:
        _connect()


def _connect() -> None:
    global _is_own
    set_environment()
    try:
        import ray
    except ImportError as error:
        fix = "install ace_ray with an engine: pip install ace-ray[gpu] (for a CPU, see README)"
        raise UserError("Ray is not installed", where="this machine", fix=fix) from error
    if ray.is_initialized():
        return
    _is_own = False
    address = running_cluster()
    if address == "local":
        _start_local()
        _is_own = True
        return
    # Give actors the log settings of this process. The environment of a job already has the
    # settings, and Ray refuses to set them twice.
    variables = {} if _JOB in os.environ else log.environment()
    try:
        # Without an address Ray finds the running cluster and its token.
        ray.init(None, runtime_env={"env_vars": variables} if variables else None, **_options())
    except Exception as error:
        reason = " ".join(str(error).split())[:600] or type(error).__name__
        fix = "check RAY_ADDRESS"
        if not _env_address():
            fix = f"set RAY_ADDRESS=local to start a local Ray (the address is from {_note_path()})"
        if not reason.startswith("Version mismatch"):
            # Without the token, Ray's error is only "failed to connect".
            fix += (
                "; if the cluster asks for a token, export the head's RAY_AUTH_TOKEN and "
                "RAY_AUTH_MODE=token (docs/clusters.md)"
            )
        raise UserError(f"cannot join Ray: {reason}", where=f"Ray at {address}", fix=fix) from error


def _options() -> dict[str, Any]:
    return {
        # The dashboard would double the start-up time of a local Ray.
        "include_dashboard": False,
        # At level debug show the output of actors, including vLLM's. Not with a JSON log, because
        # Ray puts a name before each line.
        "log_to_driver": log.is_enabled(logging.DEBUG) and not log.is_json(),
        "logging_level": logging.ERROR,
    }


def _start_local() -> None:
    import ray

    from ace_ray.cluster.ray_internals import lean_node

    # Nobody reads the metrics and task events of a local Ray. To collect them takes a quarter of
    # the CPU time of a waiting process.
    os.environ.setdefault("RAY_enable_metrics_collection", "0")
    os.environ.setdefault("RAY_task_events_report_interval_ms", "0")
    for attempt in range(1, LOCAL_STARTS + 1):
        try:
            with lean_node(shows_output=_options()["log_to_driver"]):
                ray.init("local", **_options())
            return
        except Exception as error:
            ray.shutdown()
            if attempt == LOCAL_STARTS:
                problem = f"a local Ray cannot be started: {first_line(error)}"
                raise RunFailed(problem, resumable=True) from error
        # Another Ray may still be ending on this machine, or Ray's processes started too slowly.
        time.sleep(5)


def running_cluster() -> str:
    """Return the address of the cluster to join, or "local" to start a local Ray.

    The result is never Ray's "auto": Ray might then join another driver's local Ray, which can end
    early. Addresses are tested, since Ray's address file remains after a head node was killed.

    Raises `UserError` if no server answers at ``RAY_ADDRESS``."""
    if address := _env_address():
        if "://" not in address and not _answers(address):
            fix = "set it to the address of a running cluster, or unset it to start a local Ray"
            raise UserError("nothing answers at this address", f"RAY_ADDRESS={address}", fix)
        return address
    if os.environ.get("RAY_ADDRESS") == "local":
        return "local"
    note = _note_path()
    try:
        # Ignore the Ray of another user, whose sockets this user may not open.
        is_mine = note.stat().st_uid == os.geteuid()
        started = note.read_text(errors="replace").strip() if is_mine else ""
    except OSError:
        return "local"
    return started if started and _answers(started) else "local"


def _env_address() -> str:
    """Return the address in ``RAY_ADDRESS``; "" if the variable is "auto", "local" or not set."""
    address = os.environ.get("RAY_ADDRESS", "")
    return "" if address in ("auto", "local") else address


def _note_path() -> Path:
    """Return the path of the file in which `ray start` stores the address of its head node."""
    return Path(os.environ.get("RAY_TMPDIR", "/tmp"), "ray", "ray_current_cluster")


def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=10):
            return True
    except (OSError, ValueError):
        return False
