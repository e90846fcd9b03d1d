"""The benchmark class of ACEBench, and the check of entries that take one model call."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ace_ray.benchmarks.acebench import native, paper, prompts
from ace_ray.benchmarks.acebench import options as category_groups
from ace_ray.benchmarks.acebench.agent_texts import OWN as AGENT_OWN
from ace_ray.benchmarks.acebench.check.agent import ENDINGS, check_agent
from ace_ray.benchmarks.acebench.check.decode import decode_for_both_rules
from ace_ray.benchmarks.acebench.check.official import judge_normal as official_normal
from ace_ray.benchmarks.acebench.check.official import judge_special as official_special
from ace_ray.benchmarks.acebench.check.strict import judge_normal as strict_normal
from ace_ray.benchmarks.acebench.check.strict import judge_special as strict_special
from ace_ray.benchmarks.acebench.data.loader import load, locate
from ace_ray.benchmarks.acebench.environment.environment import (
    Environment,
    check_entry,
    load_app_specs,
    open_environment,
)
from ace_ray.benchmarks.acebench.gold import gold_of, replays
from ace_ray.benchmarks.acebench.options import Options as ACEBenchOptions
from ace_ray.benchmarks.acebench.options import check_native, expand_names, wording
from ace_ray.benchmarks.acebench.outputs import NO_OUTPUT, entries_of, read_outputs
from ace_ray.benchmarks.acebench.rollout import (
    Protocol,
    run_agent,
    simulator_chat_role,
    texts_without_calls,
    transcript,
)
from ace_ray.benchmarks.acebench.summary import summarize
from ace_ray.benchmarks.acebench.tables import HEADER, table
from ace_ray.benchmarks.base import Benchmark
from ace_ray.benchmarks.context import EpisodeContext
from ace_ray.benchmarks.dataset import data_hash, pin_data
from ace_ray.benchmarks.diagnosis import Answers, answer_texts
from ace_ray.benchmarks.endings import count_endings, endings_table, with_ending
from ace_ray.benchmarks.external_outputs import Entries, Output
from ace_ray.benchmarks.gold_check import Gold
from ace_ray.benchmarks.statistics import sample_tables
from ace_ray.config.roles import Role, parse_role
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
from ace_ray.util import log

# `data_hash` of all categories of the official data, by languages.
OFFICIAL_DATA_SHA256 = {
    ("en",): "176f275d787158744b5eee3831ff16e0f8bf1f3bae0b3cb440f56414af53737e",
    ("zh",): "6c9b56c20f0eb28fe4276e1998664243e451bddadf0acd65234a4955fc669049",
    ("en", "zh"): "3a8a3d5568017208067e69e2b9ea2f7b295306b83a72435499d17f9b9d32e154",
}
OFFICIAL_PROMPTS_SHA256 = "cc08ad027bdf0c9cbe2b853f4573e20c986671b196b1ace69e7e8e81897b6228"


# Greedy. Upstream's temperature of 0.001 is almost the same.
USER_SAMPLING = Sampling(temperature=0.0, max_tokens=1000)


class ACEBench(Benchmark):
    """The benchmark with all 17 categories. An agent entry is an episode with tools and, in
    agent_multi_turn, a simulated user. Any other entry takes one model call."""

    name = "acebench"
    rule_sets = RULE_SETS
    without_native = "benchmarks.acebench.mode: prompt"
    Options = ACEBenchOptions
    choices = category_groups.CHOICES
    groups = paper.PAPER_GROUPS

    def __init__(self, options: ACEBenchOptions) -> None:
        super().__init__(options)
        self._native = options.mode == "native"
        if self._native:
            check_native(options)
        self._folder = locate(options.data)
        self._wording = "own" if self._native else wording(options, self._folder)
        self._options = options.model_copy(update={"prompts": self._wording})
        # Upstream's data runs with upstream's loops. The mini set is ace_ray's own.
        self._protocol: Protocol = "fixed" if self._native or options.data == "mini" else "official"
        self._categories = expand_names(options.categories)
        if self._native:
            self._prompts = native.prompts()
        elif self._wording == "official":
            self._prompts = prompts.load_prompts(self._folder, options.variant)
        else:
            self._prompts = prompts.own_prompts(options.variant)
        if options.prompt_file is not None:
            texts = prompts.users_texts(options.prompt_file)
            templates = {**self._prompts.templates, **texts}
            self._prompts = replace(self._prompts, source="file", templates=templates)
            # run.json keeps the texts: the file may change, and other machines lack it.
            self._options = self._options.model_copy(update={"prompt_file": texts})
        self._user = parse_role(options.user, "benchmarks.acebench.user")

    @cached_property
    def _agents(self) -> prompts.AgentTexts | None:
        """Prompt texts of agent episodes; None if no agent category was chosen."""
        if not set(self._categories) & set(category_groups.AGENT):
            return None
        if self._wording == "own":
            return prompts.AgentTexts("own", AGENT_OWN)
        return prompts.official_agents(self._folder)

    @cached_property
    def _app_specs(self) -> dict[str, Any]:
        return (
            load_app_specs(self._folder)
            if set(self._categories) & set(category_groups.AGENT)
            else {}
        )

    def __getstate__(self) -> dict[str, Any]:
        # Both are read on the driver, because workers lack the data folder.
        return super().__getstate__() | {"_agents": self._agents, "_app_specs": self._app_specs}

    def entries(self) -> Sequence[Entry]:
        entries = load(self._folder, languages=self._options.languages, categories=self._categories)
        for entry in entries:
            if entry.category in category_groups.AGENT:
                check_entry(self._app_specs, entry)
        return entries

    def identity(self) -> Mapping[str, Any]:
        identity = {
            "data_sha256": data_hash(self.dataset()),
            "prompts": self._prompts.source,
            "prompts_sha256": self._prompts.sha256,
            "variant": self._prompts.variant,
            "protocol": {"mode": self._options.mode},
        }
        if self._agents:
            identity["episodes"] = {
                "protocol": self._protocol,
                "max_messages": self._options.max_messages,
                "prompts": self._agents.source,
                "prompts_sha256": self._agents.sha256,
                "worlds_sha256": digest(self._app_specs),
            }
        return identity

    def resolved(self) -> dict[str, Any]:
        resolved = self._options.model_dump(mode="json")
        return {**resolved, "data": pin_data(self._options.data, self._folder)}

    def prompt(self, entry: Entry) -> list[dict[str, Any]]:
        if entry.category not in category_groups.AGENT:
            return self._prompts.messages(entry)
        question = entry.data["question"]
        if self._native:
            system = self._agent_texts.system(entry, "native_")
            return [system, {"role": "user", "content": str(question)}]
        return self._agent_texts.prompt(entry, f"user:{question}\n")

    def tools(self, entry: Entry) -> list[dict[str, Any]] | None:
        return native.openai_tools(entry.data["function"]) if self._native else None

    def interactive(self, entry: Entry) -> bool:
        return entry.category in category_groups.AGENT

    def roles(self) -> Mapping[str, Role]:
        return {"user": self._user} if "agent_multi_turn" in self._categories else {}

    def role_sampling(self, role: str) -> Sampling:
        return USER_SAMPLING

    def role_chat(self, role: str) -> list[dict[str, Any]]:
        simulator_role = simulator_chat_role(official=self._protocol == "official")
        return [{"role": who, "content": "x"} for who in ("system", "user", simulator_role, "user")]

    def scenario(self, entry: Entry) -> Environment:
        return open_environment(self._app_specs, entry)

    async def run(self, entry: Entry, context: EpisodeContext) -> Episode:
        if entry.category in category_groups.AGENT:
            return await run_agent(
                entry,
                context,
                self._agent_texts,
                protocol=self._protocol,
                max_messages=self._options.max_messages,
                tools=self.tools(entry),
            )
        answer = await context.answer(*(context.opening or self.opening(entry)))
        if answer.tools is not None:
            functions = entry.data["function"]
            context.episode.output = native.answer_text(
                answer.tools.content, answer.tools.calls, functions
            )
        return context.episode

    def check(self, entry: Entry, episode: Episode) -> Mapping[str, Verdict]:
        if entry.category in category_groups.AGENT:
            state = episode.state or {}
            verdicts = check_agent(
                entry,
                state.get("after"),
                state.get("process"),
                end=state.get("end"),
                steps=state.get("steps"),
            )
            return with_ending(verdicts, state.get("ended"), ENDINGS)
        if episode.state == NO_OUTPUT:
            return check(entry, None)
        return check(entry, episode.output)

    def parse_failures(self, entry: Entry, episode: Episode) -> Answers:
        if entry.category in category_groups.AGENT:
            steps = (episode.state or {}).get("steps")
            return [[text] for text in texts_without_calls(steps)]
        unreadable = episode.output == native.UNREADABLE  # calls that could not be written
        if episode.state == NO_OUTPUT or unreadable or holds_calls(entry, episode.output):
            return ()
        return [answer_texts(episode, episode.output)]

    @property
    def _agent_texts(self) -> prompts.AgentTexts:
        if self._agents is None:
            raise ValueError("no agent category was chosen")
        return self._agents

    statistics = staticmethod(summarize)
    transcript = staticmethod(transcript)
    scores = staticmethod(paper.scores)
    categories = staticmethod(paper.categories)
    task = staticmethod(paper.task)
    paper = staticmethod(paper.paper)

    @classmethod
    def tables(cls, summary: Mapping[str, Any]) -> dict[str, Any]:
        tables: dict[str, Any] = {"table": {"header": list(HEADER), "lines": table(summary)}}
        if further_tables := sample_tables(summary["combined"]["categories"], cls.rule_sets):
            tables["further_tables"] = further_tables
        return tables

    @classmethod
    def sandbox_states(cls, state: Any) -> tuple[Any, Any] | None:
        if not isinstance(state, Mapping) or not {"before", "end"} <= state.keys():
            return None
        return state["before"], state["end"]

    @classmethod
    def import_data(cls, path: Path | None) -> None:
        from ace_ray.benchmarks.acebench.data.importer import import_checkout

        if path is None:
            return super().import_data(path)
        import_checkout(path)

    def apis_and_turns(self, entry: Entry) -> tuple[list[OfferedApi], int | None]:
        functions, apis = entry.data["function"], []
        for function, tool in zip(functions, native.openai_tools(functions), strict=True):
            tags = function.get("tags")  # <domain>-<subdomain>-..., in some categories only
            tag = str(tags[0]) if isinstance(tags, list) and tags else ""
            domain, subdomain = [*tag.split("-"), ""][:2]
            api = {**function, "parameters": tool["function"]["parameters"]}
            apis.append(OfferedApi(api, domain, subdomain))
        users = len(re.findall("^user:", entry.data["question"], re.MULTILINE))
        return apis, None if entry.category == "agent_multi_turn" else max(users, 1)

    def output_entries(self) -> Entries:
        return entries_of(self._folder)

    def outputs(self, path: Path, entries: Entries) -> Iterator[Output]:
        return read_outputs(path, entries)

    @classmethod
    def pull_data(cls, url: str | None, sha256: str | None) -> None:
        from ace_ray.benchmarks.acebench.data.importer import OFFICIAL_URL, pull

        pull(url=url or OFFICIAL_URL, sha256=sha256)

    def gold(self, entry: Entry) -> Gold:
        return gold_of(entry)

    @classmethod
    def check_data(cls, data: str) -> bool:
        sound = super().check_data(data)
        agents = load(locate(data), categories=category_groups.AGENT)
        for line in replays(agents, load_app_specs(locate(data))):
            log.print_result(line)
        return sound

    def summarize(self, rows: Iterable[ResultRow], max_unscored: float) -> dict[str, Any]:
        counts: dict[str, dict[str, int]] = {}
        summary = summarize(count_endings(rows, ENDINGS, counts), max_unscored=max_unscored)
        summary["further_tables"] = []
        if self._agents:
            summary["endings"] = {
                name: counts[name] for name in category_groups.AGENT if name in counts
            }
            title = "how agent episodes ended"
            summary["further_tables"].append(endings_table(title, ENDINGS, summary["endings"]))
        printed = self.tables(summary)
        summary["further_tables"] += printed.pop("further_tables", [])
        return {
            "mode": self._options.mode,
            "prompts": self._prompts.source,
            "variant": self._prompts.variant,
            "comparable": self._comparability(),
            **summary,
            **printed,
        }

    def _comparability(self) -> str:
        if self._options.data == "mini":
            return "not comparable with any leaderboard: the mini set is ace_ray's own"
        if reasons := list(self._differences()):
            return "not comparable with the leaderboard: " + "; ".join(reasons)
        return (
            "official data, prompts and protocol: the official rule set is comparable with the "
            "leaderboard (agent_multi_turn only with its user simulator, gpt-4o; agent_multi_step "
            "only with its local models)"
        )

    def _differences(self) -> Iterator[str]:
        """Yield the reasons why this run is not comparable with the leaderboard."""
        languages = tuple(sorted(self._options.languages))
        if set(self._categories) != set(category_groups.CATEGORIES):
            yield "not all categories"
        elif self.identity()["data_sha256"] != OFFICIAL_DATA_SHA256[languages]:
            yield "the data is not official"
        if self._native:
            yield "native tool calling is comparable only with native tool calling"
            return
        standard = self._prompts.variant == "standard"
        if not standard:
            yield f"the variant of the prompt is {self._prompts.variant}"
        if self._wording == "own" or (standard and self._prompts.sha256 != OFFICIAL_PROMPTS_SHA256):
            yield "the prompts are not official"
        if self._options.max_messages != category_groups.UPSTREAM_MESSAGES:
            yield f"agent episodes have at most {self._options.max_messages} messages"


def check(entry: Entry, output: str | None) -> dict[str, Verdict]:
    """Return the verdicts of both rule sets on ``output``, the model's complete answer or None.

    ``entry.data`` is the published question row and ``entry.gold`` the ``ground_truth`` of its
    answer row. Each row of a multi-turn dialogue is judged separately. ``output`` is None if the
    answer is missing. Raises `ValueError` for an agent category."""
    if entry.category in category_groups.SPECIAL:
        return {
            "official": official_special(entry, output),
            "strict": strict_special(entry, output),
        }
    if entry.category not in category_groups.NORMAL:
        raise ValueError(f"{entry.category} is an agent category; use check_agent")
    decoded = decode_for_both_rules(
        output, whole_output=entry.category in category_groups.MULTI_TURN
    )
    return {
        "official": official_normal(entry, decoded),
        "strict": strict_normal(entry, decoded.strict),
    }


def holds_calls(entry: Entry, output: str) -> bool:
    """Return whether a rule set reads a call in ``output``, or upstream would run code from it."""
    decoded = decode_for_both_rules(
        output, whole_output=entry.category in category_groups.MULTI_TURN
    )
    calls = [read for read in (decoded.official, decoded.strict) if isinstance(read, list)]
    return decoded.unsafe or any(calls)
