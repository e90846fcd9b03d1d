"""MLflow: for real with files where it is installed, else the calls that it is sent."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import pytest

from ace_ray.integrations.trackers import MLflowOptions, Point, Publication, to_mlflow
from tests.integrations.made import complete_run, sweep_of, whole

HEADLINE = "acebench/official/headline"


class Client:
    """What of a server is asked, in memory."""

    runs: ClassVar[dict[str, SimpleNamespace]] = {}
    experiments: ClassVar[dict[str, str]] = {}

    def get_experiment_by_name(self, name: str) -> Any:
        found = self.experiments.get(name)
        return found and SimpleNamespace(experiment_id=found)

    def create_experiment(self, name: str) -> str:
        return self.experiments.setdefault(name, f"id of {name}")

    def search_runs(self, experiments: list[str], query: str) -> list[Any]:
        return [
            run
            for run in self.runs.values()
            if [run.experiment] == experiments
            and query == f"tags.`ace_ray.key` = '{run.tags['ace_ray.key']}'"
        ]

    def create_run(self, experiment: str, tags: dict[str, str], run_name: str) -> Any:
        run_id = f"run {len(self.runs)}"
        self.runs[run_id] = SimpleNamespace(
            info=SimpleNamespace(run_id=run_id, name=run_name),
            data=SimpleNamespace(params={}),
            experiment=experiment,
            tags=tags,
            metrics=[],
            batches=[],
            ended=False,
        )
        return self.runs[run_id]

    def get_run(self, run_id: str) -> Any:
        return self.runs[run_id]

    def log_batch(self, run_id: str, metrics: Any = (), params: Any = (), tags: Any = ()) -> None:
        run = self.runs[run_id]
        run.batches.append((len(metrics), len(params), len(tags)))
        run.metrics += metrics
        for param in params:
            assert param.key not in run.data.params, "MLflow refuses a changed parameter"
            run.data.params[param.key] = param.value
        run.tags |= {tag.key: tag.value for tag in tags}

    def get_metric_history(self, run_id: str, name: str) -> list[Any]:
        return [metric for metric in self.runs[run_id].metrics if metric.key == name]

    def set_terminated(self, run_id: str) -> None:
        self.runs[run_id].ended = True


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> type[Client]:
    module, entities = ModuleType("mlflow"), ModuleType("mlflow.entities")
    for name, fields in {
        "Metric": ("key", "value", "timestamp", "step"),
        "Param": ("key", "value"),
        "RunTag": ("key", "value"),
    }.items():

        def made(*values: Any, fields: tuple[str, ...] = fields) -> SimpleNamespace:
            return SimpleNamespace(**dict(zip(fields, values, strict=True)))

        setattr(entities, name, made)
    monkeypatch.setattr(Client, "runs", {})
    monkeypatch.setattr(Client, "experiments", {})
    module.MlflowClient = Client  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mlflow", module)
    monkeypatch.setitem(sys.modules, "mlflow.entities", entities)
    return Client


def curve(*steps: int, **config: Any) -> Publication:
    points = [Point(step, {HEADLINE: step / 10, "rows/declared": 7.0}, 2.0) for step in steps]
    words = {"acebench/official/headline_is": "Overall"}
    return Publication("key-1", "train", "sweep-1", config, words, points)


def test_the_calls(server: type[Client]) -> None:
    options = MLflowOptions(experiment="x")
    first = curve(100, 200, **{f"k{n}": n for n in range(150)})
    to_mlflow(options, first)
    second = curve(100, 200, 300, k1=2, new=3)
    assert to_mlflow(options, second) == "experiment x, run run 0"
    (run,) = server.runs.values()
    assert run.info.name == "train"
    assert run.ended
    assert run.tags == {
        "ace_ray.key": "key-1",
        "ace_ray.group": "sweep-1",
        "acebench/official/headline_is": "Overall",
    }
    assert [(m.step, m.value) for m in run.metrics if m.key == HEADLINE] == [
        (100, 10.0),
        (200, 20.0),
        (300, 30.0),
    ]
    assert run.metrics[0].timestamp == 2_000
    assert (run.data.params["k1"], run.data.params["new"]) == ("1", "3")
    assert max(params for _, params, _ in run.batches) == 100, "the server's limit"


def test_a_server_that_holds_files(
    here: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    uri = (tmp_path / "mlruns").as_uri()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    sweep = sweep_of(tmp_path / "sweep", {100: whole(2), 200: whole(5)})
    run = complete_run(tmp_path / "run")

    def publish(folder: Path) -> str:
        ended = here("publish", folder, "--to", "mlflow")
        assert ended.code == 0, ended.stderr
        return str(ended.stdout)

    publish(sweep)
    publish(sweep)
    sweep_of(sweep, {100: whole(2), 200: whole(5), 300: whole(1)})
    publish(sweep)
    publish(run)
    client = mlflow.MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("ace_ray").experiment_id
    found = {one.info.run_name: one for one in client.search_runs([experiment])}
    assert sorted(found) == ["run", "train"]
    history = client.get_metric_history(found["train"].info.run_id, HEADLINE)
    assert [metric.step for metric in history] == [100, 200, 300]
    assert found["run"].data.params["model"] == "Toy-7B-Instruct"
