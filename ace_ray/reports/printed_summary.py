"""Print the summary of a run: about ten lines, and tables of all categories on demand."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Console

from ace_ray.benchmarks.headline import partial_notes, titles
from ace_ray.benchmarks.results import Score, Table
from ace_ray.config.schema import ENDPOINT
from ace_ray.reports.early import early_lines
from ace_ray.reports.runs import endpoint_notes
from ace_ray.reports.table import cell, print_table
from ace_ray.storage.stored import Restriction, versions_line
from ace_ray.types import STATUSES
from ace_ray.util import log
from ace_ray.util.sanitizing import one_line, print_line

WIDTH = 72  # maximum columns of the summary, for narrow terminals
FEW_WAITS = 0.1  # share of the engines' time up to which waits are not printed
# Causes of waits in words.
WAITS = dict(
    start="start", no_rows="no rows", tail="tail", tools="tools",
    checker="checkers behind", store="store behind",
)  # fmt: skip

_NUMBERS = (
    "run_id", "uri", "declared", *STATUSES, "missing", "complete", "headline", "why", "tokens",
    "cost", "limit", "restricted", "mixed_versions", "grown", "failures", "notes", "incomplete",
)  # fmt: skip


def tell_results(summary: Mapping[str, Any], code: int, *, full: bool = False) -> None:
    """Print a command's result: the summary, or a JSON line with its numbers and the exit code.
    The summary has scores, totals and the URI of a run; with ``full`` also all tables."""
    if not log.is_json():
        console = Console()
        for name, benchmark in summary["benchmarks"].items():
            print_benchmark(name, benchmark, console, full=full)
        for line in _totals(summary):
            _print_line(line, console)
        print_line(console, f"results: {summary['uri']}")
        return
    log.print_result(
        f"results: {summary['uri']}",
        event="results",
        exit_code=code,
        **{name: summary[name] for name in _NUMBERS if name in summary},
        scores={
            name: {
                rules: [{k: v for k, v in score.items() if k != "missing"} for score in scores]
                for rules, scores in block.get("scores", {}).items()
            }
            for name, block in summary["benchmarks"].items()
        },
    )


def _totals(summary: Mapping[str, Any]) -> Iterator[str]:
    totals = " + ".join(f"{summary[s]} {s}" for s in STATUSES if summary[s] or s == "scored")
    missing = f" + {summary['missing']} missing" if summary["missing"] else ""
    timing, tokens = summary["timing"], summary["tokens"]
    if "source" in summary:
        yield from summary["notes"]
    elif summary["limit"]:
        yield f"limited to {summary['limit']} entries: a sample of the benchmark, not its score"
    for name, part in summary.get("restricted", {}).items():
        words = Restriction.model_validate(part).description
        yield f"{name} is limited to {words}: a sample of the benchmark, not its score"
    yield f"declared {summary['declared']} = {totals}{missing}"
    for failure in summary.get("failures", ()):
        reason = ": ".join(filter(None, (failure["error_class"], one_line(failure["error"]))))
        status = f" ({failure['status']})" if failure["status"] else ""
        yield f"  {failure['rows']} x {reason}{status}"
    if not summary["headline"]:
        yield f"no headline number: {summary['why']}"
    yield from early_lines(summary.get("early"))
    if timing:
        counts = f"{tokens['prompt']} prompt + {tokens['completion']} completion tokens"
        if None in tokens.values():
            counts = "tokens unknown (the endpoint reports no usage)"
        start = f"engine ready {timing.get('engine_start_s') or 0:.0f} s after planning, "
        yield (
            f"{counts}; {timing.get('tokens_per_s') or 0:.0f} tokens/s; "
            f"{start * (timing.get('device') != ENDPOINT)}{timing.get('wall_s') or 0:.0f} s in all"
        )
    lines = engine_line(summary.get("engine") or {}, timing), pace_line(timing)
    yield from filter(None, (*lines, waits_line(timing), cost_line(summary)))
    if mixed := versions_line(summary.get("mixed_versions", {})):
        yield mixed
    yield from summary.get("grown", ())
    if summary["cut_by_length"]:
        yield f"answers cut off by max_tokens or the context length: {summary['cut_by_length']}"
    if summary["reasoning_truncated"]:
        yield f"answers that ended inside their reasoning: {summary['reasoning_truncated']}"
    yield from endpoint_notes(summary.get("endpoint"))
    if summary["backend"] == "fake":
        yield "backend: fake - this tests the pipeline and is not an evaluation"


def engine_line(engine: Mapping[str, Any], timing: Mapping[str, Any]) -> str:
    """Return a line about the engines' speed, cache and token times; "" if they are unknown."""
    parts = []
    if rate := timing.get("output_tokens_per_s"):
        parts.append(f"{rate:.0f} output tokens/s per {_engine_word(timing)}")
    if tokens := engine.get("prompt_tokens"):
        share = tokens["cached"] / (tokens["cached"] + tokens["computed"])
        parts.append(f"{share:.1%} of the prompt tokens came from the engine's cache")
    for key, name in (("first_token_s", "first token after"), ("token_s", "each further token")):
        if times := engine.get(key):
            parts.append(f"{name} {times['p50']:.3g} s (95 % within {times['p95']:.3g} s)")
    return "; ".join(parts)


