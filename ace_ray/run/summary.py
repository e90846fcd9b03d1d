"""``summary.json``: honest totals, then each benchmark's own tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ace_ray.benchmarks.protocol import Benchmark
from ace_ray.records import STATUSES
from ace_ray.run.rows import ResultRow

SUMMARY = "summary.json"


def summarize(
    manifest: Mapping[str, Any],
    benchmarks: Mapping[str, Benchmark],
    rows: Sequence[ResultRow],
    timing: Mapping[str, Any],
) -> dict[str, Any]:
    """The summary of a run from its stored rows.

    declared = scored + infra_error + quarantined + skipped + missing; ``complete`` when nothing is
    missing or owed again; ``headline`` false when more than ``max_unscored`` of the rows have no
    verdict, and then ``why`` says so.
    """
    declared = int(manifest["declared"])
    counts = Counter(row.status for row in rows)
    statuses: dict[str, int] = {status: counts[status] for status in STATUSES}
    missing = declared - len(rows)
    unscored = declared - statuses["scored"]
    allowed = float(manifest["config"]["max_unscored"])
    headline = unscored <= allowed * declared
    causes = Counter(row.error_class for row in rows if row.error_class)
    return {
        "schema_version": 1,
        "run_id": manifest["run_id"],
        "model": manifest["model"],
        "backend": manifest["config"]["backend"],
        "limit": manifest["config"]["limit"],
        "declared": declared,
        **statuses,
        "missing": missing,
        "complete": missing == 0 and statuses["infra_error"] == 0,
        "headline": headline,
        "why": ""
        if headline
        else f"{unscored} of {declared} rows have no verdict, max_unscored is {allowed:g}",
        "error_classes": dict(causes.most_common()),
        "tokens": {
            "prompt": sum(row.prompt_tokens for row in rows),
            "completion": sum(row.completion_tokens for row in rows),
        },
        "model_calls": sum(row.model_calls for row in rows),
        "reasoning_truncated": sum(row.reasoning_truncated for row in rows),
        "cut_by_length": sum(row.finish_reason == "length" for row in rows),
        "timing": dict(timing),
        "benchmarks": {
            name: benchmark.summarize([row for row in rows if row.benchmark == name], allowed)
            for name, benchmark in benchmarks.items()
        },
    }
