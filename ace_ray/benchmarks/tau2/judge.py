"""Ask a judge which assertions in natural language hold (upstream
``evaluator/evaluator_nl_assertions.py``). All assertions of a task are one question."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ace_ray.benchmarks.context import RoleModel
from ace_ray.benchmarks.tau2.upstream_package import PromptTexts, fill
from ace_ray.benchmarks.tau2.verdicts import nl_assertions
from ace_ray.errors import RowError
from ace_ray.types import Entry, Sampling
from ace_ray.util.safe_loading import check_depth

# Upstream sets no maximum of tokens.
JUDGE_SAMPLING = Sampling(temperature=0.0, max_tokens=4096)
ATTEMPTS, ANSWER_S, _MAX_DEPTH = 3, 240.0, 20


class JudgeError(RowError):
    """The judge gave no answer that can be read. The row is not scored; a resumed run retries."""


async def ask_judge(
    judge: RoleModel, texts: PromptTexts, entry: Entry, state: Mapping[str, Any]
) -> list[bool]:
    """Return whether each of a task's assertions holds; ``state`` is `Episode.state`. Raises
    `JudgeError` after `ATTEMPTS` replies of another form, and the errors of the model."""
    assertions = nl_assertions(entry)
    # Upstream's messages with calls have no content, which it writes as None.
    talk = "\n".join(f"{turn['role']}: {turn['content'] or None}" for turn in state["trajectory"])
    question = fill(texts.judge_user, trajectory_str=talk, nl_assertions=str(assertions))
    contents = {"system": texts.judge_system, "user": question}
    messages = [{"role": role, "content": content} for role, content in contents.items()]
    for attempt in range(ATTEMPTS):
        sampling = replace(judge.sampling, seed=judge.sampling.seed + attempt)
        try:
            completion = await asyncio.wait_for(judge.ask(messages, sampling), ANSWER_S)
        except TimeoutError:
            raise JudgeError(f"the judge did not answer within {ANSWER_S:g} s") from None
        if (met := read_answers(completion.text, len(assertions))) is not None:
            return met
    raise JudgeError(f"the judge did not answer all {len(assertions)} assertions, {ATTEMPTS} times")


def read_answers(reply: str, count: int) -> list[bool] | None:
    """Return the ``count`` answers of a reply, or None if it does not have exactly these. Text
    around the JSON object is ignored. Upstream accepts fewer answers."""
    try:
        tree = json.loads(reply[reply.find("{") : reply.rfind("}") + 1])
        check_depth(tree, _MAX_DEPTH)
        met = [result["metExpectation"] for result in tree["results"]]
    except (ValueError, RecursionError, TypeError, KeyError):
        return None
    return met if len(met) == count and all(type(answer) is bool for answer in met) else None
