"""The sections on differences between runs: what the tests show, and which answers flipped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ace_ray.benchmarks.reporting import Table
from ace_ray.report.compare_tables import tables_of
from ace_ray.report.compared import Comparison
from ace_ray.report.flip_files import flip_tables
from ace_ray.report.flips import Answer, Change, Flip, Flips
from ace_ray.report.html.page import LONGEST, Section
from ace_ray.report.sentences import sentence
from ace_ray.report.tested import Tested
from ace_ray.report.text import Shown, shown

FLIPS = 25
"""Flips of each direction that are shown of a pair of runs."""
_WORDS: dict[Change, str] = {"lost": "right to wrong", "gained": "wrong to right"}
_ABOUT_ALL = ("best", "laws")


@dataclass(frozen=True, slots=True)
class Sentences:
    """Under one rule set: the differences shown in words, and the lines that show none."""

    rules: str
    shown: Sequence[str]
    others: Sequence[str]


@dataclass(frozen=True, slots=True)
class ComparisonView:
    """``tables`` are those of all runs together, ``pairs`` one per pair of runs."""

    against: str
    sentences: Sequence[Sentences]
    tables: Sequence[Table]
    pairs: Sequence[Table]
    notes: Sequence[str]


@dataclass(frozen=True, slots=True)
class Refusal:
    why: str
    differences: Sequence[str]


def comparison(tests: Tested | None) -> Section | None:
    """What the tests show; why there are none where the runs do not compare."""
    if tests is None:
        return None
    if tests.comparison is None:
        view = Refusal(tests.refused, tests.differences)
        return Section("comparison", "Comparison", "refusal.html.j2", view)
    return Section("comparison", "Comparison", "comparison.html.j2", _view(tests.comparison))


def _view(found: Comparison) -> ComparisonView:
    tables = list(tables_of(found))
    return ComparisonView(
        found.against,
        [_sentences(found, rules) for rules in found.rule_sets],
        [table for table in tables if table.name in _ABOUT_ALL],
        [table for table in tables if table.name not in _ABOUT_ALL],
        [*found.cautions, *found.notes],
    )


def _sentences(found: Comparison, rules: str) -> Sentences:
    lines = [line for line in found.lines if line.asked.rules == rules]
    return Sentences(
        rules,
        [sentence(line) for line in lines if line.shown],
        [sentence(line) for line in lines if not line.shown],
    )


@dataclass(frozen=True, slots=True)
class SideView:
    label: str
    verdict: str
    valid: bool
    error: str
    output: Shown


@dataclass(frozen=True, slots=True)
class FlipView:
    """One row, before and after."""

    id: str
    where: str
    turned: str
    sides: Sequence[SideView]


@dataclass(frozen=True, slots=True)
class PairView:
    """``left_out`` flips are in no view."""

    base: str
    other: str
    tables: Sequence[Table]
    flips: Sequence[FlipView]
    left_out: int


@dataclass(frozen=True, slots=True)
class FlipsView:
    pairs: Sequence[PairView]
    unflipped: Sequence[str]


def flips(tests: Tested | None) -> Section | None:
    """Which answers turned from right to wrong and back, with both of them."""
    if tests is None or not tests.flips:
        return None
    view = FlipsView([_pair(found) for found in tests.flips], tests.unflipped)
    return Section("flips", "Flips", "flips.html.j2", view)


def _pair(found: Flips) -> PairView:
    kept = [flip for change in _WORDS for flip in _spread(found.flips, change)[:FLIPS]]
    views = [
        FlipView(
            flip.id,
            flip.language + (f", sample {flip.sample}" if flip.sample else ""),
            _WORDS[flip.change],
            [_side(found.base, flip.base), _side(found.other, flip.other)],
        )
        for flip in kept
    ]
    return PairView(
        found.base, found.other, flip_tables(found), views, len(found.flips) - len(views)
    )


def _spread(every: Sequence[Flip], change: Change) -> list[Flip]:
    """The flips of one direction, categories taking turns."""
    seen: Counter[str] = Counter()
    turns = []
    for flip in every:
        if flip.change == change:
            turns.append((seen[flip.category], flip))
            seen[flip.category] += 1
    return [flip for _, flip in sorted(turns, key=lambda turn: turn[0])]


def _side(label: str, answer: Answer) -> SideView:
    verdict = "valid" if answer.valid else answer.error_type
    return SideView(label, verdict, answer.valid, answer.error, shown(answer.output, LONGEST))
