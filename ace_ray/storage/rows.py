"""Define the columns of a row in the pipeline and in Parquet files; build and read their values.

docs/results.md describes the columns for users; a test compares this description with the code."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple
from functools import lru_cache
from typing import Annotated, Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, ConfigDict, FailFast, Field, TypeAdapter, ValidationError

from ace_ray.errors import UserError
from ace_ray.types import RULE_SETS, STATUSES, Entry, Episode, ResultRow, Verdict, canonical_json
from ace_ray.util.safe_loading import first_problem, json_of_row
from ace_ray.util.sanitizing import replace_surrogates

_MOST_COUNT = 1 << 40
_Count = Annotated[int, Field(ge=0, le=_MOST_COUNT)]

# ``error_class`` of a row whose checker failed on a complete episode.
CHECK_FAILED = "CheckFailed"

# Columns of a planned row. ``run``: index into the job's runs. ``entry``: index into the job's
# entry table. ``shares``: index of the preparation that the row shares with other rows, or -1.
# ``length``: expected duration of the row, as a multiple of its category's median.
_NUMBERS = ("entry", "sample", "repeat", "shares", "attempt")
_KINDS = {"run": pa.int32(), "row_id": pa.string(), **dict.fromkeys(_NUMBERS, pa.int32())}
PLAN = pa.schema({**_KINDS, "length": pa.float32()})

# Columns that name an entry.
_NAMES = ("benchmark", "category", "language", "id", "group")

_EPISODE = [
    ("status", pa.string()),
    ("error_class", pa.string()),
    ("error", pa.string()),
    ("attempts", pa.int32()),
    ("messages", pa.large_string()),
    ("output", pa.large_string()),
    ("reasoning", pa.large_string()),
    ("reasoning_truncated", pa.bool_()),
    ("finish_reason", pa.string()),
    ("prompt_tokens", pa.int64()),
    ("completion_tokens", pa.int64()),
    ("model_calls", pa.int32()),
    ("generation_s", pa.float64()),
    ("started_at", pa.timestamp("us", tz="UTC")),
    ("duration_s", pa.float64()),
    ("worker", pa.string()),
    ("state", pa.large_string()),
    ("endpoint", pa.large_string()),
    ("tools", pa.large_string()),
    ("output_token_ids", pa.large_string()),
    ("cached_prompt_tokens", pa.int64()),
    ("first_token_s", pa.float64()),
    ("decode_s", pa.float64()),
]
# Columns that an engine worker emits.
EPISODES = pa.schema([*PLAN, *(pa.field(*column) for column in _EPISODE)])

_VERDICT = {
    "valid": pa.bool_(),
    "error_type": pa.string(),
    "error": pa.large_string(),
    "metrics": pa.string(),
}


def verdict_names(rule_sets: Iterable[str], parts: Iterable[str] = tuple(_VERDICT)) -> list[str]:
    """Return the names of the verdict columns of ``rule_sets``, such as ``official_valid``."""
    return [f"{rules}_{part}" for rules in rule_sets for part in parts]


def rows_schema(rule_sets: Sequence[str]) -> pa.Schema:
    """Return the schema of ``rows/*.parquet`` for a run with these rule sets."""
    return pa.schema(
        [("row_id", pa.string()), ("run_id", pa.string()), ("model", pa.string())]
        + [(name, pa.string()) for name in _NAMES]
        + [("sample", pa.int32()), ("repeat", pa.int32()), ("seed", pa.int64())]
        + _EPISODE
        + [("gold", pa.large_string())]
        + list(zip(verdict_names(rule_sets), [*_VERDICT.values()] * len(rule_sets), strict=True))
        + [("second_reading", pa.string())]
    )


# Schema for the built-in benchmarks, and for runs whose manifest names no rule sets.
ROWS = rows_schema(RULE_SETS)


def rule_sets_in(names: Iterable[str]) -> tuple[str, ...]:
    """Return the rule sets that have verdict columns among the column names ``names``."""
    return tuple(name.removesuffix("_valid") for name in names if name.endswith("_valid"))


_SURROGATE = re.compile("[\ud800-\udfff]")


def readable_json(value: Any, indent: int | None = None) -> str:
    """Return ``value`` as JSON with readable non-ASCII characters, so that people can search it.
    Lone surrogates are escaped, since UTF-8 cannot encode them."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    return _SURROGATE.sub(lambda half: f"\\u{ord(half[0]):04x}", text)


# Fields of an episode that are stored unchanged.
_AS_THEY_ARE = ("reasoning_truncated", "finish_reason", "model_calls")
# Columns that are null where the number of tokens is unknown.
TOKENS = ("prompt_tokens", "completion_tokens")
# Columns that are null where another program generated the row's output.
TIMES = ("generation_s", "duration_s")
# Columns of `EngineFigures`, in the order of its fields.
ENGINE = ("cached_prompt_tokens", "first_token_s", "decode_s")


def episode_columns(episode: Episode) -> dict[str, Any]:
    """Return the columns of a row that describe its episode. Token counts are null if an
    endpoint did not report them for every answer."""
    has_usage = episode.endpoint is None or not episode.endpoint["calls_without_usage"]
    # A list per answer; null if any answer lacks its token ids.
    token_ids = [list(ids) for ids in episode.output_token_ids if ids is not None]
    token_ids *= len(token_ids) == len(episode.output_token_ids)
    return {
        "messages": readable_json(episode.messages),
        "output": replace_surrogates(episode.output),
        "reasoning": replace_surrogates(episode.reasoning),
        **{name: getattr(episode, name) for name in _AS_THEY_ARE},
        **{name: getattr(episode, name) if has_usage else None for name in TOKENS},
        "generation_s": episode.generation_s,
        "state": None if episode.state is None else readable_json(episode.state),
        "endpoint": None if episode.endpoint is None else canonical_json(episode.endpoint),
        "tools": None if episode.tools is None else readable_json(episode.tools),
        "output_token_ids": json.dumps(token_ids, separators=(",", ":")) if token_ids else None,
        **_engine_columns(episode),
    }


def _engine_columns(episode: Episode) -> dict[str, Any]:
    """Return the sums of the engine's figures over all calls; null if a call has none. An endpoint
    may report cached tokens, but no times."""
    figures = [figure for figure in episode.engine if figure is not None]
    if not figures or len(figures) < len(episode.engine):
        cached = episode.endpoint and episode.endpoint["cached_tokens"]
        return {**dict.fromkeys(ENGINE), "cached_prompt_tokens": cached}
    sums = (sum(column) for column in zip(*map(astuple, figures), strict=True))
    return dict(zip(ENGINE, sums, strict=True))


def entry_columns(entry: Entry) -> dict[str, Any]:
    """Return the columns of a row that describe its entry."""
    names = {name: getattr(entry, name) for name in _NAMES}
    return {**names, "group": entry.group or entry.id, "gold": readable_json(entry.gold)}


def rows_of(table: pa.Table) -> Iterator[dict[str, Any]]:
    """Yield the rows of a table as dictionaries. Converts at most `AT_ONCE` rows at a time."""
    for start in range(0, table.num_rows, AT_ONCE):
        yield from table.slice(start, AT_ONCE).to_pylist()


# Schema of the token ids of a row: a list per answer. Tokenizers take 32-bit ids.
_TokenId = Annotated[int, Field(strict=True, ge=0, lt=1 << 31)]
_TOKEN_IDS: TypeAdapter[list[list[int]]] = TypeAdapter(
    Annotated[list[Annotated[list[_TokenId], FailFast()]], FailFast()]
)


def messages_of(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the messages stored in a row. Raises `UserError` if the column is damaged."""
    messages = _parse_column(row, "messages")
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise _column_error(row, "messages", "is not a list of messages")
    return messages


def token_ids_of(row: Mapping[str, Any]) -> list[list[int]] | None:
    """Return the token ids of each answer of a row; None if they are not stored or damaged."""
    try:
        return _TOKEN_IDS.validate_python(json_of_row(row["output_token_ids"]))
    except ValueError:
        return None


def state_of(row: Mapping[str, Any]) -> Any:
    """Return the state stored in a row, or None. Raises `UserError` if the column is damaged."""
    return None if row["state"] is None else _parse_column(row, "state")


class _EndpointFacts(BaseModel):
    """Schema of the column ``endpoint``: `EndpointFacts.as_json`, summed over a row's answers."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
    models: dict[str, _Count]
    fingerprints: dict[str, _Count]
    calls_without_usage: _Count
    reasoning_tokens: _Count | None
    cached_tokens: _Count | None
    attempts: _Count | None
    waited_s: Annotated[float, Field(ge=0, le=_MOST_COUNT)]


def endpoint_of(row: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the column ``endpoint`` of a row (`_EndpointFacts`); None if no endpoint answered.
    Raises `UserError` if the column is damaged."""
    if row.get("endpoint") is None:
        return None
    facts: dict[str, Any] = _parse_column(row, "endpoint")
    try:
        _EndpointFacts.model_validate(facts)
    except ValidationError as error:
        raise _column_error(row, "endpoint", first_problem(error)) from error
    return facts


def _parse_column(row: Mapping[str, Any], column: str) -> Any:
    try:
        return json_of_row(row[column])
    except ValueError as error:
        raise _column_error(row, column, str(error)) from error


def _column_error(row: Mapping[str, Any], column: str, why: str) -> UserError:
    fix = "name an intact run, or delete the Parquet file in rows/ that holds the row"
    return UserError(f"the column {column} {why}", where=f"row {row['row_id']}", fix=fix)


def episode_of(row: Mapping[str, Any]) -> Episode:
    """Return the episode stored in a row's columns. Raises `UserError` if a column is damaged."""
    return Episode(
        messages=messages_of(row),
        output=row["output"],
        reasoning=row["reasoning"],
        state=state_of(row),
        **{name: row[name] for name in _AS_THEY_ARE},
        prompt_tokens=row["prompt_tokens"] or 0,
        completion_tokens=row["completion_tokens"] or 0,
        generation_s=row["generation_s"] or 0.0,
        endpoint=endpoint_of(row),
    )


def verdict_columns(
    verdicts: Mapping[str, Verdict], rule_sets: Sequence[str] = RULE_SETS
) -> dict[str, Any]:
    """Return the verdict columns of a row. Columns of rule sets without a verdict are null, except
    the metrics of a row that was not judged."""
    columns: dict[str, Any] = {}
    for rules in rule_sets:
        verdict = verdicts.get(rules)
        judged = verdict if verdict and verdict.valid is not None else None
        columns[f"{rules}_valid"] = judged.valid if judged else None
        columns[f"{rules}_error_type"] = replace_surrogates(judged.error_type) if judged else None
        columns[f"{rules}_error"] = replace_surrogates(judged.error) if judged else None
        columns[f"{rules}_metrics"] = canonical_json(verdict.metrics) if verdict else None
    return columns


# Maximum rows that are Python values at a time, which need much more memory than Arrow's values.
AT_ONCE = 1024
_KEYS = ("row_id", "benchmark", "category", "language", "id", "group", "status")
_COUNTS = (
    *("sample", "repeat", "attempts", "prompt_tokens", "completion_tokens", "model_calls"),
    "cached_prompt_tokens",
)
_AMOUNTS = ("generation_s", "duration_s", "first_token_s", "decode_s")
_MOST_KEY_BYTES = 4 << 20
# The first and the last microsecond of Python's `datetime`.
_YEARS_US = (-62_135_596_800_000_000, 253_402_300_799_999_999)
_NEVER_NULL = frozenset(rows_schema(()).names) - {
    *("error_class", "error", "attempts", "state", "seed", "run_id", "started_at", "worker"),
    *(*TOKENS, "endpoint", "second_reading", "model", "gold", "tools", "output_token_ids"),
    *(*ENGINE, *TIMES),
}


def check_values(table: pa.Table) -> None:
    """Check the values of a part, which is untrusted: another person may have made the run.

    Raises `ValueError` if a required value is missing, or a value is outside its valid range."""
    for name in table.column_names:
        column = table.column(name)
        if column.null_count and name in _NEVER_NULL:
            raise ValueError(f"it has rows without {name}")
        if not len(column) - column.null_count:
            continue
        if name in _KEYS and pc.max(pc.binary_length(column)).as_py() > _MOST_KEY_BYTES:
            raise ValueError(f"it has a {name} of more than {_MOST_KEY_BYTES >> 20} MiB")
        if name == "status" and (unknown := set(column.unique().to_pylist()) - set(STATUSES)):
            raise ValueError(f"it has rows with the unknown status {min(unknown)!r:.80}")
        if name in _AMOUNTS and not pc.all(pc.is_finite(column)).as_py():
            raise ValueError(f"it has a {name} that is not a number")
        if name in (*_COUNTS, *_AMOUNTS):
            _check_range(name, column, 0, _MOST_COUNT)
        elif name == "started_at":
            _check_range(name, column.cast(pa.int64()), *_YEARS_US)
    _check_verdicts(table)


def _check_verdicts(table: pa.Table) -> None:
    """Raise `ValueError` if a row has some columns of a verdict but lacks others. Rows that were
    not judged have metrics without a verdict."""
    for rules in rule_sets_in(table.column_names):
        for name in verdict_names([rules]):
            if name not in table.column_names:
                continue
            no_verdict, no_part = (pc.is_null(table.column(c)) for c in (f"{rules}_valid", name))
            differ = pc.and_not if name == f"{rules}_metrics" else pc.xor
            if pc.any(differ(no_part, no_verdict)).as_py():
                raise ValueError(f"it has verdicts without {name}, or {name} without a verdict")


def _check_range(name: str, column: pa.ChunkedArray, minimum: int, maximum: int) -> None:
    bounds = pc.min_max(column).as_py()
    if bounds["min"] < minimum or bounds["max"] > maximum:
        raise ValueError(f"it has a {name} outside the valid range")


def metrics_of(text: str | None) -> dict[str, float]:
    """Parse a verdict's metrics. Raises `ValueError` if they are not a JSON object of numbers."""
    if text == "{}":
        return {}
    metrics = json_of_row(text)
    if not isinstance(metrics, dict) or not all(
        isinstance(value, int | float) and abs(value) <= _MOST_COUNT for value in metrics.values()
    ):
        raise ValueError("is not a mapping of names to numbers")
    return metrics


_NO_COLUMNS = ("verdicts", "unjudged")
_RESULT_FIELDS = [name for name in ResultRow.__dataclass_fields__ if name not in _NO_COLUMNS]
_RESULT_PARTS = ("valid", "error_type", "metrics")


def result_columns(rule_sets: Iterable[str]) -> list[str]:
    """Return the columns that `result_rows` reads."""
    return [*_RESULT_FIELDS, *verdict_names(rule_sets, _RESULT_PARTS)]


def result_rows(tables: Iterable[pa.Table]) -> Iterator[ResultRow]:
    """Yield the rows of ``tables``, which must have the columns `result_columns`. Raises
    `UserError` if a column is damaged."""
    for table in tables:
        rule_sets = rule_sets_in(table.column_names)
        for start in range(0, table.num_rows, AT_ONCE):
            yield from _result_rows(table.slice(start, AT_ONCE), rule_sets)


def _result_rows(table: pa.Table, rule_sets: Sequence[str]) -> Iterator[ResultRow]:
    ids = table.column("row_id").to_pylist()
    fields = [table.column(name).to_pylist() for name in _RESULT_FIELDS]
    endpoint = _RESULT_FIELDS.index("endpoint")
    if any(text is not None for text in fields[endpoint]):
        fields[endpoint] = [
            endpoint_of({"row_id": row_id, "endpoint": text})
            for row_id, text in zip(ids, fields[endpoint], strict=True)
        ]
    verdict_columns = [
        zip(*(table.column(f"{r}_{part}").to_pylist() for part in _RESULT_PARTS), strict=True)
        for r in rule_sets
    ]
    verdicts = zip(*verdict_columns, strict=True) if verdict_columns else iter([()] * len(ids))
    for row_id, parts, *values in zip(ids, verdicts, *fields, strict=True):
        row = ResultRow(*values)
        for rules, (valid, error_type, metrics) in zip(rule_sets, parts, strict=True):
            if valid is None and metrics is None:
                continue
            try:
                if valid is None:
                    row.unjudged[rules] = metrics_of(metrics)
                    continue
                short = metrics is None or len(metrics) <= _SHORT_CHARS
                make = _shared_verdict if short else _build_verdict
                row.verdicts[rules] = make(valid, error_type, metrics)
            except ValueError as error:
                raise _column_error({"row_id": row_id}, f"{rules}_metrics", str(error)) from error
        yield row


def _build_verdict(valid: bool, error_type: str | None, metrics: str | None) -> Verdict:
    return Verdict(valid, error_type or "", metrics=metrics_of(metrics))


_SHORT_CHARS = 1_000
# Equal verdicts share one object: a million rows have a few hundred different verdicts.
_shared_verdict = lru_cache(maxsize=4096)(_build_verdict)


# Error class of a row whose engines were killed from outside; only the next command retries it.
KILLED_FROM_OUTSIDE = "KilledFromOutside"

# Error class of rows that share a preparation on which engines crashed.
PREPARATION_KILLED = "PreparationKilled"

SHARED: Literal["shared"] = "shared"

# Error class of a row that is retried after all other rows -> kind of process that crashed on it.
# `SHARED`: engines crashed on a preparation that several rows share.
SET_ASIDE: dict[str | None, Literal["engine", "checker", "shared"]] = {
    "EngineKilled": "engine",
    "CheckerKilled": "checker",
    PREPARATION_KILLED: SHARED,
}
