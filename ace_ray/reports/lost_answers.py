"""Find what became of answers that are right in the reference and wrong in a candidate.

Only stored columns are used: how the candidate's row ended, error types of its verdict, and the
calls of both answers. An answer without a reason in these columns is counted as ``other``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ace_ray.benchmarks.base import Benchmark
from ace_ray.benchmarks.bfcl.check.single import attempts_call
from ace_ray.errors import UserError
from ace_ray.parsing.formats import parse_known_formats
from ace_ray.reports.runs import ScoredRun
from ace_ray.storage.rows import messages_of, state_of
from ace_ray.types import ResultRow
from ace_ray.util.safe_loading import InvalidContent, json_of_row

# Reasons of lost answers: column of ``kept.csv`` -> words.
FATES = dict(
    malformed_call="malformed call", other_call="other call", other_arguments="other arguments",
    no_call="no call", undue_call="call where none was due", cut_off="cut off",
    engine_refusal="engine's refusal", other="other",
)  # fmt: skip
# Names of metrics (``ended_<how>``) and parts of error types that tell the fate of an answer.
_ENDINGS = {
    "engine_refusal": r"ended_(context|inference)|inference_error",
    "cut_off": r"(ended_)?(deadline|steps|max_steps|max_messages|preparation)|force_terminated",
}
_ERRORS = {
    "other_call": r"(wrong_)?func(tion)?_name|function_mismatch|wrong_count|wrong functions number",
    "other_arguments": r"missing_(required|optional)|unexpected_param|wrong_param|"
    r"param_(value|type|num)|(lack|addition)_args|(type|value)_error|(list_)?dict_checker",
}


@dataclass(slots=True)
class StoredCalls:
    """The calls of a stored answer, (name, arguments), and the number of unreadable calls."""

    calls: list[tuple[str, Any]] = field(default_factory=list)
    unreadable: int = 0

    def add(self, name: str, arguments: str) -> None:
        try:
            values = json_of_row(arguments or "{}")
        except InvalidContent:
            values = None
        if isinstance(values, dict):
            self.calls.append((name, values))
        else:
            self.unreadable += 1

    def add_text(self, text: str) -> None:
        if parsed := parse_known_formats(text):
            self.calls += [(call.name, call.args) for call in parsed.calls]
        else:
            self.unreadable += attempts_call(text)


def stored_calls(
    run: ScoredRun, rows: Mapping[str, ResultRow], benchmark: type[Benchmark]
) -> dict[str, StoredCalls]:
    """Read the calls of ``rows``, rows of ``benchmark`` by row id. Raises `UserError` when a row
    is damaged or has disappeared."""
    by_id = {}
    for row in run.read_columns([*rows.values()], ("messages", "output", "state", "tools")):
        stored, is_native = StoredCalls(), row["tools"] is not None
        steps = benchmark.transcript(messages_of(row), state_of(row))
        answers = [step for step in steps if step.role == "assistant"]
        for step in answers:
            stored.unreadable += "tool_parser_error" in step.facts
            # In prompt mode, a result without its call has no arguments.
            calls = [call for call in step.calls if call.arguments or is_native]
            for call in calls:
                stored.add(call.name, call.arguments)
            if not calls and not is_native:
                stored.add_text(step.text)
        if not answers:
            stored.add_text(row["output"] or "")
        by_id[row["row_id"]] = stored
    if rows.keys() - by_id.keys():
        raise UserError("the run changed while it was read", where=run.uri, fix="run compare again")
    return by_id


def fate_of(row: ResultRow, rules: str, before: StoredCalls, after: StoredCalls) -> str:
    """Return what became of an answer, as a key of `FATES`. ``row`` is the candidate's, ``before``
    and ``after`` are the calls of the reference and of the candidate."""
    verdict = row.verdicts[rules]
    kinds = [*verdict.error_type.split(":"), *verdict.metrics]
    for fate, pattern in _ENDINGS.items():
        if any(re.fullmatch(pattern, kind) for kind in kinds):
            return fate
    if row.finish_reason == "length" or row.reasoning_truncated:
        return "cut_off"
    if row.second_reading is not None or after.unreadable > before.unreadable:
        return "malformed_call"
    if not (after.calls or after.unreadable):
        return "no_call" if before.calls or before.unreadable else "other"
    if not (before.calls or before.unreadable):
        return "undue_call"
    for fate, pattern in _ERRORS.items():
        if any(re.fullmatch(pattern, kind) for kind in kinds):
            return fate
    if sorted(name for name, _ in before.calls) != sorted(name for name, _ in after.calls):
        return "other_call"
    return "other" if all(call in after.calls for call in before.calls) else "other_arguments"
