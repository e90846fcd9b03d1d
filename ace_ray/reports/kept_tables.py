"""Format what candidates keep of a reference as sentences and tables."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from ace_ray.benchmarks.results import Table, Value
from ace_ray.reports.comparison_tables import group_name, interval_text, joined, points, signed
from ace_ray.reports.kept import Record
from ace_ray.reports.lost_answers import FATES
from ace_ray.reports.table import NOT_AVAILABLE, number


def headlines(kept: Sequence[Record]) -> list[Record]:
    """Return the records on the group with most categories of each benchmark."""
    most: dict[str, int] = {}
    for line in kept:
        most[line["benchmark"]] = max(most.get(line["benchmark"], 0), line["categories"])
    return [line for line in kept if line["categories"] == most[line["benchmark"]]]


def verdicts(kept: Sequence[Record]) -> list[str]:
    """Return a sentence per candidate, benchmark and rule set. Equal sentences are joined."""
    sections: dict[str, list[str]] = {}
    for line in headlines(kept):
        text = (
            f"{line['candidate']} keeps {_kept_share(line)} of the right answers of "
            f"{line['reference']}; not worse by more than {line['margin']:g} "
            f"point{'' if line['margin'] == 1 else 's'}: {_answer(line)}"
        )
        sections.setdefault(text, []).append(f"{line['benchmark']}, {line['rules']} rules")
    count = len({(line["benchmark"], line["rules"]) for line in kept})
    return [t if len(s) == count else f"{' and '.join(s)}: {t}" for t, s in sections.items()]


def kept_tables(kept: Sequence[Record]) -> list[Table]:
    """Return two tables per benchmark: what is kept, and what became of lost answers."""
    parts = [list(s) for _, s in groupby(kept, key=lambda line: (line["benchmark"], line["rules"]))]
    return joined((lines[0]["rules"], make(lines)) for make in (_kept, _lost) for lines in parts)


def _kept(lines: Sequence[Record]) -> Table:
    names = ("tokens_ratio", "seconds_ratio", "cost_ratio")
    ratios = [name for name in names if any(line[name] for line in lines)]
    note = (
        "Kept: share of the reference's right answers that are still right. Not worse: by more "
        f"than {lines[0]['margin']:g} points, at a level of 5 %, adjusted over candidates (Holm). "
        "Ratios to the reference: completion tokens, seconds and cost per entry"
    )
    header = ["n", "Difference [95 % CI]", "Kept [95 % CI]", "of", "Newly right", "Not worse"]
    cells = [
        [
            line["n"],
            f"{signed(line['difference'])} [{interval_text((line['low'], line['high']))}]",
            *(_kept_share(line), line["right"], line["newly_right"], _answer(line)),
            *(number(line[name], ".2f") for name in ratios),
        ]
        for line in lines
    ]
    header += [name.replace("_", " ").capitalize() for name in ratios]
    return _table(lines, "what is kept of", header, cells, note)


def _lost(lines: Sequence[Record]) -> Table:
    header = ["Lost", *(text.capitalize() for text in FATES.values()), "No verdict"]
    columns = ("lost", *FATES, "unscored")
    note = "No verdict: right in the reference, not judged in the candidate, and not in Lost"
    cells = [[line[name] for name in columns] for line in lines]
    return _table(lines, "what became of lost right answers of", header, cells, note)


def _table(
    lines: Sequence[Record],
    words: str,
    header: Sequence[str],
    cells: Sequence[Sequence[Value]],
    note: str,
) -> Table:
    names = [[line["candidate"], group_name(line["group"], line["language"])] for line in lines]
    title = f"{lines[0]['benchmark']}, {lines[0]['rules']} rules: {words} {lines[0]['reference']}"
    rows = [[*name, *values] for name, values in zip(names, cells, strict=True)]
    return Table("kept", title, ["Candidate", "Group", *header], rows, [note])


def _kept_share(line: Record) -> str:
    if line["kept"] is None:
        return NOT_AVAILABLE
    return f"{points(line['kept'])} % [{points(line['kept_low'])}, {points(line['kept_high'])}]"


def _answer(line: Record) -> str:
    if line["not_worse"] != "undecided":
        return str(line["not_worse"])
    more = line["rows_to_decide"]
    return f"undecided, {f'about {more:,}' if more else 'very many'} more rows would decide"
