"""Format a comparison as tables and sentences. Shares are shown in percentage points.

Tables and sentences that are equal under several rule sets are joined, and name all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import TypeVar

from ace_ray.benchmarks.results import Table, Value
from ace_ray.reports.hypotheses import TestResult
from ace_ray.reports.kept import Record
from ace_ray.reports.lost_answers import FATES
from ace_ray.reports.paired import ALL
from ace_ray.reports.significance import ALPHA
from ace_ray.reports.table import NOT_AVAILABLE, number
from ace_ray.util.grouping import grouped
from ace_ray.util.stats import Interval

SHOWN, UNDER_NOISE = "*", "~"
_MEASURES = {"accuracy": "accuracy", "process": "process accuracy"}
_Line = TypeVar("_Line")
_Columns = Sequence[tuple[str, Callable[[_Line], Value]]]


def joined(tables: Iterable[tuple[str, Table]]) -> list[Table]:
    """Return ``tables``, given with their rule sets. Tables that differ only in the rule set become
    one table, whose title names all its rule sets."""
    keyed = (
        ((table.title.replace(f", {rules} rules", "", 1), repr(table.lines)), (rules, table))
        for rules, table in tables
    )
    titled = []
    for section in grouped(keyed).values():
        (rules, table), words = section[0], f", {' and '.join(name for name, _ in section)} rules"
        titled.append(replace(table, title=table.title.replace(f", {rules} rules", words, 1)))
    return titled


def _table(title: str, columns: _Columns[_Line], lines: Sequence[_Line], *notes: str) -> Table:
    header = [name for name, _ in columns]
    return Table("", title, header, [[v(line) for _, v in columns] for line in lines], notes)


def tables_of(results: Sequence[TestResult]) -> list[Table]:
    """Return a table for each rule set, pair of runs and benchmark."""
    sections = grouped((result.hypothesis.table_key, result) for result in results)
    return joined((key[0], _differences(lines)) for key, lines in sections.items())


def _differences(results: Sequence[TestResult]) -> Table:
    tested = results[0].hypothesis

    def marks(result: TestResult) -> str:
        return f"{SHOWN * result.is_significant}{UNDER_NOISE * result.under_noise}"

    columns: list[tuple[str, Callable[[TestResult], Value]]] = [
        ("Group", lambda r: group_name(r.hypothesis.group.name, r.hypothesis.group.language)),
        ("Measure", lambda r: _MEASURES[r.hypothesis.metric]),
        ("n", lambda r: _units(r.difference.n, len(r.difference.sizes))),
        (tested.base, lambda r: points(r.difference.base_mean)),
        (tested.other, lambda r: points(r.difference.other_mean)),
        ("Difference [95 % CI]", lambda r: _difference(r.record) + marks(r)),
        ("+", lambda r: r.difference.gained),
        ("-", lambda r: r.difference.lost),
        ("Holm p", lambda r: p_text(r.holm)),
        ("Detectable", lambda r: points(r.detectable)),
    ]
    notes = [
        "n: entries or dialogues, of equal weight; after a slash, the tasks they ask. + and -: "
        "number that became right or wrong",
        f"Holm p: p-value adjusted over the {results[0].family} lines of this rule set, for all "
        "pairs and benchmarks; tests used: "
        + ", ".join(dict.fromkeys(result.difference.test for result in results)),
        "Detectable: smallest true difference that this n shows with a power of 80 %",
    ]
    if any(result.is_significant for result in results):
        notes.append(f"{SHOWN} shown: Holm p below 0.05")
    if any(result.under_noise for result in results):
        notes.append(f"{UNDER_NOISE} not larger than the difference between identical runs")
    if any(result.noise is not None for result in results):
        columns.append(("Noise floor", lambda r: points(r.noise_floor)))
        notes.append("Noise floor: 95 % of the differences between identical runs are smaller")
    title = f"{tested.benchmark}, {tested.rules} rules: {tested.other} against {tested.base} "
    return _table(f"{title}(points of 100)", columns, results, *notes)


def sentences_of(results: Sequence[TestResult]) -> list[str]:
    """Return the `sentence` of each difference that is shown, after its rule sets."""
    shown = [result for result in results if result.is_significant]
    sections = grouped((sentence(result), result.hypothesis.rules) for result in shown)
    return [f"{', '.join(rules)}: {text}" for text, rules in sections.items()]


def sentence(result: TestResult) -> str:
    """Return a sentence on a difference that is shown: ``A is better than B on Special: +4.1
    points, 95 % CI 1.2..7.0, Holm p 0.01``."""
    tested, difference = result.hypothesis, result.difference
    group = tested.group
    text = (
        f"{tested.other} is {'better' if difference.value > 0 else 'worse'} than {tested.base} on "
        f"{group.name}{f' ({group.language})' if group.language else ''}"
        f"{'' if tested.metric == 'accuracy' else ', process accuracy'}: "
        f"{signed_points(difference.value)} points, 95 % CI {interval_text(difference.interval)}, "
        f"Holm p {p_text(result.holm)}"
    )
    if result.under_noise:
        text += f"; identical runs differ by up to {points(result.noise_floor)} points"
    return text


def headlines(records: Sequence[Record]) -> list[Record]:
    """Return the records on the group with most categories of each benchmark."""
    counts = grouped((line["benchmark"], line["categories"]) for line in records)
    return [line for line in records if line["categories"] == max(counts[line["benchmark"]])]


def verdicts(records: Sequence[Record]) -> list[str]:
    """Return a sentence per candidate, benchmark and rule set, on the `headlines`."""
    sections = grouped(
        (
            f"{line['candidate']} keeps {_kept_share(line)} of the right answers of "
            f"{line['reference']} on {group_name(line['group'], line['language'])}; not worse by "
            f"more than {_margin(line)}: {_answer(line)}",
            f"{line['benchmark']}, {line['rules']} rules",
        )
        for line in headlines(records)
    )
    count = len({(line["benchmark"], line["rules"]) for line in records})
    return [t if len(s) == count else f"{' and '.join(s)}: {t}" for t, s in sections.items()]


def kept_tables(records: Sequence[Record]) -> list[Table]:
    """Return two tables per benchmark: what is kept, and what became of lost answers."""
    sections = grouped(((line["rules"], line["benchmark"]), line) for line in records)
    return joined((key[0], make(s)) for make in (_kept, _lost) for key, s in sections.items())


_NAMES: _Columns[Record] = [
    ("Candidate", itemgetter("candidate")),
    ("Group", lambda line: group_name(line["group"], line["language"])),
]


def _kept(lines: Sequence[Record]) -> Table:
    notes = (
        "All entries have the same weight; the benchmark's own headline, with its weights, "
        "is in the table of scores",
        "Kept: share of the reference's right answers that are still right. Not worse: by more "
        f"than {_margin(lines[0])}, at a level of 5 %, adjusted over candidates (Holm)",
        "Ratios to the reference, per entry: completion tokens, seconds, and the cost of the whole "
        "run",
    )
    columns: _Columns[Record] = [
        *_NAMES,
        ("n", itemgetter("n")),
        ("Difference [95 % CI]", _difference),
        ("Kept [95 % CI]", _kept_share),
        ("of", itemgetter("right")),
        ("Newly right", itemgetter("newly_right")),
        ("Not worse", _answer),
        ("Tokens", lambda line: number(line["tokens_ratio"], ".2f")),
        ("Seconds", lambda line: number(line["seconds_ratio"], ".2f")),
        ("Cost (whole run)", lambda line: number(line["cost_ratio"], ".2f")),
    ]
    return _table(_title(lines[0], "what is kept of"), columns, lines, *notes)


def _lost(lines: Sequence[Record]) -> Table:
    titles = {"lost": "Lost", **FATES, "unscored": "No verdict"}
    columns: list[tuple[str, Callable[[Record], Value]]] = [*_NAMES]
    columns += [(title.capitalize(), itemgetter(key)) for key, title in titles.items()]
    note = "No verdict: right in the reference, not judged in the candidate, and not in Lost"
    title = _title(lines[0], "what became of lost right answers of")
    return _table(title, columns, lines, note)


def _title(line: Record, words: str) -> str:
    return f"{line['benchmark']}, {line['rules']} rules: {words} {line['reference']}"


def _kept_share(line: Record) -> str:
    if line["kept"] is None:
        return NOT_AVAILABLE
    return f"{points(line['kept'])} % [{points(line['kept_low'])}, {points(line['kept_high'])}]"


def _margin(line: Record) -> str:
    return f"{line['margin']:g} point{'' if line['margin'] == 1 else 's'}"


def _answer(line: Record) -> str:
    if line["not_worse"] != "undecided":
        return str(line["not_worse"])
    more = line["rows_to_decide"]
    return f"undecided, {f'about {more:,}' if more else 'very many'} more rows would decide"


def _difference(line: Record) -> str:
    ends = (line["low"], line["high"])
    return f"{signed_points(line['difference'])} [{interval_text(ends)}]"


def _units(n: int, clusters: int) -> str:
    return str(n) if clusters == n else f"{n}/{clusters}"


def group_name(name: str, language: str) -> str:
    return f"{name}{' (pooled)' if name == ALL else ''}{f' ({language})' if language else ''}"


def points(share: float | None) -> str:
    text = NOT_AVAILABLE if share is None else f"{100 * share:.1f}"
    return "0.0" if text == "-0.0" else text


def signed_points(share: float) -> str:
    """Format a difference of shares in points, with its sign."""
    text = points(share)
    return f"+{text}" if float(text) > 0 else text


def interval_text(interval: Interval | tuple[None, None] | None) -> str:
    ends = [points(end) for end in interval or () if end is not None]
    return "..".join(ends) or NOT_AVAILABLE


def p_text(p: float) -> str:
    """Format ``p`` with two digits, or more if rounding would move it across `ALPHA`."""
    if p < 0.0001:
        return "< 0.0001"
    short = f"{p:.2g}"
    return short if (float(short) < ALPHA) == (p < ALPHA) else f"{p:.6g}"
