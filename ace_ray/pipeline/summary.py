"""Write ``summary.json``, which has the totals of a run and the tables of each benchmark."""

from __future__ import annotations

import re
from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from ace_ray.benchmarks.base import Benchmark
from ace_ray.benchmarks.diagnosis import Diagnosis
from ace_ray.benchmarks.headline import with_scores
from ace_ray.benchmarks.validation import user_code
from ace_ray.errors import COMPLETE, INCOMPLETE
from ace_ray.storage.object_store import Store
from ace_ray.storage.parts import Ledger
from ace_ray.storage.rows import rows_of
from ace_ray.storage.run_files import FILES, RESULTS
from ace_ray.storage.stored import SUCCESS, SUMMARY, Manifest, as_json
from ace_ray.types import CHECKED, STATUSES, ResultRow, merge_facts

MOST_FAILURES = 10


def reopen(store: Store) -> None:
    """Remove `_SUCCESS`, because rows are pending."""
    # Check first, since some S3 keys may write but not delete.
    if store.get(SUCCESS) is not None:
        store.delete(SUCCESS)


def finish(
    store: Store,
    manifest: Manifest,
    benchmarks: Mapping[str, Benchmark],
    ledger: Ledger,
    timing: Mapping[str, Any],
    *,
    why: str = "",
    **more: Any,
) -> tuple[int, dict[str, Any]]:
    """Write the summary of the rows in ``ledger``, the benchmarks' own files, and `_SUCCESS` if the
    run is complete. ``why``: reason against headline numbers, or "". ``more`` are further keys of
    the summary. Return (exit code, summary)."""

    def rows(name: str) -> Iterator[dict[str, Any]]:
        for table in ledger.tables(ledger.schema.names):
            for row in rows_of(table):
                if row["benchmark"] == name and not row["repeat"]:
                    yield row

    summary = {
        **summarize(manifest.tree, benchmarks, ledger.rows, timing, why=why),
        "ignored_files": ledger.ignored,
        "uri": store.root,
        "mixed_versions": manifest.mixed_versions,
        "grown": [str(growth) for growth in manifest.grown],
        "judges": {name: judging.get("role") for name, judging in manifest.judging.items()},
        **more,
    }
    for name, benchmark in benchmarks.items():
        for path, content in benchmark.files(partial(rows, name), summary):
            store.put(path if path.startswith(RESULTS) else f"{FILES}{name}/{path}", content)
    store.put(SUMMARY, as_json(summary))
    if summary["complete"]:
        store.put(SUCCESS, b"")
        return COMPLETE, summary
    reopen(store)
    # A run that was stopped early has its result: the decided comparison.
    return COMPLETE if summary.get("early", {}).get("stopped") else INCOMPLETE, summary


def summarize(
    manifest: Mapping[str, Any],
    benchmarks: Mapping[str, Benchmark],
    rows: Callable[[], Iterable[ResultRow]],
    timing: Mapping[str, Any],
    *,
    why: str = "",
) -> dict[str, Any]:
    """Return the summary of a run. ``rows`` is called once per benchmark to read the stored rows.

    declared = scored + not_judged + infra_error + quarantined + skipped + missing. ``complete`` is
    true if no row is missing or retryable. ``headline`` is false if the share of rows that are not
    `CHECKED` is larger than ``max_unscored_fraction``, or if a reason against it is given
    (``why``)."""
    declared = int(manifest["declared"])
    allowed = float(manifest["config"]["max_unscored_fraction"])
    totals = _Totals()
    blocks = {}
    for name, benchmark in benchmarks.items():
        diagnosis = Diagnosis((manifest.get("format") or {}).get("tool_parser"))
        benchmark_rows = (row for row in rows() if row.benchmark == name)
        counted_rows = diagnosis.add_rows(totals.count_rows(benchmark_rows))
        first = (row for row in counted_rows if not row.repeat)
        with user_code(type(benchmark), "summarize"):
            blocks[name] = benchmark.summarize(first, allowed)
        deque(counted_rows, maxlen=0)  # count the rows that the benchmark has not read
        if findings := diagnosis.findings():
            blocks[name] = {**blocks[name], "diagnosis": findings}
    if not benchmarks:
        deque(totals.count_rows(rows()), maxlen=0)
    statuses: dict[str, int] = {status: totals.statuses[status] for status in STATUSES}
    missing = declared - totals.statuses.total()
    unscored = declared - sum(statuses[status] for status in CHECKED)
    headline = not why and unscored <= allowed * declared
    if not headline and not why:
        limit = f"max_unscored_fraction is {allowed:g}"
        why = f"{unscored} of {declared} rows have no verdict ({limit})"
    restricted = manifest.get("restricted") or {}
    blocks = {
        name: with_scores(
            type(benchmarks[name]),
            block,
            headline=headline,
            partial="ids" in restricted.get(name, ()),
        )
        for name, block in blocks.items()
    }
    return {
        "schema_version": 1,
        "run_id": manifest["run_id"],
        "model": manifest["model"],
        "backend": manifest["config"]["backend"],
        "limit": manifest["config"]["limit"],
        "restricted": restricted,
        "declared": declared,
        **statuses,
        "missing": missing,
        "complete": missing == 0 and statuses["infra_error"] == 0,
        "headline": headline,
        "why": why,
        **totals.as_json(cost_of(timing)),
        "timing": dict(timing),
        "benchmarks": blocks,
    }


def cost_of(timing: Mapping[str, Any]) -> float | None:
    """Return the device hours of all sessions times the price; None without a price, without
    device seconds, or with an endpoint, whose price depends on tokens."""
    price, seconds = timing.get("price_per_hour"), sum((timing.get("device_s") or {}).values())
    if price is None or not seconds or timing.get("device") == "endpoint":
        return None
    return float(price * seconds / 3600)


