"""Published outputs of real models: verdicts as upstream's evaluator gave them."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from ace_ray.benchmarks.bfcl.benchmark import BFCL
from ace_ray.benchmarks.bfcl.check.single import check_single
from ace_ray.benchmarks.bfcl.data.loader import load
from ace_ray.benchmarks.bfcl.data.upstream_package import UpstreamPackage
from ace_ray.benchmarks.bfcl.decode.calls import Answer
from ace_ray.benchmarks.bfcl.score.outputs import entries_of, read_outputs
from ace_ray.benchmarks.outputs import Entries

RENAMED = {
    "simple": "simple_python",
    "java": "simple_java",
    "javascript": "simple_javascript",
    "multiple_function": "multiple",
    "parallel_function": "parallel",
    "parallel_multiple_function": "parallel_multiple",
    "relevance": "irrelevance",
}


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture(scope="module")
def entries(bfcl_copy: UpstreamPackage) -> Entries:
    """Entries of all categories, each loaded once."""
    return entries_of(bfcl_copy)


@pytest.mark.parametrize(("third", "answers"), [(0, 387), (1, 260), (2, 261)])
def test_native_answers_get_the_verdicts_that_upstream_stored(
    real_outputs: Path,
    bfcl_copy: UpstreamPackage,
    entries: Entries,
    tmp_path: Path,
    third: int,
    answers: int,
) -> None:
    """``strict`` agrees with ``official`` on all of these 908 answers."""
    benchmark = BFCL.from_options({"data": bfcl_copy.name})
    stored: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for row in rows_of(real_outputs / "bfcl_native.jsonl"):
        stored[row["source"], row["model"]].append(row)
    judged = 0
    for number, ((_, model), rows) in enumerate(stored.items()):
        if number % 3 != third:
            continue
        wanted = {row["id"]: row["upstream_error_type"] or "" for row in rows}
        path = tmp_path / str(number) / f"{model}.jsonl"
        path.parent.mkdir()
        lines = [json.dumps({"id": row["id"], "output": row["result"]}) for row in rows]
        path.write_text("\n".join(lines))
        for output in read_outputs(path, entries):
            verdicts = benchmark.check(output.entry, output.episode)
            kinds = {rules: verdict.error_type for rules, verdict in verdicts.items()}
            assert kinds == dict.fromkeys(kinds, wanted[output.entry.id]), output.entry.id
            judged += 1
    assert judged == answers


def test_prompted_texts_are_judged_and_strict_differs_where_it_should(
    real_outputs: Path, bfcl_copy: UpstreamPackage
) -> None:
    """Upstream's evaluator gives the same 852 official verdicts (docs/parity.md)."""
    entries = {
        entry.id: entry for category in RENAMED.values() for entry in load(bfcl_copy, [category])
    }
    judged = valid = 0
    differing: Counter[str] = Counter()
    for row in rows_of(real_outputs / "bfcl_prompt_texts.jsonl"):
        number = row["id"].rpartition("_")[2]
        entry = entries[f"{RENAMED[row['category']]}_{number}"]
        functions = entry.data["function"]
        verdicts = check_single(entry.category, functions, entry.gold, Answer(row["result"]))
        official, strict = verdicts["official"], verdicts["strict"]
        assert official.error_type not in ("official_unsafe", "official_crash")
        judged += 1
        valid += official.valid
        if official.valid != strict.valid:
            differing[strict.error_type] += 1
    assert (judged, valid) == (852, 329)
    assert differing == {"irrelevance_error:unreadable_call": 20, "": 2}
