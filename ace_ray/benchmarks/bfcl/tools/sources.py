"""The classes behind the tools: the source texts of the user's own copy, loaded as private
modules.

The package itself is never imported and ``sys.modules`` never changed: the texts are compiled once
a process, import each other through an importer of their own, see `standins` for what needs other
packages, and have no builtin that opens files or runs text.
"""

from __future__ import annotations

import builtins
import importlib
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Literal, Protocol

from ace_ray.benchmarks.bfcl.tools.own import CLASSES
from ace_ray.benchmarks.bfcl.tools.standins import STAND_INS
from ace_ray.errors import UserError
from ace_ray.records import digest

FOLDER = "eval_checker/multi_turn_eval/func_source_code"
"""Where upstream's package keeps the classes."""
MODULES: Mapping[str, str] = {
    "GorillaFileSystem": "gorilla_file_system",
    "MathAPI": "math_api",
    "MessageAPI": "message_api",
    "TwitterAPI": "posting_api",
    "TicketAPI": "ticket_api",
    "TradingBot": "trading_bot",
    "TravelAPI": "travel_booking",
    "VehicleControlAPI": "vehicle_control",
    "MemoryAPI_kv": "memory_kv",
    "MemoryAPI_rec_sum": "memory_rec_sum",
    "MemoryAPI_vector": "memory_vector",
}
"""The module of each class (upstream ``constants/executable_backend_config.py``)."""
SHARED_MODULES = ("long_context", "memory_api_metaclass")

_PREFIX = "bfcl_eval.eval_checker.multi_turn_eval.func_source_code."
_ALLOWED = frozenset(
    (
        *("abc", "copy", "datetime", "decimal", "json", "math"),
        *("numpy", "pathlib", "random", "re", "typing"),
    )
)
# Nothing of these is needed; without them the classes cannot reach files or run text.
_WITHHELD = ("breakpoint", "compile", "eval", "exec", "input", "open")
_FIX = "give a complete copy of bfcl-eval"
_LOCK = threading.RLock()
_LOADED: dict[tuple[str, str], ModuleType] = {}


class Copy(Protocol):
    """What is needed of `ace_ray.benchmarks.bfcl.data.copy.Copy`."""

    @property
    def kind(self) -> Literal["mini", "copy"]: ...
    @property
    def name(self) -> str: ...
    def read(self, path: str) -> bytes: ...


@dataclass(frozen=True, slots=True)
class ToolSources:
    """The source text of each module; picklable. Empty for the mini set (see `own`)."""

    texts: Mapping[str, str] = field(default_factory=dict)
    where: str = "mini"
    """The copy they are from, for errors."""
    sha256: str = ""


def tool_sources(copy: Copy) -> ToolSources:
    """The sources of all classes in ``copy``.

    Raises:
        UserError: a file is missing or no UTF-8.
    """
    if copy.kind == "mini":
        return ToolSources()
    texts = {}
    for module in (*MODULES.values(), *SHARED_MODULES):
        try:
            texts[module] = copy.read(f"{FOLDER}/{module}.py").decode("utf-8")
        except UnicodeDecodeError as error:
            place = f"{copy.name}: {FOLDER}/{module}.py"
            raise UserError(f"is no UTF-8 ({error.reason})", where=place, fix=_FIX) from error
    return ToolSources(texts, copy.name, digest(sorted(texts.items())))


def load_class(sources: ToolSources, name: str) -> type[Any]:
    """The class ``name`` of ``sources``, loaded once a process.

    Raises:
        UserError: there is no such class, or its module does not load.
    """
    if not sources.texts:
        if name not in CLASSES:
            raise UserError(
                f"the mini set has no class {name}",
                where="data",
                fix="write data: installed, or the path of a copy of bfcl-eval",
            )
        return CLASSES[name]
    module = MODULES.get(name, "")
    found = vars(_load(sources, module)).get(name) if module in sources.texts else None
    if not isinstance(found, type):
        raise UserError(f"has no class {name}", where=sources.where, fix=_FIX)
    return found


def _load(sources: ToolSources, name: str) -> ModuleType:
    key = (sources.sha256, name)
    with _LOCK:
        if key in _LOADED:
            return _LOADED[key]
        place = f"{sources.where}: {FOLDER}/{name}.py"
        module = ModuleType(f"bfcl_tools.{name}")

        def importer(
            wanted: str,
            _globals: Any = None,
            _locals: Any = None,
            names: Sequence[str] = (),
            level: int = 0,
        ) -> ModuleType:
            return _imported(sources, wanted, names or (), level)

        allowed = {key: item for key, item in vars(builtins).items() if key not in _WITHHELD}
        scope = allowed | {"__import__": importer}
        module.__dict__["__builtins__"] = scope
        try:
            code = compile(sources.texts[name], place, "exec", dont_inherit=True)
            exec(code, module.__dict__)  # noqa: S102  # the user's package, no text of a model
        except UserError:
            raise
        except Exception as error:
            what = f"does not load ({type(error).__name__}: {str(error)[:200]})"
            raise UserError(what, where=place, fix=_FIX) from error
        # From here on it is datetime that imports, in the name of its caller.
        scope["__import__"] = builtins.__import__
        _LOADED[key] = module
        return module


def _imported(sources: ToolSources, name: str, names: Sequence[str], level: int) -> ModuleType:
    """What ``from <name> import <names>`` or ``import <name>`` gives in the texts."""
    if level == 0 and name.startswith(_PREFIX) and names:
        module = name.removeprefix(_PREFIX)
        if module in sources.texts:
            return _load(sources, module)
    if level == 0 and name in STAND_INS:
        return STAND_INS[name]()
    if level == 0 and name in _ALLOWED:
        return importlib.import_module(name)
    raise ImportError(f"no stand-in for {name}")
