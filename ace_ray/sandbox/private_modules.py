"""Load Python source files from the user's copy of a package as private modules.

The package itself is not imported, and ``sys.modules`` does not change. Sources are compiled once
per process. Imports in the sources use a separate importer, which finds only the other sources,
replacements for some modules, and selected names of other modules. Builtins that open files or
execute text are removed."""

from __future__ import annotations

import builtins
import importlib
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import ModuleType
from typing import Any

from ace_ray.errors import UserError

# Module -> names that may be imported from it. A complete module would give access to other modules
# (``random._os``), and through these to files.
Names = Mapping[str, Sequence[str]]
# Module -> function that returns a smaller module to import instead.
StandIns = Mapping[str, Callable[[], ModuleType]]


# Builtins that cannot open files, import modules or execute text.
BUILTINS = frozenset(
    (
        *("__build_class__", "abs", "all", "any", "bool", "bytes", "callable", "chr"),
        "classmethod",
        *("complex", "dict", "dir", "divmod", "enumerate", "filter", "float", "format"),
        *("frozenset", "getattr", "hasattr", "hash", "id", "int", "isinstance", "issubclass"),
        *("iter", "len", "list", "map", "max", "min", "next", "object", "ord", "pow", "print"),
        *("property", "range", "repr", "reversed", "round", "set", "setattr", "slice", "sorted"),
        *("staticmethod", "str", "sum", "super", "tuple", "type", "vars", "zip"),
        *("True", "False", "None", "NotImplemented", "Ellipsis", "__debug__"),
        *(n for n, t in vars(builtins).items() if type(t) is type and issubclass(t, BaseException)),
    )
)


@dataclass(frozen=True)
class PrivateModules:
    """The modules of the user's copy of a package. Each module is loaded once.

    Args:
        texts: source of each module, by its name without ``package``.
        place: returns the file name of a module, for errors.
        package: prefix of module names in absolute imports.
        names: other modules, and the names that may be imported from each.
        stand_ins: other modules, and for each a function that returns its replacement.
        prefix: prefix for the names of the private modules.
        fix: advice in the error for a source that does not load.
        extra: name -> builtin, in addition to `BUILTINS`."""

    texts: Mapping[str, str]
    place: Callable[[str], str]
    package: str
    names: Names
    stand_ins: StandIns
    prefix: str
    fix: str
    extra: Mapping[str, Any] = field(default_factory=dict)
    _loaded: dict[str, ModuleType] = field(default_factory=dict, init=False)
    _lock: Any = field(default_factory=threading.RLock, init=False)

    def load(self, name: str) -> ModuleType:
        """Return the module ``name``, loaded once. Raises `UserError` if the source cannot run."""
        with self._lock:
            if name not in self._loaded:
                self._loaded[name] = self._run(name)
            return self._loaded[name]

    def _run(self, name: str) -> ModuleType:
        file_name = self.place(name)
        module = ModuleType(f"{self.prefix}.{name}")
        allowed = {key: value for key, value in vars(builtins).items() if key in BUILTINS}
        replaced = {**self.extra, "__import__": self._import}
        module.__dict__["__builtins__"] = allowed | replaced
        try:
            code = compile(self.texts[name], file_name, "exec", dont_inherit=True)
            exec(code, module.__dict__)  # noqa: S102  # the user's package, not a model's text
        except UserError:
            raise
        except Exception as error:
            problem = f"does not load ({type(error).__name__}: {str(error)[:200]})"
            raise UserError(problem, where=file_name, fix=self.fix) from error
        return module

    def _import(
        self,
        name: str,
        _globals: Any = None,
        _locals: Any = None,
        names: Sequence[str] | None = None,
        level: int = 0,
    ) -> ModuleType:
        """Resolve ``from <name> import <names>`` or ``import <name>`` in one of the sources."""
        if level == 0:
            module = name.removeprefix(self.package)
            if names and name.startswith(self.package) and module in self.texts:
                return self.load(module)
            if name in self.stand_ins:
                return self.stand_ins[name]()
            if name in self.names:
                return module_part(name, tuple(self.names[name]))
        raise ImportError(f"no stand-in for {name}")


@cache
def module_part(name: str, keys: tuple[str, ...]) -> ModuleType:
    """Return a copy of module ``name`` with only the attributes ``keys``. Raises `ImportError` if
    there is no such module."""
    module = importlib.import_module(name)
    return make_module(name, **{key: getattr(module, key) for key in keys})


def make_module(name: str, **contents: Any) -> ModuleType:
    """Return a new module that has the attributes ``contents``."""
    module = ModuleType(name)
    module.__dict__.update(contents)
    return module
