"""Scoring outputs made elsewhere, end to end, on the English mini set."""

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from ace_ray.benchmarks.acebench.data.loader import MINI, load
from ace_ray.benchmarks.acebench.gold import render_gold
from ace_ray.errors import INCOMPLETE, UserError
from ace_ray.integrations.inspect_log import export_inspect
from ace_ray.integrations.result_files import export_hub
from ace_ray.reports.runs import ScoredRun
from ace_ray.rescoring.import_outputs import score_outputs
from ace_ray.rescoring.rejudge import rejudge_run
from ace_ray.storage.object_store import LocalStore
from ace_ray.types import Entry
from tests.benchmarks.test_external_outputs import write

PREFERENCE, SWITCH = "normal_preference", "normal_multi_turn_user_switch"
IRRELEVANT, AGENT = "special_irrelevant", "agent_multi_step"


def answer(entry: Entry, **changes: Any) -> dict[str, Any]:
    keys = {"language": entry.language, "category": entry.category, "id": entry.id}
    return {**keys, "output": render_gold(entry), **changes}


def entries(*categories: str) -> list[Entry]:
    return load(MINI, languages=["en"], categories=categories)


def score(folder: Path, source: Path | list[Any], **changes: Any) -> dict[str, Any]:
    """Score rows, or the outputs at a path, into ``folder/out``."""
    path = write(folder / "g.jsonl", source) if isinstance(source, list) else source
    store = LocalStore(str(folder / "out"))
    options = {"benchmark": "acebench", "data": str(MINI), "model": None, **changes}
    return score_outputs(path, **options, store=store)


