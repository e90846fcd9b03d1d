"""Models for the roles of an episode besides the candidate (the evaluated model), such as the user.

A role is ``same`` (the candidate's engine), a mapping with ``model`` (a second model, served on the
cluster by engines with their own GPUs), or a mapping with ``endpoint`` (any OpenAI-compatible
URL)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal
from urllib.parse import urlsplit

from pydantic import Field

from ace_ray.config.schema import (
    CandidateEndpoint,
    EndpointConfig,
    ModelConfig,
    RunConfig,
    SamplingConfig,
    Section,
    validated,
)
from ace_ray.errors import UserError
from ace_ray.models.engine_args import check_engine_args, check_parsers
from ace_ray.models.families import FormatChoice
from ace_ray.models.sampling import check_sampling
from ace_ray.models.sources import ModelRef
from ace_ray.models.urls import HttpUrl, http_url
from ace_ray.types import Sampling, digest
from ace_ray.util.suggestions import did_you_mean


class EndpointRole(Section):
    endpoint: EndpointConfig = Field(description="URL, model and limits of the endpoint")
    sampling: SamplingConfig | None = Field(
        None, description="sampling parameters; default: the benchmark's own"
    )


class ServedRole(Section):
    model: ModelConfig = Field(description="model to serve, with the keys of a run's `model`")
    engine: dict[str, Any] = Field(
        default_factory=dict, description="engine arguments, under vLLM's own names"
    )
    replicas: int = Field(1, ge=1, description="number of engines")
    sampling: SamplingConfig | None = Field(
        None, description="sampling parameters; default: the benchmark's own"
    )


RoleConfig = ServedRole | EndpointRole
Role = Literal["same"] | RoleConfig


# Keys of a model's section that only apply to the candidate.
_OF_CANDIDATES = ("chat_template", "plugins", "replay_reasoning", "start_date")


def parse_role(value: Any, where: str) -> Role:
    """Parse the ``value`` of the config key ``where``. Raises `UserError` if it is not a role."""
    if value == "same":
        return "same"
    kinds = ("model", "endpoint")
    if not isinstance(value, Mapping) or sum(kind in value for kind in kinds) != 1:
        given = sorted(map(str, value)) if isinstance(value, Mapping) else value
        raise UserError(
            f"{given!r:.60} is not a role",
            where=where,
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
        tree["sampling"] = validated(SamplingConfig, tree["sampling"], where=f"{where}.sampling")
    if "endpoint" in tree:
        return validated(EndpointRole, tree, where=where)
    role = validated(ServedRole, tree, where=where)
    if role.model.source is None or role.model.endpoint is not None:
        raise UserError(
            "a model that ace_ray serves needs a source",
            where=f"{where}.model",
            fix="write model: {source: ...}; for an existing endpoint, write endpoint: "
            "{url: ..., model: ...} instead of model",
        )
    return role


def check_role(role: Role, where: str) -> None:
    """Check ``role`` without sending a request.

    Raises `UserError`: a bad URL, a secret in the URL, a missing API key, or an engine argument or
    parser that vLLM does not know."""
    if isinstance(role, EndpointRole):
        check_url(role.endpoint.url, f"{where}.endpoint.url")
        read_key(role.endpoint, f"{where}.endpoint.api_key_env")
    elif isinstance(role, ServedRole):
        with within(where):
            check_engine_args(role.engine)
            if role.model.adapter is not None:
                raise UserError(
                    "the model of a role cannot have an adapter",
                    where="model.adapter",
                    fix="merge it into its base and name the result as model.source",
                )
            check_parsers(role.model)
            for key in _OF_CANDIDATES:
                if getattr(role.model, key) != ModelConfig.model_fields[key].get_default(
                    call_default_factory=True
                ):
                    raise UserError(
                        f"{key!r} applies only to the evaluated model",
                        where=f"model.{key}",
                        fix="leave it out",
                    )
            check_sampling(role.sampling, role.model, where="sampling")
            for name in ("tensor_parallel_size", "pipeline_parallel_size"):
                check_size(name, role.engine.get(name, 1))
    elif role != "same":
        fix = "make it with ace_ray.models.roles.parse_role"
        raise UserError(f"{role!a:.80} is not a role", where=where, fix=fix)


def read_key(endpoint: EndpointConfig, where: str) -> str | None:
    """Return the API key of the endpoint; None if it needs no key.

    Raises:
        UserError: the environment variable is unset, or is not valid in an HTTP header."""
    name = endpoint.api_key_env
    if name is None:
        return None
    # Keys from files and secrets often end with a newline.
    key = os.environ.get(name, "").strip()
    if not key:
        raise UserError(
            f"the environment variable {name} is not set",
            where=where,
            fix="set it to the endpoint's key, or write api_key_env: null if it takes none",
        )
    if not (key.isascii() and key.isprintable()):
        raise UserError(
            f"the environment variable {name} does not contain a key: one line of ASCII is needed",
            where=where,
            fix="set it to the endpoint's key",
        )
    return key


def host_of(url: str) -> str:
    """Return ``host`` or ``host:port`` of a URL, without user names, passwords, path or query."""
    return urlsplit(url).netloc.rpartition("@")[2]


def role_identity(role: Role, model: ModelRef | None, sampling: Sampling) -> dict[str, Any]:
    """Return the properties of a role that can change a score, as JSON values without secrets.

    ``model``: the candidate if the role is ``same``, the served model if it is a `ServedRole`, None
    if it is an `EndpointRole`. ``sampling`` comes from the role or from the benchmark."""
    drawn = sampling.as_json()
    if isinstance(role, EndpointRole):
        return {
            "kind": "endpoint",
            "model": role.endpoint.model,
            "revision": None,
            "endpoint": host_of(role.endpoint.url),
            **_path_of(role.endpoint.url),
            "sampling": drawn,
        }
    if model is None:
        raise ValueError("a role without an endpoint needs a resolved model")
    identity: dict[str, Any] = {
        "kind": "same" if role == "same" else "served",
        "model": model.source,
        "revision": model.known_revision,
        "sampling": drawn,
        **({"adapter": model.adapter.ref.revision} if model.adapter else {}),
    }
    if isinstance(role, ServedRole):
        identity["chat_template_kwargs"] = role.model.chat_template_kwargs
        identity["reasoning_parser"] = role.model.reasoning_parser
        if role.model.tool_parser is not None:
            identity["tool_parser"] = role.model.tool_parser
        identity["engine"] = role.engine
    return identity


def _path_of(url: str) -> dict[str, str]:
    """Return {"path_sha256": hash of the URL's path}, since the path itself may be private; {} for
    ``/v1`` or no path."""
    path = urlsplit(url).path.strip("/")
    return {} if path in ("", "v1") else {"path_sha256": digest(path)}


def candidate_identity(config: RunConfig, model: ModelRef, choice: FormatChoice) -> dict[str, Any]:
    """Return the properties of the candidate that can change its answers, except sampling.

    They are JSON values without secrets. ``model`` is the resolved model of ``config``."""
    identity = {
        "model": model.source,
        "revision": model.known_revision,
        "chat_template_kwargs": config.template_kwargs,
        **choice.identity,
        "backend": config.backend,
        "engine": config.engine,
        **({"adapter": model.adapter.ref.revision} if model.adapter else {}),
    }
    if config.model.endpoint is not None:
        identity["endpoint"] = endpoint_identity(config.model.endpoint)
    return identity


def endpoint_identity(endpoint: CandidateEndpoint) -> dict[str, Any]:
    """Return the properties of an endpoint that can change a score, as JSON without secrets."""
    return {
        "host": host_of(endpoint.url),
        **_path_of(endpoint.url),
        "model": endpoint.model,
        "extra_body": endpoint.extra_body,
    }


def check_url(url: str, where: str) -> HttpUrl:
    """Parse the base URL of an endpoint. Raises `UserError` if it is malformed or may contain a
    secret. The error does not show the URL."""
    # Not checked by a pattern of the config field: its error would show the URL and a key in it.
    fix = "write the base URL, e.g. https://api.openai.com/v1"
    if "@" in url.partition("//")[2].partition("/")[0] or "?" in url or "#" in url:
        raise UserError(
            "the URL contains a user name, a password, a query or a fragment",
            where=where,
            fix=f"{fix}; a key belongs in the environment variable that api_key_env names",
        )
    try:
        parsed = http_url(url)
    except ValueError as error:
        raise UserError(f"is not a valid endpoint URL: {error}", where=where, fix=fix) from None
    if not url.isascii() or " " in url:
        raise UserError("contains characters that are not allowed in a URL", where=where, fix=fix)
    if parsed.target.rstrip("/").endswith("/completions"):
        raise UserError(
            "ends in /completions, a path that ace_ray adds itself", where=where, fix=fix
        )
    return parsed


def check_size(name: str, value: Any) -> None:
    """Raise `UserError` unless the engine argument ``name`` has an integer ``value`` >= 1."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise UserError(
            f"{name!r} is {value!r}, but it must be an integer of at least 1",
            where="engine",
            fix="correct the value",
        )


@contextmanager
def within(where: str) -> Iterator[None]:
    """Context that puts ``where``, the config key of a role, before the key in a `UserError`."""
    try:
        yield
    except UserError as error:
        raise UserError(error.what, where=f"{where}.{error.where}", fix=error.fix) from error
