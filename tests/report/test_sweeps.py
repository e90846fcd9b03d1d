"""Reports of sweeps: complete runs by label and step, other models with a reason, the ledger."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from ace_ray.errors import UserError
from ace_ray.reports.sweeps import Sweep, ledger_table, load_sweep
from ace_ray.storage.object_store import open_store
from ace_ray.sweep.ledger import CostRecord, write_ledger
from tests.report.builders import (
    Page,
    block,
    everything,
    is_sound,
    ledger_line,
    refused,
    report_page,
    write_run,
    write_sweep,
)

FEW = block("en", "special_incomplete", 1, 2)
LINES = [
    ledger_line("step_100", step=100),
    ledger_line("step_200", step=200, engine="swapped", note="probe passed"),
    ledger_line("other", "failed", note="the engine did not start", entries=0, cost=0.02),
    refused("step_300", "a tensor holds NaN"),
]


def loaded(folder: Path) -> Sweep:
    found = load_sweep(open_store(str(folder)))
    assert found is not None
    return found


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    runs = {
        f"step_{step}": everything({"special_incomplete": right}, of=5)
        for step, right in ((100, 2), (200, 5))
    }
    return write_sweep(tmp_path_factory.mktemp("sweeps") / "sweep", LINES, runs)


def test_complete_runs_are_reported_and_others_named(sweep: Path, here: Any) -> None:
    ended = here("report", sweep)
    assert ended.code == 0, ended.stderr
    assert ended.stdout.splitlines()[-1] == f"report: {sweep}/report/report.html"
    content = (sweep / "report" / "report.html").read_bytes()
    is_sound(Page(content))
    text = content.decode()
    assert "<h1>Sweep train-1a2b</h1>" in text
    assert "2 of 4 models are complete" in text
    results = text.split('<section id="results">')[1].split("</section>")[0]
    assert results.count("170/170") == 4
    assert "the engine did not start" in results
    assert "training step" in text
    assert "Sweep train-1a2b</summary>" in text, "its manifest is among the provenance"
    facts = json.loads((sweep / "report" / "report.json").read_text())
    assert facts["sweep"]["left_out"] == ["other", "step_300"]
    with (sweep / "report" / "ledger.csv").open() as file:
        *lines, every = csv.DictReader(file)
    assert [line["Model"] for line in lines] == ["step_100", "step_200", "other", "step_300"]
    first, _, _, none = lines
    assert (first["Load (s)"], first["Total (s)"], first["Devices"]) == ("20.0", "100.0", "1 gpu")
    assert (none["Total (s)"], none["Entries"], none["Cost"]) == ("N/A", "N/A", "N/A")
    # 300 s over 680 entries; the seconds of failed runs count.
    sums = {"Total (s)": "300.0", "Generation (s)": "180.0", "Cost": "0.2200", "Entries": "680"}
    sums |= {"Per 1,000 entries (s)": "441.2", "Per 1,000 entries (cost)": "0.3235"}
    assert {name: every[name] for name in sums} == sums
    assert here("report", sweep).code == 0, "its own report is not a run of the sweep"


def test_labels_are_unique_and_damaged_runs_left_out(tmp_path: Path) -> None:
    lines = [ledger_line("a"), ledger_line("b", cost=None, per_1000={})]
    lines = [line | {"label": "same"} for line in lines]
    lines += [ledger_line("gone"), ledger_line("torn")]
    folder = write_sweep(tmp_path / "sweep", lines, dict.fromkeys(("a", "b", "torn"), FEW))
    (folder / "run-torn" / "run.json").write_text("{")
    found = loaded(folder)
    assert [run.label for run in found.runs] == ["same (run-a)", "same (run-b)"]
    whys = {one.label: one.why for one in found.left_out}
    assert "run.json is missing" in whys["gone"]
    assert "is not JSON" in whys["torn"]
    table = ledger_table(found)
    costs = [line[table.header.index("Cost")] for line in table.lines]
    assert costs == ["0.1000", None, "0.1000", "0.1000", None], "no sum without all prices"


def refusal(folder: Path) -> str:
    with pytest.raises(UserError) as caught:
        report_page(folder, out=Path("unused"))
    assert not Path("unused").exists()
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("sweep.json", "{", "is not JSON"),
        ("sweep.json", '{"schema_version": 1}', "'sweep_id' is missing"),
        ("ledger.json", None, "the sweep has no ledger yet"),
        ("ledger.json", "[]", "is not a JSON object"),
        ("ledger.json", '{"schema_version": 1}', "'runs' is missing"),
    ],
)
def test_a_damaged_sweep_is_refused(
    tmp_path: Path, name: str, content: str | None, words: str
) -> None:
    write_sweep(tmp_path, [], {})
    (tmp_path / name).unlink()
    if content is not None:
        (tmp_path / name).write_text(content)
    found = refusal(tmp_path)
    assert words in found


@pytest.mark.parametrize(
    "change",
    [
        {"run_id": "../elsewhere"},
        {"run_id": "run-twice"},
        {"state": "done"},
        {"entries": "many"},
        {"cost": float("nan")},
        {"seconds": {"load": -1.0, "warm_up": 0, "generation": 0, "tool": 0, "idle": 0}},
    ],
)
def test_a_damaged_ledger_line_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    lines = [ledger_line("a", **change), ledger_line("twice")]
    assert "ledger.json" in refusal(write_sweep(tmp_path / "sweep", lines, {}))


def test_the_ledger_of_a_real_sweep_is_read(tmp_path: Path) -> None:
    folder = write_sweep(tmp_path / "sweep", [], {"a": FEW})
    whole = CostRecord(
        *("a-2B", None, "org/a", "run-a", "complete", "", "fresh", "cpu", 2.0, 2_000_000_000),
        seconds={"load": 3.0, "generation": 5.5, "idle": 1.0},
        entries=85,
        tokens={"prompt": None, "completion": 2},  # an endpoint that gives no usage
    )
    waits = [
        CostRecord("p", 7, "/x/p", "run-p"),
        CostRecord("r", 8, "/x/r", "", state="refused", note="a shard is missing"),
    ]
    write_ledger(open_store(str(folder)), [whole, *waits])
    found = loaded(folder)
    (run,) = found.runs
    assert (run.label, run.manifest.model.parameters) == ("a-2B", 2_000_000_000)
    assert [(one.label, one.state, one.why) for one in found.left_out] == [
        ("p", "pending", "not evaluated yet"),
        ("r", "refused", "a shard is missing"),
    ]
    first, *others, _ = ledger_table(found).lines
    assert first[4:14] == ["2 cpu", "3.0", "0.0", "5.5", "0.0", "1.0", "9.5", 85, None, 2]
    assert {cell for line in others for cell in line[3:]} == {None}


def test_a_sweep_is_reported_alone(sweep: Path, tmp_path: Path, here: Any) -> None:
    ended = here("report", write_run(tmp_path / "run", FEW), sweep)
    assert ended.code == 2
    assert "is a sweep" in ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1
