"""``report.html`` of runs: what it says of them, complete or not, and where it lies."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from tests.report.pages import Page, is_sound, report_page

from ace_ray.config.schema import RunConfig
from ace_ray.errors import UserError
from ace_ray.reports.folder import claim_within
from ace_ray.storage.object_store import LocalStore, open_store
from tests.report.builders import block, everything, row, write_run

ROWS = everything({"special_incomplete": 4, "normal_preference": 7}, of=10)


def section(page: str, anchor: str) -> str:
    """The markup of one section."""
    return page.split(f'<section id="{anchor}">')[1].split("</section>")[0]


def anchors(content: bytes) -> list[str]:
    return [part.split('"')[0] for part in content.decode().split('<section id="')[1:]]


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("runs") / "run", ROWS)


@pytest.fixture(scope="module")
def content(run: Path, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return report_page(run, out=tmp_path_factory.mktemp("reports") / "one")


@pytest.mark.nightly
def test_a_single_run_s_page(content: bytes) -> None:
    is_sound(Page(content))
    assert anchors(content) == [
        *("results", "paper", "categories", "errors", "answers", "provenance")
    ]
    text = content.decode()
    results = section(text, "results")
    assert results.count("340/340") == 2
    assert "acebench, official rules (%)" in results
    assert "acebench, strict rules (%)" in results
    assert "<h3>Table 2: accuracy by kind of data, English and Chinese combined" in text
    assert section(text, "paper").count("<h3>Table 2: ") == 2, "one for each rule set"


def test_categories_have_intervals_and_n_under_both_rule_sets(tmp_path: Path) -> None:
    rows = [row("en", "special_incomplete", i, official=i < 5, strict=i < 2) for i in range(10)]
    text = report_page(write_run(tmp_path / "run", rows), out=tmp_path / "out").decode()
    (line,) = [p for p in section(text, "categories").split("<tr>") if "incomplete" in p]
    # Wilson intervals of 5 and 2 of 10.
    for part in ("10/10", "50.0", "[23.7, 76.3]", "20.0", "[5.7, 51.0]"):
        assert part in line, part


@pytest.mark.nightly
def test_the_rule_set_that_is_asked_for_comes_first(run: Path, tmp_path: Path) -> None:
    text = report_page(run, out=tmp_path / "out", rules="strict").decode()
    results = section(text, "results")
    assert results.index("strict rules (%)") < results.index("official rules (%)")


def test_an_incomplete_run_has_no_headline_number(tmp_path: Path) -> None:
    rows = [*ROWS[:-1], {**ROWS[-1], "status": "infra_error"}]
    for column in ("official", "strict"):
        rows[-1] |= {
            f"{column}_valid": None,
            f"{column}_error_type": None,
            f"{column}_metrics": None,
        }
    folder = write_run(tmp_path / "run", rows, missing=3, finished=False)
    text = report_page(folder, out=tmp_path / "out").decode()
    results = section(text, "results")
    assert "Toy-7B-Instruct: no headline number, 4 of 343 rows have no verdict" in results
    assert 'class="share"' not in results
    assert "339/343" in results
    assert "Toy-7B-Instruct*" in results
    allowed = write_run(tmp_path / "allowed", rows, missing=3, finished=False, max_unscored=0.1)
    results = section(report_page(allowed, out=tmp_path / "out2").decode(), "results")
    assert "no headline number" not in results
    assert 'class="share"' in results


@pytest.mark.nightly
def test_a_run_in_which_nothing_is_wrong(tmp_path: Path) -> None:
    text = report_page(write_run(tmp_path / "run", everything({})), out=tmp_path / "out").decode()
    is_sound(Page(text.encode()))
    assert "No scored answer is wrong under any rule set." in section(text, "answers")
    assert "data-filters" not in section(text, "answers")
    assert "There are no invalid rows." in section(text, "errors")


def test_a_benchmark_that_says_nothing_of_reports(tmp_path: Path) -> None:
    rows = [{**r, "benchmark": "toy"} for r in block("en", "special_incomplete", 3, 4)]
    folder = write_run(tmp_path / "run", rows)
    (folder / "run.json").write_text(
        (folder / "run.json").read_text().replace('"acebench"', '"toy"')
    )
    text = report_page(folder, out=tmp_path / "out").decode()
    assert "Accuracy" in section(text, "results")
    assert "paper" not in anchors(text.encode())


@pytest.mark.nightly
def test_several_runs_are_compared_and_their_flips_shown(tmp_path: Path) -> None:
    better = everything({"special_incomplete": 10, "normal_preference": 10}, of=10)
    folders = [
        write_run(tmp_path / name, rows, model=f"o/{name}-{size}B")
        for name, rows, size in (("A", ROWS, 1), ("B", better, 3), ("C", better, 7))
    ]
    text = report_page(*folders, out=tmp_path / "out").decode()
    is_sound(Page(text.encode()))
    assert anchors(text.encode()) == [
        *("picture", "results", "paper", "categories", "errors", "curves", "comparison"),
        *("flips", "answers", "provenance"),
    ]
    assert "Every run against A-1B, entry by entry" in text
    assert "C-7B is better than A-1B on Special" in section(text, "comparison")
    assert "wrong to right" in section(text, "flips")
    names = set(files(tmp_path / "out"))
    assert {"comparison.csv", "flips-1-acebench-official.csv"} <= names
    with (tmp_path / "out" / "categories-acebench.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert {line["Model"] for line in lines} == {"A-1B", "B-3B", "C-7B"}
    (line,) = [
        line
        for line in lines
        if (line["Model"], line["Language"], line["Category"])
        == ("A-1B", "en", "special_incomplete")
    ]
    assert (line["official"], line["official n"]) == ("40.0000", "10")


@pytest.mark.nightly
def test_runs_that_do_not_compare_are_not_compared(tmp_path: Path) -> None:
    folders = [
        write_run(tmp_path / "A", ROWS, model="o/A"),
        write_run(tmp_path / "B", ROWS, model="o/B", sampling={"temperature": 1.0}),
    ]
    text = report_page(*folders, out=tmp_path / "out").decode()
    found = section(text, "comparison")
    assert "These runs are not compared with each other" in found
    assert "sampling.temperature is" in found
    assert "flips" not in anchors(text.encode())


def test_provenance_has_all_that_moves_a_score(run: Path, content: bytes) -> None:
    found = Page(section(content.decode(), "provenance").encode()).text
    manifest = json.loads((run / "run.json").read_text())
    assert manifest["identity"]["benchmarks"]["acebench"]["data_sha256"] in found
    assert manifest["identity"]["model"] in found
    assert "identity.benchmarks.acebench.prompts_sha256" in found
    assert str(run) in found


@pytest.mark.nightly
def test_a_long_manifest_is_cut_and_says_so(tmp_path: Path) -> None:
    extra = {"replies": {f"key {i}": "v" * 1000 for i in range(1000)}}
    folder = write_run(tmp_path / "run", ROWS[:20], extra_identity=extra)
    content = report_page(folder, out=tmp_path / "out")
    found = section(content.decode(), "provenance")
    assert "702 more characters" in found
    assert "more lines are in run.json" in found
    assert len(content) < 1_000_000


@pytest.mark.nightly
def test_a_report_goes_into_its_run_and_touches_nothing_else(here: Any, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", ROWS)
    before = files(folder)
    ended = here("report", folder)
    assert ended.code == 0, ended.stderr
    assert ended.stdout.splitlines()[-1] == f"report: {folder}/report/report.html"
    after = files(folder)
    assert {name: after[name] for name in before} == before
    own = {name for name in after if name not in before}
    assert all(name.startswith("report/") for name in own)
    assert {"report/report.html", "report/comparison-acebench.csv"} <= own
    # Again: the report is replaced, not refused.
    (folder / "report" / "report.html").write_text("old")
    assert here("report", folder, "--wrong", "0").code == 0
    assert files(folder).keys() == after.keys()
    assert "data-answer data-run" not in (folder / "report" / "report.html").read_text()


def test_where_nothing_can_be_written_the_report_goes_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "report").write_text("a file")
    with pytest.raises(UserError) as caught:
        claim_within(LocalStore(str(tmp_path / "run")))
    assert "choose another folder with --out" in str(caught.value)


def test_a_report_does_not_stand_in_a_run_s_way(tmp_path: Path) -> None:
    """A run resumes with a report in its folder, and begins anew where `--fresh` left only that."""
    from ace_ray.pipeline.planning.plan import make_manifest, make_plan
    from ace_ray.pipeline.planning.preflight import make_benchmarks, open_output, resolve_model

    config = RunConfig.model_validate(
        {
            "model": {"source": "none"},
            "backend": "fake",
            "benchmarks": [{"name": "acebench", "languages": ["en"]}],
            "limit": 2,
            "output": str(tmp_path),
        }
    )
    plan = make_plan(config, resolve_model(config), make_benchmarks(config))
    store = LocalStore(plan.uri)
    store.put("report/report.json", b"{}")
    assert open_output(plan)[1] is None
    store.put("run.json", json.dumps(make_manifest(plan, {})).encode())
    assert open_output(plan)[1] is not None
    store.delete("run.json")
    store.put("reports.txt", b"")
    with pytest.raises(UserError, match="no run"):
        open_output(plan)


@pytest.mark.nightly
def test_a_report_on_s3(here: Any, s3: Any, run: Path) -> None:
    for name, data in files(run).items():
        s3.client.put_object(Bucket=s3.bucket, Key=f"html/run/{name}", Body=data)
    uri = f"s3://{s3.bucket}/html/run"
    tags = {item.path: item.etag for item in open_store(uri).list()}
    ended = here("report", f"{uri}/")
    assert ended.code == 0, ended.stderr
    assert ended.stdout.splitlines()[-1] == f"report: {uri}/report/report.html"
    after = {item.path: item.etag for item in open_store(uri).list()}
    assert {path: after[path] for path in tags} == tags
    found = s3.client.get_object(Bucket=s3.bucket, Key="html/run/report/report.html")
    assert found["ContentType"] == "text/html; charset=utf-8"
    content = found["Body"].read()
    is_sound(Page(content))
    assert len(content) > 50_000
    csv_file = s3.client.head_object(Bucket=s3.bucket, Key="html/run/report/table2.csv")
    assert csv_file["ContentType"].startswith("text/csv")
    # Another report replaces it.
    assert here("report", uri).code == 0
