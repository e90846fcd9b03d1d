"""Texts in which a model tried to call a function, though no decoder reads the call.

Markup of tool calls and JSON with a name and arguments count wherever they stand. Calls in Python
count where the answer begins with them, or ends with a list of them on a line of its own: refusals
mention functions and give examples, too.
"""

from __future__ import annotations

import re

from ace_ray.calls import MAX_CODE

_MARKUP = re.compile(
    r"""
    <(?:tool_calls?|function_?calls?|functions|tool_use|toolcall)>\s*+(?:[\[{]|<(?!/))
    | <arg_key> | <function=\w | <(?:function|invoke|tool_call)\s++name\s*+=
    | \[TOOL_CALLS\]\s*+[\[{\w] | <\|python_tag\|>\s*+[\w\[{] | functools\[\s*+\{
    | <\|(?:tool_call|tool_calls_section|tool_call_argument)_begin\|> | <\|tool_call\|>\s*+[\[{]
    | <｜tool▁calls?▁begin｜> | <start_function_call>call: | \bto=functions\.\w
    | ^Action:.*+\n++Action\ Input:
    """,
    re.VERBOSE | re.IGNORECASE | re.MULTILINE,
)
"""Where markup of tool calls begins to hold something; a tag that words mention holds nothing."""
_QUOTE = r"\\?[\"']"
_JSON = re.compile(
    rf"{_QUOTE}(?:name|function|tool_name|tool)({_QUOTE}\s*+:\s*+{_QUOTE})[\w.:/-]{{1,256}}{_QUOTE}"
    rf"\s*+,\s*+{_QUOTE}(?:arguments|parameters|args){_QUOTE}\s*+:"
    # The document of a function has these keys, too.
    rf"(?!\s*+\{{\s*+{_QUOTE}type{_QUOTE}\s*+:\s*+{_QUOTE}(?:dict|object){_QUOTE})"
    rf"|\{{\s*+{_QUOTE}arguments{_QUOTE}\s*+:\s*+\{{",
)
_REFUSALS = re.compile(
    rf"{_QUOTE}name{_QUOTE}\s*+:\s*+{_QUOTE}no_function{_QUOTE}|^out_of_domain\("
)
"""The calls by which Granite's and Raven's models refuse."""
_LEAD = re.compile(r"(?:\s++|`++(?:[a-z_]++(?=\s))?|<\|\w++\|>)*+")
"""Before a call: blanks, a fence, tokens of a chat format."""
_LIST = re.compile(r"\[\s*+[\"']?[A-Za-z_][\w.]*+\(")
_CALL = re.compile(r"[A-Za-z_][\w.]*+\(")
_ARGUMENTS = re.compile(r"\s*+(?:\*{0,2}\w++\s*+[=:]|[\"'{\[\d-])")
_BRACKETS = re.compile(r"\"(?:[^\"\\]++|\\.)*+\"|'(?:[^'\\]++|\\.)*+'|[\[({\])}]", re.DOTALL)
_REST = re.compile(r"[\s\]`;,.'\"]*+")


def attempts_call(text: str) -> bool:
    """Whether a text holds an attempted call; of a long one only its first part is looked at."""
    text = text[:MAX_CODE]
    begin = _LEAD.match(text)
    answer = text[begin.end() :] if begin else text
    if _REFUSALS.search(answer):
        return False
    if _MARKUP.search(text) or _JSON.search(text) or _LIST.match(answer):
        return True
    last = answer.rstrip("`\n ").rpartition("\n")[2]
    if last.endswith(("]", ")")) and _LIST.match(last.lstrip("` ")):
        return True
    return _is_call(answer)


def _is_call(text: str) -> bool:
    """Whether a text is calls ``f(...)``, perhaps cut, and nothing else."""
    at = 0
    while call := _CALL.match(text, at):
        end = _closed(text, call.end())
        if end is None:  # cut, or a quote or bracket is missing
            return _ARGUMENTS.match(text, call.end()) is not None
        rest = _REST.match(text, end)
        at = rest.end() if rest else end
        if at == len(text):
            return True
    return False


def _closed(text: str, at: int) -> int | None:
    """Where the bracket that opened before ``at`` is closed, None where it is not."""
    depth = 1
    for match in _BRACKETS.finditer(text, at):
        depth += (match[0] in "[({") - (match[0] in "])}")
        if depth == 0:
            return match.end()
    return None
