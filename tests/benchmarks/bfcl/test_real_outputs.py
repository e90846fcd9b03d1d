"""Answers of real models get the verdicts that upstream's evaluator stored with them."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from ace_ray.benchmarks.bfcl.benchmark import BFCL
from ace_ray.benchmarks.bfcl.data.upstream_package import UpstreamPackage
from ace_ray.benchmarks.bfcl.score.outputs import entries_of, read_outputs
from ace_ray.benchmarks.outputs import Entries


@pytest.fixture(scope="module")
def known(bfcl_copy: UpstreamPackage) -> Entries:
    """Entries of all categories, each loaded once."""
    return entries_of(bfcl_copy)


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize(("third", "answers"), [(0, 387), (1, 260), (2, 261)])
def test_native_answers_get_the_verdicts_that_upstream_stored(
    real_outputs: Path,
    bfcl_copy: UpstreamPackage,
    known: Entries,
    tmp_path: Path,
    third: int,
    answers: int,
) -> None:
    """``strict`` agrees with ``official`` on all of these 908 answers."""
    benchmark = BFCL.from_options({"data": bfcl_copy.name})
    stored: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for row in rows_of(real_outputs / "bfcl_native.jsonl"):
        stored[row["source"], row["model"]].append(row)
    count = 0
    for number, ((_, model), rows) in list(enumerate(stored.items()))[third::3]:
        wanted = {row["id"]: row["upstream_error_type"] or "" for row in rows}
        path = tmp_path / str(number) / f"{model}.jsonl"
        path.parent.mkdir()
        lines = [json.dumps({"id": row["id"], "output": row["result"]}) for row in rows]
        path.write_text("\n".join(lines))
        for output in read_outputs(path, known):
            verdicts = benchmark.check(output.entry, output.episode)
            kinds = {rules: verdict.error_type for rules, verdict in verdicts.items()}
            assert kinds == dict.fromkeys(kinds, wanted[output.entry.id]), output.entry.id
            count += 1
    assert count == answers
