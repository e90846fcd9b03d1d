"""Whether there is a call at all (upstream ``eval_runner.py``, the relevance entry).

Of ``irrelevance`` and ``live_irrelevance`` an answer is right without a call, of
``live_relevance`` with any call, whatever it is. All are read as Python.
"""

from __future__ import annotations

from collections.abc import Mapping

from ace_ray.benchmarks.bfcl.answers import Answer
from ace_ray.benchmarks.bfcl.decode import read_any
from ace_ray.benchmarks.bfcl.forms import DEFAULT
from ace_ray.calls import NotCalls, Refused
from ace_ray.records import Verdict

_INFERENCE_ERROR = "Error during inference:"
"""How upstream's stored outputs begin where inference failed."""


def check_relevance(category: str, answer: Answer) -> Mapping[str, Verdict]:
    """The verdicts of both rule sets.

    For upstream everything that is no call is a correct refusal, an empty answer and the text of a
    failed inference among them. Under ``strict`` these two are ``irrelevance_error:no_answer``.
    """
    try:
        calls = read_any(answer, DEFAULT, "python")
        called = bool(calls) and all(isinstance(call.args, dict) for call in calls or ())
    except NotCalls:
        called = False
    except Refused as refused:
        unsafe = Verdict(False, "official_unsafe", f"{str(refused)[:200]}, which is not evaluated")
        return {"official": unsafe, "strict": unsafe}
    if category == "live_relevance":
        fault = Verdict(False, "relevance_error:decoder_failed", "there is no call")
        verdict = Verdict(True) if called else fault
        return {"official": verdict, "strict": verdict}
    if called:
        fault = Verdict(False, "irrelevance_error:decoder_success", "there is a call")
        return {"official": fault, "strict": fault}
    verdict = Verdict(True)
    text = answer.text.strip()
    if not answer.calls and (not text or text.startswith(_INFERENCE_ERROR)):
        none = Verdict(False, "irrelevance_error:no_answer", "there is neither answer nor refusal")
        return {"official": verdict, "strict": none}
    return {"official": verdict, "strict": verdict}
