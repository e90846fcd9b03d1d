"""What upstream's classes import: something smaller in its place, or the few names of a module that
they need. A whole module would lead on to others (``random._os``), and these to files."""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from types import ModuleType
from typing import Any

from ace_ray.benchmarks.bfcl.tools import vectors
from ace_ray.benchmarks.bfcl.tools.bm25 import BM25Plus
from ace_ray.errors import UserError


def _module(name: str, **contents: Any) -> ModuleType:
    module = ModuleType(name)
    module.__dict__.update(contents)
    return module


def _overrides() -> ModuleType:
    return _module("overrides", final=_as_it_is, override=_as_it_is)


def _as_it_is(function: Any) -> Any:
    return function


def _utils() -> ModuleType:
    # They tell where snapshots are on disk; here snapshots are values (`Toolbox`).
    names = ("get_directory_structure_by_id", "is_first_memory_prereq_entry", "is_memory_prereq")
    return _module("bfcl_eval.utils", **dict.fromkeys(names, _no_files))


def _no_files(*_: Any) -> Any:
    raise RuntimeError("memory is not read from files here")


def _rank_bm25() -> ModuleType:
    return _module("rank_bm25", BM25Plus=BM25Plus)


def _subprocess() -> ModuleType:
    return _module("subprocess")  # imported and not used


@functools.cache
def _mpmath() -> ModuleType:
    """`mpmath` with a context of its own: its precision is global, and sympy computes with it."""
    try:
        context = importlib.import_module("mpmath.ctx_mp").MPContext()
    except ImportError as error:
        raise UserError(
            "MathAPI needs the package mpmath", where="data", fix="run `pip install mpmath`"
        ) from error
    return _module("mpmath", mp=context, log=context.log)


def _pathlib() -> ModuleType:
    return _module("pathlib", Path=PurePath)  # named in annotations alone


def _of_datetime() -> ModuleType:
    """datetime imports modules in its caller's name, and takes them from elsewhere then."""
    importlib.import_module("_strptime")
    return _module("of_datetime")


@functools.cache
def named_part(name: str) -> ModuleType:
    """The names of `NAMES` of the module ``name``. Raises `ImportError`."""
    found = importlib.import_module(name)
    return _module(name, **{key: getattr(found, key) for key in NAMES[name]})


NAMES: Mapping[str, Sequence[str]] = {
    "abc": ("ABC", "abstractmethod"),
    "copy": ("copy", "deepcopy"),
    "datetime": ("date", "datetime", "time", "timedelta", "timezone"),
    "decimal": ("Decimal", "InvalidOperation", "getcontext"),
    "json": ("JSONDecodeError", "dump", "dumps", "load", "loads"),
    "math": tuple(name for name in vars(math) if not name.startswith("_")),
    "numpy": ("array", "asarray", "float32", "float64", "int64", "ndarray"),
    "random": ("Random",),
    "re": ("compile", "findall", "fullmatch", "match", "search", "split", "sub"),
    "typing": ("Any", "Callable", "Dict", "List", "Literal", "Optional", "Set", "Tuple", "Union"),
}
"""By the name of the module."""
STAND_INS: Mapping[str, Callable[[], ModuleType]] = {
    "_strptime": _of_datetime,
    "bfcl_eval.utils": _utils,
    "faiss": vectors.faiss,
    "mpmath": _mpmath,
    "overrides": _overrides,
    "pathlib": _pathlib,
    "rank_bm25": _rank_bm25,
    "sentence_transformers": vectors.sentence_transformers,
    "subprocess": _subprocess,
    "time": _of_datetime,
}
"""By the name of the module."""
