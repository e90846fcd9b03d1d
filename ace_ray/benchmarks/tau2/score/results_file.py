"""Upstream's results JSON (``data_model/simulation.py``, ``Results``), written and read: one file a
category, which ``tau2 view`` and upstream's metrics load."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ace_ray.benchmarks.context import arguments_of
from ace_ray.benchmarks.dataset import read_bounded
from ace_ray.benchmarks.outputs import Entries, Output
from ace_ray.benchmarks.tau2.categories import CATEGORIES, Category
from ace_ray.benchmarks.tau2.check.verdicts import METRICS, STOPS
from ace_ray.benchmarks.tau2.data.upstream_texts import ENDS, STOP
from ace_ray.bounded import bounded_time
from ace_ray.errors import UserError
from ace_ray.records import Entry, Episode

Row = Mapping[str, Any]
_KNOWN_ENDS = (*STOPS, "max_steps", "too_many_errors", "agent_error", "user_error")
_OTHER_END = "agent_error"
"""What upstream's reader, which knows no other reasons, is told of an episode whose context was
full or whose time was up."""
_READ_ENDS = (*_KNOWN_ENDS, "judge_stop")
_AGENTS = {True: "llm_agent_solo", False: "llm_agent"}
MAX_RESULTS_BYTES = 1 << 30


def results_json(
    category: Category,
    entries: Sequence[Entry],
    rows: Callable[[], Iterable[Row]],
    info: Mapping[str, Any],
) -> Iterator[bytes]:
    """The file, in pieces. ``info``: as upstream's ``Info``. Rows without a verdict are left out:
    upstream has no word for them."""
    tasks = [_task(entry) for entry in entries]
    by_id = {entry.id: entry for entry in entries}
    head = {"timestamp": datetime.now(UTC).isoformat(), "info": info, "tasks": tasks}
    yield _json(head)[:-1] + b', "simulations": ['
    between = b""
    for row in rows():
        if row["category"] == category.name and row["status"] == "scored":
            yield between + _json(_simulation(by_id[row["id"]], row))
            between = b",\n"
    yield b"]}\n"


def _json(value: Any) -> bytes:
    """With a question mark for each lone surrogate, over which upstream's reader refuses a file."""
    text = json.dumps(value)
    if "\\ud" in text:
        sent = json.dumps(value, ensure_ascii=False).encode(errors="replace")
        text = json.dumps(json.loads(sent))
    return text.encode()


def _task(entry: Entry) -> dict[str, Any]:
    return {"id": entry.id, **entry.data, "evaluation_criteria": entry.gold}


def _simulation(entry: Entry, row: Row) -> dict[str, Any]:
    state = json.loads(row["state"])
    start = bounded_time(row["started_at"])
    seconds = float(row["duration_s"] or 0.0)
    ended = str(state["ended"])
    return {
        "id": row["row_id"],
        "task_id": entry.id,
        "timestamp": start.isoformat(),
        "start_time": start.isoformat(),
        "end_time": bounded_time(start, seconds).isoformat(),
        "duration": seconds,
        "termination_reason": ended if ended in _KNOWN_ENDS else _OTHER_END,
        "agent_cost": None,
        "user_cost": None,
        "reward_info": _reward(entry, row, ended),
        "messages": list(_messages(state["trajectory"], start)),
        "trial": row["sample"],
        "seed": row["seed"],
    }


def _reward(entry: Entry, row: Row, ended: str) -> dict[str, Any]:
    """The stored verdict; nothing is judged again."""
    metrics = json.loads(row["official_metrics"] or "{}")
    parts = {name: metrics[key] for name, key in METRICS.items() if key in metrics}
    basis = (entry.gold or {}).get("reward_basis", ["DB", "COMMUNICATE"])
    reward: dict[str, Any] = {
        "reward": float(row["official_valid"]),
        "reward_basis": basis if ended in STOPS else None,
        "reward_breakdown": parts or None,
        "info": {"note": row["official_error"]} if row["official_error"] else None,
    }
    if "DB" in parts:
        reward["db_check"] = {"db_match": parts["DB"] == 1, "db_reward": parts["DB"]}
    return reward


def _messages(trajectory: Sequence[Mapping[str, Any]], start: datetime) -> Iterator[dict[str, Any]]:
    for turn, message in enumerate(trajectory):
        # Upstream sorts by time, so every message has one of its own.
        at = bounded_time(start, turn / 1000).isoformat(timespec="milliseconds")
        shown: dict[str, Any] = {
            "role": message["role"],
            "content": message["content"],
            "turn_idx": turn,
            "timestamp": at,
        }
        if message["role"] == "tool":
            yield shown | {
                "id": message["id"],
                "requestor": message["requestor"],
                "error": message["error"],
            }
            continue
        calls = [
            {
                "id": call["id"],
                "name": call["name"],
                "arguments": arguments_of(call["arguments"]),
                "requestor": message["role"],
            }
            for call in message.get("tool_calls") or ()
        ]
        yield shown | {"tool_calls": calls or None}


