"""The backends of a run's API calls: the cache, real APIs, a simulator."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ace_ray.benchmarks.context import EpisodeContext, Service
from ace_ray.benchmarks.stabletoolbench.apis import answers, cache
from ace_ray.benchmarks.stabletoolbench.apis import simulator as simulators
from ace_ray.benchmarks.stabletoolbench.apis.answers import ApiAnswer
from ace_ray.benchmarks.stabletoolbench.apis.real import RealApis
from ace_ray.benchmarks.stabletoolbench.options import Options
from ace_ray.benchmarks.stabletoolbench.tools import Api
from ace_ray.config.roles import EndpointRole, Role, parse_role
from ace_ray.errors import UserError
from ace_ray.models.http import Http
from ace_ray.models.urls import check_url, read_key
from ace_ray.types import Sampling, digest
from ace_ray.util.suggestions import check_names

_WHERE = "benchmarks.stabletoolbench"
# Backends in the order in which they are tried.
BACKENDS = ("cache", "real", "simulator")
NO_ANSWER = "The API server has no answer to this request."


class ApiSources:
    """Sources of API answers (backends) that a run's config names.

    ``backends`` lists the names in the order in which backends are tried. ``simulator`` is the role
    of the model that simulates APIs, or None. Raises `UserError` for an invalid config."""

    def __init__(self, options: Options, checkout: Path | None) -> None:
        self._options = options
        check_names(options.apis, BACKENDS, kind="backend", location=f"{_WHERE}.apis")
        self.backends = tuple(name for name in BACKENDS if name in options.apis)
        # Read on the driver: workers lack a copy of the checkout.
        self._systems: dict[simulators.Form, str] = {"own": simulators.OWN_SYSTEM}
        if checkout:
            mirrored = simulators.mirror_system(checkout)
            self._systems |= {"mirror": mirrored, "mirror_cache": mirrored}
        self.simulator: Role | None = None
        if "simulator" in self.backends:
            self.simulator = parse_role(options.simulator, f"{_WHERE}.simulator")
            if checkout is None and _is_mirror(self.simulator):
                raise UserError(
                    "MirrorAPI works only with its own system text, which ace_ray does not contain",
                    where=f"{_WHERE}.simulator",
                    fix=f"name a checkout of StableToolBench in {_WHERE}.upstream",
                )
        if options.real is not None:
            url, location = options.real.service_url, f"{_WHERE}.real.service_url"
            check_url(url, location, fix="write https://HOST/PATH", key="key_env")
        elif "real" in self.backends:
            fix = f"name one in {_WHERE}.real, or remove 'real' from {_WHERE}.apis"
            raise UserError("no service for real APIs is named", where=f"{_WHERE}.apis", fix=fix)
        self._cache_folder = cache.cache_folder(options.cache_folder, f"{_WHERE}.cache_folder")
        self._callers: dict[str, ApiCaller] = {}

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_callers": {}}

    def identity(self, apis: Iterable[str]) -> Mapping[str, Any]:
        """Return the settings that can change a score (JSON values); None for an unused backend.
        ``apis`` are the keys of the run's APIs (`cache.cache_key`)."""
        options, cached = self._options, "cache" in self.backends
        real = options.real if "real" in self.backends else None
        prompts = {form: digest(system) for form, system in self._systems.items()}
        has_schema = self.simulator is not None and not _is_mirror(self.simulator)
        return {
            "apis": list(self.backends),
            "cache": options.cache if cached else None,
            "recorded_sha256": cache.recorded_sha256(self._cache_folder, apis) if cached else None,
            "real": real.model_dump(mode="json", exclude={"key_env"}) if real else None,
            "simulator_prompts_sha256": prompts if "simulator" in self.backends else None,
            **({"simulator_schema_sha256": simulators.SCHEMA_SHA256} if has_schema else {}),
        }

    def service(self) -> Service | None:
        """Return the cache, or None if it is not used. Raises `UserError` if the cache cannot be
        opened, or the environment lacks the key of the real APIs."""
        self._real_apis()  # only here: scoring a stored run does not need the service's key
        if "cache" not in self.backends:
            return None
        service = cache.AnswerCache(str(self._cache_folder), self._options.cache)
        service.open()
        service.close()
        return service

    def caller(self, context: EpisodeContext) -> ApiCaller:
        """Return the `ApiCaller` for the simulator of ``context``, one object per process."""
        simulator = self.simulator_of(context)
        simulator_id = simulator.simulator_id if simulator else ""
        if simulator_id not in self._callers:
            service, writes = context.service, self._options.cache == "readwrite"
            caller = ApiCaller(service, writes=writes, real=self._real_apis(), simulator=simulator)
            self._callers[simulator_id] = caller
        return self._callers[simulator_id]

    def _real_apis(self) -> RealApis | None:
        """Return the client of real APIs, or None if the run does not use them. Raises `UserError`
        if the environment lacks their key."""
        real = self._options.real
        if real is None or "real" not in self.backends:
            return None
        key = read_key(real.key_env, f"{_WHERE}.real.key_env", f"export {real.key_env}")
        return RealApis(real, Http(), key or "")

    def simulator_of(self, context: EpisodeContext) -> simulators.Simulator | None:
        model = context.roles.get("simulator")
        if model is None:
            return None
        if self.simulator == "same":  # the candidate's settings change these answers, too
            identity = {**model.identity, **context.candidate.identity}
            model = replace(model, identity=identity)
        form = simulators.form_of(str(model.identity.get("model", "")))
        return simulators.Simulator(model, form, self._systems.get(form, simulators.OWN_SYSTEM))


