"""Runs read back, their labels and conditions, and `ace-ray compare`."""

import csv
import json
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

import ace_ray
from ace_ray.benchmarks.acebench.benchmark import ACEBench
from ace_ray.benchmarks.comparability import comparable_sets, differences
from ace_ray.errors import UserError
from ace_ray.reports.compare import compare
from ace_ray.reports.compared_runs import NotComparable, make_pairs
from ace_ray.reports.comparison import WARNING, Comparison, compare_runs
from ace_ray.reports.report_data import comparison_table
from ace_ray.reports.runs import group_runs
from tests.report.builders import Row, block, everything, is_sound, loaded, row, write_run
from tests.report.builders import change_manifest as rewrite

FEW = block("en", "special_incomplete", 2, 4)


def reported(*folders: Path) -> list[Any]:
    return [run.summary_of("acebench", ACEBench.statistics) for run in loaded(*folders)]


def scores(*folders: Path) -> Any:
    """Return the table of scores under the official rules."""
    (holders,) = group_runs(loaded(*folders))
    return comparison_table(holders, "official")


def test_folders_that_are_not_runs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"{tmp_path}.*is not a run: run.json is missing"):
        loaded(tmp_path)
    for manifest, words in (("[1]", "is not a JSON object"), ('{"schema_version": 1}', "'run_id'")):
        (tmp_path / "run.json").write_text(manifest)
        with pytest.raises(UserError, match=words):
            loaded(tmp_path)
    with pytest.raises(UserError, match="has no rows"):
        loaded(write_run(tmp_path / "empty", []))
    folder = write_run(tmp_path / "run", FEW)
    with pytest.raises(UserError, match="named twice"):
        loaded(folder, f"{folder}/")


def test_runs_that_differ_in_the_candidate_compare(tmp_path: Path) -> None:
    extra = {"engine": {"dtype": "auto"}, "chat_template_kwargs": {"enable_thinking": True}}
    models = {"a": "o/A", "b": "org/B", "c": "org/B"}
    folders = [
        write_run(tmp_path / name, FEW, model=model, extra_identity=extra if name != "c" else {})
        for name, model in models.items()
    ]
    assert list(differences(reported(*folders[:2]))) == []
    warm = write_run(tmp_path / "warm", FEW, sampling={"temperature": 1.0})
    runs = reported(*folders[1:])
    assert comparable_sets(runs) == [1, 1]
    assert comparable_sets(reported(warm, *folders)) == [1, 2, 2, 2]
    line = "chat_template_kwargs.enable_thinking is true in B (b); not recorded in B (c)"
    assert f"not the same candidate: {line}" in list(differences(runs))


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
    assert fake == "backend fake; a test of the pipeline, not an evaluation"
    assert limited == "limited to 5 entries: a sample of the benchmark, not its score"
    assert comparable == "with nothing at all"


def test_adapters_are_candidates_of_their_own(tmp_path: Path) -> None:
    folders = [
        write_run(tmp_path / f"r{step}", FEW, adapter=f"/loras/run-7/checkpoint-{step}")
        for step in (10, 20)
    ]
    base = write_run(tmp_path / "base", FEW)
    runs = loaded(*folders, base)
    assert [(run.label, run.step, run.training) for run in runs] == [
        ("Toy-7B-Instruct+checkpoint-10", 10, "run-7"),
        ("Toy-7B-Instruct+checkpoint-20", 20, "run-7"),
        ("Toy-7B-Instruct", None, ""),
    ]
    assert list(differences(reported(*folders, base))) == []


ROWS = block("en", "special_incomplete", 10, 20)
WORSE = block("en", "special_incomplete", 0, 20)


def two(folder: Path, first: list[Row], second: list[Row], **changed: Any) -> list[Path]:
    """Write runs A and B. B is made with ``changed``."""
    path = write_run(folder / "a", first, model="o/A")
    return [path, write_run(folder / "b", second, model="o/B", **changed)]


def compared(folders: list[Path], **options: Any) -> Comparison:
    return compare_runs(loaded(*folders), **options)


