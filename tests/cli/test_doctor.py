from pathlib import Path
from typing import Any


def test_plan_writes_nothing(invoke: Any, config_file: Any, tmp_path: Path) -> None:
    path = config_file(limit=3)
    result = invoke("evaluate", path, "--plan")
    assert result.code == 0, result.stderr
    lines = dict(line.split(maxsplit=1) for line in result.stdout.splitlines())
    assert lines["rows"] == "all 3 will be evaluated"
    assert lines["categories"].startswith("acebench: normal_atom_bool 1, ")
    assert lines["results"].startswith(str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()
    too_many = invoke("evaluate", config_file(worker_cpus=10_000), "--plan")
    assert too_many.code == 2
    assert invoke("evaluate", config_file(benchmarks=["acebenhc"]), "--plan").code == 2
