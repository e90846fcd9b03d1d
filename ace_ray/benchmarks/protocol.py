"""The seam between a benchmark and everything else.

A benchmark is plain Python and asyncio: it sees an `EpisodeContext`, never Ray, vLLM or a store.
Packages outside ace_ray add one through the entry-point group ``ace_ray.benchmarks``; the entry
point is a callable that takes the benchmark's section of the config and returns a `Benchmark`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from ace_ray.benchmarks.context import EpisodeContext, Service
from ace_ray.models.roles import Role
from ace_ray.records import Entry, Episode, Sampling, Verdict
from ace_ray.sandbox.protocol import Scenario


class ScoredRow(Protocol):
    """One row as summaries see it: keys, status, verdicts per rule set, usage."""

    @property
    def language(self) -> str: ...
    @property
    def category(self) -> str: ...
    @property
    def id(self) -> str: ...
    @property
    def group(self) -> str: ...
    @property
    def sample(self) -> int: ...
    @property
    def status(self) -> str: ...
    @property
    def verdicts(self) -> Mapping[str, Verdict]: ...


class Benchmark(Protocol):
    """One benchmark, configured.

    Subclass it for the defaults: one model call an entry, no tools, no other roles.
    """

    name: str

    def entries(self) -> Sequence[Entry]:
        """All entries of this run, in a stable order. Raises `UserError` on bad data."""

    def ready(self, *, named: bool) -> None:
        """Find now what episodes and checks would lack. Called before these, and by nothing that
        only reads a run. Raises `UserError`.

        Args:
            named: whether the user named the benchmark's data in this command. Data that only a
                stored run names is read, and no code in it is run unless the benchmark knows it.
        """

    def identity(self) -> Mapping[str, Any]:
        """What can move a score besides model and sampling: hashes of data and prompts, variants.

        JSON values; goes into the manifest and the run's identity. Its ``protocol`` key, if any,
        holds what decides a row's content besides entry and prompt, and enters every row's id;
        its ``episodes`` key enters those of interactive rows."""

    def resolved(self) -> dict[str, Any]:
        """The benchmark's section of the config with nothing left open: defaults filled in, data
        and files pinned by version or absolute path. It makes the same benchmark again, from any
        folder; JSON values, without the name."""

    def prompt(self, entry: Entry) -> list[dict[str, Any]]:
        """The messages that open the entry's episode; used for planning and preflight."""

    def template_probe(self, entry: Entry) -> list[dict[str, Any]]:
        """A short chat with a message of every kind that the entry's episode may send, used for
        preflight."""
        return self.prompt(entry)

    refused_fix: str = "use a model whose template takes system and user messages"
    """What to do about a chat template that refuses them."""

    def tools(self, entry: Entry) -> list[dict[str, Any]] | None:
        """The tools that go with them through the model's own template, in OpenAI's form; None
        when the messages say it all."""
        return None

    def interactive(self, entry: Entry) -> bool:
        """Whether the episode makes more than one model call."""
        return False

    def roles(self) -> Mapping[str, Role]:
        """Other models that take part in episodes, by the name of their part."""
        return {}

    def role_sampling(self, role: str) -> Sampling:
        """How the model in ``role`` draws its tokens unless the config says otherwise."""
        return Sampling()

    def role_chat(self, role: str) -> list[dict[str, Any]]:
        """A short chat of the shape that the model in ``role`` is sent; used for preflight."""
        return [{"role": "user", "content": "x"}]

    def scenario(self, entry: Entry) -> Scenario:
        """A fresh sandbox for an interactive entry. Called where the sandbox lives."""
        raise NotImplementedError

    def preparation(self, entry: Entry) -> str:
        """Names what happens once before the episodes of an interactive entry and of all others
        that name the same; "" for nothing. They run on one worker and end together."""
        return ""

    async def prepare(self, entry: Entry, context: EpisodeContext) -> Any:
        """Do what `preparation` names, with any of the entries that name it, and return what their
        contexts have as ``prepared``. It is done again wherever such entries are evaluated again.
        What it takes of the candidate counts for the first of their episodes."""
        raise NotImplementedError

    def service(self) -> Service | None:
        """What one process holds for all episodes; made there, on the machine of the run's driver.
        None for nothing. The driver asks first: raises `UserError` when it cannot be had."""
        return None

    def lock_key(self) -> str:
        """What two runs must not have at the same time, such as a folder that they write; "" for
        nothing. A sweep runs models that share it one after another."""
        return ""

    async def run_episode(self, entry: Entry, context: EpisodeContext) -> Episode:
        """The entry's episode, usually ``context.episode``. Raises `RowError` where it says nothing
        about the candidate."""
        ...

    def check(self, entry: Entry, episode: Episode) -> Mapping[str, Verdict]:
        """Verdicts of all rule sets, by name. Stateless, never raises on any output."""

    def summarize(self, rows: Iterable[ScoredRow], max_unscored: float) -> dict[str, Any]:
        """Accuracies, aggregates and error distributions (JSON values); see docs/results.md.

        ``max_unscored``: share of rows without verdict up to which an aggregate is still given.
        An optional ``table`` {"header", "lines"} is printed, the last three columns aligned as
        numbers, and so are ``further_tables``, each with a "title"; an optional ``comparable``
        says in one sentence what the numbers compare with.
        """

    def files(
        self, rows: Callable[[], Iterable[Mapping[str, Any]]], summary: Mapping[str, Any]
    ) -> Iterator[tuple[str, bytes]]:
        """Files of the benchmark's own, (path, content), made whenever a run is summarized.

        ``rows`` reads those stored (columns of docs/results.md), each once and without repeats;
        ``summary`` is that of the whole run. They land under ``files/<benchmark>/``."""
        return iter(())
