"""Format what candidates keep of a reference as sentences and tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter

from ace_ray.benchmarks.results import Table, Value
from ace_ray.reports.comparison_tables import (
    group_name,
    interval_text,
    joined,
    points,
    signed_points,
)
from ace_ray.reports.kept import Record
from ace_ray.reports.lost_answers import FATES
from ace_ray.reports.table import NOT_AVAILABLE, number


def headlines(records: Sequence[Record]) -> list[Record]:
    """Return the records on the group with most categories of each benchmark."""
    categories: dict[str, int] = {}
    for line in records:
        name, count = line["benchmark"], line["categories"]
        categories[name] = max(categories.get(name, 0), count)
    return [line for line in records if line["categories"] == categories[line["benchmark"]]]


def verdicts(records: Sequence[Record]) -> list[str]:
    """Return a sentence per candidate, benchmark and rule set. Equal sentences are joined."""
    sections: dict[str, list[str]] = {}
    for line in headlines(records):
        text = (
            f"{line['candidate']} keeps {_kept_share(line)} of the right answers of "
            f"{line['reference']}; not worse by more than {line['margin']:g} "
            f"point{'' if line['margin'] == 1 else 's'}: {_answer(line)}"
        )
        sections.setdefault(text, []).append(f"{line['benchmark']}, {line['rules']} rules")
    count = len({(line["benchmark"], line["rules"]) for line in records})
    return [t if len(s) == count else f"{' and '.join(s)}: {t}" for t, s in sections.items()]


def kept_tables(records: Sequence[Record]) -> list[Table]:
    """Return two tables per benchmark: what is kept, and what became of lost answers."""
    parts = [
        list(s) for _, s in groupby(records, key=lambda line: (line["benchmark"], line["rules"]))
    ]
    return joined((lines[0]["rules"], make(lines)) for make in (_kept, _lost) for lines in parts)


def _kept(lines: Sequence[Record]) -> Table:
    note = (
        "Kept: share of the reference's right answers that are still right. Not worse: by more "
        f"than {lines[0]['margin']:g} points, at a level of 5 %, adjusted over candidates (Holm). "
        "Ratios to the reference, per entry: completion tokens, seconds, cost"
    )
    columns: dict[str, Callable[[Record], Value]] = {
        "n": lambda line: line["n"],
        "Difference [95 % CI]": lambda line: (
            f"{signed_points(line['difference'])} [{interval_text((line['low'], line['high']))}]"
        ),
        "Kept [95 % CI]": _kept_share,
        "of": lambda line: line["right"],
        "Newly right": lambda line: line["newly_right"],
        "Not worse": _answer,
        "Tokens": lambda line: number(line["tokens_ratio"], ".2f"),
        "Seconds": lambda line: number(line["seconds_ratio"], ".2f"),
        "Cost": lambda line: number(line["cost_ratio"], ".2f"),
    }
    return _table(lines, "what is kept of", columns, note)


def _lost(lines: Sequence[Record]) -> Table:
    titles = {"lost": "Lost", **FATES, "unscored": "No verdict"}
    columns = {title.capitalize(): itemgetter(name) for name, title in titles.items()}
    note = "No verdict: right in the reference, not judged in the candidate, and not in Lost"
    return _table(lines, "what became of lost right answers of", columns, note)


def _table(
    lines: Sequence[Record], words: str, columns: Mapping[str, Callable[[Record], Value]], note: str
) -> Table:
    first = lines[0]
    return Table(
        name="kept",
        title=f"{first['benchmark']}, {first['rules']} rules: {words} {first['reference']}",
        header=["Candidate", "Group", *columns],
        lines=[
            [
                *(line["candidate"], group_name(line["group"], line["language"])),
                *(value(line) for value in columns.values()),
            ]
            for line in lines
        ],
        notes=[note],
    )


def _kept_share(line: Record) -> str:
    if line["kept"] is None:
        return NOT_AVAILABLE
    return f"{points(line['kept'])} % [{points(line['kept_low'])}, {points(line['kept_high'])}]"


def _answer(line: Record) -> str:
    if line["not_worse"] != "undecided":
        return str(line["not_worse"])
    more = line["rows_to_decide"]
    return f"undecided, {f'about {more:,}' if more else 'very many'} more rows would decide"
