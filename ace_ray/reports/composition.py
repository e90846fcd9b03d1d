"""Count what a benchmark's data consists of, as in Figures 2 to 4 of ACEBench's paper."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import product
from typing import Any

from rich.console import Console

from ace_ray.benchmarks.base import Benchmark
from ace_ray.benchmarks.registry import make_benchmark
from ace_ray.benchmarks.results import Bars, Table, Value
from ace_ray.benchmarks.validation import user_code
from ace_ray.errors import UserError
from ace_ray.reports.figures import svg_file
from ace_ray.reports.table import NOT_AVAILABLE, csv_text, print_table
from ace_ray.storage.object_store import Store
from ace_ray.types import Entry, OfferedApi, digest
from ace_ray.util.sanitizing import print_line

_TITLES = {
    "totals": "totals by kind",
    "categories": "entries by category",
    "groups": "entries by group of categories",
    "turns": "entries by turns of the dialogue",
    "arguments": "APIs by number of arguments",
}


def show_composition(
    name: str, data: str | None, output: str | None, opens: Callable[[str], Store], console: Console
) -> None:
    """Print the composition of a benchmark's data, and write CSV and SVG files to ``output``.

    ``data`` is the value of the benchmark's option ``data``, or None for its default. Raises
    `UserError` when there is no such data, or ``output`` is not writable."""
    store = None if output is None else opens(output)
    if store is not None:
        store.check_writable()
    for table, figure in _tables(make_benchmark(name, {} if data is None else {"data": data})):
        print_table(table, console, intervals=False)
        if store is not None:
            store.put(f"{table.name}.csv", csv_text(table).encode("utf-8", "replace"))
            store.put(f"{table.name}.svg", svg_file(figure))
    if store is not None:
        print_line(console, f"CSV and SVG files are in {store.root}")


def _tables(benchmark: Benchmark) -> Iterator[tuple[Table, Bars]]:
    """Yield the tables, each with its figure."""
    with user_code(type(benchmark), "ready"):
        benchmark.ready(named=True)
    output_entries = benchmark.output_entries()
    entries: list[Entry] = []
    # A line for each category that cannot be read.
    notes: list[str] = []
    for language, category in product(output_entries.languages, output_entries.categories):
        try:
            entries += output_entries.entries_of(language, category).values()
        except UserError as error:
            notes.append(f"without {language} {category}: {error}")
    if not entries:
        raise UserError((notes or ["has no entries"])[0], where=f"benchmark {benchmark.name}")
    # Languages with values: a category, or a number (None: not known).
    counted: dict[str, list[tuple[str, Any]]] = {stem: [] for stem in _TITLES}
    apis: dict[tuple[str, str], OfferedApi] = {}
    for entry in entries:
        counted["totals"].append((entry.language, "entries"))
        counted["categories"].append((entry.language, entry.category))
        groups = [name for name, members in benchmark.groups.items() if entry.category in members]
        counted["groups"] += product([entry.language], groups)
        with user_code(type(benchmark), f"the APIs of entry {entry.id!r}"):
            offered, turns = benchmark.apis_and_turns(entry)
            for api in offered:
                apis[entry.language, digest(api.function, api.domain, api.subdomain)] = api
        counted["turns"].append((entry.language, turns))
    counted["totals"] += [(key[0], "APIs") for key in apis]
    counted["totals"] += [(key[0], "APIs with a domain") for key, api in apis.items() if api.domain]
    counted["arguments"] = [(key[0], api.arguments) for key, api in apis.items()]
    domain_apis = [api for api in apis.values() if api.domain]
    notes += [] if domain_apis else ["the data names no domains"]
    name, data = benchmark.name, benchmark.resolved().get("data")
    source = f"{name}, data {data}" if data else name
    for stem, title in _TITLES.items():
        if counted[stem]:
            yield _distribution(f"{name}-{stem}", f"{source}: {title}", counted[stem], notes)
            notes = []
    if domain_apis:
        yield _domains(f"{name}-domains", f"{source}: APIs by domain", domain_apis)


def _distribution(
    name: str, title: str, values: list[tuple[str, Any]], notes: list[str]
) -> tuple[Table, Bars]:
    """Return a table and a figure with the number of each value. Numbers are sorted."""
    values.sort(key=lambda pair: pair[1] if isinstance(pair[1], int) else float("inf"))
    counts = Counter((NOT_AVAILABLE if n is None else str(n), language) for language, n in values)
    languages = sorted({language for _, language in counts})
    several = len(languages) > 1
    kinds = [language or ("no language" if several else "all") for language in languages]
    bars = {label: [counts[label, language] for language in languages] for label, _ in counts}
    lines: list[list[Value]] = [[label, *n, *[sum(n)] * several] for label, n in bars.items()]
    header = [title.rpartition(" by ")[2].capitalize(), *kinds, *["all"] * several]
    return Table(name, title, header, lines, notes), Bars(name, title, kinds, bars, by_count=True)


def _domains(name: str, title: str, apis: Iterable[OfferedApi]) -> tuple[Table, Bars]:
    """Return the number of APIs in each domain and in its two largest subdomains."""
    domains: dict[str, Counter[str]] = {}
    for api in apis:
        domains.setdefault(api.domain, Counter())[api.subdomain] += 1
    lines: list[list[Value]] = []
    bars: dict[str, list[int]] = {}
    for domain, counts in sorted(domains.items(), key=lambda pair: -pair[1].total()):
        largest = [pair for pair in counts.most_common() if pair[0]]
        (first, n1), (second, n2) = [*largest, ("", 0), ("", 0)][:2]
        lines.append([domain, counts.total(), len(largest), first, n1, second, n2])
        bars[domain] = [n1, n2, counts.total() - n1 - n2]
    header = ["Domain", "APIs", "Subdomains", "Largest", "APIs", "Second", "APIs"]
    kinds = ["largest subdomain", "second subdomain", "other APIs"]
    if not any(line[2] for line in lines):
        header, lines, kinds = header[:2], [line[:2] for line in lines], ["APIs"]
        bars = {domain: numbers[2:] for domain, numbers in bars.items()}
    return Table(name, title, header, lines), Bars(name, title, kinds, bars, by_count=True)