def read_results(path: Path, entries: Entries) -> Iterator[Output]:
    """The simulations of a results file, as the episodes that a run would have stored.

    Raises `UserError` naming file and simulation."""
    tree = _tree(read_bounded(path, MAX_RESULTS_BYTES), path)
    try:
        domain = str(tree["info"]["environment_info"]["domain_name"]).removesuffix("-workflow")
        solo = tree["info"]["agent_info"]["implementation"] == _AGENTS[True]
        simulations = list(tree["simulations"])
    except (LookupError, TypeError) as error:
        raise UserError(
            "is no results file of tau2 (info and simulations)",
            where=str(path),
            fix="give the JSON file that `tau2 run` has saved",
        ) from error
    name = f"{domain}_solo" if solo else domain
    if name not in CATEGORIES:
        raise UserError(
            f"is of the domain {name!r}", where=str(path), fix=f"known: {', '.join(CATEGORIES)}"
        )
    seen = set()
    for place, simulation in enumerate(simulations):
        where = f"{path}: simulation {place}"
        try:
            task, trial = str(simulation["task_id"]), _trial(simulation.get("trial"))
            episode = _episode(simulation, solo=solo)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            what = f"is no simulation ({type(error).__name__}: {str(error)[:100]})"
            raise UserError(what, where=where) from error
        if (task, trial) in seen:
            raise UserError(f"task {task!r} has two trials {trial}", where=where)
        seen.add((task, trial))
        entry = entries.find(task, where, language="en", category=name)
        yield Output(entry, trial, episode)


def _tree(raw: bytes, path: Path) -> Any:
    """Upstream writes and reads ``NaN`` and ``Infinity``, which a model may have written."""
    try:
        return json.loads(raw.decode("utf-8"))
    except RecursionError:
        raise UserError("is nested too deeply", where=str(path)) from None
    except ValueError as error:
        raise UserError(f"is not valid JSON ({error})", where=str(path)) from error


def _trial(value: Any) -> int:
    if value is None:
        return 0
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 31:
        raise ValueError(f"trial is {value!r:.60}")
    return value


def _episode(simulation: Mapping[str, Any], *, solo: bool) -> Episode:
    trajectory = [_stored(message) for message in simulation["messages"]]
    ended = simulation["termination_reason"]
    if ended not in _READ_ENDS:
        raise ValueError(f"termination_reason is {ended!r:.60}")
    last = trajectory[-1] if trajectory else {"role": "", "content": ""}
    return Episode(
        messages=[
            {"role": message["role"], "content": message["content"]} for message in trajectory
        ],
        output=last["content"],
        state={
            "trajectory": trajectory,
            "ended": ended,
            "stopped": ended in STOPS or _says_that_it_ends(last, solo=solo),
        },
    )


def _says_that_it_ends(last: Mapping[str, Any], *, solo: bool) -> bool:
    """As the loop of an episode has it (`Rollout.stopped`)."""
    if solo:
        return bool(last["role"] == "assistant" and last["content"] == STOP)
    marked = any(mark in last["content"] for mark in ENDS)
    return last["role"] == "user" and not last.get("tool_calls") and marked


def _stored(message: Mapping[str, Any]) -> dict[str, Any]:
    role, content = message["role"], message.get("content")
    if role not in ("assistant", "user", "tool"):
        raise ValueError(f"the role {role!r:.60}")
    if content is not None and not isinstance(content, str):
        raise ValueError(f"a content of the kind {type(content).__name__}")
    kept: dict[str, Any] = {"role": role, "content": content or ""}
    if role == "tool":
        kept["id"], kept["requestor"] = str(message["id"]), message.get("requestor", "assistant")
        if kept["requestor"] not in ("assistant", "user"):
            raise ValueError(f"the requestor {kept['requestor']!r:.60}")
        kept["error"] = bool(message.get("error"))
    if calls := message.get("tool_calls"):
        for call in calls:
            if not isinstance(call["name"], str) or not isinstance(call["arguments"], dict):
                raise ValueError("a call without a name, or without an object of arguments")
        kept["tool_calls"] = [
            {
                "id": str(call.get("id", "")),
                "name": call["name"],
                "arguments": json.dumps(call["arguments"]),
            }
            for call in calls
        ]
    return kept
