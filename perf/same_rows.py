"""Two runs of one config, row by row."""

from __future__ import annotations

import json
from typing import Any

from ace_ray.storage.object_store import open_store
from ace_ray.storage.parts import read_ledger

COLUMNS = ["status", "error_class", "messages", "output", "finish_reason", "state"]
COLUMNS += [
    f"{rules}_{part}" for rules in ("official", "strict") for part in ("valid", "error_type")
]
TOTALS = ("declared", "scored", "infra_error", "quarantined", "skipped", "missing", "complete")


def compare(expected: str, actual: str, *, contents: bool) -> int:
    """Print how the run at ``actual`` differs from the one at ``expected``; number of differences.

    ``contents``: the rows' content and the scores too, not only ids, status and totals.
    """
    columns = COLUMNS if contents else COLUMNS[:2]
    base, _, _ = stored_rows(expected, columns)
    rows, doubled, parts = stored_rows(actual, columns)
    differ = {row_id for row_id in base.keys() & rows.keys() if base[row_id] != rows[row_id]}
    unlucky = {row_id for row_id in differ if rows[row_id][0] == "quarantined"}
    counts = {
        "lost": len(base.keys() - rows.keys()),
        "foreign": len(rows.keys() - base.keys()),
        "doubled": doubled,
        "differing": len(differ - unlucky),
        "quarantined by kills": len(unlucky),
    }
    listed = ", ".join(f"{name} {count}" for name, count in counts.items())
    print(f"  {len(base)} rows: {listed}; {parts}")
    for row_id in sorted(differ)[:5]:
        pairs = zip(columns, base[row_id], rows[row_id], strict=True)
        changed = {name: (str(a)[:80], str(b)[:80]) for name, a, b in pairs if a != b}
        print(f"    {row_id}: {json.dumps(changed)}")
    before, after = totals(expected, contents=contents), totals(actual, contents=contents)
    unlike = [key for key in before if before[key] != after[key]]
    if unlike:
        print(f"    summary.json differs in {unlike}")
    return sum(counts.values()) + len(unlike)


def stored_rows(uri: str, columns: list[str]) -> tuple[dict[str, tuple[Any, ...]], int, str]:
    """Row id -> its columns, as every reader sees them; rows seen twice; a note on the parts."""
    ledger = read_ledger(open_store(uri), print)
    rows: dict[str, tuple[Any, ...]] = {}
    doubled = 0
    for table in ledger.tables(["row_id", *columns]):
        for row in table.to_pylist():
            doubled += row["row_id"] in rows
            if "state" in columns:
                row["state"] = timeless(row["state"])
            rows[row["row_id"]] = tuple(row[column] for column in columns)
    parts = f"{ledger.dominated} superseded in the parts, {len(ledger.ignored)} files ignored"
    return rows, doubled, parts


def timeless(state: str | None) -> str | None:
    """An episode's state without the seconds that its steps took."""
    if state is None:
        return None
    tree = json.loads(state)
    for step in steps if isinstance(steps := tree.get("steps"), list) else ():
        step.pop("seconds", None)
    return json.dumps(tree)


def totals(uri: str, *, contents: bool) -> dict[str, Any]:
    summary = json.loads(open_store(uri).get("summary.json") or b"{}")
    return {key: summary.get(key) for key in (*TOTALS, *(["benchmarks"] if contents else []))}
