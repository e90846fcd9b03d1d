"""The floors: an import goes down, never up, never sideways between benchmarks.

One door for each heavy dependency, so that most of the package runs without it.
"""

from __future__ import annotations

import ast
import graphlib
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "ace_ray"
FLOORS = [
    {"errors", "util", "types", "config", "storage.object_store"},
    {"parsing", "integrations.trackers", "models", "cluster"},
    {"sandbox"},
    {"benchmarks"},
    {"early_stopping", "storage"},
    {"pipeline"},
    {"sweep"},
    {"reports"},
    {"viewer"},
    {"integrations"},
    {"api"},
    {"cli"},
]
FLOOR = {room: level for level, rooms in enumerate(FLOORS) for room in rooms}
DOORS = {
    "vllm": {"models"},
    "torch": {"models"},
    "transformers": {"models"},
    "huggingface_hub": {"models"},
    "ray": {"cluster", "pipeline", "sandbox", "sweep"},
    "aiohttp": {"models"},
    "jinja2": {"models", "reports", "viewer"},
    "markupsafe": {"reports"},
    "scipy": {"reports"},
    "boto3": {"storage.object_store"},
    "botocore": {"storage.object_store"},
    "pyarrow.fs": {"storage.object_store"},
    "tensorboard": {"integrations.trackers"},
    "trackio": {"integrations.trackers"},
    "wandb": {"integrations.trackers"},
    "mlflow": {"integrations.trackers"},
}
MODULES = sorted(PACKAGE.rglob("*.py"))


def room_of(module: str) -> str:
    """Return the room of a module (``ace_ray.pipeline.planning.plan`` -> ``pipeline``).

    The room of the package itself is "". Some parts of a room have a floor of their own.
    """
    parts = module.split(".")
    part = ".".join(parts[1:3])
    return part if part in FLOOR else [*parts, ""][1]


def name_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


@cache
def imports(path: Path) -> list[str]:
    """Every module that ``path`` imports, inside functions too; ``from a import b`` as ``a.b``."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            found += [f"{node.module}.{alias.name}" for alias in node.names]
    return found


def within(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


def test_an_import_goes_down_and_a_heavy_dependency_has_one_door() -> None:
    wrong = []
    for path in MODULES:
        module, room = name_of(path), room_of(name_of(path))
        assert not room or room in FLOOR, f"{room} has no floor: give it one here and in the docs"
        for target in imports(path):
            doors = [rooms for package, rooms in DOORS.items() if within(target, package)]
            if not all(room in rooms for rooms in doors) or not goes_down(room, target):
                wrong.append(f"{module} imports {target}")
    assert not wrong


def goes_down(room: str, target: str) -> bool:
    there = room_of(target)
    if not within(target, "ace_ray") or there in ("__version__", ""):
        return True
    if not room:  # ace_ray/__init__.py: names for type checkers
        return there in ("api", "errors", "pipeline")
    return FLOOR[there] <= FLOOR[room]


@pytest.mark.nightly
def test_no_import_goes_round() -> None:
    """Not inside functions either, nor for types."""
    modules = {name_of(path): path for path in MODULES}
    graph: dict[str, set[str]] = {}
    for module, path in modules.items():
        targets = {t.rpartition(".")[0] if t not in modules else t for t in imports(path)}
        graph[module] = targets & modules.keys() - {module, "ace_ray"}
    graphlib.TopologicalSorter(graph).prepare()  # raises what goes round


@pytest.mark.nightly
def test_one_module_does_statistics() -> None:
    """Whoever checks how a p-value came about reads one file."""
    users = [
        name_of(path)
        for path in MODULES
        if any(within(target, p) for target in imports(path) for p in ("scipy",))
    ]
    assert users == ["ace_ray.reports.significance"]


def test_benchmarks_do_not_know_each_other() -> None:
    folder = PACKAGE / "benchmarks"
    names = {path.parent.name for path in folder.glob("*/__init__.py")}
    assert "acebench" in names
    for path in MODULES:
        module = name_of(path)
        mine = next((n for n in names if within(module, f"ace_ray.benchmarks.{n}")), None)
        if mine is None:
            continue
        for target in imports(path):
            for other in names - {mine}:
                assert not within(target, f"ace_ray.benchmarks.{other}"), f"{module}: {target}"


@pytest.mark.nightly
@pytest.mark.parametrize(
    "module",
    [
        "ace_ray.cli.main",
        "ace_ray.storage.object_store",
        "ace_ray.models.sources",
        "ace_ray.pipeline.doctor",
        "ace_ray.pipeline.evaluate",
        "ace_ray.reports.report",
        "ace_ray.sweep.sweep",
        "ace_ray.benchmarks.acebench.benchmark",
    ],
)
def test_what_needs_no_engine_loads_none(module: str) -> None:
    heavy = {"vllm", "torch", "transformers", "ray", "boto3", "jinja2"}
    heavy |= {"scipy", "tensorboard", "trackio", "wandb", "mlflow"}
    script = f"import sys, {module}; print(*sorted({heavy!r} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == []
