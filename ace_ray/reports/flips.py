"""Find flips, which are rows that are right in one of two runs and wrong in the other.

Flips are records, printed lines and CSV lines. Outputs are untrusted text and are cleaned here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ace_ray.benchmarks.results import Table
from ace_ray.errors import UserError
from ace_ray.reports.runs import ScoredRun
from ace_ray.types import ResultRow
from ace_ray.util.sanitizing import one_line, sanitize_text

# Maximum characters of an output and of an error; maximum flips of each direction in a terminal.
LONGEST, _LONGEST_ERROR, MOST_PRINTED = 2_000, 500, 5
WORDS = {"lost": "right to wrong", "gained": "wrong to right"}


COLUMNS = ("change", "category", "language", "id", "sample")
SIDES = ("base", "other")
# The error type and error of a right answer are "".
ANSWER_COLUMNS = tuple(
    f"{side}_{part}" for part in ("error_type", "error", "output") for side in SIDES
)


@dataclass(frozen=True, slots=True)
class Flips:
    """Flips of one benchmark under one rule set between two runs, ``base`` and ``other`` (labels).

    ``flips`` has the lines of the CSV file. ``change`` is "lost" if the row is right in ``base``,
    and "gained" if it is right in ``other``. In dialogues, a row is a turn. ``paired`` counts rows
    with a verdict in both runs."""

    benchmark: str
    rules: str
    base: str
    other: str
    paired: int
    flips: Sequence[Mapping[str, Any]]


def flips_of(base_run: ScoredRun, other_run: ScoredRun, benchmark: str, rules: str) -> Flips:
    """Find the flips of ``benchmark`` under ``rules`` between two runs.

    Rows are matched by category, language, id and sample. Only the outputs of flipped rows are
    read. Raises `UserError` when a run cannot be read."""
    runs = (base_run, other_run)
    before, after = (
        {
            (row.category, row.language, row.id, row.sample): row
            for row in run.rows_of(benchmark)
            if row.status == "scored" and rules in row.verdicts
        }
        for run in runs
    )
    shared = before.keys() & after.keys()
    changed = sorted(
        key
        for key in shared
        if before[key].verdicts[rules].valid != after[key].verdicts[rules].valid
    )
    first, second = (
        _answer_records(run, [rows[key] for key in changed], rules)
        for run, rows in zip(runs, (before, after), strict=True)
    )
    flips = []
    for key in changed:
        change = "lost" if before[key].verdicts[rules].valid else "gained"
        keys = dict(zip(COLUMNS, [change, *map(one_line, key[:3]), key[3]], strict=True))
        answers = zip(first[before[key].row_id], second[after[key].row_id], strict=True)
        texts = [text for pair in answers for text in pair]
        flips.append(keys | dict(zip(ANSWER_COLUMNS, texts, strict=True)))
    return Flips(benchmark, rules, base_run.label, other_run.label, len(shared), flips)


def _answer_records(run: ScoredRun, rows: Sequence[ResultRow], rules: str) -> dict[str, list[str]]:
    """Read error type, error and output of ``rows``, by row id, without control characters."""
    limits = {f"{rules}_error_type": 200, f"{rules}_error": _LONGEST_ERROR, "output": LONGEST}
    answers = {
        stored["row_id"]: [sanitize_text(stored[name] or "", n) for name, n in limits.items()]
        for stored in run.read_columns(rows, list(limits))
    }
    if any(row.row_id not in answers for row in rows):
        raise UserError("the run changed while it was read", where=run.uri, fix="run compare again")
    return answers


def flip_table(flips: Flips) -> Table:
    """Return a table of rows lost and gained, by category."""
    counts = Counter((flip["category"], flip["change"]) for flip in flips.flips)
    names = sorted({name for name, _ in counts})
    lost = sum(flip["change"] == "lost" for flip in flips.flips)
    title = f"{flips.benchmark}, {flips.rules} rules: {flips.other} against {flips.base}, flips"
    header = ["Category", "Right to wrong", "Wrong to right"]
    note = (
        f"{lost} of {flips.paired} rows judged in both runs turned from right to wrong, "
        f"{len(flips.flips) - lost} from wrong to right; in dialogues, a row is a turn"
    )
    lines = [[name, counts[name, "lost"], counts[name, "gained"]] for name in names]
    return Table("flips", title, header, lines, [note])


def flip_lines(flips: Flips) -> Iterator[str]:
    """Yield lines for a terminal: the first flips of each direction."""
    if not flips.flips:
        yield (
            f"{flips.benchmark}, {flips.rules} rules: no flips between {flips.base} "
            f"and {flips.other} among {flips.paired} rows judged in both runs"
        )
    for change, words in WORDS.items():
        change_flips = [flip for flip in flips.flips if flip["change"] == change]
        for flip in change_flips[:MOST_PRINTED]:
            path = "/".join(filter(None, (flip["language"], flip["category"])))
            kind = flip["base_error_type"] or flip["other_error_type"]
            yield f"{words}: {path} {flip['id']} ({kind})"
            for side in SIDES:
                yield f"  {getattr(flips, side)}: {one_line(flip[f'{side}_output'], 160)}"
        if len(change_flips) > MOST_PRINTED:
            yield f"{words}: {len(change_flips) - MOST_PRINTED} more"
