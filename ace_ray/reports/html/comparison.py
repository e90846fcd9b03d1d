"""Build the report sections on differences between runs: what is kept, test results and flips."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ace_ray.errors import UserError
from ace_ray.reports.compared_runs import NotComparable
from ace_ray.reports.comparison import Comparison
from ace_ray.reports.comparison_tables import headlines, kept_tables, sentences_of, tables_of
from ace_ray.reports.flips import SIDES, WORDS, Flips, flip_table
from ace_ray.reports.html.answers import interleave
from ace_ray.reports.html.page import Section

FLIPS = 25  # maximum flips of each direction that are shown for a pair of runs


def comparison(compared: Comparison | UserError | None) -> Iterator[Section]:
    """Yield the sections on right answers that each candidate keeps of its reference, and on
    tests of the differences; for a `UserError`, a section with its reason; for None, nothing."""
    if isinstance(compared, UserError):
        lines = compared.lines if isinstance(compared, NotComparable) else []
        why = {"why": compared.what if lines else str(compared), "differences": lines}
        yield Section("comparison", "Comparison", "refusal.html.j2", why)
    elif compared is not None:
        kept, noise = compared.kept, compared.noise
        tables = kept_tables(headlines(kept))
        view = {"noise": noise, "tables": tables, "groups": kept_tables(kept)} if kept else None
        yield Section("kept", "What is kept", "kept.html.j2", view)
        tested = {
            "shown": sentences_of(compared.results),
            "lines": len(compared.results),
            "pairs": tables_of(compared.results),
            "notes": [*compared.cautions, *compared.notes, *(() if kept else noise)],
        }
        yield Section("comparison", "Comparison", "comparison.html.j2", tested)


def flips(pairs: Sequence[Flips], unflipped: Sequence[str] = ()) -> Section:
    """Build the section with flips and both answers of each flip. ``unflipped``: labels of runs
    whose flips are not shown."""
    views = [(pair, flip_table(pair), _choose_flips(pair)) for pair in pairs]
    view = {"pairs": views, "words": WORDS, "sides": SIDES, "unflipped": unflipped}
    return Section("flips", "Flips", "flips.html.j2", view if pairs else None)


def _choose_flips(pair: Flips) -> list[Mapping[str, Any]]:
    chosen: list[Mapping[str, Any]] = []
    for change in WORDS:
        turned = [flip for flip in pair.flips if flip["change"] == change]
        chosen += interleave(turned, lambda flip: str(flip["category"]))[:FLIPS]
    return chosen
