"""The benchmark class of StableToolBench."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

from ace_ray.benchmarks.base import Benchmark
from ace_ray.benchmarks.context import EpisodeContext, RoleModel, Service
from ace_ray.benchmarks.dataset import data_hash, pin_data
from ace_ray.benchmarks.diagnosis import Answers, texts_of
from ace_ray.benchmarks.external_outputs import Entries, Output
from ace_ray.benchmarks.stabletoolbench import queries
from ace_ray.benchmarks.stabletoolbench.answer_trees import (
    convert_run,
    converted_json,
    read_reference,
)
from ace_ray.benchmarks.stabletoolbench.api_schemas import ToolFolder
from ace_ray.benchmarks.stabletoolbench.apis.cache import cache_key
from ace_ray.benchmarks.stabletoolbench.apis.sources import ApiSources, model_of, simulator_sampling
from ace_ray.benchmarks.stabletoolbench.callable_names import GROUPS, LEVELS
from ace_ray.benchmarks.stabletoolbench.check import verdicts
from ace_ray.benchmarks.stabletoolbench.episode.rollout import (
    initial_messages,
    offered_tools,
    template_probe,
)
from ace_ray.benchmarks.stabletoolbench.episode.run import run_agent
from ace_ray.benchmarks.stabletoolbench.judge import asking, measures
from ace_ray.benchmarks.stabletoolbench.judge import prompts as judge_prompts
from ace_ray.benchmarks.stabletoolbench.options import FOLDERS, Retrieved, Settings
from ace_ray.benchmarks.stabletoolbench.options import Options as StableToolBenchOptions
from ace_ray.benchmarks.stabletoolbench.outputs import read_outputs
from ace_ray.benchmarks.stabletoolbench.pool import RETRIEVER, ToolPool, all_docs
from ace_ray.benchmarks.stabletoolbench.prompts import OWN, read_texts
from ace_ray.benchmarks.stabletoolbench.result_json import result_json, result_path
from ace_ray.benchmarks.stabletoolbench.summary import summarize
from ace_ray.benchmarks.stabletoolbench.tables import categories, notes, paper, scores, tables
from ace_ray.benchmarks.stabletoolbench.tools import Api, apis_of, published_names, schemas
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
        check_names(options.groups or (), GROUPS, kind="group", location=f"{_WHERE}.groups")
        for key in FOLDERS:
            refuse_uri(getattr(options, key) or "", f"{_WHERE}.{key}")
        self._folder = queries.locate(options.data)
        self._groups = options.groups or queries.present_groups(self._folder)
        checkout = path_of(options.upstream, f"{_WHERE}.upstream") if options.upstream else None
        self._options = options
        self._sources = ApiSources(options, checkout)
        self._settings = Settings(options, read_texts(checkout) if checkout else OWN)
        self._judging = (
            judge_prompts.official_prompts(checkout) if checkout else judge_prompts.own_prompts()
        )
        self._roles: dict[str, Role] = {}
        if self._sources.simulator is not None:
            self._roles["simulator"] = self._sources.simulator
        if options.judge == "none":
            for key in ("fac", "reference"):
                if getattr(options, key):
                    problem = "needs a judge, but judge is none"
                    fix = "name a judge, or leave this key out"
                    raise UserError(problem, where=f"{_WHERE}.{key}", fix=fix)
        else:
            self._roles["judge"] = parse_role(options.judge, f"{_WHERE}.judge")
        # Answers as JSON text, by group and query id: a long chain cannot be pickled.
        self._reference: dict[str, dict[str, str]] = {}
        if options.reference is not None:
            folder = path_of(options.reference, f"{_WHERE}.reference")
            of_run = folder / "files" / self.name / "converted"
            self._reference = read_reference(of_run if of_run.is_dir() else folder, self._groups)
        self._warnings: list[str] = []
        self._lacking: list[str] = []
        self._pool: ToolPool | None = None
        # System message of all queries, if they share it.
        self._system: dict[str, Any] | None = None

    def entries(self) -> Sequence[Entry]:
        options = self._options
        folder = options.tool_folder
        tools = ToolFolder(path_of(folder, f"{_WHERE}.tool_folder")) if folder else None
        entries = queries.load(self._folder, groups=self._groups, tools=tools)
        self._lacking = list(tools.lacking) if tools else []
        if options.tool_scope != "query":
            present = queries.present_groups(self._folder)
            every = queries.load(self._folder, groups=present, tools=tools)
            docs = all_docs(every, tools.docs() if tools else ())
            self._pool = ToolPool(docs, options.tool_scope, entries, self._settings.texts)
        absent = "" if options.groups else queries.absent_line(self._folder, self._groups)
        if absent:
            _log.warning("%s; the other groups are evaluated", absent)
        warnings = (absent, *queries.unoffered_lines(self._folder, entries))
        self._warnings = list(dict.fromkeys(filter(None, warnings)))
        return entries

    def identity(self) -> Mapping[str, Any]:
        options, entries = self._options, self.dataset()  # chooses the pool
        offered = [self._pool.offered_apis()] if self._pool else map(self._apis, entries)
        identity: dict[str, Any] = {
            "data_sha256": data_hash(entries),
            "prompts": self._settings.texts.source,
            "prompts_sha256": self._settings.texts.sha256(),
            "episodes": {
                **self._settings.identity(),
                "tool_scope": options.model_dump(mode="json")["tool_scope"],
                **({"pool_sha256": self._pool.sha256} if self._pool else {}),
                **({"retriever": RETRIEVER} if isinstance(options.tool_scope, Retrieved) else {}),
                **self._sources.identity(map(cache_key, chain.from_iterable(offered))),
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
        absolute = {
            name: str(path_of(value, f"{_WHERE}.{name}").absolute())
            for name in FOLDERS
            if (value := getattr(options, name))
        }
        return {
            **options.model_dump(mode="json"),
            **absolute,
            "data": pin_data(options.data, self._folder),
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
        return offered_tools(self._apis(entry), self._settings)

    def template_probe(self, entry: Entry) -> list[dict[str, Any]]:
        return template_probe(self._apis(entry), self._settings)

    def interactive(self, entry: Entry) -> bool:
        return True

    def shorter_prompts(self, context_tokens: int, chars_per_token: float) -> str:
        return self._pool.fitting_scope(context_tokens, chars_per_token) if self._pool else ""

    def roles(self) -> Mapping[str, Role]:
        return self._roles

    def role_sampling(self, role: str) -> Sampling:
        simulates = role == "simulator"
        return simulator_sampling(self._roles[role]) if simulates else asking.SAMPLING

    def role_chat(self, role: str) -> list[dict[str, Any]]:
        chat = [{"role": "user", "content": "x"}]
        return [{"role": "system", "content": "x"}, *chat] if role == "simulator" else chat

    def service(self) -> Service | None:
        return self._sources.service()

    def _apis(self, entry: Entry) -> list[Api]:
        return self._pool.apis_of(entry) if self._pool else apis_of(entry, self._settings.texts)

    async def run(self, entry: Entry, context: EpisodeContext) -> Episode:
        apis = self._apis(entry)
        run = await run_agent(entry, context, self._settings, apis, self._sources.caller(context))
        stored = asdict(run)
        answer = convert_run(entry.data["query"], stored)
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
            offered = {(api.doc["tool"], api.doc["api"]) for api in apis}
            state["offered_recall"] = len(relevant & offered) / len(relevant)
        if simulator := self._sources.simulator_of(context):
            state["simulator"] = simulator.identity()
        if "judge" in self._roles:
            judge = context.roles["judge"]
            judged = self._judge(entry, judge, context.attempt, answer["answer"])
            limit_s = JUDGE_S + max(0.0, context.remaining_s or 0.0)
            try:
                state |= await asyncio.wait_for(judged, limit_s)
            except TimeoutError:
                raise asking.JudgeError("the judge gave no verdict before its deadline") from None
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
            state |= await self._judge(entry, judge, attempt, state["answer"]["answer"])
        except asking.JudgeError as error:
            state["judge_error"] = str(error)
        return not state["judge_error"]

    async def _judge(
        self, entry: Entry, judge: RoleModel, attempt: int, answer: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Judge an answer. Return fields for the row's state: ``votes``; with the option ``fac``
        also ``fac``; with a reference run also ``sowr``, or ``sowr_missing`` if the reference lacks
        the query. Raises `JudgeError` if the judge gives no verdict."""
        began, query, prompts = time.perf_counter(), entry.data["query"], self._judging
        model, votes = asking.reseed(judge, attempt), self._options.votes
        our_votes = await measures.judge_sopr(model, query, answer, votes, prompts)
        judged: dict[str, Any] = {"votes": our_votes}
        if self._options.fac:
            drawn = model.sampling
            sampling = drawn if _has_own_sampling(self._roles["judge"]) else asking.FAC_SAMPLING
            limit = min(sampling.max_tokens, drawn.max_tokens)  # if the candidate judges: its limit
            alone = replace(model, sampling=replace(sampling, seed=drawn.seed, max_tokens=limit))
            judged["fac"] = await measures.judge_fac(alone, query, answer, prompts)
        reference = self._reference.get(entry.category, {}).get(entry.id)
        if reference is not None:
            theirs = json.loads(reference)
            their_votes = await measures.judge_sopr(model, query, theirs, votes, prompts)
            statuses = measures.majority(our_votes), measures.majority(their_votes)
            args = (answer, theirs, statuses, votes, prompts)
            judged["sowr"] = await measures.judge_sowr(model, query, *args)
        elif self._reference:  # without an answer of the reference, nothing is compared
            judged["sowr_missing"] = True
        seconds = round(time.perf_counter() - began, 4)
        return {**judged, "judge_attempt": attempt, "judged_s": seconds}

    def check(self, entry: Entry, episode: Episode) -> Mapping[str, Verdict]:
        return verdicts(entry, episode.state)

    def parse_failures(self, entry: Entry, episode: Episode) -> Answers:
        turns = [m for m in episode.messages if m.get("role") == "assistant"]
        return [texts_of(m) for m in turns if not m.get("tool_calls")]

    statistics = staticmethod(summarize)
    scores = staticmethod(scores)
    categories = staticmethod(categories)
    paper = staticmethod(paper)
    tables = staticmethod(tables)

    def apis_and_turns(self, entry: Entry) -> tuple[list[OfferedApi], int | None]:
        apis = []
        for doc in entry.data["apis"]:
            properties = dict.fromkeys(p["name"] for p in (*doc["required"], *doc["optional"]))
            function = {"name": doc["api"], "parameters": {"properties": properties}}
            apis.append(OfferedApi(function, doc["category"], doc["tool"]))
        return apis, 1

    def output_entries(self) -> Entries:
        """Return all queries. A group is read only if an output answers one of its queries."""
        return Entries(
            lambda _, group: queries.load(self._folder, groups=[group]),
            languages=["en"],
            categories=GROUPS,
            searched=queries.present_groups(self._folder),
        )

    def outputs(self, path: Path, entries: Entries) -> Iterator[Output]:
        return read_outputs(path, entries)

    @classmethod
    def import_data(cls, path: Path | None) -> None:
        if path is None:
            return super().import_data(path)
        queries.import_queries(path)

    def summarize(self, rows: Iterable[ResultRow], max_unscored: float) -> dict[str, Any]:
        summary = summarize(rows, max_unscored=max_unscored)
        sentences = [self._comparability(), *(f"{note}." for note in notes(summary))]
        return {
            "method": self._options.method,
            "mode": self._options.mode,
            "prompts": self._settings.texts.source,
            "tool_scope": self._options.model_dump(mode="json")["tool_scope"],
            "apis": list(self._sources.backends),
            "warnings": [*self._warnings, *self._lacking],
            "comparable": " ".join([*sentences, *self._warnings]),
            **summary,
            **self.tables(summary),
        }

    def _comparability(self) -> str:
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
        """Yield the result JSON of all samples, and each group's converted answers of sample 0."""
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
                        ids = set(map(published_names, entry.data["apis"]))
                        names = {call["name"] for call in state["calls"]}
                        apis = [a for a in apis if a.name in names or published_names(a.doc) in ids]
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


def _has_own_sampling(role: Role) -> bool:
    return role != "same" and role.sampling is not None
