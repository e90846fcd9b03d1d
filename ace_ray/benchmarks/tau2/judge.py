"""Ask a judge which assertions in natural language hold (upstream
``evaluator/evaluator_nl_assertions.py``). All assertions of a task are one question."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ace_ray.benchmarks.context import RoleModel
from ace_ray.benchmarks.tau2.upstream_package import PromptTexts, fill
from ace_ray.errors import RowError
from ace_ray.types import Sampling
from ace_ray.util.safe_loading import check_depth

# Upstream sets no maximum of tokens.
JUDGE_SAMPLING = Sampling(temperature=0.0, max_tokens=4096)
ATTEMPTS = 3
# Maximum characters and nesting of a reply that is read.
_MAX_CHARS, _MAX_DEPTH = 100_000, 20


class JudgeError(RowError):
    """The judge gave no answer that can be read. The row is not scored; a resumed run retries."""


async def ask_judge(
    judge: RoleModel,
    texts: PromptTexts,
    trajectory: Sequence[Mapping[str, Any]],
    assertions: Sequence[str],
) -> list[bool]:
    """Return whether each assertion holds. Raises `JudgeError` after `ATTEMPTS` replies of another
    form, and the errors of the model."""
    # Upstream's messages with calls have no content, which it writes as None.
    lines = [f"{message['role']}: {message['content'] or None}" for message in trajectory]
    question = fill(
        texts.judge_user, trajectory_str="\n".join(lines), nl_assertions=str(list(assertions))
    )
    messages = [
        {"role": "system", "content": texts.judge_system},
        {"role": "user", "content": question},
    ]
    for attempt in range(ATTEMPTS):
        sampling = replace(judge.sampling, seed=judge.sampling.seed + attempt)
        completion = await judge.ask(messages, sampling)
        if (met := read_answers(completion.text, len(assertions))) is not None:
            return met
    raise JudgeError(f"the judge did not answer all {len(assertions)} assertions, {ATTEMPTS} times")


def read_answers(reply: str, count: int) -> list[bool] | None:
    """Return the ``count`` answers of a reply, or None if it does not have exactly these. Text
    around the JSON object is ignored. Upstream accepts fewer answers."""
    text = reply[:_MAX_CHARS]
    try:
        tree = json.loads(text[text.find("{") : text.rfind("}") + 1])
        check_depth(tree, _MAX_DEPTH)
        met = [result["metExpectation"] for result in tree["results"]]
    except (ValueError, RecursionError, TypeError, KeyError):
        return None
    return met if len(met) == count and all(type(answer) is bool for answer in met) else None
