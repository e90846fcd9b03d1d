"""Who shares an engine, where it runs, and when."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ace_ray.cluster.resources import gpus_per_worker
from ace_ray.config.schema import RunConfig
from ace_ray.errors import UserError
from ace_ray.sweep.packing import Lane, Machine, check_sizes, lanes, resolved
from ace_ray.sweep.runs import SweepRun

CPU = Machine(0)
ONE = Machine(1)
EIGHT = Machine(8)


class Rows:
    """Rows of a plan, each with a prompt of 400 characters."""

    def __init__(self, count: int, *, interactive: bool = False) -> None:
        self.size, self.interactive = np.full(count, 400), np.full(count, interactive)

    def __len__(self) -> int:
        return len(self.size)


def run(
    label: str,
    swap_group: str = "",
    *,
    gpus: int = 1,
    rows: int = 100,
    parameters: int = 10**9,
    **more: Any,
) -> SweepRun:
    sampling = SimpleNamespace(max_tokens=400)
    plan: Any = SimpleNamespace(
        run_id=label,
        rows=Rows(rows),
        config=SimpleNamespace(sampling=sampling),
        benchmarks={},
    )
    return SweepRun(
        label, None, label, plan, swap_group=swap_group, gpus=gpus, parameters=parameters, **more
    )


def on_nodes(
    nodes: Sequence[dict[str, float]], servers: Sequence[tuple[float, int]] = (), **told: Any
) -> tuple[SweepRun, Machine]:
    """A run of episodes with this config, and a cluster."""
    config = RunConfig.model_validate({"model": {"source": "m"}, "benchmarks": ["b"], **told})
    gpus = gpus_per_worker(config.engine)
    one = run("big", gpus=gpus, servers=tuple(servers))
    one = replace(
        one,
        plan=SimpleNamespace(config=config, rows=Rows(100, interactive=True)),  # type: ignore[arg-type]
        workers=config.workers if isinstance(config.workers, int) else None,
        server_gpus=sum(count for _, count in servers),
    )
    total = int(sum(node.get("GPU", 0) for node in nodes))
    return one, Machine(total, shared=True, nodes=tuple(nodes))


def checkpoints(count: int, swap_group: str = "alike", **more: Any) -> list[SweepRun]:
    return [run(f"{swap_group}-{step}", swap_group, **more) for step in range(count)]


def labels(found: Sequence[Lane]) -> list[list[str]]:
    return [[run.label for run in lane.runs] for lane in found]


def test_models_behind_one_endpoint_take_no_gpu_and_run_one_after_another() -> None:
    behind = [run(name, gpus=0, endpoint="h") for name in ("a", "b")]
    for machine in (CPU, EIGHT):
        packed = lanes([*behind, run("x")], machine, swap=True)
        assert sorted((lane.runs[0].label, lane.gpus > 0) for lane in packed) == [
            ("a", False),
            ("b", False),
            ("x", machine is EIGHT),
        ]
        first, second = (lane for lane in packed if lane.runs[0].label in ("a", "b"))
        assert first.lock_keys & second.lock_keys, "one after another"
    assert {lane.engines for lane in lanes(behind, EIGHT, swap=True)} == {1}
    assert {tuple(lane.on_nodes) for lane in lanes(behind, EIGHT, swap=True)} == {()}


class TestLanes:
    def test_a_swap_group_shares_an_engine_in_order(self) -> None:
        for machine in (CPU, ONE):
            assert labels(lanes(checkpoints(4), machine, swap=True)) == [
                ["alike-0", "alike-1", "alike-2", "alike-3"]
            ]

    def test_others_do_not(self) -> None:
        found = lanes(
            [*checkpoints(2, "a"), *checkpoints(2, "b"), run("x"), run("y")], CPU, swap=True
        )
        assert sorted(labels(found)) == [["a-0", "a-1"], ["b-0", "b-1"], ["x"], ["y"]]

    @pytest.mark.nightly
    def test_the_longest_come_first(self) -> None:
        small, large = run("small", parameters=10**8), run("large", parameters=10**10)
        long = run("long", parameters=10**8, rows=10**6)
        for machine in (CPU, ONE, EIGHT):
            found = lanes([small, large, long], machine, swap=True)
            assert labels(found) == [["long"], ["large"], ["small"]]
        assert [lane.seconds for lane in found] == sorted((x.seconds for x in found), reverse=True)

    def test_side_by_side_where_there_is_room(self) -> None:
        found = lanes(checkpoints(16), EIGHT, swap=True)
        assert [lane.gpus for lane in found] == [1] * 8
        # Neighbours in training stay together.
        parts = sorted(
            [[int(label.removeprefix("alike-")) for label in part] for part in labels(found)]
        )
        assert parts == [[n, n + 1] for n in range(0, 16, 2)]

    @pytest.mark.parametrize(
        ("asked", "gpus", "engines"),
        [
            (checkpoints(2), [4, 4], [4, 4]),
            ([run("x")], [8], [8]),
            # An engine that spans GPUs.
            (checkpoints(8, gpus=2), [2] * 4, [1] * 4),
            ([run("x", gpus=3)], [6], [2]),
            # A user model that is served for the episodes holds a GPU of its own.
            ([run("x", server_gpus=1)], [8], [7]),
            (checkpoints(16, server_gpus=1), [2] * 4, [1] * 4),
            ([run("x", gpus=2, server_gpus=3)], [7], [2]),
            # Workers that were asked for.
            ([run("x", workers=2)], [2], [2]),
        ],
    )
    @pytest.mark.parametrize("machine", [EIGHT, Machine(8, shared=True)])
    def test_gpus_and_engines(
        self, machine: Machine, asked: list[SweepRun], gpus: list[int], engines: list[int]
    ) -> None:
        found = lanes(asked, machine, swap=True)
        assert [lane.gpus for lane in found] == gpus
        assert [lane.engines for lane in found] == engines

    def test_on_cpus_engines_take_no_gpus(self) -> None:
        assert [lane.engines for lane in lanes([run("x", workers=4)], CPU, swap=True)] == [1]
        asked = [*checkpoints(8, gpus=2), run("x", gpus=4)]
        four = Machine(0, slots=4, shared=True)
        for machine, sizes in ((CPU, [8, 1]), (four, [3, 3, 2, 1])):
            found = lanes(asked, machine, swap=True)
            assert {lane.gpus for lane in found} == {0}
            assert sorted((len(lane.runs) for lane in found), reverse=True) == sizes


class TestSizes:
    @pytest.mark.parametrize(
        ("asked", "match"),
        [
            ({"gpus": 8}, "needs 8 GPUs, but there are 1; lower"),
            ({"workers": 4}, "needs 4 GPUs, but there are 1"),
            ({"server_gpus": 1}, "needs 2 GPUs, 1 of them for served models, but there are 1"),
            ({"server_gpus": 4, "workers": 4}, "needs 8 GPUs, 4 of them for served models"),
        ],
    )
    def test_more_gpus_than_there_are(self, asked: dict[str, Any], match: str) -> None:
        big = run("big", **asked)
        with pytest.raises(UserError, match=match) as error:
            check_sizes([big], ONE)
        assert error.value.where == "big (big)"
        check_sizes([big], EIGHT)
        check_sizes([big], CPU)

    @pytest.mark.parametrize(
        ("told", "node", "match"),
        [
            (
                {"engine": {"tensor_parallel_size": 3}},
                {"CPU": 16.0, "GPU": 4.0},
                r"workers: 1 worker\(s\) of 1 CPU\(s\) and 3 GPU\(s\) each on one node",
            ),
            ({"workers": 9}, {"CPU": 16.0, "GPU": 4.0}, "needs 14 GPUs, 5 of them"),
        ],
    )
    def test_what_the_nodes_can_never_hold(
        self,
        monkeypatch: pytest.MonkeyPatch,
        told: dict[str, Any],
        node: dict[str, float],
        match: str,
    ) -> None:
        big, machine = on_nodes([node, node], servers=((1.0, 3), (1.0, 2)), **told)
        monkeypatch.setattr("ace_ray.cluster.resources._installed", lambda name: False)
        with pytest.raises(UserError, match=match) as error:
            check_sizes([big], machine)
        assert error.value.where.startswith("big (big)")
        check_sizes([big], replace(machine, nodes=({"CPU": 80.0, "GPU": 80.0},), gpus=80))

    def test_a_lane_is_told_no_more_engines_than_the_nodes_hold(self) -> None:
        one, machine = on_nodes([{"CPU": 16.0, "GPU": 3.0}] * 3, engine={"tensor_parallel_size": 2})
        assert resolved(one, Lane((one,), 8), machine)["workers"] == 3
        assert resolved(one, Lane((one,), 4), machine)["workers"] == 2


def sweep_of(random: random.Random, machine: Machine) -> list[SweepRun]:
    sizes = [size for size in (1, 1, 2, 4, 8) if size <= (machine.gpus or 8)]
    kinds = {swap_group: random.choice(sizes) for swap_group in "abcd"}
    found = []
    for number in range(random.randint(1, 24)):
        swap_group = random.choice(["", *kinds])
        found.append(
            run(
                f"{number}",
                swap_group,
                gpus=kinds.get(swap_group) or random.choice(sizes),
                rows=random.choice([1, 50, 500]),
                parameters=random.choice([10**8, 10**9, 7 * 10**10]),
            )
        )
    return found


MACHINES = [CPU, Machine(0, slots=3, shared=True), ONE, Machine(3), EIGHT]


@pytest.mark.nightly
@pytest.mark.parametrize("machine", MACHINES, ids=lambda m: f"{m.gpus or 'cpu'}-{m.slots}")
def test_whatever_is_asked(machine: Machine) -> None:
    """Every run is in one lane of its own kind, and none is too large."""
    for seed in range(25):
        asked = sweep_of(random.Random(seed), machine)
        for swap in (True, False):
            found = lanes(asked, machine, swap=swap)
            assert Counter(r.label for lane in found for r in lane.runs) == {
                r.label: 1 for r in asked
            }
            for lane in found:
                assert lane.runs
                assert 0 <= lane.gpus <= machine.gpus
                assert (lane.gpus > 0) == (machine.gpus > 0)
                assert lane.gpus % lane.runs[0].gpus == 0 or not machine.gpus
                if len(lane.runs) > 1:
                    assert swap
                    assert {r.swap_group for r in lane.runs} == {lane.runs[0].swap_group} != {""}
                order = [int(r.label) for r in lane.runs]
                assert order == sorted(order)
            assert [x.seconds for x in found] == sorted((x.seconds for x in found), reverse=True)


def test_episodes_count_for_more() -> None:
    plain = run("a", rows=10)
    episode = run("b", rows=10)
    assert plain.tokens == 10 * (100 + 100)
    episode.plan.rows.interactive[:] = True  # type: ignore[union-attr]
    assert episode.tokens == 8 * plain.tokens
    assert SweepRun("refused", 1, "x", refused="torn").tokens == 0
