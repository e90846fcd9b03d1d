"""Verdicts on an episode that ends with an answer in words (upstream ``agentic_checker.py``).

The answer is the last message that holds no call. It is right when it contains an acceptable
answer as words of its own, after both are normalised: without ``,./-_*^()``, in lower case, with
one kind of quotes. The reply's format is not looked at. Both rule sets say the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ace_ray.benchmarks.bfcl.answers import Answer
from ace_ray.benchmarks.bfcl.decode import executable
from ace_ray.types import Verdict

_IGNORED = str.maketrans("", "", ",./-_*^()")


def check_agentic(
    answers: Sequence[Answer], acceptable: Sequence[str], ended: str = ""
) -> Mapping[str, Verdict]:
    """The verdicts of both rule sets on the answers of an episode, in order. ``ended`` says what
    cut it, "" for nothing: upstream judges no answers of an entry whose inference raised."""
    if ended in ("context", "deadline", "inference"):
        cut = Verdict(False, "agentic:inference_error", f"the episode was cut: {ended}")
        return {"official": cut, "strict": cut}
    last = ""
    for answer in answers:
        if executable(answer) is None:
            last = _message(answer)
    verdict = _judge(last, acceptable)
    return {"official": verdict, "strict": verdict}


def _message(answer: Answer) -> str:
    # Calls that do not decode are upstream's last message too: the first of them, as Python
    # prints it.
    if answer.calls and not answer.unreadable:
        return str({answer.calls[0].name: answer.calls[0].arguments})
    return answer.text or ""


def _judge(message: str, acceptable: Sequence[str]) -> Verdict:
    if not message:
        return Verdict(False, "agentic:no_last_message", "no message is an answer in words")
    text = _normal(message)
    for answer in acceptable:
        if re.search(rf"\b{re.escape(_normal(answer))}\b", text):
            return Verdict(True)
    return Verdict(False, "agentic:answer_not_found", "no acceptable answer is in the last message")


def _normal(text: str) -> str:
    return text.translate(_IGNORED).lower().replace("'", '"')
