"""Tables as printed text, Markdown and CSV, and the summary of a run. Shares are in percent."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from ace_ray.benchmarks.results import Estimate, Table, Value
from ace_ray.clean import cleaned, one_line, printed, spreadsheet
from ace_ray.records import STATUSES

NOT_AVAILABLE = "N/A"
_LONGEST = 8_000


def print_table(table: Table, console: Console, *, intervals: bool) -> None:
    """The table and its notes; with ``intervals``, a share reads ``84.0 [71.5, 91.7] n=50``."""
    grid = RichTable()
    grid.add_column(_text(table.header[0]), overflow="fold")
    for column in table.header[1:]:
        grid.add_column(_text(column), justify="right")
    for line in table.lines:
        grid.add_row(*(_text(cell(value, intervals=intervals, n=intervals)) for value in line))
    # A log has no width of its own: give the table what it needs instead of cutting it.
    wide = console if console.is_terminal else Console(file=console.file, width=200)
    say(table.title if table.lines else f"{table.title}: no runs for it", console)
    if table.lines:
        wide.print(grid)
    for note in table.notes:
        say(f"  {note}", console)


def say(line: str, console: Console) -> None:
    console.print(printed(line), highlight=False, soft_wrap=True, markup=False)


def markdown(table: Table, *, n: bool = False) -> str:
    """A heading, a pipe table with intervals, and the notes as a list."""
    lines = [f"## {escaped(table.title)}", ""]
    if table.lines:
        lines.append(_pipes(map(escaped, table.header)))
        lines.append(_pipes(["---", *(["---:"] * (len(table.header) - 1))]))
        lines += [_pipes(_markdown_cell(value, n=n) for value in line) for line in table.lines]
        lines.append("")
    if table.notes:
        lines += [*(f"- {escaped(note)}" for note in table.notes), ""]
    return "\n".join(lines)


def csv_text(table: Table) -> str:
    """One column per column; of shares also ``low``, ``high`` (95 % interval) and ``n``. Texts that
    a spreadsheet would run have a quote before them."""
    shares = [
        any(isinstance(line[i], Estimate) for line in table.lines) for i in range(len(table.header))
    ]
    header: list[str] = []
    for name, share in zip(table.header, shares, strict=True):
        header += [spreadsheet(name), *(f"{name} {part}" for part in ("low", "high", "n") if share)]
    written = [header]
    for line in table.lines:
        cells: list[str] = []
        for value, share in zip(line, shares, strict=True):
            if not share:
                cells.append(spreadsheet(value) if isinstance(value, str) else cell(value))
            elif isinstance(value, Estimate):
                cells += [f"{100 * x:.4f}" for x in (value.value, *value.interval)]
                cells.append(str(value.n))
            else:
                cells += [NOT_AVAILABLE] * 4
        written.append(cells)
    return _csv(written)


def csv_lines(lines: Iterable[Iterable[Any]]) -> str:
    """Values of lines as CSV, texts as in `csv_text`."""
    return _csv([spreadsheet(v) if isinstance(v, str) else v for v in line] for line in lines)


def _csv(lines: Iterable[Iterable[Any]]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(lines)
    return out.getvalue()


def cell(value: Value, *, intervals: bool = False, n: bool = False) -> str:
    if value is None:
        return NOT_AVAILABLE
    if not isinstance(value, Estimate):
        return str(value)
    text = f"{100 * value.value:.1f}"
    if intervals:
        low, high = value.interval
        text += f" [{100 * low:.1f}, {100 * high:.1f}]"
    return f"{text} n={value.n}" if n else text


def _markdown_cell(value: Value, *, n: bool) -> str:
    text = cell(value, intervals=True, n=n)
    return text if isinstance(value, Estimate) else escaped(text)


def _pipes(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


# No link or image is without its "[". Of the last three GitHub makes links of its own accord.
_ACTIVE = re.compile(r"[\\|*_<>`\[~$]|&(?=[A-Za-z#])|(?<=www)\.|:(?=//)|@", re.IGNORECASE)
_OPENS = re.compile(r"(?:#{1,6}|[+-])(?=\s|\Z)|[=-]{2}")
_NUMBERED = re.compile(r"(\d{1,9})([.)])(?=\s|\Z)")
"""What makes a heading, a rule or a list of the text that it begins."""


def escaped(text: str) -> str:
    """``text`` on one line as Markdown that is nothing but text: no link, image, HTML or code."""
    line = " ".join(_ACTIVE.sub(r"\\\g<0>", cleaned(text, _LONGEST)).split())
    if _OPENS.match(line):
        return f"\\{line}"
    return _NUMBERED.sub(r"\1\\\2", line, count=1) if _NUMBERED.match(line) else line


def print_summary(summary: Mapping[str, Any], console: Console) -> None:
    """The last output of a run: tables, totals, where it is stored."""
    for name, benchmark in summary["benchmarks"].items():
        print_benchmark(name, benchmark, console)
    totals = " + ".join(f"{summary[s]} {s}" for s in STATUSES if summary[s] or s == "scored")
    missing = f" + {summary['missing']} missing" if summary["missing"] else ""
    line = f"declared {summary['declared']} = {totals}{missing}"
    timing, tokens = summary["timing"], summary["tokens"]
    if summary["limit"]:
        say(
            f"limited to {summary['limit']} entries: a sample of the benchmark, not its score",
            console,
        )
    say(line, console)
    for line in failure_lines(summary.get("failures", ())):
        say(f"  {line}", console)
    if not summary["headline"]:
        say(f"no headline number: {summary['why']}", console)
    if timing:
        say(
            f"{_tokens(tokens)}; {timing.get('tokens_per_s') or 0:.0f} tokens/s; "
            f"engine ready after {timing.get('engine_start_s') or 0:.0f} s, "
            f"{timing.get('wall_s') or 0:.0f} s in all",
            console,
        )
    if summary["cut_by_length"]:
        say(f"{summary['cut_by_length']} answers were cut by max_tokens or the context", console)
    if summary["reasoning_truncated"]:
        say(f"{summary['reasoning_truncated']} answers ended inside their reasoning", console)
    for note in endpoint_notes(summary.get("endpoint")):
        say(note, console)
    if summary["backend"] == "fake":
        say("backend: fake - this is a test of the pipeline, not an evaluation", console)
    say(f"results: {summary['uri']}", console)


def failure_lines(failures: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Why rows have no verdict, as the summary of a run has them."""
    for one in failures:
        what = ": ".join(filter(None, (one["error_class"], one_line(one["error"]))))
        status = f" ({one['status']})" if one["status"] else ""
        yield f"{one['rows']} x {what}{status}"


