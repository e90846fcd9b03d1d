"""lm-eval's files, and evaluation results of the hub."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import yaml

from ace_ray.integrations import result_files
from ace_ray.storage.object_store.local import LocalStore
from ace_ray.viewer.select import StoredRun
from tests.report.builders import block, everything, write_run


def test_files_lie_in_the_run_without_an_output(here: Any, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", block("en", "normal_atom_bool", 3, 4), model="org/Toy-7B")
    ended = here("export", folder, "--to", "lm-eval")
    assert ended.code == 0, ended.stderr
    assert list((folder / "export" / "lm-eval" / "org__Toy-7B").glob("results_*.json"))


def test_lm_evals_files(here: Any, tmp_path: Path) -> None:
    rows = [*block("en", "normal_atom_bool", 3, 4), *block("en", "special_incomplete", 1, 4)]
    folder = write_run(tmp_path / "run", rows, model="org/Toy-7B")
    ended = here("export", folder, "--to", "lm-eval", "--output", tmp_path / "out")
    assert ended.code == 0, ended.stderr
    (made,) = (tmp_path / "out").iterdir()
    assert made.name == "org__Toy-7B"
    (path,) = made.glob("results_*.json")
    found = json.loads(path.read_text())
    official = found["results"]["acebench_official"]
    assert official["accuracy_pooled,none"] == 0.5
    assert official["normal_workbook_partial,none"] == 0.75
    assert 0 < official["accuracy_pooled_stderr,none"] < 0.3
    assert found["n-samples"]["acebench_official"] == {"original": 8, "effective": 8}
    assert found["higher_is_better"]["acebench_strict"]["accuracy_pooled"] is True
    (samples,) = made.glob("samples_acebench_official_*.jsonl")
    lines = [json.loads(line) for line in samples.read_text().splitlines()]
    assert [line["doc_id"] for line in lines] == list(range(8))
    assert [line["acc"] for line in lines] == [1.0, 1.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0]
    assert lines[3]["error_type"] == "value_error:string"


@pytest.mark.nightly
def test_the_samples_of_a_large_run_are_never_all_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_run(tmp_path / "run", block("en", "normal_atom_bool", 30, 200)[::-1])
    run, out = StoredRun(LocalStore(str(folder))), tmp_path / "out"
    _ = run.rows
    text, sample = "x" * 200_000, result_files._sample
    monkeypatch.setattr(
        result_files, "_sample", lambda *about: {**sample(*about), "more": f"{about[2]}{text}"}
    )
    monkeypatch.setattr("ace_ray.viewer.select.MOST_HELD", 1)  # rows come as they are stored
    tracemalloc.start()
    try:
        names = result_files.export_lm_eval(run, LocalStore(str(out)))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(names) == 3
    for name in names[1:]:
        assert (out / name).stat().st_size > 200 * len(text)
        with (out / name).open() as lines:
            numbers = [json.loads(line)["doc_id"] for line in lines]
            assert sorted(numbers) == list(range(200))
    assert most < 50 * len(text), "of 400 lines"


def test_the_hubs_file(here: Any, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", everything({"special_incomplete": 5}))
    asked = ("export", folder, "--to", "hf", "--output", tmp_path / "out")
    ended = here(*asked, "--dataset", "org/ACEBench")
    assert ended.code == 0, ended.stderr
    official, strict = yaml.safe_load((tmp_path / "out/.eval_results/acebench.yaml").read_text())
    assert official["dataset"] == {"id": "org/ACEBench", "task_id": "acebench_official"}
    assert strict["dataset"]["task_id"] == "acebench_strict"
    assert 90 < official["value"] < 100
    assert "Overall (workbook), official rules, 95 % interval" in official["notes"]
    assert "name the benchmark's" in here(*asked).stderr


def test_the_hubs_own_reader_takes_the_file(here: Any, tmp_path: Path) -> None:
    hub = pytest.importorskip("huggingface_hub", minversion="1.0")
    folder = write_run(tmp_path / "run", everything({"special_incomplete": 5}))
    asked = ("export", folder, "--to", "hf", "--output", tmp_path / "out")
    assert here(*asked, "--dataset", "org/ACEBench").code == 0
    tree = yaml.safe_load((tmp_path / "out/.eval_results/acebench.yaml").read_text())
    official, strict = hub.parse_eval_result_entries(tree)
    assert (official.dataset_id, official.task_id) == ("org/ACEBench", "acebench_official")
    assert (strict.task_id, strict.value) == ("acebench_strict", tree[1]["value"])
    assert hub.eval_result_entries_to_yaml([official, strict]) == tree


@pytest.mark.parametrize(
    ("rows", "changes", "words"),
    [
        (block("en", "normal_atom_bool", 3, 4), {}, "is partial: without en/"),
        (everything({}), {"limit": 5}, "the run is limited to 5 entries"),
        (
            everything({}),
            {"restricted": {"acebench": {"ids": ["x", "y"], "limit": 1}}},
            "the run is limited to 1 entries of 2 named ids",
        ),
    ],
)
def test_what_is_no_result_of_a_benchmark(
    here: Any, tmp_path: Path, rows: Any, changes: dict[str, Any], words: str
) -> None:
    folder = write_run(tmp_path / "run", rows, **changes)
    out = ("--output", tmp_path / "out")
    ended = here("export", folder, "--to", "hf", "--dataset", "o/d", *out)
    assert ended.code == 2
    assert words in ended.stderr
    assert "publish a complete run" in ended.stderr
    assert not (tmp_path / "out").exists()
    wrong = here("export", folder, "--to", "inspect", "--dataset", "o/d", *out)
    assert "--dataset: applies to --to hf only; leave it out" in wrong.stderr