def refusal(folders: list[Path]) -> list[str]:
    with pytest.raises(NotComparable) as caught:
        compared(folders)
    assert "--allow-different" in str(caught.value)
    assert all(line.startswith("not comparable: ") for line in caught.value.lines)
    return caught.value.lines


def run_compare(folders: list[Path], **changes: Any) -> str:
    printed = StringIO()
    options: dict[str, Any] = {"rules": "both", "out": None, "reference": None, "groups": ()}
    options |= {"allow_different": False, "with_flips": False, **changes}
    compare([str(f) for f in folders], **options, console=Console(file=printed, width=200))
    return printed.getvalue()


USER = {"roles": {"acebench": {"user": {"kind": "served", "model": "m"}}}}


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"sampling": {"temperature": 0.5}}, "sampling.temperature is 0.0 in A; 0.5 in B"),
        ({"samples": 2}, "samples is 1 in A; 2 in B"),
        ({"variant": "minimal"}, 'variant is "standard" in A; "minimal" in B'),
        ({"extra_identity": {"new": {"deep": 1}}}, "new.deep is not recorded in A; 1 in B"),
        ({"restricted": {"acebench": {"ids": ["x"]}}}, 'ids is null in A; ["x"] in B'),
        ({"extra_identity": USER}, 'roles.user.model is not recorded in A; "m" in B'),
    ],
)
def test_different_conditions_are_refused(tmp_path, change, line) -> None:
    folders = two(tmp_path, ROWS, WORSE, **change)
    lines = refusal(folders)
    assert any(line in text for text in lines), lines
    allowed = compared(folders, allow_different=True)
    assert (allowed.differences, len(allowed.results)) == (lines, 2)


def test_missing_rows_are_left_out_and_other_entries_refused(tmp_path: Path) -> None:
    failed = [row("en", "special_incomplete", i, status="infra_error") for i in range(3)]
    folders = two(tmp_path, ROWS, [*failed, *WORSE[3:15]], missing=5)
    comparison = compared(folders, rule_sets=["strict"])
    (line,) = comparison.results
    assert (line.difference.n, line.difference.left_out) == (12, 8)
    assert scores(folders[1]).lines[0][1] == "12/20"
    (note,) = [note for note in comparison.notes if "left out" in note]
    assert note.startswith("acebench: 8 of 20 rows are left out of B against A")
    assert note.endswith("8 in B, 0 in A")
    rewrite(folders[1], entries={"acebench": "f" * 64}, ace_ray_version="0.0.1")
    entries, rules = refusal(folders)
    assert "entries is " in entries
    assert '"ace_ray 0.0.1" in B' in rules, "verdicts of two versions"


def test_seeds_engines_and_self_played_users_are_cautions(tmp_path: Path) -> None:
    def extra(name: str) -> dict[str, Any]:
        part = {"kind": "same", "model": name, "revision": name}
        return {"roles": {"acebench": {"user": part}}, "model": name}

    write_run(tmp_path / "a", ROWS, model="o/A", extra_identity=extra("A"))
    more: dict[str, Any] = {"extra_identity": extra("B"), "sampling": {"seed": 7}}
    write_run(tmp_path / "b", WORSE, model="o/B", **more)
    engine = {"versions": {"vllm": "0.3", "ray": "2"}, "device": "H200", "batch_invariant": False}
    for name, engines in {"a": [engine], "b": [engine, engine | {"device": "H100"}]}.items():
        summary = {"benchmarks": {}, "timing": {"engines": engines}}
        (tmp_path / name / "summary.json").write_text(json.dumps(summary))
    comparison = compared([tmp_path / "a", tmp_path / "b"])
    assert comparison.differences == []
    assert comparison.cautions == [
        "not comparable in episodes: the model itself plays the user in A, B",
        "different random seeds: sampling.seed is 0 in A; 7 in B",
        'different engine or hardware: device is "H200" in A; "H100" and "H200" in B',
    ]


