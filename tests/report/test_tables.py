"""Numbers of reports: the tables and figures of the paper."""

import re
from io import StringIO
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from rich.console import Console

from ace_ray.benchmarks.acebench.benchmark import ACEBench
from ace_ray.benchmarks.acebench.options import AGENT
from ace_ray.benchmarks.results import Curves, Estimate, Paper, Table
from ace_ray.reports.report import make_report
from ace_ray.reports.table import print_table
from ace_ray.types import RULE_SETS
from tests.report.builders import block, everything, loaded, report_page, row, write_run

SHARES = {"normal_atom_bool": 4, "normal_similar_api": 5, "special_incomplete": 3}
SHARES |= {"special_error_param": 1, "special_irrelevant": 8}
SHARES |= {"agent_multi_turn": 6, "agent_multi_step": 2}


def paper(*folders: Path, rules: str = "official") -> Paper:
    runs = loaded(*folders)
    return ACEBench.paper([run.summary_of("acebench", ACEBench.statistics) for run in runs], rules)


def table(number: int, *folders: Path, rules: str = "official") -> Table:
    (result,) = [t for t in paper(*folders, rules=rules).tables if t.name == f"table{number}"]
    return result


def shares(line: Any) -> list[float | None]:
    """Return the shares of a line in percent, with one decimal as in the paper."""
    return [None if v is None else round(100 * v.value, 1) for v in line[1:]]


@pytest.fixture(scope="module")
def full_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("runs") / "whole", everything(SHARES))


def test_tables_have_groups_categories_and_their_overall(full_run: Path) -> None:
    report = paper(full_run)
    titles = [t.title.partition(":")[0] for t in report.tables]
    assert titles == [*(f"Table {i}" for i in range(2, 9)), *["Figure 6"] * 3]
    assert all(t.title.endswith("official rules") for t in report.tables)
    names = "Atom Single-Turn Multi-Turn Similar-API Preference Summary Special Agent Overall"
    # Square-root weights over 120, 30 and 20 judged entries.
    normal, special, agent = (12 - 0.6 - 0.5) / 12, 0.4, 0.4
    roots = [120**0.5, 30**0.5, 20**0.5]
    overall = sum(w * v for w, v in zip(roots, (normal, special, agent), strict=True)) / sum(roots)
    whole_n = [60, 20, 20, 10, 10, 120, 30, 20, 170]
    expected = [90.0, 100.0, 100.0, 50.0, 100.0, 90.8, 40.0, 40.0, round(100 * overall, 1)]
    for number, languages in ((2, 2), (7, 1), (8, 1)):
        result = table(number, full_run)
        assert [h.replace(" ", "-") for h in result.header] == ["Model", *names.split()]
        ((label, *cells),) = result.lines
        assert (label, shares([label, *cells])) == ("Toy-7B-Instruct", expected)
        assert [v.n for v in cells if isinstance(v, Estimate)] == [languages * n for n in whole_n]
    assert shares(table(3, full_run).lines[0]) == [30.0, 10.0, 80.0]
    assert shares(table(4, full_run).lines[0]) == [60.0, 75.0, 20.0, 75.0]


def test_printed_text_keeps_shortcodes_of_emoji(capsys: pytest.CaptureFixture[str]) -> None:
    layout = Table("", "of :tada:", ["at :fire:"], [[":smile:"]], ["note :sos:"])
    print_table(layout, Console(), intervals=False)
    printed = capsys.readouterr().out
    assert re.findall(":[a-z]+:", printed) == [":tada:", ":fire:", ":smile:", ":sos:"]


