"""Implement the `Benchmark` interface for tau2-bench.

The agent is the evaluated model. It follows a policy, calls tools over a database, and serves a
user, whom another model simulates. In the category telecom_solo the agent works without a user."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any, ClassVar, Self

import pydantic

from ace_ray.benchmarks import statistics
from ace_ray.benchmarks.base import Benchmark
from ace_ray.benchmarks.context import EpisodeContext, RoleModel
from ace_ray.benchmarks.dataset import data_hash
from ace_ray.benchmarks.diagnosis import Answers, texts_of
from ace_ray.benchmarks.external_outputs import Entries, Output, UnscoredOutput
from ace_ray.benchmarks.gold_check import Gold
from ace_ray.benchmarks.tau2 import tables, tasks, verdicts
from ace_ray.benchmarks.tau2.answers import PROTOCOL_SHA256, add_protocol
from ace_ray.benchmarks.tau2.environment.limited import (
    Schemas,
    TauEnvironment,
    check_domain,
    schemas,
)
from ace_ray.benchmarks.tau2.environment.sources import tool_sources
from ace_ray.benchmarks.tau2.judge import JUDGE_SAMPLING, ask_judge
from ace_ray.benchmarks.tau2.options import (
    BANKING,
    CATEGORIES,
    INSPECT,
    KNOWLEDGE,
    LEADERBOARD,
    MAX_ERRORS,
    MAX_STEPS,
    SIERRA,
    Category,
)
from ace_ray.benchmarks.tau2.options import Options as TauOptions
from ace_ray.benchmarks.tau2.results_file import VERSION_KEY, read_results, results_json
from ace_ray.benchmarks.tau2.rollout import FIRST_ANSWERS, Rollout, Settings, transcript
from ace_ray.benchmarks.tau2.upstream_package import (
    DONE,
    UpstreamPackage,
    all_files,
    read_prompt_texts,
)
from ace_ray.benchmarks.tau2.verdicts import NL_MET, nl_assertions
from ace_ray.config.roles import EndpointRole, Role, ServedRole, parse_role
from ace_ray.errors import RowError, UserError
from ace_ray.sandbox.protocol import Scenario
from ace_ray.types import (
    RULE_SETS,
    Entry,
    Episode,
    OfferedApi,
    ResultRow,
    Sampling,
    Verdict,
    digest,
)
from ace_ray.util.local_files import path_of
from ace_ray.util.suggestions import check_names

_WHERE = "benchmarks.tau2"
# Default maximum tokens of a turn of the simulated user. Upstream sets no maximum.
USER_TOKENS = 4096
_DONE = {
    "type": "function",
    "function": {
        "name": DONE,
        "description": "Call this function when you are done with the task.",
        "parameters": {"properties": {}, "title": "parameters", "type": "object"},
    },
}


class Tau2(Benchmark):
    """Agents call tools to serve a simulated user; in telecom_solo they work without a user."""

    name = "tau2"
    rule_sets = RULE_SETS
    without_native = f"{_WHERE}.mode: prompt"
    Options = TauOptions
    choices: ClassVar = {"domains": dict.fromkeys(CATEGORIES, ())}
    refused_fix = (
        f"write {_WHERE}.opening: user, or use a model whose template takes a chat that begins "
        "with the assistant and, in solo mode, one without a user"
    )

    def __init__(self, options: TauOptions) -> None:
        super().__init__(options)
        check_names(options.domains, CATEGORIES, kind="domain", location=f"{_WHERE}.domains")
        self._package = UpstreamPackage.locate(options.data)
        self._options = options.model_copy(update={"data": self._package.name})
        self._categories = [c for c in self._package.categories if c.name in options.domains]
        _check_options(options, self._package)
        # Read on the driver: workers lack a copy of the data.
        self._texts = read_prompt_texts(self._package)
        kind, knowledge = options.policy, options.knowledge
        self._policies = {
            c.name: tasks.policy(self._package, c, kind, knowledge) for c in self._categories
        }
        domains = dict.fromkeys(category.domain for category in self._categories)
        self._sources = {name: tool_sources(self._package, name, knowledge) for name in domains}
        self._schemas: dict[str, Schemas] = {}
        self._copy_is_trusted = False
        self._roles: dict[str, Role] = {}
        if not all(category.solo for category in self._categories):
            self._roles["user"] = parse_role(options.user, f"{_WHERE}.user")
        if options.judge != "none":
            self._roles["judge"] = parse_role(options.judge, f"{_WHERE}.judge")
        # Whether a silent agent passes a task, by the hash of its entry.
        self._inaction: dict[str, bool | None] = {}

    # Entries and prompts.

    def entries(self) -> Sequence[Entry]:
        return [
            entry
            for category in self._categories
            for entry in tasks.load(self._package, category, self._options.split)
        ]

    def ready(self, *, named: bool) -> None:
        self._copy_is_trusted = named
        self._sources = {
            name: replace(sources, is_trusted=named) for name, sources in self._sources.items()
        }
        for sources in self._sources.values():
            check_domain(sources)

    def identity(self) -> Mapping[str, Any]:
        options = self._options
        protocol: dict[str, Any] = {
            **options.model_dump(include={"mode", "opening", "max_steps", "max_errors"}),
            "answers_asked": FIRST_ANSWERS,
            "texts_sha256": self._texts.sha256,
            "policies_sha256": digest(self._policies),
            "tools_sha256": {name: s.sha256 for name, s in self._sources.items()},
            "databases_sha256": {name: s.data_sha256 for name, s in self._sources.items()},
            # pydantic writes the errors and the schemas of tools.
            "pydantic": pydantic.VERSION,
        }
        if options.mode == "prompt":
            protocol["text_protocol_sha256"] = PROTOCOL_SHA256
        if BANKING in self._sources:
            protocol["knowledge"] = options.knowledge
        return {
            "version": self._package.version,
            "rewards": self._package.release,
            "data_sha256": data_hash(self.dataset()),
            "split": options.split,
            "policy": options.policy,
            "protocol": protocol,
            **({"episodes": {"judge": self.judging()}} if "judge" in self._roles else {}),
        }

    def resolved(self) -> dict[str, Any]:
        data = self._options.data
        if data != "installed" and not data.startswith("imported:"):
            data = str(path_of(data, "data").absolute())
        return {**self._options.model_dump(mode="json"), "data": data}

    def prompt(self, entry: Entry) -> list[dict[str, Any]]:
        category = CATEGORIES[entry.category]
        messages: list[dict[str, Any]] = [{"role": "system", "content": self._agent_system(entry)}]
        if self._options.opening == "user":
            if category.solo:
                messages.append({"role": "user", "content": entry.data["ticket"]})
        elif not category.solo and not tasks.history_of(entry):
            messages.append({"role": "assistant", "content": self._texts.greeting})
        return messages

    def tools(self, entry: Entry) -> list[dict[str, Any]] | None:
        return self._agent_tools(entry.category) if self._is_native else None

    def template_probe(self, entry: Entry) -> list[dict[str, Any]]:
        chat = self.prompt(entry)
        if self._is_native and CATEGORIES[entry.category].solo:
            return chat  # `Chat.require_tools` checks calls and results
        turns = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "x"}]
        if chat[-1]["role"] == "user" or CATEGORIES[entry.category].solo:
            turns.reverse()
        return chat + turns

    def shorter_prompts(self, context_tokens: int, chars_per_token: float) -> str:
        is_full = BANKING in self._sources and self._options.knowledge == "full_kb"
        return f"write {_WHERE}.knowledge: grep" if is_full else ""

    # An episode.

    async def run(self, entry: Entry, context: EpisodeContext) -> Episode:
        category = CATEGORIES[entry.category]
        settings = Settings(
            native=self._is_native,
            solo=category.solo,
            agent_tools=self._agent_tools(category.name),
            user_tools=self._user_tools(category, entry),
            greeting=self._texts.greeting,
            max_steps=self._options.max_steps,
            max_errors=self._options.max_errors,
        )
        async with context.sandbox() as session:
            rollout = Rollout(context, session, settings, self._user_system(entry))
            end_reason = await rollout.play(self.prompt(entry), tasks.history_of(entry))
            before, after = await session.state()
        state: dict[str, Any] = {
            "trajectory": rollout.trajectory,
            "ended": end_reason,
            "stopped": rollout.stopped,
            "steps": rollout.steps,
            "errors": rollout.errors,
            "before": before,
            "end": after,
        }
        if not category.solo:
            state["user"] = {**context.roles["user"].identity, "usage": rollout.user_calls}
        if "judge" in self._roles and nl_assertions(entry) and end_reason in verdicts.STOPS:
            state[NL_MET] = await ask_judge(context.roles["judge"], self._texts, entry, state)
        context.episode.state = state
        return context.episode

    async def judge(self, entry: Entry, episode: Episode, judge: RoleModel) -> bool:
        state, error = episode.state, ""
        try:
            state[NL_MET] = await ask_judge(judge, self._texts, entry, state)
        except RowError as failure:
            error = str(failure)
        state[verdicts.JUDGE_ERROR] = error
        return not error

    def judging(self) -> Mapping[str, Any]:
        return {"texts_sha256": digest(self._texts.judge_system, self._texts.judge_user)}

    def scenario(self, entry: Entry) -> Scenario:
        category = CATEGORIES[entry.category]
        state, sources = entry.data.get("initial_state"), self._sources[category.domain]
        return TauEnvironment(sources, solo=category.solo, initial_state=state, criteria=entry.gold)

    def roles(self) -> Mapping[str, Role]:
        return self._roles

    def role_sampling(self, role: str) -> Sampling:
        return JUDGE_SAMPLING if role == "judge" else Sampling(max_tokens=USER_TOKENS)

    def role_chat(self, role: str) -> list[dict[str, Any]]:
        return [{"role": "system", "content": "x"}, {"role": "user", "content": "x"}]

    def role_tools(self, role: str) -> list[dict[str, Any]] | None:
        if role != "user" or not self._is_native:
            return None
        return next((tools for c in self._categories if (tools := self._user_tools(c))), None)

    def offers_tools(self, role: str) -> bool:
        return role == "user" and self._is_native and any(map(_has_user_tools, self._categories))

    # Verdicts.

    def check(self, entry: Entry, episode: Episode) -> Mapping[str, Verdict]:
        category = CATEGORIES[entry.category]
        sources = self._sources[category.domain]
        judge = partial(verdicts.verdicts, entry, sources=sources, solo=category.solo)
        verdict_pair, key = judge(episode.state), entry.content_hash()
        if key not in self._inaction:
            self._inaction[key] = judge(tasks.silent_episode(entry).state)["official"].valid
        passes = self._inaction[key]  # None: a judge would have to tell
        metrics = {} if passes is None else {verdicts.INACTION: float(passes)}
        return {k: replace(v, metrics={**v.metrics, **metrics}) for k, v in verdict_pair.items()}

    def parse_failures(self, entry: Entry, episode: Episode) -> Answers:
        trajectory = (episode.state or {}).get("trajectory") or ()
        turns = [message for message in trajectory if message["role"] == "assistant"]
        answers = [message for message in episode.messages if message.get("role") == "assistant"]
        return [
            texts_of(message)
            for index, (message, turn) in enumerate(zip(answers, turns, strict=False))
            if not turn.get("tool_calls") and not message.get("tool_calls")
            # The greeting is not written by the model.
            if index or message.get("content") != self._texts.greeting
        ]

    # Numbers of a run.

    @classmethod
    def statistics(cls, rows: Iterable[ResultRow], max_unscored: float) -> dict[str, Any]:
        order = {"domains": tuple(CATEGORIES)}
        passes: dict[str, dict[str, float]] = {}
        counted = tables.collect_inaction(rows, passes)
        numbers = statistics.statistics(counted, cls.rule_sets, order, max_unscored)
        floors = {name: [int(sum(of.values())), len(of)] for name, of in passes.items()}
        return numbers | {"groups": {}, "inaction": floors}

    scores = staticmethod(tables.scores)
    tables = staticmethod(tables.tables)
    transcript = staticmethod(transcript)

    @classmethod
    def sandbox_states(cls, state: Any) -> tuple[Any, Any] | None:
        if not isinstance(state, Mapping):
            return None
        before, end = state.get("before"), state.get("end")
        return (before, end) if isinstance(before, Mapping) and isinstance(end, Mapping) else None

    def summarize(self, rows: Iterable[ResultRow], max_unscored: float) -> dict[str, Any]:
        summary = self.statistics(rows, max_unscored)
        return {
            "mode": self._options.mode,
            "version": self._package.version,
            "policy": self._options.policy,
            "comparable": self._comparability(),
            **summary,
            **self.tables(summary),
        }

    def files(self, rows: Any, summary: Mapping[str, Any]) -> Iterator[tuple[str, bytes]]:
        """Yield upstream's results JSON, one file for each category."""
        samples = 1 + max((int(row["sample"]) for row in rows()), default=0)
        for category in self._categories:
            entries = [entry for entry in self.dataset() if entry.category == category.name]
            workflow = category.domain == "telecom" and self._options.policy == "workflow"
            guidelines = self._texts.user_guidelines(tools=bool(self._user_tools(category)))
            info = {
                "git_commit": "ace_ray",
                VERSION_KEY: self._package.release,
                "retrieval_config": self._options.knowledge if category.domain == BANKING else None,
                "num_trials": samples,
                "max_steps": self._options.max_steps,
                "max_errors": self._options.max_errors,
                "user_info": {
                    "implementation": "dummy_user" if category.solo else "user_simulator",
                    "llm": None if category.solo else self._user_model(summary),
                    "global_simulation_guidelines": None if category.solo else guidelines,
                },
                "agent_info": {
                    "implementation": "llm_agent_solo" if category.solo else "llm_agent",
                    "llm": _model_name(summary),
                },
                "environment_info": {
                    "domain_name": category.name.removesuffix("_solo") + "-workflow" * workflow,
                    "policy": self._policies[category.name],
                },
            }
            pieces = results_json(category, entries, rows, info)
            yield f"results_{category.name}.json", b"".join(pieces)

    @classmethod
    def import_data(cls, path: Path | None) -> None:
        def counted(rows: Mapping[str, int]) -> str:
            base = sum(n for name, n in rows.items() if name.endswith("/base"))
            return f"{base:,} tasks of base"

        UpstreamPackage.import_copy(path, all_files, _count_tasks, counted)

    def gold(self, entry: Entry) -> Gold:
        # A silent agent passes tasks that ask for no change. One task of mock expects a change, but
        # its gold calls do not make it.
        right = tasks.gold_episode(self.scenario(entry), entry)
        right.state[NL_MET] = [True] * len(nl_assertions(entry))
        may_fail = not (entry.gold or {}).get("actions")
        return Gold(right, tasks.silent_episode(entry), may_fail=may_fail, mangled_may_pass=True)

    @classmethod
    def for_gold_check(cls, data: str) -> Self:
        categories = UpstreamPackage.locate(data).categories
        return cls.from_options({"data": data, "domains": [c.name for c in categories]})

    def apis_and_turns(self, entry: Entry) -> tuple[list[OfferedApi], int | None]:
        category = CATEGORIES[entry.category]
        apis = [OfferedApi(tool, category.domain) for tool in self._agent_tools(category.name)]
        return apis, 1 if category.solo else None

    def output_entries(self) -> Entries:
        """Return the entries of all domains, also of domains that the config does not name."""

        def load_split(_: str, name: str) -> list[Entry]:
            domain = CATEGORIES[name].domain
            if domain not in self._sources:
                sources = tool_sources(self._package, domain, self._options.knowledge)
                self._sources[domain] = replace(sources, is_trusted=self._copy_is_trusted)
            return tasks.load(self._package, CATEGORIES[name], self._options.split)

        @cache
        def load_all_splits(_: str, name: str) -> list[Entry]:
            return tasks.load(self._package, CATEGORIES[name], None)

        categories = [category.name for category in self._package.categories]
        return Entries(
            load_split, languages=["en"], categories=categories, load_others=load_all_splits
        )

    def outputs(self, path: Path, entries: Entries) -> Iterator[Output | UnscoredOutput]:
        return read_results(path, entries, self._package.release)

    # The texts and tools of a category.

    @property
    def _is_native(self) -> bool:
        return self._options.mode == "native"

    def _domain_schemas(self, domain: str) -> Schemas:
        if domain not in self._schemas:
            self._schemas[domain] = schemas(self._sources[domain])
        return self._schemas[domain]

    def _agent_tools(self, name: str) -> list[dict[str, Any]]:
        category = CATEGORIES[name]
        sides = self._domain_schemas(category.domain)
        if not category.solo:
            return sides["assistant"]
        return [*sides["assistant"], *sides.get("user", ()), _DONE]

    def _user_tools(self, category: Category, entry: Entry | None = None) -> list[dict[str, Any]]:
        """Return the tools of a category's user, or of the user of a task, which may name them."""
        if not _has_user_tools(category):
            return []
        tools = self._domain_schemas(category.domain)["user"]
        names = None if entry is None else entry.data.get("user_tools")
        return [tool for tool in tools if names is None or tool["function"]["name"] in names]

    def _agent_system(self, entry: Entry) -> str:
        solo = CATEGORIES[entry.category].solo
        ticket = entry.data["ticket"] if solo else None
        text = self._texts.agent_prompt(self._policies[entry.category], ticket)
        if self._is_native:
            return text
        return add_protocol(text, self._agent_tools(entry.category), "solo" if solo else "agent")

    def _user_system(self, entry: Entry) -> str:
        category = CATEGORIES[entry.category]
        if category.solo:
            return ""
        scenario = tasks.UserScenario.model_validate(entry.data["user_scenario"]).text()
        tools = self._user_tools(category, entry)
        text = self._texts.user_prompt(scenario, tools=bool(tools))
        return text if self._is_native or not tools else add_protocol(text, tools, "user")

    # Comparability and names.

    def _comparability(self) -> str:
        reasons = list(self._differences())
        if reasons:
            return "not comparable with the leaderboard: " + "; ".join(reasons)
        return (
            f"data, prompts, tools and rewards of tau2-bench {self._package.version}: the official "
            "rule set is comparable with its numbers for the same user simulator and sampling, not "
            "with other versions of tau2-bench"
        )

    def _differences(self) -> Iterator[str]:
        options = self._options
        if not self._package.has_official_data():
            yield "data, prompts or tools differ from the published package"
        if options.mode == "prompt":
            yield "tools and calls are in the text, in a protocol of ace_ray's own"
        if options.opening == "user":
            yield "different opening message"
        if options.policy != "manual":
            yield "the telecom policy is the workflow text"
        if (options.max_steps, options.max_errors) != (MAX_STEPS, MAX_ERRORS):
            yield "different episode limits"
        if options.split != "base":
            yield f"the split is {options.split}"
        if any(c.name not in (*LEADERBOARD, BANKING) for c in self._categories):
            yield f"categories besides {', '.join(LEADERBOARD)} and {BANKING} are not ranked there"
        if any(category.domain == BANKING for category in self._categories):
            yield f"the agent's documents are {options.knowledge}, the leaderboard's alltools"
        if any(category.solo for category in self._categories):
            yield "in solo mode upstream forces each answer to be a call, but ace_ray does not"
        unjudged = sum(map(bool, map(nl_assertions, self.dataset())))
        if unjudged and "judge" not in self._roles:
            yield f"{unjudged} tasks have no verdict without a judge ({_WHERE}.judge)"

    def _user_model(self, summary: Mapping[str, Any]) -> str:
        role = self._roles["user"]
        if isinstance(role, EndpointRole):
            return role.endpoint.model
        if isinstance(role, ServedRole):
            return Path(str(role.model.source)).name
        return _model_name(summary)