@pytest.mark.parametrize(
    ("temperature", "seed", "floor"), [(0.7, 1, True), (0.7, 2, False), (0.0, 2, True)]
)
def test_repeats_give_the_noise_of_runs_with_one_seed(tmp_path, temperature, seed, floor) -> None:
    again = block("en", "special_incomplete", 5, 20)
    again = [item | {"repeat": 1, "row_id": item["row_id"][::-1]} for item in again]
    drawn = {"temperature": temperature, "seed": 1}
    first = write_run(tmp_path / "a", [*ROWS, *again], model="o/A", sampling=drawn)
    second = write_run(tmp_path / "b", WORSE, model="o/B", sampling=drawn | {"seed": seed})
    comparison = compared([first, second], rule_sets=["strict"])
    (line,) = comparison.results
    assert (line.difference.n, line.difference.base_mean) == (20, 0.5), "repeats do not count"
    assert scores(first).lines[0][1] == "20/20"
    noise = line.noise
    assert (noise and (noise.flips, noise.n)) == ((5, 20) if floor else None)
    notes = "\n".join([*comparison.noise, *comparison.notes])
    assert "it keeps 50.0 % [18.7, 81.3] of its own right answers" in notes
    assert "A: 5 of 20 entries or dialogues of acebench that were generated twice changed" in notes
    assert ("repeated rows give no noise floor" in notes) is not floor


@pytest.mark.parametrize(
    ("names", "pairs"),
    [
        ("A B C", "A-B A-C"),
        ("t/10 t/2 t/9", "t/9-t/10 t/2-t/9"),  # as a shell lists them
        ("t/1 t/2 u/1 u/2", "t/1-t/2 u/1-u/2 t/2-u/2"),
    ],
)
def test_checkpoints_are_compared_with_the_step_before(names: str, pairs: str) -> None:
    runs: list[Any] = []
    for name in names.split():
        series, _, step = name.rpartition("/")
        number = int(step) if series else None
        runs.append(SimpleNamespace(label=name, step=number, training=series))
    index_pairs = make_pairs(runs, None)
    assert [f"{base}-{second}" for base, second in index_pairs] == pairs.split()


def test_pairs_are_compared_on_the_benchmarks_that_both_hold(tmp_path: Path) -> None:
    folders = two(tmp_path, ROWS, WORSE)
    for name in ("step_1", "step_2"):
        folders.append(write_run(tmp_path / name, ROWS, model=f"t/{name}", benchmark="toy"))
    comparison = compared(folders, rule_sets=["strict"])
    assert {line.hypothesis.table_key for line in comparison.results} == {
        ("strict", "A", "B", "acebench"),
        ("strict", "step_1", "step_2", "toy"),
    }
    assert "A has no rows of toy and is not compared on it" in comparison.notes
    with pytest.raises(UserError, match=r"no two compared runs share a benchmark, e\.g\. A and st"):
        compared(folders[::2])
    with pytest.raises(UserError, match="fewer than two runs are named"):
        compared(folders[:1])


def test_the_command_prints_and_writes_a_comparison(tmp_path: Path) -> None:
    sweep = []
    for step, right in ((1000, 1), (2000, 5), (3000, 9)):
        rows = everything({"special_incomplete": right, "normal_preference": right})
        sweep.append(write_run(tmp_path / f"s{step}", rows, model=f"train/step_{step}"))
    out = tmp_path / "out"
    text = run_compare(sweep, with_flips=True, full=True, out=str(out))
    assert "official and strict rules: step_3000 against step_2000 (points of 100)" in text
    better = "step_3000 is better than step_2000 on All: +4.7 points, 95 % CI "
    assert f"official, strict: {better}" in text
    assert "adjusted over the 180 lines of this rule set" in text
    assert WARNING not in text
    flips = [f"flips-{n}-acebench-{'official' if n < 3 else 'strict'}.csv" for n in (1, 2, 3, 4)]
    files = ["comparison.csv", *flips, "report.html", "report.json"]
    assert sorted(path.name for path in out.iterdir()) == files
    lines = list(csv.DictReader((out / "comparison.csv").open()))
    assert (len(lines), {line["family"] for line in lines}) == (360, {"180"})
    content = (out / "report.html").read_bytes()
    is_sound(content)
    assert better in content.decode()
    assert "wrong to right" in content.decode()
    # A comparison replaces the files of the one before it.
    chosen = {"rules": "official", "groups": ["Special", "All"], "reference": str(sweep[1])}
    text = run_compare(sweep[:2], out=str(out), full=True, **chosen)
    assert "official: step_1000 is worse than step_2000 on All: " in text
    assert "adjusted over the 6 lines of this rule set" in text
    assert not any("strict" in path.name for path in out.iterdir())


