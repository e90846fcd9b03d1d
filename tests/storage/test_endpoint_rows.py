"""Columns and sums of rows that an endpoint answered."""

from pathlib import Path
from typing import Any

import pyarrow as pa

from ace_ray.pipeline.summary import summarize
from ace_ray.storage.object_store import open_store
from ace_ray.storage.parts import read_ledger, write_parts
from ace_ray.storage.rows import ROWS, episode_columns, episode_of, result_rows
from ace_ray.types import Completion, EndpointFacts, Episode
from tests.pipeline.made_run import made_row

CONFIG = {"max_unscored_fraction": 1.0, "backend": "endpoint", "limit": None}
MANIFEST = {"declared": 2, "run_id": "run", "model": {}, "config": CONFIG}
KEYS = {"benchmark": "toy", "category": "all", "language": "en", "id": "i", "group": "i"}


def answered(*facts: EndpointFacts) -> Episode:
    episode = Episode()
    for fact in facts:
        tokens: Any = {"prompt_tokens": 7, "completion_tokens": 3} if fact.has_usage else {}
        episode.add_usage(Completion("hi", endpoint=fact, **tokens))
    return episode


def table(*episodes: Episode, **more: Any) -> pa.Table:
    rows = [made_row(f"{n:032d}", episode, **KEYS, **more) for n, episode in enumerate(episodes)]
    return pa.Table.from_pylist(rows, schema=ROWS)


def test_facts_of_calls_add_up_and_are_stored(tmp_path: Path) -> None:
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
    total = answered(EndpointFacts("m-1"))
    total.add_episode_usage(episode)
    assert total.model_calls == 3
    assert total.endpoint is not None
    assert total.endpoint["models"] == {"m-1": 2, "m-2": 1}
    write_parts(open_store(str(tmp_path)), "1-a", table(total))
    ledger = read_ledger(open_store(str(tmp_path)))
    ((row,),) = (part.to_pylist() for part in ledger.tables(ROWS.names))
    assert episode_of(row).endpoint == total.endpoint
    assert episode_columns(episode_of(row)) == episode_columns(total)


def test_tokens_without_usage_are_unknown_and_so_are_their_sums() -> None:
    unreported = answered(EndpointFacts("m-2", has_usage=False))
    mixed = episode_columns(answered(EndpointFacts("m"), EndpointFacts("m", has_usage=False)))
    assert (mixed["prompt_tokens"], mixed["completion_tokens"]) == (None, None)
    assert episode_columns(Episode())["endpoint"] is None

    rows = list(result_rows([table(answered(EndpointFacts("m-1")), answered())]))
    summary = summarize(MANIFEST, {}, lambda: rows, {})
    assert summary["tokens"] == {"prompt": 7, "completion": 3}
    assert summary["endpoint"]["models"] == {"m-1": 1}
    rows += result_rows([table(unreported)])
    summary = summarize(MANIFEST, {}, lambda: rows, {})
    assert summary["tokens"] == {"prompt": None, "completion": None}
    assert summary["endpoint"]["calls_without_usage"] == 1
    assert summary["endpoint"]["models"] == {"m-1": 1, "m-2": 1}
    without = summarize(MANIFEST, {}, lambda: list(result_rows([table(Episode())])), {})
    assert "endpoint" not in without
