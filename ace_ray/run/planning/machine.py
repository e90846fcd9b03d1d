"""What the machine at hand has, as far as it is known without starting anything."""

from __future__ import annotations

import os
from pathlib import Path

from ace_ray.config import RunConfig


def is_local() -> bool:
    """Whether a run starts a cluster of its own here, and joins none."""
    return os.environ.get("RAY_ADDRESS", "local") == "local"


def gpu_count() -> int:
    return sum(1 for n in os.listdir("/dev") if n.startswith("nvidia") and n[6:].isdigit())


def slow_dtype(config: RunConfig) -> str:
    """What to say of engines whose numbers this machine's CPU has no instructions for; "" where
    they run elsewhere, or it has."""
    dtype, flags = config.engine.get("dtype", "auto"), _cpu_flags()
    if config.backend != "vllm" or not is_local() or gpu_count():
        return ""
    if dtype in ("float32", "float") or "avx2" not in flags or "avx512f" in flags:
        return ""
    # Measured with torch 2.13 on such a CPU: a product of matrices at 0.43 and 11.5 GFLOPS.
    return (
        f"engine.dtype {dtype}: this CPU has no AVX-512, and computes bfloat16 some 25 times as "
        "slowly as float32; set engine.dtype=float32"
    )


def no_fp8_blocks(config: RunConfig) -> str:
    """Say why engines here cannot load weights in fp8 with block scales; "" if they can, or if they
    run elsewhere."""
    flags = _cpu_flags()
    if config.backend != "vllm" or not is_local() or gpu_count() or not flags:
        return ""
    # vLLM 0.32 has kernels for CPUs with AMX only (model_executor/kernels/linear/scaled_mm/cpu.py).
    return "" if "amx_tile" in flags else "vLLM loads fp8 with block scales on CPUs with AMX only"


def _cpu_flags() -> frozenset[str]:
    """Instruction sets of an x86 CPU under Linux; empty elsewhere."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return frozenset()
    found = next((line for line in lines if line.startswith("flags")), "")
    return frozenset(found.partition(":")[2].split())
