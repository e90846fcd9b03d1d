"""The seam between a benchmark and everything else.

A benchmark is a class in plain Python and asyncio, without Ray, vLLM or a store.
It says what is asked (`Benchmark.entries`) and what an answer is worth (`Benchmark.check`); the
rest has defaults: one model call an entry, accuracy by category, group and language. A package adds
a benchmark through the entry-point group ``ace_ray.benchmarks``, a config through a local file
(`ace_ray.benchmarks.registry`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from ace_ray.benchmarks import statistics
from ace_ray.benchmarks.checked import check_opening, completed, own_code, verdicts_of
from ace_ray.benchmarks.context import EpisodeContext, Service
from ace_ray.benchmarks.dataset import data_hash
from ace_ray.benchmarks.diagnosis import Answers
from ace_ray.benchmarks.gold_check import Gold, check_gold
from ace_ray.benchmarks.outputs import Entries, Output, Unscored, each_once, read_json_lines
from ace_ray.benchmarks.results import (
    CategoryResult,
    Paper,
    ReportedRun,
    Score,
    ScoredRow,
    own_task,
)
from ace_ray.benchmarks.transcript import Step, of_messages
from ace_ray.config.schema import SECTION_KEYS, Section, validated
from ace_ray.errors import UserError
from ace_ray.models.roles import Role
from ace_ray.sandbox.protocol import Scenario
from ace_ray.types import Entry, Episode, Sampling, Verdict, digest

Say = Callable[[str], None]


class Benchmark(ABC):
    """One benchmark; an object of the class is configured by a section of a run's config."""

    name: ClassVar[str] = ""
    """In configs, columns, file names and run ids."""
    source: ClassVar[str] = ""
    """``FILE:CLASS`` of a class in a local file; the registry sets it."""
    rule_sets: ClassVar[tuple[str, ...]] = ("correct",)
    """What verdicts are given under; the first is the headline. Each has columns of its own."""
    Options: ClassVar[type[Section]] = Section
    """The keys of the benchmark's section of the config."""
    groups: ClassVar[Mapping[str, Sequence[str]]] = {}
    """Group -> categories, in print order. Categories are printed in the order they have here."""

    choices: ClassVar[Mapping[str, Mapping[str, Sequence[str]]]] = {}
    """Options that choose entries, such as ``categories``, and the names that each takes. A group
    maps to its members, any other name to nothing."""

    # On the class, so that a benchmark with an ``__init__`` of its own need not know of them.
    options: Any = None
    _dataset: list[Entry] | None = None

    def __init__(self, options: Any = None) -> None:
        self.options = options

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> Self:
        """The benchmark of a section of the config. Raises `UserError`: a key or a value of it is
        wrong."""
        where = f"benchmarks.{cls.name}"
        return cls(validated(cls.Options, options, where=where, beside=SECTION_KEYS))

    def __getstate__(self) -> dict[str, Any]:
        # Entries travel once, as a table of their own.
        return self.__dict__ | {"_dataset": None}

    replay_reasoning: ClassVar[str] = "none"
    """The reasoning of earlier answers that upstream's own handlers show the model again: ``none``,
    ``tool_steps`` (that of the steps since the last user's message) or ``all``."""

    # What is asked, and what an answer is worth.

    @abstractmethod
    def entries(self) -> Iterable[Entry]:
        """All entries of this run, in a stable order. Raises `UserError` on bad data."""

    @abstractmethod
    def check(self, entry: Entry, episode: Episode) -> Verdict | Mapping[str, Verdict]:
        """The verdict, or one for each of `rule_sets`. Stateless, and depends on nothing but its
        arguments. The output is hostile; an exception leaves the row without a verdict."""

    def unread(self, entry: Entry, episode: Episode) -> Answers:
        """The answers in which `check` finds no call, to be looked into for calls in the formats
        that models are known to write (docs/results.md). As stateless as `check`."""
        return ()

    # How an entry is put to the model.

    def prompt(self, entry: Entry) -> list[dict[str, Any]]:
        """The messages that open the entry's episode; used for planning and preflight, too."""
        if isinstance(entry.prompt, str):
            return [{"role": "user", "content": entry.prompt}]
        return [dict(message) for message in entry.prompt]

    def tools(self, entry: Entry) -> list[dict[str, Any]] | None:
        """The tools that go with them through the model's own template, in OpenAI's form; None
        when the messages say it all."""
        return None

    async def run(self, entry: Entry, context: EpisodeContext) -> Episode:
        """The entry's episode, usually ``context.episode``; by default one call of the candidate.

        Raises `RowError` where it says nothing about the candidate, and never catches one."""
        await context.answer(*(context.opening or self.opening(entry)))
        return context.episode

    def interactive(self, entry: Entry) -> bool:
        """Whether the episode makes more than one model call; by default where `run` is the
        class's own."""
        return type(self).run is not Benchmark.run

    @property
    def needs_logprobs(self) -> bool:
        """Whether `run` asks for `EpisodeContext.token_logprobs`, which endpoints do not give."""
        return False

    # What can move a score.

    def identity(self) -> Mapping[str, Any]:
        """What can move a score besides model and sampling: JSON values for the manifest and the
        run's identity.

        The value of ``protocol`` enters every row's id: what decides a row's content besides entry
        and prompt. The value of ``episodes`` enters the ids of interactive rows."""
        protocol = {key: value for key, value in self.resolved().items() if key != "data"}
        if texts := self.texts():
            protocol["texts_sha256"] = digest(texts)
        return {"data_sha256": data_hash(self.dataset()), "protocol": protocol}

    def texts(self) -> Mapping[str, str]:
        """The texts that `run` sends and `prompt` does not show, by name."""
        return {}

    def resolved(self) -> dict[str, Any]:
        """The benchmark's section of the config with nothing left open: defaults filled in, data
        and files pinned by version or absolute path. It makes the same benchmark again, from any
        folder; JSON values, without the name."""
        options: dict[str, Any] = self.options.model_dump(mode="json") if self.options else {}
        return options

    def ready(self, *, named: bool) -> None:  # noqa: B027 - most have nothing to look at
        """Find now what episodes and checks would lack. Called before these, and by nothing that
        only reads a run. Raises `UserError`.

        Args:
            named: whether the user named the benchmark's data in this command. Data that only a
                stored run names is read, and no code in it is run unless the benchmark knows it.
        """

    # What interactive episodes need.

    def roles(self) -> Mapping[str, Role]:
        """Other models that take part in episodes, by the name of their part."""
        return {}

    shared_roles: ClassVar[frozenset[str]] = frozenset()
    """Roles whose answers several rows use, from a cache: they have the same seeds in every row."""

    def role_sampling(self, role: str) -> Sampling:
        """How the model in ``role`` draws its tokens unless the config says otherwise."""
        return Sampling()

    def role_chat(self, role: str) -> list[dict[str, Any]]:
        """A short chat of the shape that the model in ``role`` is sent; used for preflight."""
        return [{"role": "user", "content": "x"}]

    def role_tools(self, role: str) -> list[dict[str, Any]] | None:
        """The tools that the model in ``role`` is offered, in OpenAI's form; None for none. Used
        for preflight: a model of this run that is offered tools needs a tool parser."""
        return None

    def template_probe(self, entry: Entry) -> list[dict[str, Any]]:
        """A short chat with a message of every kind that the entry's episode may send, used for
        preflight."""
        return self.prompt(entry)

    refused_fix: ClassVar[str] = "use a model whose template takes system and user messages"
    """What to do about a chat template that refuses them."""

    without_native: ClassVar[str] = ""
    """The config line that puts tools into the prompt, if the benchmark has one."""

    def scenario(self, entry: Entry) -> Scenario:
        """A fresh sandbox for an interactive entry. Called where the sandbox lives."""
        raise NotImplementedError(f"{self.name} has no sandbox")

    def preparation(self, entry: Entry) -> str:
        """Names what happens once before the episodes of an interactive entry and of all others
        that name the same; "" for nothing. They run on one worker and end together."""
        return ""

    async def prepare(self, entry: Entry, context: EpisodeContext) -> Any:
        """Do what `preparation` names, with any of the entries that name it, and return what their
        contexts have as ``prepared``. It is done again wherever such entries are evaluated again.
        What it takes of the candidate counts for the first of their episodes."""
        raise NotImplementedError(f"{self.name} prepares nothing")

    def service(self) -> Service | None:
        """What one process holds for all episodes; made there, on the machine of the run's driver.
        None for nothing. The driver asks first: raises `UserError` when it cannot be had."""
        return None

    # The numbers of a run.

    def summarize(self, rows: Iterable[ScoredRow], max_unscored: float) -> dict[str, Any]:
        """What ``summary.json`` says of this benchmark: `statistics`, and the `tables` that are
        printed. An optional ``comparable`` says in one sentence what the numbers compare with."""
        summary = self.statistics(rows, max_unscored)
        return {**summary, **self.tables(summary)}

    def files(
        self, rows: Callable[[], Iterable[Mapping[str, Any]]], summary: Mapping[str, Any]
    ) -> Iterator[tuple[str, bytes]]:
        """Files of the benchmark's own, (path, content), made whenever a run is summarized.

        ``rows`` reads those stored (columns of docs/results.md), each once and without repeats;
        ``summary`` is that of the whole run. They land under ``files/<benchmark>/``; a path that
        begins with ``results/tools/`` stays as it is, below the run."""
        return iter(())

    # What reports need. All of it belongs to the class and needs no data: rows hold the verdicts.

    @classmethod
    def statistics(cls, rows: Iterable[ScoredRow], max_unscored: float) -> dict[str, Any]:
        """Accuracies, aggregates and error distributions (JSON values); see docs/results.md.

        ``max_unscored``: share of rows without verdict up to which an aggregate is still given."""
        return statistics.statistics(rows, cls.rule_sets, cls.groups, max_unscored)

    @classmethod
    def tables(cls, summary: Mapping[str, Any]) -> dict[str, Any]:
        """`statistics` for people: ``table`` {"header", "lines"}, and optional ``further_tables``,
        each with a "title" too."""
        made: dict[str, Any] = {"table": statistics.table(summary, cls.rule_sets)}
        if further := statistics.sample_tables(summary["categories"], cls.rule_sets):
            made["further_tables"] = further
        return made

    @classmethod
    def scores(cls, summary: Mapping[str, Any], rules: str) -> Sequence[Score]:
        """The numbers of a run over all of it, from its `statistics`; the first is the headline,
        the one that is shown wherever there is room for one. The same names for every run."""
        return statistics.scores(summary, rules, cls.groups)

    @classmethod
    def categories(cls, run: ReportedRun) -> Sequence[CategoryResult]:
        """Every category of the run, in print order."""
        return statistics.categories(run, cls.rule_sets)

    @classmethod
    def task(cls, row: ScoredRow) -> str:
        """A key that rows share whose entries are no independent evidence: one task asked twice.

        At least the rows of one dialogue share it, as they do by default."""
        return own_task(row)

    @classmethod
    def transcript(cls, messages: Sequence[Mapping[str, Any]], state: Any) -> list[Step]:
        """What happened in a stored episode, for people and other tools; by default its messages.
        ``state`` is `Episode.state`. Both may be anybody's: nothing of them may be trusted."""
        return of_messages(messages)

    @classmethod
    def sandbox_states(cls, state: Any) -> tuple[Any, Any] | None:
        """The sandbox before and after a stored episode, from `Episode.state`; None where that has
        none. It may be anybody's."""
        return None

    @classmethod
    def paper(cls, runs: Sequence[ReportedRun], rules: str) -> Paper | None:
        """The tables and figures of the benchmark's paper for these runs, the main table first;
        None where there is no paper."""
        return None

    @classmethod
    def has_paper(cls) -> bool:
        return cls.paper.__func__ is not Benchmark.paper.__func__  # type: ignore[attr-defined]

    # What the command line asks for; a benchmark offers what it overrides.

    @classmethod
    def import_data(cls, path: Path | None, say: Say) -> None:
        """``data import``: data from ``path`` into the cache, without one from an installed
        package. Raises `UserError`."""
        raise _offers_none(cls, "data import" if path else "data import --from-installed")

    @classmethod
    def pull_data(cls, url: str | None, sha256: str | None, say: Say) -> None:
        """``data pull``: download data, check and import it. Raises `UserError`."""
        raise _offers_none(cls, "data pull")

    def gold(self, entry: Entry) -> Gold | None:
        """``data check``: an entry's gold answer, and a mangled one; None where it has none."""
        return None

    @classmethod
    def check_data(cls, data: str, say: Say) -> bool:
        """``data check``: whether the checks give every gold answer its point, and no mangled one.
        Raises `UserError`."""
        if cls.gold is Benchmark.gold:
            raise _offers_none(cls, "data check")
        return check_gold(cls.for_gold_check(data), say)

    @classmethod
    def for_gold_check(cls, data: str) -> Self:
        """The benchmark with the entries of ``data`` that have gold answers. Raises `UserError`."""
        benchmark = cls.from_options({"data": data} if "data" in cls.Options.model_fields else {})
        benchmark.ready(named=True)
        return benchmark

    def output_entries(self) -> Entries:
        """``score``: the entries that outputs made elsewhere may answer."""
        return Entries.among(self.dataset())

    def outputs(self, path: Path, entries: Entries) -> Iterator[Output | Unscored]:
        """``score``: outputs that were made elsewhere, as episodes; by default JSON lines.

        Raises `UserError` naming file and line."""
        return each_once(read_json_lines(path, entries), path)

    # What the pipeline calls.

    def dataset(self) -> list[Entry]:
        """`entries`, completed and looked at once. Raises `UserError`: two share an id, one is not
        JSON, or has no prompt; `entries` fails."""
        if self._dataset is None:
            with own_code(type(self), "entries"):
                entries = completed(self.name, self.entries())
            own_prompt = type(self).prompt is not Benchmark.prompt
            if lacking := [one.id for one in entries if one.prompt is None and not own_prompt]:
                raise UserError(
                    "has no prompt",
                    where=f"benchmark {self.name}, entry {lacking[0]!r}",
                    fix="give Entry(prompt=...), or override prompt",
                )
            self._dataset = entries
        return self._dataset

    def opening(self, entry: Entry) -> tuple[list[dict[str, Any]], list[dict[str, Any]] | None]:
        """`prompt` and `tools`, looked at. Raises `UserError`: they are none, or fail."""
        with own_code(type(self), f"the prompt of entry {entry.id!r}"):
            messages, tools = self.prompt(entry), self.tools(entry)
        check_opening(messages, tools, f"benchmark {self.name}, entry {entry.id!r}")
        return messages, tools

    def verdicts(self, entry: Entry, episode: Episode) -> dict[str, Verdict]:
        """The verdict of every rule set. Raises what `check` raises, and `ValueError` when it gives
        other verdicts than `rule_sets` says."""
        return verdicts_of(self.check(entry, episode), self.rule_sets)


def _offers_none(benchmark: type[Benchmark], command: str) -> UserError:
    return UserError(
        f"{benchmark.name} offers no {command}", where=command, fix="see the benchmark's own page"
    )
