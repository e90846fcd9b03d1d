"""Runs and sweeps with summaries, as `evaluate` and `sweep` leave them."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ace_ray.benchmarks.acebench.benchmark import ACEBench
from ace_ray.pipeline.summary import finish
from ace_ray.storage.object_store import LocalStore
from ace_ray.storage.stored_run import StoredRun
from tests.report.builders import Row, everything, ledger_line, write_run, write_sweep


def summarized(folder: Path) -> Path:
    """The run in ``folder`` with its summary, made anew."""
    store = LocalStore(str(folder))
    run = StoredRun(store)
    benchmarks = {"acebench": ACEBench.from_options({"data": "mini"})}
    finish(store, run.manifest, benchmarks, run.ledger, {})
    return folder


def complete_run(folder: Path, rows: Iterable[Row] = (), **options: Any) -> Path:
    return summarized(write_run(folder, rows or full_rows(5), **options))


def full_rows(right: int) -> list[Row]:
    """Every category; of one that counts, so many of five are right."""
    return everything({"special_incomplete": right}, of=5)


def sweep_of(folder: Path, steps: dict[int, list[Row]], **lines: Any) -> Path:
    """A sweep of checkpoints: their rows by step. Called again, it holds these ones."""
    listed = [ledger_line(f"step_{step}", step=step) for step in steps]
    listed += [ledger_line(label) for label in lines]
    runs = {f"step_{step}": rows for step, rows in steps.items()} | lines
    write_sweep(folder, listed, runs)
    for label in runs:
        summarized(folder / f"run-{label}")
    return folder
