"""Scoring outputs made elsewhere, end to end, on a tiny data folder of its own."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from ace_ray.benchmarks.acebench.data.loader import load
from ace_ray.benchmarks.acebench.gold import render_gold
from ace_ray.errors import UserError
from ace_ray.integrations.inspect_log import export_inspect
from ace_ray.integrations.result_files import export_hub
from ace_ray.pipeline.rescore import rescore
from ace_ray.pipeline.score import score_outputs
from ace_ray.reports.content import comparison_table
from ace_ray.reports.runs import by_benchmark, load_runs
from ace_ray.storage.object_store import LocalStore
from ace_ray.types import Entry
from ace_ray.viewer.select import StoredRun
from ace_ray.viewer.table import RunTable


def score(path: Path, *, data: Path, output: Path) -> dict[str, Any]:
    return score_outputs(
        path,
        benchmark="acebench",
        data=str(data),
        model=None,
        store=LocalStore(str(output)),
        say=lambda line: None,
    )


PREFERENCE, SWITCH = "normal_preference", "normal_multi_turn_user_switch"
IRRELEVANT, AGENT = "special_irrelevant", "agent_multi_step"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Three preference rows, two dialogues of two turns, two refusals, one agent row; en only."""
    properties = {"city": {"type": "string"}, "days": {"type": "integer"}}
    parameters = {"type": "object", "properties": properties, "required": ["city"]}
    functions = [{"name": "forecast", "description": "weather", "parameters": parameters}]
    for category, ids in {
        PREFERENCE: ["0", "1", "2"],
        SWITCH: ["0_0", "0_1", "1_0", "1_1"],
        IRRELEVANT: ["0", "1"],
        AGENT: ["0"],
    }.items():
        questions, answers = [], []
        for number, suffix in enumerate(ids):
            row: dict[str, Any] = {
                "id": f"{category}_{suffix}",
                "question": "user: how?\n",
                "function": functions,
            }
            gold: Any = {"forecast": {"city": "Rome", "days": number}}
            answer = {"id": row["id"], "ground_truth": gold}
            if category == AGENT:
                row |= {"initial_config": {}, "involved_classes": ["BaseApi"], "path": []}
                answer |= {"ground_truth": [{"BaseApi": {"wifi": True}}], "mile_stone": ["[a()]"]}
            else:
                row |= {"profile" if category == PREFERENCE else "time": ""}
            if category == IRRELEVANT:
                answer["ground_truth"] = (
                    "Due to the limitations of the function, I cannot solve this problem."
                )
            questions.append(row)
            answers.append(answer)
        write(tmp_path / f"data/data_en/data_{category}.json", questions)
        write(tmp_path / f"data/data_en/possible_answer/data_{category}.json", answers)
    return tmp_path / "data"


