"""Reading a call of Finish."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from ace_ray.benchmarks.stabletoolbench.agent.texts import Texts
from ace_ray.benchmarks.stabletoolbench.agent.tree import ANSWERED, GAVE_UP
from ace_ray.benchmarks.stabletoolbench.apis.values import nesting
from ace_ray.benchmarks.stabletoolbench.tools import GIVE_ANSWER, GIVE_UP

BAD_FINISH = 2
MAX_TEXT = 200_000
_MAX_DEPTH = 64
_TYPE, _ANSWER = '"return_type": "', '"final_answer": "'


@dataclass(frozen=True, slots=True)
class Finished:
    """What a call of Finish came to: upstream's observation and status code."""

    observation: str
    code: int
    answer: str = ""
    """The final answer as a text, of an answer."""


def read_finish(arguments: str, texts: Texts) -> Finished:
    """Reads the call's ``arguments``; text that is no JSON is searched for upstream's two keys,
    as upstream does. Bounded; never raises."""
    said = _values(arguments)
    kind = said.get("return_type")
    if "return_type" not in said:
        return Finished(texts.no_return_type, BAD_FINISH)
    if kind == GIVE_UP:
        return Finished(texts.gave_up, GAVE_UP)
    if kind != GIVE_ANSWER:
        return Finished(texts.bad_return_type, BAD_FINISH)
    if "final_answer" not in said:
        return Finished(texts.no_final_answer, BAD_FINISH)
    answer = said["final_answer"]
    text = answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)
    return Finished(texts.answered, ANSWERED, text)


def _values(arguments: str) -> dict[str, Any]:
    if len(arguments) <= MAX_TEXT and nesting(arguments) <= _MAX_DEPTH:
        try:
            value = json.loads(arguments, strict=False)
            return value if isinstance(value, dict) else {}
        except (ValueError, RecursionError):
            pass
    found = {}
    if _TYPE in arguments:
        kinds = (GIVE_ANSWER, GIVE_UP)
        found["return_type"] = next((k for k in kinds if f'{_TYPE}{k}"' in arguments), "")
    if _ANSWER in arguments:
        found["final_answer"] = arguments[arguments.find(_ANSWER) + len(_ANSWER) :]
    return found
