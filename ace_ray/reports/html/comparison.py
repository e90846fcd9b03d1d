"""Build the report sections on differences between runs: what is kept, test results and flips."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ace_ray.errors import UserError
from ace_ray.reports.compared_runs import NotComparable
from ace_ray.reports.comparison import Comparison
from ace_ray.reports.comparison_tables import headlines, kept_tables, sentences_of, tables_of
from ace_ray.reports.excerpts import excerpt
from ace_ray.reports.flips import SIDES, WORDS, Flips, flip_table
from ace_ray.reports.html.answers import interleave
from ace_ray.reports.html.page import LONGEST, Section

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
    view = {"pairs": list(map(_pair, pairs)), "unflipped": unflipped} if pairs else None
    return Section("flips", "Flips", "flips.html.j2", view)


def _pair(flipped: Flips) -> dict[str, Any]:
    """Return the template's values for two runs. ``left_out`` counts flips that are not shown."""
    chosen: list[Mapping[str, Any]] = []
    for change in WORDS:
        turned = [flip for flip in flipped.flips if flip["change"] == change]
        chosen += interleave(turned, lambda flip: str(flip["category"]))[:FLIPS]
    return {
        "base": flipped.base,
        "other": flipped.other,
        "tables": [flip_table(flipped)],
        "flips": [
            {
                "id": flip["id"],
                "where": flip["language"] + (f", sample {n}" if (n := flip["sample"]) else ""),
                "turned": WORDS[flip["change"]],
                "sides": [_answer(flipped, flip, side) for side in SIDES],
            }
            for flip in chosen
        ],
        "left_out": len(flipped.flips) - len(chosen),
    }


def _answer(flipped: Flips, flip: Mapping[str, Any], side: str) -> dict[str, Any]:
    valid = (flip["change"] == "lost") == (side == "base")
    return {
        "label": getattr(flipped, side),
        "verdict": "valid" if valid else flip[f"{side}_error_type"],
        "valid": valid,
        "error": flip[f"{side}_error"],
        "output": excerpt(flip[f"{side}_output"], LONGEST),
    }
