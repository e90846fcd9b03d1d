"""Print tables and write them as CSV. Shares are in percent."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from io import StringIO
from typing import Any

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from ace_ray.benchmarks.results import Estimate, Table, Value
from ace_ray.util.sanitizing import print_line, sanitize_line, spreadsheet

NOT_AVAILABLE = "N/A"


def print_table(table: Table, console: Console, *, intervals: bool) -> None:
    """Print a table and its notes. ``intervals``: print shares as ``84.0 [71.5, 91.7] n=50``."""
    grid = RichTable()
    grid.add_column(to_text(table.header[0]), overflow="fold")
    for column in table.header[1:]:
        grid.add_column(to_text(column), justify="right")
    for line in table.lines:
        grid.add_row(*(to_text(cell(value, intervals=intervals)) for value in line))
    # A file does not limit the width of a table as a terminal does.
    wide = Console(file=console.file, width=200, quiet=console.quiet)
    wide = console if console.is_terminal else wide
    print_line(console, table.title if table.lines else f"{table.title}: no runs to show")
    if table.lines:
        wide.print(grid)
    for note in table.notes:
        print_line(console, f"  {note}")


def print_parts(
    parts: Iterable[Sequence[Table | str]], console: Console, max_lines: int | None
) -> None:
    """Print ``parts``, which are tables and lines. Leave out parts that exceed ``max_lines`` in
    all, and print how many lines they have."""
    used = left_out = 0
    for part in parts:
        text = StringIO()
        into = Console(file=text, width=console.width, force_terminal=console.is_terminal)
        for block in part:
            if isinstance(block, str):
                print_line(into, block)
            else:
                print_table(block, into, intervals=True)
        lines = text.getvalue().count("\n")
        if max_lines is not None and used + lines >= max_lines:
            left_out += lines
        elif not console.quiet:
            console.file.write(text.getvalue())
            used += lines
    if left_out:
        print_line(console, f"{left_out} more lines with --full, and in the page of --output")


def csv_text(table: Table) -> str:
    """Return a table as CSV.

    A column of shares is followed by columns for ``low`` and ``high`` (95 % interval) and ``n``.
    If any share is partial, a column ``partial`` follows, with "yes" for partial shares. A quote
    precedes texts that a spreadsheet would execute."""
    header: list[str] = []
    widths = []  # number of columns in the file for each column of the table
    for at, name in enumerate(table.header):
        shares = [v for line in table.lines if isinstance(v := line[at], Estimate)]
        partial = ["partial"] if any(share.partial for share in shares) else []
        columns = ["low", "high", "n", *partial] if shares else []
        header += [name, *(f"{name} {part}" for part in columns)]
        widths.append(1 + len(columns))
    lines = (
        [text for pair in zip(line, widths, strict=True) for text in _csv_cells(*pair)]
        for line in table.lines
    )
    return csv_lines([header, *lines])


def _csv_cells(value: Value, width: int) -> list[str | int]:
    if not isinstance(value, Estimate):
        return [NOT_AVAILABLE if value is None or width > 1 else value] * width
    shares = (f"{100 * x:.4f}" for x in (value.value, *value.interval))
    return [*shares, value.n, "yes" if value.partial else ""][:width]


def csv_lines(lines: Iterable[Iterable[Any]]) -> str:
    """Return lines of values as CSV. Strings are protected as in `csv_text`."""
    out = StringIO()
    cells = ([spreadsheet(v) if isinstance(v, str) else v for v in line] for line in lines)
    csv.writer(out, lineterminator="\n").writerows(cells)
    return out.getvalue()


def csv_records(records: Sequence[Mapping[str, Any]], columns: Sequence[str] = ()) -> str:
    """Return records as CSV. ``columns``: the header, by default the keys of the first record."""
    return csv_lines(
        [columns or list(records[0] if records else ()), *(r.values() for r in records)]
    )


def cell(value: Value, *, intervals: bool = False) -> str:
    """Return the text of a cell. ``intervals``: with the interval and the size of a share."""
    if value is None:
        return NOT_AVAILABLE
    if not isinstance(value, Estimate):
        return str(value)
    text = f"{100 * value.value:.1f}{' partial' if value.partial else ''}"
    if intervals:
        low, high = value.interval
        text += f" [{100 * low:.1f}, {100 * high:.1f}] n={value.n}"
    return text


def number(value: float | None, form: str, factor: float = 1) -> str | None:
    """Return ``value`` times ``factor`` in the format ``form``; None if it is not known."""
    return None if value is None else format(factor * value, form)


def to_text(cell: Any) -> Text:
    """Return ``cell`` as text without markup: names of models and categories are untrusted."""
    return Text(sanitize_line(str(cell)))
