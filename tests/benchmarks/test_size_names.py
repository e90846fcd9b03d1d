from __future__ import annotations

import pytest

from ace_ray.benchmarks.sizes import parameters_named, without_size


@pytest.mark.parametrize(
    ("name", "parameters", "rest"),
    [
        ("0.5B", 500_000_000, ""),
        ("135M", 135_000_000, ""),
        ("8x7B", 56_000_000_000, ""),
        ("Qwen2.5-Coder-1.5B-Instruct.Q4_K_M", 1_500_000_000, "Qwen2.5-Coder-Instruct.Q4_K_M"),
        ("Qwen3-30B-A3B", 30_000_000_000, "Qwen3-A3B"),
        ("model-0B", None, "model"),
        ("Phi-3-Mini-128k", None, "Phi-3-Mini-128k"),
        ("", None, ""),
    ],
)
def test_sizes_in_names(name: str, parameters: int | None, rest: str) -> None:
    assert parameters_named(name) == parameters
    assert without_size(name) == rest