def write(path: Path, rows: list[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def answer(entry: Entry, **changes: Any) -> dict[str, Any]:
    keys = {"language": entry.language, "category": entry.category, "id": entry.id}
    return {**keys, "output": render_gold(entry), **changes}


def entries(data: Path, *categories: str) -> list[Entry]:
    return load(data, languages=["en"], categories=categories or (PREFERENCE, SWITCH, IRRELEVANT))


def files(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def verdicts(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "verdicts.jsonl").read_text().splitlines()]


def test_verdicts_follow_the_input_and_the_summary_counts_them(data: Path, tmp_path: Path) -> None:
    given = [answer(entry, note="ignored") for entry in reversed(entries(data))]
    given[0]["output"] = "[unknown(x=1)]"
    given[1]["output"] = None
    output = tmp_path / "deep" / "out"
    found = score(write(tmp_path / "given.jsonl", given), data=data, output=output)
    lines = verdicts(output)
    assert [line["id"] for line in lines] == [row["id"] for row in given]
    assert [line["strict"]["valid"] for line in lines] == [False, False] + [True] * 7
    assert lines[2] == {
        "language": "en",
        "category": SWITCH,
        "id": f"{SWITCH}_1_1",
        "sample": 0,
        "official": {"valid": True, "error_type": "", "error": ""},
        "strict": {"valid": True, "error_type": "", "error": ""},
    }
    assert all(line["strict"]["error_type"] for line in lines[:2])
    assert json.loads((output / "summary.json").read_text()) == json.loads(json.dumps(found))
    assert found["source"]["lines"] == 9
    assert found["notes"] == []
    assert found["complete"]
    categories = found["languages"]["en"]["categories"]
    assert categories[IRRELEVANT]["strict"]["accuracy"] == 0.0
    assert categories[SWITCH]["strict"]["accuracy"] == 1.0
    assert {"run.json", "rows", "summary.json", "verdicts.jsonl"} <= {
        p.name for p in output.iterdir()
    }


def test_outputs_of_some_entries_are_a_limited_run(data: Path, tmp_path: Path) -> None:
    first, second, _ = entries(data, PREFERENCE)
    given = [answer(first), answer(first, sample=1), answer(second)]
    found = score(write(tmp_path / "g.jsonl", given), data=data, output=tmp_path / "out")
    assert (found["declared"], found["scored"], found["limit"]) == (3, 3, 2)
    assert found["complete"]
    assert found["headline"]
    headline = found["benchmarks"]["acebench"]["scores"]["strict"][0]
    assert (headline["value"], headline["partial"]) == (1.0, True)
    note = "2 of 3 entries; a sample of the benchmark, not its score"
    assert found["notes"] == [note, "entries have 1 to 2 outputs"]
    facts = "limited to 2 of 3 entries: a sample of the benchmark, not its score"
    (run,) = load_runs([str(tmp_path / "out")])
    (holders,) = by_benchmark([run])
    table = comparison_table(holders, "strict")
    assert table.lines[0][:2] == ["g (limited)", "3/3"]
    assert any(facts in note for note in table.notes)
    with pytest.raises(UserError, match=r"limited to 2 of 3 entries; publish a complete run"):
        export_hub(StoredRun(LocalStore(str(tmp_path / "out"))), LocalStore("x"), "a/b")
    assert facts in RunTable(LocalStore(str(tmp_path / "out"))).facts()["notes"]
    rescored = rescore(str(tmp_path / "out"), lambda line: None)[1]
    assert {**rescored, "benchmarks": {}} == {**found, "benchmarks": {}}


def test_an_absent_turn_is_skipped_and_its_dialogue_is_not_judged(
    data: Path, tmp_path: Path
) -> None:
    # A file that was cut off within the second of two dialogues.
    given = [answer(entry) for entry in entries(data, SWITCH)[:3]]
    found = score(write(tmp_path / "g.jsonl", given), data=data, output=tmp_path / "out")
    category = found["languages"]["en"]["categories"][SWITCH]
    assert (category["strict"]["accuracy"], category["strict"]["n"]) == (1.0, 1)
    assert category["status"]["skipped"] == 1
    assert found["headline"]
    assert found["notes"][0].startswith("3 of 4 entries; ")
    assert "1 turns of dialogues are not in the input" in found["notes"][1]


def test_tokens_of_outputs_made_elsewhere_are_unknown(data: Path, tmp_path: Path) -> None:
    given = [answer(entry) for entry in entries(data, PREFERENCE)]
    found = score(write(tmp_path / "g.jsonl", given), data=data, output=tmp_path / "out")
    assert found["tokens"] == {"prompt": None, "completion": None}
    totals = found["benchmarks"]["acebench"]["combined"]["totals"]
    assert (totals["prompt_tokens"], totals["completion_tokens"]) == (None, None)
    rescore(str(tmp_path / "out"), lambda line: None)
    run = StoredRun(LocalStore(str(tmp_path / "out")))
    assert {(row.prompt_tokens, row.completion_tokens) for row in run.rows} == {(None, None)}
    (name,) = export_inspect(run, LocalStore(str(tmp_path / "inspect")))
    with zipfile.ZipFile(tmp_path / "inspect" / name) as log:
        header = json.loads(log.read("header.json"))
        sample = json.loads(log.read(f"samples/{PREFERENCE}_0_epoch_1.json"))
    assert header["stats"]["model_usage"] == sample["model_usage"] == {}
    assert sample["output"]["usage"] is None


def test_samples_keep_their_json_type(data: Path, tmp_path: Path) -> None:
    samples = [0, "0", 7, "x", 10**30, "\ud800"]
    given = [answer(entry, sample=s) for s in samples for entry in entries(data, PREFERENCE)]
    found = score(write(tmp_path / "g.jsonl", given), data=data, output=tmp_path / "out")
    assert [line["sample"] for line in verdicts(tmp_path / "out")][::3] == samples
    stats = found["languages"]["en"]["categories"][PREFERENCE]["strict"]
    assert (stats["n"], stats["samples"]["max"]) == (3, 6)


def test_an_official_result_folder(data: Path, tmp_path: Path) -> None:
    folder = tmp_path / "result_all" / "result_en" / "some-model"
    for category in (IRRELEVANT, PREFERENCE):
        rows = [{"id": e.id, "result": render_gold(e)} for e in entries(data, category)]
        write(folder / f"data_{category}_result.json", rows)
    agent = [{"id": f"{AGENT}_0", "result": [{"BaseApi": {}}], "process": ["[ a( )]"]}]
    write(folder / f"data_{AGENT}_result.json", agent)
    (folder / "notes.txt").write_text("not a result")
    found = score(folder, data=data, output=tmp_path / "out")
    lines = verdicts(tmp_path / "out")
    assert [line["category"] for line in lines] == [PREFERENCE] * 3 + [IRRELEVANT] * 2 + [AGENT]
    # No attribute is no wrong attribute, officially.
    assert lines[-1]["official"] == {
        "valid": True,
        "error_type": "",
        "error": "",
        "end_to_end": 1,
        "process_accuracy": 1.0,
    }
    assert lines[-1]["strict"] == {
        "valid": False,
        "error_type": "undetermined",
        "error": "BaseApi has not the attributes wifi; every milestone was made",
        "end_to_end": 0,
        "process_accuracy": 1.0,
    }
    assert found["source"]["format"] == "official"
    assert found["notes"] == []
    stats = found["languages"]["en"]["categories"][AGENT]
    assert stats["status"]["scored"] == 1
    assert [stats[rule]["accuracy"] for rule in ("official", "strict")] == [1.0, 0.0]
    assert [stats[rule]["process_accuracy"] for rule in ("official", "strict")] == [1.0, 1.0]
    assert found["languages"]["en"]["rules"]["strict"]["workbook"]["agent"]["value"] is None


def test_agent_rows_in_json_lines(data: Path, tmp_path: Path) -> None:
    key = {"language": "en", "category": AGENT, "id": f"{AGENT}_0"}
    states: list[Any] = [[{"BaseApi": {"wifi": True}}], [{"BaseApi": {"wifi": False}}], None]
    given = [{**key, "sample": i, "result": s, "process": []} for i, s in enumerate(states)]
    found = score(write(tmp_path / "g.jsonl", given), data=data, output=tmp_path / "out")
    lines = verdicts(tmp_path / "out")
    assert [line["official"]["process_accuracy"] for line in lines] == [1.0, 0.0, 0.0]
    assert [line["strict"]["process_accuracy"] for line in lines] == [0.0, 0.0, 0.0]
    assert [line["strict"]["end_to_end"] for line in lines] == [1, 0, 0]
    kinds = ["", "class attributes wrong", "official_crash"]
    assert [line["official"]["error_type"] for line in lines] == kinds
    stats = found["languages"]["en"]["categories"][AGENT]
    assert (stats["scored"], stats["official"]["n"]) == (3, 1)
    assert stats["official"]["process_accuracy"] == pytest.approx(1 / 3)
    assert stats["official"]["samples"]["mean"] == pytest.approx(1 / 3)
    for missing in ("result", "process"):
        row = {name: value for name, value in given[0].items() if name != missing}
        refused(write(tmp_path / "m.jsonl", [row]), data, tmp_path, ":1", f'"{missing}" is missing')


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"id": "normal_preference_9"}, "normal_preference_9"),
        ({"id": 3}, '"id" is 3'),
        ({"category": "normal_preferences"}, "nearest known one is 'normal_preference'"),
        ({"language": "fr"}, "unknown language: 'fr'"),
        ({"sample": 1.0}, '"sample" is 1.0'),
        ({"output": ["a"]}, "the output is ['a'], not a text or null"),
    ],
)
def test_bad_values_are_refused_by_file_and_line(
    data: Path, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    first, second, _ = entries(data, PREFERENCE)
    path = write(tmp_path / "g.jsonl", [answer(first), answer(second, **changes)])
    refused(path, data, tmp_path, f"{path}:2", message)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{not json", "not valid JSON"),
        ("", "the line is blank"),
        ("[" * 200_000, "nested too deeply"),
        ('{"language": "en", "category": "normal_preference", "id": "normal_preference_1"}', "out"),
    ],
)
def test_bad_lines_are_refused_by_file_and_line(
    data: Path, tmp_path: Path, line: str, message: str
) -> None:
    first, *_, last = entries(data, PREFERENCE)
    path = tmp_path / "g.jsonl"
    path.write_text("\n".join([json.dumps(answer(first)), line, json.dumps(answer(last))]))
    refused(path, data, tmp_path, f"{path}:2", message)


