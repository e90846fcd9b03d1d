from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.fault_runs import Run


@pytest.fixture
def make_run(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    """Makes runs whose processes end with the test."""
    made: list[Run] = []

    def make(output: str | None = None, **changes: Any) -> Run:
        folder = tmp_path / f"{len(made)}"
        folder.mkdir()
        made.append(Run(folder, output, **changes))
        return made[-1]

    yield make
    for run in made:
        run.close()
