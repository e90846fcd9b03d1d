"""How far a judge agrees with people: accuracy, Cohen's kappa, confusion matrix."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import Any

from ace_ray.benchmarks.stabletoolbench.judge.reading import STATUSES
from ace_ray.stats import Z95, wilson


def agreement(labels: Sequence[str], verdicts: Sequence[str | None]) -> dict[str, Any]:
    """Pairwise agreement of two lists over `STATUSES`; None is an answer that the judge failed on.

    Returns:
        ``n`` compared pairs and ``judge_errors``; ``accuracy`` with ``accuracy_interval`` (Wilson);
        ``kappa`` with ``kappa_interval`` (large-sample standard error of Fleiss, Cohen and Everitt
        1969), None where chance alone would agree always; ``confusion``, ``{label: {verdict: n}}``.
        All None for no pairs.
    """
    pairs = [(a, b) for a, b in zip(labels, verdicts, strict=True) if b is not None]
    n = len(pairs)
    confusion = {a: {b: pairs.count((a, b)) for b in STATUSES} for a in STATUSES}
    right = sum(confusion[s][s] for s in STATUSES)
    kappa, interval = _kappa([[confusion[a][b] for b in STATUSES] for a in STATUSES], n)
    share = wilson(right, n)
    return {
        "n": n,
        "judge_errors": len(verdicts) - n,
        "accuracy": right / n if n else None,
        "accuracy_interval": None if share is None else list(share),
        "kappa": kappa,
        "kappa_interval": interval,
        "confusion": confusion,
    }


def _kappa(counts: Sequence[Sequence[int]], n: int) -> tuple[float | None, list[float] | None]:
    if not n:
        return None, None
    size = range(len(counts))
    p = [[count / n for count in row] for row in counts]
    rows = [sum(p[i]) for i in size]
    columns = [sum(p[i][j] for i in size) for j in size]
    observed = sum(p[i][i] for i in size)
    chance = sum(rows[i] * columns[i] for i in size)
    if chance >= 1 - 1e-12:
        return None, None
    kappa = (observed - chance) / (1 - chance)
    agreed = sum(p[i][i] * (1 - (rows[i] + columns[i]) * (1 - kappa)) ** 2 for i in size)
    apart = (1 - kappa) ** 2 * sum(
        p[i][j] * (columns[i] + rows[j]) ** 2 for i in size for j in size if i != j
    )
    variance = agreed + apart - (kappa - chance * (1 - kappa)) ** 2
    half = Z95 * sqrt(max(0.0, variance) / n) / (1 - chance)
    return kappa, [max(-1.0, kappa - half), min(1.0, kappa + half)]
