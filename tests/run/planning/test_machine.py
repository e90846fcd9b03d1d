from __future__ import annotations

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


@pytest.mark.parametrize(
    ("flags", "gpus", "refused"),
    [(AVX512, 0, True), (AVX512 | {"amx_tile"}, 0, False), (AVX512, 1, False)],
)
def test_block_scaled_fp8_needs_amx_or_a_gpu(
    monkeypatch: pytest.MonkeyPatch, flags: frozenset[str], gpus: int, refused: bool
) -> None:
    monkeypatch.setattr(machine, "_cpu_flags", lambda: flags)
    monkeypatch.setattr(machine, "gpu_count", lambda: gpus)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    tree = {"model": {"source": "m"}, "benchmarks": ["acebench"], "output": "runs"}
    assert ("AMX" in machine.no_fp8_blocks(run_config(tree, where="x"))) == refused
