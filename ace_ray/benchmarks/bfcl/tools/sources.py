"""The classes behind the tools: the source texts of the user's own copy, loaded as private modules
(`ace_ray.sandbox.private_modules`) that import each other and what `standins` allows.

They run only when this project knows each file (`KNOWN_SHA256`), or the user named the copy in the
command.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from ace_ray.benchmarks.bfcl.data.upstream_package import (
    SHARED_TOOL_MODULES,
    TOOL_FOLDER,
    TOOL_MODULES,
    UpstreamPackage,
)
from ace_ray.benchmarks.bfcl.tools.own import CLASSES
from ace_ray.benchmarks.bfcl.tools.standins import NAMES, STAND_INS
from ace_ray.errors import UserError
from ace_ray.records import digest
from ace_ray.sandbox.private_modules import PrivateModules

_PREFIX = "bfcl_eval.eval_checker.multi_turn_eval.func_source_code."
_FIX = "give a complete copy of bfcl-eval"
_LOCK = threading.RLock()
_LOADED: dict[tuple[str, bool], PrivateModules] = {}


@dataclass(frozen=True, slots=True)
class ToolSources:
    """The source text of each module; picklable. Empty for the mini set (see `own`)."""

    texts: Mapping[str, str] = field(default_factory=dict)
    where: str = "mini"
    """The copy they are from, for errors."""
    sha256: str = ""
    named: bool = False
    """Whether the user named the copy in this command, and not only a stored run did."""


def tool_sources(package: UpstreamPackage) -> ToolSources:
    """The sources of all classes in ``package``.

    Raises:
        UserError: a file is missing or no UTF-8.
    """
    if package.is_mini:
        return ToolSources()
    texts = {}
    for module in (*TOOL_MODULES.values(), *SHARED_TOOL_MODULES):
        try:
            texts[module] = package.read(f"{TOOL_FOLDER}/{module}.py").decode("utf-8")
        except UnicodeDecodeError as error:
            place = f"{package.name}: {TOOL_FOLDER}/{module}.py"
            raise UserError(f"is no UTF-8 ({error.reason})", where=place, fix=_FIX) from error
    return ToolSources(texts, package.name, digest(sorted(texts.items())))


def require_allowed(sources: ToolSources) -> None:
    """Raise `UserError` for sources that must not run: some file is not known here, and it was not
    the user who named them."""
    strange = [] if sources.named else _unknown(sources.texts)
    if strange:
        raise UserError(
            f"{TOOL_FOLDER}/{strange[0]}.py is not a file of bfcl-eval that ace_ray knows, and"
            " only the stored run names it; it is not run",
            where=sources.where,
            fix="score the run with --data and a copy that you trust",
        )


def load_class(sources: ToolSources, name: str) -> type[Any]:
    """The class ``name`` of ``sources``, loaded once a process.

    Raises:
        UserError: there is no such class, its module does not load, or it must not run here.
    """
    if not sources.texts:
        if name not in CLASSES:
            raise UserError(
                f"the mini set has no class {name}",
                where="data",
                fix="write data: installed, or the path of a copy of bfcl-eval",
            )
        return CLASSES[name]
    module = TOOL_MODULES.get(name, "")
    tool_class = vars(_load(sources, module)).get(name) if module in sources.texts else None
    if not isinstance(tool_class, type):
        raise UserError(f"has no class {name}", where=sources.where, fix=_FIX)
    return tool_class


def _load(sources: ToolSources, name: str) -> ModuleType:
    key = (sources.sha256, sources.named)
    with _LOCK:
        if key not in _LOADED:
            require_allowed(sources)
            _LOADED[key] = PrivateModules(
                sources.texts,
                place=lambda module: f"{sources.where}: {TOOL_FOLDER}/{module}.py",
                module_of=lambda wanted: (
                    wanted.removeprefix(_PREFIX) if wanted.startswith(_PREFIX) else None
                ),
                names=NAMES,
                stand_ins=STAND_INS,
                prefix="bfcl_tools",
                fix=_FIX,
            )
    return _LOADED[key].load(name)


KNOWN_SHA256: Mapping[str, str] = {
    "gorilla_file_system": "84173750930b09aaa31b90547c9bd79ce75714682608b35e78a9c1ea259faf2b",
    "long_context": "5c9a5710115609c779e5b2ccb43f6ad58271ed96f2ea7a797edb0d65c385aa38",
    "math_api": "abde32cc25e71b2ff3acf4d028a3c005b98409c174aba4abddbfe1c018afb9a8",
    "memory_api_metaclass": "5b924c2482797fa2055c4c606788db517470d0a65d1a64c97f21bceb5f820611",
    "memory_kv": "7be11ccae7741e07fcd7a2fc6664cad556357a047453db68db9e11bfec6c0ca7",
    "memory_rec_sum": "e5a08f4183ab2c14a330eb3db1aca5e13533e0ffe70ce1c424851944295b898c",
    "memory_vector": "489df326a8fc6e19270d6a349c8c3434f4bdcb360050d7ac17596eeb4da03a54",
    "message_api": "cf72af1635654147af17df1891a7fb354549e78a61930139f741a31f4be21121",
    "posting_api": "32b887aaa37c7167ad9c84ddfa7bbb855c75d3c1edab19ba868aba29acc4cfa1",
    "ticket_api": "6a9375aa6425410c07a151aef27f3e44e9ed1023bb5cc5c25f14f4a9b3c99116",
    "trading_bot": "cc2e3949035b561e9d07418b081561aa07b211672200e2e511aec074bf79fcb2",
    "travel_booking": "e698e22adccf0d6d41b297f2d5e44faebd828cef4752df6a4ffb1570c0c35296",
    "vehicle_control": "f5f7a2f28968728927a98ae12ec68a32d70781cfb74c2d7b14801772362b12d1",
}
"""SHA-256 (hex) of each module's file in bfcl-eval 2026.3.23."""


def _unknown(texts: Mapping[str, str]) -> list[str]:
    """The modules whose text (UTF-8) is not a known one."""
    return [
        name
        for name, text in texts.items()
        if hashlib.sha256(text.encode("utf-8")).hexdigest() != KNOWN_SHA256.get(name)
    ]
