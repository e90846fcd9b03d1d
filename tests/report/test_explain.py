"""Each planted difference between two runs is attributed to its cause."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ace_ray.reports.explain import explain
from ace_ray.reports.runs import load_runs
from ace_ray.rescoring.prompts import FirstPrompts
from ace_ray.storage.rows import ROWS
from tests.report.builders import row, write_run
from tests.report.read_runs import read_run, toy_model

CALL = {"type": "function", "function": {"name": "f", "arguments": "{}"}}
CHAT: list[dict[str, Any]] = [
    {"role": "user", "content": "question"},
    {"role": "assistant", "content": "", "text": "f()", "tool_calls": [CALL]},
    {"role": "tool", "content": "1"},
    {"role": "user", "content": "thanks"},
    {"role": "assistant", "content": "bye", "text": "bye"},
]
IDS = [[5, 6, 7], [8, 9]]


def episode(
    at: int | None = None, *, ids: Any = IDS, official: bool = True, **changed: Any
) -> dict[str, Any]:
    """A row with the episode `CHAT`, with ``changed`` keys of the message ``at``."""
    messages = [{**m, **(changed if at == n else {})} for n, m in enumerate(CHAT)]
    return row("en", "normal_atom_bool", 1, official=official) | {
        "messages": json.dumps(messages),
        "output_token_ids": ids and json.dumps(ids),
        "model_calls": 2,
    }


PLANTED = {
    "prompt": (episode(0, content="another question"), "prompt", 1),
    "tokens": (episode(ids=[[5, 6, 7], [8, 1]]), "tokens", 2),
    "text": (episode(4, ids=None, content="bye!", text="bye!"), "tokens", 4),
    "odd ids": (episode(4, ids=[5, {}], content="bye!", text="bye!"), "tokens", 4),
    "reading": (episode(1, tool_calls=[]), "reading", 0),
    "tools": (episode(2, content="2"), "tools", 1),
    "simulator": (episode(3, content="no thanks"), "simulator", 1),
    "checker": (episode(official=False), "checker", 0),
    "status": ({**episode(), "status": "infra_error"}, "not scored", 0),
}


@pytest.mark.parametrize("name", PLANTED)
def test_the_first_cause_is_found(name: str, tmp_path: Path) -> None:
    second, cause, position = PLANTED[name]
    roles = {"roles": {"acebench": {"user": {"kind": "same"}}}}
    folders = [
        write_run(tmp_path / name, [row], extra_identity=roles)
        for name, row in (("a", episode()), ("b", second))
    ]
    report = explain(*load_runs(list(map(str, folders))))
    [diff] = report.differences
    assert (diff.cause, diff.position) == (cause, position)
    assert bool(diff.flips) == (name == "checker")
    assert report.with_ids == (name not in ("text", "odd ids"))


def test_another_prompt_names_its_first_token(tmp_path: Path) -> None:
    folders, models = [], []
    for name, end in (("a", "."), ("b", "!")):
        model = toy_model(tmp_path / f"model-{name}")
        settings = json.loads((model / "tokenizer_config.json").read_text())
        settings["chat_template"] += end
        (model / "tokenizer_config.json").write_text(json.dumps(settings))
        run = read_run(tmp_path / name, model, "hermes", categories=["simple_python"])
        manifest = json.loads((run / "run.json").read_text())
        template = settings["chat_template"].encode()
        manifest["chat_template_sha256"] = hashlib.sha256(template).hexdigest()
        (run / "run.json").write_text(json.dumps(manifest))
        for part in (run / "rows").glob("*.parquet"):
            rows = pq.read_table(part).to_pylist()
            for line in rows:
                line["output_token_ids"] = f"[[{ord(end)}]]"
            pq.write_table(pa.Table.from_pylist(rows, schema=ROWS), part)
        folders.append(str(run))
        models.append(str(model))
    runs = load_runs(folders)
    report = explain(*runs, prompts=FirstPrompts(models))
    assert {diff.cause for diff in report.differences} == {"prompt"}
    assert all(diff.position > 10 for diff in report.differences)
    assert report.differences[0].detail.endswith("of the prompt")
    for sources, why in (([], "name models that you trust with"), (models[:1], "model-b")):
        report = explain(*runs, prompts=FirstPrompts(sources) if sources else None)
        assert {(diff.cause, diff.position) for diff in report.differences} == {("prompt", 0)}
        assert why in list(report.notes())[-1]
    runs[1].manifest.format.template_kwargs["chat_template"] = "a stranger's"
    report = explain(*runs, prompts=FirstPrompts(models))
    assert {diff.position for diff in report.differences} == {0}


def test_equal_runs_have_no_differences(tmp_path: Path) -> None:
    rows = (episode() | {"state": json.dumps({"steps": [{"seconds": n}]})} for n in (1, 2))
    folders = [write_run(tmp_path / f"{n}", [row]) for n, row in enumerate(rows)]
    report = explain(*load_runs(list(map(str, folders))))
    assert report.differences == []
    assert next(report.notes()) == "0 of 1 paired rows differ; verdicts of 0 (0.0 %) differ"


def test_an_endpoint_has_other_ids_of_calls_and_no_text_of_calls(tmp_path: Path) -> None:
    function = {"name": "f", "arguments": '{"a": 1}'}
    first, copy, changed = (
        episode(1, ids=None, text="", tool_calls=[{"id": n, "function": {**function, **changed}}])
        for n, changed in enumerate(({}, {"arguments": '{"a":1}'}, {"arguments": "{}"}))
    )
    folders = [
        write_run(tmp_path / str(n), [row], backend="endpoint")
        for n, row in enumerate((first, copy, changed))
    ]
    runs = load_runs(list(map(str, folders)))
    assert explain(*runs[:2]).differences == []
    assert [diff.cause for diff in explain(*runs[1:]).differences] == ["tokens"]


THOUGHT = {"content": "bye", "text": "bye", "reasoning": "hm"}


@pytest.mark.parametrize(
    ("at", "of_engine", "of_server"),
    [
        (1, {}, {"text": "", "content": None}),
        (4, {**THOUGHT, "raw": "<think>hm</think>bye"}, THOUGHT),
        (1, {"tool_parser_error": "ValueError"}, {"text": ""}),
    ],
)
def test_an_engine_stores_more_text_than_an_endpoint(at, of_engine, of_server, tmp_path) -> None:
    rows = [episode(at, ids=None, **of_engine), episode(at, ids=None, **of_server)]
    rows[0]["output"] = "f()"
    folders = [
        write_run(tmp_path / backend, [row], backend=backend)
        for backend, row in zip(("vllm", "endpoint"), rows, strict=True)
    ]
    report = explain(*load_runs(list(map(str, folders))))
    assert (report.differences, report.with_ids) == ([], False)
    assert "a server parsed answers, so other tokens" in list(report.notes())[-1]


@pytest.mark.parametrize(
    ("roles", "ends", "cause"),
    [
        ({"user": {}}, False, "simulator"),
        ({"judge": {}}, False, "prompt"),
        ({"user": {}}, True, "simulator"),
        ({}, True, "tools"),
    ],
)
def test_a_simulated_user_may_speak_first(roles, ends, cause, tmp_path) -> None:
    """The first user message differs, or the episode ``ends`` after an answer."""
    folders = []
    for name, question in (("a", "Hi"), ("b", "Hi" if ends else "Hello")):
        messages = [{"role": "system", "content": "policy"}, {**CHAT[0], "content": question}]
        messages += CHAT[1 : 2 if ends and name == "b" else None]
        user_row = episode(ids=None) | {"messages": json.dumps(messages), "state": '{"turns": 1}'}
        played = {"roles": {"acebench": roles}}
        folders.append(write_run(tmp_path / name, [user_row], extra_identity=played))
    [diff] = explain(*load_runs(list(map(str, folders)))).differences
    assert diff.cause == cause


def test_the_command_prints_counts_and_writes_rows(tmp_path: Path, invoke: Any) -> None:
    folders = [
        write_run(tmp_path / "a", [episode()]),
        write_run(tmp_path / "b", [PLANTED["tools"][0]]),
    ]
    result = invoke("compare", *folders, "--explain", "--output", tmp_path / "out")
    assert result.code == 0, result.stderr
    assert "other tool result or sandbox state" in result.stdout
    assert "other tool result or sandbox state" in (tmp_path / "out/report.html").read_text()
    header, line = (tmp_path / "out/explained-1.csv").read_text().splitlines()
    assert header.startswith("benchmark,language,category,id,sample,cause")
    assert ",tools,1,1," in line
