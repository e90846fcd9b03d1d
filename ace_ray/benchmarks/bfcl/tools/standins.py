"""What upstream's classes import and get something smaller for."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Mapping
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


STAND_INS: Mapping[str, Callable[[], ModuleType]] = {
    "bfcl_eval.utils": _utils,
    "faiss": vectors.faiss,
    "mpmath": _mpmath,
    "overrides": _overrides,
    "rank_bm25": _rank_bm25,
    "sentence_transformers": vectors.sentence_transformers,
    "subprocess": _subprocess,
}
"""By the name of the module."""
