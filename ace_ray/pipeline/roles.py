"""Fix the revisions of the models that play roles in episodes, serve them, and call them."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from ace_ray.benchmarks.base import Benchmark
from ace_ray.benchmarks.checked import own_code
from ace_ray.benchmarks.context import Model, RoleModel
from ace_ray.cluster.resources import gpus_per_worker
from ace_ray.config.schema import EndpointConfig, RunConfig
from ace_ray.errors import UserError
from ace_ray.models.endpoint import EndpointModel
from ace_ray.models.engine_args import cluster_engine_args
from ace_ray.models.families import choose_tool_parser, facts_of_model, reasoning_parser
from ace_ray.models.roles import EndpointRole, Role, ServedRole, check_role, within
from ace_ray.models.roles import role_identity as identity_of
from ace_ray.models.sampling import check_budget, completed
from ace_ray.models.sources import ModelRef, resolve
from ace_ray.pipeline import serving
from ace_ray.types import Sampling


@dataclass(frozen=True)
class RoleBinding:
    """The model of one role of a benchmark, with all settings that can change a score."""

    role: Role
    model: ModelRef | None
    """The candidate if the role is set to ``same``; the served model; None for an endpoint."""
    sampling: Sampling
    identity: Mapping[str, Any]


@dataclass(frozen=True)
class Served:
    """The endpoints of a role's model that is served on the cluster, and their API key."""

    endpoints: tuple[EndpointConfig, ...]
    key: str


# benchmark -> role -> binding
RoleBindings = Mapping[str, Mapping[str, RoleBinding]]


def bind_roles(
    config: RunConfig, candidate: ModelRef, benchmarks: Sequence[Benchmark]
) -> RoleBindings:
    """Return the bindings of all roles, with fixed model revisions. Raises `UserError`."""
    bindings = {}
    for benchmark in benchmarks:
        with own_code(type(benchmark), "roles"):
            asked = {
                name: (role, benchmark.role_sampling(name), benchmark.role_tools(name) is not None)
                for name, role in benchmark.roles().items()
            }
        bindings[benchmark.name] = {
            name: _binding(config, candidate, benchmark, name, *of_role)
            for name, of_role in asked.items()
        }
    return bindings


def _binding(
    config: RunConfig,
    candidate: ModelRef,
    benchmark: Benchmark,
    name: str,
    role: Role,
    default: Sampling,
    calls: bool,
) -> RoleBinding:
    """Return the binding of the role ``name``. ``default``: sampling if the role sets none.
    ``calls``: whether the role is offered tools."""
    where = f"benchmarks.{benchmark.name}.{name}"
    check_role(role, where)
    model: ModelRef | None = candidate
    if isinstance(role, EndpointRole):
        model = None
    elif isinstance(role, ServedRole):
        assert role.model.source is not None  # `parse_role` refuses a role without a source
        if calls and role.model.tool_parser is None:
            raise UserError(
                "this role is offered tools, so it needs a tool parser",
                where=f"{where}.model.tool_parser",
                fix="write auto, or the name of the model's parser (ace-ray list parsers)",
            )
        model = resolve(
            role.model.source,
            role.model.revision,
            endpoint_url=config.store.endpoint_url,
            region=config.store.region,
            weights=role.engine.get("load_format") != "dummy",
        )
        role = _with_parsers(role, model, where, calls=calls)
        parser = role.model.reasoning_parser
        check_budget(role.sampling, role.engine, parser, where=f"{where}.sampling")
    sampling = default
    if role == "same":
        # The limit on the candidate's answers also applies when it plays another role.
        most = min(sampling.max_tokens, config.sampling.max_tokens)
        sampling = replace(sampling, max_tokens=most)
    elif role.sampling is not None:
        engine = role.engine if isinstance(role, ServedRole) else {}
        own = completed(role.sampling, model, engine, where=f"{where}.sampling")
        sampling = own.sampling()
    identity = identity_of(role, model, sampling)
    if name not in benchmark.shared_roles:
        identity["sampling"] = sampling.identity()
    return RoleBinding(role, model, sampling, identity)


def _with_parsers(role: ServedRole, model: ModelRef, where: str, *, calls: bool) -> ServedRole:
    """Return ``role`` with ``auto`` replaced by the parsers of the model's family. ``calls``:
    whether the role is offered tools; if not, ``auto`` becomes no tool parser. Raises `UserError`
    if no tool parser fits the family."""
    asked = role.model
    mode = str(role.engine.get("tokenizer_mode", "auto"))
    chosen: dict[str, str | None] = {}
    if asked.reasoning_parser == "auto" and not role.engine.get("reasoning_parser"):
        chosen["reasoning_parser"] = reasoning_parser(facts_of_model(model, mode))
    if asked.tool_parser == "auto":
        chosen["tool_parser"] = None
        if calls:
            facts = facts_of_model(model, mode)
            with within(where):
                chosen["tool_parser"] = choose_tool_parser(facts, str(asked.source))
    return role.model_copy(update={"model": asked.model_copy(update=chosen)})


