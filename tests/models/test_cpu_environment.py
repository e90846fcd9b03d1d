"""Environment variables of vLLM's processes on CPUs."""

from __future__ import annotations

import os

import pytest

from ace_ray.models.cpu_environment import cpu_environment


def test_variables_of_the_user_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("VLLM_CPU_OMP_THREADS_BIND", "OMP_WAIT_POLICY", *cpu_environment()):
        monkeypatch.delenv(name, raising=False)
    ours = cpu_environment()
    cores = {int(core) for core in ours["VLLM_CPU_OMP_THREADS_BIND"].split(",")}
    assert cores == os.sched_getaffinity(0)
    assert int(ours["GOMP_SPINCOUNT"]) < 300_000
    for name in ours:
        monkeypatch.setenv(name, "7")
    assert cpu_environment() == dict.fromkeys(ours, "7")
    monkeypatch.delenv("GOMP_SPINCOUNT")
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    assert "GOMP_SPINCOUNT" not in cpu_environment()
