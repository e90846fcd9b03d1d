"""What a message says is missing, wrong or out of reach, and whether it says so or denies it.

A message is read statement by statement (`claim_text`). In each, words such as "missing", "incorrect"
or "cannot solve this problem" (`claim_words`) make a claim; what stands in parentheses or quotes next
to "parameter", "value" or "api" (接口, 参数, 值, ...) is what it names. A claim is

- ``asserted``: the message itself says it;
- ``denied``: a negation bears on it ("there are no ...", "it is not true that ...", 并没有, ...), an odd
  number of them, or it is said to be resolved;
- ``open``: a condition, a possibility, a question, an example, or the words of someone else.

No grammar is parsed: a negation reaches to the end of its clause, "not true that" and "never say" to
the end of the statement. Linear in the text's length.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from ace_ray.benchmarks.acebench.check import claim_words as words
from ace_ray.benchmarks.acebench.check.claim_text import Span, Structure

MAX_CHARS = 200_000
MAX_CLAIMS = 300
"""Of a longer message only so much is read, and no further claims of one statement or message."""
_WINDOW = 400  # characters before and behind a claim that bear on it
_MAX_FIELD = 2_000
_MAX_NAMES = 10_000

Kind = Literal["missing", "wrong", "limits", "unable", "able"]
Status = Literal["asserted", "denied", "open"]
Role = Literal["value", "param", "api"]

_BETWEEN = re.compile(r"\s{0,9}(?:(?:named|called|名为|为|叫)\s{0,9}|[:=]\s{0,9})?", re.ASCII)
_BARE_VALUE = re.compile(r"([^\s(),;:\"'`]{1,100})\s(?:for|of|in)\b")
_NAME = re.compile(r"[^\W\d][\w.\-]{0,100}")
_AND = re.compile(r"\s{0,3}(?:[,，、]\s{0,3}(?:and\s)?|(?:and|和|与|及)\s{0,3})", re.IGNORECASE)
_VALUE_ENDS = re.compile(r"\)\s{0,9}for\s{1,9}the\s{1,9}param")
_FOLLOWS_VALUE = re.compile(
    r"\s{0,9}(?:(?:for|of|in|on|is|are|was|as)\b|[,.;!?\"'`\]]|$|[^\x00-\x7f])"
)
_CLOSING = {"(": ")", "[": "]", '"': '"', "'": "'", "`": "`", "“": "”", "「": "」", "『": "』"}
_CUES: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    ("unable", words.UNABLE),
    ("able", words.ABLE),
    ("limits", words.LIMITS),
    ("missing", words.MISSING),
    ("wrong", words.WRONG),
)


@dataclass
class Claim:
    """``params`` and ``values`` are the fields' texts as written, each possibly a list of names."""

    kind: Kind
    status: Status
    api: str | None = None
    params: list[str] = field(default_factory=list)
    values: list[str] = field(default_factory=list)

    def takes(self, role: Role) -> bool:
        """Whether a field of that role is still missing; further ones are of another claim."""
        if self.kind == "missing":
            return role != "value" and (self.api is None or (role == "param" and not self.params))
        return (role == "value" and not self.values) or (role == "param" and not self.params)

    def take(self, role: Role, text: str) -> None:
        if role == "api":
            self.api = self.api or text.strip()
        else:
            (self.params if role == "param" else self.values).append(text)


class _Field(NamedTuple):
    span: Span
    role: Role
    text: str


class _Cue(NamedTuple):
    span: Span
    kind: Kind


class _Question(NamedTuple):
    """Whether a statement ends as a question, and whether it begins or ends with such a word."""

    asks: bool
    openly: bool


class Names(NamedTuple):
    """The names that may stand bare: of the candidate functions and of their parameters."""

    apis: frozenset[str]
    params: frozenset[str]


def names_of(functions: Any) -> Names:
    """The names in published function descriptions, of any shape."""
    apis, params = set(), set()
    pending: list[Any] = list(functions) if isinstance(functions, list) else [functions]
    for function in pending:
        if isinstance(function, dict) and isinstance(function.get("name"), str):
            apis.add(function["name"])
    for _ in range(_MAX_NAMES):
        if not pending:
            break
        item = pending.pop()
        if isinstance(item, dict):
            properties = item.get("properties")
            if isinstance(properties, dict):
                params |= {name for name in properties if isinstance(name, str)}
            pending += item.values()
        elif isinstance(item, list):
            pending += item
    return Names(frozenset(apis), frozenset(params))


