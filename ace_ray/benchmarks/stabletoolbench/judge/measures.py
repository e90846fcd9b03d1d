"""Measure answers with a judge: SoPR and FAC of one answer, SoWR of two.

SoPR, the solvable pass rate (upstream ``tooleval/eval_pass_rate.py`` and
``registered_cls/rtl.py::check_is_solved``), is decided by votes. In each vote, the judge first sees
the final answer alone: is it Solved, Unsolved or Unsure? If Unsure, the judge is asked again and
sees the execution, too. If there is an `unanswered_reason`, the answer is Unsolved without asking.

FAC, final answer completeness (``fac_eval.py``), is one question about the final answer alone.

SoWR decides in rounds which of two runs answers a query better, by the rules of
``tooleval/eval_preference.py`` and ``registered_cls/rtl.py``. Bugs in upstream disable two of these
rules, but they apply in ace_ray: an answer's status comes from its SoPR votes, and the order in
which the judge sees the two answers changes from round to round.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ace_ray.benchmarks.context import RoleModel
from ace_ray.benchmarks.stabletoolbench import answer_trees
from ace_ray.benchmarks.stabletoolbench.judge import asking
from ace_ray.benchmarks.stabletoolbench.judge.prompts import Prompts

# The ``answer`` of a converted answer. Its ``final_answer`` is Finish's raw arguments.
Answer = Mapping[str, Any]
# Points of a vote.
POINTS = {"Solved": 1.0, "Unsure": 0.5, "Unsolved": 0.0}
UNANSWERED = {
    "no_finish": "the run did not end in a call of Finish",
    "gave_up": "the agent gave up",
    "empty_answer": "the final answer is empty",
}


def unanswered_reason(answer: Answer) -> str | None:
    """Return why the answer is Unsolved, as a key of `UNANSWERED`; None if the judge must decide.

    If the answer in Finish's arguments is empty, upstream asks the judge; ace_ray does not."""
    final = answer["final_answer"]
    if answer_trees.gave_up(final):
        return "gave_up"
    if not answer_trees.has_finish(answer):
        return "no_finish"
    # A single chain that gave up lacks a final answer, but its last call shows the give-up.
    if not final and answer_trees.gave_up(answer_trees.tool_messages(answer)[-1].get("arguments")):
        return "gave_up"
    return None if answer_trees.final_text(final).strip() else "empty_answer"


async def judge_sopr(
    model: RoleModel, query: str, answer: Answer, votes: int, prompts: Prompts
) -> list[dict[str, Any]]:
    """Judge whether ``answer`` solves ``query``. Return {"status", "reason", "steps"} per vote.

    Each vote has another seed. ``steps`` lists the judge's replies (`asking.reply_json`); it is
    empty if there is an `unanswered_reason`. Raises `JudgeError` if one vote fails; the other
    votes are dropped."""
    if why := unanswered_reason(answer):
        vote = {"status": "Unsolved", "reason": UNANSWERED[why], "steps": []}
        return [dict(vote) for _ in range(votes)]
    asked = [_vote(model, query, answer, number, prompts) for number in range(votes)]
    return await asking.gather_all(asked)


async def _vote(
    model: RoleModel, query: str, answer: Answer, vote: int, prompts: Prompts
) -> dict[str, Any]:
    steps: list[dict[str, Any]] = []
    for question in ("answer", "execution"):
        prompt = partial(prompts.fill, question, query, answer)
        schema = prompts.schemas.get(question)
        key = ("sopr", vote, question)
        status, reply = await asking.ask(model, prompt, asking.read_status, *key, schema=schema)
        steps.append({"question": question, "status": status, **reply})
        if status != "Unsure":
            break
    return {"status": status, "reason": reply["reason"], "steps": steps}


