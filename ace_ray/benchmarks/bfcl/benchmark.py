"""Implement the `Benchmark` interface for BFCL.

Upstream is the package bfcl-eval, whose data, prompts and rules are used. In prompt mode, functions
and calls are text in the messages. In native mode, the model's chat template renders the functions,
and vLLM's tool parser reads the calls. Interactive categories (multi-turn, memory, web search) have
episodes of several model calls; all other categories have one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from ace_ray.benchmarks.base import Benchmark
from ace_ray.benchmarks.bfcl import categories as groups
from ace_ray.benchmarks.bfcl.categories import form_of, original_id
from ace_ray.benchmarks.bfcl.check.conversations import check_agentic, check_multi_turn
from ace_ray.benchmarks.bfcl.check.single import check_single
from ace_ray.benchmarks.bfcl.data.loader import function_docs, load, prerequisites
from ace_ray.benchmarks.bfcl.data.upstream_package import TOOL_MODULES, UpstreamPackage, all_files
from ace_ray.benchmarks.bfcl.decode import executable_calls, holds_calls, source_trees
from ace_ray.benchmarks.bfcl.decode.calls import Answer
from ace_ray.benchmarks.bfcl.episode import agentic, conversation
from ace_ray.benchmarks.bfcl.episode.conversation import Embedder, EpisodeSettings
from ace_ray.benchmarks.bfcl.episode.services import Embeddings, Service, check_service
from ace_ray.benchmarks.bfcl.gold import gold_of, gold_text, has_python_gold
from ace_ray.benchmarks.bfcl.options import (
    CHOICES,
    absence_reasons,
    categories_of,
    requested_categories,
)
from ace_ray.benchmarks.bfcl.options import Options as BFCLOptions
from ace_ray.benchmarks.bfcl.prompts import SystemlessModel, official_prompts, own_prompts
from ace_ray.benchmarks.bfcl.score import tables
from ace_ray.benchmarks.bfcl.score.outputs import entries_of, read_outputs
from ace_ray.benchmarks.bfcl.score.summary import add_metrics, summarize
from ace_ray.benchmarks.bfcl.tools.environment import initial_state_of
from ace_ray.benchmarks.bfcl.tools.limited import LimitedEnvironment, load_classes
from ace_ray.benchmarks.bfcl.tools.sources import OFFICIAL_TOOLS_SHA256, tool_sources
from ace_ray.benchmarks.context import EpisodeContext
from ace_ray.benchmarks.dataset import data_hash
from ace_ray.benchmarks.diagnosis import Answers, answer_texts
from ace_ray.benchmarks.external_outputs import Entries, Output
from ace_ray.benchmarks.gold_check import Gold
from ace_ray.benchmarks.messages import add_system, merge_system
from ace_ray.errors import PromptTooLong, UserError
from ace_ray.models.http import Http
from ace_ray.sandbox.protocol import Scenario
from ace_ray.types import RULE_SETS, Entry, Episode, OfferedApi, ResultRow, Verdict, digest
from ace_ray.util.local_files import path_of

# `Prompts.sha256` of the published package's texts.
OFFICIAL_PROMPTS_SHA256 = "502bf70d297d9183482533bb9487e2a5021bda4ef778eb33251f4919f978eee3"

_WHERE = "benchmarks.bfcl"
_WEB_TOOLS = "WebSearchAPI"
# Keys of the first and the last sandbox state in `Episode.state`: multi-turn entries, then memory.
_STATES = (("before", "end"), ("memory", "memory_end"))
_INTERACTIVE = frozenset((*groups.CONVERSATIONS, *groups.AGENTIC))


class BFCL(Benchmark):
    """BFCL's 22 scored categories, and format sensitivity, which repeats entries in 26 forms."""

    name = "bfcl"
    rule_sets = RULE_SETS
    without_native = f"{_WHERE}.mode: prompt"
    # Upstream's handlers of local thinking models keep reasoning in the history. They write the
    # reasoning of the steps since the last user message into the prompt.
    replay_reasoning = "tool_steps"
    Options = BFCLOptions
    groups = tables.TITLED_GROUPS
    choices = CHOICES
    refused_fix = (
        f"use a model whose template accepts them, or write {_WHERE}.system: user for system "
        f"messages and {_WHERE}.results: user for tool messages"
    )

    def __init__(self, options: BFCLOptions) -> None:
        super().__init__(options)
        self._native = options.mode == "native"
        _check(options)
        self._categories = categories_of(options)
        self._package = UpstreamPackage.locate(options.data)
        self._options = options.model_copy(update={"data": self._package.name})
        # Prompts, docs, tools and conversations are read here, since workers lack the data.
        self._prompts = own_prompts() if self._package.is_mini else official_prompts(self._package)
        self._docs = function_docs(self._package)
        self._episodes = EpisodeSettings(self._prompts, self._docs, self._native, options.results)
        self._sources = tool_sources(self._package)
        asks_memory = bool(set(self._categories) & set(groups.MEMORY))
        self._conversations = prerequisites(self._package) if asks_memory else {}
        self._http = Http()
        self._embeddings: Embeddings | None = None

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_embeddings": None}

    def entries(self) -> Sequence[Entry]:
        for language in {groups.language_of(name) for name in self._categories} - {"python"}:
            source_trees.load_grammar(language)
        return load(self._package, self._categories)

    def ready(self, *, named: bool) -> None:
        self._sources = replace(self._sources, named=named)
        classes = {name for e in self.dataset() for name in e.data.get("involved_classes", ())}
        if classes - {_WEB_TOOLS}:
            load_classes(self._sources, sorted(classes - {_WEB_TOOLS}))

    def identity(self) -> Mapping[str, Any]:
        options, web = self._options, self._options.web_search
        protocol: dict[str, Any] = {"mode": options.mode, "system": options.system}
        if options.contamination:
            protocol["contamination"] = True
        identity: dict[str, Any] = {
            "version": self._package.version,
            "data_sha256": data_hash(self.dataset()),
            "prompts": self._prompts.source,
            "prompts_sha256": self._prompts.sha256,
            "protocol": protocol,
        }
        if set(self._categories) & _INTERACTIVE:
            identity["episodes"] = {
                "results": options.results,
                "docs_sha256": digest(self._docs),
                "tools_sha256": self._sources.sha256,
                "conversations_sha256": digest(self._conversations),
                "prompts_sha256": self._prompts.sha256,
                "embedding": options.embedding and options.embedding.model,
                # Only the URLs of the services can change a score.
                "web_search": web and {"search": web.search.url, "fetch": web.fetch.url},
            }
        return identity

    def resolved(self) -> dict[str, Any]:
        data = self._options.data
        if data not in ("mini", "installed") and not data.startswith("imported:"):
            data = str(path_of(data, "data").absolute())
        return {**self._options.model_dump(mode="json"), "data": data}

    def prompt(self, entry: Entry) -> list[dict[str, Any]]:
        return self._sent_messages(self._opening(entry))

    def _opening(self, entry: Entry) -> list[dict[str, Any]]:
        """Return an episode's first messages. In memory categories, they show an empty memory."""
        category, data = entry.category, entry.data
        messages: list[dict[str, Any]] = [dict(message) for message in data["question"][0]]
        if category not in _INTERACTIVE:
            if self._native:
                return messages
            return self._prompts.messages(
                messages,
                data["function"],
                form_of(entry.id),
                groups.language_of(category),
                # Upstream adds the hints twice in format sensitivity, since it loads entries twice.
                hints=2 if category == groups.FORMAT_SENSITIVITY else 1,
            )
        if category not in groups.CONVERSATIONS:
            messages = add_system(self._prompts.texts.agentic, messages)
        if category in groups.MEMORY:
            backend = category.removeprefix("memory_")
            text = self._prompts.memory(data["scenario"], backend, "")
            messages = add_system(text, messages)
        return self._episodes.opening(messages, self._episodes.functions(entry)[0])

    def template_probe(self, entry: Entry) -> list[dict[str, Any]]:
        roles = ["system", "user", "assistant"]
        if not self._native:  # `Chat.require_tools` checks native tool results
            roles += [self._options.results, "assistant", "user"]
        extra_fields = {"tool": {"name": "x()"}}
        return self._sent_messages(
            [{"role": r, **extra_fields.get(r, {}), "content": "x"} for r in roles]
        )

    def tools(self, entry: Entry) -> list[dict[str, Any]] | None:
        if not self._native:
            return None
        if entry.category in _INTERACTIVE:
            return self._prompts.tools(self._episodes.functions(entry)[0])
        language = groups.language_of(entry.category)
        return self._prompts.tools(entry.data["function"], language)

    def interactive(self, entry: Entry) -> bool:
        return entry.category in _INTERACTIVE

    def scenario(self, entry: Entry) -> Scenario:
        return LimitedEnvironment(self._sources, initial_state_of(entry, self._docs))

    def preparation(self, entry: Entry) -> str:
        if entry.category not in groups.MEMORY:
            return ""
        return f"{entry.category}/{entry.data['scenario']}"

    async def prepare(self, entry: Entry, context: EpisodeContext) -> dict[str, Any]:
        self._drop_system(context)
        talks = self._conversations[entry.data["scenario"]]
        return await agentic.prepare_memory(
            entry, context, self._episodes, talks, self._embedder(entry)
        )

    async def run(self, entry: Entry, context: EpisodeContext) -> Episode:
        self._drop_system(context)
        if entry.category in groups.CONVERSATIONS:
            return await conversation.rollout(entry, context, self._episodes)
        if entry.category in groups.MEMORY:
            return await agentic.memory_rollout(
                entry, context, self._episodes, self._embedder(entry)
            )
        if entry.category in groups.WEB_SEARCH:
            config = self._options.web_search
            assert config is not None  # otherwise `categories_of` refuses the category
            return await agentic.web_search_rollout(
                entry, context, self._episodes, config, self._http
            )
        return await self._run_single(entry, context)

    async def _run_single(self, entry: Entry, context: EpisodeContext) -> Episode:
        planned = None if self._options.system == "user" else context.opening
        messages, tools = planned or (self._opening(entry), self.tools(entry))
        episode = context.episode
        answer = Answer.from_completion(await context.answer(messages, tools))
        if answer.calls is not None:
            episode.state = {"turns": [[answer.as_json()]], "ended": ""}
        if self._options.contamination and has_python_gold(entry.category):
            assert context.token_logprobs is not None  # set by every pipeline
            text = gold_text(entry.gold, entry.data["function"])
            try:
                logprobs = await context.token_logprobs(self._sent_messages(messages), text)
                episode.state = {"gold_logprobs": [round(value, 6) for value in logprobs]}
            except PromptTooLong:  # the verdict needs no probabilities
                episode.state = {"gold_logprobs": None}
        return episode

    @property
    def needs_logprobs(self) -> bool:
        return self._options.contamination

    def check(self, entry: Entry, episode: Episode) -> Mapping[str, Verdict]:
        state = episode.state or {}
        ending = str(state.get("ended", ""))
        verdicts: Mapping[str, Verdict]
        if entry.category in groups.CONVERSATIONS:
            turns = _turns(episode)
            verdicts = check_multi_turn(entry, turns, ending, self._sources, self._docs)
            return add_metrics(verdicts, ending=ending or "finished")
        if entry.category in groups.AGENTIC:
            verdicts = check_agentic(_answers(episode), entry.gold["ground_truth"], ending)
            return add_metrics(verdicts, ending=ending or "finished")
        answer = _single_answer(episode)
        category = entry.category
        if category == groups.FORMAT_SENSITIVITY:
            category = original_id(entry.id).rpartition("_")[0]
        functions = entry.data["function"]
        verdicts = check_single(category, functions, entry.gold, answer, form_of(entry.id))
        return add_metrics(verdicts, ending=None, gold_logprobs=state.get("gold_logprobs"))

    def parse_failures(self, entry: Entry, episode: Episode) -> Answers:
        if entry.category in _INTERACTIVE:
            return [
                [answer.text or ""] for answer in _answers(episode) if not executable_calls(answer)
            ]
        answer = _single_answer(episode)
        inferred = (episode.state or {}).get("ended") != "inference"
        language = groups.language_of(entry.category)
        if not inferred or holds_calls(answer, form_of(entry.id), language):
            return ()
        return [answer_texts(episode, answer.text or "")]

    statistics = staticmethod(summarize)
    scores = staticmethod(tables.scores)
    task = staticmethod(tables.task)
    paper = staticmethod(tables.paper)
    tables = staticmethod(tables.tables)

    @classmethod
    def sandbox_states(cls, state: Any) -> tuple[Any, Any] | None:
        for before, end in _STATES if isinstance(state, Mapping) else ():
            if isinstance(state.get(before), Mapping) and isinstance(state.get(end), Mapping):
                return state[before], state[end]
        return None

    @classmethod
    def import_data(cls, path: Path | None) -> None:
        UpstreamPackage.import_copy(
            path, lambda _: all_files(), _count, lambda rows: f"{sum(rows.values()):,} rows"
        )

    def apis_and_turns(self, entry: Entry) -> tuple[list[OfferedApi], int | None]:
        apis = [OfferedApi(function) for function in entry.data.get("function", ())]
        for name in entry.data.get("involved_classes", ()):
            apis += [OfferedApi(function, name) for function in self._docs[name]]
        return apis, len(entry.data["question"])

    def output_entries(self) -> Entries:
        return entries_of(self._package)

    def outputs(self, path: Path, entries: Entries) -> Iterator[Output]:
        return read_outputs(path, entries)

    def gold(self, entry: Entry) -> Gold | None:
        return gold_of(entry, self._docs)

    @classmethod
    def for_gold_check(cls, data: str) -> Self:
        unused = [] if data == "mini" else ["unused"]
        return cls.from_options({"data": data, "categories": ["all", *unused]})

    def summarize(self, rows: Iterable[ResultRow], max_unscored: float) -> dict[str, Any]:
        summary = summarize(rows, max_unscored=max_unscored)
        categories = requested_categories(self._options)
        missing = {
            name: why for name, why in absence_reasons(self._options).items() if name in categories
        }
        return {
            "mode": self._options.mode,
            "prompts": self._prompts.source,
            "version": self._package.version,
            "not_run": missing,
            "comparable": ". ".join([self._comparability(), *tables.notes(summary, missing)]),
            **summary,
            **tables.tables(summary, missing),
        }

    def _comparability(self) -> str:
        if self._package.is_mini:
            return "not comparable with any leaderboard: the mini set is ace_ray's own"
        if reasons := list(self._differences()):
            return "not comparable with the leaderboard: " + "; ".join(reasons)
        unused = [name for name in self._categories if name in groups.UNUSED]
        return (
            f"data and prompts of bfcl-eval {self._package.version}: the official rule set is "
            "comparable per category with bfcl-eval's prompt-mode models"
            f"{', except ' if unused else ''}{', '.join(unused)}"
        )

    def _differences(self) -> Iterator[str]:
        """Yield the differences between this run and upstream's protocol."""
        if not self._package.has_official_data():
            yield "the data is not official"
        if self._sources.sha256 != OFFICIAL_TOOLS_SHA256:
            yield "the tools are not official"
        if self._native:
            yield "native tool calling is comparable only with native tool calling"
        elif self._prompts.sha256 != OFFICIAL_PROMPTS_SHA256:
            yield "the prompts are not official"
        if set(self._categories) <= set(groups.UNUSED):
            yield "upstream no longer scores the categories"
        if "memory_vector" in self._categories:
            yield "memory_vector uses another embedding model than upstream"
        if self._options.results != "tool" or self._options.system != "system":
            yield "messages have other roles than in upstream"
        if set(self._categories) & set(groups.WEB_SEARCH):
            yield "the web was searched on another day than for the leaderboard"

    def _sent_messages(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return merge_system(messages) if self._options.system == "user" else messages

    def _drop_system(self, context: EpisodeContext) -> None:
        if self._options.system == "user":
            model = SystemlessModel(context.candidate.model)
            context.candidate = replace(context.candidate, model=model)

    def _embedder(self, entry: Entry) -> Embedder | None:
        config = self._options.embedding
        if entry.category != "memory_vector" or config is None:
            return None
        if self._embeddings is None:
            self._embeddings = Embeddings(config, Service(config, self._http))
        return self._embeddings


def _count(package: UpstreamPackage) -> Mapping[str, int]:
    """Read all files; return the rows per category. Raises `UserError` if a file is invalid."""
    rows = Counter(entry.category for entry in load(package, groups.ALL_CATEGORIES))
    function_docs(package), prerequisites(package), official_prompts(package)
    load_classes(replace(tool_sources(package), named=True), list(TOOL_MODULES))
    return {category: rows[category] for category in groups.ALL_CATEGORIES}


def _answers(episode: Episode) -> list[Answer]:
    return [answer for turn in _turns(episode) for answer in turn]


def _turns(episode: Episode) -> list[list[Answer]]:
    turns = (episode.state or {}).get("turns", ())
    return [[Answer.from_json(answer) for answer in turn] for turn in turns]


def _single_answer(episode: Episode) -> Answer:
    answers = _answers(episode)
    return answers[0] if answers else Answer(episode.output)


def _check(options: BFCLOptions) -> None:
    """Raise `UserError` for options that exclude each other, and for invalid service configs."""
    if options.contamination and options.mode == "native":
        problem = "contamination can only be measured in prompt mode"
        fix = "write mode: prompt, or contamination: false"
        raise UserError(problem, where=f"{_WHERE}.contamination", fix=fix)
    if options.embedding is not None:
        check_service(options.embedding, f"{_WHERE}.embedding")
    if options.web_search is not None:
        check_service(options.web_search.search, f"{_WHERE}.web_search.search")
        check_service(options.web_search.fetch, f"{_WHERE}.web_search.fetch")
