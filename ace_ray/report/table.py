"""A summary as printed tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ace_ray.clean import printed
from ace_ray.records import STATUSES


def print_summary(summary: Mapping[str, Any], console: Console) -> None:
    """The final words of a run: tables, honest totals, where it landed."""
    for name, benchmark in summary["benchmarks"].items():
        print_benchmark(name, benchmark, console)
    totals = " + ".join(f"{summary[s]} {s}" for s in STATUSES if summary[s] or s == "scored")
    missing = f" + {summary['missing']} missing" if summary["missing"] else ""
    line = f"declared {summary['declared']} = {totals}{missing}"
    timing, tokens = summary["timing"], summary["tokens"]

    def say(text: str) -> None:
        console.print(printed(text), highlight=False, soft_wrap=True, markup=False)

    if summary["limit"]:
        say(f"limited to {summary['limit']} entries: a sample of the benchmark, not its score")
    say(line)
    for name, count in summary["error_classes"].items():
        say(f"  {count} x {name}")
    if not summary["headline"]:
        say(f"no headline number: {summary['why']}")
    if timing:
        say(
            f"{tokens['prompt']} prompt + {tokens['completion']} completion tokens; "
            f"{timing.get('tokens_per_s') or 0:.0f} tokens/s; engine ready after "
            f"{timing.get('engine_start_s') or 0:.0f} s, {timing.get('wall_s') or 0:.0f} s in all"
        )
    if summary["cut_by_length"]:
        say(f"{summary['cut_by_length']} answers were cut by max_tokens or the context")
    if summary["reasoning_truncated"]:
        say(f"{summary['reasoning_truncated']} answers ended inside their reasoning")
    if summary["backend"] == "fake":
        say("backend: fake - this is a test of the pipeline, not an evaluation")
    say(f"results: {summary['uri']}")


def print_benchmark(name: str, summary: Mapping[str, Any], console: Console) -> None:
    """One benchmark's tables, if it has any, and what its numbers compare with."""
    main = summary.get("table") or {"header": [], "lines": []}
    for layout in [{"title": name, **main}, *summary.get("further_tables", [])]:
        if not layout["lines"]:
            continue
        *names, last3, last2, last1 = layout["header"]
        table = Table(title=_text(layout["title"]))
        for name in names:
            table.add_column(_text(name))
        for column in (last3, last2, last1):
            table.add_column(_text(column), justify="right", no_wrap=True)
        for line in layout["lines"]:
            table.add_row(*map(_text, line))
        # A log has no width of its own: give the table what it needs instead of cutting it.
        wide = console if console.is_terminal else Console(file=console.file, width=120)
        wide.print(table)
    if summary.get("comparable"):
        console.print(printed(summary["comparable"]), highlight=False, soft_wrap=True, markup=False)


def _text(cell: Any) -> Text:
    """A cell that is nothing but text: categories are named by data."""
    return Text(printed(str(cell)))