def verdicts(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "out" / "verdicts.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    rows = [answer(entry) for entry in entries(PREFERENCE)]
    return [write(tmp_path / name, rows) for name in ("a.jsonl", "b.jsonl")]


REFUSED = r"contains the run of other outputs \(model 'A'\).*--fresh"


def test_the_run_of_other_outputs_is_replaced_only_when_asked(tmp_path, files) -> None:
    score(tmp_path, files[0], model="A")
    score(tmp_path, files[0], model="A")
    before = (tmp_path / "out/run.json").read_bytes()
    for file, model in zip(files, "BA", strict=True):
        with pytest.raises(UserError, match=REFUSED):
            score(tmp_path, file, model=model)
    assert (tmp_path / "out/run.json").read_bytes() == before
    score(tmp_path, files[0], model="B", fresh=True)
    assert json.loads((tmp_path / "out/run.json").read_text())["model"]["source"] == "B"


def test_a_run_that_another_process_stored_meanwhile_is_not_replaced(tmp_path, files, monkeypatch):
    def store_run(_: LocalStore) -> None:
        monkeypatch.setattr(LocalStore, "check_conditions", lambda _: None)
        score(tmp_path, files[0], model="A")

    monkeypatch.setattr(LocalStore, "check_conditions", store_run)  # begins the lease
    with pytest.raises(UserError, match=REFUSED):
        score(tmp_path, files[1])


def test_an_interrupted_replacement_has_no_rows_of_the_old_run_and_is_incomplete(
    tmp_path: Path, files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    score(tmp_path, files[0])
    put = LocalStore.put

    def fill(store: LocalStore, path: str, content: bytes) -> None:
        if store.root == str(tmp_path / "out") and path.startswith("rows/"):
            raise UserError("is full")
        put(store, path, content)

    monkeypatch.setattr(LocalStore, "put", fill)
    with pytest.raises(UserError, match="is full"):
        score(tmp_path, files[1], fresh=True)
    code, summary = rejudge_run(str(tmp_path / "out"))
    assert (code, summary["missing"], summary["complete"]) == (INCOMPLETE, 4, False)
    assert not (tmp_path / "out/_SUCCESS").exists()


def test_verdicts_follow_the_input_and_the_summary_counts_them(tmp_path: Path) -> None:
    rows = entries(PREFERENCE, SWITCH, IRRELEVANT)
    answers = [answer(entry, note="ignored") for entry in reversed(rows)]
    answers[0]["output"] = "[unknown(x=1)]"
    answers[1]["output"] = None
    summary = score(tmp_path, answers)
    lines = verdicts(tmp_path)
    assert [line["id"] for line in lines] == [row["id"] for row in answers]
    assert [line["strict"]["valid"] for line in lines] == [False, False] + [True] * 10
    valid = {"valid": True, "error_type": "", "error": ""}
    key = {"language": "en", "category": SWITCH, "id": f"{SWITCH}_1_1", "sample": 0}
    assert lines[4] == {**key, "official": valid, "strict": valid}
    assert all(line["strict"]["error_type"] for line in lines[:2])
    assert json.loads((tmp_path / "out/summary.json").read_text()) == json.loads(
        json.dumps(summary)
    )
    assert (summary["source"]["lines"], summary["notes"], summary["complete"]) == (12, [], True)
    categories = summary["languages"]["en"]["categories"]
    assert categories[IRRELEVANT]["strict"]["accuracy"] == 0.5
    assert categories[SWITCH]["strict"]["accuracy"] == 1.0
    # Tokens and times of outputs made elsewhere are unknown, not zero.
    assert summary["tokens"] == {"prompt": None, "completion": None}
    totals = summary["benchmarks"]["acebench"]["combined"]["totals"]
    assert {totals[key] for key in ("prompt_tokens", "completion_tokens", "generation_s")} == {None}
    rejudge_run(str(tmp_path / "out"))
    run = ScoredRun(LocalStore(str(tmp_path / "out")))
    assert {(row.prompt_tokens, row.completion_tokens) for row in run.rows} == {(None, None)}
    assert {(row.generation_s, row.duration_s) for row in run.rows} == {(None, None)}
    (name,) = export_inspect(run, LocalStore(str(tmp_path / "inspect")))
    with zipfile.ZipFile(tmp_path / "inspect" / name) as log:
        assert json.loads(log.read("header.json"))["stats"]["model_usage"] == {}
        names = [file for file in log.namelist() if file.startswith("samples/")]
        samples = [json.loads(log.read(file)) for file in names]
    assert {(sample["total_time"], sample["working_time"]) for sample in samples} == {(None, None)}


def test_outputs_of_some_entries_are_a_limited_run(tmp_path: Path) -> None:
    first, second, *_ = entries(PREFERENCE)
    summary = score(tmp_path, [answer(first), answer(first, sample=1), answer(second)])
    assert (summary["declared"], summary["scored"], summary["limit"]) == (3, 3, 2)
    assert summary["complete"]
    headline = summary["benchmarks"]["acebench"]["scores"]["strict"][0]
    assert (headline["value"], headline["partial"]) == (1.0, True)
    note = "2 of 4 entries; a sample of the benchmark, not its score"
    assert summary["notes"] == [note, "entries have 1 to 2 outputs"]
    store = LocalStore(str(tmp_path / "out"))
    with pytest.raises(UserError, match=r"limited to 2 of 4 entries; export a complete run"):
        export_hub(ScoredRun(store), LocalStore("x"), ["a/b"])
    rescored = rejudge_run(str(tmp_path / "out"))[1]
    assert {**rescored, "benchmarks": {}} == {**summary, "benchmarks": {}}
    # An absent turn is skipped, and its dialogue is not judged.
    summary = score(tmp_path, [answer(entry) for entry in entries(SWITCH)[:3]])
    category = summary["languages"]["en"]["categories"][SWITCH]
    assert (category["strict"]["accuracy"], category["strict"]["n"]) == (1.0, 1)
    assert category["status"]["skipped"] == 1
    assert "1 turns of dialogues are not in the input" in summary["notes"][1]


def test_an_official_result_folder(tmp_path: Path) -> None:
    folder = tmp_path / "result_all" / "result_en" / "some-model"
    for category in (IRRELEVANT, PREFERENCE):
        rows = [{"id": e.id, "result": render_gold(e)} for e in entries(category)]
        write(folder / f"data_{category}_result.json", rows)
    agents = entries(AGENT)
    empty: list[Any] = [{name: {} for name in state} for state in agents[0].gold["ground_truth"]]
    results: list[Any] = [empty, *(agent.gold["ground_truth"] for agent in agents[1:3]), None]
    episodes: list[Any] = [
        {"id": agent.id, "result": result, "process": agent.gold["mile_stone"]}
        for agent, result in zip(agents, results, strict=True)
    ]
    write(folder / f"data_{AGENT}_result.json", episodes)
    (folder / "notes.txt").write_text("not a result")
    summary = score(tmp_path, folder)
    lines = verdicts(tmp_path)
    assert [line["category"] for line in lines] == [PREFERENCE] * 4 + [IRRELEVANT] * 4 + [AGENT] * 4
    # The official rules accept missing attributes.
    right = {"valid": True, "error_type": "", "error": "", "end_to_end": 1, "process_accuracy": 1.0}
    assert lines[8]["official"] == lines[9]["official"] == lines[9]["strict"] == right
    wrong = {"valid": False, "error_type": "undetermined", "end_to_end": 0}
    why = "BaseApi does not have the attributes wifi, logged_in; every milestone was made"
    assert lines[8]["strict"] == {**right, **wrong, "error": why}
    assert lines[11]["official"]["error_type"] == "official_crash"
    assert (summary["source"]["format"], summary["notes"]) == ("official", [])
    stats = summary["languages"]["en"]["categories"][AGENT]
    assert [stats[rule]["accuracy"] for rule in ("official", "strict")] == [0.75, 0.5]
    # The process of the third row is a list of paths, not of texts.
    assert [stats[rule]["process_accuracy"] for rule in ("official", "strict")] == [1.0, 0.75]


def test_a_bad_line_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    first, second, *_ = entries(PREFERENCE)
    score(tmp_path, [answer(first)])
    before = {path: path.read_bytes() for path in tmp_path.glob("out/**/*") if path.is_file()}
    row = answer(second, category=AGENT, id=f"{AGENT}_0")
    for key, bad in {"result": row, "process": {**row, "result": []}}.items():
        with pytest.raises(UserError, match=f'^{tmp_path / "g.jsonl"}:2: "{key}" is missing'):
            score(tmp_path, [answer(first), bad])
    assert {path: path.read_bytes() for path in before} == before
