"""Publishers by name: built-in ones and those of installed packages."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points
from importlib.util import find_spec
from pkgutil import resolve_name
from typing import Any

from ace_ray.config import PublishConfig, Section, validated
from ace_ray.credentials import masked, secrets_in
from ace_ray.errors import UserError, first_line
from ace_ray.publishers.base import Publisher

GROUP = "ace_ray.publishers"
"""The entry-point group; a point leads to a subclass of `Publisher`."""
BUILT_IN = {
    "mlflow": "ace_ray.publishers.mlflow:MLflow",
    "tensorboard": "ace_ray.publishers.tensorboard:TensorBoard",
    "trackio": "ace_ray.publishers.trackio:Trackio",
    "wandb": "ace_ray.publishers.wandb:WandB",
}
"""A checkout shipped with `ray job submit --working-dir` has no installed metadata."""


def offered() -> dict[str, str]:
    """Name -> where its class is."""
    return {point.name: point.value for point in entry_points(group=GROUP)} | BUILT_IN


def publisher_class(name: str, where: str) -> type[Publisher[Any]]:
    """Raises `UserError` at ``where``: no publisher is called so, or it is none."""
    known = offered()
    if name not in known:
        raise UserError(
            f"no publisher is called {name!r}",
            where=where,
            fix=f"installed: {', '.join(sorted(known))}",
        )
    try:
        cls = resolve_name(known[name])
    except (Exception, SystemExit) as error:
        raise UserError(
            f"the publisher {name} cannot be imported ({raised(error)})",
            where=where,
            fix="correct the code, or install what it needs",
        ) from error
    if not _is_whole(cls):
        raise UserError(
            f"{known[name]} is no whole subclass of Publisher",
            where=where,
            fix="see docs/trackers.md",
        )
    whole: type[Publisher[Any]] = cls
    return whole


def _is_whole(cls: Any) -> bool:
    if not isinstance(cls, type) or not issubclass(cls, Publisher) or cls.__abstractmethods__:
        return False
    options = getattr(cls, "Options", None)
    return isinstance(options, type) and issubclass(options, Section)


def raised(error: BaseException) -> str:
    """What foreign code raised: bounded, on one line, without secrets."""
    return f"{type(error).__name__}: {masked(first_line(error))[:300]}"


def make_publisher(name: str, options: Mapping[str, Any], where: str) -> Publisher[Any]:
    """The publisher ``name`` with its options, which can be asked to publish.

    Raises `UserError` at ``where``: an unknown name or option, a secret, a package that is missing.
    """
    cls = publisher_class(name, where)
    for key, what in secrets_in(options):
        raise UserError(
            f"{what}, and options are stored and shown",
            where=f"{where}.{key}",
            fix=f"leave it to the environment, where {name} reads it itself",
        )
    section: Section = validated(cls.Options, options, where=where)
    if cls.needs and not _is_installed(cls.needs):
        raise UserError(
            f"{name} needs the package {cls.needs!r}, which is not installed",
            where=where,
            fix=f"pip install '{cls.install or cls.needs}'",
        )
    try:
        return cls(section)
    except UserError:
        raise
    except (Exception, SystemExit) as error:
        raise UserError(
            f"{name} cannot be made, {raised(error)}",
            where=where,
            fix="correct its options, or its code",
        ) from error


def check_publishers(asked: list[PublishConfig]) -> list[Publisher[Any]]:
    """Those of a config's ``publish``. Raises `UserError`: one cannot be."""
    return [
        make_publisher(one.to, one.options, f"publish.{number}") for number, one in enumerate(asked)
    ]


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError) as error:
        raise UserError(first_line(error), where=module, fix="install it anew") from error
