"""Find benchmarks by name: built-in, in an installed package, or a class in a local file."""

from __future__ import annotations

import hashlib
import importlib.util
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from importlib.metadata import entry_points
from inspect import iscoroutinefunction
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from ace_ray.benchmarks.base import Benchmark
from ace_ray.benchmarks.statistics import ALL_ROWS
from ace_ray.benchmarks.validation import user_code
from ace_ray.errors import UserError
from ace_ray.storage.stored import Manifest
from ace_ray.util.local_files import path_of
from ace_ray.util.suggestions import closest_of

# The entry-point group. Each entry point names a subclass of `Benchmark`.
GROUP = "ace_ray.benchmarks"
# Not entry points: a checkout sent by `ray job submit --working-dir` has no installed metadata.
BUILT_IN = {
    "acebench": "ace_ray.benchmarks.acebench.benchmark:ACEBench",
    "bfcl": "ace_ray.benchmarks.bfcl.benchmark:BFCL",
    "calls": "ace_ray.benchmarks.calls.benchmark:Calls",
    "stabletoolbench": "ace_ray.benchmarks.stabletoolbench.benchmark:StableToolBench",
    "tau2": "ace_ray.benchmarks.tau2.benchmark:Tau2",
    "stabletoolbench_judge": "ace_ray.benchmarks.stabletoolbench.judge_check:JudgeCheck",
}
# Prefix of the names under which local files are imported; the rest is a hash of the content.
MODULE = "ace_ray_local_"
_LOCAL = re.compile(r"(?P<path>.+\.py):(?P<name>[A-Za-z_]\w*)")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_RULES = re.compile(r"[a-z][a-z0-9_]{0,39}")
MOST_RULE_SETS = 20
_error = partial(UserError, where="benchmarks")
_TAKEN = {
    *("benchmark", "language", "category", "id", "sample"),  # verdicts.jsonl
    *("declared", "scored", "unscored", "status", "rules", "categories"),  # summary.json
    "both",  # compare --rules both
}


def make_benchmark(name: str, options: Mapping[str, Any]) -> Benchmark:
    """Make the benchmark ``name`` with ``options``.

    Raises `UserError` for an unknown name or option, or a class that is not a benchmark."""
    cls = benchmark_class(name)
    with user_code(cls, "the constructor"):
        return cls.from_options(options)


def benchmark_class(name: str) -> type[Benchmark]:
    """Return the class of the benchmark ``name``. For ``./file.py:Class``, the file is executed.

    Raises `UserError` for an unknown name, a failed import, and an incomplete class."""
    offered = _class_paths()
    if local := _LOCAL.fullmatch(name):
        cls = _check_class(_load_attribute(local["path"], local["name"], name), name)
        if cls.name in offered:
            problem = f"the name of {name} is {cls.name!r}, the name of an installed benchmark"
            raise _error(problem, fix="give the class another name")
        cls.source = f"{path_of(local['path'], 'benchmarks').absolute()}:{local['name']}"
        return cls
    if name not in offered:
        near = closest_of(name, offered)
        hint = f"did you mean {near!r}? " if near else ""
        raise _error(
            f"no benchmark is called {name!r}",
            fix=f"{hint}installed: {', '.join(sorted(offered))}; or name a class, ./FILE.py:CLASS",
        )
    try:
        cls = resolve_name(offered[name])
    except Exception as error:
        raise _fails(name, error) from error
    if _check_class(cls, name).name != name:
        problem = f"the entry point {name} loads a class with the name {cls.name!r}"
        raise _error(problem, fix="give the entry point and the class the same name")
    return _check_class(cls, name)


def class_of(name: str, *manifests: Manifest) -> type[Benchmark]:
    """Return the class of the benchmark ``name`` of stored runs, with the rule sets and groups that
    the runs share: the installed class if it has these rule sets, or else a subclass of `Benchmark`
    made from the manifests. Does not execute a local file."""
    by_run = [manifest.rule_sets_of(name) for manifest in manifests]
    rule_sets = tuple(rules for rules in by_run[0] if all(rules in run for run in by_run))
    if name in _class_paths() and (installed_class := benchmark_class(name)).rule_sets == rule_sets:
        return installed_class
    groups = [manifest.groups.get(name, {}) for manifest in manifests]
    shared = {k: v for k, v in groups[0].items() if all(run.get(k) == v for run in groups)}
    members = {"name": name, "rule_sets": rule_sets, "groups": shared}
    return type("RecordedBenchmark", (Benchmark,), members)


def list_classes() -> Iterator[tuple[str, type[Benchmark]]]:
    """Yield (name, class) of each installed benchmark. Raises `UserError` if an import fails."""
    for name in sorted(_class_paths()):
        yield name, benchmark_class(name)


