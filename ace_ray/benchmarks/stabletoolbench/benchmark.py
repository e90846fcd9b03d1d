"""The benchmark class of StableToolBench."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from ace_ray.benchmarks.base import Benchmark
from ace_ray.benchmarks.context import EpisodeContext, RoleModel, Service
from ace_ray.benchmarks.dataset import data_hash, pinned
from ace_ray.benchmarks.diagnosis import Answers, texts_of
from ace_ray.benchmarks.outputs import Entries, Output
from ace_ray.benchmarks.stabletoolbench.apis.cache import api_key
from ace_ray.benchmarks.stabletoolbench.apis.sources import ApiSources, model_of, simulator_sampling
from ace_ray.benchmarks.stabletoolbench.check import verdicts
from ace_ray.benchmarks.stabletoolbench.converted import converted, converted_json, read_reference
from ace_ray.benchmarks.stabletoolbench.episode.rollout import (
    initial_messages,
    offered,
    template_probe,
)
from ace_ray.benchmarks.stabletoolbench.episode.run import run_agent
from ace_ray.benchmarks.stabletoolbench.judge import asking, measures
from ace_ray.benchmarks.stabletoolbench.judge import prompts as judge_prompts
from ace_ray.benchmarks.stabletoolbench.names import GROUPS, LEVELS
from ace_ray.benchmarks.stabletoolbench.options import FOLDERS, Retrieved, Settings
from ace_ray.benchmarks.stabletoolbench.options import Options as StableToolBenchOptions
from ace_ray.benchmarks.stabletoolbench.outputs import read_outputs
from ace_ray.benchmarks.stabletoolbench.pool import RETRIEVER, ToolPool, all_docs
from ace_ray.benchmarks.stabletoolbench.prompts import OWN, read_texts
from ace_ray.benchmarks.stabletoolbench.queries import (
    absent_line,
    import_queries,
    load,
    locate,
    present,
)
from ace_ray.benchmarks.stabletoolbench.result_json import result_json, result_path
from ace_ray.benchmarks.stabletoolbench.shapes import ToolFolder
from ace_ray.benchmarks.stabletoolbench.summary import summarize
from ace_ray.benchmarks.stabletoolbench.tables import categories, notes, paper, scores, tables
from ace_ray.benchmarks.stabletoolbench.tools import Api, apis_of, schemas
from ace_ray.config.roles import Role, parse_role
from ace_ray.errors import UserError
from ace_ray.types import (
    CHECKED,
    RULE_SETS,
    Entry,
    Episode,
    OfferedApi,
    ResultRow,
    Sampling,
    Verdict,
    digest,
)
from ace_ray.util.local_files import path_of, refuse_uri
from ace_ray.util.suggestions import check_names

_log = logging.getLogger(__name__)
_WHERE = "benchmarks.stabletoolbench"
_T = TypeVar("_T")
# Maximum time for judging after an episode's deadline; less than ``DEADLINE_GRACE_S``.
JUDGE_S = 240.0


class StableToolBench(Benchmark):
    """The benchmark: an agent answers queries with virtual APIs, and a model judges the answers."""

    name = "stabletoolbench"
    rule_sets = RULE_SETS
    without_native = f"{_WHERE}.mode: react"
    shared_roles = frozenset({"simulator"})
    Options = StableToolBenchOptions
    groups = LEVELS
    choices: ClassVar = {"groups": dict.fromkeys(GROUPS, ())}
    refused_fix = "use a model whose template takes them, or change the benchmark's mode"

    def __init__(self, options: StableToolBenchOptions) -> None:
        super().__init__(options)
        check_names(options.groups or (), GROUPS, what="group", where=f"{_WHERE}.groups")
        for key in FOLDERS:
            refuse_uri(getattr(options, key) or "", f"{_WHERE}.{key}")
        self._folder = locate(options.data)
        self._groups = options.groups or present(self._folder)
        checkout = path_of(options.upstream, f"{_WHERE}.upstream") if options.upstream else None
        self._options = options
        self._sources = ApiSources(options, checkout)
        self._settings = Settings(
            method=options.method,
            form=options.mode,
            max_steps=options.max_steps,
            max_queries=options.max_queries,
            texts=read_texts(checkout) if checkout else OWN,
            exact_names=options.tool_scope != "query",
        )
        self._judging = judge_prompts.official(checkout) if checkout else judge_prompts.own()
        self._roles: dict[str, Role] = {}
        if self._sources.simulator is not None:
            self._roles["simulator"] = self._sources.simulator
        if options.judge == "none":
            for key in ("fac", "reference"):
                if getattr(options, key):
                    raise UserError(
                        "needs a judge, but judge is none",
                        where=f"{_WHERE}.{key}",
                        fix="name a judge, or leave this key out",
                    )
        else:
            self._roles["judge"] = parse_role(options.judge, f"{_WHERE}.judge")
        # Answers as JSON text, by group and query id: a long chain cannot be pickled.
        self._reference: dict[str, dict[str, str]] = {}
        if options.reference is not None:
            self._reference = read_reference(_converted(options.reference), self._groups)
        self._warnings: list[str] = []
        self._lacking: list[str] = []
        self._pool: ToolPool | None = None
        # System message of all queries, if they share it.
        self._system: dict[str, Any] | None = None

    def entries(self) -> Sequence[Entry]:
        options = self._options
        folder = options.tool_folder
        tools = ToolFolder(path_of(folder, f"{_WHERE}.tool_folder")) if folder else None
        wanted = load(self._folder, groups=self._groups, tools=tools)
        if options.tool_scope != "query":
            every = load(self._folder, groups=present(self._folder), tools=tools).entries
            docs = all_docs(every, tools.docs() if tools else ())
            self._pool = ToolPool(docs, options.tool_scope, wanted.entries, self._settings.texts)
        absent = "" if options.groups else absent_line(self._folder, self._groups)
        if absent:
            _log.warning("%s; the other groups are evaluated", absent)
        self._warnings = list(dict.fromkeys(filter(None, (absent, *wanted.warnings))))
        self._lacking = wanted.lacking
        return wanted.entries

    def identity(self) -> Mapping[str, Any]:
        options, entries = self._options, self.dataset()
        identity: dict[str, Any] = {
            "data_sha256": data_hash(entries),
            "prompts": self._settings.texts.source,
            "prompts_sha256": self._settings.texts.sha256(),
            "episodes": {
                **self._settings.identity(),
                "tool_scope": self._scope(),
                **({"pool_sha256": self._pool.sha256} if self._pool else {}),
                **({"retriever": RETRIEVER} if isinstance(options.tool_scope, Retrieved) else {}),
                **self._sources.identity(self._api_keys()),
            },
        }
        if "judge" in self._roles:
            identity["episodes"]["judge"] = self.judging()
            if options.fac and not _has_own_sampling(self._roles["judge"]):
                identity["episodes"]["judge"]["fac_sampling"] = asking.FAC_SAMPLING.as_json()
        return identity

    def judging(self) -> dict[str, Any]:
        return {
            **asking.protocol(),
            **self._judging.identity(),
            "votes": self._options.votes,
            "fac": self._options.fac,
            "reference_sha256": digest(self._reference) if self._reference else None,
        }

    def resolved(self) -> dict[str, Any]:
        options = self._options
        given = {name: getattr(options, name) for name in FOLDERS}
        absolute = {
            name: str(path_of(value, f"{_WHERE}.{name}").absolute())
            for name, value in given.items()
            if value
        }
        return {
            **options.model_dump(mode="json"),
            **absolute,
            "data": pinned(options.data, self._folder),
            "groups": self._groups,
        }

    def prompt(self, entry: Entry) -> list[dict[str, Any]]:
        apis = [] if self._system else self._apis(entry)
        messages = initial_messages(entry.data["query"], apis, self._settings)
        if self._options.tool_scope == "all":  # the same thousands of APIs for each query
            self._system = self._system or messages[0]
            messages[0] = self._system
        return messages

    def tools(self, entry: Entry) -> list[dict[str, Any]] | None:
        return offered(self._apis(entry), self._settings)

    def template_probe(self, entry: Entry) -> list[dict[str, Any]]:
        return template_probe(self._apis(entry), self._settings)

    def interactive(self, entry: Entry) -> bool:
        return True

    def shorter_prompts(self, context_tokens: int, chars_per_token: float) -> str:
        return self._pool.fitting(context_tokens, chars_per_token) if self._pool else ""

    def roles(self) -> Mapping[str, Role]:
        return self._roles

    def role_sampling(self, role: str) -> Sampling:
        if role != "simulator":
            return asking.SAMPLING
        return simulator_sampling(self._roles["simulator"])

    def role_chat(self, role: str) -> list[dict[str, Any]]:
        asked = [{"role": "user", "content": "x"}]
        return [{"role": "system", "content": "x"}, *asked] if role == "simulator" else asked

    def service(self) -> Service | None:
        return self._sources.service()

    def _apis(self, entry: Entry) -> list[Api]:
        return self._pool.of(entry) if self._pool else apis_of(entry, self._settings.texts)

    def _scope(self) -> Any:
        """Return the tool scope as JSON."""
        return self._options.model_dump(mode="json")["tool_scope"]

    def _api_keys(self) -> Iterator[str]:
        """Yield the keys of the APIs that agents may call."""
        entries = self.dataset()  # chooses the pool
        offered = [self._pool.offered()] if self._pool else map(self._apis, entries)
        yield from map(api_key, chain.from_iterable(offered))

    async def run(self, entry: Entry, context: EpisodeContext) -> Episode:
        apis = self._apis(entry)
        run = await run_agent(entry, context, self._settings, apis, self._sources.caller(context))
        stored = run.as_json()
        answer = converted(entry.data["query"], stored)
        messages = stored.pop("messages")
        state: dict[str, Any] = {
            "run": stored,
            "answer": answer,
            "calls": run.calls,
            "votes": None,
            "fac": None,
            "sowr": None,
        }
        relevant = {tuple(pair) for pair in entry.gold["relevant"]}
        if self._pool and relevant:
            offered = {(api.tool, api.api) for api in apis}
            state["offered_recall"] = len(relevant & offered) / len(relevant)
        if simulator := self._sources.simulator_of(context):
            state["simulator"] = simulator.identity()
        if "judge" in self._roles:
            judge = context.roles["judge"]
            judged = self._judged(entry, judge, context.attempt, answer["answer"])
            state |= await _in_time(context, judged)
        episode = context.episode
        episode.messages = messages
        episode.output, episode.finish_reason = run.output, run.finish_reason
        episode.state = state
        return episode

    async def judge(self, entry: Entry, episode: Episode, judge: RoleModel) -> bool:
        state = episode.state
        attempt = state.get("judge_attempt", 0) + 1
        state |= {"judge_attempt": attempt, "judge_error": ""}
        try:
            state |= await self._judged(entry, judge, attempt, state["answer"]["answer"])
        except asking.JudgeError as error:
            state["judge_error"] = str(error)
        return not state["judge_error"]

    async def _judged(
        self, entry: Entry, judge: RoleModel, attempt: int, answer: Mapping[str, Any]
    ) -> dict[str, Any]:
        options, alone, began = self._options, None, time.perf_counter()
        model = asking.retried(judge, attempt)
        if options.fac:
            drawn = model.sampling
            own = drawn if _has_own_sampling(self._roles["judge"]) else asking.FAC_SAMPLING
            most = min(own.max_tokens, drawn.max_tokens)  # if the candidate judges: its limit
            alone = replace(model, sampling=replace(own, seed=drawn.seed, max_tokens=most))
        judged = await measures.judge_answer(
            model,
            entry.data["query"],
            answer,
            options.votes,
            self._judging,
            fac=alone,
            references=self._reference.get(entry.category, {}) if self._reference else None,
            query_id=entry.id,
        )
        seconds = round(time.perf_counter() - began, 4)
        return {**judged, "judge_attempt": attempt, "judged_s": seconds}

    def check(self, entry: Entry, episode: Episode) -> Mapping[str, Verdict]:
        return verdicts(entry, episode.state)

    def unread(self, entry: Entry, episode: Episode) -> Answers:
        said = [m for m in episode.messages if m.get("role") == "assistant"]
        return [texts_of(m) for m in said if not m.get("tool_calls")]

    statistics = staticmethod(summarize)
    scores = staticmethod(scores)
    categories = staticmethod(categories)
    paper = staticmethod(paper)
    tables = staticmethod(tables)

    def composition(self, entry: Entry) -> tuple[list[OfferedApi], int | None]:
        apis = []
        for doc in entry.data["apis"]:
            properties = dict.fromkeys(p["name"] for p in (*doc["required"], *doc["optional"]))
            function = {"name": doc["api"], "parameters": {"properties": properties}}
            apis.append(OfferedApi(function, doc["category"], doc["tool"]))
        return apis, 1

    def output_entries(self) -> Entries:
        """Return the queries by group. Groups that do not occur in the outputs are not read."""

        def of(_: str, group: str) -> list[Entry]:
            return load(self._folder, groups=[group]).entries

        searched = present(self._folder)
        return Entries(of, languages=["en"], categories=GROUPS, searched=searched)

    def outputs(self, path: Path, entries: Entries) -> Iterator[Output]:
        return read_outputs(path, entries)

    @classmethod
    def import_data(cls, path: Path | None) -> None:
        if path is None:
            return super().import_data(path)
        import_queries(path)

    def summarize(self, rows: Iterable[ResultRow], max_unscored: float) -> dict[str, Any]:
        summary = summarize(rows, max_unscored=max_unscored)
        return {
            "method": self._options.method,
            "mode": self._options.mode,
            "prompts": self._settings.texts.source,
            "tool_scope": self._scope(),
            "apis": list(self._sources.backends),
            "warnings": [*self._warnings, *self._lacking],
            "comparable": " ".join(
                [self._comparable(), *(f"{note}." for note in notes(summary)), *self._warnings]
            ),
            **summary,
            **self.tables(summary),
        }

    def _comparable(self) -> str:
        text = (
            "comparable only with the same judge, API answers, limits and prompts: upstream's own "
            "numbers differ twofold between its environments."
        )
        if self._options.data == "mini":
            text = "not comparable with any leaderboard: the mini set is ace_ray's own."
        if count := len(self._lacking):
            text += f" the tool directory lacks {count:,} tools or APIs (see warnings)."
        return text

    def files(self, rows: Any, summary: Mapping[str, Any]) -> Iterator[tuple[str, bytes]]:
        """Yield the result JSON with all samples, and for each group a file with the converted
        answers of sample 0."""
        entries = {entry.key: entry for entry in self.dataset()}

        def read(group: str | None = None) -> Iterator[tuple[Entry, Mapping[str, Any]]]:
            for row in rows():
                if group is None or (row["sample"] == 0 and group == row["category"]):
                    checked = row["status"] in CHECKED and row["state"]
                    key = (row["language"], row["category"], row["id"])
                    yield entries[key], json.loads(row["state"]) if checked else {}

        def answers(group: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
            for entry, state in read(group):
                if state:
                    apis = self._apis(entry)
                    if self._options.tool_scope == "all":  # thousands for each query
                        apis = _own_or_called(entry, apis, state["calls"])
                    tools = schemas(apis, self._settings.texts)
                    yield entry.id, {**state["answer"], "available_tools": tools}

        framework = str(summary["model"]["source"])
        test_set = "all" if set(self._groups) == set(GROUPS) else "+".join(self._groups)
        config = {
            "evaluator_model": self._judge_name(summary),
            "evaluation_method": "official" if self._judging.source == "upstream" else "ace_ray",
            "method": self._options.method,
            "apis": list(self._sources.backends),
        }
        wall_s = float(summary["timing"].get("wall_s") or 0.0)
        content = result_json(framework, test_set, config, wall_s, read())
        yield result_path(framework, test_set), content
        for group in self._groups:
            yield f"converted/{group}.json", b"".join(converted_json(answers(group)))

    def _judge_name(self, summary: Mapping[str, Any]) -> str:
        if later := summary.get("judges", {}).get(self.name):
            return str(later.get("model"))
        role = self._roles.get("judge")
        return "none" if role is None else model_of(role) or str(summary["model"]["source"])


def _own_or_called(
    entry: Entry, apis: Sequence[Api], calls: Sequence[Mapping[str, Any]]
) -> list[Api]:
    """Return the APIs of the entry's query, and those that its agent called."""
    own = {(doc["category"], doc["tool"], doc["api"]) for doc in entry.data["apis"]}
    names = {call["name"] for call in calls}
    return [a for a in apis if a.name in names or (a.category, a.tool, a.api) in own]


def _has_own_sampling(role: Role) -> bool:
    return role != "same" and role.sampling is not None


async def _in_time(context: EpisodeContext, work: Awaitable[_T]) -> _T:
    """Await ``work``, which judges an answer, and return its value. Raise `JudgeError` if it is not
    done within `JUDGE_S` seconds after the episode's deadline."""
    try:
        return await asyncio.wait_for(work, JUDGE_S + max(0.0, context.left_s or 0.0))
    except TimeoutError:
        raise asking.JudgeError("the judge gave no verdict before its deadline") from None


def _converted(reference: str) -> Path:
    """Return ``reference``, or its subfolder of converted answers if it is the folder of a run."""
    folder = path_of(reference, f"{_WHERE}.reference")
    inner = folder / "files" / StableToolBench.name / "converted"
    return inner if inner.is_dir() else folder
