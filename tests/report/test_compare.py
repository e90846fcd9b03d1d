"""`ace-ray compare`: what it refuses, prints and writes."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from ace_ray.benchmarks.acebench.benchmark import ACEBench
from ace_ray.errors import UserError
from ace_ray.reports.compare import WARNING, compare
from ace_ray.reports.compared_runs import NotComparable
from ace_ray.reports.comparison import compare_runs
from ace_ray.reports.runs import Run, load_runs
from tests.report.builders import Row, block, everything, load_run, row, write_run
from tests.report.pages import Page, is_sound

ROWS = block("en", "special_incomplete", 10, 20)
WORSE = block("en", "special_incomplete", 0, 20)


def compared_in(*folders: Path) -> list[Run]:
    return load_runs([str(folder) for folder in folders])


def two(tmp_path: Path, first: list[Row], second: list[Row], **changed: Any) -> list[Run]:
    """Runs A and B, of which B is made with ``changed``."""
    return compared_in(
        write_run(tmp_path / "a", first, model="o/A"),
        write_run(tmp_path / "b", second, model="o/B", **changed),
    )


def rewrite(folder: Path, **changed: Any) -> None:
    """Keys of the manifest, replaced; None removes one."""
    manifest = json.loads((folder / "run.json").read_text()) | changed
    manifest = {key: value for key, value in manifest.items() if value is not None}
    (folder / "run.json").write_text(json.dumps(manifest))


def run_compare(folders: list[Path], **asked: Any) -> str:
    printed = StringIO()
    options: dict[str, Any] = {
        "rules": "both",
        "out": None,
        "baseline": None,
        "groups": (),
        "allow_different": False,
        "with_flips": False,
    }
    console = Console(file=printed, width=200)
    compare([str(folder) for folder in folders], **(options | asked), console=console)
    return printed.getvalue()


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"sampling": {"temperature": 0.5}}, "sampling.temperature is 0.0 in A; 0.5 in B"),
        ({"sampling": {"max_tokens": 7}}, "sampling.max_tokens is"),
        ({"samples": 2}, "samples is 1 in A; 2 in B"),
        ({"variant": "minimal"}, 'variant is "standard" in A; "minimal" in B'),
        ({"backend": "fake"}, 'backend is "vllm" in A; "fake" in B'),
        ({"limit": 5}, "limit is null in A; 5 in B"),
        ({"restricted": {"acebench": {"ids": ["x"]}}}, 'ids is null in A; ["x"] in B'),
        (
            {"extra_identity": {"roles": {"acebench": {"user": {"kind": "served", "model": "m"}}}}},
            'roles.user.model is not recorded in A; "m" in B',
        ),
    ],
)
def test_what_moves_scores_is_refused_line_by_line(
    tmp_path: Path, change: dict[str, Any], line: str
) -> None:
    runs = two(tmp_path, ROWS, WORSE, **change)
    with pytest.raises(NotComparable) as caught:
        compare_runs(runs)
    assert any(line in found for found in caught.value.lines), caught.value.lines
    assert all(found.startswith("not comparable: ") for found in caught.value.lines)
    assert "\n" not in str(caught.value)
    assert "--allow-different" in str(caught.value)
    allowed = compare_runs(runs, allow_different=True)
    assert allowed.differences == caught.value.lines
    assert len(allowed.results) == 2


def identity_of(folder: Path, **changed: Any) -> dict[str, Any]:
    identity: dict[str, Any] = json.loads((folder / "run.json").read_text())["identity"]
    identity["benchmarks"]["acebench"] |= changed
    return identity


@pytest.mark.parametrize(
    ("key", "value"), [("data_sha256", "f" * 64), ("prompts_sha256", "e" * 64), ("mode", "native")]
)
def test_other_data_prompts_and_modes_are_refused(tmp_path: Path, key: str, value: str) -> None:
    two(tmp_path, ROWS, WORSE)
    rewrite(tmp_path / "b", identity=identity_of(tmp_path / "b", **{key: value}))
    with pytest.raises(NotComparable) as caught:
        compare_runs(compared_in(tmp_path / "a", tmp_path / "b"))
    (line,) = caught.value.lines
    assert f"{key} is " in line


@pytest.mark.nightly
def test_verdicts_of_two_versions_are_refused_until_one_judges_both(tmp_path: Path) -> None:
    two(tmp_path, ROWS, WORSE)
    rewrite(tmp_path / "b", ace_ray_version="0.0.1")
    with pytest.raises(NotComparable) as caught:
        compare_runs(compared_in(tmp_path / "a", tmp_path / "b"))
    (line,) = caught.value.lines
    assert 'rules is "ace_ray' in line
    assert '"ace_ray 0.0.1" in B' in line
    version = load_run(str(tmp_path / "a")).judged_by
    rescored = {"rescored": {"ace_ray_version": version}, "benchmarks": {}}
    (tmp_path / "b" / "summary.json").write_text(json.dumps(rescored))
    assert compare_runs(compared_in(tmp_path / "a", tmp_path / "b")).differences == []


@pytest.mark.nightly
def test_other_declared_entries_are_refused_and_missing_rows_are_not(tmp_path: Path) -> None:
    runs = two(tmp_path, ROWS, WORSE[:15], missing=5)
    comparison = compare_runs(runs)
    (line,) = [x for x in comparison.results if x.hypothesis.rules == "strict"]
    assert (line.difference.n, line.difference.left_out) == (15, 5)
    assert any("5 of 20 rows are left out of B against A" in note for note in comparison.notes)
    rewrite(tmp_path / "b", entries={"acebench": "f" * 64})
    with pytest.raises(NotComparable) as caught:
        compare_runs(compared_in(tmp_path / "a", tmp_path / "b"))
    assert "entries is " in caught.value.lines[0]


def test_without_declared_entries_the_stored_ones_count(tmp_path: Path) -> None:
    two(tmp_path, ROWS, WORSE[:15])
    for name in ("a", "b"):
        rewrite(tmp_path / name, entries=None)
    with pytest.raises(NotComparable, match="entries is"):
        compare_runs(compared_in(tmp_path / "a", tmp_path / "b"))


@pytest.mark.nightly
def test_unscored_rows_are_left_out_and_counted(tmp_path: Path) -> None:
    failed = [row("en", "special_incomplete", i, status="infra_error") for i in range(3)]
    comparison = compare_runs(two(tmp_path, ROWS, [*failed, *WORSE[3:]]))
    assert {line.difference.n for line in comparison.results} == {17}
    (note,) = [note for note in comparison.notes if "left out" in note]
    assert note.startswith("acebench: 3 of 20 rows are left out of B against A")
    assert note.endswith("3 in B, 0 in A")


@pytest.mark.nightly
def test_the_seed_is_chance_and_said(tmp_path: Path) -> None:
    comparison = compare_runs(two(tmp_path, ROWS, WORSE, sampling={"seed": 7}))
    assert comparison.differences == []
    assert "different random seeds: sampling.seed is 0 in A; 7 in B" in comparison.cautions


@pytest.mark.nightly
def test_what_the_engines_said_of_themselves_is_said_and_not_refused(tmp_path: Path) -> None:
    two(tmp_path, ROWS, WORSE)
    one = {"versions": {"vllm": "0.32.0", "ray": "2"}, "device": "H200", "batch_invariant": False}
    for name, engines in {"a": [one], "b": [one, one | {"device": "H100"}]}.items():
        (tmp_path / name / "summary.json").write_text(
            json.dumps({"benchmarks": {}, "timing": {"engines": engines}})
        )
    assert compare_runs(compared_in(tmp_path / "a", tmp_path / "b")).cautions == [
        'different engine or hardware: device is "H200" in A; "H100" and "H200" in B'
    ]


@pytest.mark.nightly
def test_models_that_play_the_user_themselves_are_said(tmp_path: Path) -> None:
    def extra(name: str) -> dict[str, Any]:
        part = {"kind": "same", "model": name, "revision": name}
        return {"roles": {"acebench": {"user": part}}, "model": name}

    first = write_run(tmp_path / "a", ROWS, model="o/A", extra_identity=extra("A"))
    second = write_run(tmp_path / "b", WORSE, model="o/B", extra_identity=extra("B"))
    (line,) = compare_runs(compared_in(first, second)).cautions
    assert line == "not comparable in episodes: the model itself plays the user in A, B"


@pytest.mark.nightly
def test_repeats_count_in_no_accuracy_and_give_the_noise(tmp_path: Path) -> None:
    again = [
        {**item, "repeat": 1, "row_id": item["row_id"][::-1]}
        for item in block("en", "special_incomplete", 5, 20)
    ]
    comparison = compare_runs(two(tmp_path, [*ROWS, *again], WORSE))
    (line,) = [x for x in comparison.results if x.hypothesis.rules == "strict"]
    assert (line.difference.n, line.difference.base) == (20, 0.5)
    assert line.noise is not None
    assert (line.noise.flips, line.noise.n) == (5, 20)
    assert (
        "A: 5 of 20 entries or dialogues of acebench that were generated twice changed their "
        "verdict (strict rules)" in comparison.notes
    )


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("first", "second", "floor"),
    [
        ({}, {}, True),
        ({"seed": 1}, {"seed": 2}, True),
        ({"temperature": 0.7, "seed": 1}, {"temperature": 0.7, "seed": 1}, True),
        ({"temperature": 0.7, "seed": 1}, {"temperature": 0.7, "seed": 2}, False),
    ],
)
def test_repeats_tell_nothing_of_runs_with_other_seeds(
    tmp_path: Path, first: dict[str, Any], second: dict[str, Any], floor: bool
) -> None:
    """They are drawn with their run's own seed, and say nearly the same."""
    again = [{**item, "repeat": 1, "row_id": item["row_id"][::-1]} for item in ROWS]
    runs = compared_in(
        write_run(tmp_path / "a", [*ROWS, *again], model="o/A", sampling=first),
        write_run(tmp_path / "b", WORSE, model="o/B", sampling=second),
    )
    comparison = compare_runs(runs, rule_sets=["strict"])
    assert {line.noise is not None for line in comparison.results} == {floor}
    assert (
        any("so their repeated rows give no noise floor" in x for x in comparison.notes)
        is not floor
    )


