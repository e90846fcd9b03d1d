"""The strict verdict on the three special categories: the problem, named exactly.

The prompts ask for one sentence each (upstream ``prompt_en.py`` and ``prompt_zh.py``):

- incomplete: ``Missing necessary parameters (a, b) for the api (Name)``;
- error_param: ``There is incorrect value (v) for the parameters (k) in the conversation history.``;
- irrelevant: ``Due to the limitations of the function, I cannot solve this problem.``

Accepted around and within a sentence: ASCII or full-width parentheses, commas and semicolons, "and"
between names, any case of its fixed words, quotes around a name or value, list brackets and other
text around it, several sentences of one kind. What the sentences name, taken together, must be
exactly what is wrong: the APIs with the set of missing parameters of each, or the set of
(parameter, value) pairs. One sentence may list several parameters and, in the same order, their
values.

Errors:

- ``detection_failed``: the sentence is not there, or a function is called somewhere;
- ``correction_failed``: it is there and names something else, or a sentence of another kind is too;
- ``false_positive`` (irrelevant): anything but a refusal, or a refusal with a call or with one of
  the other sentences. A refusal has "cannot solve this problem" or "limitations of the function".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ace_ray.records import Entry, Verdict

# The quantifiers are bounded so that a text of repeated openings costs no more than its length.
_MISSING = re.compile(
    r"missing\s{1,9}necessary\s{1,9}parameters?\s{0,9}[(（]([^()（）]{0,2000})[)）]"
    r"\s{0,9}for\s{1,9}the\s{1,9}api\s{0,9}[(（]([^()（）]{0,300})[)）]",
    re.IGNORECASE,
)
_INCORRECT = re.compile(
    r"there\s{1,9}is\s{1,9}(?:an\s{1,9})?incorrect\s{1,9}value\s{0,9}[(（](.{0,500}?)[)）]"
    r"\s{0,9}for\s{1,9}the\s{1,9}parameters?\s{0,9}[(（]([^()（）]{0,500})[)）]",
    re.IGNORECASE | re.DOTALL,
)
_SAYS_MISSING = re.compile(r"missing\s{1,9}necessary\s{1,9}parameter", re.IGNORECASE)
_SAYS_INCORRECT = re.compile(
    r"there\s{1,9}is\s{1,9}(?:an\s{1,9})?incorrect\s{1,9}value", re.IGNORECASE
)
_REFUSES = re.compile(r"cannot solve this problem|limitations of the function", re.IGNORECASE)
_COMMAS = re.compile(r"[,，、]")
_SEPARATORS = re.compile(r"[,，、;；和与](?:\s{0,9}and\s)?|\sand\s", re.IGNORECASE)
_QUOTES = " \t\r\n'\"`‘’“”「」[]"
# `name(key=`, `name()` or `[name(`; names start at a word boundary, so the search is linear.
_KEYWORD_OR_END = r"\(\s{0,9}(?:\)|[^\W\d]\w{0,100}\s{0,9}=(?!=))"
_CALL = re.compile(
    r"(?<![\w.])[^\W\d][\w.]{0,200}" + _KEYWORD_OR_END + r"|\[\s{0,9}[^\W\d][\w.]{0,200}\("
)
_JSON_CALL = re.compile(r"""["']name["']\s{0,9}:\s{0,9}["']([^"']{1,200})["']""")


def judge(entry: Entry, output: str | None) -> Verdict:
    """The verdict on a row of a special category."""
    text = output or ""
    if entry.category == "special_irrelevant":
        return _irrelevant(entry, text)
    incomplete = entry.category == "special_incomplete"
    says, says_other = (
        (_SAYS_MISSING, _SAYS_INCORRECT) if incomplete else (_SAYS_INCORRECT, _SAYS_MISSING)
    )
    if not says.search(text):
        return Verdict(False, "detection_failed", "the problem is not pointed out")
    if _calls(entry, text):
        return Verdict(False, "detection_failed", "a function is called")
    if says_other.search(text) or _REFUSES.search(text):
        return Verdict(False, "correction_failed", "a problem of another kind is pointed out too")
    named = _names_missing(text, entry.gold) if incomplete else _names_values(text, entry.gold)
    if not named:
        return Verdict(False, "correction_failed", "not exactly what is wrong is named")
    return Verdict(True)


def _irrelevant(entry: Entry, text: str) -> Verdict:
    if not _REFUSES.search(text):
        return Verdict(False, "false_positive", "the output is not a refusal")
    if _calls(entry, text):
        return Verdict(False, "false_positive", "a function is called")
    if _SAYS_MISSING.search(text) or _SAYS_INCORRECT.search(text):
        return Verdict(False, "false_positive", "a problem of another kind is pointed out too")
    return Verdict(True)


def _calls(entry: Entry, text: str) -> bool:
    """Whether a function is called: ``F(k=``, ``F()``, ``[F(``, or as JSON.

    Only a candidate's name may have blanks after it; ``F (a)`` in a sentence is a mention.
    """
    if "(" in text and _CALL.search(text):
        return True
    functions = entry.data.get("function")
    names = [
        function["name"]
        for function in (functions if isinstance(functions, list) else [functions])
        if isinstance(function, dict) and isinstance(function.get("name"), str)
    ]
    if any(found in names for found in _JSON_CALL.findall(text)):
        return True
    return any(_called(name, text) for name in names if name and name in text)


def _called(name: str, text: str) -> bool:
    spaced = rf"{re.escape(name)}\s{{0,9}}"
    pattern = rf"(?<![\w.]){spaced}{_KEYWORD_OR_END}|\[\s{{0,9}}{spaced}\("
    return re.search(pattern, text) is not None


def _names_missing(text: str, gold: Mapping[str, list[str]]) -> bool:
    named: dict[str, set[str]] = {}
    for params, api in _MISSING.findall(text):
        named.setdefault(_bare(api), set()).update(_split(params, _SEPARATORS))
    return named == {api: set(params) for api, params in gold.items()}


def _names_values(text: str, gold: Mapping[str, list[Any]]) -> bool:
    """Values may hold commas and "and", so the whole is compared before its parts."""
    wanted = {(param, _bare(str(value))) for param, values in gold.items() for value in values}
    named: set[tuple[str, str]] = set()
    for values, keys in _INCORRECT.findall(text):
        params = _split(keys, _SEPARATORS)
        if len(params) != 1:
            parts = _split(values, _COMMAS)
            if len(parts) != len(params):
                parts = _split(values, _SEPARATORS)
            if len(parts) != len(params):
                return False
            named.update(zip(params, parts, strict=True))
            continue
        readings = ([_bare(values)], _split(values, _COMMAS), _split(values, _SEPARATORS))
        pairs = [{(params[0], part) for part in reading} for reading in readings]
        named |= next((found for found in pairs if found <= wanted), pairs[0])
    return named == wanted


def _split(text: str, separators: re.Pattern[str]) -> list[str]:
    return [_bare(part) for part in separators.split(text) if _bare(part)]


def _bare(text: str) -> str:
    return text.strip(_QUOTES)
