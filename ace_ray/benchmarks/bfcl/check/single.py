"""Verdicts on one answer of a single-turn category (upstream ``eval_runner.py``).

``official`` is upstream's verdict and error type. Two error types are ours, for answers on which
upstream gives no verdict: ``official_crash``, where its checker raises and its run ends, and
``official_unsafe``, where it would evaluate text of the model beyond literal arithmetic or without
bounds. ``strict`` differs as `strict` and `relevance` say, and in nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ace_ray.benchmarks.bfcl.answers import Answer
from ace_ray.benchmarks.bfcl.categories import FORMAT_SENSITIVITY, RELEVANCE, language_of
from ace_ray.benchmarks.bfcl.check.official import Rules
from ace_ray.benchmarks.bfcl.check.relevance import check_relevance
from ace_ray.benchmarks.bfcl.check.strict import RAISES, bound, parallel_fault
from ace_ray.benchmarks.bfcl.check.values import Fault
from ace_ray.benchmarks.bfcl.decode import Read, read_any, read_with_keywords
from ace_ray.benchmarks.bfcl.forms import DEFAULT, Form
from ace_ray.calls import NotCalls, Refused
from ace_ray.records import Verdict

_FAILED = "ast_decoder:decoder_failed"
_MALFORMED = "ast_decoder:decoder_wrong_output_format"


def check_single(
    category: str,
    functions: Sequence[Mapping[str, Any]],
    gold: Sequence[Mapping[str, Any]] | None,
    answer: Answer,
    form: Form = DEFAULT,
) -> Mapping[str, Verdict]:
    """The verdicts of both rule sets.

    ``category`` may be the id of an entry in it; of format sensitivity it is that of the original
    one. ``functions`` are the documents without hints, ``gold`` the answers as published; both are
    trusted to have upstream's form. Raises `ValueError` for ``format_sensitivity`` itself, and
    `UserError` for Java and JavaScript where tree-sitter is not installed; nothing for any answer.
    """
    if category in RELEVANCE:
        return check_relevance(category, answer)
    if category == FORMAT_SENSITIVITY:
        raise ValueError("the category of the original entry decides how an answer is judged")
    language = language_of(category)
    rules = Rules(category, functions, gold or (), language, native=answer.calls is not None)
    try:
        calls = read_any(answer, form, language)
    except NotCalls as error:
        failed = Verdict(False, _FAILED, f"no calls: {str(error)[:200]}")
        return {"official": failed, "strict": _with_keywords(rules, answer, form) or failed}
    except Refused as error:
        return _both(_unsafe(error))
    if calls is None or not all(isinstance(call.args, dict) for call in calls):
        return _both(Verdict(False, _MALFORMED, "what was decoded is no list of calls"))
    official = _official(rules, calls)
    bound_otherwise = any(call.positional or call.repeated is not None for call in calls)
    if bound_otherwise or (rules.parallel and not official.valid):
        return {"official": official, "strict": _strict(rules, calls)}
    return _both(official)


def _official(rules: Rules, calls: Sequence[Read]) -> Verdict:
    if any(call.bare > 1 for call in calls):
        return Verdict(False, _FAILED, "no calls: several arguments without a name")
    try:
        return _verdict(rules.fault(calls))
    except RAISES as error:
        return _crash(error)


def _with_keywords(rules: Rules, answer: Answer, form: Form) -> Verdict | None:
    try:
        calls = read_with_keywords(answer, form, rules.language)
    except NotCalls:
        return None
    except Refused as error:
        return _unsafe(error)
    return _strict(rules, calls)


def _strict(rules: Rules, calls: Sequence[Read]) -> Verdict:
    try:
        if fault := rules.count_fault(calls):
            return _verdict(fault)
        named = []
        for call in calls:
            found = bound(rules, call)
            if not isinstance(found, Read):
                return _verdict(found)
            named.append(found)
        return _verdict(parallel_fault(rules, named) if rules.parallel else rules.fault(named))
    except NotCalls as error:
        return Verdict(False, _FAILED, f"no calls: {str(error)[:200]}")
    except Refused as error:
        return _unsafe(error)
    except RAISES as error:
        return _crash(error)


def _verdict(fault: Fault | None) -> Verdict:
    return Verdict(True) if fault is None else Verdict(False, *fault)


def _both(verdict: Verdict) -> Mapping[str, Verdict]:
    return {"official": verdict, "strict": verdict}


def _unsafe(error: Refused) -> Verdict:
    return Verdict(False, "official_unsafe", f"{str(error)[:200]}, which is not evaluated")


def _crash(error: Exception) -> Verdict:
    said = f"{type(error).__name__} {str(error)[:200]}"
    return Verdict(False, "official_crash", f"{said} in upstream's checker")
