"""The plain structure of a message: statements, quotations, parentheses. One pass each, linear.

Everything here keeps the text's length, so that a place in the folded text is the same place in the
text as the model wrote it.
"""

from __future__ import annotations

import itertools
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import NamedTuple

_HALF_WIDTH = str.maketrans("（），：；？！’‘\u00a0\u3000", "(),:;?!''  ")
_LOWER = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz")
_FENCE = re.compile(r"```[A-Za-z]{0,20}")
_THOUGHT_STARTS, _THOUGHT_ENDS = ("<think>", "<thinking>"), ("</think>", "</thinking>")
_PAREN = re.compile(r"[()]")
_QUOTE = re.compile(r"[\"`“「『]|(?<!\w)'")
_CLOSING = {"“": "”", "「": "」", "『": "』"}
_LITERAL = re.compile(r"[\[【][\s(]{0,9}(?=[\"'“`])")
_LITERAL_ENDS = re.compile(r"[\"'”`][\s)]{0,9}[\]】]")
# A full stop ends a statement only before a blank, a quote, a bracket or Chinese; a line break only
# before what begins a line of its own, not before an item that is a name. Strings of a list are
# statements too.
_BOUNDARY = re.compile(
    r"(?<!e\.g)(?<!i\.e)\.(?=[\s\"'`”」』\])\u4e00-\u9fff]|$)|[!?。;]"
    r"|\n(?!\s{0,9}[-*•]\s{1,9}[`'\"]?\w{1,100}[`'\"]?\s{0,9}(?:\n|$))"
    r"(?=\s{0,20}(?:\n|[-*>#\[\"'“]|[0-9]{1,3}[.)]|[A-Z\u4e00-\u9fff]))"
    r"|,(?=\s{0,9}[\"'`“])(?<=[\"'`”],)"
)


class Span(NamedTuple):
    start: int
    end: int


class Structure:
    """A message and where its statements, quotations and parentheses are."""

    def __init__(self, text: str) -> None:
        self.text = said(text)
        half_width = self.text.translate(_HALF_WIDTH)
        self._cased = _FENCE.sub(lambda match: " " * len(match.group()), half_width)
        self.folded = self._cased.translate(_LOWER)
        self.partner = _partners(self.folded)
        groups = [Span(start, end) for start, end in sorted(self.partner.items())]
        self._outer = _outermost(groups)
        self._outer_starts = [group.start for group in self._outer]
        self._boundaries = self._find_boundaries()
        self.literals = list(self._find_literals())
        self._literal_starts = [literal.start for literal in self.literals]
        self.quotations = self._find_quotations()
        self._quotation_starts = [quotation.start for quotation in self.quotations]

    def statements(self) -> list[Span]:
        """The text cut at the ends of sentences, semicolons and list items, and around the lists of
        strings; empty ones left out."""
        around = itertools.chain.from_iterable(self.literals)
        cuts = [0, *sorted({*(place + 1 for place in self._boundaries), *around}), len(self.text)]
        spans = itertools.starmap(Span, itertools.pairwise(cuts))
        return [span for span in spans if self.folded[span.start : span.end].strip()]

    def quotation(self, place: int) -> Span | None:
        """The quotation around a place; of nested ones the outermost."""
        number = bisect_right(self._quotation_starts, place) - 1
        if number < 0 or place >= self.quotations[number].end:
            return None
        return self.quotations[number]

    def literal(self, place: int) -> Span | None:
        """The list of strings, ``["..."]``, around a place."""
        number = bisect_right(self._literal_starts, place) - 1
        return self.literals[number] if number >= 0 and place < self.literals[number].end else None

    def around(self, span: Span, window: int) -> tuple[str, str]:
        """What its sentence says before and after a quotation."""
        boundaries = self._boundaries
        number = bisect_left(boundaries, span.start)
        start = boundaries[number - 1] + 1 if number else 0
        number = bisect_left(boundaries, span.end)
        end = boundaries[number] + 1 if number < len(boundaries) else len(self.text)
        before = self.folded[max(start, span.start - window) : span.start]
        return before, self.folded[span.end : min(end, span.end + window)]

    def _find_boundaries(self) -> list[int]:
        boundaries = []
        for boundary in _BOUNDARY.finditer(self._cased):
            place = boundary.start()
            if self._within_group(place) is None:
                boundaries.append(place)
        return boundaries

    def _find_literals(self) -> Iterator[Span]:
        position = 0
        while opening := _LITERAL.search(self.folded, position):
            ending = _LITERAL_ENDS.search(self.folded, opening.end() + 1)
            if ending is None:
                return
            yield Span(opening.start(), ending.end())
            position = ending.end()

    def _within_group(self, place: int) -> Span | None:
        number = bisect_right(self._outer_starts, place) - 1
        if number < 0 or place >= self._outer[number].end:
            return None
        return self._outer[number]

    def _find_quotations(self) -> list[Span]:
        """Quotes pair with the next of their kind, within parentheses and outside of them apart."""
        quotations: list[Span] = []
        unpaired: set[tuple[str, Span | None]] = set()
        position = 0
        while opening := _QUOTE.search(self.folded, position):
            position = opening.end()
            group = self._within_group(opening.start())
            kind = opening.group()
            if (kind, group) in unpaired:
                continue
            end = self._closing(_CLOSING.get(kind, kind), position, group)
            if end is None:
                unpaired.add((kind, group))
                continue
            quotations.append(Span(opening.start(), end + 1))
            position = end + 1
        return quotations

    def _closing(self, kind: str, position: int, group: Span | None) -> int | None:
        limit = group.end if group else len(self.folded)
        while True:
            place = self.folded.find(kind, position, limit)
            if place < 0:
                return None
            inner = self._within_group(place)
            if inner != group:
                position = inner.end if inner else place + 1
            elif kind == "'" and self.folded[place + 1 : place + 2].isalnum():
                position = place + 1
            else:
                return place


def said(text: str) -> str:
    """The text with thoughts blanked, all before the last closing tag: they are not said."""
    end = max((text.rfind(tag) + len(tag) for tag in _THOUGHT_ENDS if tag in text), default=0)
    starts = [place for tag in _THOUGHT_STARTS if (place := text.find(tag, end)) >= 0]
    start = min(starts, default=len(text))
    return " " * end + text[end:start] + " " * (len(text) - start)


def _partners(text: str) -> dict[int, int]:
    """For each opening parenthesis that is closed: the place behind its partner."""
    stack, partners = [], {}
    for paren in _PAREN.finditer(text):
        if paren.group() == "(":
            stack.append(paren.start())
        elif stack:
            partners[stack.pop()] = paren.end()
    return partners


def _outermost(groups: list[Span]) -> list[Span]:
    outermost: list[Span] = []
    for group in groups:
        if not outermost or group.start >= outermost[-1].end:
            outermost.append(group)
    return outermost
