"""Who answers a run's API calls, as its config says: cache, real APIs, simulator, stub."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ace_ray.benchmarks.context import EpisodeContext, Service
from ace_ray.benchmarks.stabletoolbench.apis.cache import (
    CacheClient,
    CacheService,
    Mode,
    check_folder,
)
from ace_ray.benchmarks.stabletoolbench.apis.cache_file import Names, recorded_sha256
from ace_ray.benchmarks.stabletoolbench.apis.caller import ApiCaller, check_backends
from ace_ray.benchmarks.stabletoolbench.apis.real import RealApis, check_real, read_key
from ace_ray.benchmarks.stabletoolbench.apis.simulator import (
    MIRROR_TOKENS,
    SAMPLING,
    SCHEMA_SHA256,
    Form,
    Simulator,
    SystemText,
    form_of,
    system_text,
)
from ace_ray.benchmarks.stabletoolbench.options import Options
from ace_ray.config import cache_root
from ace_ray.errors import UserError
from ace_ray.local_files import folder_of
from ace_ray.models.http import PublicHttp
from ace_ray.models.roles import EndpointRole, Role, parse_role
from ace_ray.records import Sampling, digest

_WHERE = "benchmarks.stabletoolbench"
NamesOf = Callable[[], Sequence[Names]]
"""The APIs of the run, once each, as normalised."""


class ApiSources:
    """Those that a run's config names, and what of them moves a score.

    ``backends`` are their names in the order in which they are asked, ``simulator`` is the role of
    the model that plays APIs. Raises `UserError` on what the config says of them.
    """

    def __init__(self, options: Options, checkout: Path | None) -> None:
        backends = check_backends(options.apis, f"{_WHERE}.apis")
        if options.cache == "off":
            backends = tuple(name for name in backends if name != "cache")
        if not backends:
            raise UserError(
                "no backend is left to answer: the cache is off",
                where=f"{_WHERE}.apis",
                fix="name simulator or stub too, or set cache: read",
            )
        self._options, self.backends = options, backends
        # Read here and not where they are used: workers have no copy of the checkout.
        self._systems: dict[Form, SystemText] = {
            form: system_text(form, str(checkout) if checkout else None)
            for form in (("own", "mirror", "mirror_cache") if checkout else ("own",))
        }
        self.simulator: Role | None = None
        if "simulator" in backends:
            self.simulator = parse_role(options.simulator, f"{_WHERE}.simulator")
            if checkout is None and form_of(model_of(self.simulator)) != "own":
                raise UserError(
                    "MirrorAPI knows its own system text only, which ace_ray does not hold",
                    where=f"{_WHERE}.simulator",
                    fix=f"name a checkout of StableToolBench in {_WHERE}.upstream",
                )
        if options.real is not None:
            check_real(options.real, f"{_WHERE}.real")
        if "real" in backends:
            self._real()
        self._cache_folder = str(
            folder_of(options.cache_folder, f"{_WHERE}.cache_folder").absolute()
            if options.cache_folder
            else cache_root() / "stabletoolbench" / "answers"
        )
        self._holder = uuid.uuid4().hex
        self._checked = False
        self._recorded_sha256: str | None = None
        self._callers: dict[str, ApiCaller] = {}

    def __getstate__(self) -> dict[str, Any]:
        # The cache was checked where the run began.
        return self.__dict__ | {"_callers": {}, "_checked": True}

    def identity(self, names: NamesOf) -> Mapping[str, Any]:
        """What can move a score (JSON values); None for a backend that is not asked."""
        options, cached = self._options, "cache" in self.backends
        return {
            "apis": list(self.backends),
            "cache": options.cache if cached else None,
            "stub_seed": options.stub_seed if "stub" in self.backends else None,
            "cache_any_simulator": options.cache_any_simulator if cached else None,
            "recorded_sha256": self._recorded(names),
            "real": options.real.model_dump(mode="json", exclude={"key_env"})
            if options.real and "real" in self.backends
            else None,
            "simulator_prompts_sha256": {
                form: digest(system.text) for form, system in self._systems.items()
            }
            if "simulator" in self.backends
            else None,
            **({"simulator_schema_sha256": SCHEMA_SHA256} if self._follows_schema else {}),
        }

    @property
    def _follows_schema(self) -> bool:
        return self.simulator is not None and form_of(model_of(self.simulator)) == "own"

    def service(self, names: NamesOf) -> Service | None:
        """As `Benchmark.service`."""
        if self._options.real and "real" in self.backends:
            # Here and not earlier: a run is scored without the keys of its episodes.
            read_key(self._options.real, f"{_WHERE}.real")
        if "cache" not in self.backends:
            return None
        mode: Mode = "readwrite" if self._options.cache == "readwrite" else "read"
        recorded = ""
        if self._options.recorded:
            recorded = str(folder_of(self._options.recorded, f"{_WHERE}.recorded"))
        if not self._checked:
            where = f"{_WHERE}.cache:"
            check_folder(self._cache_folder, mode, names(), recorded=recorded, where=where)
            self._checked = True
        return CacheService(self._cache_folder, mode, recorded=recorded, holder=self._holder)

    def lock_key(self) -> str:
        writes = "cache" in self.backends and self._options.cache == "readwrite"
        return f"the cache {self._cache_folder}" if writes else ""

    def caller(self, context: EpisodeContext) -> ApiCaller:
        """One per process and simulator, so that identical calls are answered once."""
        simulator = self.simulator_of(context)
        simulator_id = simulator.simulator_id if simulator else ""
        if simulator_id not in self._callers:
            cache = None
            if context.service is not None:
                writes = self._options.cache == "readwrite"
                shared = self._options.cache_any_simulator
                cache = CacheClient(
                    context.service, writes=writes, simulator_id=simulator_id, any_simulator=shared
                )
            self._callers[simulator_id] = ApiCaller(
                cache=cache,
                real=self._real() if "real" in self.backends else None,
                simulator=simulator,
                stub_seed=self._options.stub_seed if "stub" in self.backends else None,
            )
        return self._callers[simulator_id]

    def simulator_of(self, context: EpisodeContext) -> Simulator | None:
        model = context.roles.get("simulator")
        if model is None:
            return None
        if self.simulator == "same":  # what moves the candidate's answers moves these
            identity = {**model.identity, **context.candidate.identity}
            model = replace(model, identity=identity)
        form = form_of(str(model.identity.get("model", "")))
        system = self._systems.get(form) or system_text(form, None)
        return Simulator(model, form, system)

    def _recorded(self, names: NamesOf) -> str | None:
        if "cache" not in self.backends:
            return None
        if self._recorded_sha256 is None:
            root = folder_of(self._options.recorded or self._cache_folder, f"{_WHERE}.recorded")
            self._recorded_sha256 = recorded_sha256(root, names()) or ""
        return self._recorded_sha256 or None

    def _real(self) -> RealApis:
        real = self._options.real
        if real is None:
            raise UserError(
                "real APIs are asked nowhere",
                where=f"{_WHERE}.apis",
                fix=f"name hosts in {_WHERE}.real, or leave real out",
            )
        if real.service_url is None and self._options.tool_folder is None:
            raise UserError(
                "no query says at which URLs its APIs are",
                where=f"{_WHERE}.real.service_url",
                fix=f"name a service for all, or a tool directory in {_WHERE}.tool_folder",
            )
        return RealApis(real, PublicHttp(), self._options.tools, where=f"{_WHERE}.real")


def model_of(role: Role) -> str:
    """The name of the model in a role; "" for the candidate's."""
    if role == "same":
        return ""
    return role.endpoint.model if isinstance(role, EndpointRole) else role.model.source or ""


def simulator_sampling(role: Role) -> Sampling:
    """How a simulator draws its answers unless the config says otherwise."""
    mirrors = form_of(model_of(role)) != "own"
    return replace(SAMPLING, max_tokens=MIRROR_TOKENS) if mirrors else SAMPLING
