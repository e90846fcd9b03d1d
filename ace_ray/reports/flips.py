"""Find flips, which are rows that are right in one of two runs and wrong in the other.

Flips are returned as data, printed lines and CSV. Outputs are untrusted text and are cleaned here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ace_ray.benchmarks.results import Table
from ace_ray.errors import UserError
from ace_ray.reports.runs import ScoredRun
from ace_ray.reports.table import csv_lines
from ace_ray.types import ResultRow
from ace_ray.util.sanitizing import one_line, sanitize_text

Change = Literal["lost", "gained"]
Kind = Literal["category", "error_type"]
# Maximum characters of an output.
LONGEST = 2_000
_LONGEST_ERROR = 500
# Maximum flips of each direction in a terminal.
MOST_PRINTED = 5
WORDS: dict[Change, str] = {"lost": "right to wrong", "gained": "wrong to right"}


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of one run, without control characters and escape sequences.

    ``error_type`` and ``error`` describe why an answer is not ``valid``.
    """

    valid: bool
    error_type: str
    error: str
    output: str


@dataclass(frozen=True, slots=True)
class Flip:
    """A row that is right in one run only: in ``base`` ("lost") or in ``other`` ("gained")."""

    change: Change
    language: str
    category: str
    id: str
    sample: int
    base: Answer
    other: Answer

    @property
    def name(self) -> str:
        """Name of the entry, with its category and, if it has one, its language."""
        return f"{'/'.join(filter(None, (self.language, self.category)))} {self.id}"

    @property
    def error_type(self) -> str:
        """Error type of the wrong answer."""
        return self.other.error_type if self.change == "lost" else self.base.error_type


@dataclass(frozen=True, slots=True)
class Flips:
    """Flips of one benchmark under one rule set between two runs, ``base`` and ``other`` (labels).

    A flip is a row; in dialogues, a turn. ``paired`` counts rows with a verdict in both runs."""

    benchmark: str
    rules: str
    base: str
    other: str
    paired: int
    flips: Sequence[Flip]

    def counts(self, by: Kind) -> dict[str, tuple[int, int]]:
        """Map each category or error type (of the wrong answer) to (rows lost, rows gained)."""
        keys = [(flip.change, getattr(flip, by)) for flip in self.flips]
        counts = Counter(keys)
        names = sorted({name for _, name in keys})
        return {name: (counts["lost", name], counts["gained", name]) for name in names}


def flips_of(base_run: ScoredRun, other_run: ScoredRun, benchmark: str, rules: str) -> Flips:
    """Find the flips of ``benchmark`` under ``rules`` between two runs.

    Rows are matched by category, language, id and sample. Only the outputs of flipped rows are
    read. Raises `UserError` if a run cannot be read.
    """
    before, after = (
        {
            (row.category, row.language, row.id, row.sample): row
            for row in run.rows_of(benchmark)
            if row.status == "scored" and rules in row.verdicts
        }
        for run in (base_run, other_run)
    )
    shared = before.keys() & after.keys()
    changed = sorted(
        key
        for key in shared
        if before[key].verdicts[rules].valid != after[key].verdicts[rules].valid
    )
    first, second = (
        _answers(run, [rows[key] for key in changed], rules)
        for run, rows in ((base_run, before), (other_run, after))
    )
    flips = [
        Flip(
            change="lost" if before[key].verdicts[rules].valid else "gained",
            language=one_line(key[1]),
            category=one_line(key[0]),
            id=one_line(key[2]),
            sample=key[3],
            base=first[before[key].row_id],
            other=second[after[key].row_id],
        )
        for key in changed
    ]
    return Flips(benchmark, rules, base_run.label, other_run.label, len(shared), flips)


def _answers(run: ScoredRun, rows: Sequence[ResultRow], rules: str) -> Mapping[str, Answer]:
    """Read the answers of ``rows``, by row id."""
    columns = ["output", *(f"{rules}_{part}" for part in ("valid", "error_type", "error"))]
    answers = {
        stored["row_id"]: Answer(
            valid=bool(stored[f"{rules}_valid"]),
            error_type=one_line(stored[f"{rules}_error_type"] or ""),
            error=sanitize_text(stored[f"{rules}_error"] or "", _LONGEST_ERROR),
            output=sanitize_text(stored["output"] or "", LONGEST),
        )
        for stored in run.read_columns(rows, columns)
    }
    if any(row.row_id not in answers for row in rows):
        raise UserError("the run changed while it was read", where=run.uri, fix="run compare again")
    return answers


_KEY_COLUMNS = ("change", "category", "language", "id", "sample")
_ANSWER_COLUMNS = ("error_type", "error", "output")


def flip_tables(flips: Flips) -> list[Table]:
    """Return tables of rows lost and gained, by category and by error type."""
    lost = sum(flip.change == "lost" for flip in flips.flips)
    gained = len(flips.flips) - lost
    note = (
        f"{lost} of {flips.paired} rows judged in both runs turned from right "
        f"to wrong, {gained} from wrong to right; in dialogues, a row is a turn"
    )
    title = f"{flips.benchmark}, {flips.rules} rules: {flips.other} against {flips.base}, flips by"
    kinds: dict[Kind, str] = {
        "category": note,
        "error_type": "rows that became right: by earlier error",
    }
    return [
        Table(
            name=f"flips-{flips.benchmark}-{flips.rules}-{by}",
            title=f"{title} {by.replace('_', ' ')}",
            header=[by.replace("_", " ").capitalize(), "Right to wrong", "Wrong to right"],
            lines=[[key, *counts] for key, counts in flips.counts(by).items()],
            notes=[kind_note],
        )
        for by, kind_note in kinds.items()
    ]


def flip_csv(flips: Flips) -> str:
    """Return a CSV line per flip. A quote precedes texts that a spreadsheet would execute."""
    of_answers = [(side, part) for part in _ANSWER_COLUMNS for side in ("base", "other")]
    lines = [[*_KEY_COLUMNS, *(f"{side}_{part}" for side, part in of_answers)]]
    for flip in flips.flips:
        keys = [getattr(flip, name) for name in _KEY_COLUMNS]
        lines.append([*keys, *(getattr(getattr(flip, side), part) for side, part in of_answers)])
    return csv_lines(lines)


def flip_lines(flips: Flips) -> Iterator[str]:
    """Yield lines for a terminal: the first flips of each direction."""
    if not flips.flips:
        yield (
            f"{flips.benchmark}, {flips.rules} rules: no flips between {flips.base} "
            f"and {flips.other} among {flips.paired} rows judged in both runs"
        )
    for change, words in WORDS.items():
        change_flips = [flip for flip in flips.flips if flip.change == change]
        for flip in change_flips[:MOST_PRINTED]:
            yield f"{words}: {flip.name} ({flip.error_type})"
            for label, answer in ((flips.base, flip.base), (flips.other, flip.other)):
                yield f"  {label}: {one_line(answer.output, 160)}"
        if len(change_flips) > MOST_PRINTED:
            yield f"{words}: {len(change_flips) - MOST_PRINTED} more"
