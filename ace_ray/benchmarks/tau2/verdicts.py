"""Compute the verdicts on an episode.

A reward is the product of parts, and each task names the parts that count. ACTION: the gold calls
were made. COMMUNICATE: the agent gave the required information. DB: the databases are as after the
gold calls. ENV_ASSERTION: assertions on the end state hold. NL_ASSERTION: a judge says that
assertions in natural language hold; without its answers (`NL_MET`) there is no verdict.

``official`` is upstream's reward (``evaluator/*.py``), including its mistakes. ``strict`` differs
where upstream accepts or refuses by accident (docs/tau2.md has an example of each):

- ACTION: all arguments must match; upstream ignores gold arguments that the model's call lacks. The
  user and the agent must make their own gold calls. A failed call does not count.
- COMMUNICATE: the information must be a separate word or number in a message that the user reads.
- DB: numbers are compared by value: 2 equals 2.0, and the order of additions does not matter.
- An episode that the agent or the user ends in the last allowed step counts as ended.

An episode's calls and the gold calls are replayed on fresh databases, and the end states are
compared (upstream ``evaluator/evaluator_env.py``). The stored end state is not trusted."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ace_ray.benchmarks.context import arguments_of
from ace_ray.benchmarks.tau2.environment.limited import (
    Attempt,
    Recorded,
    calls_of_history,
    initialization,
)
from ace_ray.benchmarks.tau2.environment.sources import ToolSources
from ace_ray.sandbox.replayed_environment import Op
from ace_ray.sandbox.tools import copy_arguments
from ace_ray.types import RULE_SETS, Entry, Verdict

STOPS = ("user_stop", "agent_stop")
_DEFAULT_BASIS = ("DB", "COMMUNICATE")
# Error kind and text for each part of the reward. The first failed part gives the error.
_ERRORS = {
    "ENV_ASSERTION": ("assertion_failed", "an assertion on the end state failed"),
    "DB": ("db_mismatch", "the databases differ from those after the gold calls"),
    "ACTION": ("action_missing", "a gold call was not made"),
    "COMMUNICATE": ("not_communicated", "the agent did not say the required information"),
    "NL_ASSERTION": ("nl_assertion_failed", "the judge says that an assertion does not hold"),
}
# Keys of an episode's state: the judge's answers (one bool for each assertion) and failure, and
# whether stored results are judged again by other code (`Environment.replay`).
NL_MET, JUDGE_ERROR, LENIENT = "nl_met", "judge_error", "lenient"
METRICS = {name: name.lower() for name in _ERRORS}
# Metric: 1 if the task passes when the agent does nothing and the user ends the episode.
INACTION = "inaction"
_OURS, _GOLD = "ours", "gold"
Message = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Replay:
    """Result of replaying an episode and the gold calls, and comparing the end states.

    Attributes:
        same: whether all databases are equal, by upstream's hashes.
        same_by_value: whether they are equal if numbers are compared by value (2 equals 2.0).
        assertions: for each assertion of the task, whether it holds.
        problem: the reason why upstream's evaluation would fail, or "".
        compared: false if the task has neither actions nor assertions. Then DB and ENV_ASSERTION
            do not count.
        asserted: whether the judge says that all assertions in natural language hold."""

    same_by_hash: bool = False
    same_by_value: bool = False
    assertions: Sequence[bool] = ()
    problem: str = ""
    compared: bool = True
    asserted: bool = True


def run_replay(
    sources: ToolSources,
    trajectory: Sequence[Message],
    criteria: Mapping[str, Any],
    initial_state: Mapping[str, Any] | None,
    *,
    solo: bool,
    lenient: bool = False,
) -> Replay:
    """Replay an episode and the gold calls, and compare the end states. Raises `SandboxLost` if the
    process that runs the tools crashes or exceeds a limit."""
    begin = initialization(initial_state, criteria)
    assertions = criteria.get("env_assertions") or ()
    calls, fault = recorded_calls(trajectory, solo=solo)
    if fault:
        return Replay(problem=fault)
    ops: list[Op] = [
        ("open", _OURS, solo, begin),
        *(("replay", _OURS, *call, lenient) for call in calls),
        ("sync", _OURS),
        ("open", _GOLD, False, begin),
        *(("replay", _GOLD, *call, lenient) for call in calls_of_history(initial_state)),
        ("sync", _GOLD),
        ("gold", _GOLD, list(criteria.get("actions") or ())),
        ("equal", _OURS, _GOLD),
        *(("assert", _OURS, dict(assertion)) for assertion in assertions),
    ]
    answers = Attempt(sources).run_ops(ops)
    end = len(answers) - len(assertions)
    *problems, _, (same_by_hash, same_by_value) = answers[:end]
    problems += [why for _, why in answers[end:]]
    holds = [bool(is_true) for is_true, _ in answers[end:]]
    return Replay(same_by_hash, same_by_value, holds, next(filter(None, problems), ""))


def recorded_calls(trajectory: Sequence[Message], *, solo: bool) -> tuple[list[Recorded], str]:
    """Return (calls with their results, problem) of a trajectory.

    ``problem`` is the reason why upstream refuses the trajectory, or "". A call whose arguments
    exceed the sandbox's bounds is left out, since it changed nothing."""
    calls: list[Recorded] = []
    messages = iter(trajectory)
    for message in messages:
        if message["role"] == "tool":
            return [], "a result follows no call"
        if solo and message["role"] == "user":
            return [], "a user speaks in solo mode"
        for call in message.get("tool_calls") or ():
            result = next(messages, {"role": ""})
            if result["role"] != "tool" or result.get("id") != call.get("id"):
                return [], f"the call of {call['name']} is not followed by its result"
            try:
                arguments = copy_arguments(arguments_of(call["arguments"]))
            except ValueError:
                continue
            answer = result.get("content") or ""
            requestor = str(call.get("requestor", message["role"]))
            calls.append((requestor, call["name"], arguments, answer))
    return calls, ""


