"""Config sections of the models that play roles in an episode, such as the simulated user, besides
the candidate (the evaluated model).

A role is ``same`` (the candidate's engine), a mapping with ``model`` (a second model, served by
engines of its own), or a mapping with ``endpoint`` (any OpenAI-compatible URL)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from ace_ray.config.schema import (
    EndpointConfig,
    ModelConfig,
    SamplingConfig,
    Section,
    validate_tree,
)
from ace_ray.errors import UserError
from ace_ray.util.suggestions import did_you_mean


class EndpointRole(Section):
    endpoint: EndpointConfig
    """URL, model and limits of the endpoint"""
    sampling: SamplingConfig | None = None
    """sampling parameters; default: the benchmark's own"""


class ServedRole(Section):
    model: ModelConfig
    """model to serve, with the keys of a run's `model`"""
    engine: dict[str, Any] = Field(default_factory=dict)
    """engine arguments, under vLLM's own names"""
    replicas: int = Field(1, ge=1)
    """number of engines"""
    sampling: SamplingConfig | None = None
    """sampling parameters; default: the benchmark's own"""


RoleConfig = ServedRole | EndpointRole
Role = Literal["same"] | RoleConfig


def parse_role(value: Any, key: str) -> Role:
    """Parse the ``value`` of the config's ``key``. Raises `UserError` if it is not a role."""
    if value == "same":
        return "same"
    kinds = ("model", "endpoint")
    if not isinstance(value, Mapping) or sum(kind in value for kind in kinds) != 1:
        summary = sorted(map(str, value)) if isinstance(value, Mapping) else value
        raise UserError(
            f"{summary!r:.60} is not a role",
            where=key,
            fix=did_you_mean(
                value,
                ["same"],
                "write same, or a mapping with either model: {source: ...} or "
                "endpoint: {url: ..., model: ...}",
            ),
        )
    tree = dict(value)
    # Validated separately, so that errors name the full path of a key.
    if isinstance(tree.get("sampling"), Mapping):
        tree["sampling"] = validate_tree(SamplingConfig, tree["sampling"], where=f"{key}.sampling")
    if "endpoint" in tree:
        return validate_tree(EndpointRole, tree, where=key)
    role = validate_tree(ServedRole, tree, where=key)
    if role.model.source is None or role.model.endpoint is not None:
        raise UserError(
            "a model that ace_ray serves needs a source",
            where=f"{key}.model",
            fix="write model: {source: ...}; for an existing endpoint, write endpoint: "
            "{url: ..., model: ...} instead of model",
        )
    return role
