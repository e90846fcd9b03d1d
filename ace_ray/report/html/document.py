"""``report.html`` from a report's content."""

from __future__ import annotations

import ace_ray
from ace_ray.report.content import Content
from ace_ray.report.gold import GoldAnswers
from ace_ray.report.html.answers import answers
from ace_ray.report.html.headline import headline
from ace_ray.report.html.ledger import ledger
from ace_ray.report.html.page import Page, Section, render
from ace_ray.report.html.provenance import provenance
from ace_ray.report.html.scores import categories, curves, errors, paper
from ace_ray.report.wrong import choose


def document(content: Content, *, wrong: int, made_at: str) -> bytes:
    """The page. ``wrong``: wrong answers to show per run, language and category. Reads the texts
    of those from the runs, and their gold answers from the benchmarks' data."""
    sections: list[Section | None] = [
        headline(content),
        paper(content),
        categories(content),
        errors(content),
        curves(content),
        ledger(content),
        answers(choose(content.runs, wrong), GoldAnswers(content.runs), content.rule_sets),
        provenance(content),
    ]
    page = Page(content.title, _facts(content, made_at), [s for s in sections if s is not None])
    return render(page)


def _facts(content: Content, made_at: str) -> list[str]:
    declared = sum(run.totals["declared"] for run in content.runs)
    scored = sum(run.totals["scored"] for run in content.runs)
    facts = []
    if content.sweep is not None:
        facts.append(f"{len(content.runs)} of {len(content.sweep.lines)} models are complete")
    elif len(content.runs) == 1:
        facts.append(content.runs[0].manifest.model.source)
    return [
        *facts,
        f"{scored:,} of {declared:,} rows scored; both rule sets, {content.rules} first",
        f"made {made_at} by ace_ray {ace_ray.__version__}, from the rows as they were then",
    ]
