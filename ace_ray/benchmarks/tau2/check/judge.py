"""The judge of expectations in natural language (upstream ``evaluator_nl_assertions.py``), with a
wording of ours: one question a conversation, a verdict for each expectation."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ace_ray.benchmarks.context import EpisodeContext
from ace_ray.errors import RowError
from ace_ray.records import Sampling, digest

SAMPLING = Sampling(temperature=0.0, max_tokens=4096)
TRIES = 3
_DECODER = json.JSONDecoder()
_SYSTEM = """You read a conversation between an agent and a customer, and a list of expectations.
Say of each expectation, on its own, whether the agent has met it.

Answer with one JSON object and nothing else:
{"results": [{"expectation": 1, "reasoning": "in a sentence", "met": true}, ...]}
with one element for each expectation, in their order."""
_QUESTION = "The conversation:\n\n%s\n\nThe expectations:\n\n%s"
SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "results": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "expectation": {"type": "integer"},
                    "reasoning": {"type": "string"},
                    "met": {"type": "boolean"},
                },
                "required": ["expectation", "reasoning", "met"],
            },
        }
    },
    "required": ["results"],
}
IDENTITY = {"wording": "own", "prompt_sha256": digest(_SYSTEM, _QUESTION, SCHEMA), "tries": TRIES}


class JudgeError(RowError):
    """The judge gave no verdict on every expectation."""


def question(
    trajectory: Sequence[Mapping[str, Any]], expectations: Sequence[str]
) -> list[dict[str, Any]]:
    """The messages of a judgement."""
    lines = [f"{m['role']}: {m.get('content') or _calls(m)}" for m in trajectory]
    numbered = [f"{number}. {text}" for number, text in enumerate(expectations, start=1)]
    return [
        {"role": "system", "content": _SYSTEM},
        {"role": "user", "content": _QUESTION % ("\n".join(lines), "\n".join(numbered))},
    ]


def _calls(message: Mapping[str, Any]) -> str:
    calls = message.get("tool_calls") or ()
    return "; ".join(f"calls {call['name']}({call['arguments']})" for call in calls)


async def judge(
    context: EpisodeContext,
    trajectory: Sequence[Mapping[str, Any]],
    expectations: Sequence[str],
) -> dict[str, Any]:
    """The judge's verdicts, {"results": [{"expectation", "met", "reasoning"}], "model"}.

    Raises `JudgeError`: `TRIES` answers gave none; other `RowError`s as the model does."""
    asked = question(trajectory, expectations)
    for _ in range(TRIES):
        completion = await context.ask_role("judge", asked, schema=SCHEMA)
        results = read(completion.text, len(expectations))
        if results is not None:
            return {"results": results, "model": completion.model}
        said = completion.text
        asked = [
            *asked[:2],
            {"role": "assistant", "content": said},
            {
                "role": "user",
                "content": f"That is not the JSON object with {len(expectations)} elements that"
                " was asked for. Answer with it, and nothing else.",
            },
        ]
    raise JudgeError(f"the judge gave no verdict on each expectation, but {said[:100]!r}")


def read(text: str, count: int) -> list[dict[str, Any]] | None:
    """The verdicts in an answer, None where it does not give one for each of ``count``."""
    try:
        tree, _ = _DECODER.raw_decode(text, max(0, text.find("{")))
        found = [(one["met"], str(one.get("reasoning", ""))) for one in tree["results"]]
        numbers = [one["expectation"] for one in tree["results"]]
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return None
    if numbers != list(range(1, count + 1)) or not all(isinstance(met, bool) for met, _ in found):
        return None
    return [
        {"expectation": number, "met": met, "reasoning": why[:1000]}
        for number, (met, why) in enumerate(found, start=1)
    ]
