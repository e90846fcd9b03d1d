from __future__ import annotations

from pathlib import Path
from typing import Any


def test_plan_writes_nothing(here: Any, config_file: Any, tmp_path: Path) -> None:
    path = config_file(limit=3)
    ended = here("evaluate", path, "--plan")
    assert ended.code == 0, ended.stderr
    lines = dict(line.split(maxsplit=1) for line in ended.stdout.splitlines())
    assert lines["rows"] == "all 3 will be evaluated"
    assert lines["categories"].startswith("acebench: normal_atom_bool 1, ")
    assert lines["results"].startswith(str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()
    too_many = here("evaluate", config_file(worker_cpus=10_000), "--plan")
    assert too_many.code == 2
    assert here("evaluate", config_file(benchmarks=["acebenhc"]), "--plan").code == 2
