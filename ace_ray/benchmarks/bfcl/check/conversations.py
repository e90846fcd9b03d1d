"""Compute the verdicts on multi-turn and agentic episodes (upstream ``multi_turn_checker.py``,
``agentic_checker.py`` and ``eval_runner.py``).

Multi-turn:

The gold calls are the published calls of an entry, a list for each turn. The model's calls and the
gold calls are replayed on two separate sets of new tool instances. After each turn with gold calls,
all public attributes of both sets must be equal. Each result of the turn's gold calls must be among
the results of the model's calls up to then, in any order.

A turn without gold calls is not judged: functions are held out, or the user omits a parameter. The
model may make a useful call there, for example ``cd`` before a later ``mv``. If the call leads to
another state than the gold calls, the next judged turn fails, since all state is compared there.

``official`` is upstream's verdict. The model's and the gold instances share the objects that
upstream's instances share in one process (`tools.environment.Shared`); instances of different
entries share nothing. ``strict`` differs in two points. The two sets share nothing. A
conversation that reaches the step limit in its last turn is wrong; upstream judges this turn.

Agentic (memory and web search): the answer is the last message without a call. It is correct if it
contains an acceptable answer as complete words. Both are normalised first: ``,./-_*^()`` removed,
lower case, one kind of quotes. The answer's format is not checked. Both rule sets agree."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ace_ray.benchmarks.bfcl.decode import executable_calls as executable_calls
from ace_ray.benchmarks.bfcl.decode.calls import Answer
from ace_ray.benchmarks.bfcl.tools.environment import Docs, InitialState, initial_state_of
from ace_ray.benchmarks.bfcl.tools.limited import Attempt, open_op, step_op
from ace_ray.benchmarks.bfcl.tools.sources import ToolSources
from ace_ray.sandbox.replayed_environment import Op
from ace_ray.types import Entry, Verdict

INFERENCE = "multi_turn:inference_error"
TERMINATED = "multi_turn:force_terminated"
NO_CALLS = "multi_turn:empty_turn_model_response"
STATE = "multi_turn:instance_state_mismatch"
RESPONSE = "multi_turn:execution_response_mismatch"

# The calls of one turn as strings, a list for each step that has calls.
Steps = Sequence[Sequence[str]]
_OURS, _THEIRS = "ours", "theirs"
Executable = Callable[[Answer], list[str] | None]


@dataclass(frozen=True, slots=True)
class Turn:
    """Result of upstream's checks of one turn. ``expects_calls``: the turn has gold calls;
    otherwise nothing is compared. ``called``: the model made calls."""

    expects_calls: bool
    called: bool
    state: str = ""
    """Name of the first attribute that differs, "" if all are equal."""
    missing: int = 0
    """Number of results of gold calls that are missing among the model's results."""

    @property
    def passed(self) -> bool:
        return not self.expects_calls or (self.called and not self.state and not self.missing)


def check_multi_turn(
    entry: Entry,
    turns: Sequence[Sequence[Answer]],
    ending: str,
    sources: ToolSources,
    docs: Docs,
    *,
    executable: Executable = executable_calls,
) -> dict[str, Verdict]:
    """Return the verdicts of both rule sets on a conversation; never raises because of an answer.

    Args:
        entry: a multi-turn entry; ``entry.gold`` has the gold calls of each turn as strings.
        turns: the model's answers, one per step, for each turn that began.
        ending: why the conversation ended early ("steps", "context", "deadline"), or "". Outputs of
            bfcl-eval can have "inference" too: inference failed without an answer.
        executable: returns the calls of an answer as strings, None for an answer without calls.

    Metrics: ``turns_passed``, ``turns_state`` (equal state) and ``turns_response`` (all gold
    results found) are fractions of all turns. ``turn_<n>``, from 1, is 1 if turn n passed, else 0.

    Raises:
        UserError: the user's copy of bfcl-eval lacks a class or a method that the entry needs."""
    steps = [[calls for answer in turn if (calls := executable(answer))] for turn in turns]
    gold: Sequence[Sequence[str]] = entry.gold
    initial_state = initial_state_of(entry, docs)
    official, changed = replay(sources, initial_state, steps, gold, shared=True)
    strict = replay(sources, initial_state, steps, gold)[0] if changed else official
    cut = _cut_error(ending, len(steps), len(gold))
    cut_last = (TERMINATED, "the step limit cut the last turn") if ending == "steps" else ("", "")
    return {
        "official": _verdict(official, cut, len(gold)),
        "strict": _verdict(strict, cut if cut[0] else cut_last, len(gold)),
    }


