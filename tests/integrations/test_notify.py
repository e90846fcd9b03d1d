"""A document about each finished checkpoint reaches its receiver once, and never fails a sweep."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ace_ray.errors import UserError
from ace_ray.integrations import notify as module
from ace_ray.integrations.notify import check_notify, document_of, notify
from ace_ray.storage.object_store import LocalStore
from ace_ray.sweep.config import NotifyConfig, load_sweep
from ace_ray.sweep.ledger import CostRecord, ledger_lines
from ace_ray.sweep.sweep import Sweep
from tests.report.builders import change_manifest, full_rows, sweep_of
from tests.scripted_endpoint import Scripted, scripted_endpoint

TOKEN = "tok-0123456789"


class EndedSweep:
    """A sweep whose runs have ended, as `notify` reads it."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.store, self.uri, self.sweep_id = LocalStore(str(folder)), str(folder), "s"
        self.cost_records = ledger_lines(self.store)
        self.options = SimpleNamespace(notify=NotifyConfig(**options))

    def send(self) -> None:
        notify(self)  # type: ignore[arg-type]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return sweep_of(tmp_path / "sweep", {100: full_rows(2), 200: full_rows(5)})


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(module, "BACKOFF_S", (0.0, 0.0))
    with scripted_endpoint() as scripted:
        yield scripted


def test_a_document_has_headlines_and_the_comparison_with_the_step_before(folder: Path) -> None:
    store = LocalStore(str(folder))
    lines = ledger_lines(store)
    first, second = (document_of(store, line, lines) for line in lines)
    assert (first["step"], first["state"], first["comparison"]) == (100, "complete", None)
    assert second["rows"]["not_evaluated"] == 0
    assert second["folder"] == f"{folder}/run-step_200"
    headline = second["headlines"][0]
    assert (headline["benchmark"], headline["rules"]) == ("acebench", "official")
    assert headline["interval"][0] < headline["value"] <= headline["interval"][1]
    comparison = second["comparison"]
    assert (comparison["with"], comparison["step"]) == ("step_100", 100)
    difference = comparison["headlines"][0]
    assert difference["low"] <= difference["difference"] <= difference["high"]
    assert difference["difference"] > 0


def test_a_failed_run_and_a_run_that_cannot_be_compared_say_why(folder: Path) -> None:
    store = LocalStore(str(folder))
    lines = ledger_lines(store)
    failed = CostRecord("step_300", 300, "c", "", state="failed", note="no weights", rows_left=7)
    document = document_of(store, failed, [*lines, failed])
    assert (document["note"], document["rows"]["not_evaluated"]) == ("no weights", 7)
    assert (document["headlines"], document["comparison"], document["folder"]) == ([], None, None)
    identity = change_manifest(folder / "run-step_200")["identity"]
    identity["sampling"][0]["temperature"] = 0.9
    change_manifest(folder / "run-step_200", identity=identity)
    comparison = document_of(store, lines[1], lines)["comparison"]
    assert "the runs differ in conditions" in comparison["refused"]


def test_each_run_is_sent_once_with_the_token_of_the_environment(folder, receiver, monkeypatch):
    monkeypatch.setenv("TOKEN", f"{TOKEN}\n")
    monkeypatch.setenv("HOOK", receiver.url)
    sweep = EndedSweep(folder, url_env="HOOK", token_env="TOKEN")
    sweep.send()
    EndedSweep(folder, url_env="HOOK", token_env="TOKEN").send()
    assert [document["step"] for document in receiver.requests] == [100, 200]
    assert {headers["Authorization"] for headers in receiver.headers} == {f"Bearer {TOKEN}"}
    assert TOKEN not in "".join(path.read_text() for path in folder.glob("*.json"))


@pytest.mark.parametrize(
    ("status", "attempts"), [(503, 3), (429, 3), (401, 1)], ids=["down", "busy", "refused"]
)
def test_a_refused_document_is_a_warning_and_is_sent_later(
    folder: Path, receiver: Scripted, log_lines: list[str], status: int, attempts: int
) -> None:
    receiver.answer = lambda body: (status, "no")
    EndedSweep(folder, url=receiver.url).send()
    assert len(receiver.requests) == attempts
    reason = f"the receiver answered with {status}"
    assert log_lines == [f"notify: step_100 is not delivered yet: {reason}"]
    receiver.answer = lambda body: (204, "")
    EndedSweep(folder, url=receiver.url).send()
    assert [document["step"] for document in receiver.requests[attempts:]] == [100, 200]


def test_a_receiver_that_is_away_is_a_warning_without_its_secret_url(
    folder: Path, receiver: Scripted, log_lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOOK", "http://127.0.0.1:9/hook-12345")
    EndedSweep(folder, url_env="HOOK").send()
    (line,) = log_lines
    assert line.startswith("notify: step_100 is not delivered yet: ")
    assert "hook-12345" not in line


def test_a_command_gets_the_document_on_stdin(folder, tmp_path, receiver, log_lines) -> None:
    out = tmp_path / "out.jsonl"
    code = "import json,sys; open(sys.argv[1],'a').write(json.dumps(json.load(sys.stdin))+'\\n')"
    EndedSweep(folder, command=[sys.executable, "-c", code, str(out)]).send()
    steps = [json.loads(line)["step"] for line in out.read_text().splitlines()]
    assert (steps, log_lines) == ([100, 200], [])
    (folder / module.SENT).unlink()
    EndedSweep(folder, command=[sys.executable, "-c", "import sys; sys.exit('no disk')"]).send()
    assert log_lines == ["notify: step_100 is not delivered yet: the command ended with 1: no disk"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "needs one of url, url_env and command"),
        ({"url": "http://h", "command": ["true"]}, "needs one of"),
        ({"url": "ftp://h"}, "it is not an http"),
        ({"url_env": "UNSET"}, "environment variable UNSET is not set"),
        ({"url": "http://h", "token_env": "UNSET"}, "environment variable UNSET is not set"),
    ],
    ids=["nothing", "two", "scheme", "no url", "no token"],
)
def test_a_wrong_receiver_is_refused_before_the_sweep(options: Any, words: str) -> None:
    with pytest.raises(UserError, match=words):
        check_notify(NotifyConfig(**options))


def test_a_secret_url_is_refused_and_notify_keeps_the_sweep_id(config_file: Any) -> None:
    plain = str(config_file(model={}, models=[{"source": "a"}]))
    ids = [Sweep(load_sweep(plain, more)).sweep_id for more in ((), ["notify.url=http://h/x"])]
    assert ids[0] == ids[1]
    with pytest.raises(UserError, match="contains a key in its query"):
        load_sweep(plain, ["notify.url=http://h/x?token=abcdef0123456789"])