@pytest.mark.nightly
@pytest.mark.parametrize("baseline", [None, "A", "C"])
def test_all_are_compared_with_the_baseline(tmp_path: Path, baseline: str | None) -> None:
    runs = compared_in(*(write_run(tmp_path / n, ROWS, model=f"o/{n}") for n in "ABC"))
    comparison = compare_runs(runs, baseline=baseline, rule_sets=["strict"])
    base = baseline or "A"
    assert comparison.pairs == [(base, label) for label in "ABC" if label != base]
    assert [(x.hypothesis.base, x.hypothesis.other) for x in comparison.results] == comparison.pairs


def test_nothing_to_compare(tmp_path: Path) -> None:
    runs = two(tmp_path, ROWS, WORSE)
    with pytest.raises(UserError, match="fewer than two runs are named"):
        compare_runs(runs[:1])
    with pytest.raises(UserError, match="fewer than two runs are named"):
        compare_runs([])
    with pytest.raises(UserError, match=r"two runs are named 'A'"):
        compare_runs([runs[0], replace(runs[1], label="A")])
    with pytest.raises(UserError, match=r"--baseline: 'x' is not among the runs"):
        compare_runs(runs, baseline="x")
    with pytest.raises(UserError, match=r"--group: 'Speical' is not a known group; one of "):
        compare_runs(runs, groups=["Speical"])


