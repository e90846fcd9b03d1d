"""What a graph goes without is there again for other graphs of the process."""

from __future__ import annotations

import pytest
from ray.data._internal.execution import streaming_executor
from ray.data._internal.stats import _StatsManager

from ace_ray.run.ray_data import _STATS, FixedCluster, without_helpers


def fail_without_helpers(before: dict[str, object]) -> None:
    with without_helpers():
        assert streaming_executor.create_cluster_autoscaler is FixedCluster
        assert not any(_StatsManager.__dict__[name] is before[name] for name in _STATS)
        raise ValueError("within")


def test_ray_data_is_as_it_was_afterwards() -> None:
    before = {name: _StatsManager.__dict__[name] for name in _STATS}
    autoscaler = streaming_executor.create_cluster_autoscaler
    with pytest.raises(ValueError, match="within"):
        fail_without_helpers(before)
    assert {name: _StatsManager.__dict__[name] for name in _STATS} == before
    assert streaming_executor.create_cluster_autoscaler is autoscaler
