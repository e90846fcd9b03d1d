"""TensorBoard: event files in a folder, without torch or TensorFlow."""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Sequence
from pathlib import Path

from pydantic import Field

from ace_ray.config import Section
from ace_ray.errors import UserError
from ace_ray.local_files import path_of
from ace_ray.publishers.base import Point, Publication, Publisher
from ace_ray.store import LocalStore

_FILE = "events.out.tfevents.{number:010d}.ace_ray"
"""TensorBoard reads files of a folder in the order of their names."""


class TensorBoardOptions(Section):
    folder: str = Field(
        "tensorboard",
        min_length=1,
        description="what `tensorboard --logdir` is given; on this machine",
    )


class TensorBoard(Publisher[TensorBoardOptions]):
    """A folder for each publication with one file, whose bytes follow from the curve.

    A file that the curve goes on from gets what is missing, so that a TensorBoard that is open
    shows it; in place of any other one a new file is written. Either way no point is there twice,
    whatever was published before, and by whom.
    """

    needs = "tensorboard"
    install = "ace-ray[tensorboard]"
    Options = TensorBoardOptions

    def __init__(self, options: TensorBoardOptions) -> None:
        super().__init__(options)
        if "://" in options.folder:
            raise UserError(
                f"{options.folder} is no folder of this machine",
                where="publish: tensorboard",
                fix="name a local folder, and copy it where it is needed",
            )
        self._folder = path_of(options.folder, "publish: tensorboard").absolute()

    def place(self) -> str:
        return str(self._folder)

    def publish(self, publication: Publication, new: Sequence[Point]) -> str:
        place = f"{publication.group or '.'}/{publication.key}"
        store = LocalStore(str(self._folder))
        store.check_unlinked(place)
        folder = self._folder / place
        content = _events(publication)
        files = sorted(folder.glob("events.out.tfevents.*.ace_ray"))
        if len(files) == 1 and _is_single(files[0]) and content.startswith(files[0].read_bytes()):
            with files[0].open("r+b") as grown:
                size = grown.seek(0, os.SEEK_END)
                grown.write(content[size:])
                grown.flush()
                os.fsync(grown.fileno())
            return str(folder)
        number = 1 + max((int(file.name.split(".")[3]) for file in files), default=0)
        store.put(f"{place}/{_FILE.format(number=number)}", content)
        for file_before in files:
            file_before.unlink(missing_ok=True)
        return str(folder)


def _is_single(file: Path) -> bool:
    """Return whether ``file`` is neither a link nor a file that has another name, too."""
    status = file.lstat()
    return stat.S_ISREG(status.st_mode) and status.st_nlink == 1


def _events(publication: Publication) -> bytes:
    """The whole file, the same for the same publication. What the numbers are in words stands as
    the description of each line whose name begins as theirs does."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary, SummaryMetadata
    from tensorboard.summary.writer.record_writer import RecordWriter

    content = io.BytesIO()
    records = RecordWriter(content)
    # The time of the first point would change with an earlier step.
    records.write(Event(wall_time=0.0, file_version="brain.Event:2").SerializeToString())
    for point in publication.points:
        values = [
            Summary.Value(
                tag=name,
                simple_value=value,
                metadata=SummaryMetadata(summary_description=_described(publication, name)),
            )
            for name, value in sorted(point.metrics.items())
        ]
        event = Event(wall_time=point.time, step=point.step or 0, summary=Summary(value=values))
        records.write(event.SerializeToString(deterministic=True))
    return content.getvalue()


def _described(publication: Publication, name: str) -> str:
    """What the metric ``name`` is, if the publication says it: of ``a/headline`` and of
    ``a/headline_low`` under ``a/headline_is``."""
    of, _, metric = name.rpartition("/")
    return str(publication.summary.get(f"{of}/{metric.split('_')[0]}_is", ""))
