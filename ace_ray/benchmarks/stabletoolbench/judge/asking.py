"""One question to the judge: asked until the reply names one verdict, then `JudgeError`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

from ace_ray.benchmarks.context import RoleModel
from ace_ray.errors import PromptTooLong, RowError
from ace_ray.types import Sampling, digest

SAMPLING = Sampling(temperature=0.2, max_tokens=1000)
"""Upstream's ``evaluators/tooleval_gpt-3.5-turbo_default/config.yaml``."""
FAC_SAMPLING = Sampling(temperature=0.0, max_tokens=512)
"""Upstream's ``fac_eval.py``."""
ATTEMPTS = 4
RETRY_TEMPERATURE = 0.7
"""At least this from the second attempt on: greedy decoding would say the same again."""
CUTS = (24_000, 8_000, 2_500, 1_000)
"""Characters of an execution trace, and of each other text a quarter, that a prompt may hold; the
next one where the judge's context is too small for the last."""
MAX_REASON = 500

Answer = TypeVar("Answer")


class JudgeError(RowError):
    """The judge gave no verdict: the row is not scored, and is tried again on resume."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What the judge said to one question and what that took."""

    reason: str
    attempts: int
    prompt_tokens: int
    completion_tokens: int
    schema_refused: str = ""
    """As of `Completion`."""

    def as_json(self) -> dict[str, Any]:
        values = asdict(self)
        if not self.schema_refused:
            del values["schema_refused"]
        return values


async def ask(
    model: RoleModel,
    prompt: Callable[[int], str],
    read: Callable[[str], Answer | None],
    *key: object,
    schema: Mapping[str, Any] | None = None,
) -> tuple[Answer, Reply]:
    """The first reply that ``read`` understands, and how it came about.

    Args:
        model: the judge; `RoleModel.sampling` is in effect but for the seed, and the temperature of
            later attempts.
        prompt: the text for a limit of characters, one of `CUTS`.
        read: None for a reply that names no verdict, or several.
        key: JSON values that tell this question from all others of the row, the measure first; with
            the model's seed and the number of the attempt they make the seed.
        schema: that replies are held to; they are read by ``read`` all the same.

    Raises:
        JudgeError: no reply was understood, the model failed, or no cut of the prompt fits.
    """
    cuts, reply = list(CUTS), ""
    tokens = [0, 0]
    for attempt in range(ATTEMPTS):
        sampling = replace(model.sampling, seed=seed_of(model.sampling.seed, *key, attempt))
        if attempt:
            sampling = replace(sampling, temperature=max(sampling.temperature, RETRY_TEMPERATURE))
        while True:
            messages = [{"role": "user", "content": prompt(cuts[0])}]
            try:
                completion = await model.ask(messages, sampling, schema=schema)
            except PromptTooLong as error:
                if len(cuts) == 1:
                    what = f"{key[0]}: the question does not fit the judge: {error}"
                    raise JudgeError(what) from error
                del cuts[0]
            except RowError as error:
                raise JudgeError(f"{key[0]}: the judge failed: {error}") from error
            else:
                break
        tokens[0] += completion.prompt_tokens
        tokens[1] += completion.completion_tokens
        reply = completion.text
        answer = read(reply)
        if answer is not None:
            reason, refused = reply.strip()[:MAX_REASON], completion.schema_refused
            return answer, Reply(reason, attempt + 1, tokens[0], tokens[1], refused)
    raise JudgeError(
        f"{key[0]}: the judge named no single verdict in {ATTEMPTS} replies, last {reply!r:.200}"
    )


def protocol() -> dict[str, Any]:
    """What of the way of asking can move a verdict, beside prompts and sampling (JSON values)."""
    return {"attempts": ATTEMPTS, "retry_temperature": RETRY_TEMPERATURE, "cuts": list(CUTS)}


def retried(model: RoleModel, attempt: int) -> RoleModel:
    """``model`` in the ``attempt``-th try of a row, from 1: the same seeds would only make it fail
    again."""
    if attempt == 1:
        return model
    seed = seed_of(model.sampling.seed, "attempt", attempt)
    return replace(model, sampling=replace(model.sampling, seed=seed))


def seed_of(*key: object) -> int:
    """31 bits from JSON values, the same wherever and in whatever order questions are asked."""
    return int(digest(*key)[:8], 16) >> 1


async def together(waits: Sequence[Awaitable[Answer]]) -> list[Answer]:
    """All results in order; when one fails the others are ended before it is raised."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
