"""A flip report as printed lines, Markdown and CSV. Outputs are hostile text, fenced and quoted."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator

from ace_ray.benchmarks.reporting import Table
from ace_ray.clean import one_line, spreadsheet
from ace_ray.report.flips import Answer, Flips, Kind
from ace_ray.report.render import markdown

MOST_SHOWN = 100
"""Flips in a page; the CSV has all of them."""
_WORDS = {"lost": "right to wrong", "gained": "wrong to right"}
_HEADER = (
    "change",
    "category",
    "language",
    "id",
    "sample",
    "base_error_type",
    "other_error_type",
    "base_error",
    "other_error",
    "base_output",
    "other_output",
)


def flip_tables(flips: Flips) -> list[Table]:
    """Rows lost and gained by category, and by the error type of the wrong answer."""
    lost = sum(flip.change == "lost" for flip in flips.flips)
    gained = len(flips.flips) - lost
    note = (
        f"of {flips.paired} rows judged in both, {lost} turned from right to wrong and {gained} "
        "from wrong to right; in dialogues a row is a turn"
    )
    name = f"flips-{flips.benchmark}-{flips.rules}"
    title = f"{flips.benchmark}, {flips.rules} rules: {flips.other} against {flips.base}, flips by"
    kinds: dict[Kind, str] = {"category": "category", "error_type": "error type"}
    return [
        Table(
            name=f"{name}-{by}",
            title=f"{title} {word}",
            header=[word.capitalize(), "Right to wrong", "Wrong to right"],
            lines=[[key, *counts] for key, counts in flips.counts(by).items()],
            notes=[note] if by == "category" else ["of a gained row the error that is gone"],
        )
        for by, word in kinds.items()
    ]


def flip_csv(flips: Flips) -> str:
    """Every flip on a line; texts that a spreadsheet would run have a quote before them."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_HEADER)
    for flip in flips.flips:
        texts = (
            flip.base.error_type,
            flip.other.error_type,
            flip.base.error,
            flip.other.error,
            flip.base.output,
            flip.other.output,
        )
        key = (flip.change, spreadsheet(flip.category), spreadsheet(flip.language))
        writer.writerow([*key, spreadsheet(flip.id), flip.sample, *map(spreadsheet, texts)])
    return out.getvalue()


def flip_markdown(flips: Flips) -> str:
    """Tables, then the flips with both answers; the longest fence in an answer cannot close its
    block."""
    parts = [markdown(table) for table in flip_tables(flips)]
    for flip in flips.flips[:MOST_SHOWN]:
        key = f"{flip.language}/{flip.category} {flip.id}, sample {flip.sample}"
        parts.append(f"### `{key.replace('`', ' ')}`: {_WORDS[flip.change]}\n")
        for label, answer in ((flips.base, flip.base), (flips.other, flip.other)):
            parts.append("\n".join(_block(label, answer)))
    if len(flips.flips) > MOST_SHOWN:
        parts.append(f"{len(flips.flips) - MOST_SHOWN} more are in the CSV file.\n")
    return "\n".join(parts)


def flip_lines(flips: Flips, most: int = 5) -> Iterator[str]:
    """The first flips of each direction for a terminal."""
    if not flips.flips:
        yield (
            f"{flips.benchmark}, {flips.rules} rules: no flips between {flips.base} and "
            f"{flips.other} among {flips.paired} rows judged in both"
        )
    for change in ("lost", "gained"):
        shown = [flip for flip in flips.flips if flip.change == change]
        for flip in shown[:most]:
            yield f"{_WORDS[change]}: {flip.language}/{flip.category} {flip.id} ({flip.error_type})"
            for label, answer in ((flips.base, flip.base), (flips.other, flip.other)):
                yield f"  {label}: {one_line(answer.output, 160)}"
        if len(shown) > most:
            yield f"{_WORDS[change]}: {len(shown) - most} more"


def _block(label: str, answer: Answer) -> Iterator[str]:
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", answer.output)), default=0))
    verdict = "right" if answer.valid else f"wrong ({answer.error_type}): {answer.error}"
    yield f"`{one_line(label).replace('`', ' ')}`, `{one_line(verdict).replace('`', ' ')}`\n"
    yield f"{fence}text\n{answer.output}\n{fence}\n"
