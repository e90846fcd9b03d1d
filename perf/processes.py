"""The processes of a running driver, by what they do: found among its descendants only."""

from __future__ import annotations

import psutil

TITLES = {
    "engine": "(EngineWorker)",
    "checker": "(Checker)",
    "writer": "(Writer)",
    "sandbox": "ray::SandboxActor",
    "coordinator": "ray::Coordinator",
    "core": "EngineCore",
}
"""Kind -> part of its process title. ``core`` is vLLM's, a child of an engine worker."""
SPAWNED = "multiprocessing.spawn"
"""In the title of a core that has not given itself one: vLLM does where setproctitle is there."""

_NAMES = {"raylet": "raylet", "gcs_server": "gcs"}


def family(pid: int) -> dict[str, list[psutil.Process]]:
    """Kind -> processes, oldest first; those of no kind are ``other``."""
    found: dict[str, list[psutil.Process]] = {}
    try:
        children = psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return found
    for process in children:
        try:
            found.setdefault(kind(process), []).append(process)
        except psutil.Error:
            continue
    return {name: sorted(group, key=psutil.Process.create_time) for name, group in found.items()}


def kind(process: psutil.Process) -> str:
    if (name := process.name()) in _NAMES:
        return _NAMES[name]
    title = " ".join(process.cmdline())
    if SPAWNED in title and (parent := process.parent()) and kind(parent) == "engine":
        return "core"
    return next((found for found, part in TITLES.items() if part in title), "other")


def end(process: psutil.Process) -> bool:
    """SIGKILL, if it still runs. psutil tells it from another one with the same id."""
    try:
        if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
            process.kill()
            return True
    except psutil.Error:
        pass
    return False
