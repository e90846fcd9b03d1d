"""Folders made to do harm: every command ends with a line and an exit code, and no traceback."""

from __future__ import annotations

import resource
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hostile_folders import MUTATIONS, make_run

from ace_ray.run import lease

COMMANDS = ("report", "compare", "score", "compact")
LONGEST_S = 120
"""A command that takes longer hangs; the slowest takes a few seconds."""
MOST_MIB = 1500
"""Memory of this process with matplotlib, pyarrow and what one hostile folder may take."""


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
        return f"{command}: exit code {ended.code} without a word"
    if any(sign in said for sign in "\x1b\x07\u202e\u2028\x9b"):
        return f"{command}: control characters reach the terminal"
    if ended.code == 2 and not ended.stderr.startswith("ace-ray: "):
        return f"{command}: no line of ours: {ended.stderr[:200]}"
    return ""


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_hostile_folder_ends_in_a_line(
    name: str, sound: Path, tmp_path: Path, here: Callable[..., Any]
) -> None:
    faults = []
    for command in COMMANDS:
        folder = tmp_path / command / "run"
        shutil.copytree(sound, folder)
        MUTATIONS[name](folder)
        more = [sound] if command == "compare" else []
        signal.alarm(LONGEST_S)
        try:
            ended = here(command, folder, *more)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            faults.append(f"{command}: {type(error).__name__}: {error}")
        else:
            faults.append(ended_well(command, ended))
        signal.alarm(0)
    assert not any(faults), "\n".join(filter(None, faults))
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    assert most < MOST_MIB, f"{most} MiB"
