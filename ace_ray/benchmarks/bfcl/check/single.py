"""Compute the verdicts on one answer of a single-turn category (upstream ``eval_runner.py``).

``official`` is upstream's verdict and error type. ace_ray adds two error types, for answers on
which upstream gives no verdict. ``official_crash``: upstream's checker raises, which ends its run.
``official_unsafe``: upstream would evaluate text of the model that is more than bounded arithmetic
on literals.

``strict`` differs only in these points:

- A positional argument is bound to the parameter at its position in the function's documentation;
  upstream drops it. An argument beyond the last parameter is an error, and so is a parameter that
  is given twice, by position and by name.
- A call that names a parameter twice is wrong; upstream takes the last value.
- A Python keyword is accepted as an argument's name (`decode.read_with_keywords`).
- In parallel categories, calls are assigned to the expected calls so that as many as possible
  match. Upstream gives each expected call the first call that matches it, even if a later expected
  call matches only that call.
- In the irrelevance categories, a text without a character or the message of a failed inference
  is not a refusal: ``irrelevance_error:no_answer``. An attempted call that could not be decoded
  (`attempts_call`) is not a refusal either: ``irrelevance_error:unreadable_call``. An empty
  list in a result file of bfcl-eval is a refusal, since it may stand for a text without calls.

In ``irrelevance`` and ``live_irrelevance`` an answer is correct if it contains no call, in
``live_relevance`` if it contains one. All answers of these categories are read as Python."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ace_ray.benchmarks.bfcl.categories import (
    DEFAULT,
    FORMAT_SENSITIVITY,
    RELEVANCE,
    Form,
    language_of,
)
from ace_ray.benchmarks.bfcl.check.official import Fault, Rules, no_match, shorten
from ace_ray.benchmarks.bfcl.decode import are_calls, read_answer, read_with_keywords
from ace_ray.benchmarks.bfcl.decode.calls import Answer, DecodedCall
from ace_ray.parsing.constant_folding import Refusal
from ace_ray.parsing.syntax import MAX_CODE, NotCalls
from ace_ray.types import Verdict

_FAILED = "ast_decoder:decoder_failed"
_MALFORMED = "ast_decoder:decoder_wrong_output_format"


def check_single(
    category: str,
    functions: Sequence[Mapping[str, Any]],
    gold: Sequence[Mapping[str, Any]] | None,
    answer: Answer,
    form: Form = DEFAULT,
) -> Mapping[str, Verdict]:
    """Return the verdicts of both rule sets on an answer; never raises because of the answer.

    For format sensitivity, ``category`` is the category of the repeated entry. ``functions`` are
    the functions' documentation without hints, ``gold`` the published answers; neither is validated
    here. Raises `ValueError` for ``format_sensitivity`` itself, and `UserError` for Java and
    JavaScript if tree-sitter is not installed."""
    if category in RELEVANCE:
        return _check_relevance(category, answer)
    if category == FORMAT_SENSITIVITY:
        raise ValueError("pass the category of the repeated entry, not format_sensitivity")
    language = language_of(category)
    rules = Rules(category, functions, gold or (), language, native=answer.calls is not None)
    try:
        calls = read_answer(answer, form, language)
    except NotCalls as error:
        failed = _error_verdict(error)
        try:
            calls = read_with_keywords(answer, form, language)
        except NotCalls:
            return _verdict_pair(failed)
        except Refusal as refused:
            return {"official": failed, "strict": _error_verdict(refused)}
        return {"official": failed, "strict": _verdict(_strict_fault, rules, calls)}
    except Refusal as error:
        return _verdict_pair(_error_verdict(error))
    if calls is None or not all(isinstance(call.args, dict) for call in calls):
        return _verdict_pair(Verdict(False, _MALFORMED, "the decoded value is not a list of calls"))
    official = _verdict(Rules.fault, rules, calls)
    if any(call.bare > 1 for call in calls):
        official = Verdict(False, _FAILED, "no calls: several positional arguments")
    bound_otherwise = any(call.positional or call.repeated is not None for call in calls)
    if bound_otherwise or (rules.is_parallel and not official.valid):
        return {"official": official, "strict": _verdict(_strict_fault, rules, calls)}
    return _verdict_pair(official)


def _strict_fault(rules: Rules, calls: Sequence[DecodedCall]) -> Fault | None:
    if fault := rules.count_fault(calls):
        return fault
    bound_calls = []
    for call in calls:
        bound = _bind(rules, call)
        if not isinstance(bound, DecodedCall):
            return bound
        bound_calls.append(bound)
    return _parallel_fault(rules, bound_calls) if rules.is_parallel else rules.fault(bound_calls)


def _verdict(
    check: Callable[[Rules, Sequence[DecodedCall]], Fault | None],
    rules: Rules,
    calls: Sequence[DecodedCall],
) -> Verdict:
    try:
        fault = check(rules, calls)
    except (*RAISES, Refusal) as error:
        return _error_verdict(error)
    return Verdict(True) if fault is None else Verdict(False, *fault)


def _verdict_pair(verdict: Verdict) -> Mapping[str, Verdict]:
    return {"official": verdict, "strict": verdict}


def _error_verdict(error: Exception) -> Verdict:
    text = str(error)[:200]
    if isinstance(error, NotCalls):
        return Verdict(False, _FAILED, f"no calls: {text}")
    if isinstance(error, Refusal):
        return Verdict(False, "official_unsafe", f"{text}, which is not evaluated")
    crash = f"{type(error).__name__} {text} in upstream's checker"
    return Verdict(False, "official_crash", crash)


# Exceptions that upstream's checker may raise, RecursionError and NotImplementedError included.
RAISES = (LookupError, AttributeError, TypeError, ValueError, ArithmeticError, RuntimeError)


def _bind(rules: Rules, call: DecodedCall) -> DecodedCall | Fault:
    """Return a call with each positional argument under its parameter's name, or the fault in the
    call.

    A call of a function that was not offered is returned unchanged. Raises `NotCalls` or `Refusal`
    for an argument that cannot be evaluated."""
    function = next((f for f in rules.functions if rules.name_of(f) == call.name), None)
    if function is None:
        return call
    unexpected = "simple_function_checker:unexpected_param"
    if call.repeated is not None:
        return unexpected, f"the parameter {shorten(call.repeated)} is given twice"
    if not call.positional:
        return call
    names = list(function["parameters"]["properties"])
    args: dict[Any, Any] = dict(call.args)
    if call.bare:
        args.pop(None, None)
    for index, make in call.positional.items():
        value = make()
        if index >= len(names):
            return unexpected, f"argument {index + 1} exceeds the {len(names)} parameters"
        if names[index] in args:
            return unexpected, f"the parameter {shorten(names[index])} is given twice"
        args[names[index]] = value
    return DecodedCall(call.name, args)


def _parallel_fault(rules: Rules, calls: Sequence[DecodedCall]) -> Fault | None:
    """Return None if every expected call can be assigned a matching call, else the fault.

    There must be as many calls as expected. A call does not match if the checker raises on it. If
    no complete assignment exists, raise the last such exception instead of returning a fault."""
    raised: Exception | None = None
    fitting: list[list[int]] = []
    for gold_index in range(len(rules.gold)):
        fitting.append([])
        for number, call in enumerate(calls):
            try:
                if rules.call_fault(call, gold_index) is None:
                    fitting[gold_index].append(number)
            except RAISES as error:
                raised = error
    owner: dict[int, int] = {}
    for gold_index in range(len(fitting)):
        if not _assign(gold_index, fitting, owner, set()):
            if raised is not None:
                raise raised
            return no_match(rules.gold[gold_index])
    return None


def _assign(index: int, fitting: list[list[int]], owner: dict[int, int], tried: set[int]) -> bool:
    """Assign a call to the expected call at index ``index``, and reassign other calls if necessary.
    Return whether this was possible."""
    for number in fitting[index]:
        if number not in tried:
            tried.add(number)
            if number not in owner or _assign(owner[number], fitting, owner, tried):
                owner[number] = index
                return True
    return False


# Start of the output that upstream stores if inference failed.
_INFERENCE_ERROR = "Error during inference:"


def _check_relevance(category: str, answer: Answer) -> Mapping[str, Verdict]:
    """Return the verdicts of both rule sets on an answer in a category of `RELEVANCE`.

    For upstream, an answer that does not decode to calls is a refusal. Under ``strict``, a call
    with a Python keyword as an argument's name is a call; see `_refusal`."""
    undecoded = False
    try:
        called = are_calls(read_answer(answer, DEFAULT, "python"))
    except NotCalls:
        called, undecoded = False, True
    except Refusal as refused:
        return _verdict_pair(_error_verdict(refused))
    official = _relevance_verdict(category, called)
    if undecoded:
        try:
            called = are_calls(read_with_keywords(answer, DEFAULT, "python"))
        except NotCalls:
            pass
        except Refusal as refused:
            return {"official": official, "strict": _error_verdict(refused)}
    strict = _relevance_verdict(category, called)
    if strict.valid and not called:
        strict = _refusal(answer)
    return {"official": official, "strict": strict}


