"""Runs read back: refusals, labels, differences in conditions, and the table of scores."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from ace_ray.benchmarks.acebench.benchmark import ACEBench
from ace_ray.benchmarks.conditions import comparable_sets, differences
from ace_ray.errors import UserError
from ace_ray.reports.content import comparison_table
from ace_ray.reports.runs import by_benchmark, load_runs
from tests.report.builders import block, everything, load_run, write_run

ROWS = block("en", "special_incomplete", 2, 4)


def reported(*folders: Path) -> list[Any]:
    runs = load_runs([str(folder) for folder in folders])
    return [run.reported("acebench", ACEBench.statistics) for run in runs]


def scores(*folders: Path) -> Any:
    """Return the table of scores under the official rules."""
    (holders,) = by_benchmark(load_runs([str(folder) for folder in folders]))
    return comparison_table(holders, "official")


def test_folders_that_are_not_runs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"{tmp_path}.*is not a run: run.json is missing"):
        load_run(str(tmp_path))
    for manifest, words in (
        ("[1]", "is not a JSON object"),
        ('{"schema_version": 1}', "'run_id' is missing"),
        ('{"schema_version": 2}', "schema_version"),
    ):
        (tmp_path / "run.json").write_text(manifest)
        with pytest.raises(UserError, match=words):
            load_run(str(tmp_path))
    with pytest.raises(UserError, match="has no rows"):
        load_run(str(write_run(tmp_path / "empty", [])))
    folder = write_run(tmp_path / "run", ROWS)
    with pytest.raises(UserError, match="named twice"):
        load_runs([str(folder), f"{folder}/"])


def test_labels_are_as_short_as_they_can_be(tmp_path: Path) -> None:
    models = {"a": "org/Same", "b": "other/Same", "c": "package:pkg/Tiny-1B.Q4.gguf"}
    models |= dict.fromkeys(("d/x", "e/x"), "org/Twin")
    folders = [str(write_run(tmp_path / f, ROWS, model=model)) for f, model in models.items()]
    labels = [run.label for run in load_runs(folders)]
    twins = [f"Twin ({tmp_path}/{name}/x)" for name in ("d", "e")]
    assert labels == ["Same (a)", "Same (b)", "Tiny-1B.Q4", *twins]


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"sampling": {"max_tokens": 7}}, "sampling.max_tokens is"),
        ({"variant": "minimal"}, 'variant is "standard" in A; "minimal" in B'),
        ({"backend": "fake"}, 'backend is "vllm" in A; "fake" in B'),
        ({"extra_identity": {"new": {"deep": 1}}}, "new.deep is not recorded in A; 1 in B"),
    ],
)
def test_each_difference_in_conditions_is_a_line(
    tmp_path: Path, change: dict[str, Any], line: str
) -> None:
    first = write_run(tmp_path / "a", ROWS, model="o/A")
    runs = reported(first, write_run(tmp_path / "b", ROWS, model="o/B", **change))
    assert comparable_sets(runs) == [1, 2]
    assert any(line in found for found in differences(runs)), list(differences(runs))


def test_runs_that_differ_in_the_candidate_compare(tmp_path: Path) -> None:
    extra = {"engine": {"dtype": "auto"}, "chat_template_kwargs": {"enable_thinking": True}}
    models = {"a": "o/A", "b": "org/B", "c": "org/B"}
    folders = [
        write_run(tmp_path / name, ROWS, model=model, extra_identity=extra if name != "c" else {})
        for name, model in models.items()
    ]
    assert list(differences(reported(*folders[:2]))) == []
    runs = reported(*folders[1:])
    assert comparable_sets(runs) == [1, 1]
    assert (
        "not the same candidate: chat_template_kwargs.enable_thinking is true in B (b); "
        "not recorded in B (c)"
    ) in list(differences(runs))


def test_other_data_and_other_entries_do_not_compare(tmp_path: Path) -> None:
    folders = [write_run(tmp_path / n, ROWS[: 4 - (n == "A")], model=f"o/{n}") for n in "ABCD"]
    (line,) = differences(reported(*folders))
    assert re.fullmatch(r'not comparable: entries is "3 \(.*\)" in A; "4 \(.*" in the others', line)
    manifest = json.loads((folders[2] / "run.json").read_text())
    manifest["identity"]["benchmarks"]["acebench"]["data_sha256"] = "f" * 64
    (folders[2] / "run.json").write_text(json.dumps(manifest))
    (line,) = differences(reported(*folders[1:3]))
    assert "data_sha256 is " in line
    assert "ffffffffffff in C" in line


def test_the_table_of_scores_has_intervals_and_warnings(tmp_path: Path) -> None:
    rows = everything({"special_incomplete": 4})
    folder = write_run(tmp_path / "A", rows, model="o/A", limit=5, backend="fake")
    summary = {"benchmarks": {"acebench": {"comparable": "with nothing at all"}}}
    (folder / "summary.json").write_text(json.dumps(summary))
    table = scores(folder)
    groups = ["Overall (workbook)", "Normal", "Special", "Agent", "Overall (paper)"]
    assert list(table.header) == ["Model", "Scored rows", *groups, "Accuracy (pooled)"]
    label, scored, _, normal, special, *_ = table.lines[0]
    assert (label, scored) == ("A (limited)", "340/340")
    assert (normal.value, normal.n) == (1.0, 240)
    assert special.value == pytest.approx(0.8)
    fake, limited, comparable = table.notes
    assert fake == "A: backend fake; a test of the pipeline, not an evaluation"
    assert limited == "A: limited to 5 entries: a sample of the benchmark, not its score"
    assert comparable == "A: with nothing at all"


def test_adapters_are_candidates_of_their_own(tmp_path: Path) -> None:
    folders = [
        write_run(tmp_path / f"r{step}", ROWS, adapter=f"/loras/run-7/checkpoint-{step}")
        for step in (10, 20)
    ]
    base = write_run(tmp_path / "base", ROWS)
    runs = load_runs(list(map(str, [*folders, base])))
    assert [(run.label, run.step, run.training) for run in runs] == [
        ("Toy-7B-Instruct+checkpoint-10", 10, "run-7"),
        ("Toy-7B-Instruct+checkpoint-20", 20, "run-7"),
        ("Toy-7B-Instruct", None, ""),
    ]
    assert list(differences(reported(*folders, base))) == []
    twins = [write_run(tmp_path / f"twin{n}", ROWS, adapter=f"/loras/run-{n}/last") for n in (1, 2)]
    (line,) = differences(reported(*twins))
    assert line.startswith("not the same candidate: adapter is ")


def test_named_entries_and_some_categories_make_partial_scores(tmp_path: Path) -> None:
    rows = everything({}, of=2)
    restricted = {"acebench": {"ids": ["a", "b"]}}
    named = scores(write_run(tmp_path / "named", rows, restricted=restricted))
    assert all(share.partial for share in named.lines[0][2:])
    assert "limited to 2 named ids: a sample of the benchmark, not its score" in " ".join(
        named.notes
    )
    whole = scores(write_run(tmp_path / "whole", rows))
    assert not any(share.partial for share in whole.lines[0][2:])
    folders = [
        write_run(tmp_path / name, block("en", "special_incomplete", valid, 4), model=f"o/{name}")
        for name, valid in (("A", 3), ("B", 1), ("C", 4))
    ]
    table = scores(*folders)
    header = ["Model", "Scored rows", "Overall (workbook)", "Special", "Overall (paper)"]
    assert list(table.header) == [*header, "Accuracy (pooled)"], "others have no column"
    for line, share in zip(table.lines, (0.75, 0.25, 1.0), strict=True):
        partial = [(one.value, one.partial) for one in line[2:]]
        assert partial == [(share, True)] * 3 + [(share, False)]
    assert table.notes[0].startswith("all 3 runs: Overall (workbook) is partial; not run: ")
