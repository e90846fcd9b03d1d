"""Send results to experiment trackers: one function per tracker, and the records that it sends.

A tracker that receives a value twice stores it twice. So most functions first read the
tracker's values and send only what is missing. For TensorBoard, a new file replaces the old one."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from typing import Any

from pydantic import Field, field_validator

from ace_ray.config.schema import PublishConfig, Section, validate_tree
from ace_ray.errors import UserError
from ace_ray.storage.object_store import LocalStore
from ace_ray.util.local_files import path_of
from ace_ray.util.secrets import secrets_in

Scalar = str | int | float | bool
# (step, metric) -> the value in the tracker.
TrackerValues = Mapping[tuple[int, str], float]


@dataclass(frozen=True)
class Point:
    """The metrics of one model. ``step``: training step, or 0. ``time``: start of the run, in
    seconds since 1970."""

    step: int
    metrics: Mapping[str, float]
    """Name, such as ``bfcl/official/headline`` -> value; shares in percent (docs/trackers.md)."""
    time: float = 0.0


@dataclass(frozen=True)
class Publication:
    """The data of one run in a tracker: all checkpoints of a training, or a single model."""

    key: str
    """Identifier in the tracker: at most 120 letters, digits, ``.``, ``_`` and ``-``."""
    name: str
    group: str
    """Name of the sweep, or ""."""
    config: Mapping[str, Scalar]
    """Dotted key -> setting that all models share. Contains no secrets and no local paths."""
    words: Mapping[str, str]
    """Name -> text. ``<metric>_is`` describes a metric; ``limited_to`` and ``backend``, the run."""
    points: Sequence[Point]
    """One point per model, sorted by step."""

    def missing_points(self, values: TrackerValues) -> list[Point]:
        """Return the points with only the metrics whose value differs from the tracker's
        ``values``. Points without such metrics are left out."""
        points = []
        for point in self.points:
            metrics = {k: v for k, v in point.metrics.items() if values.get((point.step, k)) != v}
            if metrics:
                points.append(replace(point, metrics=metrics))
        return points


class TensorBoardOptions(Section):
    folder: str = Field("tensorboard", min_length=1)
    """folder of event files on this machine, for `tensorboard --logdir`"""

    @field_validator("folder")
    @classmethod
    def _check_local(cls, folder: str) -> str:
        if "://" in folder:
            raise ValueError("a folder of this machine")
        return folder


def to_tensorboard(options: TensorBoardOptions, publication: Publication) -> str:
    """Write an event file, remove the file of an earlier call, and return the folder. The new file
    has a later name, since TensorBoard reads files in the order of names."""
    folder = path_of(options.folder, "publish: tensorboard").absolute()
    subfolder = f"{publication.group or '.'}/{publication.key}"
    store = LocalStore(str(folder))
    before = sorted((folder / subfolder).glob("events.out.tfevents.*.ace_ray"))
    number = 1 + max((int(file.name.split(".")[3]) for file in before), default=0)
    store.put(f"{subfolder}/events.out.tfevents.{number:010d}.ace_ray", _events(publication))
    for file in before:
        file.unlink(missing_ok=True)
    return str(folder / subfolder)


def _events(publication: Publication) -> bytes:
    """Return the content of an event file. Each metric gets its description from ``words``."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import SummaryMetadata
    from tensorboard.summary.writer.record_writer import RecordWriter

    content = io.BytesIO()
    records = RecordWriter(content)
    records.write(Event(wall_time=0.0, file_version="brain.Event:2").SerializeToString())
    for point in publication.points:
        event = Event(wall_time=point.time, step=point.step)
        for name, value in sorted(point.metrics.items()):
            text = publication.words.get(f"{name}_is", "")
            metadata = SummaryMetadata(summary_description=text)
            event.summary.value.add(tag=name, simple_value=value, metadata=metadata)
        records.write(event.SerializeToString())
    return content.getvalue()


class ProjectOptions(Section):
    project: str = Field("ace_ray", min_length=1)
    """name of the project"""


def to_trackio(options: ProjectOptions, publication: Publication) -> str:
    """Send a publication to a Trackio run; the run's name is the publication's key. The run is
    stored on this machine, on a Space of the Hugging Face hub, or on a server. Return where."""
    import trackio

    project, environment = options.project, os.environ
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
    for point in publication.missing_points(_trackio_values(project, publication.key, elsewhere)):
        run.log(point.metrics, step=point.step)
    run.finish()
    # Omit the query of the URL, which may contain a token.
    return f"{(elsewhere or 'trackio').partition('?')[0]}: project {project}"


def _trackio_values(project: str, name: str, elsewhere: str | None) -> TrackerValues:
    from trackio.remote_client import RemoteClient
    from trackio.sqlite_storage import SQLiteStorage

    if elsewhere:
        client = RemoteClient(elsewhere, hf_token=os.environ.get("HF_TOKEN"))
        entries = client.predict(project, name, api_name="/get_logs")
    else:
        entries = SQLiteStorage.get_logs(project, name)
    return _values_by_step(entries, "step")


