"""Exceptions of a benchmark's own code: which one it is, and where it was raised.

One such row says little; the same exception in every row is a bug, and no other attempt helps.
"""

from __future__ import annotations

import sys
import traceback
from pathlib import Path
from typing import Any

import ace_ray

MOST_CHARS = 4_000
_MODELS = str(Path(ace_ray.__file__).parent / "models")


def report_bug(coordinator: Any, benchmark: str) -> None:
    """Tell the coordinator of the exception that is being handled, unless it may pass: one that a
    model, the machine or the cluster raised."""
    from ray.exceptions import RayError, RayTaskError

    error = sys.exc_info()[1]
    if error is None or not (frames := traceback.extract_tb(error.__traceback__)):
        return
    passes = isinstance(error, OSError | MemoryError)
    passes |= isinstance(error, RayError) and not isinstance(error, RayTaskError)
    if passes or any(frame.filename.startswith(_MODELS) for frame in frames):
        return
    place = f"{type(error).__name__} in {frames[-1].filename}:{frames[-1].lineno}"
    # Escaped: a lone surrogate in a message would end the process in Ray's transport.
    text = traceback.format_exc().encode("ascii", "backslashreplace").decode()[-MOST_CHARS:]
    coordinator.bug.remote(benchmark, place, text)
