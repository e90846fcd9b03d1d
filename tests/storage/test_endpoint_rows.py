"""What rows say of an endpoint's answers: who gave them, and what is unknown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ace_ray.benchmarks.tally import Tally, totals
from ace_ray.errors import UserError
from ace_ray.pipeline.summary import summarize
from ace_ray.storage.object_store import open_store
from ace_ray.storage.parts import read_ledger, write_parts
from ace_ray.storage.rows import ROWS, ResultRow, episode_columns, episode_of, result_rows
from ace_ray.types import Completion, EndpointFacts, Episode
from tests.pipeline.made_run import made_row

MANIFEST = {
    "declared": 2,
    "run_id": "run",
    "model": {},
    "config": {"max_unscored": 1.0, "backend": "endpoint", "limit": None},
}


def answered(*facts: EndpointFacts) -> Episode:
    episode = Episode()
    for one in facts:
        tokens: dict[str, Any] = (
            {"prompt_tokens": 7, "completion_tokens": 3} if one.has_usage else {}
        )
        episode.count(Completion("hi", endpoint=one, **tokens))
    return episode


def table(*episodes: Episode, **more: Any) -> pa.Table:
    keys = {"benchmark": "toy", "category": "all", "language": "en", "id": "i", "group": "i"}
    rows = [made_row(f"{n:032d}", episode, **keys, **more) for n, episode in enumerate(episodes)]
    return pa.Table.from_pylist(rows, schema=ROWS)


def test_calls_add_up() -> None:
    episode = answered(
        EndpointFacts("m-1", "fp", reasoning_tokens=2, attempts=2, waited_s=0.5),
        EndpointFacts("m-2", "fp", cached_tokens=4),
    )
    assert episode.endpoint == {
        "models": {"m-1": 1, "m-2": 1},
        "fingerprints": {"fp": 2},
        "calls_without_usage": 0,
        "reasoning_tokens": 2,
        "cached_tokens": 4,
        "attempts": 3,
        "waited_s": 0.5,
    }
    whole = answered(EndpointFacts("m-1"))
    whole.count_all(episode)
    assert whole.model_calls == 3
    assert whole.endpoint is not None
    assert whole.endpoint["models"] == {"m-1": 2, "m-2": 1}


def test_tokens_of_an_answer_without_usage_are_unknown_and_not_none() -> None:
    known = episode_columns(answered(EndpointFacts("m")))
    assert (known["prompt_tokens"], known["completion_tokens"]) == (7, 3)
    unknown = episode_columns(answered(EndpointFacts("m"), EndpointFacts("m", has_usage=False)))
    assert (unknown["prompt_tokens"], unknown["completion_tokens"]) == (None, None)
    assert episode_columns(Episode())["endpoint"] is None


def test_a_stored_row_is_read_back(tmp_path: Path) -> None:
    episode = answered(EndpointFacts("m", has_usage=False))
    write_parts(open_store(str(tmp_path)), "1-a", table(episode))
    ledger = read_ledger(open_store(str(tmp_path)))
    ((row,),) = (part.to_pylist() for part in ledger.tables(ROWS.names))
    assert episode_of(row).endpoint == episode.endpoint
    assert episode_columns(episode_of(row)) == episode_columns(episode)


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{}",
        '{"calls_without_usage": -1}',
        '{"calls_without_usage": 0, "models": ["m"], "fingerprints": {}}',
        '{"calls_without_usage": 0, "models": {"m": "x"}, "fingerprints": {}}',
        '{"calls_without_usage": 0, "models": {}, "fingerprints": {}, "attempts": "x"}',
        '{"calls_without_usage": 0, "models": {}, "fingerprints": {}, "waited_s": "x"}',
        '{"calls_without_usage": 0, "models": {}, "fingerprints": {}, "other": [1]}',
    ],
)
def test_what_no_run_stores_is_refused(text: str) -> None:
    with pytest.raises(UserError, match="the column endpoint"):
        list(result_rows([table(Episode(), endpoint=text)]))


def test_sums_over_unknown_tokens_are_unknown() -> None:
    rows = list(result_rows([table(answered(EndpointFacts("m-1")), answered())]))
    summary = summarize(MANIFEST, {}, lambda: rows, {})
    assert summary["tokens"] == {"prompt": 7, "completion": 3}
    assert summary["endpoint"]["models"] == {"m-1": 1}
    rows += result_rows([table(answered(EndpointFacts("m-2", has_usage=False)))])
    summary = summarize(MANIFEST, {}, lambda: rows, {})
    assert summary["tokens"] == {"prompt": None, "completion": None}
    assert summary["endpoint"]["calls_without_usage"] == 1
    assert json.loads(json.dumps(summary["endpoint"]))["models"] == {"m-1": 1, "m-2": 1}
    without = summarize(MANIFEST, {}, lambda: list(result_rows([table(Episode())])), {})
    assert "endpoint" not in without


def test_costs_of_a_category_are_unknown_with_one_of_its_rows() -> None:
    one, other = Tally("a", ["r"]), Tally("b", ["r"])
    keys: dict[str, Any] = {
        "row_id": "r",
        "benchmark": "b",
        "category": "a",
        "language": "",
        "id": "i",
    }
    for tokens in (5, None, 6):
        row = ResultRow(**keys, group="i", sample=0, status="skipped", prompt_tokens=tokens)
        one.add(row)
    assert totals([one, other])["prompt_tokens"] is None
    assert totals([one, other])["completion_tokens"] == 0
