"""Print the summary of a run: about ten lines, and tables of all categories on demand."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Console

from ace_ray.benchmarks.headline import partial_notes, titles
from ace_ray.benchmarks.results import Score, Table
from ace_ray.reports.table import cell, print_table
from ace_ray.storage.stored import EarlyHeadline, Restriction, versions_line
from ace_ray.types import STATUSES
from ace_ray.util import log
from ace_ray.util.sanitizing import one_line, print_line

# Maximum columns of the summary, for narrow terminals.
WIDTH = 72
# Share of the engines' time up to which waits are not printed.
FEW_WAITS = 0.1
# Causes of waits in words.
WAITS = {
    "start": "start",
    "no_rows": "no rows",
    "tail": "tail",
    "checker": "checkers behind",
    "store": "store behind",
    "tools": "tools",
}

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
        yield (
            f"{counts}; {timing.get('tokens_per_s') or 0:.0f} tokens/s; "
            f"engine ready after {timing.get('engine_start_s') or 0:.0f} s, "
            f"{timing.get('wall_s') or 0:.0f} s in all"
        )
    lines = engine_line(summary.get("engine") or {}, timing), waits_line(timing), cost_line(summary)
    yield from filter(None, lines)
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
        parts.append(f"{rate:.0f} output tokens/s per engine")
    if tokens := engine.get("prompt_tokens"):
        share = tokens["cached"] / (tokens["cached"] + tokens["computed"])
        parts.append(f"{share:.1%} of the prompt tokens came from the engine's cache")
    for key, name in (("first_token_s", "first token after"), ("token_s", "each further token")):
        if times := engine.get(key):
            parts.append(f"{name} {times['p50']:.3g} s (95 % within {times['p95']:.3g} s)")
    return "; ".join(parts)


def waits_line(timing: Mapping[str, Any]) -> str:
    """Return a line with the share of time in which engines waited, and the causes of at least 1 %.
    Return "" if the share is at most `FEW_WAITS`."""
    causes = dict(timing.get("waits") or {})
    every = causes.pop("all", 0.0)
    if every <= FEW_WAITS:
        return ""
    ordered = sorted(causes.items(), key=lambda pair: -pair[1])
    parts = [f"{WAITS[cause]} {share:.0%}" for cause, share in ordered if share >= 0.01]
    return f"engines waited {every:.0%} of the time: {', '.join(parts)}"


def cost_line(summary: Mapping[str, Any]) -> str:
    """Return a line about the cost of a run; "" if it is unknown."""
    if not (cost := summary.get("cost")):
        return ""
    costs = {"entry": cost["per_entry"], "solved entry": cost["per_solved_entry"]}
    parts = [f"{value:.3g} per {name}" for name, value in costs.items() if value is not None]
    return f"cost {cost['total']:.4g}" + (f": {', '.join(parts)}" if parts else "")


def _print_line(line: str, console: Console, indent: str = "  ") -> None:
    """Print ``line`` on lines of at most `WIDTH` columns. Further lines are indented."""
    for text in textwrap.wrap(
        line,
        WIDTH,
        subsequent_indent=indent + " " * (len(line) - len(line.lstrip())),
        break_long_words=False,
        break_on_hyphens=False,
    ) or [""]:
        print_line(console, text)


def early_lines(early: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield a line for each early decision, from the summary of a run."""
    for name, score in (early or {}).get("headlines", {}).items():
        outcome = score["outcome"] or f"undecided, needs {EarlyHeadline(**score).missing_evidence}"
        if outcome == "within":
            outcome = f"within {early['margin']:g} points" if early else outcome
        low, middle, high = (f"{100 * score[key]:+.1f}" for key in ("low", "difference", "high"))
        yield (
            f"{name} against {early['against'] if early else ''}: {outcome}, {middle} points "
            f"[{low}, {high}] after {score['units']} of {score['of_units']} units"
        )


def endpoint_notes(facts: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield notes on the answers of an endpoint, from the summary of a run."""
    if facts is None:
        return
    models, fingerprints = facts["models"], facts["fingerprints"]
    if len(models) > 1:
        yield f"THE ENDPOINT CHANGED ITS MODEL within the run: {_join_counts(models)}"
    if not models:
        yield "the endpoint does not report which model answered"
    if len(fingerprints) > 1:
        counts = _join_counts(fingerprints)
        yield f"answers came from {len(fingerprints)} system fingerprints: {counts}"
    if calls := facts["calls_without_usage"]:
        yield (f"{calls} answers had no usage data: the tokens of their rows are unknown")


def _join_counts(names: Mapping[str, int]) -> str:
    ordered = sorted(names.items(), key=lambda item: (-item[1], item[0]))
    text = ", ".join(f"{name[:80]} ({count} answers)" for name, count in ordered[:5])
    return f"{text} and {len(ordered) - 5} more" if len(ordered) > 5 else text


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
    for key in ("floor", "comparable"):
        if summary.get(key):
            _print_line(f"  {summary[key]}", console, "")
    for finding in summary.get("diagnosis", ()):
        _print_line(f"  {finding['text']}", console, "")


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
