"""Build the report sections on differences between runs: test results and flips."""

from __future__ import annotations

from typing import Any

from ace_ray.reports.compared_runs import describe_pairs
from ace_ray.reports.comparison import ReportedComparison
from ace_ray.reports.comparison_tables import sentence, tables_of
from ace_ray.reports.excerpts import excerpt
from ace_ray.reports.flips import WORDS, Answer, Flip, Flips, flip_tables
from ace_ray.reports.html.answers import interleave
from ace_ray.reports.html.page import LONGEST, Section

# Maximum flips of each direction that are shown for a pair of runs.
FLIPS = 25


def comparison(reported: ReportedComparison | None) -> Section:
    """Build the section with test results, or the reason why the runs cannot be compared."""
    if reported is None or reported.comparison is None:
        why = reported and {"why": reported.refused, "differences": reported.differences}
        return Section("comparison", "Comparison", "refusal.html.j2", why)
    compared = reported.comparison
    view = {
        "against": describe_pairs(compared.runs, compared.pairs),
        # ``shown``: on proven differences; ``others``: on all other results.
        "sentences": [
            {
                "rules": rules,
                "shown": [sentence(result) for result in results if result.is_significant],
                "others": [sentence(result) for result in results if not result.is_significant],
            }
            for rules in compared.rule_sets
            for results in [[r for r in compared.results if r.hypothesis.rules == rules]]
        ],
        "pairs": list(tables_of(compared)),
        "notes": [*compared.cautions, *compared.notes],
    }
    return Section("comparison", "Comparison", "comparison.html.j2", view)


def flips(reported: ReportedComparison | None) -> Section:
    """Build the section with flips and both answers of each flip."""
    view = None
    if reported is not None and reported.flips:
        view = {"pairs": list(map(_pair, reported.flips)), "unflipped": reported.unflipped}
    return Section("flips", "Flips", "flips.html.j2", view)


def _pair(flipped: Flips) -> dict[str, Any]:
    """Return the template's values for two runs. ``left_out`` counts flips that are not shown."""
    chosen: list[Flip] = []
    for change in WORDS:
        turned = [flip for flip in flipped.flips if flip.change == change]
        chosen += interleave(turned, lambda flip: flip.category)[:FLIPS]
    return {
        "base": flipped.base,
        "other": flipped.other,
        "tables": flip_tables(flipped),
        "flips": [
            {
                "id": flip.id,
                "where": flip.language + (f", sample {flip.sample}" if flip.sample else ""),
                "turned": WORDS[flip.change],
                "sides": [_answer(flipped.base, flip.base), _answer(flipped.other, flip.other)],
            }
            for flip in chosen
        ],
        "left_out": len(flipped.flips) - len(chosen),
    }


def _answer(label: str, answer: Answer) -> dict[str, Any]:
    return {
        "label": label,
        "verdict": "valid" if answer.valid else answer.error_type,
        "valid": answer.valid,
        "error": answer.error,
        "output": excerpt(answer.output, LONGEST),
    }