def model_of(role: Role) -> str:
    """Return the name of the model in ``role``, or "" if the evaluated model plays the role."""
    if role == "same":
        return ""
    return role.endpoint.model if isinstance(role, EndpointRole) else role.model.source or ""


def simulator_sampling(role: Role) -> Sampling:
    """Return the default sampling of the simulator in ``role``."""
    sampling = simulators.SAMPLING
    return replace(sampling, max_tokens=simulators.MIRROR_TOKENS) if _is_mirror(role) else sampling


def _is_mirror(role: Role) -> bool:
    return simulators.form_of(model_of(role)) != "own"


# ``await service(method, *values)`` calls a method of the `cache.AnswerCache` in any process.
CallService = Callable[..., Awaitable[Any]]


class ApiCaller:
    """Answers API calls for all episodes of one process.

    Backends are tried in the order cache, real APIs, simulator; a backend that is None is skipped.
    ``service`` calls the cache, ``writes`` is true if new answers are recorded. Recorded answers of
    other simulators are not used."""

    def __init__(
        self,
        service: CallService | None = None,
        *,
        writes: bool = False,
        real: RealApis | None = None,
        simulator: simulators.Simulator | None = None,
    ) -> None:
        self._service, self._writes = service, writes
        self._real, self._simulator = real, simulator
        self._simulator_id = simulator.simulator_id if simulator else ""

    async def call(self, api: Api, arguments: str) -> ApiAnswer:
        """Return the answer to one call; ``arguments`` is the model's text, which is not checked.

        Raises `RowError` or `EngineDead` if the simulator fails, but not because of the arguments.
        """
        try:
            request = answers.arguments_of(arguments)
        except answers.UnusableJson:
            return ApiAnswer(answers.BAD_ARGUMENTS, "", "none", failure="arguments")
        service, key = self._service, (cache.cache_key(api), json.dumps(request))
        if service and (record := await service("get", *key, self._simulator_id)):
            return cache.answer_of(record)
        answered = ApiAnswer(NO_ANSWER, "", "none", failure="no_backend")
        if self._real:
            answered = await self._real.answer(api, request)
        if answered.failure and self._simulator:
            examples: list[list[str]] = []
            if service and self._simulator.takes_examples:
                examples = await service("examples", key[0])
            answered = await self._simulator.answer(api, request, examples)
        if service and self._writes and answered.failure in ("", "simulator"):
            return await self._record(service, key, answered)
        return answered

    async def _record(
        self, service: CallService, key: tuple[str, str], answered: ApiAnswer
    ) -> ApiAnswer:
        """Record an answer, or the simulator's failure. Return the answer that the cache has then:
        ``answered``, or one that was recorded earlier for the same call."""
        text = answers.answer_text(answered.error, answered.response)
        maker = self._simulator_id if answered.source == "simulator" else ""
        mine = [text, maker, int(bool(answered.failure))]
        record = await service("put", *key, maker, text, mine[-1])
        return answered if record in (None, mine) else cache.answer_of(record)
