"""Tokens, times and facts of an endpoint: sums over the calls of a row, or null."""

from pathlib import Path
from typing import Any

import pyarrow as pa

from ace_ray.storage.object_store import open_store
from ace_ray.storage.parts import read_ledger, write_parts
from ace_ray.storage.rows import ENGINE, ROWS, episode_columns, episode_of
from ace_ray.types import Completion, EndpointFacts, EngineFigures, Episode
from tests.pipeline.made_run import made_row

KEYS = {"benchmark": "toy", "category": "all", "language": "en", "id": "i", "group": "i"}


def answered(*facts: EndpointFacts) -> Episode:
    episode = Episode()
    for fact in facts:
        tokens: Any = {"prompt_tokens": 7, "completion_tokens": 3} if fact.has_usage else {}
        episode.add_usage(Completion("hi", endpoint=fact, **tokens))
    return episode


def test_facts_of_calls_add_up_and_are_stored(tmp_path: Path) -> None:
    episode = answered(
        EndpointFacts("m-1", "fp", reasoning_tokens=2, attempts=2, waited_s=0.5),
        EndpointFacts("m-2", "fp", cached_tokens=4),
    )
    facts = episode.endpoint or {}
    assert (facts["models"], facts["fingerprints"]) == ({"m-1": 1, "m-2": 1}, {"fp": 2})
    numbers = ("reasoning_tokens", "cached_tokens", "attempts", "waited_s")
    assert [facts[name] for name in numbers] == [2, 4, 3, 0.5]
    total = answered(EndpointFacts("m-1"))
    total.add_episode_usage(episode)
    assert total.model_calls == 3
    assert total.endpoint is not None
    assert total.endpoint["models"] == {"m-1": 2, "m-2": 1}
    rows = pa.Table.from_pylist([made_row("0" * 32, total, **KEYS)], schema=ROWS)
    write_parts(open_store(str(tmp_path)), "1-a", rows)
    ledger = read_ledger(open_store(str(tmp_path)))
    ((row,),) = (part.to_pylist() for part in ledger.tables(ROWS.names))
    assert episode_columns(episode_of(row)) == episode_columns(total)
    assert [row.endpoint for row in ledger.rows()] == [total.endpoint]


def test_tokens_without_usage_are_unknown() -> None:
    mixed = episode_columns(answered(EndpointFacts("m"), EndpointFacts("m", has_usage=False)))
    assert (mixed["prompt_tokens"], mixed["completion_tokens"]) == (None, None)
    assert episode_columns(Episode())["endpoint"] is None


def test_a_row_has_the_sums_of_the_engines_figures_or_null() -> None:
    def columns(*completions: Completion) -> list[object]:
        episode = Episode()
        for completion in completions:
            episode.record(completion)
        return [episode_columns(episode)[name] for name in ENGINE]

    two = (EngineFigures(16, 0.5, 2.0), EngineFigures(32, 0.25, 1.0))
    completions = [Completion("a", engine=figures) for figures in two]
    assert columns(*completions) == [48, 0.75, 3.0]
    assert columns(*completions, Completion("b")) == [None, None, None]
    assert columns() == [None, None, None]
    # An endpoint reports cached tokens, but no times.
    assert columns(Completion("c", endpoint=EndpointFacts(cached_tokens=8))) == [8, None, None]
