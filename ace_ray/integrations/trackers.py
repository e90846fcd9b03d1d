"""Trackers that numbers are sent to: the data they are given, and a class for each.

No tracker is idempotent by itself. Each class here makes sure that a number of a run (by its key)
and a step is in the tracker once: it asks what is there, or writes the whole curve anew.
"""

from __future__ import annotations

import io
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any, ClassVar, Generic, TypeVar

from pydantic import Field

from ace_ray.config.schema import PublishConfig, Section, validated
from ace_ray.errors import UserError
from ace_ray.storage.object_store import LocalStore
from ace_ray.util.local_files import path_of
from ace_ray.util.secrets import secrets_in

Scalar = str | int | float | bool
AnySection = TypeVar("AnySection", bound=Section)
Held = Mapping[tuple[int, str], float]
"""(step, metric) -> the value that a tracker has."""


@dataclass(frozen=True)
class Point:
    """The numbers of one model. ``step`` is its training step, 0 of a model without one; ``time``
    is when its run began, in seconds since 1970."""

    step: int
    metrics: Mapping[str, float]
    """``<benchmark>/<rule set>/headline``: percent, as all shares are (docs/trackers.md)."""
    time: float = 0.0


@dataclass(frozen=True)
class Publication:
    """One run of a tracker: the curve of a training run, or a single model."""

    key: str
    """The same whenever it is published again: letters, digits, ``.``, ``_`` and ``-``, at most
    120."""
    name: str
    group: str
    """The sweep that it is part of; "" for none."""
    config: Mapping[str, Scalar]
    """Settings that all its models share, as dotted keys; no secrets, no local paths."""
    words: Mapping[str, str]
    """Descriptions of the numbers: ``<benchmark>/<rule set>/headline_is``, ``limited_to``."""
    points: Sequence[Point]
    """The whole curve, by step."""

    def missing(self, held: Held) -> list[Point]:
        """Return the points with the numbers that a tracker lacks, or has with another value."""
        points = []
        for point in self.points:
            metrics = {k: v for k, v in point.metrics.items() if held.get((point.step, k)) != v}
            if metrics:
                points.append(replace(point, metrics=metrics))
        return points


class Publisher(ABC, Generic[AnySection]):
    """One tracker. It is imported inside the methods."""

    needs: ClassVar[str]
    """The module that has to be installed: an extra of this package, too."""
    Options: type[AnySection]

    def __init__(self, options: AnySection) -> None:
        """Raises `UserError`: the options make no sense."""
        self.options = options

    @abstractmethod
    def publish(self, publication: Publication) -> str:
        """Send what the tracker lacks; returns where a reader finds it. Raises anything."""


class TensorBoardOptions(Section):
    folder: str = Field(
        "tensorboard",
        min_length=1,
        description="what `tensorboard --logdir` is given; on this machine",
    )


class TensorBoard(Publisher[TensorBoardOptions]):
    """A folder for each publication. A new file takes the place of the one before, so no point is
    there twice. TensorBoard reads files of a folder in the order of their names."""

    needs = "tensorboard"
    Options = TensorBoardOptions

    def __init__(self, options: TensorBoardOptions) -> None:
        super().__init__(options)
        if "://" in options.folder:
            raise UserError(
                f"{options.folder} is not a folder of this machine",
                where="publish: tensorboard",
                fix="name a local folder, and copy it where it is needed",
            )
        self._folder = path_of(options.folder, "publish: tensorboard").absolute()

    def publish(self, publication: Publication) -> str:
        place = f"{publication.group or '.'}/{publication.key}"
        store = LocalStore(str(self._folder))
        store.check_unlinked(place)
        before = sorted((self._folder / place).glob("events.out.tfevents.*.ace_ray"))
        number = 1 + max((int(file.name.split(".")[3]) for file in before), default=0)
        name = f"events.out.tfevents.{number:010d}.ace_ray"
        store.put(f"{place}/{name}", _events(publication))
        for file in before:
            file.unlink(missing_ok=True)
        return str(self._folder / place)


