"""What a message says is missing, wrong or out of reach, and whether it says so or denies it.

A message is read statement by statement (`text`). In each, words such as "missing", "incorrect" or
"cannot solve this problem" (`words`) make a claim; what stands in parentheses or quotes beside
"parameter", "value" or "api" (接口, 参数, 值) is what it names (`fields`). A claim is (`bearing`)

- ``asserted``: the message itself says it;
- ``denied``: an odd number of negations bears on it ("there are no ...", "it is not true that ...",
  并没有), or it is said to be resolved;
- ``open``: a condition, a possibility, a question, an example, or the words of someone else.

No grammar is parsed: a negation reaches to the end of its clause, "not true that" and "never say:"
to the end of the statement. Linear in the text's length.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

from ace_ray.benchmarks.acebench.check.claims import words
from ace_ray.benchmarks.acebench.check.claims.bearing import (
    Kind,
    Question,
    Status,
    is_answer,
    is_mention,
    status_of,
)
from ace_ray.benchmarks.acebench.check.claims.fields import (
    Field,
    Names,
    Role,
    fields_of,
    loose_names,
    names_of,
)
from ace_ray.benchmarks.acebench.check.claims.text import Span, Structure, said

__all__ = ["MAX_CHARS", "MAX_CLAIMS", "Claim", "claims", "names_of", "said"]


MAX_CHARS = 200_000
MAX_CLAIMS = 300
"""Of a longer message only so much is read, and no further claims of one statement or message."""
_WINDOW = 400  # characters before and behind a claim that bear on it

_CUES: tuple[tuple[Kind, re.Pattern[str]], ...] = (
    ("unable", words.UNABLE),
    ("able", words.ABLE),
    ("limits", words.LIMITS),
    ("missing", words.MISSING),
    ("wrong", words.WRONG),
    ("lacks", words.LACKS),
)


@dataclass
class Claim:
    """``params`` and ``values`` are the fields' texts as written, each possibly a list of names.

    ``answer``: it stands in the list of strings that is the message's answer. ``of_others``: it is
    about what else there is. ``guessed``: its names stand bare, not beside "parameter" or "api".
    """

    kind: Kind
    status: Status
    api: str | None = None
    params: list[str] = field(default_factory=list)
    values: list[str] = field(default_factory=list)
    answer: bool = False
    of_others: bool = False
    guessed: bool = False

    @property
    def names(self) -> bool:
        return bool(self.api or self.params or self.values)

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


class _Cue(NamedTuple):
    span: Span
    kind: Kind


def claims(text: str, names: Names) -> list[Claim]:
    """The claims of a message in their order."""
    structure = Structure(text[:MAX_CHARS])
    all_claims: list[Claim] = []
    for statement in structure.statements():
        all_claims += _Statement(structure, statement, names).claims()
        if len(all_claims) >= MAX_CLAIMS:
            break
    return all_claims


class _Statement:
    def __init__(self, structure: Structure, span: Span, names: Names) -> None:
        self._structure, self._span = structure, span
        self._fields = fields_of(structure, span, names)
        self._loose = loose_names(structure, span, self._fields, names)
        self._answer = self._mention = False
        masked = list(structure.folded[span.start : span.end])
        for one in self._fields:
            start, end = one.span.start - span.start, one.span.end - span.start
            masked[start:end] = " " * (end - start)
        self._masked = "".join(masked)
        self._bearing_on: dict[Kind, str] = {"able": self._masked}
        self._questions: dict[tuple[int, int], Question] = {}

    def claims(self) -> list[Claim]:
        cues = self._cues()
        if not cues:
            return []
        literal = self._structure.literal(self._span.start)
        if literal is not None:
            self._answer = is_answer(*self._structure.around(literal, _WINDOW))
            self._mention = not self._answer
        claims: list[Claim] = []
        pending: list[Field] = []
        taking: Claim | None = None
        last = self._span.start
        tokens: list[Field | _Cue] = [*self._fields, *cues]
        tokens.sort(key=lambda token: token.span)
        following = _following_cues(tokens)
        for token, cue in zip(tokens, following, strict=True):
            if isinstance(token, Field):
                mine = taking is not None and not self._leads_on(last, token.span, cue)
                if taking is not None and mine and taking.takes(token.role):
                    taking.take(token.role, token.text)
                    last = token.span.end
                else:
                    pending.append(token)
                continue
            claim = Claim(token.kind, self._status(token), answer=self._answer)
            claim.of_others = self._is_of_others(token)
            claims.append(claim)
            last = token.span.end
            if token.kind in ("missing", "wrong"):
                taking = claim
                left = _filled(claim, pending)
                claims += _continued(claim, left)
                pending = []
        claims += _continued(taking, pending) if taking else []
        problems = [claim for claim in claims if claim.kind in ("missing", "wrong")]
        if not any(claim.params for claim in problems):
            for claim in problems:
                self._guess(claim)
        return claims

    def _guess(self, claim: Claim) -> None:
        """The names that stand elsewhere in the statement, where none stand beside their role."""
        loose = self._loose
        if not claim.params and loose.params:
            claim.params = [*loose.params]
            claim.guessed = not loose.marked
        if claim.kind == "missing" and claim.api is None and len(set(loose.apis)) == 1:
            claim.api = loose.apis[0]
        if claim.kind == "wrong" and claim.params and not claim.values and len(loose.texts) == 1:
            claim.values = [*loose.texts]

    def _is_of_others(self, cue: _Cue) -> bool:
        base = self._span.start
        start, end = max(0, cue.span.start - base - 60), cue.span.end - base + 60
        return words.OTHERS.search(self._masked[start:end]) is not None

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
        roles = {role.lastgroup for role in words.ROLE.finditer(text)}
        has_param = roles & {"param", "zparam"} or self._loose.marked
        has_value = roles & {"value", "zvalue"}
        cues: list[_Cue] = []
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
                cues.append(_Cue(Span(offset + start, offset + end), kind))
        # What makes another claim does not negate the next one.
        problem = self._without([cue for cue in cues if cue.kind in ("unable", "limits")])
        refusal = self._without([c for c in cues if c.kind in ("unable", "limits", "lacks")])
        self._bearing_on.update(dict.fromkeys(("missing", "wrong"), problem))
        self._bearing_on.update(dict.fromkeys(("unable", "limits", "lacks"), refusal))
        refuses = any(cue.kind == "unable" for cue in cues)
        kept = [cue for cue in cues if cue.kind != "limits" or refuses or self._is_reason(cue)]
        return sorted(kept)[:MAX_CLAIMS]

    def _without(self, cues: list[_Cue]) -> str:
        text = list(self._masked)
        for span, _ in cues:
            start, end = span.start - self._span.start, span.end - self._span.start
            text[start:end] = " " * (end - start)
        return "".join(text)

    def _is_reason(self, cue: _Cue) -> bool:
        """Whether limitations are given as a reason or stated, not only mentioned."""
        if words.LIMITATION.search(self._structure.folded, *cue.span) is None:
            return True
        start, end = cue.span.start - self._span.start, cue.span.end - self._span.start
        return words.BECAUSE.search(self._masked[max(0, start - 60) : end]) is not None

    def _status(self, cue: _Cue) -> Status:
        base = self._span.start
        start, end = cue.span.start - base, cue.span.end - base
        first, last = 0, len(self._masked)
        if self._mention:
            return "open"
        quotation = None if self._answer else self._structure.quotation(cue.span.start)
        if quotation is not None:
            if is_mention(*self._structure.around(quotation, _WINDOW)):
                return "open"
            first, last = max(0, quotation.start - base), min(last, quotation.end - base)
        if self._masked.lstrip()[:1] == ">":
            return "open"
        bearing = self._bearing_on[cue.kind]
        before = bearing[max(first, start - _WINDOW) : start]
        behind = self._masked[end : min(last, end + _WINDOW)]
        return status_of(cue.kind, before, behind, self._question(first, last))

    def _question(self, first: int, last: int) -> Question:
        """What the statement, or the quotation that is it, asks."""
        if (first, last) not in self._questions:
            self._questions[first, last] = Question.of(self._masked[first:last])
        return self._questions[first, last]


def _following_cues(tokens: list[Field | _Cue]) -> list[_Cue | None]:
    """For each token the next claim's words behind it."""
    cues: list[_Cue | None] = []
    following: _Cue | None = None
    for token in reversed(tokens):
        cues.append(following)
        if isinstance(token, _Cue):
            following = token
    return cues[::-1]


def _filled(claim: Claim, fields: list[Field]) -> list[Field]:
    """The fields that the claim does not take."""
    left = []
    for one in fields:
        if claim.takes(one.role):
            claim.take(one.role, one.text)
        else:
            left.append(one)
    return left


def _continued(last: Claim, pending: list[Field]) -> list[Claim]:
    """The claims that one word makes beyond its first: ``missing (a) for the api (b) and parameters
    (c) for the api (d)``."""
    claims: list[Claim] = []
    for one in pending:
        if last.kind == "wrong" and one.role == "api":
            continue
        if not claims or not claims[-1].takes(one.role):
            claims.append(Claim(last.kind, last.status))
        claims[-1].take(one.role, one.text)
    return [claim for claim in claims if claim.params or claim.values]
