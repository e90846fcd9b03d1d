"""What a graph does otherwise is as it was for other graphs of the process."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from ray.data._internal.execution import streaming_executor
from ray.data._internal.execution.operators import actor_pool_map_operator as actor_pools
from ray.data._internal.stats import _StatsManager

from ace_ray.run.ray_data import (
    FixedCluster,
    actors_hold_their_arguments,
    replaced,
    without_helpers,
)


def attributes() -> list[dict[str, Any]]:
    owners = (streaming_executor, actor_pools, _StatsManager, actor_pools.ActorPoolMapOperator)
    return [dict(vars(owner)) for owner in owners]


def fail_within() -> None:
    before = attributes()
    with without_helpers(), actors_hold_their_arguments():
        assert streaming_executor.create_cluster_autoscaler is FixedCluster
        assert all(one != other for one, other in zip(attributes(), before, strict=True))
        raise ValueError("within")


def test_ray_data_is_as_it_was_afterwards() -> None:
    before = attributes()
    with pytest.raises(ValueError, match="within"):
        fail_within()
    assert attributes() == before


@pytest.mark.nightly
def test_the_executor_reads_metadata_itself() -> None:
    code = (
        "from ace_ray.run.session import prepare; prepare()\n"
        "from ray.data._internal.execution.metadata_fetcher import make_metadata_fetcher\n"
        "print(type(make_metadata_fetcher()).__name__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "InlineMetadataFetcher"


class TestAnActorsArguments:
    """What `_start_actor` passes on, and what tasks use afterwards."""

    class Operator:
        _map_transformer, data_context = "code", "context"

    @pytest.mark.parametrize("references", [{}, {"_data_context_ref": "a reference"}])
    def test_values_travel_and_references_stay(self, references: dict[str, str]) -> None:
        given: list[Any] = []

        def start(operator: Any, *args: Any) -> str:
            given.append((operator._map_transformer_ref, operator._data_context_ref, *args))
            return "started"

        operator = self.Operator()
        vars(operator).update(references)
        owner = actor_pools.ActorPoolMapOperator
        with replaced(owner, _start_actor=start), actors_hold_their_arguments():
            assert owner._start_actor(operator, "labels") == "started"
        assert given == [("code", "context", "labels")]
        assert vars(operator) == references
