"""The classes behind the tools: the source texts of the user's own copy, loaded as private
modules.

The package itself is never imported and ``sys.modules`` never changed: the texts are compiled once
a process, and import, while they load and ever after, through an importer of their own that knows
each other and what `standins` allows. They have no builtin that opens files or runs text. They run
only when this project knows each file (`known`), or the user named the copy in the command.
"""

from __future__ import annotations

import builtins
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Literal, Protocol

from ace_ray.benchmarks.bfcl.tools.known import unknown
from ace_ray.benchmarks.bfcl.tools.own import CLASSES
from ace_ray.benchmarks.bfcl.tools.standins import NAMES, STAND_INS, named_part
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


def _is_error(item: Any) -> bool:
    return isinstance(item, type) and issubclass(item, BaseException)


_PREFIX = "bfcl_eval.eval_checker.multi_turn_eval.func_source_code."
_BUILTINS = frozenset(
    (
        *(
            "__build_class__",
            "abs",
            "all",
            "any",
            "bool",
            "bytes",
            "callable",
            "chr",
            "classmethod",
        ),
        *("complex", "dict", "dir", "divmod", "enumerate", "filter", "float", "format"),
        *("frozenset", "getattr", "hasattr", "hash", "id", "int", "isinstance", "issubclass"),
        *("iter", "len", "list", "map", "max", "min", "next", "object", "ord", "pow", "print"),
        *("property", "range", "repr", "reversed", "round", "set", "setattr", "slice", "sorted"),
        *("staticmethod", "str", "sum", "super", "tuple", "type", "vars", "zip"),
        *("True", "False", "None", "NotImplemented", "Ellipsis", "__debug__"),
        *(name for name, item in vars(builtins).items() if _is_error(item)),
    )
)
"""None of them opens a file, imports, or runs text."""
_FIX = "give a complete copy of bfcl-eval"
_LOCK = threading.RLock()
_LOADED: dict[tuple[str, bool, str], ModuleType] = {}


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
    named: bool = False
    """Whether the user named the copy in this command, and not only a stored run did."""


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


def require_allowed(sources: ToolSources) -> None:
    """Raise `UserError` for sources that must not run: some file is not known here, and it was not
    the user who named them."""
    strange = [] if sources.named else unknown(sources.texts)
    if strange:
        raise UserError(
            f"{FOLDER}/{strange[0]}.py is not a file of bfcl-eval that ace_ray knows, and only the"
            " stored run names it; it is not run",
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
    module = MODULES.get(name, "")
    found = vars(_load(sources, module)).get(name) if module in sources.texts else None
    if not isinstance(found, type):
        raise UserError(f"has no class {name}", where=sources.where, fix=_FIX)
    return found


def _load(sources: ToolSources, name: str) -> ModuleType:
    key = (sources.sha256, sources.named, name)
    with _LOCK:
        if key in _LOADED:
            return _LOADED[key]
        require_allowed(sources)
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

        allowed = {key: item for key, item in vars(builtins).items() if key in _BUILTINS}
        module.__dict__["__builtins__"] = allowed | {"__import__": importer}
        try:
            code = compile(sources.texts[name], place, "exec", dont_inherit=True)
            exec(code, module.__dict__)  # noqa: S102  # the user's package, no text of a model
        except UserError:
            raise
        except Exception as error:
            what = f"does not load ({type(error).__name__}: {str(error)[:200]})"
            raise UserError(what, where=place, fix=_FIX) from error
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
    if level == 0 and name in NAMES:
        return named_part(name)
    raise ImportError(f"no stand-in for {name}")
