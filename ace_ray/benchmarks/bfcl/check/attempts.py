"""Texts in which a model tried to call a function, though no decoder reads the call.

Markup of tool calls, and JSON with a name and arguments, count wherever they stand. Calls in Python
count only at the beginning, behind at most one phrase that ends with a colon: refusals mention
functions, and give examples of calls that could be made.
"""

from __future__ import annotations

import re

from ace_ray.parsing import MAX_CODE

_MARKUP = re.compile(
    r"""
    <(?:tool_calls?|function_?calls?|functions|tool_use|toolcall)>\s*+(?:[\[{]|<(?:function|invoke))
    | <arg_key> | <function=\w | <(?:function|invoke|tool_call)\s++name\s*+=
    | \[TOOL_CALLS\]\s*+[\[{\w] | <\|python_tag\|>\s*+[\w\[{] | functools\[\s*+\{
    | <\|(?:tool_call|tool_calls_section|tool_call_argument)_begin\|> | <\|tool_call\|>\s*+[\[{]
    | <｜tool▁calls?▁begin｜> | <start_function_call>call: | \bto=functions\.\w
    | ^Action:.*+\n++Action\ Input:
    """,
    re.VERBOSE | re.IGNORECASE | re.MULTILINE,
)
"""Markup of tool calls that holds something; a tag that words mention holds nothing."""
_QUOTE = r"\\?[\"']"
_JSON = re.compile(
    rf"{_QUOTE}(?:name|function|tool_name|tool)({_QUOTE}\s*+:\s*+{_QUOTE})[\w.:/-]{{1,256}}{_QUOTE}"
    rf"\s*+,\s*+{_QUOTE}(?:arguments|parameters|params|args){_QUOTE}\s*+:"
    # The document of a function has these keys, too.
    rf"(?!\s*+\{{\s*+{_QUOTE}type{_QUOTE}\s*+:\s*+{_QUOTE}(?:dict|object){_QUOTE})"
    rf"|\{{\s*+{_QUOTE}arguments{_QUOTE}\s*+:\s*+\{{"
)
_REFUSALS = re.compile(
    rf"{_QUOTE}name{_QUOTE}\s*+:\s*+{_QUOTE}no_function{_QUOTE}|\A\[?out_of_domain\("
)
"""The calls by which Granite's and Raven's models refuse."""
_PHRASE = re.compile(r"[^.?:\n`\[({]{0,200}:[*\s]*+(?=[`\[])")
_LEAD = re.compile(r"(?:\s++|```(?:[a-z]++(?=\s))?|[`\"']|<\|\w++\|>)*+")
"""Before a call: blanks, a fence, quotes, tokens of a chat format."""
_NAME = r"[A-Za-z_][\w.\\-]*+"
_LIST = re.compile(
    rf"\[\s*+[{{(]?[\"'`]?{_NAME}\("
    rf"|\[\s*+\{{\s*+[\"']{_NAME}[\"']\s*+:\s*+\{{"
    rf"|(?:>>>)?{_NAME}\n\{{\s*+\""
)
"""A list of ``f(...)`` or ``{name: {...}}``, or a name on a line with its arguments below."""
_CALL = re.compile(rf"{_NAME}\(")
_ARGUMENTS = re.compile(r"\s*+(?:\*{0,2}\w++\s*+[=:]|[\"'{\[\d-])")
_BRACKETS = re.compile(r"\"(?:[^\"\\]++|\\.)*+\"?|'(?:[^'\\]++|\\.)*+'?|[\[({\])}]", re.DOTALL)
_REST = re.compile(r"[\s\]`;,.'\"]*+")


def attempts_call(text: str) -> bool:
    """Tell whether a text holds an attempted call, within its first `MAX_CODE` characters."""
    text = text[:MAX_CODE]
    answer, fenced = _after_lead(text)
    if _REFUSALS.search(answer):
        return False
    if _MARKUP.search(text) or _JSON.search(text):
        return True
    if phrase := _PHRASE.match(answer):
        answer, fenced = _after_lead(answer[phrase.end() :])
    if fenced:
        answer = answer.partition("```")[0]
    return _LIST.match(answer) is not None or _is_call(answer)


def _after_lead(text: str) -> tuple[str, bool]:
    """Return a text without what may stand before a call, and whether a fence was there."""
    lead = _LEAD.match(text)
    return (text[lead.end() :], "```" in lead[0]) if lead else (text, False)


def _is_call(text: str) -> bool:
    """Tell whether a text begins with calls ``f(...)``, perhaps cut, on lines of their own."""
    at = 0
    while call := _CALL.match(text, at):
        end = _closed(text, call.end())
        if end is None:  # cut, or a quote or bracket is missing
            return _ARGUMENTS.match(text, call.end()) is not None
        rest = _REST.match(text, end)
        at = rest.end() if rest else end
        if at == len(text) or "\n" in text[end:at]:
            return True
    return False


def _closed(text: str, at: int) -> int | None:
    """Find the end of the bracket that opened before ``at``, None where it is not closed."""
    depth = 1
    for match in _BRACKETS.finditer(text, at):
        depth += (match[0] in "[({") - (match[0] in "])}")
        if depth == 0:
            return match.end()
    return None
