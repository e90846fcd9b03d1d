"""Nothing that only a stranger's run folder names is imported, rendered, requested or written.

SECURITY.md lists the names. Here each is a canary: code that leaves a mark, a template that marks
prompts, a server that counts requests, links to a folder whose files must stay as they are."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import ace_ray
from ace_ray.models.answers import Reading
from ace_ray.storage.lease import this_process
from ace_ray.storage.object_store import open_store
from ace_ray.types import ToolAnswer, ToolCall
from ace_ray.viewer.table import Query, RunTable
from tests.pipeline.test_links import contents
from tests.report.read_runs import read_run, toy_model

CODE = """
import pathlib
from ace_ray.benchmarks.base import Benchmark
pathlib.Path({mark!r}).touch()
class Evil(Benchmark):
    name = "evil"
    def entries(self): return []
    def check(self, entry, episode): pass
"""


@dataclass
class Canaries:
    folder: Path
    url: str
    requests: list[str]

    @property
    def mark(self) -> Path:
        return self.folder / "executed"

    def check(self, command: str, victim: dict[str, Any]) -> None:
        assert self.requests == [], f"{command} sent a request"
        assert not self.mark.exists(), f"{command} executed code"
        assert contents(self.folder / "victim") == victim, f"{command} wrote behind a link"
        assert not (self.folder / "written").exists(), f"{command} wrote where the run says"


@pytest.fixture
def canaries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Canaries]:
    requests: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requests.append(f"{self.command} {self.path}")
            self.send_error(404)

        do_POST = do_PUT = do_HEAD = do_GET

        def log_message(self, *_: object) -> None:
            pass

    from huggingface_hub import constants

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "ENDPOINT", url)
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "HF_TOKEN"):
            monkeypatch.setenv(name, "testing")
        (tmp_path / "victim").mkdir()
        (tmp_path / "victim/run.json").write_text("mine")
        (tmp_path / "cwd").mkdir()
        monkeypatch.chdir(tmp_path / "cwd")
        yield Canaries(tmp_path, url, requests)
        server.shutdown()


class Parser:
    """An `AnswerParser` that reads a search in every answer."""

    def __init__(self, *_: object) -> None:
        self.versions: dict[str, Any] = {}

    def __enter__(self) -> Parser:
        return self

    def __exit__(self, *_: object) -> None: ...

    def read(self, answers: list[Any]) -> list[Reading]:
        call = ToolCall("search_engine_query", '{"keywords": "x"}')
        return [Reading("", "", False, ToolAnswer("", (call,))) for _ in answers]


def sections(folder: Path, url: str) -> dict[str, dict[str, Any]]:
    service = {"url": url, "api_key_env": "HF_TOKEN"}
    return {
        "code": {"name": f"{folder}/evil.py:Evil"},
        "services": {
            **{
                "name": "bfcl",
                "mode": "native",
                "categories": ["simple_python", "web_search_base"],
            },
            "embedding": {**service, "model": "m"},
            "web_search": {"search": service, "fetch": service},
        },
    }


def strange_run(canaries: Canaries, own: Path, model: str, section: str) -> Path:
    """Copy the run ``own``; replace every name in the copy by a canary."""
    folder, url = canaries.folder / "theirs", canaries.url
    shutil.copytree(own, run := folder / "run")
    their_model = toy_model(folder / "model")
    settings = json.loads((their_model / "tokenizer_config.json").read_text())
    settings |= {"auto_map": {"AutoTokenizer": ["evil.Evil", None]}, "tokenizer_class": "Evil"}
    (their_model / "tokenizer_config.json").write_text(json.dumps(settings))
    for name in ("evil.py", "model/evil.py"):
        (folder / name).write_text(CODE.format(mark=str(canaries.mark)))
    tree = json.loads((run / "run.json").read_text())
    del tree["entries"]
    tree["config"] |= {
        "benchmarks": [sections(folder, url)[section]],
        "store": {"endpoint_url": url, "region": "us-east-1"},
        "output": str(canaries.folder / "written"),
        "publish": [{"to": "tensorboard", "folder": str(canaries.folder / "written")}],
        "early": {"against": "s3://mine/run"},
        "engine": {"trust_remote_code": True},
    }
    tree["config"]["model"] |= {
        "source": model,
        "adapter": "s3://mine/adapter",
        "plugins": [f"{folder}/evil.py"],
        "chat_template": f"{folder}/evil.py",
    }
    tree["model"]["source"], tree["reread"] = model, {"of": url, "run_id": url, "reader": url}
    tree["format"]["template_kwargs"] = {"chat_template": "evil"}
    (run / "run.json").write_text(json.dumps(tree))
    summary = {"uri": url, "complete": True, "early": {"against": "s3://mine/run", "stopped": True}}
    (run / "summary.json").write_text(json.dumps(summary))
    (run / "lease.json").write_text(json.dumps({**this_process(), "pid": 1 << 40}))
    for part in (run / "rows").glob("*.parquet"):
        rows = pq.read_table(part).to_pylist()
        said = [
            {"role": "user", "content": url},
            {"role": "assistant", "content": "a", "text": "a"},
        ]
        rows[0] |= {"category": "web_search_base", "id": "web_search_base_0"}
        for row in rows:
            row |= {"messages": json.dumps(said), "model_calls": 1}
        pq.write_table(pa.Table.from_pylist(rows, schema=pq.read_schema(part)), part)
    for name in ("files", "results"):
        (run / name).symlink_to(canaries.folder / "victim")
    return run


def commands(
    canaries: Canaries, own: Path, run: Path, tokenizer: Path
) -> Iterator[tuple[Any, ...]]:
    policy, config = (canaries.folder / f"{name}.yaml" for name in ("policy", "config"))
    policy.write_text("metrics: [{benchmark: bfcl, at_least: 0.5}]")
    tree = {"model": {"source": "none"}, "backend": "fake", "benchmarks": ["acebench"]}
    config.write_text(json.dumps({**tree, "output": str(run.parent), "run_id": run.name}))
    yield ("show", run)
    yield ("score", run)
    yield ("compare", own, run, "--allow-different", "--flips")
    yield ("compare", own, run, "--explain")
    yield ("gate", policy, run, "--against", own)
    yield ("report", run)
    for form in ("inspect", "lm-eval", "hf"):
        yield ("export", run, "--to", form, *(("--dataset", "o/d") if form == "hf" else ()))
    yield ("publish", run, "--to", "tensorboard")
    yield ("reread", run)
    yield ("reread", run, "--tokenizer", tokenizer)
    yield ("compact", run)
    yield ("evaluate", config, "--plan")
    yield ("doctor", config)


@pytest.mark.parametrize(
    ("model", "section"),
    [("s3://mine/model", "code"), ("strange/model", "services"), ("theirs/model", "services")],
    ids=["s3", "hub", "folder"],
)
def test_no_name_in_a_strangers_run_is_followed(
    model: str, section: str, canaries: Canaries, here: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ace_ray.pipeline.reread.AnswerParser", Parser)
    tokenizer = toy_model(canaries.folder / "tokenizer")
    own = read_run(canaries.folder / "own/run", tokenizer, "hermes", categories=["simple_python"])
    source = str(canaries.folder / model) if section == "services" and "theirs" in model else model
    run = strange_run(canaries, own, source, section)
    victim = contents(canaries.folder / "victim")
    for words in commands(canaries, own, run, tokenizer):
        ended = here(*words)
        name = " ".join(map(str, words))
        canaries.check(name, victim)
        assert "Traceback" not in ended.stderr, name
    opened = ace_ray.Run.open(str(run))
    assert (opened.status, opened.rows().num_rows > 0) == ("complete", True)
    assert [*opened.episodes()]
    table, mine = (RunTable(open_store(str(folder))) for folder in (run, own))
    assert table.select(Query(cause="prompt", text="http"), mine)
    canaries.check("view", victim)
    if section == "code":
        local = f"{run.parent}/evil.py:Evil"
        here("reread", run, "--tokenizer", tokenizer, "--benchmark", local)
        assert canaries.mark.exists(), "code that the command names runs"


@pytest.fixture
def rereadable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Return a run and its tokenizer."""
    monkeypatch.setattr("ace_ray.pipeline.reread.AnswerParser", Parser)
    tokenizer = toy_model(tmp_path / "tokenizer")
    run = tmp_path / "theirs/run"
    return read_run(run, tokenizer, "hermes", categories=["simple_python"]), tokenizer


