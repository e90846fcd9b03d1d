"""A row's verdicts from its stored episode: the same for a run's checkers and for `rescore`."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from typing import Any

from ace_ray.benchmarks.base import Benchmark
from ace_ray.records import Entry, Verdict
from ace_ray.run.storage.rows import CHECK_FAILED, clean, episode_of, verdict_columns


def judged(
    row: Mapping[str, Any],
    entry: Entry,
    benchmark: Benchmark,
    log: Callable[[], None] | None = None,
) -> dict[str, Any]:
    """``row`` with its status and verdict columns; only ``scored`` rows are judged. ``log`` is told
    while a checker's defect is handled; `log_traceback` by default."""
    verdicts: dict[str, Verdict] = {}
    failure: dict[str, Any] = {}
    if row["status"] == "scored":
        try:
            verdicts = benchmark.verdicts(entry, episode_of(row))
        except Exception as error:  # noqa: BLE001 - a checker's defect is not a wrong answer
            what = f"{type(error).__name__}: {clean(str(error))}"
            failure = {"status": "infra_error", "error_class": CHECK_FAILED, "error": what[:2000]}
            (log or log_traceback)()
    return {**row, **failure, **verdict_columns(verdicts, benchmark.rule_sets)}


def log_traceback() -> None:
    # Escaped: a lone surrogate in a message would make print raise, and Ray's error transport end
    # the process.
    text = traceback.format_exc().encode("ascii", "backslashreplace").decode()
    print(text, flush=True)