@pytest.mark.nightly
def test_runs_of_other_benchmarks(tmp_path: Path) -> None:
    toy = write_run(tmp_path / "toy", [{**item, "benchmark": "toy"} for item in ROWS], model="o/T")
    text = (toy / "run.json").read_text().replace('"acebench"', '"toy"')
    (toy / "run.json").write_text(text)
    first = write_run(tmp_path / "a", ROWS, model="o/A")
    second = write_run(tmp_path / "b", WORSE, model="o/B")
    with pytest.raises(UserError, match=r"no two compared runs share a benchmark, e\.g\. A and T"):
        compare_runs(compared_in(first, toy))
    comparison = compare_runs(compared_in(first, toy, second), rule_sets=["strict"])
    assert [x.hypothesis.other for x in comparison.results] == ["B"]


@pytest.mark.nightly
def test_chosen_groups_make_a_small_family(tmp_path: Path) -> None:
    rows = everything({"special_incomplete": 4})
    runs = two(tmp_path, everything({}), rows)
    whole, chosen = compare_runs(runs), compare_runs(runs, groups=["Special", "All"])
    assert {x.hypothesis.group.name for x in chosen.results} == {"Special", "All"}
    assert [x.family for x in chosen.results] == [6] * 12
    assert min(x.holm for x in chosen.results) < min(x.holm for x in whole.results)


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("sweep")
    return [
        write_run(
            folder / f"s{step}",
            everything({"special_incomplete": right, "normal_preference": right}),
            model=f"train/step_{step}",
        )
        for step, right in ((1000, 1), (2000, 5), (3000, 9))
    ]


def test_the_command_prints_tables_words_and_notes(sweep: list[Path]) -> None:
    text = run_compare(sweep, with_flips=True)
    assert "acebench, official rules: step_2000 against step_1000 (points of 100)" in text
    assert "acebench, strict rules: step_3000 against step_2000 (points of 100)" in text
    assert "strict: step_3000 is better than step_2000 on All: +4.7 points, 95 % CI " in text
    assert "adjusted over the 180 lines of this rule set" in text
    assert not re.search(r"\b16 of \d+ rows judged", text)
    assert "turned from right to wrong, 16 from wrong to right" in text
    assert WARNING not in text
    text = run_compare(sweep, baseline="step_1000")
    assert "strict: step_3000 is better than step_1000 on Special: +26.7 points, 95 % CI " in text
    assert "adjusted over the 180 lines of this rule set" in text


