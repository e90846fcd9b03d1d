"""The config of a run as it was asked for: all unknown keys are told at once, before anything else.

A config's own models do not know the keys of ``engine`` and of benchmarks: whose they are does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from ace_ray.benchmarks.registry import benchmark_class, is_local
from ace_ray.config.schema import (
    COMMAND_LINE,
    ENDPOINT,
    SECTION_KEYS,
    RunConfig,
    read_tree,
    run_config,
    validated,
)
from ace_ray.config.suggestions import refuse_unknown
from ace_ray.integrations.trackers import check_options
from ace_ray.models.engine_args import refuse_unknown_args
from ace_ray.models.fake import FakeScript


def asked_run(
    path: str | None, overrides: Sequence[str] = (), values: Mapping[str, Any] | None = None
) -> RunConfig:
    """Load a run's config as `ace_ray.config.schema.load_config` does.

    Raises `UserError` for its mistakes, and for unknown keys of the engine, of installed benchmarks
    and of trackers.
    """
    return checked_run(read_tree(path, overrides, values), where=path or COMMAND_LINE)


def checked_run(tree: Mapping[str, Any], *, where: str) -> RunConfig:
    """As `ace_ray.config.schema.run_config`, with the checks of `asked_run`."""
    refuse_unknown(checks(tree), where=where)
    return run_config(tree, where=where)


def checks(tree: Mapping[str, Any]) -> Iterator[tuple[str, Callable[[], object]]]:
    """What raises `UnknownKeys` for ``tree``, with the path of the section that it is about."""
    yield "", partial(validated, RunConfig, tree, where="")
    model, engine = tree.get("model"), tree.get("engine")
    behind = isinstance(model, Mapping) and model.get("endpoint") is not None
    backend = ENDPOINT if behind else tree.get("backend", "vllm")
    yield from engine_checks("engine", engine, backend)
    listed = tree.get("benchmarks")
    for number, section in enumerate(listed if isinstance(listed, list) else ()):
        if not isinstance(section, Mapping) or not isinstance(name := section.get("name"), str):
            continue
        if not is_local(name):  # its code is run later
            own = {key: value for key, value in section.items() if key not in SECTION_KEYS}
            yield f"benchmarks.{number}", partial(_options, name, own)
    trackers = tree.get("publish")
    for number, section in enumerate(trackers if isinstance(trackers, list) else ()):
        if isinstance(section, Mapping) and isinstance(to := section.get("to"), str):
            own = {key: value for key, value in section.items() if key != "to"}
            yield f"publish.{number}", partial(_tracker_options, to, own)


def engine_checks(
    path: str, engine: Any, backend: Any
) -> Iterator[tuple[str, Callable[[], object]]]:
    """Those of a section ``engine``."""
    if isinstance(engine, Mapping) and backend == "vllm":
        yield path, partial(refuse_unknown_args, engine)
    elif isinstance(engine, Mapping) and backend == "fake":
        yield path, partial(validated, FakeScript, engine, where=path)


def _options(name: str, options: Mapping[str, Any]) -> None:
    validated(benchmark_class(name).Options, options, where=name, beside=SECTION_KEYS)


def _tracker_options(to: str, options: Mapping[str, Any]) -> None:
    check_options(to, options, to)
