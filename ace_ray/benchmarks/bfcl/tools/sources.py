"""Load the tool classes from the user's copy of bfcl-eval, as private modules
(`ace_ray.sandbox.private_modules`). The modules can import each other, and what `standins` lists.

The classes run only if they equal the published package's classes (`OFFICIAL_TOOLS_SHA256`), or if
the user named the copy in the command."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from ace_ray.benchmarks.bfcl.data.upstream_package import (
    SHARED_TOOL_MODULES,
    TOOL_FOLDER,
    TOOL_MODULES,
    VERSION,
    UpstreamPackage,
)
from ace_ray.benchmarks.bfcl.tools.mini_tools import CLASSES
from ace_ray.benchmarks.bfcl.tools.standins import NAMES, STAND_INS
from ace_ray.errors import UserError
from ace_ray.sandbox.private_modules import PrivateModules
from ace_ray.types import digest

_PREFIX = "bfcl_eval.eval_checker.multi_turn_eval.func_source_code."
# `ToolSources.sha256` of the published package.
OFFICIAL_TOOLS_SHA256 = "c770f1f5c9527949e9b737b117f79f507ce4636b0a5715314f727ee4e3ed7397"
_FIX = "give a complete copy of bfcl-eval"
_LOCK = threading.RLock()
_LOADED: dict[tuple[str, bool], PrivateModules] = {}


@dataclass(frozen=True, slots=True)
class ToolSources:
    """The source text of each module; picklable. Empty for the mini set (see `own`)."""

    texts: Mapping[str, str] = field(default_factory=dict)
    location: str = "mini"
    """Name of the copy, for error messages."""
    sha256: str = ""
    named: bool = False
    """True if the user named the copy in this command; False if only a stored run names it."""


def tool_sources(package: UpstreamPackage) -> ToolSources:
    """Read the sources of all classes in ``package``.

    Raises:
        UserError: a file is missing or not UTF-8."""
    if package.is_mini:
        return ToolSources()
    texts = {}
    for module in (*TOOL_MODULES.values(), *SHARED_TOOL_MODULES):
        try:
            texts[module] = package.read(f"{TOOL_FOLDER}/{module}.py").decode("utf-8")
        except UnicodeDecodeError as error:
            location = f"{package.name}: {TOOL_FOLDER}/{module}.py"
            raise UserError(f"is not UTF-8 ({error.reason})", where=location, fix=_FIX) from error
    return ToolSources(texts, package.name, digest(sorted(texts.items())))


def require_allowed(sources: ToolSources) -> None:
    """Raise `UserError` if ``sources`` must not run: they differ from the published sources, and
    the user did not name the copy in the command."""
    is_known = not sources.texts or digest(sorted(sources.texts.items())) == OFFICIAL_TOOLS_SHA256
    if not (sources.named or is_known):
        raise UserError(
            f"the classes in {TOOL_FOLDER} differ from bfcl-eval {VERSION}, and only the stored run"
            " names this copy, so ace_ray does not run the classes",
            where=sources.location,
            fix="score the run with --data and a copy that you trust",
        )


def load_class(sources: ToolSources, name: str) -> type[Any]:
    """Return the class ``name`` of ``sources``. Its module is loaded once per process.

    Raises:
        UserError: there is no such class, its module does not load, or it must not run."""
    if not sources.texts:
        if name not in CLASSES:
            fix = "write data: installed, or the path of a copy of bfcl-eval"
            raise UserError(f"the mini set has no tool class {name}", where="data", fix=fix)
        return CLASSES[name]
    module = TOOL_MODULES.get(name, "")
    tool_class = vars(_load(sources, module)).get(name) if module in sources.texts else None
    if not isinstance(tool_class, type):
        raise UserError(f"has no class {name}", where=sources.location, fix=_FIX)
    return tool_class


def _load(sources: ToolSources, name: str) -> ModuleType:
    key = (sources.sha256, sources.named)
    with _LOCK:
        if key not in _LOADED:
            require_allowed(sources)
            _LOADED[key] = PrivateModules(
                sources.texts,
                place=lambda module: f"{sources.location}: {TOOL_FOLDER}/{module}.py",
                package=_PREFIX,
                names=NAMES,
                stand_ins=STAND_INS,
                prefix="bfcl_tools",
                fix=_FIX,
            )
    return _LOADED[key].load(name)