def claims(text: str, names: Names) -> list[Claim]:
    """The claims of a message in their order."""
    structure = Structure(text[:MAX_CHARS])
    found: list[Claim] = []
    for statement in structure.statements():
        found += _Statement(structure, statement, names).claims()
        if len(found) >= MAX_CLAIMS:
            break
    return found


class _Statement:
    def __init__(self, structure: Structure, span: Span, names: Names) -> None:
        self._structure, self._span, self._names = structure, span, names
        self._fields = list(self._find_fields())
        masked = list(structure.folded[span.start : span.end])
        for one in self._fields:
            start, end = one.span.start - span.start, one.span.end - span.start
            masked[start:end] = " " * (end - start)
        self._masked = "".join(masked)
        self._bearing = self._masked
        self._questions: dict[tuple[int, int], _Question] = {}

    def claims(self) -> list[Claim]:
        cues = self._cues()
        if not cues:
            return []
        found: list[Claim] = []
        pending: list[_Field] = []
        taking: Claim | None = None
        last = self._span.start
        tokens = sorted([*self._fields, *cues], key=lambda token: token.span)
        following = _following_cues(tokens)
        for token, cue in zip(tokens, following, strict=True):
            if isinstance(token, _Field):
                mine = taking is not None and not self._leads_on(last, token.span, cue)
                if taking is not None and mine and taking.takes(token.role):
                    taking.take(token.role, token.text)
                    last = token.span.end
                else:
                    pending.append(token)
                continue
            claim = Claim(token.kind, self._status(token))
            found.append(claim)
            last = token.span.end
            if token.kind in ("missing", "wrong"):
                taking = claim
                left = _filled(claim, pending)
                found += _continued(claim, left)
                pending = []
        return found + (_continued(taking, pending) if taking else [])

    def _leads_on(self, last: int, place: Span, following: _Cue | None) -> bool:
        """Whether a field stands in the clause of the next claim, not in that of the one before."""
        if following is None or following.kind not in ("missing", "wrong"):
            return False
        return self._crosses(last, place.start) and not self._crosses(
            place.end, following.span.start
        )

    def _crosses(self, start: int, end: int) -> bool:
        """Whether a clause ends between two places."""
        if end - start > _WINDOW:
            return True
        base = self._span.start
        return words.CLAUSE.search(self._masked, start - base, end - base) is not None

    def _cues(self) -> list[_Cue]:
        text, offset = self._masked, self._span.start
        roles = {found.lastgroup for found in words.ROLE.finditer(text)}
        has_param, has_value = roles & {"param", "zparam"}, roles & {"value", "zvalue"}
        found: list[_Cue] = []
        taken = bytearray(len(text))
        for kind, pattern in _CUES:
            if (kind == "missing" and not has_param) or (
                kind == "wrong" and not (has_param or has_value)
            ):
                continue
            for match in pattern.finditer(text):
                start, end = match.span()
                if any(taken[start:end]):
                    continue
                taken[start:end] = b"\1" * (end - start)
                found.append(_Cue(Span(offset + start, offset + end), kind))
        bearing = list(text)
        for cue in found:  # what makes another claim does not negate the next one
            if cue.kind in ("unable", "limits"):
                start, end = cue.span.start - offset, cue.span.end - offset
                bearing[start:end] = " " * (end - start)
        self._bearing = "".join(bearing)
        refuses = any(cue.kind == "unable" for cue in found)
        kept = [cue for cue in found if cue.kind != "limits" or refuses or self._is_reason(cue)]
        return sorted(kept)[:MAX_CLAIMS]

    def _is_reason(self, cue: _Cue) -> bool:
        """Whether limitations are given as a reason or stated, not only mentioned."""
        start, end = cue.span.start - self._span.start, cue.span.end - self._span.start
        return words.BECAUSE.search(self._masked[max(0, start - 60) : end]) is not None

    def _status(self, cue: _Cue) -> Status:
        base = self._span.start
        start, end = cue.span.start - base, cue.span.end - base
        first, last = 0, len(self._masked)
        quotation = self._structure.quotation(cue.span.start)
        if quotation is not None:
            if _is_mention(*self._structure.around(quotation, _WINDOW)):
                return "open"
            first, last = max(0, quotation.start - base), min(last, quotation.end - base)
        if self._masked.lstrip()[:1] == ">":
            return "open"
        before = self._bearing[max(first, start - _WINDOW) : start]
        behind = self._masked[end : min(last, end + _WINDOW)]
        return _status(before, behind, self._question(first, last))

    def _question(self, first: int, last: int) -> _Question:
        """What the statement, or the quotation that is it, asks."""
        if (first, last) not in self._questions:
            whole = self._masked[first:last]
            ending = whole.rstrip(" \t\n\"'`”」』])")[-1:]
            asks = ending in ("?", "吗", "么", "呢")
            openly = asks and words.INTERROGATIVE.search(whole) is not None
            self._questions[first, last] = _Question(bool(ending) and asks, openly)
        return self._questions[first, last]

    def _find_fields(self) -> Iterator[_Field]:
        start, end = self._span
        folded = self._structure.folded
        position = start
        used: set[int] = set()
        while role := words.ROLE.search(folded, position, end):
            position = role.end()
            kind: Any = (role.lastgroup or "").removeprefix("z")
            found = self._field_behind(role.end(), kind)
            if found is None:
                found = self._field_before(role.start(), kind, used)
            if found is not None:
                yield _Field(found, kind, self._structure.text[found.start : found.end])
                used.add(found.end)
                position = max(position, found.end)
                while kind != "value" and (more := self._next_group(position)):
                    yield _Field(more, kind, self._structure.text[more.start : more.end])
                    used.add(more.end)
                    position = more.end

    def _field_behind(self, position: int, kind: Role) -> Span | None:
        folded, end = self._structure.folded, self._span.end
        if folded[position : position + 1].isalpha() and folded[position].isascii():
            return None
        between = _BETWEEN.match(folded, position, end)
        position = between.end() if between else position
        opening = folded[position : position + 1]
        if opening in _CLOSING and opening:
            return self._delimited(position, opening, kind)
        if kind == "value":
            bare = _BARE_VALUE.match(folded, position, end)
            return Span(*bare.span(1)) if bare else None
        return self._bare_names(position, kind)

    def _delimited(self, position: int, opening: str, kind: Role) -> Span | None:
        folded, limit = self._structure.folded, min(self._span.end, position + _MAX_FIELD)
        if opening != "(":
            end = folded.find(_CLOSING[opening], position + 1, limit)
            return Span(position, end + 1) if end >= 0 else None
        partner = self._structure.partner.get(position)
        if kind == "value" and (partner is None or not _FOLLOWS_VALUE.match(folded, partner)):
            ending = _VALUE_ENDS.search(folded, position, limit)
            partner = ending.start() + 1 if ending else partner
        return Span(position, partner) if partner is not None and partner <= limit else None

    def _next_group(self, position: int) -> Span | None:
        """A further group: ``(a), (b) and (c)``, or names in quotes."""
        folded, end = self._structure.folded, self._span.end
        between = _AND.match(folded, position, end)
        opening = folded[between.end() : between.end() + 1] if between else ""
        if between is None or not opening or opening not in _CLOSING:
            return None
        group = self._delimited(between.end(), opening, "param")
        if group is not None and opening != "(":  # the next string of a list is no name
            inner = self._structure.text[group.start + 1 : group.end - 1]
            return group if _NAME.fullmatch(inner) else None
        return group

    def _bare_names(self, position: int, kind: Role) -> Span | None:
        known = self._names.apis if kind == "api" else self._names.params
        text, start, end = self._structure.text, position, position
        while name := _NAME.match(text, position, self._span.end):
            if name.group().rstrip(".-") not in known:
                break
            end = name.start() + len(name.group().rstrip(".-"))
            between = _AND.match(text, end, self._span.end) if kind == "param" else None
            if between is None:
                break
            position = between.end()
        return Span(start, end) if end > start else None

    def _field_before(self, position: int, kind: Role, used: set[int]) -> Span | None:
        """A quoted, parenthesised or known name just before its role: ``the `day` parameter``."""
        text, first = self._structure.text, self._span.start
        end = position
        while end > first and text[end - 1] in " 的" and position - end < 4:
            end -= 1
        if end in used or kind == "value" or end <= first:
            return None
        window = text[max(first, end - 120) : end]
        closing = window[-1]
        if closing in ")）":
            start = self._structure.folded.rfind("(", first, end)
            return Span(start, end) if self._structure.partner.get(start) == end else None
        if closing in "`'\"":
            start = text.rfind(closing, max(first, end - 120), end - 1)
            inner = text[start + 1 : end - 1]
            return Span(start, end) if start >= 0 and _NAME.fullmatch(inner) else None
        known = self._names.apis if kind == "api" else self._names.params
        name = re.search(r"[A-Za-z_][A-Za-z0-9_.\-]{0,100}$", window)
        if name is None or name.group() not in known:
            return None
        return Span(end - len(name.group()), end)


