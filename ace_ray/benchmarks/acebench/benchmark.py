"""ACEBench as a `Benchmark`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator

from ace_ray.benchmarks.acebench import categories as groups
from ace_ray.benchmarks.acebench import native
from ace_ray.benchmarks.acebench import prompts as texts
from ace_ray.benchmarks.acebench.agent import prompts as agent_texts
from ace_ray.benchmarks.acebench.agent.endings import Endings, with_ending
from ace_ray.benchmarks.acebench.agent.episode import own_role, run_agent
from ace_ray.benchmarks.acebench.check import check, check_agent
from ace_ray.benchmarks.acebench.data.loader import load, locate
from ace_ray.benchmarks.acebench.paper import reporting
from ace_ray.benchmarks.acebench.readers import Compared, check_read
from ace_ray.benchmarks.acebench.scenarios.world import (
    World,
    check_entry,
    load_worlds,
    open_world,
)
from ace_ray.benchmarks.acebench.score import NO_OUTPUT, entries_of, read_outputs
from ace_ray.benchmarks.acebench.scoring.summary import summarize
from ace_ray.benchmarks.acebench.scoring.table import HEADER, table
from ace_ray.benchmarks.base import Benchmark, Say
from ace_ray.benchmarks.context import EpisodeContext
from ace_ray.benchmarks.dataset import data_hash, pinned
from ace_ray.benchmarks.outputs import Entries, Output
from ace_ray.benchmarks.results import (
    CategoryResult,
    Estimate,
    Paper,
    ReportedRun,
    ScoredRow,
)
from ace_ray.config import Section
from ace_ray.errors import UserError
from ace_ray.models.roles import Role, parse_role
from ace_ray.records import RULE_SETS, Entry, Episode, Sampling, Verdict, digest

_GROUPS = {
    "all": groups.CATEGORIES,
    "generation": groups.GENERATION,
    "agent": groups.AGENT,
    "atom": groups.ATOM,
    "single_turn": groups.SINGLE_TURN,
    "multi_turn": groups.MULTI_TURN,
    "normal": groups.NORMAL,
    "special": groups.SPECIAL,
}


OFFICIAL_DATA_SHA256 = {
    ("en",): "176f275d787158744b5eee3831ff16e0f8bf1f3bae0b3cb440f56414af53737e",
    ("zh",): "6c9b56c20f0eb28fe4276e1998664243e451bddadf0acd65234a4955fc669049",
    ("en", "zh"): "3a8a3d5568017208067e69e2b9ea2f7b295306b83a72435499d17f9b9d32e154",
}
"""`data_hash` of all categories of the official data, by languages."""
OFFICIAL_PROMPTS_SHA256 = "cc08ad027bdf0c9cbe2b853f4573e20c986671b196b1ace69e7e8e81897b6228"


UPSTREAM_MESSAGES = 40


class ACEBenchOptions(Section):
    """The ``acebench`` section of a run's config."""

    data: str = Field(
        "mini",
        description="mini (ships with ace_ray), imported, imported:VERSION, or a folder in the "
        "official layout",
    )
    languages: list[Literal["en", "zh"]] = Field(
        default=["en", "zh"], min_length=1, description="of the entries"
    )
    categories: list[str] = Field(
        default=["all"], min_length=1, description="category names or groups"
    )
    prompts: Literal["auto", "official", "own"] = Field(
        "auto", description="auto: official when the data holds them, else the project's wording"
    )
    variant: Literal["standard", "condensed", "minimal"] = Field(
        "standard", description="of the normal prompt, as in the paper's appendix D.4"
    )

    protocol: Literal["auto", "official", "fixed"] = Field(
        "auto",
        description="of agent episodes. official: upstream's loops with their faults; fixed: "
        "without them; auto: official with official data",
    )
    sandbox: Literal["auto", "official", "fixed"] = Field(
        "auto", description="behaviour of the sandboxes where upstream's are broken; auto: as above"
    )
    upstream_agent: Literal["local", "api"] = Field(
        "local",
        description="whose prompt agent_multi_step takes under protocol official: upstream gives "
        "its API models the Chinese one in both languages",
    )
    mode: Literal["prompt", "native"] = Field(
        "prompt",
        description="native: functions go through the model's own tool-calling template, calls "
        "are read by model.tool_parser",
    )
    parsers: list[Literal["official", "hermes", "openai", "fenced"]] = Field(
        default=["official"],
        min_length=1,
        description="how answers are read; the first gives the verdicts, the others are compared",
    )
    max_messages: int = Field(UPSTREAM_MESSAGES, ge=2, le=1000, description="of an agent episode")
    user: Any = Field(
        "same",
        description="who simulates the user: same (the candidate, within sampling.max_tokens), "
        "{model: {source: ...}} served on the cluster, or {endpoint: {url: ..., model: ...}}",
    )

    @field_validator("languages", "parsers")
    @classmethod
    def _once(cls, names: list[str]) -> list[str]:
        return list(dict.fromkeys(names))