def test_runs_are_compared_across_sampling_when_told(tmp_path: Path, invoke: Any) -> None:
    folders = two(tmp_path, ROWS, WORSE, sampling={"max_tokens": 9, "seed": 3})
    out = tmp_path / "out"
    line = "the runs differ in sampling: max_tokens is 1200 in A; 9 in B | seed is 0 in A; 3 in B"
    assert "--across sampling" in invoke("compare", *folders).stderr
    result = invoke("compare", *folders, "--across", "sampling", "--out", out)
    assert (result.code, result.stdout.splitlines()[0]) == (0, line)
    assert "[1]" not in result.stdout, "one set of comparable runs"
    assert line in (out / "report.html").read_text()
    assert {row["across"] for row in csv.DictReader((out / "comparison.csv").open())} == {line}
    more_samples = write_run(tmp_path / "c", WORSE, model="o/C", samples=2)
    with pytest.raises(NotComparable, match="samples is 1 in A; 2 in C"):
        run_compare([folders[0], more_samples], across=("sampling",))


def test_in_python_a_comparison_is_quiet_and_a_data_frame(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("pandas")
    comparison = ace_ray.compare([*map(str, two(tmp_path, ROWS, WORSE))], rules="strict")
    assert (capsys.readouterr().out, repr(comparison)) == ("", "<Comparison of A, B: 1 lines>")
    frame = comparison.dataframe()
    assert (frame["difference"].tolist(), frame["lost"].tolist()) == ([-0.5], [10])
    assert comparison.dataframe(kept=True)["kept"].tolist() == [0.0]


def test_runs_keep_the_labels_of_their_sweep(tmp_path: Path) -> None:
    folders = two(tmp_path, ROWS, WORSE)
    for folder, label in zip(folders, ("int4", "fp8"), strict=True):
        rewrite(folder, label=label)
    assert "int4 against fp8" in run_compare(folders, reference="fp8")
    rewrite(folders[0], label="fp8")
    assert [run.label for run in loaded(*folders)] == ["fp8 (a)", "fp8 (b)"]


def test_a_forced_comparison_warns(tmp_path: Path, invoke: Any) -> None:
    folders = two(tmp_path, ROWS, WORSE, sampling={"temperature": 0.5, "max_tokens": 9})
    out = tmp_path / "out"
    result = invoke("compare", *folders, "--out", out)
    assert (result.code, result.stdout, out.exists()) == (2, "", False)
    listed, last = result.stderr.strip().splitlines()
    assert "sampling.max_tokens is " in listed, "each difference is printed once"
    assert "affect scores: not comparable: sampling.temperature is 0.0 in A; 0.5 in B (and" in last
    text = run_compare(folders, allow_different=True, out=str(out))
    assert text.startswith(f"WARNING: {WARNING}:")
    assert text.count("WARNING") == 1
    for output in (text, (out / "report.html").read_text()):
        assert "not comparable: sampling.temperature is 0.0 in A; 0.5 in B" in output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--reference", "nobody"], "--reference: 'nobody' is not among the runs"),
        (["--across", "engine"], "--across: 'engine' is unknown; write sampling"),
        (["--group", "x"], "--group: 'x' is not a known group; one of "),
    ],
)
def test_mistakes_are_one_line(tmp_path: Path, words: list[str], message: str, invoke: Any) -> None:
    invoke("compare", *two(tmp_path, ROWS, WORSE), *words).refused(message)
