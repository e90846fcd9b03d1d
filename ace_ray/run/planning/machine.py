"""What the machine at hand has, as far as it is known without starting anything."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

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


def unloadable(config: RunConfig, quantization: Mapping[str, Any]) -> str:
    """Return why engines here cannot load weights of this ``quantization``, of a config.json; ""
    where they can, where they run elsewhere, and where only vLLM can tell."""
    flags = _cpu_flags()
    if config.backend != "vllm" or not is_local() or gpu_count() or not flags:
        return ""
    # Kernels of vLLM 0.32 for CPUs: model_executor/kernels/linear/__init__.py, scaled_mm/cpu.py.
    forms = ("quant_method", "quant_algo", "format")
    if any(form in str(quantization.get(key)).lower() for key in forms for form in _GPU_FORMS):
        return "vLLM has no kernels for weights in NVFP4 on CPUs"
    groups = quantization.get("config_groups")
    weights = [
        group.get("weights")
        for group in (groups.values() if isinstance(groups, dict) else ())
        if isinstance(group, dict)
    ]
    blocks = quantization.get("weight_block_size") or any(
        isinstance(one, dict) and one.get("strategy") == "block" for one in weights
    )
    if blocks and "amx_tile" not in flags:
        return "vLLM loads fp8 with block scales on CPUs with AMX only"
    return ""


_GPU_FORMS = ("nvfp4", "modelopt_fp4")


def _cpu_flags() -> frozenset[str]:
    """Instruction sets of an x86 CPU under Linux; empty elsewhere."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return frozenset()
    found = next((line for line in lines if line.startswith("flags")), "")
    return frozenset(found.partition(":")[2].split())
