from __future__ import annotations

from typing import Any

import pytest

from ace_ray.config import run_config
from ace_ray.run.planning import machine

AVX2, AVX512 = frozenset({"avx", "avx2"}), frozenset({"avx2", "avx512f"})


@pytest.mark.parametrize(
    ("dtype", "flags", "gpus", "address", "is_slow"),
    [
        ("bfloat16", AVX2, 0, None, True),
        (None, AVX2, 0, "local", True),
        ("float32", AVX2, 0, None, False),
        ("bfloat16", AVX512, 0, None, False),
        ("bfloat16", frozenset(), 0, None, False),  # no x86: others have instructions of their own
        ("bfloat16", AVX2, 1, None, False),
        ("bfloat16", AVX2, 0, "auto", False),  # the engines are elsewhere
    ],
)
def test_a_dtype_that_the_cpu_has_no_instructions_for(
    monkeypatch: pytest.MonkeyPatch,
    dtype: str | None,
    flags: frozenset[str],
    gpus: int,
    address: str | None,
    is_slow: bool,
) -> None:
    monkeypatch.setattr(machine, "_cpu_flags", lambda: flags)
    monkeypatch.setattr(machine, "gpu_count", lambda: gpus)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    if address:
        monkeypatch.setenv("RAY_ADDRESS", address)
    tree = {
        "model": {"source": "Qwen/Qwen3-0.6B"},
        "benchmarks": [{"name": "acebench", "data": "mini"}],
        "engine": {"dtype": dtype} if dtype else {},
        "output": "runs",
    }
    said = machine.slow_dtype(run_config(tree, where="x"))
    assert bool(said) == is_slow
    assert not is_slow or "engine.dtype=float32" in said
    fake = run_config({**tree, "backend": "fake", "engine": {}}, where="x")
    assert not machine.slow_dtype(fake)


BLOCKS = {"quant_method": "FP8", "weight_block_size": [128, 128]}
BLOCK_GROUP = {"config_groups": {"group_0": {"weights": {"strategy": "block"}}}}
NVFP4 = {"quant_method": "modelopt", "quant_algo": "NVFP4"}


@pytest.mark.parametrize(
    ("quantization", "flags", "gpus", "words"),
    [
        (BLOCKS, AVX512, 0, "AMX"),
        (BLOCKS, AVX512 | {"amx_tile"}, 0, ""),
        (BLOCKS, AVX512, 1, ""),
        (BLOCK_GROUP, AVX512, 0, "AMX"),
        (NVFP4, AVX512 | {"amx_tile"}, 0, "NVFP4"),
        ({"format": "nvfp4-pack-quantized"}, AVX512, 0, "NVFP4"),
        (NVFP4, AVX512, 1, ""),
        ({"quant_method": "awq", "config_groups": []}, AVX512, 0, ""),
    ],
)
def test_quantizations_without_kernels_for_the_device(
    monkeypatch: pytest.MonkeyPatch,
    quantization: dict[str, Any],
    flags: frozenset[str],
    gpus: int,
    words: str,
) -> None:
    monkeypatch.setattr(machine, "_cpu_flags", lambda: flags)
    monkeypatch.setattr(machine, "gpu_count", lambda: gpus)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    tree = {"model": {"source": "m"}, "benchmarks": ["acebench"], "output": "runs"}
    said = machine.unloadable(run_config(tree, where="x"), quantization)
    assert bool(said) == bool(words)
    assert words in said
