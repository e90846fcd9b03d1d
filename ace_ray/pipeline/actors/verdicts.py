"""Judge a row from its stored episode, for checkers and `rescore`, and report benchmark bugs.

If every row fails with the same exception in a benchmark's code, retries do not help."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ace_ray
from ace_ray.benchmarks.base import Benchmark
from ace_ray.benchmarks.diagnosis import second_reader
from ace_ray.storage.rows import CHECK_FAILED, episode_of, verdict_columns
from ace_ray.types import CHECKED, Entry, Episode, Verdict
from ace_ray.util import log
from ace_ray.util.sanitizing import replace_surrogates

MOST_CHARS = 4_000
_MODELS = str(Path(ace_ray.__file__).parent / "models")


def log_traceback() -> None:
    """Log the traceback of the exception that is being handled."""
    name = type(sys.exc_info()[1]).__name__
    log.error(f"{name} in this row's code:", traceback=traceback.format_exc())


def judge_row(
    row: Mapping[str, Any],
    entry: Entry,
    benchmark: Benchmark,
    log: Callable[[], None] = log_traceback,
) -> dict[str, Any]:
    """Return ``row`` with its status and verdict columns. Rows with an infrastructure error or
    without an answer are not judged. If the check raises, call ``log`` in the exception handler."""
    verdicts: dict[str, Verdict] = {}
    columns: dict[str, Any] = {}
    again: str | None = None
    if row["status"] in CHECKED:
        try:
            episode = episode_of(row)
            verdicts = benchmark.verdicts(entry, episode)
            columns = status_columns(verdicts)
            again = reparse(benchmark, entry, episode)
        except Exception as error:  # noqa: BLE001 - a defect of a check is not a wrong answer
            line = f"{type(error).__name__}: {replace_surrogates(str(error))}"
            columns = {"status": "infra_error", "error_class": CHECK_FAILED, "error": line[:2000]}
            log()
    columns |= verdict_columns(verdicts, benchmark.rule_sets)
    return {**row, **columns, "second_reading": again}


def status_columns(verdicts: Mapping[str, Verdict]) -> dict[str, Any]:
    """Return the columns ``status``, ``error_class`` and ``error`` of a checked row. A row is
    "not_judged" if one of its ``verdicts`` could not be decided."""
    for verdict in verdicts.values():
        if verdict.valid is None:
            error = replace_surrogates(verdict.error)
            return {"status": "not_judged", "error_class": "NotJudged", "error": error}
    return {"status": "scored", "error_class": None, "error": None}


def reparse(benchmark: Benchmark, entry: Entry, episode: Episode) -> str | None:
    """Return the name of a parser that finds calls which the run did not read, or None (column
    ``second_reading``). If the benchmark's code raises, log the exception and return None."""
    try:
        return second_reader(benchmark, entry, episode)
    except Exception:  # noqa: BLE001 - as above
        log_traceback()
        return None


def report_bug(coordinator: Any, benchmark: str) -> None:
    """Log the exception that is being handled, and report it to the coordinator. Do not report
    exceptions from a model, the machine or the cluster, since they may be transient."""
    from ray.exceptions import RayError, RayTaskError

    log_traceback()
    error = sys.exc_info()[1]
    if error is None or not (frames := traceback.extract_tb(error.__traceback__)):
        return
    transient = isinstance(error, OSError | MemoryError) and not isinstance(error, TimeoutError)
    transient |= isinstance(error, RayError) and not isinstance(error, RayTaskError)
    if transient or any(frame.filename.startswith(_MODELS) for frame in frames):
        return
    origin = f"{type(error).__name__} in {frames[-1].filename}:{frames[-1].lineno}"
    # Escape the text: a lone surrogate in it would crash the process in Ray's transport.
    text = traceback.format_exc().encode("ascii", "backslashreplace").decode()[-MOST_CHARS:]
    coordinator.count_bug.remote(benchmark, origin, text)
