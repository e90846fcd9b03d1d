"""The rows of a run that count, for DuckDB."""

from __future__ import annotations

from pathlib import Path


def run_rows() -> str:
    """A macro ``run_rows(FOLDER)`` in DuckDB's SQL: of a row that was tried again the attempt that
    counts, as `ace_ray.storage.parts.Ledger` takes it, and no repeats."""
    return Path(__file__).with_name("rows.sql").read_text(encoding="utf-8")
