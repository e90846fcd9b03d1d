"""How often an early decision is wrong, and what it saves: simulated sweeps.

    python perf/early_decisions.py [--sweeps 10000] [--checkpoints 20] [--alpha 0.05] [--margin 1]

Each sweep draws a benchmark of the reference runs (its categories, their sizes and weights in the
headline, dialogues as units), a first model between the accuracies of two reference models, a share
of entries that are judged differently, and checkpoints that differ by 0, 1, 2, 3, 5 or 10 points,
either way: from the first model (``baseline``), or each from the one before it (``previous``, whose
reference may have stopped itself). What a checkpoint is worth on the whole benchmark is exact; the
seed of the order is the sweep's. Then every checkpoint is decided with `ace_ray.early` and its
share of the alpha, and, for comparison, by a paired z test at thirty looks. A decision is wrong
where the whole benchmark says otherwise. Exit code 1: more than alpha of the sweeps have a wrong
one, beyond chance.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats as scipy_stats

from ace_ray.early.betting import Draws, rejected_at
from ace_ray.early.order import drawn_order
from ace_ray.stats import wilson
from ace_ray.sweeps.comparisons import FIRST_BATCH

RUNS = Path(__file__).parent.parent / "docs" / "reference-runs"
POINTS = (0, 1, 2, 3, 5, 10)
LOOKS = 30
DISAGREE = (0.05, 0.1, 0.2, 0.3)


@dataclass(frozen=True)
class Stratum:
    units: int
    rows: int
    """Entries of a unit on average."""
    weight: float
    """In the headline."""
    low: float
    high: float
    """Accuracies of the two models."""


def strata(first: str, second: str, weights: dict[str, float] | None = None) -> list[Stratum]:
    """Those of two reference runs of a benchmark, a category each; weights add up to 1."""
    one, two = (_categories(name) for name in (first, second))
    total = sum((weights or {}).get(name, one[name]["declared"]) for name in one)
    return [
        Stratum(
            units=facts["official"]["n"],
            rows=max(1, round(facts["declared"] / facts["official"]["n"])),
            weight=(weights or {}).get(name, facts["declared"]) / total,
            low=facts["official"]["accuracy"],
            high=two.get(name, facts)["official"]["accuracy"],
        )
        for name, facts in one.items()
        if facts["official"]["n"]
    ]


def _categories(name: str) -> dict[str, Any]:
    (summary,) = json.loads((RUNS / f"{name}.json").read_text())["summary"]["benchmarks"].values()
    whole: dict[str, Any] = summary.get("combined", summary)["categories"]
    return whole


def benchmarks() -> dict[str, list[Stratum]]:
    groups = {"normal": 0.6, "special": 0.2, "agent": 0.2}
    ace = _categories("acebench-0.5b")
    counts = {group: sum(1 for name in ace if name.startswith(group)) for group in groups}
    weights = {
        name: groups[group] / counts[group]
        for name in ace
        for group in groups
        if name.startswith(group)
    }
    return {
        "acebench": strata("acebench-0.5b", "acebench-1.5b", weights),
        "bfcl": strata("bfcl-prompt-0.5b", "bfcl-prompt-1.5b"),
        "bfcl, categories alike": strata(
            "bfcl-prompt-0.5b",
            "bfcl-prompt-1.5b",
            dict.fromkeys(_categories("bfcl-prompt-0.5b"), 1.0),
        ),
    }


@dataclass(frozen=True)
class Sweep:
    """Values float64 (checkpoints, units) in drawn order, weights (units,), entries of each unit,
    what is true (checkpoints,), and the points asked for. ``chain``: each is compared with the one
    before it."""

    values: np.ndarray
    weights: np.ndarray
    rows: np.ndarray
    truth: np.ndarray
    points: np.ndarray
    chain: bool


def drawn(parts: list[Stratum], checkpoints: int, seed: int, *, chain: bool) -> Sweep:
    rng = np.random.default_rng(seed)
    mix, share = rng.uniform(), float(rng.choice(DISAGREE))
    points = rng.choice(POINTS, checkpoints) * rng.choice([-1, 1], checkpoints)
    values, weights, rows = [], [], []
    for part in parts:
        accuracy = part.low + mix * (part.high - part.low)
        right = rng.permutation(part.units) < round(part.units * accuracy)
        made = np.zeros((checkpoints, part.units))
        for number, wanted in enumerate(points / 100):
            moved = _moved(right, share, wanted, rng)
            made[number] = moved.astype(float) - right
            right = moved if chain else right
        values.append(made)
        weights += [part.weight / part.units] * part.units
        rows += [part.rows] * part.units
    order = drawn_order([str(at) for at in range(len(weights))], weights, seed)
    every, weight = np.concatenate(values, axis=1), np.asarray(weights)
    # Without rounding a checkpoint that equals its reference would be a little better or worse.
    truth = np.round(every @ weight, 9)
    return Sweep(
        every[:, order], weight[order], np.asarray(rows)[order], truth, np.abs(points), chain
    )


def _moved(right: np.ndarray, share: float, wanted: float, rng: np.random.Generator) -> np.ndarray:
    """The units of a stratum that another model has right: the difference is what is wanted, as far
    as the accuracy leaves room, the sum of gains and losses the share that differs."""
    count, held = len(right), int(right.sum())
    net = max(-held, min(count - held, round(count * wanted)))
    both = max(abs(net), round(count * share))
    both -= (both - abs(net)) % 2
    # As many gains and losses as there is room for, with the same difference.
    over = max(0, (both + net) // 2 - (count - held), (both - net) // 2 - held)
    gained, lost = (both + net) // 2 - over, (both - net) // 2 - over
    moved = right.copy()
    moved[rng.permutation(np.flatnonzero(~right))[:gained]] = True
    moved[rng.permutation(np.flatnonzero(right))[:lost]] = False
    return moved


def _wrong(outcome: np.ndarray, truth: np.ndarray, margin: float) -> np.ndarray:
    wrong: np.ndarray = (
        ((outcome == 1) & (truth <= 0))
        | ((outcome == -1) & (truth >= 0))
        | ((outcome == 2) & (np.abs(truth) >= margin))
    )
    return wrong


def decided(sweep: Sweep, alpha: float, margin: float, least: int) -> tuple[np.ndarray, np.ndarray]:
    """(outcome: 1 better, -1 worse, 2 within, 0 none; units used) of each checkpoint."""
    draws = Draws(sweep.values, sweep.values, sweep.weights)
    half, mirrored = alpha / 2, draws.mirrored()
    first = np.stack(
        [
            rejected_at(draws, 0.0, half),
            rejected_at(mirrored, 0.0, half),
            np.maximum(rejected_at(draws, -margin, half), rejected_at(mirrored, -margin, half)),
        ]
    )
    best = first.argmin(axis=0)
    units = np.maximum(first.min(axis=0), least)
    outcome = np.where(np.isinf(units), 0, np.array([1, -1, 2])[best])
    used = np.minimum(units, len(draws)).astype(int)
    there = len(draws)  # of the first one, all units
    for number in range(len(used)) if sweep.chain else ():
        if used[number] > there:  # beyond what its reference has nothing is decided
            outcome[number], used[number] = 0, len(draws)
        there = int(used[number])
    return outcome, used


def peeked(sweep: Sweep, alpha: float, margin: float) -> tuple[np.ndarray, np.ndarray]:
    """The same by a paired z test, weighted, at `LOOKS` looks, as if each were the only one."""
    total = sweep.values.shape[1]
    critical = scipy_stats.norm.isf(alpha / 2)
    outcome, units = np.zeros(len(sweep.truth), int), np.full(len(sweep.truth), total)
    for look in range(1, LOOKS + 1):
        seen = math.ceil(total * look / LOOKS)
        values = sweep.values[:, :seen]
        mean = values.mean(axis=1)
        error = values.std(axis=1, ddof=1) / math.sqrt(seen) + 1e-12
        left = outcome == 0
        signs = np.sign(mean) * (np.abs(mean) / error > critical)
        within = (np.abs(mean) + critical * error < margin) & (signs == 0)
        now = np.where(signs != 0, signs, np.where(within, 2, 0)).astype(int)
        units = np.where(left & (now != 0), seen, units)
        outcome = np.where(left, now, outcome)
    return outcome, units


def simulate(job: tuple[int, int, int, float, float, int]) -> list[tuple[Any, ...]]:
    start, count, checkpoints, alpha, margin, least = job
    known, found = list(benchmarks().items()), []
    for seed in range(start, start + count):
        name, parts = known[seed % len(known)]
        chain = seed // len(known) % 2 == 1
        sweep = drawn(parts, checkpoints, seed, chain=chain)
        name = f"{name}, {'previous' if chain else 'baseline'}"
        cumulated = np.cumsum(sweep.rows)
        for way, (outcome, units) in {
            "betting": decided(sweep, FIRST_BATCH * alpha / checkpoints, margin, least),
            "naive": peeked(sweep, alpha, margin),
            "naive, alpha shared": peeked(sweep, alpha / checkpoints, margin),
        }.items():
            wrong = _wrong(outcome, sweep.truth, margin)
            used = cumulated[units - 1] / cumulated[-1]
            found.append((name, way, wrong, outcome, used, sweep.points))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sweeps", type=int, default=10_000)
    parser.add_argument("--checkpoints", type=int, default=20)
    parser.add_argument("--alpha", type=float, default=0.05)
    parser.add_argument("--margin", type=float, default=1.0, help="points")
    parser.add_argument("--min-units", type=int, default=100)
    options = parser.parse_args()
    began, step = time.monotonic(), 50
    jobs = [
        (start, min(step, options.sweeps - start), options.checkpoints, options.alpha,
         options.margin / 100, options.min_units)
        for start in range(0, options.sweeps, step)
    ]  # fmt: skip
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        found = [one for part in pool.map(simulate, jobs) for one in part]
    print(
        f"{options.sweeps} sweeps of {options.checkpoints} checkpoints, alpha {options.alpha:g}, "
        f"margin {options.margin:g} points, {time.monotonic() - began:.0f} s\n"
    )
    print("| benchmark | decided by | sweeps | with a wrong decision, % [95 %] | undecided, % |")
    print("|---|---|--:|---|--:|")
    worst = 0.0
    for name in [*sorted({one[0] for one in found}), "all"]:
        for way in ("betting", "naive", "naive, alpha shared"):
            those = [one for one in found if name in (one[0], "all") and one[1] == way]
            bad = sum(bool(one[2].any()) for one in those)
            interval = wilson(bad, len(those)) or (0.0, 1.0)
            if way == "betting":
                worst = max(worst, interval[0])
            undecided = np.mean(np.concatenate([one[3] == 0 for one in those]))
            print(
                f"| {name} | {way} | {len(those):,} | {100 * bad / len(those):.2f} "
                f"[{100 * interval[0]:.2f}, {100 * interval[1]:.2f}] | {100 * undecided:.1f} |"
            )
    for against in ("baseline", "previous"):
        print(
            f"\n| difference from {against} asked for, points | median share of rows used, % | "
            "quartiles | better or worse, % | within, % | undecided, % |"
        )
        print("|--:|--:|---|--:|--:|--:|")
        betting = [one for one in found if one[1] == "betting" and one[0].endswith(against)]
        points, used, outcome = (np.concatenate([one[at] for one in betting]) for at in (5, 4, 3))
        for wanted in POINTS:
            at = points == wanted
            low, middle, high = 100 * np.quantile(used[at], [0.25, 0.5, 0.75])
            named, within, none = (
                100 * np.mean(np.isin(outcome[at], kinds)) for kinds in ([1, -1], [2], [0])
            )
            print(
                f"| {wanted} | {middle:.0f} | {low:.0f} to {high:.0f} | {named:.0f} | {within:.0f} "
                f"| {none:.0f} |"
            )
    return int(worst > options.alpha)


if __name__ == "__main__":
    sys.exit(main())
