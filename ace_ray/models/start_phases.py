"""How far an engine's start has come, by what vLLM prints as each phase begins."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

FETCH, PROCESS, WEIGHTS, CACHE, WARM_UP = "fetch", "process", "weights", "cache", "warm-up"
PHASES = (FETCH, PROCESS, WEIGHTS, CACHE, WARM_UP)
"""In their order: the weights come to the node; imports and processes of the engine; weights are
loaded; memory is measured and the KV cache made; the rest, kernels and graphs among it."""

MARKS = {
    WEIGHTS: (b"Starting to load model", b"Initializing model took"),
    CACHE: (b"Loading weights took", b"Model loading took"),
    WARM_UP: (b"KV cache size: ",),
}
"""What vLLM 0.32 logs at level INFO when the phase begins (``v1/worker/*model_runner.py``,
``model_executor/model_loader``, ``v1/core/kv_cache_utils.py``), on CPUs and GPUs."""

_LONGEST = max(len(mark) for marks in MARKS.values() for mark in marks)


class StartPhases:
    """Seconds of each phase of one start. ``told`` hears the name of a phase as it begins.

    A phase whose mark is not seen, since vLLM logs less or another vLLM says it otherwise, is
    part of the one before. A phase begins once, and none before one that has begun: workers of one
    engine print the same marks.
    """

    def __init__(
        self, told: Callable[[str], object], now: Callable[[], float] = time.monotonic
    ) -> None:
        self._told, self._now = told, now
        self._begun: list[tuple[str, float]] = []
        self._ended: float | None = None
        self._rest = b""
        self._lock = threading.Lock()

    def begin(self, phase: str) -> None:
        with self._lock:
            last = PHASES.index(self._begun[-1][0]) if self._begun else -1
            if self._ended is not None or PHASES.index(phase) <= last:
                return
            self._begun.append((phase, self._now()))
        self._told(phase)

    def read(self, chunk: bytes) -> None:
        """Look for marks in what was printed next."""
        text = self._rest + chunk
        self._rest = text[-_LONGEST:]
        for phase, marks in MARKS.items():
            if any(mark in text for mark in marks):
                self.begin(phase)

    def end(self) -> None:
        """The engine is there."""
        with self._lock:
            self._ended = self._ended or self._now()

    def seconds(self) -> dict[str, float]:
        """Of the phases that have ended, in their order."""
        with self._lock:
            times = [at for _, at in self._begun[1:]]
            times += [] if self._ended is None else [self._ended]
            return {
                phase: round(until - at, 2)
                for (phase, at), until in zip(self._begun, times, strict=False)
            }
