"""The other models of a run: pinned for the plan, served on the cluster, played on the workers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from ace_ray.benchmarks.protocol import Benchmark, Model, Player
from ace_ray.config import RunConfig
from ace_ray.models.endpoint import EndpointModel
from ace_ray.models.engine_args import cluster_engine_args
from ace_ray.models.roles import EndpointConfig, EndpointRole, Role, ServedRole, check_role
from ace_ray.models.roles import role_identity as identity_of
from ace_ray.models.sources import ModelRef, resolve
from ace_ray.records import Sampling


@dataclass(frozen=True)
class Part:
    """One role of a benchmark: who plays it, and all that can move a score in that."""

    role: Role
    model: ModelRef | None
    """The candidate's for ``same``, the served one's, None for an endpoint."""
    sampling: Sampling
    identity: Mapping[str, Any]


@dataclass(frozen=True)
class Served:
    """Where a part that is served on the cluster is reached."""

    endpoints: tuple[EndpointConfig, ...]
    key: str


Parts = Mapping[str, Mapping[str, Part]]
"""benchmark -> role -> part"""


def cast(config: RunConfig, candidate: ModelRef, benchmarks: Sequence[Benchmark]) -> Parts:
    """The parts of all roles, their models pinned. Raises `UserError`."""
    return {
        benchmark.name: {
            name: _part(config, candidate, role, benchmark.role_sampling(name), where)
            for name, role in benchmark.roles().items()
            if (where := f"benchmarks.{benchmark.name}.{name}")
        }
        for benchmark in benchmarks
    }


def _part(
    config: RunConfig, candidate: ModelRef, role: Role, default: Sampling, where: str
) -> Part:
    check_role(role, where)
    asked = None if role == "same" else role.sampling
    sampling = asked.sampling() if asked else default
    if role == "same":
        # Whoever shortens the candidate's answers shortens its lines as a user too.
        most = min(sampling.max_tokens, config.sampling.max_tokens)
        sampling = replace(sampling, max_tokens=most)
    model: ModelRef | None = candidate
    if isinstance(role, EndpointRole):
        model = None
    elif isinstance(role, ServedRole):
        model = resolve(
            role.model.source,
            role.model.revision,
            endpoint_url=config.store.endpoint_url,
            region=config.store.region,
        )
    return Part(role, model, sampling, identity_of(role, model, sampling))


def served_parts(parts: Parts) -> dict[tuple[str, str], tuple[ServedRole, Part]]:
    """The parts that need servers on the cluster, by (benchmark, role)."""
    return {
        (benchmark, name): (part.role, part)
        for benchmark, roles in parts.items()
        for name, part in roles.items()
        if isinstance(part.role, ServedRole)
    }


def demand(parts: Parts, *, on_gpu: bool) -> list[tuple[float, int]]:
    """(CPUs, GPUs) that each server of the parts holds."""
    from ace_ray.run.servers import serving

    return [
        serving.demand(role, on_gpu=on_gpu)
        for role, _ in served_parts(parts).values()
        for _ in range(role.replicas)
    ]


@contextmanager
def serving_parts(parts: Parts, *, on_gpu: bool) -> Iterator[dict[tuple[str, str], Served]]:
    """Servers of all parts that need them, up and answering; ended afterwards.

    Raises `ServerFailed`.
    """
    from ace_ray.run.servers import serving

    key = serving.new_key()
    starting: dict[tuple[str, str], list[serving.Starting]] = {}
    try:
        for place, (role, part) in served_parts(parts).items():
            assert part.model is not None  # a served part has a model
            seeded = part.sampling.temperature > 0
            engine = cluster_engine_args(role.engine, on_gpu=on_gpu, seeded=seeded)
            starting[place] = [
                serving.start_server(role, part.model, engine, key=key, on_gpu=on_gpu)
                for _ in range(role.replicas)
            ]
        found = {}
        for place, servers in starting.items():
            model = parts[place[0]][place[1]].model
            assert model is not None
            urls = [serving.url(server) for server in servers]
            found[place] = Served(tuple(serving.endpoint(model, at) for at in urls), key)
        yield found
    finally:
        serving.stop([server for servers in starting.values() for server in servers])


class Players:
    """The players of a worker, by benchmark and role. One HTTP client per endpoint, shared by all
    episodes of this process."""

    def __init__(
        self, parts: Parts, served: Mapping[tuple[str, str], Served], candidate: Model, seed: int
    ) -> None:
        self._parts = parts
        self._models: dict[tuple[str, str], Model] = {}
        for benchmark, roles in parts.items():
            for name, part in roles.items():
                place = (benchmark, name)
                if part.role == "same":
                    self._models[place] = candidate
                elif isinstance(part.role, EndpointRole):
                    self._models[place] = EndpointModel(part.role.endpoint)
                else:
                    ends = served[place].endpoints
                    # One replica per worker: an episode keeps its prefix cache.
                    self._models[place] = EndpointModel(
                        ends[seed % len(ends)],
                        key=served[place].key,
                        in_cluster=True,
                        split_reasoning=part.role.model.reasoning_parser != "none",
                    )

    def of(self, benchmark: str, sample: int) -> dict[str, Player]:
        """The players of a benchmark for the ``sample``-th repetition."""
        return {
            name: Player(
                self._models[benchmark, name], part.sampling.for_sample(sample), part.identity
            )
            for name, part in self._parts.get(benchmark, {}).items()
        }
