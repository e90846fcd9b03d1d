"""What a tracker is given, and what a publisher to one is: plain data in, nothing else known."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Generic, TypeVar

from ace_ray.config import Section

Scalar = str | int | float | bool
AnySection = TypeVar("AnySection", bound=Section)


@dataclass(frozen=True)
class Point:
    """The numbers of one model. ``step`` is its training step, None of a model without one;
    ``time`` is when its run began, in seconds since 1970."""

    step: int | None
    metrics: Mapping[str, float]
    """``<benchmark>/<rule set>/headline``: percent, as all shares are (docs/trackers.md)."""
    time: float = 0.0


@dataclass(frozen=True)
class Publication:
    """What is one run of a tracker: the curve of a training run, or a single model."""

    key: str
    """The same whenever it is published again: letters, digits, ``.``, ``_`` and ``-``, at most
    120."""
    name: str
    group: str
    """The sweep that it is part of; "" for none."""
    config: Mapping[str, Scalar]
    """What all models of it were evaluated with, as dotted keys; no secrets, no local paths."""
    summary: Mapping[str, Scalar]
    """The last point's numbers, and what they are in words."""
    points: Sequence[Point]
    """The whole curve, by step."""
    rows: Sequence[str] = field(default=())
    """Where the rows lie, as patterns of ``s3://`` URIs; none of what lies on one machine."""


class Publisher(ABC, Generic[AnySection]):
    """Publishes to one tracker. A subclass says what the tracker is given, and ``Options`` what a
    user may ask for; it imports the tracker inside its methods.

    An entry point of the group ``ace_ray.publishers`` leads to it (docs/trackers.md).
    """

    needs: ClassVar[str] = ""
    """The module that has to be installed; "" for none."""
    install: ClassVar[str] = ""
    """What ``pip install`` has to be given for it."""
    Options: type[AnySection]

    def __init__(self, options: AnySection) -> None:
        """Raises `UserError`: the options make no sense."""
        self.options = options

    @abstractmethod
    def place(self) -> str:
        """Where `publish` sends to, by the options and the environment. What was sent to one place
        is sent to another one all the same."""

    @abstractmethod
    def publish(self, publication: Publication, new: Sequence[Point]) -> str:
        """Send ``new``, which are points of ``publication`` with those of their numbers that were
        not sent yet, or have changed; returns where a reader finds them.

        It raises whatever it likes: that is one warning, and the same points come again the next
        time. They also come again when the process ended before it was noted that they were
        sent.
        """