def test_table_5_leaves_irrelevant_out(tmp_path: Path) -> None:
    def wrong_row(category: str, number: int, official: str, strict: str) -> dict[str, object]:
        errors = {"official": official, "strict": strict}
        return row("en", category, number, official=False, errors=errors)

    rows = [
        wrong_row("special_incomplete", 0, "error_detection", "detection_failed"),
        wrong_row("special_incomplete", 1, "error_correction", "detection_failed"),
        wrong_row("special_error_param", 0, "official_crash", "correction_failed"),
        row("en", "special_error_param", 1, official=True, strict=False),
        *block("en", "special_irrelevant", 0, 5),
    ]
    folder = write_run(tmp_path / "run", rows)
    official, strict = table(5, folder), table(5, folder, rules="strict")
    assert official.lines == [["Toy-7B-Instruct", 1, 1]]
    assert strict.lines == [["Toy-7B-Instruct", 3, 1]]
    assert "judged rows: 4 of Toy-7B-Instruct" in official.notes
    assert any("neither column: 1 of Toy" in note for note in official.notes)
    assert not any("neither column" in note for note in strict.notes)
    assert shares(table(3, folder).lines[0]) == [0.0, 50.0, 0.0]


def test_incomplete_runs_are_marked_and_have_no_overall(tmp_path: Path) -> None:
    rows = [r for r in everything({"special_error_param": 0}) if r["category"] not in AGENT]
    rows[0] = row("en", "normal_atom_bool", 0, status="infra_error")
    lost = next(i for i, item in enumerate(rows) if item["category"] == "special_incomplete")
    rows[lost] = row("en", "special_incomplete", 0, status="quarantined")
    folder = write_run(tmp_path / "run", rows, missing=2, finished=False)
    result = table(2, folder)
    (line,) = result.lines
    assert line[0] == "Toy-7B-Instruct*"
    assert shares(line) == [None, 100.0, 100.0, 100.0, 100.0, None, None, None, None]
    (note,) = [note for note in result.notes if note.startswith("* incomplete")]
    assert note.endswith("Toy-7B-Instruct: of 302 rows 1 infra_error, 1 quarantined, 2 missing")
    assert shares(table(3, folder).lines[0]) == [None, 0.0, 100.0]
    assert table(5, folder).lines == [["Toy-7B-Instruct*", None, None]]
    allowed = write_run(tmp_path / "allowed", rows, max_unscored_fraction=0.1)
    assert shares(table(3, allowed).lines[0]) == [100.0, 0.0, 100.0]


def test_figure_6_counts_kinds_of_errors_by_group(tmp_path: Path) -> None:
    def wrong(category: str, number: int, *kinds: str) -> dict[str, object]:
        errors = dict(zip(RULE_SETS, kinds, strict=True))
        return row("en", category, number, official=False, errors=errors)

    rows = [
        wrong("normal_atom_bool", 0, "value_error", "param_value"),
        wrong("normal_atom_bool", 1, "value_error:string", "param_value"),
        wrong("normal_similar_api", 0, "wrong_output_format", "output_format"),
        row("en", "normal_similar_api", 1),
        wrong("special_incomplete", 0, "error_detection", "detection_failed"),
        row("en", "special_irrelevant", 0, status="infra_error"),
    ]
    folder = write_run(tmp_path / "run", rows)
    report_page(folder, out=tmp_path / "out", rules="strict")
    by_name = {t.name: t for t in paper(folder, rules="strict").tables}
    normal, special = by_name["figure6-normal"], by_name["figure6-special"]
    assert list(normal.header)[1:] == ["Judged rows", "Errors", "param_value", "output_format"]
    assert normal.lines[0][1:] == [4, 3, 2, 1]
    assert special.lines[0][1:] == [1, 1, 1]
    (official,) = [t for t in paper(folder).tables if t.name == "figure6-normal"]
    assert (official.header, official.lines) == (normal.header, normal.lines)
    assert by_name["figure6-agent"].lines[0][1:] == [None, None]
    # Every figure is a file, with its points.
    svg = ElementTree.fromstring((tmp_path / "out/figure6-normal.svg").read_text())
    assert svg.tag == "{http://www.w3.org/2000/svg}svg"
    points = (tmp_path / "out/figure6-normal-points.csv").read_text().splitlines()
    assert points[1:] == [
        "Toy-7B-Instruct*,param_value,2,66.6667",
        "Toy-7B-Instruct*,output_format,1,33.3333",
    ]
    assert (tmp_path / "out/figure6-normal-official.svg").is_file()


