"""A whole run with the fake engine."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

import ace_ray
from tests.conftest import Cli


@dataclass(frozen=True)
class Evaluated:
    """A run, and what its command printed."""

    folder: Path
    stdout: str
    stderr: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        rows = ace_ray.Run.open(str(self.folder)).rows().to_pylist()
        return sorted(rows, key=lambda row: (row["category"], row["id"], row["sample"]))

    @property
    def summary(self) -> dict[str, Any]:
        tree: dict[str, Any] = json.loads((self.folder / "summary.json").read_text())
        return tree


Evaluate = Callable[..., Evaluated]


@pytest.fixture
def evaluate(cli: Cli, tmp_path: Path) -> Evaluate:
    """Evaluate with the fake engine until exit code ``code``; ``changes`` override the config."""

    def run(
        run_id: str = "run", *, code: int = 0, env: dict[str, str] | None = None, **changes: Any
    ) -> Evaluated:
        tree = {
            "model": {"source": "fake"},
            "backend": "fake",
            "max_attempts": 1,
            "workers": 1,
            "run_id": run_id,
            "output": str(tmp_path / "runs"),
            **changes,
        }
        path = tmp_path / f"{run_id}.yaml"
        path.write_text(yaml.safe_dump(tree))
        result = cli("evaluate", path, env=env, timeout_s=1800)
        assert result.code == code, result.stdout + result.stderr
        return Evaluated(tmp_path / "runs" / run_id, result.stdout, result.stderr)

    return run