def _check_options(options: TauOptions, package: UpstreamPackage) -> None:
    """Raise `UserError` if the copy lacks a domain, a judge or a way to search in documents."""
    names = [category.name for category in package.categories]
    if missing := [name for name in options.domains if name not in names]:
        problem = f"tau2-bench {package.version} has no {missing[0]}, only {', '.join(names)}"
        fix = f"name data of {' or '.join(CATEGORIES[missing[0]].versions)}"
        raise UserError(problem, where=f"{_WHERE}.domains", fix=fix)
    if options.judge != "none" and package.release != SIERRA:
        raise UserError(f"{package.release} asks no judge", f"{_WHERE}.judge", "leave it out")
    variants = [n for n in KNOWLEDGE if package.release != INSPECT or "bm25" not in n]
    if options.knowledge not in variants:
        problem = f"{options.knowledge!r:.40} is not offered: no embeddings, reranker or shell"
        raise UserError(problem, f"{_WHERE}.knowledge", f"write {', '.join(variants)}")


def _count_tasks(package: UpstreamPackage) -> Mapping[str, int]:
    """Check all files that runs need; return {"<category>/<split>": number of tasks}. Raises
    `UserError` if a file is missing or invalid."""
    read_prompt_texts(package)
    rows = {}
    for category in package.categories:
        for kind, knowledge in product(("manual", "workflow"), KNOWLEDGE):
            tasks.policy(package, category, kind, knowledge)
        for split in tasks.splits(package, category.domain):
            # Other splits have tasks without a ticket, which solo mode needs.
            if split == "base" or not category.solo:
                rows[f"{category.name}/{split}"] = len(tasks.load(package, category, split))
    for domain in dict.fromkeys(category.domain for category in package.categories):
        check_domain(replace(tool_sources(package, domain), is_trusted=True))
    return rows


def _model_name(summary: Mapping[str, Any]) -> str:
    """Return the last part of the model's source: ``name`` for ``<developer>/<name>`` or a path."""
    model = summary.get("model")
    source = model.get("source") if isinstance(model, Mapping) else model
    return Path(str(source)).name or str(source)


def _has_user_tools(category: Category) -> bool:
    return not category.solo and category.user_tools
