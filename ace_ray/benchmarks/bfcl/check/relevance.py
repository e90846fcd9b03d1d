"""Whether there is a call at all (upstream ``eval_runner.py``, the relevance entry).

Of ``irrelevance`` and ``live_irrelevance`` an answer is right without a call, of
``live_relevance`` with any call, whatever it is. All are read as Python.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ace_ray.benchmarks.bfcl.answers import Answer
from ace_ray.benchmarks.bfcl.decode import Read, read_any, read_with_keywords
from ace_ray.benchmarks.bfcl.forms import DEFAULT
from ace_ray.calls import NotCalls, Refused
from ace_ray.records import Verdict

_INFERENCE_ERROR = "Error during inference:"
"""How upstream's stored outputs begin where inference failed."""


def check_relevance(category: str, answer: Answer) -> Mapping[str, Verdict]:
    """The verdicts of both rule sets.

    For upstream everything that is no call is a correct refusal, an empty answer and the text of a
    failed inference among them. Under ``strict`` these two are ``irrelevance_error:no_answer``, and
    a call is one also if an argument is named by a word of Python's own.
    """
    undecoded = False
    try:
        called = _holds_calls(read_any(answer, DEFAULT, "python"))
    except NotCalls:
        called, undecoded = False, True
    except Refused as refused:
        return {"official": _unsafe(refused), "strict": _unsafe(refused)}
    official = _verdict(category, called)
    if undecoded:
        try:
            called = _holds_calls(read_with_keywords(answer, DEFAULT, "python"))
        except NotCalls:
            pass
        except Refused as refused:
            return {"official": official, "strict": _unsafe(refused)}
    strict = _verdict(category, called)
    text = answer.text.strip()
    if strict.valid and not (called or answer.calls or _is_answer(text)):
        none = "irrelevance_error:no_answer"
        strict = Verdict(False, none, "there is neither answer nor refusal")
    return {"official": official, "strict": strict}


def _holds_calls(calls: Sequence[Read] | None) -> bool:
    return bool(calls) and all(isinstance(call.args, dict) for call in calls or ())


def _is_answer(text: str) -> bool:
    return bool(text) and not text.startswith(_INFERENCE_ERROR)


def _verdict(category: str, called: bool) -> Verdict:
    if category == "live_relevance":
        fault = Verdict(False, "relevance_error:decoder_failed", "there is no call")
        return Verdict(True) if called else fault
    fault = Verdict(False, "irrelevance_error:decoder_success", "there is a call")
    return fault if called else Verdict(True)


def _unsafe(refused: Refused) -> Verdict:
    return Verdict(False, "official_unsafe", f"{str(refused)[:200]}, which is not evaluated")
