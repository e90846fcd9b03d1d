"""No name that only a stranger's run folder has is imported, rendered, requested or written.

SECURITY.md lists the names. Here each is a canary (code, a server, outputs, links) that leaves a
file in the folder ``fired``, or a request, if it is followed."""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import ace_ray
from ace_ray.models.answer_parser import Reading
from ace_ray.storage.lease import this_process
from ace_ray.storage.object_store import open_store
from ace_ray.types import ToolAnswer, ToolCall
from ace_ray.viewer.table import Query, RunTable
from tests.pipeline.made_run import sound_run
from tests.report.builders import change_manifest, change_rows
from tests.report.read_runs import read_run, toy_model
from tests.scripted_endpoint import web_server

CODE = """import pathlib
from ace_ray.benchmarks.base import Benchmark
pathlib.Path({fired!r}, "code").touch()
class Evil(Benchmark):
    name = "evil"
    def entries(self): return []
    def check(self, entry, episode): pass
"""


class Parser(ExitStack):
    """An `AnswerParser` that reads a search in every answer."""

    def __init__(self, *_: object) -> None:
        super().__init__()
        self.versions: dict[str, Any] = {}

    def read(self, answers: list[Any]) -> list[Reading]:
        call = ToolCall("search_engine_query", '{"keywords": "x"}')
        return [Reading("", "", False, ToolAnswer("", (call,))) for _ in answers]


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path, Path, Path]:
    """Return a run, a copy in another folder, their tokenizer, and the folder ``fired``."""
    monkeypatch.setattr("ace_ray.rescoring.reparse.AnswerParser", Parser)
    monkeypatch.chdir(tmp_path)
    tokenizer = toy_model(tmp_path / "tokenizer")
    own_run = read_run(tmp_path / "own/run", tokenizer, "hermes", categories=["simple_python"])
    shutil.copytree(tmp_path / "own", tmp_path / "theirs")
    (fired := tmp_path / "fired").mkdir()
    return own_run, tmp_path / "theirs/run", tokenizer, fired


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, list[str]]]:
    """Return the address of a server and its requests. It is the hub of Hugging Face, too."""
    from huggingface_hub import constants

    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "HF_TOKEN"):
        monkeypatch.setenv(name, "testing")
    with web_server(404, {}, b"") as (address, requests):
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "ENDPOINT", address)
        yield address, requests


