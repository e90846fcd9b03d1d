"""The backends of a run's API calls: the cache, real APIs, a simulator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ace_ray.benchmarks.context import EpisodeContext, Service
from ace_ray.benchmarks.stabletoolbench.apis.answers import (
    BAD_ARGUMENTS,
    Answered,
    Unusable,
    arguments_of,
)
from ace_ray.benchmarks.stabletoolbench.apis.cache import (
    AnswerCache,
    CacheClient,
    cache_folder,
    recorded_sha256,
)
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
from ace_ray.benchmarks.stabletoolbench.tools import Api
from ace_ray.config.roles import EndpointRole, Role, parse_role
from ace_ray.errors import UserError
from ace_ray.models.http import Http
from ace_ray.types import Sampling, digest
from ace_ray.util.suggestions import check_names

_WHERE = "benchmarks.stabletoolbench"
# Backends in the order in which they are tried.
BACKENDS = ("cache", "real", "simulator")
NO_ANSWER = "The API server has no answer to this request."


class ApiSources:
    """Backends that a run's config names, and their part of the run's identity.

    ``backends`` lists their names in the order in which they are tried. ``simulator`` is the role
    of the model that simulates APIs, or None. Raises `UserError` for an invalid config."""

    def __init__(self, options: Options, checkout: Path | None) -> None:
        self._options = options
        check_names(options.apis, BACKENDS, what="backend", where=f"{_WHERE}.apis")
        self.backends = tuple(name for name in BACKENDS if name in options.apis)
        # Read on the driver: workers lack a copy of the checkout.
        self._systems: dict[Form, SystemText] = {
            form: system_text(form, str(checkout) if checkout else None)
            for form in (("own", "mirror", "mirror_cache") if checkout else ("own",))
        }
        self.simulator: Role | None = None
        if "simulator" in self.backends:
            self.simulator = parse_role(options.simulator, f"{_WHERE}.simulator")
            if checkout is None and form_of(model_of(self.simulator)) != "own":
                raise UserError(
                    "MirrorAPI works only with its own system text, which ace_ray does not contain",
                    where=f"{_WHERE}.simulator",
                    fix=f"name a checkout of StableToolBench in {_WHERE}.upstream",
                )
        if options.real is not None:
            check_real(options.real, f"{_WHERE}.real")
        elif "real" in self.backends:
            raise UserError(
                "no service for real APIs is named",
                where=f"{_WHERE}.apis",
                fix=f"name one in {_WHERE}.real, or remove 'real' from {_WHERE}.apis",
            )
        self._cache_folder = cache_folder(options.cache_folder, f"{_WHERE}.cache_folder")
        self._callers: dict[str, ApiCaller] = {}

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_callers": {}}

    def identity(self, apis: Iterable[str]) -> Mapping[str, Any]:
        """Return the settings that can change a score (JSON values); None for an unused backend.
        ``apis`` are the keys of the run's APIs (`cache.api_key`)."""
        options, cached = self._options, "cache" in self.backends
        by_schema = self.simulator is not None and form_of(model_of(self.simulator)) == "own"
        return {
            "apis": list(self.backends),
            "cache": options.cache if cached else None,
            "recorded_sha256": recorded_sha256(self._cache_folder, apis) if cached else None,
            "real": options.real.model_dump(mode="json", exclude={"key_env"})
            if options.real and "real" in self.backends
            else None,
            "simulator_prompts_sha256": {
                form: digest(system.text) for form, system in self._systems.items()
            }
            if "simulator" in self.backends
            else None,
            **({"simulator_schema_sha256": SCHEMA_SHA256} if by_schema else {}),
        }

    def service(self) -> Service | None:
        """Check that the cache can be opened, and return it; None if the cache is unused."""
        self._real()  # only here: scoring a stored run does not need the service's key
        if "cache" not in self.backends:
            return None
        cache = AnswerCache(str(self._cache_folder), self._options.cache)
        cache.open()
        cache.close()
        return cache

    def caller(self, context: EpisodeContext) -> ApiCaller:
        """Return the `ApiCaller` for the simulator of ``context``. Each process keeps one."""
        simulator = self.simulator_of(context)
        simulator_id = simulator.simulator_id if simulator else ""
        if simulator_id not in self._callers:
            cache = None
            if context.service is not None:
                writes = self._options.cache == "readwrite"
                cache = CacheClient(context.service, writes=writes, simulator_id=simulator_id)
            self._callers[simulator_id] = ApiCaller(
                cache=cache, real=self._real(), simulator=simulator
            )
        return self._callers[simulator_id]

    def _real(self) -> RealApis | None:
        """Return the client of real APIs, or None if the run does not use them. Raises `UserError`
        if the environment lacks their key."""
        real = self._options.real
        if real is None or "real" not in self.backends:
            return None
        return RealApis(real, Http(), read_key(real, f"{_WHERE}.real"))

    def simulator_of(self, context: EpisodeContext) -> Simulator | None:
        model = context.roles.get("simulator")
        if model is None:
            return None
        if self.simulator == "same":  # the candidate's settings change these answers, too
            identity = {**model.identity, **context.candidate.identity}
            model = replace(model, identity=identity)
        form = form_of(str(model.identity.get("model", "")))
        system = self._systems.get(form) or system_text(form, None)
        return Simulator(model, form, system)


def model_of(role: Role) -> str:
    """Return the name of the model in ``role``, "" if the candidate plays the role."""
    if role == "same":
        return ""
    return role.endpoint.model if isinstance(role, EndpointRole) else role.model.source or ""


def simulator_sampling(role: Role) -> Sampling:
    """Return the default sampling of the simulator in ``role``."""
    mirrors = form_of(model_of(role)) != "own"
    return replace(SAMPLING, max_tokens=MIRROR_TOKENS) if mirrors else SAMPLING


class ApiCaller:
    """Answers API calls for all episodes of one process.

    Backends are tried in the order of the arguments; a backend that is None is skipped."""

    def __init__(
        self,
        *,
        cache: CacheClient | None = None,
        real: RealApis | None = None,
        simulator: Simulator | None = None,
    ) -> None:
        self._cache, self._real, self._simulator = cache, real, simulator

    async def call(self, api: Api, arguments: Mapping[str, Any] | str) -> Answered:
        """Return the answer to one call; ``arguments`` is an object or JSON text.

        Raises `RowError` or `EngineDead` if the simulator fails, but not because of the arguments.
        """
        try:
            given = arguments_of(arguments)
        except Unusable:
            return Answered(BAD_ARGUMENTS, "", "none", failure="arguments")
        cache = self._cache
        if cache and (recorded := await cache.get(api, given)) is not None:
            return recorded
        answered = Answered(NO_ANSWER, "", "none", failure="no_backend")
        if self._real:
            answered = await self._real.answer(api, given)
        if answered.failure and self._simulator:
            shown = await cache.examples(api) if cache and self._simulator.takes_examples else []
            answered = await self._simulator.answer(api, given, shown)
        if cache and answered.failure in ("", "simulator"):
            return await cache.put(api, given, answered)
        return answered
