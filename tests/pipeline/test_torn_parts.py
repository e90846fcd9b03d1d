"""Parts that cannot be read: each command that reads a run names them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ace_ray
from ace_ray.cli.main import main
from ace_ray.pipeline.rescore import compact_run
from ace_ray.storage.object_store import LocalStore
from ace_ray.storage.object_store.interface import Object
from ace_ray.storage.parts import read_ledger
from tests.integrations.made import complete_run

TORN = "rows/part-00000000000009-aa-0123456789abcdef.parquet"


def cut(path: Path) -> None:
    (whole,) = path.parent.glob("part-0-a-*")
    path.write_bytes(whole.read_bytes()[:500])


KINDS: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "cut off": cut,
    "another table": lambda path: pq.write_table(pa.table({"a": [1]}), path),
    "a link to nothing": lambda path: path.symlink_to("/nowhere/at/all"),
}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return complete_run(tmp_path / "run")


@pytest.mark.parametrize("kind", KINDS)
def test_a_part_that_cannot_be_read_is_named_with_the_reason(
    kind: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    KINDS[kind](run / TORN)
    opened = ace_ray.Run.open(str(run))
    reason = opened.ignored_files[TORN]
    assert capsys.readouterr().err == (f"{run}/{TORN} is ignored, its rows are pending: {reason}\n")
    assert opened.rows(["id"]).num_rows == opened.manifest["declared"]


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
def test_every_command_names_a_torn_part_once(
    arguments: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = complete_run(tmp_path / "other") if "OTHER" in arguments else run
    (run / TORN).write_bytes(b"torn")
    places = {"RUN": str(run), "OTHER": str(other)}
    given = [places.get(word, word).replace("TMP", str(tmp_path)) for word in arguments.split()]
    with pytest.raises(SystemExit):
        main(given)
    told = capsys.readouterr()
    assert (told.err + told.out).count(f"{TORN} is ignored") == 1
    assert (run / TORN).read_bytes() == b"torn"


class Merging(LocalStore):
    """A store whose parts are merged after they were first listed."""

    merged = False

    def list(self, prefix: str = "") -> list[Object]:
        found = super().list(prefix)
        if not self.merged:
            self.merged = True
            compact_run(self.root, lambda line: None)
        return found


def test_parts_that_are_merged_meanwhile_are_listed_again(run: Path) -> None:
    told: list[str] = []
    ledger = read_ledger(Merging(str(run)), told.append)
    assert (len(ledger.ids), ledger.ignored, told) == (170, {}, [])
