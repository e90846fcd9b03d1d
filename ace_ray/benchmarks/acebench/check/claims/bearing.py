"""What bears on a claim: negations, conditions, questions, quotations, the words of others."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from ace_ray.benchmarks.acebench.check.claims import words

Status = Literal["asserted", "denied", "open"]
Kind = Literal["missing", "wrong", "limits", "lacks", "unable", "able"]


class Question(NamedTuple):
    """Whether a statement ends as a question, and whether it begins or ends with such a word."""

    asks: bool
    openly: bool

    @classmethod
    def of(cls, statement: str) -> Question:
        asks = statement.rstrip(" \t\n\"'`”」』])")[-1:] in ("?", "吗", "么", "呢")
        ends = bool(statement.strip()) and asks
        return cls(ends, ends and words.INTERROGATIVE.search(statement) is not None)


def status_of(kind: Kind, before: str, behind: str, question: Question) -> Status:
    """The status of a claim by what its statement says before and behind it."""
    problem = kind in ("missing", "wrong")
    asks = question.asks and not (kind == "missing" and words.PLEASE_PROVIDE.search(before))
    contrast = _last_end(words.CONTRAST, before)
    bearing = before[contrast:]
    clause = words.CLAUSE.search(behind)
    rest = behind[: clause.start()] if clause else behind
    if (
        words.OPEN.search(bearing)
        or _is_reported(bearing)
        or (kind not in ("limits", "lacks") and words.AFTER_OPEN.search(rest))
        or (kind not in ("limits", "lacks") and words.UNLESS.search(behind))
        or (asks and (clause is None or question.openly))
    ):
        return "open"
    if problem and words.RESOLVED.search(behind):
        return "denied"
    plain = words.without_false_negations(bearing)
    denials = [denial.span() for denial in words.DENIAL.finditer(plain)]
    count = sum(_introduces(plain, end) for _, end in denials)
    count += bool(words.AFTER_DENIAL.search(rest) or (problem and words.NONE.search(behind)))
    for negation in words.NEGATION.finditer(plain):
        within = any(start < negation.end() and negation.start() < end for start, end in denials)
        count += not within and _reaches(plain[negation.end() :])
    return "denied" if count % 2 else "asserted"


def _is_reported(text: str) -> bool:
    """Whether what follows ``text`` is said to be the words of someone else."""
    end = _last_end(words.REPORT, text)
    return end > 0 and _introduces(text, end)


def _introduces(text: str, end: int) -> bool:
    """Whether the words before ``end`` bear on what stands behind ``text``: to the end of the
    statement after "that" or a colon, else to the end of their clause."""
    if text[:end].endswith(("that", " to")) or words.THAT.match(text, end):
        return True
    return words.CLAUSE.search(text.rstrip(" ,:\"'“"), end) is None


def _reaches(text: str) -> bool:
    """Whether a negation before ``text`` bears on what stands behind it."""
    end = _last_end(words.CLAUSE, text)
    return end == 0 or words.ONGOING_LIST.match(text[end:]) is not None


def _last_end(pattern: re.Pattern[str], text: str) -> int:
    end = 0
    for match in pattern.finditer(text):
        end = match.end()
    return end


def is_answer(before: str, behind: str) -> bool:
    """Whether a list of strings, as the prompts ask for, is the message's answer: not where a
    denial, a condition or the words of someone else bear on it."""
    plain = words.without_false_negations(before.rstrip(" \t\r\n-*#`"))
    plain = plain[_last_end(words.CONTRAST, plain) :]
    if words.NOT_AN_ANSWER.search(plain) or words.NOT_AN_ANSWER_BEHIND.match(behind):
        return False
    patterns = (words.DENIAL, words.QUOTES)
    return not any(
        _introduces(plain, match.end()) for pattern in patterns for match in pattern.finditer(plain)
    )


def is_mention(before: str, behind: str) -> bool:
    """Whether a quotation is spoken about, and not the message itself or an item of its list."""
    listed = before.rstrip().endswith("[") or behind.lstrip().startswith("]")
    if not behind.lstrip().startswith("]") and re.search(r"\w", behind):
        return True
    lead = before.strip(" \t\r\n[]{}<>\"'`,(-*#")
    if not lead:
        return False
    if not listed and lead[-1] != ":":
        return True
    plain = words.without_false_negations(lead)
    patterns = (words.MENTION, words.OPEN, words.REPORT, words.DENIAL, words.NEGATION)
    return any(pattern.search(plain) for pattern in patterns)