def costs(total: float | None, entries: int, solved_share: float) -> dict[str, float | None] | None:
    """Return the cost of a run, of an entry with all its samples, and of a solved entry; None if it
    is unknown. An entry of which half of the samples are solved counts as half a solved entry."""
    if total is None:
        return None
    divisors = {"total": 1, "per_entry": entries, "per_solved_entry": entries * solved_share}
    return {name: float(f"{total / n:.6g}") if n else None for name, n in divisors.items()}


def _quantiles(values: Iterable[float]) -> dict[str, float]:
    ordered = sorted(values)
    last = len(ordered) - 1
    return {f"p{share}": round(ordered[round(share / 100 * last)], 5) for share in (50, 95)}


_VARIES = re.compile(r"0x[0-9a-fA-F]+|\d+|'[^']*'|\"[^\"]*\"|/\S+")


class _Totals:
    """Counters over all rows of a run."""

    def __init__(self) -> None:
        self.statuses: Counter[str] = Counter()
        self.causes: Counter[str] = Counter()
        self._failures: Counter[tuple[str, str, str]] = Counter()
        self._first: dict[tuple[str, str, str], str] = {}
        self.prompt_tokens: int | None = 0
        self.completion_tokens: int | None = 0
        self.endpoint: dict[str, Any] | None = None
        # Token times and cached tokens of the rows for which the engine reported them.
        self._prompt = self._cached = 0
        self._first_token, self._each_token = array("f"), array("f")
        self.model_calls = 0
        # Rows that are valid under all rule sets.
        self.solved = 0
        # Entries whose first sample is checked.
        self.entries = 0
        self.reasoning_truncated = self.cut_by_length = 0

    def count_rows(self, rows: Iterable[ResultRow]) -> Iterator[ResultRow]:
        """Yield ``rows`` unchanged, and count each row."""
        for row in rows:
            self.statuses[row.status] += 1
            if row.error_class:
                self.causes[row.error_class] += 1
            if row.status != "scored":
                text = row.error or ""
                key = (row.status, row.error_class or "", _VARIES.sub("*", text[:300]))
                self._first.setdefault(key, text)
                self._failures[key] += 1
            self.prompt_tokens = _sum(self.prompt_tokens, row.prompt_tokens)
            self.completion_tokens = _sum(self.completion_tokens, row.completion_tokens)
            if row.endpoint is not None:
                self.endpoint = merge_facts(self.endpoint, row.endpoint)
            self._add_engine(row)
            self.model_calls += row.model_calls
            valid = [verdict.valid for verdict in row.verdicts.values()]
            self.solved += row.status == "scored" and bool(valid) and all(valid)
            self.entries += row.status in CHECKED and not row.sample and not row.repeat
            self.reasoning_truncated += row.reasoning_truncated
            self.cut_by_length += row.finish_reason == "length"
            yield row

    def _add_engine(self, row: ResultRow) -> None:
        if row.cached_prompt_tokens is not None and row.prompt_tokens is not None:
            self._prompt += row.prompt_tokens
            self._cached += row.cached_prompt_tokens
        if row.first_token_s is not None and row.decode_s is not None and row.model_calls:
            self._first_token.append(row.first_token_s / row.model_calls)
            # The first token of each call is not decoded.
            if (decoded := (row.completion_tokens or 0) - row.model_calls) > 0:
                self._each_token.append(row.decode_s / decoded)

    def _engine(self) -> dict[str, Any]:
        """Return ``prompt_tokens`` that were ``computed`` and ``cached``; for rows, the median and
        the 95th percentile of ``first_token_s`` and of ``token_s``, the seconds per further output
        token. Figures that no row has are left out."""
        tokens = {"computed": self._prompt - self._cached, "cached": self._cached}
        times = {"first_token_s": self._first_token, "token_s": self._each_token}
        return {
            **({"prompt_tokens": tokens} if self._prompt else {}),
            **{name: _quantiles(values) for name, values in times.items() if values},
        }

    def as_json(self, cost: float | None) -> dict[str, Any]:
        """Return the keys of ``summary.json`` that cover all rows. ``cost``: cost of the run."""
        solved_share = self.solved / max(1, self.statuses["scored"])
        engine = self._engine()
        return {
            "error_classes": dict(self.causes.most_common()),
            "failures": self.failures(),
            "solved": self.solved,
            "entries": self.entries,
            "tokens": {"prompt": self.prompt_tokens, "completion": self.completion_tokens},
            "cost": costs(cost, self.entries, solved_share),
            **({"endpoint": self.endpoint} if self.endpoint is not None else {}),
            **({"engine": engine} if engine else {}),
            "model_calls": self.model_calls,
            "reasoning_truncated": self.reasoning_truncated,
            "cut_by_length": self.cut_by_length,
        }

    def failures(self) -> list[dict[str, Any]]:
        """Return at most `MOST_FAILURES` reasons why rows have no verdict, the most frequent first.
        Each has the number of its rows and an error text. Texts that differ only in numbers, names
        and addresses are one reason. A last item counts the rows of all other reasons."""
        ordered = self._failures.most_common()
        groups = [
            {"status": key[0], "error_class": key[1], "error": self._first[key], "rows": rows}
            for key, rows in ordered[:MOST_FAILURES]
        ]
        if rows := sum(n for _, n in ordered[MOST_FAILURES:]):
            groups.append({"status": "", "error_class": "", "error": "other reasons", "rows": rows})
        return groups


def _sum(total: int | None, more: int | None) -> int | None:
    return None if total is None or more is None else total + more
