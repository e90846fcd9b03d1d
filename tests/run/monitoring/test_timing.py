"""What a run is said to have cost."""

from __future__ import annotations

import pytest

from ace_ray.run.actors.coordinator import Tally
from ace_ray.run.monitoring.clock import STATES
from ace_ray.run.monitoring.timing import timing
from ace_ray.run.planning.cluster import Resources

SPENT = dict.fromkeys(STATES, 0.0) | {"generation": 10.0, "load": 2.0}


@pytest.mark.parametrize(
    ("resources", "device", "devices", "generation"),
    [
        (Resources(2, 1.0, 4, 1), "gpu", 8, 80),
        # A judge on 4 GPUs beside them is held as long as they are.
        (Resources(2, 1.0, 4, 1, server_cpus=2.0, server_gpus=4), "gpu", 12, 120),
        (Resources(2, 1.0, 1, 1, server_gpus=1), "gpu", 3, 30),
        (Resources(2, 1.5, 0, 1), "cpu", 3, 30),
        (Resources(2, 1.5, 0, 1, server_cpus=2.0), "cpu", 5, 50),
    ],
)
def test_what_is_served_beside_the_engines_counts(
    resources: Resources, device: str, devices: float, generation: float
) -> None:
    tally = Tally()
    tally.of(0).spent = {"a": SPENT, "b": SPENT}
    found = timing([tally], 0, began=0, planned=0, resources=resources, earlier={})
    assert (found["device"], found["devices"]) == (device, devices)
    assert found["device_s"]["generation"] == pytest.approx(generation)
    assert found["device_s"]["load"] == pytest.approx(generation / 5)
    more = timing([tally], 0, began=0, planned=0, resources=resources, earlier=found)
    assert more["device_s"]["generation"] == pytest.approx(2 * generation)
