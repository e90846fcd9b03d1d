"""`ace-ray data check`: what the gold answers, and mangled copies of them, reach.

A sound checker gives every gold answer its point and no mangled one. The official rules reject
some gold answers and accept many mangled ones; this names the former, each with its cause. Of an
agent row the gold state stands for the episode's end state, the first path for its calls.

The ideal paths of agent rows are replayed in the sandbox. The published milestones were not all
run: some delete another message than the gold state lacks, leave a login out, or cannot be read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ace_ray.benchmarks.acebench.categories import AGENT, CATEGORIES, LANGUAGES, MULTI_TURN
from ace_ray.benchmarks.acebench.check import agent_paths, check, check_agent
from ace_ray.benchmarks.acebench.data.loader import files_of, load
from ace_ray.benchmarks.acebench.environment.environment import (
    Environment,
    load_app_specs,
    open_environment,
)
from ace_ray.benchmarks.acebench.gold import (
    alternatives,
    function_name,
    gold_state,
    mangled_state,
    render_gold,
    render_mangled,
)
from ace_ray.benchmarks.acebench.score.summary import SummaryRow, summarize
from ace_ray.errors import UserError
from ace_ray.records import RULE_SETS, Entry, Verdict


@dataclass(frozen=True, slots=True)
class Replayed:
    """One path of one row. ``reaches`` says per rule set whether its end state is valid; ``cause``
    why it is not under the strict rules, "" if it is."""

    entry: Entry
    path: int
    reaches: Mapping[str, bool]
    cause: str


def replay(entry: Entry, app_specs: Mapping[str, Any]) -> Iterator[Replayed]:
    """Every path of an agent row in a fresh official sandbox. Raises `UserError`."""
    for number, path in enumerate(agent_paths.paths(entry.gold["mile_stone"])):
        environment = open_environment(app_specs, entry)
        refused = list(_refused(environment, path))
        verdicts = check_agent(entry, environment.state(), [])
        reaches = {rule: verdicts[rule].valid for rule in RULE_SETS}
        cause = "" if reaches["strict"] else _cause(refused, verdicts["strict"].error)
        yield Replayed(entry, number, reaches, cause)


def _refused(environment: Environment, path: agent_paths.Path) -> Iterator[str]:
    for step, call in enumerate(path, start=1):
        if not call.name:
            yield f"step {step} cannot be read"
            continue
        answer = environment.call(call.name, call.args)
        denied = isinstance(answer.value, dict) and answer.value.get("status") is False
        if answer.error or denied:
            message = (
                answer.value["message"] if denied and "message" in answer.value else answer.value
            )
            yield f"step {step}, {call.name}, is refused: {message}"


def _cause(refused: Sequence[str], difference: str) -> str:
    return "; ".join([*refused[:1], difference.partition(";")[0]])


def reached(replayed: Sequence[Replayed]) -> dict[str, Any]:
    """``paths``: counts of paths and of those that reach a valid state, per language, category and
    rule set; ``missed``: those that do not under the strict rules, each with its cause."""
    counts: dict[str, dict[str, dict[str, int]]] = {}
    for one in replayed:
        cell = counts.setdefault(one.entry.language, {}).setdefault(
            one.entry.category, {"n": 0, **dict.fromkeys(RULE_SETS, 0)}
        )
        cell["n"] += 1
        for rule in RULE_SETS:
            cell[rule] += one.reaches[rule]
    missed = [
        {
            "language": one.entry.language,
            "category": one.entry.category,
            "id": one.entry.id,
            "path": one.path,
            "official": one.reaches["official"],
            "cause": one.cause,
        }
        for one in replayed
        if one.cause
    ]
    return {"paths": counts, "missed": missed}


def check_gold(data: Path) -> dict[str, Any]:
    """Both rule sets over the categories that ``data`` has.

    Returns ``categories``: {language: {category: {"n", "gold", "mangled"}}}, the latter two with,
    per rule set, ``valid`` (rows) and ``accuracy`` (of dialogues in multi-turn); ``rejected``: per
    rule set the gold rows that it rejects ({"language", "category", "id", "error_type", "cause"});
    ``accepted``: per rule set the keys of the mangled rows that it accepts; ``replay``: what the
    ideal paths of agent rows reach in the sandbox (`replay`); ``ok``: whether strict
    rejects no gold and accepts no mangled row.
    """
    entries = list(_entries(data))
    if not entries:
        raise UserError("holds no category", where=str(data))
    gold = [(entry, _gold_verdicts(entry)) for entry in entries]
    mangled = [(entry, _mangled_verdicts(entry)) for entry in entries]
    rejected = {
        rule: [_named(e) | _why(e, rule, v[rule]) for e, v in gold if not v[rule].valid]
        for rule in RULE_SETS
    }
    accepted = {rule: [_named(e) for e, v in mangled if v[rule].valid] for rule in RULE_SETS}
    agents = [entry for entry in entries if entry.category in AGENT]
    app_specs = load_app_specs(data) if agents else {}
    return {
        "categories": _categories(gold, mangled),
        "rejected": rejected,
        "accepted": accepted,
        "replay": reached([one for e in agents for one in replay(e, app_specs)]),
        "ok": not rejected["strict"] and not accepted["strict"],
    }


def lines(report: Mapping[str, Any]) -> Iterator[str]:
    """The report for people."""
    heads = [f"{copy} {rule}" for copy in ("gold", "mangled") for rule in RULE_SETS]
    yield f"{'valid rows of':<44}{'rows':>6}" + "".join(f"{head:>18}" for head in heads)
    for language, categories in report["categories"].items():
        for category, stats in categories.items():
            cells = (
                stats[copy][rule]["valid"] for copy in ("gold", "mangled") for rule in RULE_SETS
            )
            yield f"{language} {category:<41}{stats['n']:>6}" + "".join(f"{n:>18}" for n in cells)
    for rule in RULE_SETS:
        rows = report["rejected"][rule]
        yield f"gold rows that the {rule} rules reject: {len(rows)}"
        yield from (f"  {r['language']} {r['id']}: {r['error_type']}: {r['cause']}" for r in rows)
    for row in report["accepted"]["strict"]:
        yield f"mangled row that the strict rules accept: {row['language']} {row['id']}"
    for language, categories in report["replay"]["paths"].items():
        for category, stats in categories.items():
            yield (
                f"{language} {category}: of {stats['n']} ideal paths replayed in the sandbox "
                f"{stats['official']} end in a state that the official rules accept, "
                f"{stats['strict']} in the gold state"
            )
    for row in report["replay"]["missed"]:
        yield f"  {row['language']} {row['id']}, path {row['path'] + 1}: {row['cause']}"


def cause(entry: Entry) -> str:
    """Why the official rules reject this entry's gold, in one phrase; "" where no rule applies."""
    if not entry.category.startswith("normal_"):
        return ""
    for key, arguments in alternatives(entry)[0].items():
        name = function_name(entry, key)
        if name == key and key[-1].isdigit() and key.rstrip("0123456789").endswith("_"):
            return f"the number is cut off {key}, the function's real name"
        schema = _schema(entry, name)
        properties = schema.get("properties", {})
        for required in schema.get("required", ()):
            if required not in arguments:
                return f"the gold lacks the required parameter {required}"
        for parameter, value in arguments.items():
            if value in ([], {}):
                return f"the gold value of {parameter} is empty, which nothing matches"
            declared = properties.get(parameter, {})
            if declared.get("type") == "array" and "items" not in declared:
                return f"the schema of the array {parameter} lacks items, so objects are expected"
            if entry.category in MULTI_TURN and _loses_spaces(value):
                return f"whitespace is deleted inside the texts of {parameter}, gold keeps it"
    return ""


