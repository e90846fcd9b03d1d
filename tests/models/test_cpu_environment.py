"""What vLLM's processes on CPUs are told."""

from __future__ import annotations

import os

import pytest

from ace_ray.models.cpu_environment import cpu_environment


@pytest.fixture(autouse=True)
def nothing_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("VLLM_CPU_OMP_THREADS_BIND", "OMP_WAIT_POLICY", *cpu_environment()):
        monkeypatch.delenv(name, raising=False)


def test_all_cores_are_the_engines() -> None:
    cores = {int(core) for core in cpu_environment()["VLLM_CPU_OMP_THREADS_BIND"].split(",")}
    assert cores == os.sched_getaffinity(0)


def test_what_the_user_has_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = cpu_environment()
    assert int(ours["GOMP_SPINCOUNT"]) < 300_000
    for name in ours:
        monkeypatch.setenv(name, "7")
    assert cpu_environment() == dict.fromkeys(ours, "7")


def test_a_policy_of_the_user_rules_the_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    assert "GOMP_SPINCOUNT" not in cpu_environment()