def replay(
    sources: ToolSources,
    initial_state: InitialState,
    steps: Sequence[Steps],
    gold: Sequence[Sequence[str]],
    *,
    shared: bool = False,
) -> tuple[list[Turn], bool]:
    """Replay the turns that both ``steps`` (the model's) and ``gold`` have. Return a `Turn` for
    each of these turns, and whether a call changed an object that both sets of instances share.
    ``shared``: let the two sets of instances share objects as in upstream."""
    pairs = list(zip(steps, gold, strict=False))
    ops: list[Op] = [open_op(side, initial_state, shared=shared) for side in (_OURS, _THEIRS)]
    for turn, gold_calls in pairs:
        ops += [step_op(_OURS, calls) for calls in turn]
        ops.append(step_op(_THEIRS, gold_calls))
        if gold_calls:
            ops.append(("difference", _OURS, _THEIRS))
    ops.append(("shared_changed",))
    answers = Attempt(sources, initial_state.classes).run_ops(ops)
    return list(_turns(iter(answers[2:-1]), pairs)), answers[-1]


def _turns(answers: Iterator[Any], played: Sequence[tuple[Steps, Sequence[str]]]) -> Iterator[Turn]:
    """Yield a `Turn` for each replayed turn. ``answers`` are the results of `replay`'s operations:
    per turn, of the model's steps, of the gold calls, and of "difference" if it has gold calls."""
    results: Counter[str] = Counter()
    for turn, gold_calls in played:
        for _ in turn:
            results.update(next(answers)[0])
        expected = Counter(next(answers)[0])
        if not gold_calls:
            yield Turn(expects_calls=False, called=bool(turn))
            continue
        yield Turn(True, bool(turn), next(answers), (expected - results).total())


def _cut_error(ending: str, turns: int, total: int) -> tuple[str, str]:
    """Return (error type, error) of a truncated conversation, ("", "") of a complete one."""
    if ending in ("context", "deadline", "inference"):
        return INFERENCE, f"the conversation ended in turn {turns} of {total}: {ending}"
    if turns != total:
        return TERMINATED, f"the conversation ended in turn {turns} of {total}: {ending or 'cut'}"
    return "", ""


def _verdict(turns: Sequence[Turn], cut: tuple[str, str], total: int) -> Verdict:
    passed = [turn.passed for turn in turns]
    kind, error = cut
    if not kind and not all(passed):
        failed = passed.index(False)
        kind, error = _failure(turns[failed], failed + 1)
    divisor = max(1, total)
    metrics = {
        "turns_passed": sum(passed) / divisor,
        "turns_state": sum(not turn.state for turn in turns) / divisor,
        "turns_response": sum(not turn.missing for turn in turns) / divisor,
        **{f"turn_{n}": float(n <= len(passed) and passed[n - 1]) for n in range(1, total + 1)},
    }
    return Verdict(not kind, kind, error, metrics)


def _failure(turn: Turn, number: int) -> tuple[str, str]:
    if not turn.called:
        return NO_CALLS, f"turn {number} has no calls"
    if turn.state:
        return STATE, f"after turn {number}, {turn.state} differs"
    return RESPONSE, f"turn {number} lacks {turn.missing} results of the gold calls"


_IGNORED = str.maketrans("", "", ",./-_*^()")


def check_agentic(
    answers: Sequence[Answer], acceptable: Sequence[str], ending: str = ""
) -> Mapping[str, Verdict]:
    """Return the verdicts of both rule sets on an episode's answers, which are in order.

    ``ending`` is the reason why the episode was truncated, or "". As in upstream, an episode is
    wrong, whatever its answers, if inference failed or a limit truncated it."""
    texts = [_message(answer) for answer in answers if executable_calls(answer) is None]
    if ending in ("context", "deadline", "inference"):
        verdict = Verdict(False, "agentic:inference_error", f"the episode was cut: {ending}")
    elif not texts or not texts[-1]:
        verdict = Verdict(False, "agentic:no_last_message", "no answer is a text without calls")
    elif _contains(_normalize(texts[-1]), acceptable):
        verdict = Verdict(True)
    else:
        problem = "no acceptable answer is in the last message"
        verdict = Verdict(False, "agentic:answer_not_found", problem)
    return {"official": verdict, "strict": verdict}


def _message(answer: Answer) -> str:
    # Upstream takes native calls that cannot be decoded as a message: the first call, as printed.
    if answer.calls and not answer.unreadable:
        return str({answer.calls[0].name: answer.calls[0].arguments})
    return answer.text or ""


def _contains(text: str, acceptable: Sequence[str]) -> bool:
    return any(re.search(rf"\b{re.escape(_normalize(answer))}\b", text) for answer in acceptable)


def _normalize(text: str) -> str:
    return text.translate(_IGNORED).lower().replace("'", '"')