def _entries(data: Path) -> Iterator[Entry]:
    for language in LANGUAGES:
        for category in CATEGORIES:
            if any((data / name).exists() for name in files_of(language, category)):
                yield from load(data, languages=[language], categories=[category])


def _gold_verdicts(entry: Entry) -> Mapping[str, Verdict]:
    if entry.category in AGENT:
        return check_agent(entry, gold_state(entry), _first_path(entry))
    return check(entry, render_gold(entry))


def _mangled_verdicts(entry: Entry) -> Mapping[str, Verdict]:
    if entry.category in AGENT:
        return check_agent(entry, mangled_state(entry), _first_path(entry))
    return check(entry, render_mangled(entry))


def _first_path(entry: Entry) -> list[str]:
    milestones = entry.gold["mile_stone"]
    return milestones[0] if isinstance(milestones[0], list) else milestones


def _categories(
    gold: Sequence[tuple[Entry, Mapping[str, Verdict]]],
    mangled: Sequence[tuple[Entry, Mapping[str, Verdict]]],
) -> dict[str, Any]:
    cells: dict[str, Any] = {}
    for copy, judged in (("gold", gold), ("mangled", mangled)):
        rows = (
            SummaryRow(e.language, e.category, e.id, e.group or e.id, 0, "scored", verdicts)
            for e, verdicts in judged
        )
        for language, block in summarize(rows)["languages"].items():
            for category, stats in block["categories"].items():
                cell = cells.setdefault(language, {}).setdefault(category, {"n": stats["scored"]})
                cell[copy] = {rule: _reached(stats[rule], stats["scored"]) for rule in RULE_SETS}
    return cells


def _reached(stats: Mapping[str, Any], rows: int) -> dict[str, Any]:
    invalid = sum(error["count"] for error in stats["errors"].values())
    return {"valid": rows - invalid, "accuracy": stats["accuracy"]}


def _named(entry: Entry) -> dict[str, Any]:
    return {"language": entry.language, "category": entry.category, "id": entry.id}


def _why(entry: Entry, rule: str, verdict: Verdict) -> dict[str, Any]:
    # The causes are the official rules' quirks; where none fits, the checker's own words.
    why = cause(entry) if rule == "official" else ""
    return {"error_type": verdict.error_type, "cause": why or verdict.error or "not known"}


def _schema(entry: Entry, name: str) -> Mapping[str, Any]:
    for function in entry.data["function"]:
        if function["name"] == name:
            schema = function.get("parameters")
            return schema if isinstance(schema, dict) else {}
    return {}


def _loses_spaces(value: Any, *, exact: bool = False) -> bool:
    """Whether a text with whitespace sits where the official rules compare exactly: as a key, or
    in a list inside an object or another list."""
    if isinstance(value, str):
        return exact and any(map(str.isspace, value))
    if isinstance(value, dict):
        keys = any(_loses_spaces(key, exact=True) for key in value)
        return keys or _loses_spaces(list(value.values()), exact=exact)
    if isinstance(value, list):
        return any(_loses_spaces(one, exact=exact or isinstance(one, list)) for one in value)
    return False
