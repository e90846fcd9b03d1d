"""Parts that cannot be read: each command that reads a run names them."""

from pathlib import Path

import pytest

from tests.integrations.made import complete_run

TORN = "rows/part-00000000000009-aa-0123456789abcdef.parquet"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return complete_run(tmp_path / "run")


@pytest.mark.parametrize(
    "arguments",
    [
        "show RUN --json",
        "export RUN --to lm-eval",
        "report RUN",
        "compare RUN OTHER",
        "publish RUN --to tensorboard --option folder=TMP",
        "score RUN",
        "compact RUN",
    ],
)
def test_every_command_names_a_torn_part_once(arguments, run, tmp_path, invoke) -> None:
    second_run = complete_run(tmp_path / "other") if "OTHER" in arguments else run
    (run / TORN).write_bytes(b"torn")
    values = {"RUN": str(run), "OTHER": str(second_run)}
    words = [values.get(word, word).replace("TMP", str(tmp_path)) for word in arguments.split()]
    result = invoke(*words)
    assert (result.stderr + result.stdout).count(f"{TORN} is ignored") == 1
    assert (run / TORN).read_bytes() == b"torn"
