"""Each planted difference between two runs is attributed to its cause."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from ace_ray.reports.explain import Explanation, explain
from ace_ray.rescoring.prompts import FirstPrompts
from tests.report.builders import Row, change_manifest, change_rows, loaded, row, write_run
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


def episode(at: int | None = None, *, ids: Any = IDS, official: bool = True, **changed: Any) -> Row:
    """A row with the episode `CHAT`, with ``changed`` keys of the message ``at``."""
    messages = [{**m, **(changed if at == n else {})} for n, m in enumerate(CHAT)]
    return row("en", "normal_atom_bool", 1, official=official) | {
        "messages": json.dumps(messages),
        "output_token_ids": ids and json.dumps(ids),
        "model_calls": 2,
    }


def explained(
    folder: Path, *rows: Row, backends: tuple[str, str] = ("vllm", "vllm"), **roles: Any
) -> Explanation:
    """Explain the difference between two runs of one row each, with ``roles`` of the benchmark."""
    identity = {"roles": {"acebench": roles}} if roles else None
    folders = [
        write_run(folder / name, [row], backend=backend, extra_identity=identity)
        for name, row, backend in zip("ab", rows, backends, strict=True)
    ]
    return explain(*loaded(*folders))


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
    report = explained(tmp_path, episode(), second, user={"kind": "same"})
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
        template = settings["chat_template"].encode()
        change_manifest(run, chat_template_sha256=hashlib.sha256(template).hexdigest())
        change_rows(run, output_token_ids=f"[[{ord(end)}]]")
        folders.append(run)
        models.append(str(model))
    runs = loaded(*folders)
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
    report = explained(tmp_path, *rows)
    assert report.differences == []
    assert next(report.notes()) == "0 of 1 paired rows differ; verdicts of 0 (0.0 %) differ"


def test_an_endpoint_has_other_ids_of_calls_and_no_text_of_calls(tmp_path: Path) -> None:
    function = {"name": "f", "arguments": '{"a": 1}'}
    first, copy, changed = (
        episode(1, ids=None, text="", tool_calls=[{"id": n, "function": {**function, **changed}}])
        for n, changed in enumerate(({}, {"arguments": '{"a":1}'}, {"arguments": "{}"}))
    )
    servers = ("endpoint", "endpoint")
    assert explained(tmp_path / "equal", first, copy, backends=servers).differences == []
    [diff] = explained(tmp_path / "other", copy, changed, backends=servers).differences
    assert diff.cause == "tokens"


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
    report = explained(tmp_path, *rows, backends=("vllm", "endpoint"))
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
    rows = []
    for question, end in (("Hi", None), ("Hi", 2) if ends else ("Hello", None)):
        messages = [{"role": "system", "content": "policy"}, {**CHAT[0], "content": question}]
        messages += CHAT[1:end]
        rows.append(episode(ids=None) | {"messages": json.dumps(messages), "state": '{"turns": 1}'})
    [diff] = explained(tmp_path, *rows, **roles).differences
    assert diff.cause == cause


def test_the_command_prints_counts_and_writes_rows(tmp_path: Path, invoke: Any) -> None:
    folders = [
        write_run(tmp_path / "a", [episode()]),
        write_run(tmp_path / "b", [PLANTED["tools"][0]]),
    ]
    result = invoke("compare", *folders, "--explain", "--output", tmp_path / "out").ok()
    assert "other tool result or sandbox state" in result.stdout
    assert "other tool result or sandbox state" in (tmp_path / "out/report.html").read_text()
    header, line = (tmp_path / "out/explained-1.csv").read_text().splitlines()
    assert header.startswith("benchmark,language,category,id,sample,cause")
    assert ",tools,1,1," in line