def verdicts(entry: Entry, state: Any, sources: ToolSources, *, solo: bool) -> dict[str, Verdict]:
    """Return the official and the strict verdict on a stored episode; ``state`` is `Episode.state`.
    Raises `SandboxLost` as `run_replay` does."""
    state = state if isinstance(state, Mapping) else {}
    end_reason, trajectory = str(state.get("ended", "")), state.get("trajectory") or []
    official_stop = end_reason in STOPS
    if not official_stop and not (state.get("stopped") and end_reason == "max_steps"):
        return dict.fromkeys(RULE_SETS, _end_verdict(end_reason))
    criteria: Mapping[str, Any] | None = entry.gold
    if criteria is None:
        return dict.fromkeys(RULE_SETS, Verdict(True))
    assertions, met = nl_assertions(entry), state.get(NL_MET)
    if assertions and not (isinstance(met, list) and len(met) == len(assertions)):
        # Even if another part failed: else the accuracy over the remaining rows would be too low.
        reason = str(state.get(JUDGE_ERROR) or "no judge was asked (benchmarks.tau2.judge)")
        return dict.fromkeys(RULE_SETS, Verdict(None, "not_judged", reason))
    is_asserted = all(met) if assertions and isinstance(met, list) else True
    replay = Replay(compared=False)
    if criteria.get("actions") is not None or criteria.get("env_assertions") is not None:
        initial = entry.data.get("initial_state")
        lenient = state.get(LENIENT) is True
        replay = run_replay(sources, trajectory, criteria, initial, solo=solo, lenient=lenient)
    replay = replace(replay, asserted=is_asserted)
    official = _end_verdict(end_reason)
    if official_stop:
        official = official_verdict(criteria, trajectory, replay)
    return {"official": official, "strict": strict_verdict(criteria, trajectory, replay, solo=solo)}


def nl_assertions(entry: Entry) -> list[str]:
    """Return the assertions in natural language that count in the reward of a task."""
    criteria: Mapping[str, Any] = entry.gold or {}
    counts = "NL_ASSERTION" in criteria.get("reward_basis", ())
    return list(criteria.get("nl_assertions") or ()) if counts else []


def official_verdict(
    criteria: Mapping[str, Any], trajectory: Sequence[Message], replay: Replay
) -> Verdict:
    """Return the verdict by upstream's rules. ``criteria``: the task's ``evaluation_criteria``."""
    calls = [call for message in trajectory for call in message.get("tool_calls") or ()]
    # The commas are removed, as in upstream's ``CommunicateEvaluator``.
    spoken = [str(m.get("content") or "") for m in trajectory if m["role"] == "assistant"]
    texts = [text.lower().replace(",", "") for text in spoken if text.strip()]
    actions, infos = criteria.get("actions") or (), criteria.get("communicate_info") or ()
    made = (any(_is_action(action, call) for call in calls) for action in actions)
    said = (any(info.lower() in text for text in texts) for info in infos)
    return _verdict(criteria, replay, replay.same_by_hash, made, said)