def _events(publication: Publication) -> bytes:
    """Return the whole file. The description of a line says which number it is."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
    from tensorboard.summary.writer.record_writer import RecordWriter

    content = io.BytesIO()
    records = RecordWriter(content)
    records.write(Event(wall_time=0.0, file_version="brain.Event:2").SerializeToString())
    for point in publication.points:
        values = [
            Summary.Value(
                tag=name,
                simple_value=value,
                metadata=SummaryMetadata(
                    summary_description=publication.words.get(f"{name}_is", "")
                ),
            )
            for name, value in sorted(point.metrics.items())
        ]
        event = Event(wall_time=point.time, step=point.step, summary=Summary(value=values))
        records.write(event.SerializeToString())
    return content.getvalue()


class TrackioOptions(Section):
    project: str = Field("ace_ray", min_length=1, description="the project's name")


class Trackio(Publisher[TrackioOptions]):
    """A run of a project with the publication's key as its name: on this machine, on a Space of the
    Hugging Face hub, or on a server."""

    needs = "trackio"
    Options = TrackioOptions

    def publish(self, publication: Publication) -> str:
        import trackio

        project, environment = self.options.project, os.environ
        elsewhere = environment.get("TRACKIO_SPACE_ID") or environment.get("TRACKIO_SERVER_URL")
        run = trackio.init(
            project,
            name=publication.key,
            group=publication.group or None,
            config={"name": publication.name, **publication.words, **publication.config},
            resume="allow",
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )
        for point in publication.missing(_held_by_trackio(project, publication.key, elsewhere)):
            run.log(point.metrics, step=point.step)
        run.finish()
        # A token may follow the address.
        return f"{(elsewhere or 'trackio').partition('?')[0]}: project {project}"


def _held_by_trackio(project: str, name: str, elsewhere: str | None) -> Held:
    from trackio.remote_client import RemoteClient
    from trackio.sqlite_storage import SQLiteStorage

    if elsewhere:
        client = RemoteClient(elsewhere, hf_token=os.environ.get("HF_TOKEN"))
        entries = client.predict(project, name, api_name="/get_logs")
    else:
        entries = SQLiteStorage.get_logs(project, name)
    return _by_step(entries, "step")


def _by_step(entries: Sequence[Mapping[str, Any]], step: str) -> Held:
    """The last value of each metric at each step; ``step`` is the key of the step."""
    return {
        (int(entry[step]), name): value
        for entry in entries
        if entry.get(step) is not None
        for name, value in entry.items()
        if isinstance(value, int | float)
    }


class WandBOptions(Section):
    project: str = Field("ace_ray", min_length=1, description="the project's name")


class WandB(Publisher[WandBOptions]):
    """Keys and the server come from the environment, or from `wandb login`. W&B's own steps only
    rise, so the training step is a metric that the others are drawn over: a late checkpoint finds
    its place."""

    needs = "wandb"
    Options = WandBOptions
    STEP: ClassVar[str] = "train_step"

    def publish(self, publication: Publication) -> str:
        import wandb

        run = wandb.init(
            project=self.options.project,
            id=publication.key,
            name=publication.name,
            group=publication.group or None,
            job_type="evaluation",
            config=dict(publication.config),
            resume="allow",
            settings=wandb.Settings(
                silent=True, console="off", x_disable_stats=True, save_code=False, disable_git=True
            ),
        )
        held: Held = {}
        if run.resumed:  # an offline run is never resumed, and cannot be asked
            held = _by_step(list(wandb.Api().run(run.path).scan_history()), self.STEP)
        run.define_metric(self.STEP)
        for name in {name for point in publication.points for name in point.metrics}:
            run.define_metric(name, step_metric=self.STEP)
        for point in publication.missing(held):
            run.log({**point.metrics, self.STEP: point.step})
        run.summary.update({**publication.points[-1].metrics, **publication.words})
        run.finish()
        offline = run.settings.mode == "offline"
        return f"{run.settings.sync_dir}, wandb sync sends it" if offline else str(run.url)


class MLflowOptions(Section):
    experiment: str = Field("ace_ray", min_length=1, description="its name; made if there is none")


class MLflow(Publisher[MLflowOptions]):
    """A run of an experiment, found again by a tag."""

    needs = "mlflow"
    Options = MLflowOptions
    KEY: ClassVar[str] = "ace_ray.key"
    MOST: ClassVar[int] = 100
    """Parameters or tags of a request, and the limit of the server."""
    MOST_METRICS: ClassVar[int] = 1_000

    def publish(self, publication: Publication) -> str:
        from mlflow import MlflowClient
        from mlflow.entities import Metric, Param, RunTag

        client = MlflowClient()
        run_id = self._run(client, publication)
        recorded = client.get_run(run_id).data.params
        # MLflow refuses a changed parameter: the curve has grown, and has less in common.
        params = [
            Param(key[:250], str(value)[:6_000])
            for key, value in publication.config.items()
            if key[:250] not in recorded
        ]
        names = {name for point in publication.points for name in point.metrics}
        held = {
            (metric.step, name): metric.value
            for name in names
            for metric in client.get_metric_history(run_id, name)
        }
        metrics = [
            Metric(name, value, int(1000 * point.time), point.step)
            for point in publication.missing(held)
            for name, value in point.metrics.items()
        ]
        tags = [RunTag(key, said[:5_000]) for key, said in publication.words.items()]
        for some in _batches(params, self.MOST):
            client.log_batch(run_id, params=some)
        for some in _batches(metrics, self.MOST_METRICS):
            client.log_batch(run_id, metrics=some)
        for some in _batches(tags, self.MOST):
            client.log_batch(run_id, tags=some)
        client.set_terminated(run_id)
        return f"experiment {self.options.experiment}, run {run_id}"

    def _run(self, client: Any, publication: Publication) -> str:
        """Return the id of the publication's run, made if there is none."""
        experiment = client.get_experiment_by_name(self.options.experiment)
        place = (
            experiment.experiment_id
            if experiment
            else client.create_experiment(self.options.experiment)
        )
        found = client.search_runs([place], f"tags.`{self.KEY}` = '{publication.key}'")
        if not found:
            group = {"ace_ray.group": publication.group} if publication.group else {}
            tags = {self.KEY: publication.key, **group}
            found = [client.create_run(place, tags=tags, run_name=publication.name)]
        run_id: str = found[0].info.run_id
        return run_id


