"""Imports go down the list of rooms, and each heavy dependency has its rooms."""

import ast
import graphlib
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "ace_ray"
FLOORS = [
    {"errors", "util", "types"},
    *({room} for room in ("config", "storage", "parsing", "models", "sandbox", "benchmarks")),
    *({room} for room in ("early_stopping", "cluster", "pipeline", "rescoring", "sweep")),
    *({room} for room in ("reports", "viewer", "integrations", "api", "cli")),
]
FLOOR = {room: level for level, rooms in enumerate(FLOORS) for room in rooms}
USERS = {
    **dict.fromkeys(("vllm", "torch", "transformers", "huggingface_hub", "aiohttp"), ("models",)),
    **dict.fromkeys(("boto3", "botocore", "pyarrow.fs"), ("storage",)),
    **dict.fromkeys(("tensorboard", "trackio", "wandb", "mlflow"), ("integrations",)),
    **dict.fromkeys(("markupsafe", "scipy"), ("reports",)),
    "ray": ("cluster", "pipeline", "sandbox", "sweep"),
    "jinja2": ("models", "reports", "viewer"),
    "bm25s": ("benchmarks",),
}
"""Heavy dependency -> the rooms that may import it."""


def name_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


MODULES = {name_of(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def room_of(module: str) -> str:
    """Return the room of a module (``ace_ray.pipeline.planning.plan`` -> ``pipeline``), "" for the
    package."""
    return [*module.split("."), ""][1]


@cache
def imports(module: str) -> list[str]:
    """Return all imports of a module, inside functions too; ``from a import b`` as ``a.b``."""
    names = []
    for node in ast.walk(ast.parse(MODULES[module].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}:{node.lineno}: relative import"
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names


def within(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


def goes_down(room: str, target: str) -> bool:
    target_room = room_of(target)
    if not within(target, "ace_ray") or target_room in ("__version__", ""):
        return True
    if not room:  # ace_ray/__init__.py: names for type checkers
        return target_room in ("api", "errors", "pipeline")
    return FLOOR[target_room] <= FLOOR[room]


def test_imports_go_down_and_heavy_dependencies_have_their_rooms() -> None:
    benchmarks = {path.parent.name for path in PACKAGE.glob("benchmarks/*/__init__.py")}
    assert "acebench" in benchmarks
    wrong = []
    for module in MODULES:
        room = room_of(module)
        assert not room or room in FLOOR, f"{room} has no floor: give it one here and in the docs"
        mine = next((n for n in benchmarks if within(module, f"ace_ray.benchmarks.{n}")), None)
        siblings = {f"ace_ray.benchmarks.{name}" for name in benchmarks - {mine}} if mine else ()
        for target in imports(module):
            rooms = [rooms for package, rooms in USERS.items() if within(target, package)]
            sideways = any(within(target, sibling) for sibling in siblings)
            if not all(room in r for r in rooms) or not goes_down(room, target) or sideways:
                wrong.append(f"{module} imports {target}")
            if within(target, "scipy") and module != "ace_ray.reports.significance":
                wrong.append(f"{module} does statistics")
    assert not wrong


def test_there_is_no_import_cycle() -> None:
    graph: dict[str, set[str]] = {}
    for module in MODULES:
        targets = {t if t in MODULES else t.rpartition(".")[0] for t in imports(module)}
        graph[module] = targets & MODULES.keys() - {module, "ace_ray"}
    graphlib.TopologicalSorter(graph).prepare()