def test_the_same_id_and_sample_twice_is_refused(data: Path, tmp_path: Path) -> None:
    first, *_ = entries(data, PREFERENCE)
    path = write(tmp_path / "g.jsonl", [answer(first, sample=s) for s in (0, "0", 0)])
    refused(path, data, tmp_path, f"{path}:3", "with sample 0 was given before")


def test_what_is_no_source_is_refused(data: Path, tmp_path: Path) -> None:
    refused(tmp_path / "none.jsonl", data, tmp_path, "none.jsonl", "no such file")
    empty = write(tmp_path / "empty.jsonl", [])
    refused(empty, data, tmp_path, str(empty), "holds no outputs")
    refused(data, data, tmp_path, str(data), "holds no data_<category>_result.json")
    folder = tmp_path / "model"
    write(folder / "data_normal_foo_result.json", [])
    refused(folder, data, tmp_path, "data_normal_foo_result.json", "unknown category")
    (folder / "data_normal_foo_result.json").rename(folder / f"data_{PREFERENCE}_result.json")
    refused(folder, data, tmp_path, str(folder), "no part of this path says the language")


def refused(path: Path, data: Path, tmp_path: Path, where: str, message: str) -> None:
    output = tmp_path / "new" / "out"
    with pytest.raises(UserError) as caught:
        score(path, data=data, output=output)
    assert where in str(caught.value)
    assert message in str(caught.value)
    assert not (tmp_path / "new").exists()


