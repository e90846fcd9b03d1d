"""Build the printed table of a summary, and Tables 2 to 4 and 6 to 8 of the paper.

A cell of a paper's table is None if the run has no value, or if too many rows are unscored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ace_ray.benchmarks.acebench.options import AGENT, LANGUAGES
from ace_ray.benchmarks.acebench.prompts import VARIANTS
from ace_ray.benchmarks.acebench.summary import GROUPS, PAPER, PAPER_COLUMNS, TOP
from ace_ray.benchmarks.aggregates import complete_estimate, table_of_runs
from ace_ray.benchmarks.comparability import mark_labels, self_play_lines
from ace_ray.benchmarks.results import BenchmarkResult, Estimate, Table, Value
from ace_ray.benchmarks.statistics import ACCURACY, PROCESS, VALUE, estimate, is_judged, percents
from ace_ray.types import RULE_SETS, canonical_json

HEADER = ("language", "group", "category", "n", "official", "strict")
# Aggregates with a line in the printed table. The other two equal a single category.
_NAMED = ("atom", "single_turn", "multi_turn", *TOP, "overall")


def table(summary: Mapping[str, Any]) -> list[list[str]]:
    """Return the lines of the printed table, each with the cells of `HEADER`.

    There are lines for each language, and for all languages combined if there are several. Cells
    read ``84.0 % [71.5, 91.7]``, or ``N/A`` if the value is missing. Agent categories have a line
    for end-to-end accuracy and a line for process accuracy. Aggregates come from `summary.WORKBOOK`
    and use the end-to-end accuracy of agents."""
    blocks = dict(summary["languages"])
    if len(blocks) > 1:
        blocks["combined"] = summary["combined"]
    return [line for language, block in blocks.items() for line in _lines(language, block)]


def _lines(language: str, block: Mapping[str, Any]) -> list[list[str]]:
    lines = []
    for category, stats in block["categories"].items():
        group = next(name for name in TOP if category in GROUPS[name])
        n = str(stats["official"]["n"])
        lines.append([language, group, category, n, *percents(stats[r] for r in RULE_SETS)])
        if category in AGENT and PROCESS[0] in stats["official"]:
            process = percents((stats[r] for r in RULE_SETS), PROCESS)
            lines.append([language, group, f"{category} (process)", n, *process])
    for name in _NAMED:
        cells = [block["rules"][rule]["workbook"][name] for rule in RULE_SETS]
        if any(cell["value"] is not None for cell in cells) or name == "overall":
            lines.append([language, name, "", "", *percents(cells, VALUE)])
    return lines


# The block of a language in the summary, or the combined block (`summary.summarize`).
Block = Mapping[str, Any]


def aggregate(run: BenchmarkResult, block: Block | None, name: str, rules: str) -> Estimate | None:
    """Return a run's estimate for the column ``name`` of the paper's Table 2."""
    return complete_estimate(run, block, rules, ("paper", PAPER), name)


def category(
    run: BenchmarkResult, block: Block, name: str, rules: str, *, process: bool = False
) -> Estimate | None:
    """Return the accuracy of a category, or with ``process`` its process accuracy."""
    stats = (judged_stats(run, block, name) or {}).get(rules)
    return estimate(stats, PROCESS if process else ACCURACY)


def judged_stats(run: BenchmarkResult, block: Block, name: str) -> Mapping[str, Any] | None:
    """Return the statistics of a category, or None if too many of its rows are unscored."""
    stats: Mapping[str, Any] | None = block["categories"].get(name)
    return stats if stats and is_judged(stats, run.summary["max_unscored"]) else None


def both_languages(run: BenchmarkResult) -> Block | None:
    """Return the summary over both languages, or None if the run has only one."""
    is_complete = set(run.summary["languages"]) == set(LANGUAGES)
    return run.summary["combined"] if is_complete else None


def identity_value(run: BenchmarkResult, key: str) -> str:
    """Return the value of ``key`` in the run's identity, "unknown" if it is missing."""
    return str(run.identity.get(key, "unknown"))


def notes_on_languages(runs: Sequence[BenchmarkResult]) -> list[str]:
    """Return notes that name the runs with only one language."""
    alone = {
        language: [run.label for run in runs if set(run.summary["languages"]) == {language}]
        for language in LANGUAGES
    }
    return [f"{lang} only: {', '.join(labels)}" for lang, labels in alone.items() if labels]


def notes_on_missing(rows: str, lines: Sequence[Sequence[Value]]) -> list[str]:
    """Return a note that a table needs runs with these ``rows``, if no line has a value."""
    if any(value is not None for line in lines for value in line[1:]):
        return []
    return [f"missing: runs with {rows}, almost all of them judged"]


_SPECIAL = {
    "Incomplete": "special_incomplete",
    "Error": "special_error_param",
    "Irrelevant": "special_irrelevant",
}
# Columns of Table 4: end-to-end (EA) and process accuracy (PA).
_AGENT = {
    f"{title} {kind}": (name, kind == "PA")
    for title, name in (("Multi-Turn", "agent_multi_turn"), ("Multi-Step", "agent_multi_step"))
    for kind in ("EA", "PA")
}
# Tables of all groups, and their languages.
_OF_GROUPS: Mapping[str, tuple[str, Callable[[BenchmarkResult], Block | None]]] = {
    "table2": ("English and Chinese combined", both_languages),
    "table7": ("English", lambda run: run.summary["languages"].get("en")),
    "table8": ("Chinese", lambda run: run.summary["languages"].get("zh")),
}


