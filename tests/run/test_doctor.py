from __future__ import annotations

from pathlib import Path

import pytest

from ace_ray.config import run_config
from ace_ray.errors import UserError
from ace_ray.run import doctor


def test_other_roles_are_checked_beside_an_endpoint(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    server = {"url": "http://h/v1", "model": "m", "api_key_env": None}
    tree = {
        "model": {"endpoint": server},
        "benchmarks": [{"name": "acebench", "data": "mini"}],
        "output": str(tmp_path),
    }

    def refused(plan: object) -> None:
        raise UserError("a chat of system is what this role is sent", where="user", fix="no")

    answer = {"model": "m", "usage": True, "text": "x", "calls": 1}
    monkeypatch.setattr("ace_ray.run.planning.preflight.check_chat", refused)
    monkeypatch.setattr(doctor, "ask_endpoint", lambda *_, **__: answer)
    lines = {line.topic: line for line in doctor.examine(lambda: run_config(tree, where="x"))}
    assert lines["roles"].problem
    assert "what this role is sent" in lines["roles"].text
    assert not lines["endpoint"].problem
