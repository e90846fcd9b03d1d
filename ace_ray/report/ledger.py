"""What a sweep took: the ledger as a table."""

from __future__ import annotations

from ace_ray.benchmarks.reporting import Table, Value
from ace_ray.report.sweeps import LedgerLine, Sweep

PARTS = {
    "load": "Load",
    "warm_up": "Warm-up",
    "generation": "Generation",
    "tool": "Tools",
    "idle": "Idle",
}
"""What a device's seconds go to, and its column."""


def seconds_of(line: LedgerLine) -> dict[str, float]:
    """Part -> device seconds; empty for a run that took none."""
    return line.seconds.model_dump(include=set(PARTS)) if line.seconds else {}


def ledger_table(sweep: Sweep) -> Table:
    """A line per model, in the ledger's order, and one with the sums."""
    header = ["Model", "Step", "State", "Engine", "Devices"]
    header += [f"{title} (s)" for title in PARTS.values()]
    header += ["Total (s)", "Entries", "Prompt tokens", "Completion tokens", "Cost"]
    header += ["Per 1,000 entries (s)", "Per 1,000 entries (cost)"]
    return Table(
        name="ledger",
        title="Ledger: device seconds, tokens and cost",
        header=header,
        lines=[*(_line(line) for line in sweep.lines), _sums(sweep)],
        notes=[
            "device seconds: each counts once per device that was held",
            "cost: by the price per hour in the sweep's config; N/A without one",
        ],
    )


def _line(line: LedgerLine) -> list[Value]:
    seconds = seconds_of(line)
    return [
        line.label,
        line.step,
        line.state,
        line.engine,
        f"{line.devices:g} {line.device}" if line.devices else None,
        *(_amount(seconds.get(part)) for part in PARTS),
        _amount(sum(seconds.values()) if seconds else None),
        line.entries if seconds else None,
        line.tokens.prompt if line.tokens else None,
        line.tokens.completion if line.tokens else None,
        _amount(line.cost, 4),
        _amount(line.per_1000.device_s if line.per_1000 else None),
        _amount(line.per_1000.cost if line.per_1000 else None, 4),
    ]


def _sums(sweep: Sweep) -> list[Value]:
    seconds = [found for line in sweep.lines if (found := seconds_of(line))]
    whole = {part: sum(found[part] for found in seconds) for part in PARTS}
    entries = sum(line.entries for line in sweep.lines)
    priced = all(line.cost is not None for line in sweep.lines if line.seconds)
    cost = sum(line.cost or 0.0 for line in sweep.lines) if seconds and priced else None
    total = sum(whole.values())
    tokens = [line.tokens for line in sweep.lines if line.tokens]
    return [
        *("All", "", "", "", ""),
        *(_amount(value) for value in whole.values()),
        _amount(total),
        entries,
        sum(found.prompt for found in tokens),
        sum(found.completion for found in tokens),
        _amount(cost, 4),
        _amount(1000 * total / entries if entries else None),
        _amount(1000 * cost / entries if entries and cost is not None else None, 4),
    ]


def _amount(value: float | None, digits: int = 1) -> str | None:
    return None if value is None else f"{value:.{digits}f}"