def answer(**keys: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": "a", "text": "b", **keys}
    question = {"role": "user", "content": "another question"}
    return {"messages": json.dumps([question, message]), "model_calls": 1}


def make_hostile(run: Path, model: str, benchmark: dict[str, Any], fired: Path, url: str) -> None:
    """Replace every name in a run, in its rows and in the sweep above it by a canary."""
    code, sweep = f"{run.parent}/evil.py", run.parent
    toy_model(run.parent / "model")
    (run.parent / "evil.py").write_text(CODE.format(fired=str(fired)))
    config = change_manifest(run)["config"] | {
        "benchmarks": [benchmark],
        "store": {"endpoint_url": url, "region": "us-east-1"},
        "output": str(fired / "output"),
        "publish": [{"tracker": "tensorboard", "folder": str(fired / "tracker")}],
        "early": {"against": "s3://mine/run"},
        "engine": {"trust_remote_code": True},
    }
    names = {"adapter": "s3://mine/adapter", "plugins": [code], "chat_template": code}
    config["model"] |= {"source": model, **names}
    change_manifest(run, config=config, entries={}, reread={"of": url, "reader": url})
    change_manifest(run, format={"template_kwargs": {"chat_template": "evil"}})
    early = {"against": "s3://mine/run", "stopped": True}
    (run / "summary.json").write_text(json.dumps({"uri": url, "complete": True, "early": early}))
    (run / "lease.json").write_text(json.dumps({**this_process(), "pid": 1 << 40}))
    change_rows(run, 0, category="web_search_base", id="web_search_base_0", **answer())
    change_rows(run, 1, **answer())
    for name in ("files", "results"):
        (run / name).symlink_to(fired)
    (run / "report").mkdir()
    marker = {"made_by": "ace-ray report", "files": ["../../../fired", "/", ".."]}
    (run / "report/report.json").write_text(json.dumps(marker))
    line = {"label": url, "step": 1, "source": "s3://mine/m", "run_id": "run", "state": "complete"}
    ledger = {"schema_version": 1, "runs": [line]}
    (sweep / "ledger.json").write_text(json.dumps(ledger))
    manifest = {"schema_version": 1, "sweep_id": "../fired", "created_at": url, "config": config}
    (sweep / "sweep.json").write_text(json.dumps(manifest))


def commands(own_run: Path, run: Path, tokenizer: Path, folder: Path) -> Iterator[tuple[Any, ...]]:
    policy, config = folder / "policy.yaml", folder / "config.yaml"
    policy.write_text("metrics: [{benchmark: bfcl, at_least: 0.5}]")
    tree = {"model": {"source": "none"}, "backend": "fake", "benchmarks": ["acebench"]}
    config.write_text(json.dumps({**tree, "output": str(run.parent), "run_id": run.name}))
    yield ("show", run)
    yield ("score", run)
    yield ("compare", own_run, run, "--allow-different", "--flips")
    yield ("compare", own_run, run, "--explain")
    yield ("gate", policy, run, "--against", own_run)
    yield from (("report", path) for path in (run, run.parent))
    yield from (("export", run, "--to", form) for form in ("inspect", "lm-eval"))
    yield ("export", run, "--to", "hf", "--dataset", "o/d")
    yield from (("publish", path, "--to", "tensorboard") for path in (run, run.parent))
    yield ("reread", run)
    yield ("reread", run, "--tokenizer", tokenizer)
    yield ("compact", run)
    yield ("evaluate", config, "--plan")
    yield ("doctor", config)


@pytest.mark.parametrize(
    ("model", "local"),
    [("s3://mine/model", True), ("strange/model", False), ("theirs/model", False)],
    ids=["s3 and local code", "hub and services", "folder and services"],
)
def test_no_name_in_a_strangers_run_is_followed(
    model, local, runs, server, tmp_path, invoke
) -> None:
    (own_run, run, tokenizer, fired), (url, requests) = runs, server
    code, service = f"{run.parent}/evil.py:Evil", {"url": url, "api_key_env": "HF_TOKEN"}
    bfcl = {
        **{"name": "bfcl", "mode": "native", "categories": ["simple_python", "web_search_base"]},
        **{"embedding": {**service, "model": "m"}},
        **{"web_search": {"search": service, "fetch": service}},
    }
    make_hostile(run, model, {"name": code} if local else bfcl, fired, url)
    for words in commands(own_run, run, tokenizer, tmp_path):
        result = invoke(*words)
        assert [*fired.iterdir(), *requests] == [], words
        assert "Traceback" not in result.stderr, words
    opened = ace_ray.Run.open(str(run))
    assert (opened.status, opened.rows().num_rows, len([*opened.episodes()])) == ("complete", 4, 4)
    table, mine = (RunTable(open_store(str(folder))) for folder in (run, own_run))
    assert table.select(Query(cause="prompt", text="another question"), mine)
    assert [*fired.iterdir(), *requests] == [], "view"
    if not local:
        assert "name it, or a folder with its files, with" in invoke("reread", run).stderr
    if local:
        invoke("reread", run, "--tokenizer", tokenizer, "--benchmark", code)
        assert [path.name for path in fired.iterdir()] == ["code"], "the command names it"


def test_reread_writes_behind_no_link_beside_the_run(runs: Any, invoke: Any) -> None:
    _, run, tokenizer, fired = runs
    assert invoke("reread", run, "--tokenizer", tokenizer).code == 0
    (output,) = run.parent.glob("reread-*")
    shutil.rmtree(output)
    output.symlink_to(fired)
    invoke("reread", run, "--tokenizer", tokenizer).refused("is a symbolic link")
    assert [*fired.iterdir()] == []


@pytest.mark.nightly
@pytest.mark.parametrize("command", ["score", "compact", "report", "compare"])
def test_requests_go_where_the_command_says_and_not_where_a_run_says(
    command: str, s3: Any, tmp_path: Path, invoke: Callable[..., Any], monkeypatch: Any
) -> None:
    with web_server(404, {}, b"") as (thief, requests):
        run = sound_run(tmp_path / "run")
        config = change_manifest(run)["config"]
        change_manifest(run, config=config | {"store": {"endpoint_url": thief, "region": None}})
        uri = f"s3://{s3.bucket}/endpoints-{tmp_path.name}/run"
        store = open_store(uri)
        for path in run.rglob("*"):
            if path.is_file():
                store.put(path.relative_to(run).as_posix(), path.read_bytes())
        more = [str(sound_run(tmp_path / "other" / "run"))] if command == "compare" else []
        invoke(command, uri, *more).ok()
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
        options = ["--endpoint-url", s3.endpoint_url, "--region", "us-east-1"]
        invoke(command, uri, *more, *options).ok()
        assert requests == []


@pytest.mark.parametrize("url", ["http://me:pw-1234567@h", "http://h/?token=abc", "ftp://h", "h"])
def test_an_address_with_a_secret_or_without_http_is_refused(url, invoke) -> None:
    result = invoke("score", "s3://b/run", "--endpoint-url", url)
    result.refused()
    assert "pw-1234567" not in result.stderr
    assert "abc" not in result.stderr


DAMAGED: dict[str, dict[str, Any]] = {
    "benchmark": {"benchmark": "[1]"},
    "id": {"id": "[1]"},
    "raw": answer(raw=None),
    "calls": answer(tool_calls=None),
    "arguments": answer(tool_calls=[{"function": {"name": "f", "arguments": []}}]),
    "tools": answer() | {"tools": '["since_answer"]'},
    "endpoint": answer() | {"endpoint": "[1]"},
    "format": {"format": "x"},
    "kwargs": {"format": {"template_kwargs": []}},
    "date": {"format": {"start_date": "never"}},
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_reread_names_the_damage_in_one_line(damage: str, runs: Any, invoke: Any) -> None:
    _, run, tokenizer, _ = runs
    change = change_manifest if "format" in DAMAGED[damage] else change_rows
    change(run, **DAMAGED[damage])
    result = invoke("reread", run, "--tokenizer", tokenizer)
    result.refused()
    assert result.stdout == ""
