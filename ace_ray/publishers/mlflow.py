"""MLflow: a run of an experiment, found again by a tag."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import Field

from ace_ray.config import Section
from ace_ray.publishers.base import Point, Publication, Publisher

KEY = "ace_ray.key"
_MOST = 100
"""Parameters of a request; the server's own limit."""
_MOST_METRICS = 1_000
_LONGEST = 6_000
"""Characters of a parameter."""


class MLflowOptions(Section):
    experiment: str = Field("ace_ray", min_length=1, description="its name; made if there is none")
    tracking_uri: str | None = Field(
        None,
        min_length=1,
        description="of the server; default: the environment's (MLFLOW_TRACKING_URI), as are its "
        "credentials",
    )


class MLflow(Publisher[MLflowOptions]):
    """A server is asked for what it holds, so a point that it has is not sent again."""

    needs = "mlflow"
    install = "ace-ray[mlflow]"
    Options = MLflowOptions

    def place(self) -> str:
        import mlflow

        return f"{self.options.tracking_uri or mlflow.get_tracking_uri()} {self.options.experiment}"

    def publish(self, publication: Publication, new: Sequence[Point]) -> str:
        from mlflow import MlflowClient
        from mlflow.entities import Metric, Param, RunTag

        client = MlflowClient(tracking_uri=self.options.tracking_uri)
        experiment = self._experiment(client)
        run_id = self._run(client, experiment, publication)
        config = list(publication.config.items())
        recorded = client.get_run(run_id).data.params
        # One that has changed would be refused: the curve has grown, and has less in common.
        params = [
            Param(key[:250], str(value)[:_LONGEST])
            for key, value in config
            if key[:250] not in recorded
        ]
        for some in _some(params, _MOST):
            client.log_batch(run_id, params=some)
        metrics = [
            Metric(name, value, int(1000 * point.time), point.step or 0)
            for point in new
            for name, value in point.metrics.items()
        ]
        held = {
            (name, metric.step, metric.value)
            for name in {metric.key for metric in metrics}
            for metric in client.get_metric_history(run_id, name)
        }
        metrics = [one for one in metrics if (one.key, one.step, one.value) not in held]
        for some in _some(metrics, _MOST_METRICS):
            client.log_batch(run_id, metrics=some)
        words = {k: v for k, v in publication.summary.items() if isinstance(v, str)}
        rows = {"ace_ray.rows": " ".join(publication.rows)} if publication.rows else {}
        tags = [RunTag(key, value[:5_000]) for key, value in {**words, **rows}.items()]
        for some in _some(tags, _MOST):
            client.log_batch(run_id, tags=some)
        client.set_terminated(run_id)
        return f"experiment {self.options.experiment}, run {run_id}"

    def _experiment(self, client: Any) -> str:
        found = client.get_experiment_by_name(self.options.experiment)
        made: str = (
            found.experiment_id if found else client.create_experiment(self.options.experiment)
        )
        return made

    def _run(self, client: Any, experiment: str, publication: Publication) -> str:
        found = client.search_runs([experiment], f"tags.`{KEY}` = '{publication.key}'")
        if found:
            run_id: str = found[0].info.run_id
            return run_id
        tags = {KEY: publication.key}
        if publication.group:
            tags["ace_ray.group"] = publication.group
        run_id = client.create_run(experiment, tags=tags, run_name=publication.name).info.run_id
        return run_id


def _some(items: Sequence[Any], most: int) -> Iterator[Sequence[Any]]:
    for start in range(0, len(items), most):
        yield items[start : start + most]