def _values_by_step(entries: Sequence[Mapping[str, Any]], step: str) -> TrackerValues:
    """Return the last value of each metric at each step. ``step``: key of the step in entries."""
    return {
        (int(entry[step]), name): value
        for entry in entries
        if entry.get(step) is not None
        for name, value in entry.items()
        if isinstance(value, int | float)
    }


# Metric with the training step, for the x axis in W&B. W&B's own step can only increase, which is
# wrong if an earlier checkpoint is evaluated later.
_STEP = "train_step"


def to_wandb(options: ProjectOptions, publication: Publication) -> str:
    """Send a publication to its W&B run, and return the run's URL, or the folder of an offline run.
    API keys come from the environment or `wandb login`."""
    import wandb

    run = wandb.init(
        project=options.project,
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
    values: TrackerValues = {}
    if run.resumed:  # never true for an offline run, which cannot be queried
        values = _values_by_step(list(wandb.Api().run(run.path).scan_history()), _STEP)
    run.define_metric(_STEP)
    for name in {name for point in publication.points for name in point.metrics}:
        run.define_metric(name, step_metric=_STEP)
    for point in publication.missing_points(values):
        run.log({**point.metrics, _STEP: point.step})
    run.summary.update({**publication.points[-1].metrics, **publication.words})
    run.finish()
    offline = run.settings.mode == "offline"
    return f"{run.settings.sync_dir}; upload with wandb sync" if offline else str(run.url)


class MLflowOptions(Section):
    experiment: str = Field("ace_ray", min_length=1)
    """name of the experiment; created if it does not exist"""


# The tag that identifies the run of a publication.
_KEY = "ace_ray.key"


def to_mlflow(options: MLflowOptions, publication: Publication) -> str:
    """Send a publication to its MLflow run, and return the names of experiment and run."""
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Param, RunTag

    client = MlflowClient()
    run_id = _mlflow_run(client, options.experiment, publication)
    recorded = client.get_run(run_id).data.params
    # Send only new parameters, since MLflow refuses to change a parameter.
    params = [
        Param(key[:250], str(value)[:6_000])
        for key, value in publication.config.items()
        if key[:250] not in recorded
    ]
    names = {name for point in publication.points for name in point.metrics}
    values = {
        (metric.step, name): metric.value
        for name in names
        for metric in client.get_metric_history(run_id, name)
    }
    metrics = [
        Metric(name, value, int(1000 * point.time), point.step)
        for point in publication.missing_points(values)
        for name, value in point.metrics.items()
    ]
    tags = [RunTag(key, text[:5_000]) for key, text in publication.words.items()]
    client.log_batch(run_id, metrics, params, tags)  # splits them as MLflow's server requires
    client.set_terminated(run_id)
    return f"experiment {options.experiment}, run {run_id}"


def _mlflow_run(client: Any, name: str, publication: Publication) -> str:
    """Return the id of the publication's run. Create the run if needed."""
    experiment = client.get_experiment_by_name(name)
    experiment_id = experiment.experiment_id if experiment else client.create_experiment(name)
    runs = client.search_runs([experiment_id], f"tags.`{_KEY}` = '{publication.key}'")
    if not runs:
        group = {"ace_ray.group": publication.group} if publication.group else {}
        tags = {_KEY: publication.key, **group}
        runs = [client.create_run(experiment_id, tags=tags, run_name=publication.name)]
    return str(runs[0].info.run_id)


# Name of a tracker -> its options, and the function that sends a publication and returns its
# location. The name is also the tracker's Python module and an extra of this package. The function
# may raise any exception.
TRACKERS: dict[str, tuple[type[Section], Callable[[Any, Publication], str]]] = {
    "mlflow": (MLflowOptions, to_mlflow),
    "tensorboard": (TensorBoardOptions, to_tensorboard),
    "trackio": (ProjectOptions, to_trackio),
    "wandb": (ProjectOptions, to_wandb),
}


def make_publisher(
    name: str, options: Mapping[str, Any], location: str
) -> Callable[[Publication], str]:
    """Return the function that sends publications to the tracker ``name``.

    Raises `UserError`, which names ``location``, if the tracker or an option is unknown, an option
    contains a secret, or the tracker's package is not installed."""
    if name not in TRACKERS:
        problem = f"{name!r} is not a known tracker"
        raise UserError(problem, where=location, fix=f"one of {', '.join(TRACKERS)}")
    for key, problem in secrets_in(options):
        problem = f"{problem}, and options are stored and shown"
        fix = f"put it into the environment, where {name} reads it"
        raise UserError(problem, where=f"{location}.{key}", fix=fix)
    section = validate_tree(TRACKERS[name][0], options, where=location)
    if find_spec(name) is None:
        problem = f"{name} needs the package {name!r}, which is not installed"
        raise UserError(problem, where=location, fix=f"pip install 'ace-ray[{name}]'")
    return partial(TRACKERS[name][1], section)


def check_publishers(configs: Sequence[PublishConfig]) -> None:
    """Raise `UserError` if a tracker of a config's ``publish`` cannot be used."""
    for number, config in enumerate(configs):
        make_publisher(config.tracker, config.options, f"publish.{number}")
