"""The section on what a sweep took."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ace_ray.benchmarks.reporting import Table
from ace_ray.report.content import Content
from ace_ray.report.html.page import Section
from ace_ray.report.ledger import PARTS, ledger_table, seconds_of
from ace_ray.report.sweeps import LedgerLine


@dataclass(frozen=True, slots=True)
class LedgerBar:
    """The seconds of a run by part, as shares of the longest run's: (part, from, share)."""

    label: str
    total_s: float
    parts: Sequence[tuple[str, float, float]]


@dataclass(frozen=True, slots=True)
class LedgerView:
    bars: Sequence[LedgerBar]
    parts: Mapping[str, str]
    table: Table
    notes: Sequence[tuple[str, str]]


def ledger(content: Content) -> Section | None:
    """What a sweep took; None for runs on their own, whose devices' time nobody added up."""
    if content.sweep is None:
        return None
    lines = content.sweep.lines
    longest = max((sum(seconds_of(line).values()) for line in lines), default=0.0)
    bars = [_bar(line, longest) for line in lines if seconds_of(line)] if longest else []
    view = LedgerView(
        bars,
        PARTS,
        ledger_table(content.sweep),
        [(line.label, line.note) for line in lines if line.note],
    )
    return Section("ledger", "Ledger", "ledger.html.j2", view)


def _bar(line: LedgerLine, longest: float) -> LedgerBar:
    at, parts = 0.0, []
    for part, seconds in seconds_of(line).items():
        parts.append((part, at / longest, seconds / longest))
        at += seconds
    return LedgerBar(line.label, at, parts)
