from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.pipeline.actors.lane_engines import Engines


@pytest.fixture
def engines(
    tmp_path: Path, make_checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> Engines:
    return Engines(tmp_path, make_checkpoint, monkeypatch)
