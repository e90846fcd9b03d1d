"""`ace-ray data check`: what gold answers, mangled copies of them and ideal paths reach.

A sound checker gives every gold answer its point and no mangled one. The official rules reject some
gold answers and accept many mangled ones. For an agent row the gold state stands in for the end
state of the episode, and the first path for its calls.

The ideal paths of agent rows are replayed in the sandbox. The published milestones were not all
run: some delete another message than the gold state lacks, leave a login out, or cannot be read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from ace_ray.benchmarks.acebench.categories import AGENT, CATEGORIES, LANGUAGES
from ace_ray.benchmarks.acebench.check import agent_paths, check, check_agent
from ace_ray.benchmarks.acebench.data.loader import files_of, load
from ace_ray.benchmarks.acebench.environment.environment import (
    Environment,
    load_app_specs,
    open_environment,
)
from ace_ray.benchmarks.acebench.gold import (
    gold_state,
    mangled_state,
    render_gold,
    render_mangled,
)
from ace_ray.errors import UserError
from ace_ray.types import RULE_SETS, Entry, Verdict

Verdicts = Mapping[str, Verdict]
_COPIES = ("gold", "mangled")


def check_gold(data: Path, say: Callable[[str], object]) -> bool:
    """Say how many rows of each category are valid, and which gold rows and paths are not.

    Returns whether the strict rules reject no gold answer and accept no mangled one. Raises
    `UserError` when ``data`` has no category.
    """
    entries = list(_entries(data))
    if not entries:
        raise UserError("holds no category", where=str(data))
    heads = [f"{copy} {rule}" for copy in _COPIES for rule in RULE_SETS]
    say(f"{'valid rows of':<44}{'rows':>6}" + "".join(f"{head:>18}" for head in heads))
    notes: list[str] = []
    sound = True
    for (language, category), group in groupby(entries, lambda e: (e.language, e.category)):
        rows = list(group)
        judged = {copy: [(entry, _verdicts(entry, copy)) for entry in rows] for copy in _COPIES}
        valid = [_valid(judged[copy], rule) for copy in _COPIES for rule in RULE_SETS]
        counts = "".join(f"{len(some):>18}" for some in valid)
        say(f"{language} {category:<41}{len(rows):>6}{counts}")
        notes += [note for rule in RULE_SETS for note in _rejected(judged["gold"], rule)]
        accepted = _valid(judged["mangled"], "strict")
        notes += [f"{one.language} {one.id}: strict accepts a mangled answer" for one in accepted]
        sound = sound and not accepted and len(_valid(judged["gold"], "strict")) == len(rows)
    for note in [*notes, *_replays(data, [e for e in entries if e.category in AGENT])]:
        say(note)
    return sound


def _entries(data: Path) -> Iterator[Entry]:
    for language in LANGUAGES:
        for category in CATEGORIES:
            if any((data / name).exists() for name in files_of(language, category)):
                yield from load(data, languages=[language], categories=[category])


def _verdicts(entry: Entry, copy: str) -> Verdicts:
    gold = copy == "gold"
    if entry.category in AGENT:
        milestones = entry.gold["mile_stone"]
        path = milestones[0] if isinstance(milestones[0], list) else milestones
        return check_agent(entry, gold_state(entry) if gold else mangled_state(entry), path)
    return check(entry, render_gold(entry) if gold else render_mangled(entry))


def _valid(judged: Sequence[tuple[Entry, Verdicts]], rule: str) -> list[Entry]:
    return [entry for entry, verdicts in judged if verdicts[rule].valid]


def _rejected(judged: Sequence[tuple[Entry, Verdicts]], rule: str) -> Iterator[str]:
    for entry, verdicts in judged:
        if not (verdict := verdicts[rule]).valid:
            what = f"{verdict.error_type}: {verdict.error}"
            yield f"{entry.language} {entry.id}: {rule} rejects gold: {what}"


def _replays(data: Path, entries: Sequence[Entry]) -> Iterator[str]:
    """One line per language and category of how many ideal paths end as they should, and one per
    path that misses the gold state."""
    app_specs = load_app_specs(data) if entries else {}
    for (language, category), group in groupby(entries, lambda e: (e.language, e.category)):
        found = [(entry, *one) for entry in group for one in replay(entry, app_specs)]
        official, strict = (
            sum(verdicts[rule].valid for _, _, verdicts, _ in found) for rule in RULE_SETS
        )
        yield (
            f"{language} {category}: of {len(found)} ideal paths replayed in the sandbox "
            f"{official} end in a state that the official rules accept, {strict} in the gold state"
        )
        for entry, number, verdicts, refused in found:
            if not verdicts["strict"].valid:
                why = "; ".join([*refused[:1], verdicts["strict"].error.partition(";")[0]])
                yield f"  {language} {entry.id}, path {number}: {why}"


def replay(
    entry: Entry, app_specs: Mapping[str, Any]
) -> Iterator[tuple[int, Verdicts, Sequence[str]]]:
    """Every path of an agent row in a fresh sandbox: its number, the verdicts on its end state, and
    the steps that were refused. Raises `UserError`."""
    for number, path in enumerate(agent_paths.paths(entry.gold["mile_stone"]), start=1):
        environment = open_environment(app_specs, entry)
        refused = list(_refused(environment, path))
        yield number, check_agent(entry, environment.state(), []), refused


def _refused(environment: Environment, path: agent_paths.Path) -> Iterator[str]:
    for step, call in enumerate(path, start=1):
        if not call.name:
            yield f"step {step} cannot be read"
            continue
        answer = environment.call(call.name, call.args)
        denied = isinstance(answer.value, dict) and answer.value.get("status") is False
        if answer.error or denied:
            said = answer.value.get("message", answer.value) if denied else answer.value
            yield f"step {step}, {call.name}, is refused: {said}"
