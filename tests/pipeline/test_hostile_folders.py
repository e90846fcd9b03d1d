"""Folders made to do harm: every command ends with a line and an exit code, and no traceback."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ace_ray.errors import UserError
from ace_ray.storage import lease
from ace_ray.storage.object_store import LocalStore
from ace_ray.sweep.ledger import cost_record, read_ledger, still_valid
from ace_ray.sweep.runs import is_finished
from tests.pipeline.hostile_folders import MUTATIONS, make_run

COMMANDS = ("report", "compare", "score", "compact")
LONGEST_S = 600
"""A command that takes longer hangs; the slowest takes a few seconds."""


def test_there_are_enough() -> None:
    assert len(MUTATIONS) >= 230


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("sound") / "run")


@pytest.fixture(autouse=True)
def no_hang(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(lease, "TTL_S", 0.2)

    def ring(*_: Any) -> None:
        raise AssertionError(f"a command hangs for {LONGEST_S} s")

    before = signal.signal(signal.SIGALRM, ring)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def ended_well(command: str, ended: Any) -> str:
    """Why it has not, "" where it has."""
    said = ended.stdout + ended.stderr
    if "Traceback" in said:
        return f"{command}: a traceback: {said[-400:]}"
    if ended.code not in (0, 1, 2, 75):
        return f"{command}: exit code {ended.code}"
    if ended.code and not ended.stderr.strip() and not said.strip():
        return f"{command}: exit code {ended.code} without a message"
    if any(sign in said for sign in "\x1b\x07\u202e\u2028\x9b"):
        return f"{command}: control characters reach the terminal"
    if ended.code == 2 and "ace-ray: " not in ended.stderr:
        return f"{command}: no line of ours: {ended.stderr[:200]}"
    return ""


NAMES = list(MUTATIONS)
EVERY = int(os.environ.get("HOSTILE_FOLDERS_EVERY", "12"))
"""One folder in so many is tried, with one command each; 1: all of them, with all commands (an hour
on one core)."""


def tried() -> list[tuple[str, str]]:
    """(mutation, command)"""
    if EVERY == 1:
        return [(name, command) for name in NAMES for command in COMMANDS]
    return [(name, COMMANDS[at % 4]) for at, name in enumerate(NAMES[::EVERY])]


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "command"), tried())
def test_a_hostile_folder_ends_in_a_line(
    name: str, command: str, sound: Path, tmp_path: Path, here: Callable[..., Any]
) -> None:
    assert not ended_by(name, command, sound, tmp_path, here)


def ended_by(name: str, command: str, sound: Path, tmp_path: Path, here: Callable[..., Any]) -> str:
    """What is wrong with how ``command`` ended, "" for nothing."""
    folder = tmp_path / "run"
    shutil.copytree(sound, folder)
    MUTATIONS[name](folder)
    signal.alarm(LONGEST_S)
    try:
        return ended_well(command, here(command, folder, *([sound] * (command == "compare"))))
    finally:
        signal.alarm(0)


SWEEP_FILES = ("sweep.json", "ledger.json")
BAD_JSON = [
    b"", b"{", b"[]", b"7", b"null", b"\xff\x00", b"[" * 50_000, b'{"a":' * 50_000,
    b'{"schema_version": 1, "runs": [{"run_id": "../../x", "label": "a", "state": "complete"}]}',
    b'{"schema_version": 1, "runs": [7], "steps": [[]], "identity": [1]}',
    b'{"schema_version": NaN, "runs": {}, "identity": {"a": 1e999}}',
    b'{"schema_version": 1, "runs": [' + b"{}," * 10_000 + b"{}]}",
]  # fmt: skip


@pytest.mark.parametrize("content", BAD_JSON)
@pytest.mark.parametrize("name", SWEEP_FILES)
def test_a_hostile_sweep_ends_in_a_line(
    name: str, content: bytes, tmp_path: Path, here: Callable[..., Any]
) -> None:
    for file in SWEEP_FILES:
        (tmp_path / file).write_bytes(content if file == name else b'{"schema_version": 1}')
    ended = here("report", tmp_path)
    assert ended.code == 2
    assert not ended_well("report", ended)
    # What a sweep that goes on reads: a ledger that is none is made anew.
    store = LocalStore(str(tmp_path))
    lines, steps = read_ledger(store)
    assert not any("/" in line.run_id for line in still_valid(lines, [], store))
    assert all(isinstance(step, int) for step in steps)


@pytest.mark.nightly
@pytest.mark.parametrize("name", [n for n in NAMES if n.startswith(("run.json", "summary.json"))])
def test_readers_of_a_sweep_take_any_run(name: str, sound: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(sound, folder)
    MUTATIONS[name](folder)
    run = SimpleNamespace(
        label="x", step=1, source="s", run_id="run", parameters=None, refused="", awaited="",
        plan=SimpleNamespace(run_id="run", identity={}, config=SimpleNamespace(early=None)),
    )  # fmt: skip
    store = LocalStore(str(tmp_path))
    # What cannot be read at all, such as a folder in place of a file, is a user's mistake.
    with suppress(UserError):
        line = cost_record(cast(Any, run), store, price_per_hour=1.0)
        assert line.state in ("pending", "complete", "incomplete")
        assert not is_finished(store, cast(Any, run.plan))