USER_SAMPLING = Sampling(temperature=0.0, max_tokens=1000)
"""Upstream draws the user's lines at temperature 0.001, which is greedy too."""


class ACEBench(Benchmark):
    """All 17 categories: one model call an entry, or an episode with tools and a simulated user."""

    name = "acebench"
    rule_sets = RULE_SETS
    Options = ACEBenchOptions
    groups = reporting.PAPER_GROUPS

    def __init__(self, options: ACEBenchOptions) -> None:
        super().__init__(options)
        self._native = options.mode == "native"
        if self._native:
            _check_native(options)
        self._folder = locate(options.data)
        self._wording = "own" if self._native else _wording(options, self._folder)
        self._options = options.model_copy(
            update={
                "prompts": self._wording,
                "protocol": "fixed" if self._native else _settled(options.protocol, options.data),
                "sandbox": _settled(options.sandbox, options.data),
            }
        )
        self._categories = _chosen(options.categories)
        if self._native:
            self._prompts = native.prompts()
        elif self._wording == "official":
            self._prompts = texts.official(self._folder, options.variant)
        else:
            self._prompts = texts.own(options.variant)
        self._user = parse_role(options.user, "benchmarks.acebench.user")

    @cached_property
    def _agents(self) -> agent_texts.AgentTexts | None:
        """The texts of agent episodes, if there are any."""
        if not set(self._categories) & set(groups.AGENT):
            return None
        return _agent_texts(self._wording, self._folder)

    @cached_property
    def _worlds(self) -> dict[str, Any]:
        return load_worlds(self._folder) if set(self._categories) & set(groups.AGENT) else {}

    def __getstate__(self) -> dict[str, Any]:
        # Read where the run is planned: workers have no copy of the data.
        return super().__getstate__() | {"_agents": self._agents, "_worlds": self._worlds}

    def entries(self) -> Sequence[Entry]:
        entries = load(self._folder, languages=self._options.languages, categories=self._categories)
        for entry in entries:
            if entry.category in groups.AGENT:
                check_entry(self._worlds, entry)
        return entries

    def identity(self) -> Mapping[str, Any]:
        found = {
            "data_sha256": data_hash(self.dataset()),
            "prompts": self._prompts.source,
            "prompts_sha256": self._prompts.sha256,
            "variant": self._prompts.variant,
            "parsers": list(self._options.parsers),
            "protocol": {"mode": self._options.mode},
        }
        if self._agents:
            options = self._options
            found["episodes"] = {
                "protocol": options.protocol,
                "sandbox": options.sandbox,
                "max_messages": options.max_messages,
                "upstream_agent": options.upstream_agent,
                "prompts": self._agents.source,
                "prompts_sha256": self._agents.sha256,
                "worlds_sha256": digest(self._worlds),
            }
        return found

    def resolved(self) -> dict[str, Any]:
        options = self._options
        return {**options.model_dump(mode="json"), "data": pinned(options.data, self._folder)}

    def prompt(self, entry: Entry) -> list[dict[str, Any]]:
        if entry.category not in groups.AGENT:
            return self._prompts.messages(entry)
        functions, question = entry.data["function"], entry.data["question"]
        if self._native:
            classes = entry.data["involved_classes"]
            system = self._agent_texts.native(entry.language, entry.category, classes)
            return [system, {"role": "user", "content": str(question)}]
        if entry.category == "agent_multi_turn":
            return self._agent_texts.turn(
                entry.language, entry.data["involved_classes"], functions, f"user:{question}\n"
            )
        return self._agent_texts.step(self._step_language(entry), functions, f"user:{question}\n")

    def tools(self, entry: Entry) -> list[dict[str, Any]] | None:
        return native.tools_of(entry) if self._native else None

    def interactive(self, entry: Entry) -> bool:
        return entry.category in groups.AGENT

    def roles(self) -> Mapping[str, Role]:
        return {"user": self._user} if "agent_multi_turn" in self._categories else {}

    def role_sampling(self, role: str) -> Sampling:
        return USER_SAMPLING

    def role_chat(self, role: str) -> list[dict[str, Any]]:
        own = own_role(official=self._options.protocol == "official")
        return [{"role": who, "content": "x"} for who in ("system", "user", own, "user")]

    def scenario(self, entry: Entry) -> World:
        return open_world(
            self._worlds,
            loop=entry.category.removeprefix("agent_"),
            language=entry.language,
            involved_classes=entry.data["involved_classes"],
            initial_config=entry.data["initial_config"],
            behaviour="official" if self._options.sandbox == "official" else "fixed",
        )

    async def run(self, entry: Entry, context: EpisodeContext) -> Episode:
        if entry.category in groups.AGENT:
            return await run_agent(
                entry,
                context,
                self._agent_texts,
                protocol="official" if self._options.protocol == "official" else "fixed",
                max_messages=self._options.max_messages,
                step_language=self._step_language(entry),
                tools=self.tools(entry),
            )
        done = await context.answer(self.prompt(entry), self.tools(entry))
        if done.tools is not None:
            functions = entry.data["function"]
            context.episode.output = native.answer_text(
                done.tools.content, done.tools.calls, functions
            )
        return context.episode

    def check(self, entry: Entry, episode: Episode) -> Mapping[str, Verdict]:
        if entry.category in groups.AGENT:
            state = episode.state or {}
            verdicts = check_agent(
                entry,
                state.get("after"),
                state.get("process"),
                end=state.get("end"),
                steps=state.get("steps"),
            )
            return with_ending(verdicts, state.get("ended"))
        if episode.state == NO_OUTPUT:
            return check(entry, None)
        return check_read(entry, episode.output, self._options.parsers)

    @property
    def _agent_texts(self) -> agent_texts.AgentTexts:
        if self._agents is None:
            raise ValueError("no agent category was chosen")
        return self._agents

    def _step_language(self, entry: Entry) -> str:
        """Upstream does not hand its API models' agent the language, whose default is Chinese."""
        api = self._options.upstream_agent == "api" and self._options.protocol == "official"
        return "zh" if api else entry.language

    @classmethod
    def statistics(cls, rows: Iterable[ScoredRow], max_unscored: float) -> dict[str, Any]:
        return summarize(rows, max_unscored=max_unscored)

    @classmethod
    def tables(cls, summary: Mapping[str, Any]) -> dict[str, Any]:
        return {"table": {"header": list(HEADER), "lines": table(summary)}}

    @classmethod
    def headline(cls, run: ReportedRun, rules: str) -> Mapping[str, Estimate | None]:
        return reporting.headline(run, rules)

    @classmethod
    def categories(cls, run: ReportedRun) -> Sequence[CategoryResult]:
        return reporting.categories(run)

    @classmethod
    def task(cls, row: ScoredRow) -> str:
        return reporting.task(row)

    @classmethod
    def paper(cls, runs: Sequence[ReportedRun], rules: str) -> Paper:
        return reporting.paper(runs, rules)

    @classmethod
    def import_data(cls, path: Path | None, say: Say) -> None:
        from ace_ray.benchmarks.acebench.data.importer import import_checkout

        if path is None:
            return super().import_data(path, say)
        import_checkout(path, say=say)

    def output_entries(self) -> Entries:
        return entries_of(self._folder)

    def outputs(self, path: Path, entries: Entries) -> Iterator[Output]:
        return read_outputs(path, entries)

    @classmethod
    def pull_data(cls, url: str | None, sha256: str | None, say: Say) -> None:
        from ace_ray.benchmarks.acebench.data.download import OFFICIAL_URL, pull

        pull(url=url or OFFICIAL_URL, sha256=sha256, say=say)

    @classmethod
    def check_data(cls, data: str, say: Say) -> bool:
        from ace_ray.benchmarks.acebench.scoring.goldcheck import check_gold, lines

        report = check_gold(locate(data))
        for line in lines(report):
            say(line)
        return bool(report["ok"])

    def summarize(self, rows: Iterable[ScoredRow], max_unscored: float) -> dict[str, Any]:
        parsers = self._options.parsers
        compared, endings = Compared(parsers), Endings()
        rows = endings.through(compared.through(rows))
        summary = summarize(rows, max_unscored=max_unscored)
        summary["further_tables"] = []
        if self._agents:
            summary["endings"] = endings.result()
            summary["further_tables"].append(endings.table())
        if len(parsers) > 1:
            summary["parsers"] = compared.result()
            summary["further_tables"].append(compared.table())
        return {
            "mode": self._options.mode,
            "prompts": self._prompts.source,
            "variant": self._prompts.variant,
            "comparable": self._comparable(),
            **summary,
            **self.tables(summary),
        }

    def _comparable(self) -> str:
        if self._options.data == "mini":
            return "not comparable with any leaderboard: the mini set is ace_ray's own"
        if reasons := list(self._differences()):
            return "not comparable with the leaderboard: " + "; ".join(reasons)
        return (
            "official data, prompts and protocol: the official rule set compares with the "
            "leaderboard, in agent_multi_turn only for the same user simulator (there gpt-4o), in "
            f"agent_multi_step with its {self._options.upstream_agent} models"
        )

    def _differences(self) -> Iterator[str]:
        """What sets this run apart from those of the leaderboard."""
        languages = tuple(sorted(self._options.languages))
        if set(self._categories) != set(groups.CATEGORIES):
            yield "not all categories"
        elif self.identity()["data_sha256"] != OFFICIAL_DATA_SHA256[languages]:
            yield "the data is not the official one"
        if self._native:
            yield "native tool calling compares with native tool calling only"
            return
        standard = self._prompts.variant == "standard"
        if not standard:
            yield f"the variant of the prompt is {self._prompts.variant}"
        if self._wording == "own" or (standard and self._prompts.sha256 != OFFICIAL_PROMPTS_SHA256):
            yield "the prompts are not the official ones"
        if self._options.parsers[0] != "official":
            yield "the answers are not read as the official evaluator reads them"
        if self._options.max_messages != UPSTREAM_MESSAGES:
            yield f"agent episodes have at most {self._options.max_messages} messages"
        for key in ("protocol", "sandbox"):
            if getattr(self._options, key) != "official":
                yield f"the {key} of the agent episodes is not the official one"


