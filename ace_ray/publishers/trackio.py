"""Trackio: local by default, a Space of the Hugging Face hub or a server when named."""

from __future__ import annotations

import os
from collections.abc import Sequence

from pydantic import Field

from ace_ray.config import Section
from ace_ray.publishers.base import Point, Publication, Publisher, Scalar


class TrackioOptions(Section):
    project: str = Field("ace_ray", min_length=1, description="the project's name")
    space_id: str | None = Field(
        None, min_length=1, description="a Space, `user/name`; default: TRACKIO_SPACE_ID"
    )


class Trackio(Publisher[TrackioOptions]):
    """A run of a project with the publication's key as its name, which resumes by it."""

    needs = "trackio"
    install = "ace-ray[trackio]"
    Options = TrackioOptions

    def place(self) -> str:
        return f"{self._elsewhere or os.environ.get('TRACKIO_DIR', '')} {self.options.project}"

    @property
    def _elsewhere(self) -> str:
        """Not on this machine; "" where it is."""
        names = ("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL")
        named = self.options.space_id or next(filter(None, map(os.environ.get, names)), "")
        return named.partition("?")[0]  # a token may follow, which changes and is secret

    def publish(self, publication: Publication, new: Sequence[Point]) -> str:
        import trackio

        held = {} if self._elsewhere else _held(self.options.project, publication.key)
        run = trackio.init(
            self.options.project,
            name=publication.key,
            group=publication.group or None,
            space_id=self.options.space_id,
            config={"name": publication.name, **_words(publication), **publication.config},
            resume="allow",
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )
        for point in new:
            step = point.step or 0
            metrics = {
                name: value
                for name, value in point.metrics.items()
                if held.get((step, name)) != value
            }
            if metrics:
                run.log(metrics, step=step)
        run.finish()
        return f"{self._elsewhere or 'trackio'}: project {self.options.project}"


def _words(publication: Publication) -> dict[str, Scalar]:
    """What the numbers are. Trackio has no summary of a run."""
    return {name: said for name, said in publication.summary.items() if isinstance(said, str)}


def _held(project: str, name: str) -> dict[tuple[int, str], float]:
    """(step, metric) -> the last value that this machine's Trackio has of a run."""
    from trackio.sqlite_storage import SQLiteStorage

    return {
        (int(entry["step"]), metric): value
        for entry in SQLiteStorage.get_logs(project, name)
        for metric, value in entry.items()
        if isinstance(value, int | float)
    }
