"""SoPR: the solvable pass rate's judgement of one answer, in votes.

Upstream ``tooleval/eval_pass_rate.py`` and ``registered_cls/rtl.py::check_is_solved``. Per vote: is
the final answer, seen alone, Solved, Unsolved or Unsure? If Unsure, the same of the answer with its
execution. What cannot be solved is Unsolved without a question (`unanswered`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ace_ray.benchmarks.context import RoleModel
from ace_ray.benchmarks.stabletoolbench.judge.asking import ask, together
from ace_ray.benchmarks.stabletoolbench.judge.prompts import Prompts, own
from ace_ray.benchmarks.stabletoolbench.judge.reading import read_status
from ace_ray.benchmarks.stabletoolbench.results.details import (
    final_text,
    gave_up,
    has_finish,
    tool_messages,
)

POINTS = {"Solved": 1.0, "Unsure": 0.5, "Unsolved": 0.0}
"""What a vote is worth."""
UNANSWERED = {
    "no_finish": "the run did not end in a call of Finish",
    "gave_up": "the agent gave up",
    "empty_answer": "the final answer is empty",
}


def unanswered(answer_tree: Mapping[str, Any], final_answer_raw: Any) -> str | None:
    """Why a converted answer is Unsolved without a question: a key of `UNANSWERED`, or None.

    Upstream asks about an answer that is empty inside of Finish's arguments; here it counts as
    empty. ``final_answer_raw`` is Finish's arguments as the model wrote them.
    """
    if gave_up(final_answer_raw):
        return "gave_up"
    if not has_finish(answer_tree):
        return "no_finish"
    # A single chain that gave up has no final answer, only a try that ends so.
    if not final_answer_raw and gave_up(tool_messages(answer_tree)[-1].get("arguments")):
        return "gave_up"
    return None if final_text(final_answer_raw).strip() else "empty_answer"


async def judge_sopr(
    model: RoleModel,
    query: str,
    answer_tree: Mapping[str, Any],
    final_answer_raw: str,
    votes: int = 3,
    prompts: Prompts | None = None,
) -> list[dict[str, Any]]:
    """One judgement per vote: ``{"status", "reason", "steps"}``.

    Args:
        model: the judge, with `asking.SAMPLING` unless the config says otherwise.
        query: what the user asked.
        answer_tree: the ``answer`` of a converted answer.
        final_answer_raw: its ``final_answer``: Finish's arguments as the model wrote them.
        votes: independent judgements; each has seeds of its own.
        prompts: `own` by default.

    Returns:
        ``steps`` are the questions asked, none where the answer is `unanswered`: ``{"question":
        "answer" | "execution", "status", "reason", "attempts", "prompt_tokens",
        "completion_tokens"}``.

    Raises:
        JudgeError: a vote could not be had. The others are dropped.
    """
    if why := unanswered(answer_tree, final_answer_raw):
        return [
            {"status": "Unsolved", "reason": UNANSWERED[why], "steps": []} for _ in range(votes)
        ]
    asked = prompts or own()
    return await together(
        [_vote(model, query, answer_tree, final_answer_raw, vote, asked) for vote in range(votes)]
    )


async def _vote(
    model: RoleModel,
    query: str,
    answer: Mapping[str, Any],
    final: str,
    vote: int,
    prompts: Prompts,
) -> dict[str, Any]:
    steps: list[dict[str, Any]] = []
    for question in ("answer", "execution"):

        def prompt(limit: int, question: str = question) -> str:
            if question == "answer":
                return prompts.of_answer(query, final, limit)
            return prompts.of_trace(query, answer, final, limit)

        status, reply = await ask(model, prompt, read_status, "sopr", vote, question)
        steps.append({"question": question, "status": status, **reply.as_json()})
        if status != "Unsure":
            break
    return {"status": status, "reason": reply.reason, "steps": steps}


def majority(votes: Sequence[Mapping[str, Any]]) -> str:
    """The status that most votes have; Unsure where two have as many, and for no votes."""
    counted = Counter(vote["status"] for vote in votes).most_common(2)
    if not counted or (len(counted) == 2 and counted[0][1] == counted[1][1]):
        return "Unsure"
    return str(counted[0][0])


def mean_points(votes: Sequence[Mapping[str, Any]]) -> float:
    """The answer's SoPR: the mean of its votes' `POINTS`."""
    return sum(POINTS[vote["status"]] for vote in votes) / len(votes)
