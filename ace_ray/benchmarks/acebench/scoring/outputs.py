"""`ace-ray score`: verdicts for outputs that were made elsewhere, without an engine."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, TextIO

from ace_ray.benchmarks.acebench.categories import AGENT
from ace_ray.benchmarks.acebench.check import check, check_agent
from ace_ray.benchmarks.acebench.scoring.external import entries_of, read_outputs
from ace_ray.benchmarks.acebench.scoring.summary import Summary, SummaryRow
from ace_ray.benchmarks.outputs import Output
from ace_ray.errors import UserError
from ace_ray.records import RULE_SETS, Entry, Verdict

VERDICTS, SUMMARY = "verdicts.jsonl", "summary.json"


def score(path: Path, *, data: Path, output: Path, max_unscored: float = 0.0) -> dict[str, Any]:
    """Score the outputs at ``path``; write ``verdicts.jsonl`` and ``summary.json`` to ``output``.

    Verdict lines follow the input lines; those of agent rows also have the verdicts' metrics,
    ``end_to_end`` and ``process_accuracy``. The summary (see `summary`) declares every entry of the
    categories that the input touches, as often as its most frequent entry came, so an output that
    is absent shows as skipped. It also has ``source``: path, format, lines, and ``notes``: one
    line per thing that a reader must know of.

    Raises `UserError` for a bad line (see `external.read_outputs`); nothing is written then.
    """
    entries, summary, lines = entries_of(data), Summary(), 0
    came: dict[tuple[str, str], Counter[str]] = {}
    with _replacing(output) as (verdicts_file, summary_file):
        for given in read_outputs(path, entries):
            entry = given.entry
            lines += 1
            came.setdefault((entry.language, entry.category), Counter())[entry.id] += 1
            verdicts = _verdicts(given)
            summary.add(_row(given, verdicts))
            # dumps, not dump: only the former runs in C
            verdicts_file.write(json.dumps(_line(given, verdicts)) + "\n")
        absent = 0
        for (language, category), times in came.items():
            absent += _declare(summary, entries.of(language, category), times)
        result = {
            "benchmark": "acebench",
            "source": {
                "path": str(path),
                "format": "official" if path.is_dir() else "jsonl",
                "lines": lines,
            },
            "notes": _notes(absent),
            **summary.result(max_unscored),
        }
        json.dump(result, summary_file, indent=2, allow_nan=False)
        summary_file.write("\n")
    return result


def _verdicts(given: Output) -> Mapping[str, Verdict]:
    state = given.episode.state
    if given.entry.category in AGENT:
        return check_agent(given.entry, state["after"], state["process"])
    return check(given.entry, given.episode.output)


def _row(given: Output, verdicts: Mapping[str, Verdict]) -> SummaryRow:
    entry, sample = given.entry, given.sample
    if not isinstance(sample, int) or abs(sample) >= 1 << 63:
        # Summaries tell samples apart by number: a stable one, of bounded size.
        sample = int.from_bytes(blake2b(json.dumps(sample).encode(), digest_size=12).digest())
    group = entry.group or entry.id
    return SummaryRow(entry.language, entry.category, entry.id, group, sample, "scored", verdicts)


def _line(given: Output, verdicts: Mapping[str, Verdict]) -> dict[str, Any]:
    entry = given.entry
    line: dict[str, Any] = {
        "language": entry.language,
        "category": entry.category,
        "id": entry.id,
        "sample": given.sample,
    }
    for rule in RULE_SETS:
        verdict = verdicts[rule]
        line[rule] = {"valid": verdict.valid, "error_type": verdict.error_type, **verdict.metrics}
    return line


def _declare(summary: Summary, entries: Mapping[str, Entry], times: Counter[str]) -> int:
    """Count what a complete file would hold beyond what came; returns how many rows."""
    most, total = max(times.values()), 0
    for entry in entries.values():
        if lacking := most - times[entry.id]:
            group = entry.group or entry.id
            summary.absent(entry.language, entry.category, entry.id, group, lacking)
            total += lacking
    return total


def _notes(absent: int) -> list[str]:
    if not absent:
        return []
    return [f"{absent} rows of these categories are not in the input; they count skipped"]


@contextmanager
def _replacing(folder: Path) -> Iterator[tuple[TextIO, TextIO]]:
    """Both files open under temporary names; they get their own once the block has succeeded."""
    names = (VERDICTS, SUMMARY)
    temporary = [folder / f".{name}.{os.getpid()}.tmp" for name in names]
    created = [parent for parent in (folder, *folder.parents) if not parent.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with temporary[0].open("w") as verdicts, temporary[1].open("w") as summary:
            yield verdicts, summary
        # A summary never stands beside verdicts that it does not summarize.
        (folder / SUMMARY).unlink(missing_ok=True)
        for name, path in zip(names, temporary, strict=True):
            path.replace(folder / name)
    except OSError as error:
        what = f"cannot be written ({error.strerror})"
        raise UserError(what, where=str(folder), fix="name another --output folder") from error
    finally:
        for path in temporary:
            with suppress(OSError):
                path.unlink()
        for parent in created:
            with suppress(OSError):
                parent.rmdir()  # only when empty
