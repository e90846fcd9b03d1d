"""The strict verdict on the three special categories: the problem, named exactly.

The prompts ask for one sentence each (upstream ``prompt_en.py`` and ``prompt_zh.py``):

- incomplete: ``Missing necessary parameters (a, b) for the api (Name)``;
- error_param: ``There is incorrect value (v) for the parameters (k) in the conversation history.``;
- irrelevant: ``Due to the limitations of the function, I cannot solve this problem.``

What counts is what the message claims (`claims`): other words for the same, in English or Chinese,
other text around them and several sentences of one kind are accepted. What the claims name, taken
together, must be exactly what is wrong: the APIs with the set of missing parameters of each, or the
set of (parameter, value) pairs. One sentence may list several parameters and, in the same order,
their values. Names and values stand in parentheses, quotes or brackets, lists of them with commas,
semicolons or "and"; the names that the candidates have may stand bare beside "api" and
"parameter". Denied claims and those of conditions, questions, examples and quotations are none; a
message that claims and denies the same says nothing. A thought is no part of the message.

Errors:

- ``detection_failed``: the problem is not claimed, or a function is called somewhere;
- ``correction_failed``: it is, and something else is named, or a problem of another kind is claimed
  too, or the claim is also denied;
- ``false_positive`` (irrelevant): anything but a refusal for what the functions cannot do, or a
  refusal with a call, with one of the other claims, or with its own denial.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ace_ray.benchmarks.acebench.check.claims import Claim, claims, names_of, said, words
from ace_ray.benchmarks.acebench.check.claims.fields import Names
from ace_ray.records import Entry, Verdict

_COMMAS = re.compile(r"[,，、]")
_SEPARATORS = re.compile(r"[,，、;；和与](?:\s{0,9}and\s)?|\sand\s", re.IGNORECASE)
_QUOTES = " \t\r\n'\"`‘’“”「」[]()（）"
# `name(key=`, `name()` or `[name(`; names start at a word boundary, so the search is linear.
_KEYWORD_OR_END = r"\(\s{0,9}(?:\)|[^\W\d]\w{0,100}\s{0,9}=(?!=))"
_CALL = re.compile(
    r"(?<![\w.])[^\W\d][\w.]{0,200}" + _KEYWORD_OR_END + r"|\[\s{0,9}[^\W\d][\w.]{0,200}\("
)
# `F()` as a name in a sentence, and `[F(k=...)]` with places left open: no calls.
_EMPTY_CALL = re.compile(r"[`'\"]?(?<![\w.])[^\W\d][\w.]{0,200}\(\s{0,9}\)")
_MENTIONS = re.compile(
    r"(?:\b(?:apis?|functions?|tools?|for|of|and|or|like|as|at|than|e\.g\.|the)|[和或如与、]|接口|函数)"
    r"[\s(,:（]{0,3}$"
)
_TO_FILL_IN = re.compile(
    r"\[?(?<![\w.])[^\W\d][\w.]{0,200}\(\s{0,9}\w{1,100}\s{0,9}=\s{0,9}['\"]?(?:\.\.\.|…|<)"
)
_JSON_CALL = re.compile(r"""["']name["']\s{0,9}:\s{0,9}["']([^"']{1,200})["']""")


def judge(entry: Entry, output: str | None) -> Verdict:
    """The verdict on a row of a special category."""
    text = output or ""
    names = names_of(entry.data.get("function"))
    all_claims = claims(text, names)
    if entry.category == "special_irrelevant":
        return _irrelevant(entry, text, all_claims)
    kind, other = (
        ("missing", "wrong") if entry.category == "special_incomplete" else ("wrong", "missing")
    )
    claimed = [claim for claim in all_claims if claim.kind == kind and claim.status == "asserted"]
    if not claimed:
        return Verdict(False, "detection_failed", "the problem is not pointed out")
    if _calls(entry, said(text)):
        return Verdict(False, "detection_failed", "a function is called")
    if any(claim.names and not claim.guessed for claim in claimed):
        claimed = [claim for claim in claimed if not claim.guessed]
    answers = any(claim.answer for claim in claimed)
    if any(_is_another(c, {other, "limits"}, beside=answers) for c in all_claims):
        return Verdict(False, "correction_failed", "a problem of another kind is pointed out too")
    if kind == "wrong":
        right = _names_values(claimed, entry.gold)
    else:
        right = _names_missing(claimed, entry.gold, said(text), names)
    if not right:
        return Verdict(False, "correction_failed", "not exactly what is wrong is named")
    if any(_takes_back(claim, kind, entry.gold) for claim in all_claims):
        return Verdict(False, "correction_failed", "what is pointed out is denied as well")
    return Verdict(True)


def _irrelevant(entry: Entry, text: str, all_claims: Sequence[Claim]) -> Verdict:
    reasons = [claim for claim in all_claims if claim.kind in ("limits", "lacks")]
    refusals = [claim for claim in all_claims if claim.kind in ("limits", "unable")]
    spoken = said(text).lower()
    for_limits = any(claim.status == "asserted" for claim in reasons)
    unable = any(claim.status == "asserted" for claim in refusals)
    if not for_limits and (not unable or words.OTHER_REASON.search(spoken)):
        return Verdict(False, "false_positive", "the output is not a refusal")
    if _calls(entry, said(text)):
        return Verdict(False, "false_positive", "a function is called")
    if words.ANSWERED.search(spoken):
        return Verdict(False, "false_positive", "an answer is given")
    if any(_is_another(c, {"missing", "wrong"}) for c in all_claims):
        return Verdict(False, "false_positive", "a problem of another kind is pointed out too")
    able = any(claim.kind == "able" and claim.status == "asserted" for claim in all_claims)
    if able or any(claim.status == "denied" for claim in refusals):
        return Verdict(False, "false_positive", "the refusal is denied as well")
    return Verdict(True)


def _is_another(claim: Claim, kinds: set[str], beside: bool = True) -> bool:
    """Whether a problem of another kind is pointed out: one that is named, or the functions' limits
    where these do not stand ``beside`` the answer."""
    if claim.status != "asserted" or claim.kind not in kinds:
        return False
    if claim.kind == "limits":
        return claim.answer or not beside
    return claim.names and not claim.guessed


def _takes_back(claim: Claim, kind: str, gold: Mapping[str, Sequence[Any]]) -> bool:
    """Whether a claim denies the gold problem: it names nothing, or a part of it."""
    if claim.kind != kind or claim.status != "denied" or (claim.of_others and not claim.names):
        return False
    named = {name for listed in claim.params for name in _split(listed, _SEPARATORS)}
    if kind == "missing":
        return not named or not named.isdisjoint(*gold.values())
    return not named or not named.isdisjoint(gold)


def _calls(entry: Entry, text: str) -> bool:
    """Whether a function is called: ``F(k=``, ``F()``, ``[F(``, or as JSON.

    Only a candidate's name may have blanks after it; ``F (a)`` in a sentence is a mention.
    """
    if "(" in text:
        text = _EMPTY_CALL.sub(_without_mention, _TO_FILL_IN.sub(" ", text))
        if _CALL.search(text):
            return True
    functions = entry.data.get("function")
    names = [
        function["name"]
        for function in (functions if isinstance(functions, list) else [functions])
        if isinstance(function, dict) and isinstance(function.get("name"), str)
    ]
    if any(name in names for name in _JSON_CALL.findall(text)):
        return True
    return any(_called(name, text) for name in names if name and name in text)


def _without_mention(match: re.Match[str]) -> str:
    before = match.string[max(0, match.start() - 30) : match.start()]
    return " " if _MENTIONS.search(before.lower()) else match.group()


def _called(name: str, text: str) -> bool:
    spaced = rf"{re.escape(name)}\s{{0,9}}"
    pattern = rf"(?<![\w.]){spaced}{_KEYWORD_OR_END}|\[\s{{0,9}}{spaced}\("
    return re.search(pattern, text) is not None


def _names_missing(
    claimed: Sequence[Claim], gold: Mapping[str, list[str]], text: str, names: Names
) -> bool:
    named: dict[str, set[str]] = {}
    nameless: set[str] = set()
    for claim in claimed:
        params = {name for listed in claim.params for name in _split(listed, _SEPARATORS)}
        if claim.api is None:
            nameless |= params
        elif params:
            named.setdefault(_bare(claim.api), set()).update(params)
    mentioned = {name for name in names.apis if name in text} if nameless and not named else set()
    if len(mentioned) == 1:
        named[mentioned.pop()] = nameless
    elif nameless and len(named) == 1:
        named[next(iter(named))] |= nameless
    elif nameless:
        return False
    return named == {api: set(params) for api, params in gold.items()}


def _names_values(claimed: Sequence[Claim], gold: Mapping[str, list[Any]]) -> bool:
    """Values may hold commas and "and", so the whole is compared before its parts."""
    wanted = {(param, _bare(str(value))) for param, values in gold.items() for value in values}
    named: set[tuple[str, str]] = set()
    for claim in claimed:
        if not claim.params and not claim.values:
            continue
        params = [name for listed in claim.params for name in _split(listed, _SEPARATORS)]
        if len(set(params)) == 1:  # named twice
            params = params[:1]
        values = ", ".join(_bare(value) for value in claim.values)
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
        named |= next((candidate for candidate in pairs if candidate <= wanted), pairs[0])
    return named == wanted


def _split(text: str, separators: re.Pattern[str]) -> list[str]:
    return [_bare(part) for part in separators.split(_bare(text)) if _bare(part)]


def _bare(text: str) -> str:
    return text.strip(_QUOTES)
