"""Simulate comparisons with a known truth, and print the table of docs/statistics.md.

    python tests/tools/simulate_kept.py [comparisons] [seed]

The reference is right on 70 % of the entries. A candidate loses a share of these answers and gains
a share of the others. In the clustered half, four entries ask each task: their shares are drawn for
each task, with a correlation of 1/3 between its entries.
"""

from __future__ import annotations

import sys

import numpy as np

from ace_ray.reports.significance import ALPHA, change_of, share_of

MARGIN, RIGHT, CONCENTRATION = 0.01, 0.7, 2.0
# Name -> true difference.
TRUTHS = {"no loss": 0.0, "loss of the margin": -MARGIN, "loss of 3 points": -0.03}


def rates(draw: np.random.Generator, mean: float, clusters: int, size: int) -> np.ndarray:
    """Draw a probability for each entry, the same for the entries of a task; (clusters, size)."""
    if size == 1 or mean in (0.0, 1.0):
        return np.full((clusters, size), mean)
    drawn = draw.beta(mean * CONCENTRATION, (1 - mean) * CONCENTRATION, clusters)
    return np.repeat(drawn[:, None], size, axis=1)


def simulate(
    draw: np.random.Generator, n: int, size: int, gained: float, truth: float, comparisons: int
) -> tuple[float, float, float]:
    """Return the coverage of the kept share and of the difference, and the share of "not worse".

    ``gained``: share of all entries that become right."""
    shape, lost = (n // size, size), gained - truth
    covered = within = not_worse = 0
    for _ in range(comparisons):
        # A true share of 70 % in each entry keeps the true difference exact.
        right = draw.random(shape) < rates(draw, RIGHT, *shape)
        loses = right & (draw.random(shape) < rates(draw, lost / RIGHT, *shape))
        gains = ~right & (draw.random(shape) < rates(draw, gained / (1 - RIGHT), *shape))
        moves = (gains.sum(1) - loses.sum(1)).astype(float)
        kept = share_of((right & ~loses).sum(1), right.sum(1), int(right.sum())).interval()
        change = change_of(moves, np.full(n // size, size), n)
        assert change is not None  # there are several clusters
        covered += kept[0] <= 1 - lost / RIGHT <= kept[1]
        low, high = change.interval()
        within += low <= truth <= high
        not_worse += change.interval(2 * ALPHA)[0] >= -MARGIN
    return covered / comparisons, within / comparisons, not_worse / comparisons


def main(comparisons: int = 10_000, seed: int = 7) -> None:
    print("| truth | entries | a task has | gained | kept covers | difference covers | not worse |")
    print("|---|--:|--:|--:|--:|--:|--:|")
    draw = np.random.default_rng(seed)
    for name, truth in TRUTHS.items():
        for n in (400, 2000):
            for size in (1, 4):
                for gained in (0.0, 0.03):
                    shares = simulate(draw, n, size, gained, truth, comparisons)
                    percent = " | ".join(f"{100 * share:.1f} %" for share in shares)
                    print(f"| {name} | {n} | {size} | {100 * gained:g} % | {percent} |", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
