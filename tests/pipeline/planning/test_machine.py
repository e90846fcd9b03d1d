from __future__ import annotations

import pytest

from ace_ray.cluster import resources as cluster
from ace_ray.config.schema import run_config

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
    monkeypatch.setattr(cluster, "_cpu_flags", lambda: flags)
    monkeypatch.setattr(cluster, "gpu_count", lambda: gpus)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    if address:
        monkeypatch.setenv("RAY_ADDRESS", address)
    tree = {
        "model": {"source": "Qwen/Qwen3-0.6B"},
        "benchmarks": [{"name": "acebench", "data": "mini"}],
        "engine": {"dtype": dtype} if dtype else {},
        "output": "runs",
    }
    said = cluster.slow_dtype(run_config(tree, where="x"))
    assert bool(said) == is_slow
    assert not is_slow or "engine.dtype=float32" in said
    fake = run_config({**tree, "backend": "fake", "engine": {}}, where="x")
    assert not cluster.slow_dtype(fake)
