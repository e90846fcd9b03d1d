"""``ace-ray score ... --judge FILE``: ask a model about stored answers without a judge's verdict.

Only the command names the judge, since a stored run may be a stranger's."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from ace_ray.benchmarks.base import Benchmark
from ace_ray.benchmarks.context import RoleModel
from ace_ray.config.roles import EndpointRole
from ace_ray.config.schema import validate_tree, yaml_file
from ace_ray.errors import RowError, UserError
from ace_ray.models.endpoint import EndpointModel
from ace_ray.models.sampling import fill_defaults
from ace_ray.pipeline.actors.verdicts import log_traceback
from ace_ray.pipeline.roles import role_identity
from ace_ray.rescoring.stored_benchmarks import StoredBenchmarks
from ace_ray.storage.rows import episode_of, readable_json
from ace_ray.storage.stored import Manifest, differences
from ace_ray.types import Sampling

Row = dict[str, Any]
_T = TypeVar("_T")
# Rows that are stored together. An interrupted command loses at most their answers.
JUDGED_TOGETHER = 256


class Judge:
    """The judge's endpoint, from a config ``file``; it has answered a test request. ``judging``:
    benchmark -> facts on the judge for the manifest, from the first verdict on. Raises `UserError`
    if the file does not describe an endpoint, or the endpoint does not answer."""

    def __init__(self, file: str) -> None:
        tree = yaml_file(file)
        if not isinstance(tree, Mapping) or "endpoint" not in tree:
            fix = "write endpoint: {url: ..., model: ...}; `vllm serve` serves a model of your own"
            raise UserError("only an endpoint can judge stored answers", where=file, fix=fix)
        self._role, self._location = (
            validate_tree(EndpointRole, tree, where=file),
            f"{file}: endpoint",
        )
        block = self._role.sampling
        self._sampling = (
            block and fill_defaults(block, None, {}, location=f"{file}: sampling").sampling()
        )
        self.judging: dict[str, Any] = {}
        request, drawn = [{"role": "user", "content": "Say yes."}], Sampling(max_tokens=16)
        try:
            self._run(lambda model: model.chat(request, self._sampling or drawn))
        except RowError as error:
            fix = "check the server, url, model and api_key_env"
            raise UserError(str(error), where=self._location, fix=fix) from error

    def judge_rows(
        self, manifest: Manifest, benchmarks: StoredBenchmarks, rows: Sequence[Row]
    ) -> list[Row]:
        """Ask the judge about rows with the status ``not_judged``. Return all ``rows``; the judge's
        answers are in their column ``state``.

        Raises `UserError` if no benchmark of the run asks a judge, or the run has verdicts of
        another judge."""
        models = {
            name: (benchmark.role_sampling("judge"), self._facts(benchmark, manifest))
            for name, benchmark in benchmarks.by_name.items()
            if type(benchmark).judge is not Benchmark.judge
        }
        if not models:
            raise UserError("no benchmark of the run asks a judge", "--judge", "leave it out")

        async def ask(row: Row, model: EndpointModel) -> Row:
            if row["status"] != "not_judged" or row["benchmark"] not in models:
                return row
            benchmark, entry = benchmarks.find_entry(row)
            default, facts = models[benchmark.name]
            sampling = (self._sampling or default).with_row_seed(row["sample"], *entry.path)
            try:
                episode = episode_of(row)
                if await benchmark.judge(entry, episode, RoleModel(model, sampling, facts["role"])):
                    self.judging[benchmark.name] = facts
                return {**row, "state": readable_json(episode.state)}
            except Exception:  # noqa: BLE001 - a damaged state, which the following check reports
                log_traceback()
                return row

        async def ask_all(model: EndpointModel) -> list[Row]:
            return await asyncio.gather(*(ask(row, model) for row in rows))

        return self._run(ask_all)

    def _facts(self, benchmark: Benchmark, manifest: Manifest) -> dict[str, Any]:
        sampling = self._sampling or benchmark.role_sampling("judge")
        role = role_identity(self._role, None, sampling) | {"sampling": sampling.identity()}
        facts = {"role": role, "questions": dict(benchmark.judging())}
        roles = manifest.identity.roles.get(benchmark.name, {})
        stored = {"role": roles.get("judge", role), "questions": facts["questions"]}
        if paths := differences(stored | manifest.judging.get(benchmark.name, {}), facts):
            raise UserError(
                f"the run has verdicts of another judge ({', '.join(paths)} differ)",
                where="--judge",
                fix="name the same judge; another judge needs a separate run",
            )
        return facts

    def _run(self, work: Callable[[EndpointModel], Awaitable[_T]]) -> _T:
        """Run ``work`` with the endpoint, in a new thread if this thread runs an event loop, as in
        a notebook. Return its result."""

        async def run() -> _T:
            model = EndpointModel(self._role.endpoint, location=self._location)
            try:
                return await work(model)
            finally:
                await model.close()

        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(run())
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(asyncio.run, run()).result()