def test_a_refusal_leaves_earlier_results_alone(data: Path, tmp_path: Path) -> None:
    given = [answer(entry) for entry in entries(data, PREFERENCE)]
    output = tmp_path / "out"
    score(write(tmp_path / "g.jsonl", given), data=data, output=output)
    before = files(output)
    with pytest.raises(UserError):
        score(write(tmp_path / "g.jsonl", [*given, given[0]]), data=data, output=output)
    assert files(output) == before


def test_an_output_that_is_a_file_is_refused(data: Path, tmp_path: Path) -> None:
    path = write(tmp_path / "g.jsonl", [answer(e) for e in entries(data, PREFERENCE)])
    with pytest.raises(UserError, match="cannot write"):
        score(path, data=data, output=path)


@pytest.mark.nightly
def test_odd_texts_survive(data: Path, tmp_path: Path) -> None:
    texts = ["\ud800 lone", "\x00\x01\x1f\x7f", "\u2028\u2029\x85", "[" * 1_000_000]
    texts += ["[forecast(city='" + "x" * 10_000_000 + "')]"]
    first, *_ = entries(data, PREFERENCE)
    given = [answer(first, output=text, sample=i) for i, text in enumerate(texts)]
    path = write(tmp_path / "g.jsonl", given)
    # Also as raw UTF-8: a line separator must not end a line, a raw surrogate must not end the run.
    raw = json.dumps(answer(first, output="\u2028 \udfff", sample="raw"), ensure_ascii=False)
    with path.open("ab") as file:
        file.write(raw.encode("utf-8", "surrogatepass") + b"\r\n\n")
    score(path, data=data, output=tmp_path / "out")
    lines = verdicts(tmp_path / "out")
    assert len(lines) == len(texts) + 1
    assert not any(line["strict"]["valid"] for line in lines)
