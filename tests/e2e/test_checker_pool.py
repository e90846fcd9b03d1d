"""Checks that fall behind get another process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from ace_ray.run import executor

SLOW = '''
import os
import time
from pathlib import Path

from ace_ray.benchmarks.base import Benchmark
from ace_ray.records import Entry, Verdict

FOLDER = Path({folder!r})


class Slow(Benchmark):
    """Its checks take their time, the later ones until two processes have made some."""

    name = "slow"

    def entries(self):
        return [Entry(id=str(i), prompt=f"What is {{i:02}}?", gold=i) for i in range(60)]

    def check(self, entry, episode):
        (FOLDER / str(os.getpid())).touch()
        time.sleep(0.3)
        until = time.monotonic() + 240
        while entry.gold >= 10 and len(list(FOLDER.iterdir())) < 2 and time.monotonic() < until:
            time.sleep(0.1)
        return Verdict(True)
'''


@pytest.mark.nightly
def test_another_checker_starts_when_one_falls_behind(
    here: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor, "BEHIND_S", 0.5)
    folder = tmp_path / "processes"
    folder.mkdir()
    (tmp_path / "slow.py").write_text(SLOW.format(folder=str(folder)))
    config = {
        "model": {"source": "fake"},
        "backend": "fake",
        "benchmarks": [{"name": f"{tmp_path}/slow.py:Slow"}],
        "rows_per_block": 1,
        "output": str(tmp_path / "runs"),
    }
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    ended = here("evaluate", tmp_path / "config.yaml")
    assert ended.code == 0, ended.stderr
    assert "declared 60 = 60 scored" in ended.stdout
    assert len(list(folder.iterdir())) > 1
