"""Joining or starting Ray, and checking that a plan fits before anything waits for it."""

from __future__ import annotations

import logging
import math
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ace_ray.config import RunConfig
from ace_ray.errors import UserError

CHECKER_CPUS = 0.25
WRITER_CPUS = 0.25
"""Small, so that a 2-CPU cluster has room beside one engine."""


def connect() -> None:
    """Join the cluster named by ``RAY_ADDRESS`` or running on this machine; else start one.

    Raises:
        UserError: Ray is not installed, or the cluster refuses the connection.
    """
    # Before Ray is imported: its logger and its usage ping read the environment then.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Ray runs workers at niceness 15; on a small machine an engine would yield to Ray's own
    # processes at every step. Takes effect in a Ray that is started here.
    os.environ.setdefault("RAY_worker_niceness", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
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
    address = _running_cluster()
    try:
        # Ray finds a running cluster, and the token it made for it, only when it is left to look.
        # No dashboard for a Ray of our own: it doubles the start-up time.
        ray.init(
            "local" if address == "local" else None,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
        )
    except Exception as error:
        # Ray says no more than "failed to connect" when the token is missing.
        lines = [line for line in str(error).splitlines() if line.strip()]
        raise UserError(
            f"cannot join or start Ray: {lines[0] if lines else type(error).__name__}",
            where=f"Ray at {address}",
            fix="check RAY_ADDRESS; if the cluster asks for a token, export the head's "
            "RAY_AUTH_TOKEN and RAY_AUTH_MODE=token (docs/clusters.md)",
        ) from error


def _running_cluster() -> str:
    """The address to join, or "local".

    Never Ray's own "auto": it would join another driver's private Ray and die with it. And never an
    address that nobody answers at: Ray would wait for it for minutes, and a killed head leaves its
    address behind.

    Raises:
        UserError: ``RAY_ADDRESS`` does not answer.
    """
    named = os.environ.get("RAY_ADDRESS", "")
    if named and named not in ("auto", "local"):
        if "://" not in named and not _answers(named):
            raise UserError(
                "nothing answers at this address",
                where=f"RAY_ADDRESS={named}",
                fix="name a running cluster, or unset it to start a local Ray",
            )
        return named
    # Where `ray start` leaves the address of the head it started on this machine.
    note = Path(os.environ.get("RAY_TMPDIR", "/tmp"), "ray", "ray_current_cluster")
    started = note.read_text().strip() if named != "local" and note.is_file() else ""
    return started if started and _answers(started) else "local"


def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=10):
            return True
    except (OSError, ValueError):
        return False


@dataclass(frozen=True)
class Resources:
    """What the run asks of the cluster; logical CPUs and GPUs in Ray's sense."""

    workers: int
    worker_cpus: float
    worker_gpus: int
    checkers: int

    @property
    def cpus(self) -> float:
        return self.workers * self.worker_cpus + self.checkers * CHECKER_CPUS + WRITER_CPUS

    @property
    def gpus(self) -> int:
        return self.workers * self.worker_gpus


def gpus_per_worker(engine: dict[str, Any]) -> int:
    """One engine spans tensor x pipeline parallel GPUs."""
    return int(engine.get("tensor_parallel_size", 1)) * int(engine.get("pipeline_parallel_size", 1))


def fit(config: RunConfig, rows: int, total: dict[str, float]) -> Resources:
    """How the run sits on a cluster with ``total`` resources.

    Ray Data waits for ever when actors leave no CPU for its tasks, so what does not fit is refused.

    Raises:
        UserError: the demand exceeds the cluster.
    """
    cpus, gpus = total.get("CPU", 0.0), int(total.get("GPU", 0))
    per_worker = gpus_per_worker(config.engine) if gpus and config.backend == "vllm" else 0
    if config.workers != "auto":
        workers = config.workers
    elif per_worker:
        workers = max(1, gpus // per_worker)
    else:
        workers = 1
    workers = max(1, min(workers, rows)) if config.workers == "auto" else workers
    need = Resources(workers, config.worker_cpus, per_worker, config.checkers)
    if need.gpus > gpus:
        raise UserError(
            f"{workers} worker(s) of {per_worker} GPU(s) need {need.gpus}, the cluster has {gpus}",
            where="workers",
            fix="lower workers or engine.tensor_parallel_size, or join a larger cluster",
        )
    if need.cpus > cpus:
        room = cpus - config.checkers * CHECKER_CPUS - WRITER_CPUS
        most = max(0, math.floor(room / config.worker_cpus))
        fix = (
            f"set workers to {most} or less, or lower worker_cpus"
            if most
            else "lower worker_cpus or checkers, or join a larger cluster"
        )
        raise UserError(
            f"the run needs {need.cpus:g} CPUs ({workers} worker(s) of {config.worker_cpus:g}, "
            f"{config.checkers} checker(s) of {CHECKER_CPUS:g}, {WRITER_CPUS:g} for writing), "
            f"the cluster has {cpus:g}",
            where="workers",
            fix=fix,
        )
    return need