def _following_cues(tokens: list[_Field | _Cue]) -> list[_Cue | None]:
    """For each token the next claim's words behind it."""
    found: list[_Cue | None] = []
    following: _Cue | None = None
    for token in reversed(tokens):
        found.append(following)
        if isinstance(token, _Cue):
            following = token
    return found[::-1]


def _filled(claim: Claim, fields: list[_Field]) -> list[_Field]:
    """The fields that the claim does not take."""
    left = []
    for one in fields:
        if claim.takes(one.role):
            claim.take(one.role, one.text)
        else:
            left.append(one)
    return left


def _continued(last: Claim, pending: list[_Field]) -> list[Claim]:
    """The claims that one word makes beyond its first: ``missing (a) for the api (b) and parameters
    (c) for the api (d)``."""
    found: list[Claim] = []
    for one in pending:
        if last.kind == "wrong" and one.role == "api":
            continue
        if not found or not found[-1].takes(one.role):
            found.append(Claim(last.kind, last.status))
        found[-1].take(one.role, one.text)
    return [claim for claim in found if claim.params or claim.values]


def _status(before: str, behind: str, question: _Question) -> Status:
    contrast = _last_end(words.CONTRAST, before)
    bearing = before[contrast:]
    clause = words.CLAUSE.search(behind)
    rest = behind[: clause.start()] if clause else behind
    if (
        words.OPEN.search(bearing)
        or _is_reported(bearing)
        or words.AFTER_OPEN.search(rest)
        or words.UNLESS.search(behind)
        or (question.asks and (clause is None or question.openly))
    ):
        return "open"
    if words.RESOLVED.search(behind):
        return "denied"
    plain = words.without_false_negations(bearing)
    denials = [found.span() for found in words.DENIAL.finditer(plain)]
    count = sum(_introduces(plain, end) for _, end in denials)
    count += bool(words.AFTER_DENIAL.search(rest) or words.NONE.search(behind))
    for negation in words.NEGATION.finditer(plain):
        within = any(start < negation.end() and negation.start() < end for start, end in denials)
        count += not within and _reaches(plain[negation.end() :])
    return "denied" if count % 2 else "asserted"


def _is_reported(text: str) -> bool:
    """Whether what follows ``text`` is said to be the words of someone else."""
    verb = None
    for verb in words.REPORT.finditer(text):
        pass
    if verb is None:
        return False
    return _introduces(text, verb.end())


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
    for found in pattern.finditer(text):
        end = found.end()
    return end


def _is_mention(before: str, behind: str) -> bool:
    """Whether a quotation is spoken about, and not the message itself or an item of its list."""
    listed = before.rstrip().endswith("[") or behind.lstrip().startswith("]")
    if not behind.lstrip().startswith("]") and re.search(r"\w", behind):
        return True
    lead = before.strip(" \t\r\n[]\"'`,(-*>#")
    if not lead:
        return False
    if not listed and lead[-1] != ":":
        return True
    plain = words.without_false_negations(lead)
    patterns = (words.MENTION, words.OPEN, words.REPORT, words.DENIAL, words.NEGATION)
    return any(pattern.search(plain) for pattern in patterns)
