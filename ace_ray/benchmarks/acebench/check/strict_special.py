"""Return the strict verdict on the three special categories: the prompt's sentence, exactly.

The prompts ask for one sentence each (upstream ``prompt_en.py`` and ``prompt_zh.py``):

- incomplete: ``Missing necessary parameters (a, b) for the api (Name)``;
- error_param: ``There is incorrect value (v) for the parameters (k) in the conversation history.``;
- irrelevant: ``Due to the limitations of the function, I cannot solve this problem.``

The message must contain that sentence, letter by letter but for the full stop, in English and in
Chinese rows. Text around it does not count. Several sentences are taken together; what they name
must be what is wrong: the missing parameters of each function as a set, or the (parameter, value)
pairs as a set. The message must not contain one of the other two sentences, nor a call. A thought
between think tags is not part of the message.

Errors:

- ``detection_failed``: the sentence is not there, or a function is called;
- ``correction_failed``: the sentence names something else, or another sentence stands beside it;
- ``false_positive`` (irrelevant): anything but the sentence alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ace_ray.types import Entry, Verdict

# A value may hold parentheses; the bounds keep the search linear in the text.
_MISSING = re.compile(
    r"Missing necessary parameters \(([^()]{1,2000})\) for the api \(([^()]{1,300})\)"
)
_WRONG = re.compile(
    r"There is incorrect value \((.{1,300}?)\) for the parameters \(([^()]{1,300})\)"
    r" in the conversation history"
)
_LIMITS = re.compile(r"Due to the limitations of the function, I cannot solve this problem")
_SENTENCES = {
    "special_incomplete": _MISSING,
    "special_error_param": _WRONG,
    "special_irrelevant": _LIMITS,
}
_COMMAS = re.compile("[,，]")  # the Chinese prompt shows the wide one
_QUOTES = " '\"`"
# `name(key=`, `name()` or `[name(`.
_CALL = re.compile(
    r"(?<![\w.])[^\W\d][\w.]{0,200}\(\s{0,9}(?:\)|[^\W\d]\w{0,100}\s{0,9}=(?!=))"
    r"|\[\s{0,9}[^\W\d][\w.]{0,200}\("
)
_JSON_NAME = re.compile(r"""["']name["']\s{0,9}:\s{0,9}["']([^"']{1,200})["']""")


def judge(entry: Entry, output: str | None) -> Verdict:
    """Return the verdict on a row of a special category."""
    text = _without_thoughts(output or "")
    irrelevant = entry.category == "special_irrelevant"
    undetected = "false_positive" if irrelevant else "detection_failed"
    uncorrected = "false_positive" if irrelevant else "correction_failed"
    sentence = _SENTENCES[entry.category]
    if not sentence.search(text):
        return Verdict(False, undetected, "the sentence that the prompt asks for is not there")
    if _calls(entry, sentence.sub(" ", text)):
        return Verdict(False, undetected, "a function is called")
    if any(other.search(text) for other in _SENTENCES.values() if other is not sentence):
        return Verdict(False, uncorrected, "the sentence of another case is there too")
    if not irrelevant and not _names(entry, sentence.findall(text)):
        return Verdict(False, uncorrected, "not exactly what is wrong is named")
    return Verdict(True)


def _without_thoughts(text: str) -> str:
    return text.rpartition("</think>")[2].partition("<think>")[0]


def _calls(entry: Entry, text: str) -> bool:
    """Return whether a function is called, in Python's syntax or, one of the row's, in JSON."""
    functions = entry.data.get("function")
    names = [
        function.get("name")
        for function in (functions if isinstance(functions, list) else [functions])
        if isinstance(function, dict)
    ]
    return bool(_CALL.search(text)) or any(name in names for name in _JSON_NAME.findall(text))


def _names(entry: Entry, named: Sequence[tuple[str, str]]) -> bool:
    gold = entry.gold
    if entry.category == "special_incomplete":
        missing: dict[str, set[str]] = {}
        for params, api in named:
            missing.setdefault(_bare(api), set()).update(_split(params))
        return missing == {api: set(params) for api, params in gold.items()}
    pairs: set[tuple[str, str]] = set()
    for values, params in named:
        pairs |= _pairs(values, params, gold)
    return pairs == {(param, str(value)) for param, values in gold.items() for value in values}


def _pairs(values: str, params: str, gold: Mapping[str, Sequence[Any]]) -> set[tuple[str, str]]:
    """Return the (parameter, value) pairs of one sentence. The only value of a gold parameter may
    hold commas."""
    names, parts = _split(params), _split(values)
    if len(names) == 1:
        whole = _bare(values)
        parts = [whole] if whole in map(str, gold.get(names[0], ())) else parts
        return {(names[0], part) for part in parts}
    return set(zip(names, parts, strict=True)) if len(names) == len(parts) else {("", values)}


def _split(text: str) -> list[str]:
    return [_bare(part) for part in _COMMAS.split(text) if _bare(part)]


def _bare(text: str) -> str:
    return text.strip(_QUOTES)
