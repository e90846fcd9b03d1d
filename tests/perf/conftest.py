"""What the tests of the scripts in ``perf/`` share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture
def perf(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """Imports a script as it sees itself: its folder is on the path."""
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "perf"))

    def load(name: str) -> ModuleType:
        return __import__(name)

    return load
