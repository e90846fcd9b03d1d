"""Result rows without a run: what statistics are tested on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from ace_ray.benchmarks.reporting import own_task

from ace_ray.benchmarks.acebench.categories import (
    AGENT,
    CATEGORIES,
    LANGUAGES,
    MULTI_TURN,
    dialogue,
)
from ace_ray.records import RULE_SETS, Verdict
from ace_ray.report.groups import groups_of
from ace_ray.report.lines import Side
from ace_ray.report.noise import Repeats
from ace_ray.report.paired import cells_of
from ace_ray.run.storage.rows import ResultRow


def made(
    valid: bool,
    entry_id: str,
    *,
    category: str = "c",
    language: str = "en",
    group: str = "",
    sample: int = 0,
    repeat: int = 0,
    process: float | None = None,
    status: str = "scored",
    rules: Sequence[str] = RULE_SETS,
) -> ResultRow:
    """One row, alike under both rule sets; its group is the entry unless given."""
    metrics = {} if process is None else {"process_accuracy": process}
    verdict = Verdict(valid, "" if valid else "wrong", metrics=metrics)
    return ResultRow(
        row_id=f"{language}/{category}/{entry_id}/{sample}/{repeat}",
        benchmark="toy",
        category=category,
        language=language,
        id=entry_id,
        group=group or entry_id,
        sample=sample,
        status=status,
        repeat=repeat,
        verdicts=dict.fromkeys(rules, verdict) if status == "scored" else {},
    )


def column(values: Sequence[bool], **more: object) -> list[ResultRow]:
    """A row per value, in entries ``0``, ``1``, ..."""
    return [made(bool(value), str(i), **more) for i, value in enumerate(values)]  # type: ignore[arg-type]


def side(
    *runs: Sequence[ResultRow],
    named: dict[str, list[str]] | None = None,
    task: Callable[..., str] = own_task,
    repeats: Sequence[Repeats | None] | None = None,
) -> Side:
    """Runs called ``r0``, ``r1``, ... of the benchmark ``toy``."""
    cells = cells_of(runs, task)
    return Side(
        benchmark="toy",
        labels=[f"r{i}" for i in range(len(runs))],
        cells=cells,
        groups=groups_of(cells.units, named or {}),
        repeats=repeats or [None] * len(runs),
        seeds=[None] * len(runs),
    )


def drawn(
    rng: np.random.Generator, chance: dict[str, np.ndarray], samples: int = 1
) -> list[ResultRow]:
    """ACEBench-like rows, right with each category's ``chance`` per entry (see `chances`)."""
    rows = []
    for language in LANGUAGES:
        for category in CATEGORIES:
            for i, share in enumerate(chance[f"{language}/{category}"]):
                entry_id = (
                    f"{category}_{i // 3}_{i % 3}"
                    if category in MULTI_TURN
                    else (f"{category}_{i}")
                )
                for sample in range(samples):
                    right = bool(rng.random() < share)
                    partial = 1.0 if right else float(rng.choice([0.0, 0.25, 0.5]))
                    rows.append(
                        made(
                            right,
                            entry_id,
                            category=category,
                            language=language,
                            group=dialogue(category, entry_id),
                            sample=sample,
                            process=partial if category in AGENT else None,
                        )
                    )
    return rows


def chances(rng: np.random.Generator, entries: int = 30) -> dict[str, np.ndarray]:
    """How hard each entry is: mostly decided, some a toss."""
    keys = [f"{language}/{category}" for language in LANGUAGES for category in CATEGORIES]
    return {key: rng.choice([0.03, 0.5, 0.97], entries, p=[0.3, 0.3, 0.4]) for key in keys}