def majority(votes: Sequence[Mapping[str, Any]]) -> str:
    """Return the most frequent status; Unsure if two share the first place, or without votes."""
    counted = Counter(vote["status"] for vote in votes).most_common(2)
    if not counted or (len(counted) == 2 and counted[0][1] == counted[1][1]):
        return "Unsure"
    return str(counted[0][0])


def mean_points(votes: Sequence[Mapping[str, Any]]) -> float:
    """Return the SoPR of an answer: the mean of its votes' `POINTS`."""
    return sum(POINTS[vote["status"]] for vote in votes) / len(votes)


async def judge_fac(
    model: RoleModel, query: str, answer: Answer, prompts: Prompts
) -> dict[str, Any]:
    """Judge completeness. Return {"status": "Solved" | "Unsolved"} and `asking.reply_json` fields.

    If there is an `unanswered_reason`, the answer is Unsolved without asking the judge. (Upstream
    asks, except if the final answer is missing.) Replies to upstream's question are read by
    upstream's rule. Raises `JudgeError` if no reply states a verdict; upstream scores such an
    answer as Unsolved."""
    if why := unanswered_reason(answer):
        return {"status": "Unsolved", **asking.reply_json(UNANSWERED[why], 0, 0, 0)}
    read = asking.read_fac if prompts.source == "upstream" else asking.read_complete
    prompt = partial(prompts.fill, "fac", query, answer)
    status, reply = await asking.ask(model, prompt, read, "fac", schema=prompts.schemas.get("fac"))
    return {"status": status, **reply}


CANDIDATE, REFERENCE = "candidate", "reference"


async def judge_sowr(
    model: RoleModel,
    query: str,
    candidate: Answer,
    reference: Answer,
    statuses: tuple[str, str],
    rounds: int,
    prompts: Prompts,
) -> dict[str, Any]:
    """Compare two answers. Return ``{"outcome": "win" | "lose" | "tie", "by", "rounds"}``, in which
    "win" is a win of the candidate.

    ``statuses`` are the majorities of the SoPR votes on the candidate and on the reference. If they
    differ, the side with the better status (Solved, then Unsure, then Unsolved) wins all rounds.
    If they are equal, the judge decides each round. But if candidate and reference gave identical
    answers, chance decides each round, as in upstream. The side that wins more rounds wins. ``by``
    is ``status``, ``judge``, or ``coin`` (chance). Raises `JudgeError` if one round fails."""
    ours, theirs = (POINTS[status] for status in statuses)
    if ours != theirs:
        better = CANDIDATE if ours > theirs else REFERENCE
        return _sowr_outcome([{"winner": better}] * rounds, "status")
    keys = ("final_answer", "answer_details")
    coin = asking.seed_of("sowr", model.sampling.seed, query)
    if all(candidate.get(key) == reference.get(key) for key in keys):
        sides = [(CANDIDATE, REFERENCE)[(coin >> turn % 31) & 1] for turn in range(rounds)]
        return _sowr_outcome([{"winner": side} for side in sides], "coin")
    answers = {CANDIDATE: candidate, REFERENCE: reference}

    async def compare(turn: int) -> dict[str, Any]:
        order = [CANDIDATE, REFERENCE] if (coin + turn) % 2 else [REFERENCE, CANDIDATE]
        prompt = partial(prompts.comparison, query, [answers[side] for side in order])
        key, schema = ("sowr", turn), prompts.schemas.get("better")
        better, reply = await asking.ask(model, prompt, asking.read_index, *key, schema=schema)
        return {"winner": order[better], "first": order[0], **reply}

    compared = await asking.gather_all([compare(turn) for turn in range(rounds)])
    return _sowr_outcome(compared, "judge")


def _sowr_outcome(rounds: Sequence[Mapping[str, Any]], by: str) -> dict[str, Any]:
    lead = sum(1 if turn["winner"] == CANDIDATE else -1 for turn in rounds)
    outcome = "tie" if lead == 0 else "win" if lead > 0 else "lose"
    return {"outcome": outcome, "by": by, "rounds": [dict(turn) for turn in rounds]}
