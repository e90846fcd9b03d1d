"""Published answers, of the data and of real models, get the verdicts of upstream's evaluator."""

import json
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

from ace_ray.benchmarks.bfcl.benchmark import BFCL
from ace_ray.benchmarks.bfcl.categories import SINGLE_TURN
from ace_ray.benchmarks.bfcl.check.single import check_single
from ace_ray.benchmarks.bfcl.data.loader import load
from ace_ray.benchmarks.bfcl.data.upstream_package import UpstreamPackage
from ace_ray.benchmarks.bfcl.decode.calls import Answer
from ace_ray.benchmarks.bfcl.gold import UNANSWERABLE, has_python_gold
from ace_ray.benchmarks.bfcl.score.outputs import entries_of, read_outputs
from ace_ray.benchmarks.external_outputs import Entries
from ace_ray.types import RULE_SETS, Entry, Verdict

PYTHON = [name for name in SINGLE_TURN if has_python_gold(name)]
RENAMED = {
    "simple": "simple_python",
    "java": "simple_java",
    "javascript": "simple_javascript",
    "multiple_function": "multiple",
    "parallel_function": "parallel",
    "parallel_multiple_function": "parallel_multiple",
    "relevance": "irrelevance",
}


@pytest.fixture(scope="module")
def entries(bfcl_copy: UpstreamPackage) -> dict[str, Entry]:
    return {entry.id: entry for entry in load(bfcl_copy, SINGLE_TURN)}


@pytest.fixture(scope="module")
def copy_entries(bfcl_copy: UpstreamPackage) -> Entries:
    """Entries of all categories, each loaded once."""
    return entries_of(bfcl_copy)


def judged(entry: Entry, text: str) -> dict[str, Verdict]:
    return dict(check_single(entry.category, entry.data["function"], entry.gold, Answer(text)))


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize(
    ("categories", "answers"),
    [
        pytest.param(PYTHON, 2351, id="scored"),
        pytest.param(("sql", "rest", "exec", "chatable"), 610, id="unused"),
        pytest.param(("multi_turn_composite",), 200, id="composite", marks=pytest.mark.nightly),
    ],
)
def test_gold_answers_pass_but_for_the_known_ones(bfcl_copy, categories, answers) -> None:
    """And no mangled copy does."""
    benchmark = BFCL.from_options({"data": bfcl_copy.name, "categories": list(categories)})
    benchmark.ready(named=True)
    entries = benchmark.entries()
    assert len(entries) == answers
    for entry in entries:
        gold = benchmark.gold(entry)
        assert gold is not None
        for episode, valid in ((gold.right, entry.id not in UNANSWERABLE), (gold.mangled, False)):
            verdicts = benchmark.verdicts(entry, episode)
            expected = dict.fromkeys(RULE_SETS, valid)
            assert {rules: v.valid for rules, v in verdicts.items()} == expected, entry.id


def test_outputs_of_unused_categories_count_where_they_are_named(copy_entries, tmp_path) -> None:
    file = tmp_path / "m" / "BFCL_v3_sql_result.json"
    second_file = file.with_name("BFCL_v3_simple_result.json")
    file.parent.mkdir()
    file.write_text('{"id": "sql_0", "result": "x"}')
    second_file.write_text('{"id": "simple_0", "result": "x"}')
    lines = tmp_path / "lines.jsonl"
    lines.write_text('{"id": "rest_0", "output": "x"}')
    read = {
        path: [o.entry.id for o in read_outputs(path, copy_entries)]
        for path in (file, file.parent, lines)
    }
    assert read == {file: ["sql_0"], file.parent: ["simple_python_0"], lines: ["rest_0"]}
    assert copy_entries.remarks["files of unused categories skipped (name one to score it)"] == 1


@pytest.mark.parametrize(("third", "answers"), [(0, 387), (1, 260), (2, 261)])
def test_native_answers_get_the_verdicts_that_upstream_stored(
    real_outputs, bfcl_copy, copy_entries, tmp_path, third, answers
) -> None:
    """``strict`` agrees with ``official`` on all of these 908 answers."""
    benchmark = BFCL.from_options({"data": bfcl_copy.name})
    stored: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for row in rows_of(real_outputs / "bfcl_native.jsonl"):
        stored[row["source"], row["model"]].append(row)
    count = 0
    for number, ((_, model), rows) in list(enumerate(stored.items()))[third::3]:
        expected = {row["id"]: row["upstream_error_type"] or "" for row in rows}
        path = tmp_path / str(number) / f"{model}.jsonl"
        path.parent.mkdir()
        lines = [json.dumps({"id": row["id"], "output": row["result"]}) for row in rows]
        path.write_text("\n".join(lines))
        for output in read_outputs(path, copy_entries):
            verdicts = benchmark.check(output.entry, output.episode)
            kinds = {rules: verdict.error_type for rules, verdict in verdicts.items()}
            assert kinds == dict.fromkeys(kinds, expected[output.entry.id]), output.entry.id
            count += 1
    assert count == answers


def test_prompted_texts_are_judged_and_strict_differs_where_it_should(real_outputs, entries):
    """Upstream's evaluator gives the same 852 official verdicts (docs/parity.md)."""
    counts, differing = Counter[str](), Counter[str]()
    for row in rows_of(real_outputs / "bfcl_prompt_texts.jsonl"):
        number = row["id"].rpartition("_")[2]
        verdicts = judged(entries[f"{RENAMED[row['category']]}_{number}"], row["result"])
        official, strict = verdicts["official"], verdicts["strict"]
        assert official.error_type not in ("official_unsafe", "official_crash")
        counts.update({"judged": 1, "valid": int(official.valid is True)})
        if official.valid != strict.valid:
            differing[strict.error_type] += 1
    assert counts == {"judged": 852, "valid": 329}
    assert differing == {"irrelevance_error:unreadable_call": 20, "": 2}
