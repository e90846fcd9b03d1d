"""The fields of a statement: what stands beside "parameter", "value" and "api"."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from ace_ray.benchmarks.acebench.check.claims.text import Span, Structure
from ace_ray.benchmarks.acebench.check.claims.words import ROLE

Role = Literal["value", "param", "api"]

_BETWEEN = re.compile(r"\s{0,9}(?:(?:named|called|名为|为|叫)\s{0,9}|[:=]\s{0,9})?", re.ASCII)
_BARE_VALUE = re.compile(
    r"([^\s(),;:\"'`]{1,100})\s(?:for|of|in)\b|([A-Za-z0-9_./@\-]{1,100})(?=\s?[\u4e00-\u9fff])"
)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-]{0,100}|[^\W\d][\w.\-]{0,100}")
_AND = re.compile(r"\s{0,3}(?:[,，、]\s{0,3}(?:and\s)?|(?:and|和|与|及)\s{0,3})", re.IGNORECASE)
_VALUE_ENDS = re.compile(r"\)\s{0,9}for\s{1,9}the\s{1,9}param")
_FOLLOWS_VALUE = re.compile(
    r"\s{0,9}(?:(?:for|of|in|on|is|are|was|as)\b|[,.;!?\"'`\]]|$|[^\x00-\x7f])"
)
_CLOSING = {"(": ")", "[": "]", '"': '"', "'": "'", "`": "`", "“": "”", "「": "」", "『": "』"}
_QUOTED = re.compile(r"[`'\"“(（]([^`'\"“”()（）\n]{1,200})[`'\"”)）]")
_MAX_FIELD = 2_000
_MAX_NAMES = 10_000


class Field(NamedTuple):
    """The text of a field as written, its delimiters included."""

    span: Span
    role: Role
    text: str


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


def fields_of(structure: Structure, span: Span, names: Names) -> list[Field]:
    """The fields of one statement in their order."""
    return list(_Reader(structure, span, names).fields())


class Loose(NamedTuple):
    """Known names of a statement, and its quoted texts, outside of its fields."""

    params: list[str]
    apis: list[str]
    texts: list[str]
    marked: bool
    """Whether the parameters stand in quotes or could be no words of prose."""


def loose_names(structure: Structure, span: Span, fields: list[Field], names: Names) -> Loose:
    """What a claim may name that has no name beside "parameter", "value" or "api"."""
    text = list(structure.text[span.start : span.end])
    for one in fields:
        start, end = one.span.start - span.start, one.span.end - span.start
        text[start:end] = " " * (end - start)
    outside = "".join(text)
    tokens = [match.group().rstrip(".-") for match in _NAME.finditer(outside)]
    quoted = [match.group(1).strip() for match in _QUOTED.finditer(outside)]
    params = list(dict.fromkeys(token for token in tokens if token in names.params))
    return Loose(
        params,
        [token for token in tokens if token in names.apis],
        [item for item in quoted if item not in names.params and item not in names.apis],
        bool(params) and all("_" in name or name in quoted for name in params),
    )


class _Reader:
    def __init__(self, structure: Structure, span: Span, names: Names) -> None:
        self._structure, self._span, self._names = structure, span, names

    def fields(self) -> Iterator[Field]:
        start, end = self._span
        folded = self._structure.folded
        position = start
        used: set[int] = set()
        while role := ROLE.search(folded, position, end):
            position = role.end()
            kind: Any = (role.lastgroup or "").removeprefix("z")
            plural = folded[position : position + 1]  # or another word that begins alike
            ends = kind != role.lastgroup or not (plural.isalpha() and plural.isascii())
            span = self._field_behind(role.end(), kind) if ends else None
            if span is None:
                span = self._field_before(role.start(), kind, used)
            if span is not None:
                yield Field(span, kind, self._structure.text[span.start : span.end])
                used.add(span.end)
                position = max(position, span.end)
                while kind != "value" and (more := self._next_group(position)):
                    yield Field(more, kind, self._structure.text[more.start : more.end])
                    used.add(more.end)
                    position = more.end

    def _field_behind(self, position: int, kind: Role) -> Span | None:
        folded, end = self._structure.folded, self._span.end
        between = _BETWEEN.match(folded, position, end)
        position = between.end() if between else position
        opening = folded[position : position + 1]
        if opening in _CLOSING and opening:
            return self._delimited(position, opening, kind)
        if kind == "value":
            bare = _BARE_VALUE.match(folded, position, end)
            return Span(*bare.span(bare.lastindex or 1)) if bare else None
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