def is_local(name: str) -> bool:
    """Tell whether ``name`` is ``./file.py:Class``."""
    return _LOCAL.fullmatch(name) is not None


def local_parts(name: str) -> tuple[Path, str]:
    """Return file and class name of ``./file.py:Class``. Raises `UserError` for an invalid path."""
    path, _, attribute = name.rpartition(":")
    return path_of(path, "benchmarks"), attribute


def code_hash(benchmark: type[Benchmark]) -> str:
    """Return the SHA-256 (hex) of the local file of a class, or "" for an installed benchmark."""
    _, prefix, sha256 = benchmark.__module__.partition(MODULE)
    return sha256 if prefix else ""


def _class_paths() -> dict[str, str]:
    return {point.name: point.value for point in entry_points(group=GROUP)} | BUILT_IN


def _load_attribute(path: str, attribute: str, name: str) -> Any:
    file = path_of(path, "benchmarks")
    try:
        content = file.read_bytes()
    except OSError as error:
        problem = f"{path} cannot be read ({error.strerror})"
        raise _error(problem, fix="name an existing file, ./FILE.py:CLASS") from error
    # The name contains the hash, so an edited file is a new module. A known file is not run again.
    module_name = MODULE + hashlib.sha256(content).hexdigest()
    module = sys.modules.get(module_name)
    if module is None:
        spec = importlib.util.spec_from_file_location(module_name, file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[module_name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException as error:
            del sys.modules[module_name]
            if isinstance(error, Exception | SystemExit):
                raise _fails(name, error) from error
            raise
    if not hasattr(module, attribute):
        raise _error(f"{path} has no {attribute}", fix="name a class of the file")
    return getattr(module, attribute)


def _check_class(cls: Any, name: str) -> type[Benchmark]:
    """Return ``cls``. Raises `UserError` unless it is a complete subclass of `Benchmark`."""
    fix = "see docs/adding-a-benchmark.md"
    if not isinstance(cls, type) or not issubclass(cls, Benchmark):
        raise _error(f"{name} is not a subclass of Benchmark", fix=fix)
    if lacking := sorted(cls.__abstractmethods__):
        raise _error(f"{name} lacks {' and '.join(lacking)}", fix=fix)
    if not isinstance(cls.name, str) or not _NAME.fullmatch(cls.name):
        raise _error(
            f"the name of {name} is {cls.name!r}, it should be letters, digits, '.', '_' and '-'",
            fix="give the class a name",
        )
    if wrong := _wrong_shape(cls):
        raise _error(f"{name}: {wrong}", fix="correct the class")
    return cls


def _wrong_shape(cls: type[Benchmark]) -> str:
    """Describe the first member of a class that has a wrong type or value; "" if there is none."""
    rules: Any = cls.rule_sets
    if (
        not isinstance(rules, tuple)
        or not 0 < len(set(rules)) == len(rules) <= MOST_RULE_SETS
        or not all(isinstance(name, str) and _RULES.fullmatch(name) for name in rules)
    ):
        return (
            f"rule_sets is {rules!r:.200}, it should be a tuple of names in lower case, "
            f"at most {MOST_RULE_SETS}"
        )
    if clashes := sorted({*rules} & _TAKEN):
        return f"a rule set cannot be called {clashes[0]!r}: files have a key of that name"
    if not isinstance(cls.Options, type) or not issubclass(cls.Options, Benchmark.Options):
        return "Options is not a subclass of Benchmark.Options (ace_ray.config.schema.Section)"
    if clashes := sorted(cls.Options.model_fields.keys() & set(Benchmark.section_keys)):
        return f"Options has a key {clashes[0]!r}, which the section of every benchmark has"
    groups: Any = cls.groups
    if not isinstance(groups, Mapping) or not all(
        isinstance(group, str)
        and isinstance(members, Sequence)
        and not isinstance(members, str)
        and all(isinstance(member, str) for member in members)
        for group, members in groups.items()
    ):
        return "groups is not a mapping of names to lists of categories"
    if ALL_ROWS in groups:
        return f"a group cannot be called {ALL_ROWS!r}: the score over all rows has that name"
    for member, awaited in (("entries", False), ("check", False), ("run", True)):
        code = getattr(cls, member)
        if not callable(code) or iscoroutinefunction(code) != awaited:
            return f"{member} must be {'async def' if awaited else 'def'} {member}(self, ...)"
    return ""


def _fails(name: str, error: BaseException) -> UserError:
    return _error(
        f"{name} cannot be imported ({type(error).__name__}: {error})",
        fix="correct the code, or install its imports; a local file cannot import files beside it",
    )