def _refusal(answer: Answer) -> Verdict:
    """Return the ``strict`` verdict on an answer without decoded calls."""
    text = answer.text
    if answer.calls or (text and (answer.unreadable or attempts_call(text))):
        problem = "the answer attempts a call that cannot be read"
        return Verdict(False, "irrelevance_error:unreadable_call", problem)
    # A blank was generated: it is an answer without a call.
    if text is None or (text and not text.strip().startswith(_INFERENCE_ERROR)):
        return Verdict(True)
    return Verdict(False, "irrelevance_error:no_answer", "the answer is not a call or a refusal")


def _relevance_verdict(category: str, called: bool) -> Verdict:
    if category == "live_relevance":
        fault = Verdict(False, "relevance_error:decoder_failed", "there is no call")
        return Verdict(True) if called else fault
    fault = Verdict(False, "irrelevance_error:decoder_success", "there is a call")
    return fault if called else Verdict(True)


# The patterns below find attempted calls that no decoder reads. Markup of tool calls, and JSON with
# a name and arguments, count anywhere in an answer. Python calls count only at the start, after at
# most one phrase that ends with a colon, because refusals mention functions and example calls.
# Markup of tool calls with content. A tag without content may only be mentioned in a sentence.
_MARKUP = re.compile(
    r"""
    <(?:tool_calls?|function_?calls?|functions|tool_use|toolcall)>\s*+(?:[\[{]|<(?:function|invoke))
    | <arg_key> | <function=\w | <(?:function|invoke|tool_call)\s++name\s*+=
    | \[TOOL_CALLS\]\s*+[\[{\w] | <\|python_tag\|>\s*+[\w\[{] | functools\[\s*+\{
    | <\|(?:tool_call|tool_calls_section|tool_call_argument)_begin\|> | <\|tool_call\|>\s*+[\[{]
    | <｜tool▁calls?▁begin｜> | <start_function_call>call: | \bto=functions\.\w
    | <\|tool_call_start\|>\s*+[`\[{\w]
    | ^Action:.*+\n++Action\ Input:
    """,
    re.VERBOSE | re.IGNORECASE | re.MULTILINE,
)
_QUOTE = r"\\?[\"']"
_JSON = re.compile(
    rf"{_QUOTE}(?:name|function|tool_name|tool)({_QUOTE}\s*+:\s*+{_QUOTE})[\w.:/-]{{1,256}}{_QUOTE}"
    rf"\s*+,\s*+{_QUOTE}(?:arguments|parameters|params|args){_QUOTE}\s*+:"
    # The documentation of a function has these keys too, so its form is excluded here.
    rf"(?!\s*+\{{\s*+{_QUOTE}type{_QUOTE}\s*+:\s*+{_QUOTE}(?:dict|object){_QUOTE})"
    rf"|\{{\s*+{_QUOTE}arguments{_QUOTE}\s*+:\s*+\{{"
)
# Calls with which Granite and Raven models refuse.
_REFUSALS = re.compile(
    rf"{_QUOTE}name{_QUOTE}\s*+:\s*+{_QUOTE}no_function{_QUOTE}|\A\[?out_of_domain\("
)
_PHRASE = re.compile(r"[^.?:\n`\[({]{0,200}:[*\s]*+(?=[`\[])")
# Text that may precede a call: whitespace, a code fence, quotes, special tokens of a chat format.
_LEAD = re.compile(r"(?:\s++|```(?:[a-z]++(?=\s))?|[`\"']|<\|\w++\|>)*+")
_NAME = r"[A-Za-z_][\w.\\-]*+"
# A list of ``f(...)`` or ``{name: {...}}``, or a name on one line and its arguments on the next.
_LIST = re.compile(
    rf"\[\s*+[{{(]?[\"'`]?{_NAME}\("
    rf"|\[\s*+\{{\s*+[\"']{_NAME}[\"']\s*+:\s*+\{{"
    rf"|(?:>>>)?{_NAME}\n\{{\s*+\""
)
_CALL = re.compile(rf"{_NAME}\(")
_ARGUMENTS = re.compile(r"\s*+(?:\*{0,2}\w++\s*+[=:]|[\"'{\[\d-])")
_BRACKETS = re.compile(r"\"(?:[^\"\\]++|\\.)*+\"?|'(?:[^'\\]++|\\.)*+'?|[\[({\])}]", re.DOTALL)
_REST = re.compile(r"[\s\]`;,.'\"]*+")