def pace_line(timing: Mapping[str, Any]) -> str:
    """Return a line about the end of a run and the load of its engines; "" if they are unknown."""
    pace, parts, engine = timing.get("pace") or {}, [], _engine_word(timing)
    if "until_90_s" in pace:
        parts.append(f"90 % of the rows after {pace['until_90_s']:.0f} s")
        parts.append(f"the last tenth took {pace['last_tenth']:.0%} of the time")
    if "episodes_per_engine_hour" in pace:
        parts.append(f"{pace['episodes_per_engine_hour']:.0f} episodes per {engine} hour")
    if "calls_per_engine" in pace:
        parts.append(f"{pace['calls_per_engine']:.0f} model calls at a time per {engine} (median)")
    return "; ".join(parts)


def _engine_word(timing: Mapping[str, Any]) -> str:
    return "endpoint worker" if timing.get("device") == ENDPOINT else "engine"


def waits_line(timing: Mapping[str, Any]) -> str:
    """Return a line with the share of time in which engines waited, and the causes of at least 1 %.
    Return "" if the share is at most `FEW_WAITS`."""
    causes = dict(timing.get("waits") or {})
    every = causes.pop("all", 0.0)
    if every <= FEW_WAITS:
        return ""
    ordered = sorted(causes.items(), key=lambda pair: -pair[1])
    parts = [f"{WAITS[cause]} {share:.0%}" for cause, share in ordered if share >= 0.01]
    return f"{_engine_word(timing)}s waited {every:.0%} of the time: {', '.join(parts)}"


def cost_line(summary: Mapping[str, Any]) -> str:
    """Return a line about the cost of a run; "" if it is unknown."""
    if not (cost := summary.get("cost")):
        return ""
    costs = {"entry": cost["per_entry"], "solved entry": cost["per_solved_entry"]}
    parts = [f"{value:.3g} per {name}" for name, value in costs.items() if value is not None]
    return f"cost {cost['total']:.4g}" + (f": {', '.join(parts)}" if parts else "")


def _print_line(line: str, console: Console, indent: str = "  ") -> None:
    """Print ``line`` on lines of at most `WIDTH` columns. Further lines are indented."""
    indent += " " * (len(line) - len(line.lstrip()))
    wrapper = textwrap.TextWrapper(WIDTH, subsequent_indent=indent, break_long_words=False)
    wrapper.break_on_hyphens = False
    for text in wrapper.wrap(line) or [""]:
        print_line(console, text)


def print_benchmark(
    name: str, summary: Mapping[str, Any], console: Console, *, full: bool = False
) -> None:
    """Print a benchmark's scores, its floor, the published numbers to compare with, and the
    findings of its diagnosis. With ``full``, also print its tables."""
    main = summary.get("table") or {"header": [], "lines": []}
    for layout in [{"title": name, **main}, *summary.get("further_tables", [])] if full else ():
        if layout["lines"]:
            table = Table("", layout["title"], layout["header"], layout["lines"])
            print_table(table, console, intervals=False)
    print_line(console, name)
    for line, indent in _score_lines(summary["scores"]):
        _print_line(line, console, indent)
    findings = (finding["text"] for finding in summary.get("diagnosis", ()))
    for text in filter(None, [summary.get("floor"), summary.get("comparable"), *findings]):
        _print_line(f"  {text}", console, "")


def _score_lines(scores: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (line, indentation of its continuation lines).

    A rule set has a line with the headline and a line with the other scores. Rule sets with equal
    scores share these lines. Notes on partial scores follow."""
    by_rules = {rules: [Score.of_json(tree) for tree in trees] for rules, trees in scores.items()}
    groups: dict[str, list[Score]] = {}
    for rules, group in by_rules.items():
        equal = next((names for names, g in groups.items() if g == group), None)
        groups.pop(equal or "", None)
        groups[f"{equal}, {rules}" if equal else rules] = group
    width = max(map(len, groups), default=0)
    for rules, group in groups.items():
        texts = [
            f"{title} {cell(score.estimate, intervals=not i)}"
            for i, (title, score) in enumerate(zip(titles(group), group, strict=True))
            if score.estimate is not None
        ]
        head, *further_texts = texts if group[0].estimate is not None else ["", *texts]
        gap = " " * (width + 4)
        yield f"  {rules:{width}}  {head or f'{titles(group)[0]} N/A'}", gap
        if further_texts:
            yield f"{gap}{', '.join(further_texts)}", ""
    notes = dict.fromkeys(note for g in by_rules.values() for note in partial_notes(g))
    yield from ((f"  {note}", "") for note in notes)