def strict_verdict(
    criteria: Mapping[str, Any], trajectory: Sequence[Message], replay: Replay, *, solo: bool
) -> Verdict:
    """Return the verdict by the strict rules, which this module's docstring lists."""
    calls = list(_answered_calls(trajectory))
    heard = [
        str(message.get("content") or "")
        for message in trajectory
        if message["role"] == "assistant" and not message.get("tool_calls")
    ]
    actions, infos = criteria.get("actions") or (), criteria.get("communicate_info") or ()
    sides = [None if solo else action.get("requestor", "assistant") for action in actions]
    made = (
        any(side in (None, by) and _is_action(action, call, strict=True) for by, call in calls)
        for side, action in zip(sides, actions, strict=True)
    )
    said = (any(is_told(info, text) for text in heard) for info in infos)
    return _verdict(criteria, replay, replay.same_by_value, made, said)


def _verdict(
    criteria: Message, replay: Replay, same: bool, made: Iterable[bool], said: Iterable[bool]
) -> Verdict:
    """Return a verdict, valid if no part of the reward is 0. Its metrics are the parts' values.
    ``same``: the end states are equal. ``made``, ``said``: of each gold call and information."""
    if replay.problem:
        return Verdict(False, "replay_failed", replay.problem[:300], {})
    parts = {"ACTION": float(all(made)), "COMMUNICATE": float(all(said))}
    parts["NL_ASSERTION"] = float(replay.asserted)
    if replay.compared:
        parts |= {"DB": float(same), "ENV_ASSERTION": float(all(replay.assertions))}
    basis = criteria.get("reward_basis", _DEFAULT_BASIS)
    metrics = {METRICS[name]: parts[name] for name in basis if name in parts}
    for name, (kind, text) in _ERRORS.items():
        if metrics.get(METRICS[name]) == 0:
            return Verdict(False, kind, text, metrics)
    return Verdict(True, metrics=metrics)


def _end_verdict(how: str) -> Verdict:
    return Verdict(False, how or "not_ended", f"the episode ended by {how or 'nothing'}")


def _is_action(action: Mapping[str, Any], call: Message, *, strict: bool = False) -> bool:
    """Return whether ``call`` is the gold ``action`` (upstream ``Action.compare_with_tool_call``).
    If the action has no ``compare_args``, upstream compares only the arguments that the call has;
    ``strict`` compares the gold arguments, too."""
    if action["name"] != call["name"]:
        return False
    arguments, gold = arguments_of(call["arguments"]), action["arguments"]
    keys = action.get("compare_args")
    if keys is None:
        keys = [*arguments, *gold] if strict else list(arguments)
    ours, theirs = ({key: args[key] for key in keys if key in args} for args in (arguments, gold))
    return ours == theirs


def _answered_calls(trajectory: Sequence[Message]) -> list[tuple[str, Message]]:
    """Return the calls that did not fail, each with the side that made it."""
    calls = []
    for index, message in enumerate(trajectory):
        requests = message.get("tool_calls") or ()
        results = trajectory[index + 1 : index + 1 + len(requests)]
        calls += [
            (str(call.get("requestor", message["role"])), call)
            for call, result in zip(requests, results, strict=False)
            if not result.get("error")
        ]
    return calls


_GROUPED = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?")


def is_told(info: str, text: str) -> bool:
    """Return whether ``text`` contains ``info`` as separate words or as a separate number.

    "$1,628.00" contains ``1628``; "16280", "1628.50" and "A1628" do not."""
    phrase = " ".join(_GROUPED.sub("", info).lower().split())
    content = " ".join(_GROUPED.sub("", text).lower().split())
    if not phrase:
        return True
    before, after = r"(?<!\w)(?<!\d\.)", r"(?!\w)(?!\.\d)"
    if _NUMBER.fullmatch(phrase):
        integer, _, fraction = phrase.partition(".")
        fraction = fraction.rstrip("0")
        tail = rf"\.{fraction}0*" if fraction else r"(?:\.0+)?"
        return re.search(rf"{before}{re.escape(integer)}{tail}{after}", content) is not None
    return re.search(rf"{before}{re.escape(phrase)}{after}", content) is not None