def _tokens(tokens: Mapping[str, int | None]) -> str:
    if None in tokens.values():
        return "tokens unknown, the endpoint gives no usage"
    return f"{tokens['prompt']} prompt + {tokens['completion']} completion tokens"


def endpoint_notes(facts: Mapping[str, Any] | None) -> Iterator[str]:
    """What a reader must know of the answers of an endpoint, as the summary of a run has them."""
    if facts is None:
        return
    models, fingerprints = facts["models"], facts["fingerprints"]
    if len(models) > 1:
        yield f"THE ENDPOINT CHANGED ITS MODEL within the run: {_counted(models)}"
    if not models:
        yield "the endpoint does not say which model answered"
    if len(fingerprints) > 1:
        yield f"answers came from {len(fingerprints)} system fingerprints: {_counted(fingerprints)}"
    if calls := facts["calls_without_usage"]:
        yield f"{calls} answers came without usage: the tokens of their rows are unknown"


def _counted(names: Mapping[str, int]) -> str:
    ordered = sorted(names.items(), key=lambda item: (-item[1], item[0]))
    shown = ", ".join(f"{name[:80]} ({count} answers)" for name, count in ordered[:5])
    return f"{shown} and {len(ordered) - 5} more" if len(ordered) > 5 else shown


def print_benchmark(name: str, summary: Mapping[str, Any], console: Console) -> None:
    """One benchmark's tables, if it has any, and what its numbers compare with."""
    main = summary.get("table") or {"header": [], "lines": []}
    for layout in [{"title": name, **main}, *summary.get("further_tables", [])]:
        if not layout["lines"]:
            continue
        *names, last3, last2, last1 = layout["header"]
        table = RichTable(title=_text(layout["title"]))
        for column in names:
            table.add_column(_text(column))
        for column in (last3, last2, last1):
            table.add_column(_text(column), justify="right", no_wrap=True)
        for line in layout["lines"]:
            table.add_row(*map(_text, line))
        # A log has no width of its own: give the table what it needs instead of cutting it.
        wide = console if console.is_terminal else Console(file=console.file, width=120)
        wide.print(table)
    if summary.get("comparable"):
        say(summary["comparable"], console)
    for finding in summary.get("diagnosis", ()):
        say(f"{name}: {finding['text']}", console)


def _text(cell: Any) -> Text:
    """Nothing but text: models and categories are named by data."""
    return Text(printed(str(cell)))
