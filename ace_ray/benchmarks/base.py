"""The base class of benchmarks.

A benchmark is a class in plain Python and asyncio, without Ray, vLLM or a store. It must return
entries (`Benchmark.entries`) and judge answers (`Benchmark.check`). By default each entry is one
model call, and accuracy is computed by category, group and language. A package adds a benchmark
through the entry-point group ``ace_ray.benchmarks``. A config can also name a class in a local file
(`ace_ray.benchmarks.registry`).
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self

from ace_ray.benchmarks import statistics
from ace_ray.benchmarks.context import EpisodeContext, RoleModel, Service
from ace_ray.benchmarks.dataset import data_hash
from ace_ray.benchmarks.diagnosis import Answers, answer_texts, texts_of
from ace_ray.benchmarks.external_outputs import (
    Entries,
    Output,
    UnscoredOutput,
    read_json_lines,
    unique_outputs,
)
from ace_ray.benchmarks.gold_check import Gold, check_gold
from ace_ray.benchmarks.results import BenchmarkResult, CategoryResult, Paper, Score
from ace_ray.benchmarks.transcript import Step, steps_of
from ace_ray.benchmarks.validation import check_opening, fill_entries, user_code, verdicts_of
from ace_ray.config.roles import Role
from ace_ray.config.schema import SECTION_KEYS, Section, validate_tree
from ace_ray.errors import UserError
from ace_ray.parsing.formats import parse_known_formats
from ace_ray.sandbox.protocol import Scenario
from ace_ray.types import Entry, Episode, OfferedApi, ResultRow, Sampling, Verdict, digest, task_key


class Benchmark(ABC):
    """A benchmark, configured by one section of a run's config."""

    name: ClassVar[str] = ""
    """Name in configs, columns, file names and run ids."""
    source: ClassVar[str] = ""
    """``FILE:CLASS`` of a class in a local file; the registry sets it."""
    rule_sets: ClassVar[tuple[str, ...]] = ("correct",)
    """Names of the rule sets, which are ways to judge an answer. The first rule set gives the
    headline score. Each rule set has its own result columns."""
    Options: ClassVar[type[Section]] = Section
    """The keys of the benchmark's section of the config."""
    section_keys: ClassVar[tuple[str, ...]] = SECTION_KEYS
    """Keys that the section of every benchmark has."""
    groups: ClassVar[Mapping[str, Sequence[str]]] = {}
    """Categories by group. Groups and categories are printed in this order."""

    choices: ClassVar[Mapping[str, Mapping[str, Sequence[str]]]] = {}
    """Options that select entries, such as ``categories``, and the names that each option accepts.
    The name of a group maps to its members; any other name maps to an empty sequence."""

    # Defaults on the class: a benchmark that overrides ``__init__`` need not set these attributes.
    options: Any = None
    _dataset: list[Entry] | None = None

    def __init__(self, options: Any = None) -> None:
        self.options = options

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Self:
        """Make the benchmark from a section of the config. Raises `UserError` for a bad option."""
        location = f"benchmarks.{cls.name}"
        return cls(validate_tree(cls.Options, options, where=location, beside=cls.section_keys))

    def __getstate__(self) -> dict[str, Any]:
        # Ray receives the entries separately, once, as a table.
        return self.__dict__ | {"_dataset": None}

    replay_reasoning: ClassVar[str] = "none"
    """Earlier answers whose reasoning upstream sends to the model again: ``none``, ``tool_steps``
    (answers after the last user message) or ``all``."""

    # Entries and verdicts.

    @abstractmethod
    def entries(self) -> Iterable[Entry]:
        """Return all entries of this run, in a stable order. Raises `UserError` on bad data."""

    @abstractmethod
    def check(self, entry: Entry, episode: Episode) -> Verdict | Mapping[str, Verdict]:
        """Return the verdict on an episode, or a verdict for each of `rule_sets`. Verdicts must
        depend on the arguments only. The model's output may be hostile. If `check` raises, the row
        has no verdict."""

    async def judge(self, entry: Entry, episode: Episode, judge: RoleModel) -> bool:
        """Ask the model ``judge`` about a stored, unjudged episode (``ace-ray score --judge``). Add
        the judge's answers to ``episode.state``, as `run` does; without a verdict, add the reason.
        Return whether the judge gave a verdict."""
        raise NotImplementedError(f"{self.name} asks no judge")

    def judging(self) -> Mapping[str, Any]:
        """Return the settings of `judge` that can change a verdict, as JSON values. `identity` has
        these settings as ``episodes.judge`` if a judge is configured."""
        return {}

    def parse_failures(self, entry: Entry, episode: Episode) -> Answers:
        """Return the answers in which `check` finds no call. The run then searches them for calls
        in other formats (docs/results.md). The result must depend on the arguments only.

        By default these are answers without a call to a request that offered tools. Without tools,
        it is the only answer, if an empty answer would get the same error types. A class whose
        answers are not calls returns an empty sequence."""
        if episode.tools is not None:
            answers = [m for m in episode.messages if "text" in m and not m.get("tool_calls")]
            return [texts_of(message) for message in answers if message["text"]]
        texts = answer_texts(episode, episode.output)
        reasoning = [episode.reasoning] if episode.reasoning_truncated else []
        if self.interactive(entry) or not any(map(parse_known_formats, [*texts, *reasoning])):
            return ()
        empty_answer = {"role": "assistant", "content": ""}
        empty = replace(episode, output="", messages=[*episode.messages[:-1], empty_answer])
        faults, empty_faults = (
            {rules: not verdict.valid and verdict.error_type for rules, verdict in judged.items()}
            for judged in (self.verdicts(entry, episode), self.verdicts(entry, empty))
        )
        return [texts] if all(faults.values()) and faults == empty_faults else ()

    # Prompts and episodes.

    def prompt(self, entry: Entry) -> list[dict[str, Any]]:
        """Return the first messages of the entry's episode. Preflight checks their length, too."""
        if isinstance(entry.prompt, str):
            return [{"role": "user", "content": entry.prompt}]
        return [dict(message) for message in entry.prompt]

    def tools(self, entry: Entry) -> list[dict[str, Any]] | None:
        """Return the tools for the model's chat template, in OpenAI's form, or None."""
        return None

    async def run(self, entry: Entry, context: EpisodeContext) -> Episode:
        """Run the entry's episode, by default one model call. Return ``context.episode``.

        Raises `RowError` if something other than the evaluated model fails; do not catch it."""
        await context.answer(*(context.opening or self.opening(entry)))
        return context.episode

    def interactive(self, entry: Entry) -> bool:
        """Tell whether the episode makes more than one model call. By default, this is true if the
        class overrides `run`."""
        return type(self).run is not Benchmark.run

    @property
    def needs_logprobs(self) -> bool:
        """True if `run` calls `EpisodeContext.token_logprobs`, which endpoints do not offer."""
        return False

    # Identity.

    def identity(self) -> Mapping[str, Any]:
        """Return all settings that can change a score, except model and sampling, as JSON values.

        If the key ``protocol`` has another value, all row ids change. If the optional key
        ``episodes`` has another value, the ids of interactive rows change."""
        options = self.resolved().items()
        # The entries' hash covers files, wherever they are.
        protocol = {key: value for key, value in options if key != "data" and not _is_file(value)}
        if texts := self.texts():
            protocol["texts_sha256"] = digest(texts)
        return {"data_sha256": data_hash(self.dataset()), "protocol": protocol}

    def texts(self) -> Mapping[str, str]:
        """Return the fixed texts that `run` sends and that `prompt` does not contain, by name."""
        return {}

    def resolved(self) -> dict[str, Any]:
        """Return the benchmark's section of the config with all defaults, but without its name.

        Data and files are pinned by version or absolute path. In any working directory, these JSON
        values configure the same benchmark."""
        options: dict[str, Any] = self.options.model_dump(mode="json") if self.options else {}
        paths = {k: os.path.abspath(v) for k, v in options.items() if _is_file(v)}
        return options | paths

    def ready(self, *, named: bool) -> None:  # noqa: B027 - most benchmarks check nothing
        """Raise `UserError` unless everything that `run` and `check` need is available.

        Commands that only read a run do not call this method.

        Args:
            named: True if the user named the benchmark's data in this command, False if only a
                stored run names it. If False, the data's code must equal upstream's to run."""

    # Interactive episodes.

    def roles(self) -> Mapping[str, Role]:
        """Return the other models that take part in episodes, by the name of their role."""
        return {}

    shared_roles: ClassVar[frozenset[str]] = frozenset()
    """Roles whose answers are cached and used by several rows. The seed of such a role's sampling
    is the same in all rows and samples."""

    def role_sampling(self, role: str) -> Sampling:
        """Return the default sampling of the model in ``role``; the config can override values."""
        return Sampling()

    def role_chat(self, role: str) -> list[dict[str, Any]]:
        """Return a short chat in the form that the model in ``role`` receives, for preflight."""
        return [{"role": "user", "content": "x"}]

    def role_tools(self, role: str) -> list[dict[str, Any]] | None:
        """Return the tools that are offered to the model in ``role``, in OpenAI's form, or None.
        A model that is offered tools, and that the run serves itself, needs a tool parser."""
        return None

    def offers_tools(self, role: str) -> bool:
        """Return whether `role_tools` offers tools to ``role``. Every plan asks this, so override
        this method if the tools themselves take time to read."""
        return self.role_tools(role) is not None

    def template_probe(self, entry: Entry) -> list[dict[str, Any]]:
        """Return a short chat with every kind of message that the entry's episode may send.
        Preflight checks this chat with the chat template."""
        return self.prompt(entry)

    refused_fix: ClassVar[str] = "use a model whose template takes system and user messages"
    """Suggested fix in the error for a chat template that refuses the messages."""

    def shorter_prompts(self, context_tokens: int, chars_per_token: float) -> str:
        """Return the change of options with which prompts would fit a context, or "". Preflight
        prints this advice if no prompt fits."""
        return ""

    without_native: ClassVar[str] = ""
    """Config line that puts tools into the prompt; "" if the benchmark has no such line."""

    def scenario(self, entry: Entry) -> Scenario:
        """Open a new sandbox for an interactive entry. The sandbox's process calls this method."""
        raise NotImplementedError(f"{self.name} has no sandbox")

    def preparation(self, entry: Entry) -> str:
        """Return the name of the preparation that an interactive entry needs, or "" for none.

        A preparation (`prepare`) is work that one worker does once, for all entries with this name.
        The worker then runs the episodes of these entries."""
        return ""

    async def prepare(self, entry: Entry, context: EpisodeContext) -> Any:
        """Run the preparation of ``entry``. Return the value for `EpisodeContext.prepared`.

        If entries run again, their preparation runs again. Its tokens count as tokens of the first
        episode that uses it."""
        raise NotImplementedError(f"{self.name} prepares nothing")

    def service(self) -> Service | None:
        """Return an object that one process owns for all episodes, such as a cache, or None. The
        driver calls this method first, to find errors, then the owner. Raises `UserError` if the
        object cannot be opened."""
        return None

    # The numbers of a run.

    def summarize(self, rows: Iterable[ResultRow], max_unscored: float) -> dict[str, Any]:
        """Return the benchmark's part of ``summary.json``: `statistics` and the printed `tables`.
        The optional key ``comparable`` is a sentence that names comparable published numbers."""
        summary = self.statistics(rows, max_unscored)
        return {**summary, **self.tables(summary)}

    def files(
        self, rows: Callable[[], Iterable[Mapping[str, Any]]], summary: Mapping[str, Any]
    ) -> Iterator[tuple[str, bytes]]:
        """Yield (path, content) of the files that the benchmark adds to a summarized run.

        ``rows`` reads the stored rows (columns of docs/results.md) whose ``repeat`` is 0.
        ``summary`` is the summary of the run, with all benchmarks. Paths are relative to
        ``files/<benchmark>/``, or to the run's folder if they begin with ``results/tools/``."""
        return iter(())

    # Reports. These class methods need no data, since rows contain the verdicts.

    @classmethod
    def statistics(cls, rows: Iterable[ResultRow], max_unscored: float) -> dict[str, Any]:
        """Compute accuracies, aggregates and error distributions (JSON values, docs/results.md).

        ``max_unscored``: maximum share of rows without a verdict at which aggregates are computed.
        """
        return statistics.statistics(rows, cls.rule_sets, cls.groups, max_unscored)

    @classmethod
    def tables(cls, summary: Mapping[str, Any]) -> dict[str, Any]:
        """Return the tables to print: ``table`` with "header" and "lines", and optionally
        ``further_tables``, a list of such tables that also have a "title"."""
        tables: dict[str, Any] = {"table": statistics.table(summary, cls.rule_sets)}
        if sample_tables := statistics.sample_tables(summary["categories"], cls.rule_sets):
            tables["further_tables"] = sample_tables
        return tables

    @classmethod
    def scores(cls, summary: Mapping[str, Any], rules: str) -> Sequence[Score]:
        """Return the scores of a run, computed from its `statistics`. All runs have the same score
        names. The first score is the headline, shown where only one score fits."""
        return statistics.scores(summary, rules, cls.groups)

    @classmethod
    def categories(cls, run: BenchmarkResult) -> Sequence[CategoryResult]:
        """Return the results of every category of the run, in print order."""
        return statistics.categories(run, cls.rule_sets)

    @classmethod
    def task(cls, row: ResultRow) -> str:
        """Return the key of the row's task. Rows with the same key are not independent evidence.
        The rows of a dialogue must share a key. By default, a row shares its key only with the rows
        of its entry or dialogue."""
        return task_key(row)

    @classmethod
    def transcript(cls, messages: Sequence[Mapping[str, Any]], state: Any) -> list[Step]:
        """Return the steps of a stored episode for display and export; by default its messages.
        ``state`` is `Episode.state`. Arguments are not trusted: others may have stored the run."""
        return steps_of(messages)

    @classmethod
    def sandbox_states(cls, state: Any) -> tuple[Any, Any] | None:
        """Return the state of the sandbox before and after a stored episode, or None. ``state`` is
        `Episode.state`, and is not trusted: others may have stored the run."""
        return None

    @classmethod
    def paper(cls, runs: Sequence[BenchmarkResult], rules: str) -> Paper | None:
        """Return tables and figures of the benchmark's paper, the main table first, or None."""
        return None

    @classmethod
    def has_paper(cls) -> bool:
        return any("paper" in vars(kind) for kind in cls.__mro__ if kind is not Benchmark)

    # Commands. A benchmark offers the commands whose methods it overrides.

    @classmethod
    def import_data(cls, path: Path | None) -> None:
        """``data import``: import data into the cache, from ``path`` or an installed package.
        Raises `UserError` if data is missing or invalid."""
        raise _command_error(cls, "data import" if path else "data import --from-installed")

    @classmethod
    def pull_data(cls, url: str | None, sha256: str | None) -> None:
        """``data pull``: download, check and import data. Raises `UserError` if one step fails."""
        raise _command_error(cls, "data pull")

    def gold(self, entry: Entry) -> Gold | None:
        """``data check``: return an entry's gold answer and a deliberately wrong copy, or None."""
        return None

    @classmethod
    def check_data(cls, data: str) -> bool:
        """``data check``: return whether ``data`` passes `check_gold`. Raises `UserError` if the
        data is invalid or the benchmark has no gold answers."""
        if cls.gold is Benchmark.gold:
            raise _command_error(cls, "data check")
        benchmark = cls.for_gold_check(data)
        benchmark.ready(named=True)
        return check_gold(benchmark)

    @classmethod
    def for_gold_check(cls, data: str) -> Self:
        """Return the benchmark with all entries of ``data`` that have gold answers."""
        return cls.from_options({"data": data} if "data" in cls.Options.model_fields else {})

    def apis_and_turns(self, entry: Entry) -> tuple[list[OfferedApi], int | None]:
        """``data show``: return the APIs that an entry offers (default: `tools`) and the number of
        its dialogue turns (default: user messages in `prompt`), or None if that is unknown."""
        messages, tools = self.opening(entry)
        users = sum(message.get("role") == "user" for message in messages)
        return [OfferedApi(tool) for tool in tools or ()], users or None

    def output_entries(self) -> Entries:
        """``score``: return the entries that external outputs may answer."""
        return Entries.from_entries(self.dataset())

    def outputs(self, path: Path, entries: Entries) -> Iterator[Output | UnscoredOutput]:
        """``score``: read external outputs from the file ``path``, by default JSON lines.

        Raises `UserError` at the line of an invalid output."""
        return unique_outputs(read_json_lines(path, entries), path)

    # Called by the pipeline.

    def dataset(self) -> list[Entry]:
        """Return all `entries` with missing fields filled in. The list is built only once.
        Raises `UserError` if two entries share an id, if an entry is not JSON or has no prompt, or
        if `entries` raises."""
        if self._dataset is None:
            with user_code(type(self), "entries"):
                entries = fill_entries(self.name, self.entries())
            own_prompt = type(self).prompt is not Benchmark.prompt
            if lacking := [e.id for e in entries if e.prompt is None and not own_prompt]:
                location = f"benchmark {self.name}, entry {lacking[0]!r}"
                fix = "give Entry(prompt=...), or override prompt"
                raise UserError("has no prompt", where=location, fix=fix)
            self._dataset = entries
        return self._dataset

    def opening(self, entry: Entry) -> tuple[list[dict[str, Any]], list[dict[str, Any]] | None]:
        """Return the values of `prompt` and `tools`, checked. Raises `UserError` if a value is
        invalid or one of the two methods raises."""
        with user_code(type(self), f"the prompt of entry {entry.id!r}"):
            messages, tools = self.prompt(entry), self.tools(entry)
        check_opening(messages, tools, f"benchmark {self.name}, entry {entry.id!r}")
        return messages, tools

    def verdicts(self, entry: Entry, episode: Episode) -> dict[str, Verdict]:
        """Return the verdict of each rule set on ``episode``. Raises the exceptions of `check`, and
        `ValueError` if `check` returns invalid verdicts, or not one for each rule set."""
        return verdicts_of(self.check(entry, episode), self.rule_sets)


def _is_file(value: Any) -> bool:
    return isinstance(value, str) and os.path.isfile(value)


def _command_error(benchmark: type[Benchmark], command: str) -> UserError:
    return UserError(
        f"{benchmark.name} offers no {command}", where=command, fix="see the benchmark's own page"
    )