def _batches(items: Sequence[Any], most: int) -> Iterator[Sequence[Any]]:
    return (items[start : start + most] for start in range(0, len(items), most))


PUBLISHERS: dict[str, type[Publisher[Any]]] = {
    "mlflow": MLflow,
    "tensorboard": TensorBoard,
    "trackio": Trackio,
    "wandb": WandB,
}


def publisher_class(name: str, where: str) -> type[Publisher[Any]]:
    """Raises `UserError` at ``where``: no tracker is called so."""
    if name not in PUBLISHERS:
        raise UserError(
            f"no tracker is called {name!r}", where=where, fix=f"one of {', '.join(PUBLISHERS)}"
        )
    return PUBLISHERS[name]


def make_publisher(name: str, options: Mapping[str, Any], where: str) -> Publisher[Any]:
    """The tracker ``name`` with its options.

    Raises `UserError` at ``where``: an unknown name or option, a secret, a package that is missing.
    """
    cls = publisher_class(name, where)
    for key, what in secrets_in(options):
        raise UserError(
            f"{what}, and options are stored and shown",
            where=f"{where}.{key}",
            fix=f"leave it to the environment, where {name} reads it itself",
        )
    section: Section = validated(cls.Options, options, where=where)
    if find_spec(cls.needs) is None:
        raise UserError(
            f"{name} needs the package {cls.needs!r}, which is not installed",
            where=where,
            fix=f"pip install 'ace-ray[{cls.needs}]'",
        )
    return cls(section)


def check_publishers(asked: Sequence[PublishConfig]) -> None:
    """Raise `UserError` where a tracker of a config's ``publish`` cannot be used."""
    for number, one in enumerate(asked):
        make_publisher(one.to, one.options, f"publish.{number}")
