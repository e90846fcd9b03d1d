"""SoWR: which of two runs answers a query better, in rounds.

The rules of upstream ``tooleval/eval_preference.py`` and ``registered_cls/rtl.py``, without the
faults that keep them from taking effect there: statuses are those of the SoPR votes, and the order
in which the two answers are shown changes from round to round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ace_ray.benchmarks.context import RoleModel
from ace_ray.benchmarks.stabletoolbench.judge.asking import ask, seed_of, together
from ace_ray.benchmarks.stabletoolbench.judge.prompts import Prompts, own
from ace_ray.benchmarks.stabletoolbench.judge.reading import read_index
from ace_ray.benchmarks.stabletoolbench.judge.sopr import POINTS

CANDIDATE, REFERENCE = "candidate", "reference"


async def judge_sowr(
    model: RoleModel,
    query: str,
    candidate: Mapping[str, Any] | None,
    reference: Mapping[str, Any] | None,
    statuses: tuple[str, str],
    rounds: int = 3,
    prompts: Prompts | None = None,
) -> dict[str, Any]:
    """``{"outcome": "win" | "lose" | "tie", "by", "rounds"}``, seen from the candidate.

    The better status wins all rounds (Solved, then Unsure, then Unsolved); with equal ones the
    judge chooses, round for round; of equal answers a coin does, as upstream's. A side without an
    answer loses; if both have none, it is a tie.

    Args:
        model: the judge.
        query: what the user asked.
        candidate, reference: the ``answer`` of a converted answer; None for none.
        statuses: what most SoPR votes say of the candidate and of the reference (`majority`).
        rounds: the side with more of them wins the query.
        prompts: `own` by default.

    Returns:
        ``by`` is ``missing``, ``status``, ``coin`` or ``judge``; of each round ``{"winner",
        "first", "reason", "attempts", "prompt_tokens", "completion_tokens"}``, all but the winner
        only of the judge's.

    Raises:
        JudgeError: a round could not be had.
    """
    if candidate is None or reference is None:
        if candidate is reference:
            return {"outcome": "tie", "by": "missing", "rounds": []}
        return _settled(CANDIDATE if reference is None else REFERENCE, "missing", rounds)
    ours, theirs = (POINTS[status] for status in statuses)
    if ours != theirs:
        return _settled(CANDIDATE if ours > theirs else REFERENCE, "status", rounds)
    keys = ("final_answer", "answer_details")
    coin = seed_of("sowr", model.sampling.seed, query)
    if all(candidate.get(key) == reference.get(key) for key in keys):
        sides = [(CANDIDATE, REFERENCE)[(coin >> turn % 31) & 1] for turn in range(rounds)]
        return _counted([{"winner": side} for side in sides], "coin")
    asked = prompts or own()
    both = {CANDIDATE: candidate, REFERENCE: reference}

    async def compare(turn: int) -> dict[str, Any]:
        order = [CANDIDATE, REFERENCE] if (coin + turn) % 2 else [REFERENCE, CANDIDATE]
        shown = [both[side] for side in order]
        better, reply = await ask(
            model, lambda limit: asked.of_two(query, shown, limit), read_index, "sowr", turn
        )
        return {"winner": order[better], "first": order[0], **reply.as_json()}

    return _counted(await together([compare(turn) for turn in range(rounds)]), "judge")


def _settled(winner: str, by: str, rounds: int) -> dict[str, Any]:
    return _counted([{"winner": winner}] * rounds, by)


def _counted(rounds: Sequence[Mapping[str, Any]], by: str) -> dict[str, Any]:
    lead = sum(1 if turn["winner"] == CANDIDATE else -1 for turn in rounds)
    outcome = "tie" if lead == 0 else "win" if lead > 0 else "lose"
    return {"outcome": outcome, "by": by, "rounds": [dict(turn) for turn in rounds]}