def _wording(options: ACEBenchOptions, folder: Path) -> Literal["official", "own"]:
    """Whose prompts to take. Those of a shortened variant are partly ours either way."""
    if options.prompts != "auto":
        return options.prompts
    return "official" if (folder / texts.OFFICIAL_FILE).is_file() else "own"


def _check_native(options: ACEBenchOptions) -> None:
    """Raise `UserError` for what native tool calling leaves no room for."""
    asked = {
        "prompts": options.prompts == "official",
        "variant": options.variant != "standard",
        "protocol": options.protocol == "official",
        "parsers": options.parsers != ["official"],
    }
    for key, is_asked in asked.items():
        if is_asked:
            raise UserError(
                f"{key!r} has no meaning with mode: native, which has texts of its own and reads "
                "calls with model.tool_parser",
                where=f"benchmarks.acebench.{key}",
                fix="leave it out, or write mode: prompt",
            )


def _settled(choice: str, data: str) -> str:
    """An "auto" choice: official with official data. The mini set is ours."""
    if choice != "auto":
        return choice
    return "fixed" if data == "mini" else "official"


def _agent_texts(wording: str, folder: Path) -> agent_texts.AgentTexts:
    if wording == "own":
        return agent_texts.own()
    path = folder / texts.OFFICIAL_FILE
    return agent_texts.official(texts.read_texts(path), where=str(path))


def _chosen(names: Sequence[str]) -> list[str]:
    chosen: list[str] = []
    for name in names:
        if name not in _GROUPS and name not in groups.CATEGORIES:
            raise UserError(
                f"there is no category or group {name!r}",
                where="benchmarks.acebench.categories",
                fix=f"choose among {', '.join([*_GROUPS, *groups.CATEGORIES])}",
            )
        chosen += _GROUPS.get(name, (name,))
    return list(dict.fromkeys(chosen))