def attempts_call(text: str) -> bool:
    """Return whether the first `MAX_CODE` characters of an answer contain an attempted call."""
    text = text[:MAX_CODE]
    answer, fenced = _strip_lead(text)
    if _REFUSALS.search(answer):
        return False
    if _MARKUP.search(text) or _JSON.search(text):
        return True
    if phrase := _PHRASE.match(answer):
        answer, fenced = _strip_lead(answer[phrase.end() :])
    if fenced:
        answer = answer.partition("```")[0]
    return _LIST.match(answer) is not None or _is_call(answer)


def _strip_lead(text: str) -> tuple[str, bool]:
    """Return the text after the start that `_LEAD` matches, and whether that start has a fence."""
    lead = _LEAD.match(text)
    return (text[lead.end() :], "```" in lead[0]) if lead else (text, False)


def _is_call(text: str) -> bool:
    """Return whether a text starts with a line of calls ``f(...)``; the last may be cut off."""
    at = 0
    while call := _CALL.match(text, at):
        end = _bracket_end(text, call.end())
        if end is None:  # cut, or a quote or bracket is missing
            return _ARGUMENTS.match(text, call.end()) is not None
        tail = _REST.match(text, end)
        at = tail.end() if tail else end
        if at == len(text) or "\n" in text[end:at]:
            return True
    return False


def _bracket_end(text: str, at: int) -> int | None:
    """Return the index just after the closing bracket of a pair; None if there is no such bracket.
    ``at`` is the index just after the opening bracket."""
    depth = 1
    for match in _BRACKETS.finditer(text, at):
        depth += (match[0] in "[({") - (match[0] in "])}")
        if depth == 0:
            return match.end()
    return None