def test_reread_writes_behind_no_link_beside_the_run(
    rereadable: tuple[Path, Path], tmp_path: Path, here: Any
) -> None:
    run, tokenizer = rereadable
    assert here("reread", run, "--tokenizer", tokenizer).code == 0
    (made,) = run.parent.glob("reread-*")
    shutil.rmtree(made)
    victim = tmp_path / "victim"
    victim.mkdir()
    made.symlink_to(victim)
    ended = here("reread", run, "--tokenizer", tokenizer)
    assert (ended.code, [*victim.iterdir()]) == (2, [])
    assert "is a symbolic link" in ended.stderr


def said(**keys: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": "a", "text": "b", **keys}
    return {"messages": json.dumps([message]), "model_calls": 1}


DAMAGED: dict[str, dict[str, Any]] = {
    "benchmark": {"benchmark": "[1]"},
    "id": {"id": "[1]"},
    "raw": said(raw=None),
    "calls": said(tool_calls=None),
    "arguments": said(tool_calls=[{"function": {"name": "f", "arguments": []}}]),
    "tools": said() | {"tools": '["since_answer"]'},
    "tool": said() | {"tools": '[{"function": null}]'},
    "endpoint": said() | {"endpoint": "[1]"},
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_reread_names_a_damaged_row_in_one_line(
    damage: str, rereadable: tuple[Path, Path], here: Any
) -> None:
    run, tokenizer = rereadable
    for part in (run / "rows").glob("*.parquet"):
        rows = pq.read_table(part).to_pylist()
        rows[0] |= DAMAGED[damage]
        pq.write_table(pa.Table.from_pylist(rows, schema=pq.read_schema(part)), part)
    ended = here("reread", run, "--tokenizer", tokenizer)
    said = ended.stdout + ended.stderr
    assert (ended.code, len(said.strip().splitlines())) == (2, 1), said


@pytest.mark.parametrize(
    "stored",
    ["x", {"template_kwargs": []}, {"start_date": "never"}, {"tool_parser": 1}],
    ids=["text", "kwargs", "date", "parser"],
)
def test_a_damaged_format_is_named_in_one_line(
    stored: Any, rereadable: tuple[Path, Path], here: Any
) -> None:
    run, tokenizer = rereadable
    tree = json.loads((run / "run.json").read_text()) | {"format": stored}
    (run / "run.json").write_text(json.dumps(tree))
    for words in (("reread", run, "--tokenizer", tokenizer), ("show", run)):
        ended = here(*words)
        assert (ended.code, len(ended.stderr.strip().splitlines())) == (2, 1), ended.stderr
