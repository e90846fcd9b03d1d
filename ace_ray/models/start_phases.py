"""Track the phases of an engine start by the lines that vLLM prints."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

FETCH, PROCESS, WEIGHTS, CACHE, WARM_UP = "fetch", "process", "weights", "cache", "warm-up"
# Phases in order: fetch the weights to the node; start processes and import; load weights; measure
# memory and allocate the KV cache; warm up kernels and graphs.
PHASES = (FETCH, PROCESS, WEIGHTS, CACHE, WARM_UP)

# Log messages (INFO) of vLLM 0.32 at the beginning of a phase, on CPUs and GPUs, from
# ``v1/worker/*model_runner.py``, ``model_executor/model_loader`` and ``v1/core/kv_cache_utils.py``.
MARKS = {
    WEIGHTS: (b"Starting to load model", b"Initializing model took"),
    CACHE: (b"Loading weights took", b"Model loading took"),
    WARM_UP: (b"KV cache size: ",),
}

_LONGEST = max(len(mark) for marks in MARKS.values() for mark in marks)


class StartPhases:
    """Measures the phases of one start. ``report`` is called with the name of each new phase.

    A phase without a mark in the log counts as part of the previous phase. All workers of an engine
    print the same marks, so a mark of the current or an earlier phase is ignored."""

    def __init__(
        self, report: Callable[[str], object], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._report, self._clock = report, clock
        self._starts: list[tuple[str, float]] = []
        self._end_s: float | None = None
        self._remainder = b""
        self._lock = threading.Lock()

    def begin(self, phase: str) -> None:
        with self._lock:
            last = PHASES.index(self._starts[-1][0]) if self._starts else -1
            if self._end_s is not None or PHASES.index(phase) <= last:
                return
            self._starts.append((phase, self._clock()))
        self._report(phase)

    def read(self, chunk: bytes) -> None:
        """Begin the phases whose marks are in ``chunk``, the next part of the engine's output."""
        text = self._remainder + chunk
        self._remainder = text[-_LONGEST:]
        for phase, marks in MARKS.items():
            if any(mark in text for mark in marks):
                self.begin(phase)

    def end(self) -> None:
        """End the last phase: the engine is ready."""
        with self._lock:
            self._end_s = self._end_s or self._clock()

    def seconds(self) -> dict[str, float]:
        """Return the seconds of each finished phase, in order."""
        with self._lock:
            times = [at for _, at in self._starts[1:]]
            times += [] if self._end_s is None else [self._end_s]
            return {
                phase: round(until - at, 2)
                for (phase, at), until in zip(self._starts, times, strict=False)
            }