def test_table_6_composes_variants_that_differ_in_nothing_else(tmp_path: Path) -> None:
    folders = []
    for variant, valid in {"standard": 10, "condensed": 4, "minimal": 1}.items():
        rows = everything({"normal_preference": valid})
        folders.append(write_run(tmp_path / variant, rows, variant=variant))
    warm: dict[str, Any] = {"variant": "condensed", "sampling": {"temperature": 1.0}}
    folders.append(write_run(tmp_path / "other", rows, **warm))
    result = table(6, *folders)
    assert list(result.header) == ["Model", "Standard", "Condensed", "Minimal"]
    assert [shares(line) for line in result.lines] == [[100.0, 95.0, 92.5]]
    assert "missing: runs of the variants standard, minimal with" in "\n".join(result.notes)
    assert shares(table(6, folders[0], folders[2]).lines[0]) == [100.0, None, 92.5]
    assert table(6, folders[0]).lines == []
    # All other tables show the standard prompts.
    assert [line[0] for line in table(2, *folders).lines] == ["Toy-7B-Instruct (standard)"]


def test_each_kind_of_prompt_has_its_tables_and_missing_tables_a_reason(tmp_path: Path) -> None:
    rows = everything({})
    native = [
        write_run(tmp_path / size, rows, model=f"o/toy-{size}", variant="native")
        for size in ("3B", "7B")
    ]
    scored: dict[str, Any] = {"benchmarks": {"acebench": {"data_sha256": "0" * 64}}}
    elsewhere = write_run(tmp_path / "x", block("en", AGENT[0], 1, 2), extra_identity=scored)
    output, out = StringIO(), str(tmp_path / "out")
    console = Console(file=output, width=300)
    uris = [str(folder) for folder in (*native, elsewhere)]
    make_report(uris, paper=True, out=out, rules="official", console=console)
    text = output.getvalue()
    heading = "(native tool calls; the paper used prompts), official rules"
    for number in (2, 3, 4, 5, 7, 8):
        assert any(f"Table {number}:" in t and t.endswith(heading) for t in text.splitlines())
    assert "sizes from the model's name: toy-3B 3B, toy-7B 7B" in text
    assert {"table2-native.csv", "figure7-native.svg", "figure7-native-points.csv"} <= {
        file.name for file in (tmp_path / "out").iterdir()
    }
    assert "(prompt not known), official rules" in text
    for number in (2, 3, 5, 7, 8):
        assert re.search(rf"not shown: Table {number}: .*\(prompt not known\).*: missing", text)
    assert "not shown: Table 6" in text


def test_scaling_uses_sizes_of_the_manifest_or_the_name(tmp_path: Path) -> None:
    models: dict[str, Any] = {"Toy-7B-Chat": {}, "Toy-0.5B-Chat": {}, "unsized": {}}
    models |= {name: {"parameters": 3_000_000_000} for name in ("other", "step_9")}
    models["Toy-3B-Chat"] = {"samples": 2}
    folders = []
    for name, more in models.items():
        rows = everything({"normal_preference": 0 if "7B" in name else 2}, of=2)
        folders.append(write_run(tmp_path / name, rows, model=f"o/{name}", **more))
    report = paper(*folders)
    (scaling,) = [figure for figure in report.figures if isinstance(figure, Curves)]
    assert list(scaling.panels) == ["Normal", "Special", "Agent", "Overall"]
    normal = scaling.panels["Normal"]
    assert list(normal) == ["Toy-Chat [1]", "other [1]", "Toy-Chat [2]"]
    assert [(x, round(e.value, 3)) for x, e in normal["Toy-Chat [1]"]] == [(0.5, 1), (7, 0.917)]
    assert [x for x, _ in normal["other [1]"]] == [3.0]
    notes = "\n".join(report.notes)
    assert "sizes from the model's name: Toy-7B-Chat 7B, Toy-0.5B-Chat 0.5B" in notes
    assert "sizes unknown, not drawn: unsized" in notes
    assert "sizes of checkpoints, not drawn: step_9" in notes