def tables(runs: Sequence[BenchmarkResult], rules: str) -> Iterator[Table]:
    """Build Tables 2, 7 and 8 of all groups, Table 3 of special and Table 4 of agent categories.

    A run of one language has no values in Table 2. Tables 3 and 4 pool the rows of languages."""
    for name, (words, block) in _OF_GROUPS.items():
        title = f"accuracy by kind of data, {words} (%)"

        def groups(
            run: BenchmarkResult, block: Callable[[BenchmarkResult], Block | None] = block
        ) -> list[Value]:
            return [aggregate(run, block(run), column, rules) for column in PAPER_COLUMNS]

        rows = f"rows of all categories of a group in {words}"
        yield _table(name, title, list(PAPER_COLUMNS.values()), runs, groups, rows)

    def special(run: BenchmarkResult) -> list[Value]:
        return [category(run, run.summary["combined"], name, rules) for name in _SPECIAL.values()]

    title = "accuracy on Special data (%)"
    yield _table("table3", title, list(_SPECIAL), runs, special, "rows of special categories")

    def agents(run: BenchmarkResult) -> list[Value]:
        block = run.summary["combined"]
        return [category(run, block, name, rules, process=p) for name, p in _AGENT.values()]

    title = "end-to-end (EA) and process accuracy (PA) on Agent data (%)"
    yield _table("table4", title, list(_AGENT), runs, agents, "rows of agent categories")


def _table(
    name: str,
    title: str,
    header: Sequence[str],
    runs: Sequence[BenchmarkResult],
    cells: Callable[[BenchmarkResult], list[Value]],
    rows: str,
) -> Table:
    """Build a table of the paper. ``rows``: the rows that it needs."""
    title = f"Table {name.removeprefix('table')}: {title}"
    notes = [*notes_on_languages(runs), *(self_play_lines(runs) if name != "table3" else ())]
    table = table_of_runs(name, title, header, runs, cells, notes)
    return replace(table, notes=[*table.notes, *notes_on_missing(rows, table.lines)])


# Conditions that a variant changes. Shorter texts are ace_ray's own, so their source changes.
_OF_THE_VARIANT = ("variant", "prompts", "prompts_sha256")


def table6(runs: Sequence[BenchmarkResult], rules: str) -> Table:
    """Build Table 6: accuracy on English normal data, by prompt variant and model."""
    lines: list[list[Value]] = []
    notes: list[str] = []
    missing: dict[str, list[str]] = {}
    # Runs with an unknown variant are left out.
    for by_variant in filter(None, _series(runs)):
        members = list(by_variant.values())
        if lacks := ", ".join(variant for variant in VARIANTS if variant not in by_variant):
            missing.setdefault(lacks, []).append(members[0].label)
        if len(members) == 1:
            continue
        incomplete = any(run.incomplete for run in members)
        normal = {
            variant: aggregate(run, run.summary["languages"].get("en"), "normal", rules)
            for variant, run in by_variant.items()
        }
        cells = map(normal.get, VARIANTS)
        lines.append([members[0].model + ("*" if incomplete else ""), *cells])
        sources = ", ".join(
            f"{variant} from {run.label} ({identity_value(run, 'prompts')} prompts)"
            for variant, run in by_variant.items()
        )
        notes.append(f"{members[0].model}: {sources}")
        notes += [line for line in mark_labels(members)[1] if line.startswith("*")]
    if not lines and not missing:
        notes.append("missing: runs of at least two prompt variants, without native tool calls")
    return Table(
        name="table6",
        title="Table 6: accuracy by prompt variant, English Normal data (%)",
        header=["Model", *(variant.capitalize() for variant in VARIANTS)],
        lines=lines,
        notes=[
            *notes,
            *(
                f"missing: runs of the variants {variants} with the same model, engine arguments "
                f"and other conditions as {', '.join(labels)}"
                for variants, labels in missing.items()
            ),
        ],
    )


def _series(runs: Sequence[BenchmarkResult]) -> list[dict[str, BenchmarkResult]]:
    """Group runs that differ only in the variant. A group has at most one run of each variant."""
    alike: dict[str, list[dict[str, BenchmarkResult]]] = {}
    for run in runs:
        conditions = {k: v for k, v in run.conditions.items() if k not in _OF_THE_VARIANT}
        series = alike.setdefault(canonical_json([run.candidate, conditions]), [])
        variant = identity_value(run, "variant")
        room: dict[str, BenchmarkResult] = next((s for s in series if variant not in s), {})
        if not room:
            series.append(room)
        room[variant] = run
    return [
        {variant: by_variant[variant] for variant in VARIANTS if variant in by_variant}
        for series in alike.values()
        for by_variant in series
    ]
