"""FAC, final answer completeness: one question on the final answer alone (``fac_eval.py``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ace_ray.benchmarks.context import RoleModel
from ace_ray.benchmarks.stabletoolbench.judge.asking import ask
from ace_ray.benchmarks.stabletoolbench.judge.prompts import Prompts, own
from ace_ray.benchmarks.stabletoolbench.judge.reading import read_complete, read_fac
from ace_ray.benchmarks.stabletoolbench.judge.sopr import UNANSWERED, unanswered


async def judge_fac(
    model: RoleModel,
    query: str,
    answer_tree: Mapping[str, Any],
    final_answer_raw: str,
    prompts: Prompts | None = None,
) -> dict[str, Any]:
    """``{"status": "Solved" | "Unsolved", "reason", "attempts", "prompt_tokens",
    "completion_tokens"}``.

    An answer that is `unanswered` is Unsolved without a question; upstream asks no question only
    where there is no final answer. Arguments as of `judge_sopr`; ``model`` draws with
    `asking.FAC_SAMPLING`, as upstream's, unless the config says otherwise.

    Raises:
        JudgeError: no reply has a verdict. Replies to upstream's question are read by its rule;
            one with neither word upstream would score as Unsolved.
    """
    if why := unanswered(answer_tree, final_answer_raw):
        return {
            "status": "Unsolved",
            "reason": UNANSWERED[why],
            "attempts": 0,
            "prompt_tokens": 0,
            "completion_tokens": 0,
        }
    asked = prompts or own()
    read = read_fac if asked.source == "upstream" else read_complete
    status, reply = await ask(
        model, lambda limit: asked.of_fac(query, final_answer_raw, limit), read, "fac"
    )
    return {"status": status, **reply.as_json()}