def served_roles(
    bindings: RoleBindings,
) -> dict[tuple[str, str], tuple[ServedRole, RoleBinding]]:
    """Return the roles whose models are served on the cluster, by (benchmark, role name)."""
    return {
        (benchmark, name): (binding.role, binding)
        for benchmark, roles in bindings.items()
        for name, binding in roles.items()
        if isinstance(binding.role, ServedRole)
    }


def _server_key(role: ServedRole, binding: RoleBinding) -> tuple[str, ModelRef | None]:
    """Return a value that is equal for roles whose model one server can serve: requests have their
    own sampling."""
    return role.model_copy(update={"sampling": None}).model_dump_json(), binding.model


def demand(bindings: RoleBindings, *, on_gpu: bool) -> list[tuple[float, int]]:
    """Return (CPUs, GPUs) for each server of the roles. A server runs on one node."""
    servers = {_server_key(*pair): pair[0] for pair in served_roles(bindings).values()}
    return [
        (serving.SERVER_CPUS, gpus_per_worker(role.engine) if on_gpu else 0)
        for role in servers.values()
        for _ in range(role.replicas)
    ]


@contextmanager
def serving_roles(
    bindings: RoleBindings, *, on_gpu: bool
) -> Iterator[dict[tuple[str, str], Served]]:
    """Start the servers of all roles, and stop them when the context ends. Roles with the same
    settings share servers. Yield the endpoints by (benchmark, role name). Raises `ServerFailed` if
    a server fails to start."""
    key = secrets.token_urlsafe(32)
    roles = served_roles(bindings)
    seeded = {_server_key(*pair) for pair in roles.values() if pair[1].sampling.temperature > 0}
    starting: dict[tuple[str, ModelRef | None], list[serving.Starting]] = {}
    try:
        for role, binding in roles.values():
            assert binding.model is not None  # a served role has a model
            of = _server_key(role, binding)
            engine = cluster_engine_args(role.engine, on_gpu=on_gpu, seeded=of in seeded)
            if of not in starting:
                starting[of] = [
                    serving.start_server(role, binding.model, engine, key=key, on_gpu=on_gpu)
                    for _ in range(role.replicas)
                ]
        urls = {of: list(map(serving.url, servers)) for of, servers in starting.items()}
        served = {}
        for names, (role, binding) in roles.items():
            assert binding.model is not None
            model, at = binding.model, urls[_server_key(role, binding)]
            served[names] = Served(tuple(serving.endpoint(model, url) for url in at), key)
        yield served
    finally:
        serving.stop([server for servers in starting.values() for server in servers])


class RoleModels:
    """The models of all roles for one worker. All its episodes share the models' HTTP clients.

    ``seed`` selects the replica of each served model that this worker uses."""

    def __init__(
        self,
        bindings: RoleBindings,
        served: Mapping[tuple[str, str], Served],
        candidate: Model,
        seed: int,
    ) -> None:
        self._bindings = bindings
        self._models: dict[tuple[str, str], Model] = {}
        for benchmark, roles in bindings.items():
            for name, binding in roles.items():
                place = (benchmark, name)
                if binding.role == "same":
                    self._models[place] = candidate
                elif isinstance(binding.role, EndpointRole):
                    self._models[place] = EndpointModel(binding.role.endpoint)
                else:
                    ends = served[place].endpoints
                    # A worker uses one replica, so that its episodes profit from the prefix cache.
                    self._models[place] = EndpointModel(
                        ends[seed % len(ends)],
                        key=served[place].key,
                        in_cluster=True,
                        split_reasoning=binding.role.model.reasoning_parser != "none",
                    )

    def of(self, benchmark: Benchmark, sample: int, path: Sequence[str]) -> dict[str, RoleModel]:
        """Return the models of a benchmark by role, with the seeds for this sample of the entry
        ``path``."""
        return {
            name: RoleModel(
                self._models[benchmark.name, name],
                binding.sampling
                if name in benchmark.shared_roles
                else binding.sampling.for_row(sample, *path),
                binding.identity,
            )
            for name, binding in self._bindings.get(benchmark.name, {}).items()
        }