@pytest.mark.nightly
def test_a_forced_comparison_is_loud(tmp_path: Path) -> None:
    two(tmp_path, ROWS, WORSE, sampling={"temperature": 0.5})
    text = run_compare(
        [tmp_path / "a", tmp_path / "b"], allow_different=True, out=str(tmp_path / "out")
    )
    assert text.startswith(f"WARNING: {WARNING}:")
    assert "(listed above)" in text
    assert "  not comparable: sampling.temperature is 0.0 in A; 0.5 in B" in text
    page = (tmp_path / "out" / "report.html").read_text()
    assert f"WARNING: {WARNING}" in page
    assert "sampling.temperature is 0.0 in A; 0.5 in B" in page


@pytest.mark.nightly
def test_the_files(sweep: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "out"
    asked = {"out": str(out), "with_flips": True, "rules": "strict"}
    run_compare(sweep, **asked)
    assert sorted(path.name for path in out.iterdir()) == [
        "comparison.csv",
        *(f"flips-{n}-acebench-strict.csv" for n in (1, 2)),
        "report.html",
        "report.json",
    ]
    lines = list(csv.DictReader((out / "comparison.csv").open()))
    assert len(lines) == 180
    assert {line["family"] for line in lines} == {"180"}
    content = (out / "report.html").read_bytes()
    is_sound(Page(content))
    assert "step_3000 is better than step_2000 on All" in content.decode()
    assert "wrong to right" in content.decode()
    # A comparison replaces the files of the one before it.
    run_compare(sweep[:2], out=str(out), rules="official")
    assert not any("strict" in path.name for path in out.iterdir())


@pytest.mark.nightly
def test_the_command_refuses_with_the_list_and_code_2(cli: Any, tmp_path: Path) -> None:
    two(tmp_path, ROWS, WORSE, sampling={"temperature": 0.5, "max_tokens": 9})
    ended = cli("compare", tmp_path / "a", tmp_path / "b", "--out", tmp_path / "out")
    assert ended.code == 2
    *listed, last = ended.stderr.strip().splitlines()
    assert len(listed) == 2
    assert sum("sampling.temperature is 0.0 in A; 0.5 in B" in line for line in listed) == 1
    assert last.startswith(
        "ace-ray: the runs differ in conditions that affect scores (2 differences"
    )
    assert ended.stdout == ""
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--baseline", "nobody"], "--baseline: 'nobody' is not among the runs"),
        (["--out", "gs://b/x"], "gs://b/x: 'gs' is not a supported store"),
        (["--group", "x"], "--group: 'x' is not a known group"),
    ],
)
def test_mistakes_are_one_line(tmp_path: Path, words: list[str], said: str, here: Any) -> None:
    two(tmp_path, ROWS, WORSE)
    ended = here("compare", tmp_path / "a", tmp_path / "b", *words)
    assert (ended.code, len(ended.stderr.strip().splitlines())) == (2, 1)
    assert said in ended.stderr


def test_runs_without_a_common_verdict(tmp_path: Path) -> None:
    failed = [{**item} for item in block("en", "special_incomplete", 0, 20, status="infra_error")]
    out = tmp_path / "out"
    two(tmp_path, ROWS, failed)
    text = run_compare([tmp_path / "a", tmp_path / "b"], out=str(out), with_flips=True)
    assert "no difference shown in 0 of 0 lines" in text
    assert "20 of 20 rows are left out" in text
    assert (out / "comparison.csv").read_text().strip() == ""


@pytest.mark.nightly
def test_shares_are_those_of_the_report(sweep: list[Path]) -> None:
    """A category's share in the comparison is its accuracy in the summary."""
    runs = compared_in(*sweep[:2])
    comparison = compare_runs(runs, rule_sets=["strict"])
    summary = runs[1].reported("acebench", ACEBench.statistics).summary
    names = {"normal_similar_api": "Similar API", "normal_preference": "Preference"}
    for metric, key in (("accuracy", "accuracy"), ("process", "process_accuracy")):
        found = {
            x.hypothesis.group.name: x.difference.other
            for x in comparison.results
            if (x.hypothesis.metric, x.hypothesis.group.language) == (metric, "en")
        }
        for category, stats in summary["languages"]["en"]["categories"].items():
            name = names.get(category, category)
            if key in stats["strict"]:
                assert found[name] == pytest.approx(stats["strict"][key])
            else:
                assert name not in found
