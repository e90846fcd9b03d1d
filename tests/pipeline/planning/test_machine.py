from __future__ import annotations

import pytest

from ace_ray.cluster import resources
from ace_ray.config.schema import run_config

AVX2, AVX512 = frozenset({"avx", "avx2"}), frozenset({"avx2", "avx512f"})


@pytest.mark.parametrize(
    ("dtype", "flags", "gpus", "address", "is_slow"),
    [
        ("bfloat16", AVX2, 0, None, True),
        (None, AVX2, 0, "local", True),
        ("float32", AVX2, 0, None, False),
        ("bfloat16", AVX512, 0, None, False),
        ("bfloat16", frozenset(), 0, None, False),  # not an x86 CPU
        ("bfloat16", AVX2, 1, None, False),
        ("bfloat16", AVX2, 0, "auto", False),  # the engines are on a cluster
    ],
)
def test_a_slow_dtype_is_warned_of(
    monkeypatch: pytest.MonkeyPatch,
    dtype: str | None,
    flags: frozenset[str],
    gpus: int,
    address: str | None,
    is_slow: bool,
) -> None:
    monkeypatch.setattr(resources, "_cpu_flags", lambda: flags)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    if address:
        monkeypatch.setenv("RAY_ADDRESS", address)
    tree = {
        "model": {"source": "Qwen/Qwen3-0.6B"},
        "benchmarks": [{"name": "acebench", "data": "mini"}],
        "engine": {"dtype": dtype} if dtype else {},
        "output": "runs",
    }
    warning = resources.slow_dtype(run_config(tree, where="x"), gpus)
    assert bool(warning) == is_slow
    assert not is_slow or "engine.dtype=float32" in warning
