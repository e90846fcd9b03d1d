"""Learn from stored rows how long entries take, so that a run starts its longest rows first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ace_ray.errors import UserError
from ace_ray.storage.object_store import open_store
from ace_ray.storage.parts import Ledger
from ace_ray.storage.stored_run import StoredRun
from ace_ray.types import CHECKED, EntryKeys

_KEYS = ["benchmark", "language", "category", "id"]
_COLUMNS = [*_KEYS, "status", "completion_tokens", "duration_s", "first_token_s", "endpoint"]
# Minimum of `Durations.lengths`, since an entry that was short may be longer in another run.
MIN_LENGTH = 0.5


@dataclass(frozen=True)
class Durations:
    """Expected durations of a run's entries, one value per entry. Entries without stored rows have
    the median of their category; without any rows in the category, the median of all entries;
    without any rows, 0 and the length 1."""

    seconds: np.ndarray
    """Seconds of an episode without queues: without rate limits and the times to first tokens."""
    tokens: np.ndarray
    """Completion tokens."""
    lengths: np.ndarray
    """`seconds` as multiples of the category's median, at least `MIN_LENGTH`."""


def read_durations(
    entries: Sequence[EntryKeys], ledger: Ledger, source: str | None = None, **options: Any
) -> Durations:
    """Return the durations of a run's ``entries`` in the stored run ``source``, and of entries that
    it does not have, in the run's own ``ledger``.

    ``options``: as for `open_store`. Raises `UserError` if ``source`` is not a run, or has no rows
    of these entries."""
    indices: dict[tuple[Any, ...], int] = {entry.path: index for index, entry in enumerate(entries)}
    values = np.full((2, len(entries)), np.nan)
    ledgers = [] if source is None else [StoredRun(open_store(source, **options)).ledger]
    for rows in (*ledgers, ledger):
        for *path, seconds, tokens in _entry_means(rows):
            index = indices.get(tuple(path))
            if index is not None and np.isnan(values[0, index]):
                values[:, index] = seconds, tokens
        if rows is not ledger and np.isnan(values[0]).all():
            raise UserError(
                f"{source} has no rows of this run's entries",
                where="durations_from",
                fix="name a run of the same benchmarks, or remove the key",
            )
    categories = [f"{entry.benchmark}/{entry.category}" for entry in entries]
    names, category_of = np.unique(categories, return_inverse=True)
    overall, lengths = np.nan_to_num(_medians(values)), np.ones(len(entries))
    for number in range(len(names)):
        mask = category_of == number
        medians = _medians(values[:, mask])
        medians = np.where(np.isnan(medians), overall, medians)[:, None]
        values[:, mask] = np.where(np.isnan(values[:, mask]), medians, values[:, mask])
        lengths[mask] = np.maximum(values[0, mask], 1e-3) / max(medians[0, 0], 1e-3)
    return Durations(values[0], values[1], lengths.clip(min=MIN_LENGTH))


def _medians(values: np.ndarray) -> np.ndarray:
    """Return the median of each row of ``values`` without NaN; NaN if all its values are NaN."""
    medians: np.ndarray = np.ma.median(  # type: ignore[no-untyped-call]
        np.ma.masked_invalid(values), axis=1
    ).filled(np.nan)
    return medians


def _entry_means(ledger: Ledger) -> Iterable[tuple[str | float, ...]]:
    """Return for each entry in ``ledger`` its path, and the mean seconds and completion tokens of
    its checked rows; NaN where they are unknown."""
    names, parts = [*_KEYS, "seconds", "tokens"], []
    for table in ledger.tables(_COLUMNS):
        waits = pc.extract_regex(table["endpoint"], r'"waited_s":(?P<s>\d+(?:\.\d+)?)')
        seconds = table["duration_s"]
        for queued_s in (table["first_token_s"], pc.struct_field(waits, "s").cast(pa.float64())):
            seconds = pc.subtract(seconds, pc.fill_null(queued_s, 0.0))
        seconds = pc.max_element_wise(seconds, 0.0, skip_nulls=False)
        columns = [*(table[key] for key in _KEYS), seconds, table["completion_tokens"]]
        checked = pc.is_in(table["status"], pa.array(CHECKED))
        parts.append(pa.table(columns, names).filter(checked))
    if not parts:
        return []
    table = pa.concat_tables(parts).group_by(_KEYS).aggregate([(n, "mean") for n in names[4:]])
    columns = [table[name].to_pylist() for name in _KEYS]
    return zip(*columns, *(table[f"{name}_mean"].to_numpy() for name in names[4:]), strict=True)
