"""Print the plan of a sweep before it runs, and its ledger afterwards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ace_ray.pipeline.end_time import format_time
from ace_ray.sweep.packing import GUESS, Lane
from ace_ray.sweep.sweep import Sweep
from ace_ray.util import log
from ace_ray.util.sanitizing import print_line, sanitize_line

# Figures of a run's pace in the printed ledger (`ace_ray.pipeline.monitoring.timing`).
_PACE = {"until_90_s": "90 % s", "last_tenth": "last tenth"}


def print_plan(sweep: Sweep, console: Console) -> None:
    """Print the lanes of a sweep, their estimated device hours, and where results are stored."""
    lanes = sweep.lanes()
    table = Table("lane", "models", title=sweep.sweep_id)
    for column in ("GPUs", "takes", "device hours"):
        table.add_column(column, justify="right")
    total = 0.0
    for number, lane in enumerate(lanes, start=1):
        hours = lane.seconds * (lane.gpus or (lane.runs[0].gpus and 1)) / 3600
        total += hours
        labels = ", ".join(run.label for run in lane.runs)
        if len(lane.runs) > 4:
            labels = f"{lane.runs[0].label} .. {lane.runs[-1].label} ({len(lane.runs)})"
        table.add_row(
            str(number),
            Text(sanitize_line(labels)),
            str(lane.gpus or "-"),
            f"{lane.seconds / 3600:.2f} h",
            f"{hours:.2f}",
        )
    _widen_console(console).print(table)
    for line in _plan_lines(sweep, lanes, total):
        print_line(console, line)


def _plan_lines(sweep: Sweep, lanes: Sequence[Lane], hours: float) -> Iterator[str]:
    planned = [run for run in sweep.runs if run.plan is not None]
    pending = sum(len(lane.runs) for lane in lanes)
    yield f"{len(planned)} models, {len(planned) - pending} of them finished"
    yield from (f"{run.label}: refused: {run.refused}" for run in sweep.runs if run.refused)
    yield from (f"{run.label}: {run.awaited}" for run in sweep.runs if run.awaited)
    for run in planned:
        hazards = run.plan.hazards if run.plan else {}
        yield from (f"{run.label}: {line}" for line in hazards.values())
        if not run.gpus:
            yield f"{run.label}: behind an endpoint, so its time is unknown"
        elif run.parameters is None and run.plan and run.plan.model.kind != "fake":
            guess = f"{GUESS / 1e9:g} billion parameters"
            yield f"{run.label}: its size is unknown; the estimate assumes {guess}"
    engines = "GPU" if sweep.machine.gpus else "CPU engine"
    yield f"about {hours:.2f} {engines} hours (an estimate from sizes and prompt lengths)"
    if (price := sweep.any_run.price_per_hour) is not None:
        yield f"cost: about {hours * price:.2f} at {price:g} per hour"
    yield f"results: {sweep.uri}/"


def tell_ledger(sweep: Sweep, code: int) -> None:
    """Print the ledger of a sweep: a table, or one JSON line if the log format is JSON."""
    if not log.is_json():
        print_ledger(sweep, Console())
        return
    runs = [asdict(record) for record in sweep.cost_records]
    log.print_result(
        f"results: {sweep.uri}/", event="results", exit_code=code, uri=sweep.uri, runs=runs
    )


def print_ledger(sweep: Sweep, console: Console) -> None:
    """Print one line per run, with its state and how its engines spent their time."""
    priced = any(line.cost is not None for line in sweep.cost_records)
    table = Table("model", "state", "engine", title=sweep.sweep_id)
    numbers = ("scored", "load s", "warm-up s", "generation s", "tool s", "idle s", "tokens")
    for column in (*numbers, *_PACE.values(), *["cost"] * priced):
        table.add_column(column, justify="right")
    for line in sweep.cost_records:
        seconds = [f"{value:.1f}" for value in line.seconds.values()] or ["-"] * 5
        cost = [] if not priced else ["-" if line.cost is None else f"{line.cost:.2f}"]
        counts = line.tokens.values()
        tokens = str(sum(filter(None, counts))) if counts and None not in counts else "-"
        label, engine = Text(sanitize_line(line.label)), Text(sanitize_line(line.engine))
        pace = [f"{line.pace[key]:.2f}" if key in line.pace else "-" for key in _PACE]
        table.add_row(label, line.state, engine, str(line.entries), *seconds, tokens, *pace, *cost)
    _widen_console(console).print(table)
    for line in sweep.cost_records:
        if line.note:
            print_line(console, f"{line.label}: {line.note}")
        for name, needs in line.undecided.items():
            print_line(console, f"{line.label}: undecided in {name}: needs {needs}")
    print_line(console, f"results: {sweep.uri}/")


def remaining_line(sweep: Sweep) -> str:
    """Return how many rows an incomplete sweep has left, and how long they would take."""
    counts = [r.rows_left for r in sweep.cost_records if r.state in ("pending", "incomplete")]
    rows, row_s = sum(counts), sweep.seconds_per_row
    if not rows:
        return "not all checkpoints are evaluated"
    prefix, many = "at most " if sweep.any_run.early else "", "s" * (len(counts) > 1)
    speed = f" ({format_time(rows * row_s)} at this speed)" if row_s else ""
    return f"{prefix}{rows} rows of {len(counts)} model{many} are not scored{speed}"


def _widen_console(console: Console) -> Console:
    # Lines of a log file are not wrapped, so the table gets its full width.
    return console if console.is_terminal else Console(file=console.file, width=140)
