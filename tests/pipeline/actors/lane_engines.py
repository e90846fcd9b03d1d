"""Engines of a lane, on a coordinator of plain Python."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ray

from ace_ray.models.adapters import with_adapter
from ace_ray.models.fake import FakeEngine
from ace_ray.models.probe import Logprobs
from ace_ray.models.sources import ModelRef, resolve
from ace_ray.pipeline.actors import candidate as module
from ace_ray.pipeline.actors.candidate import Candidate
from ace_ray.pipeline.actors.coordinator import Coordinator
from ace_ray.pipeline.health.processes import ProcessInfo
from ace_ray.pipeline.monitoring.timing import Clock

WHO = ProcessInfo("engine", "a", "h", "n", 1, 0.0)


class Answer:
    def __init__(self, value: Any) -> None:
        self.value = value

    def __await__(self) -> Generator[Any, None, Any]:
        yield from ()
        return self.value


class Handle:
    """A `Coordinator` as its actor's handle."""

    def __init__(self) -> None:
        self.coordinator = Coordinator([])

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.coordinator, name)
        return SimpleNamespace(remote=lambda *args, **kwargs: Answer(method(*args, **kwargs)))


class Ended(BaseException):
    """The process is gone."""


class Engines:
    """A lane over checkpoints in ``root``; its engines do things before they answer."""

    def __init__(self, root: Path, make: Callable[..., Path], monkeypatch: Any) -> None:
        self.root, self.make = root, make
        self.handle = Handle()
        self.on_start: Callable[[], None] = lambda: None
        self.on_swap: Callable[[Path], None] = lambda folder: None
        self.said: dict[str, Logprobs] = {}
        self.started: list[str] = []
        monkeypatch.setattr(ray, "get", lambda answer: answer.value)
        monkeypatch.setattr(module, "start_engine", self.start)
        monkeypatch.setattr(module, "die", self.die)

    def start(self, job: Any, folder: Path, phases: Any) -> Any:
        engines = self

        class Engine(FakeEngine):
            async def swap(self, folder: Path) -> None:
                await super().swap(folder)
                engines.on_swap(folder)

            async def logprobs(self) -> Logprobs:
                return engines.said.get(self._weights.name) or await super().logprobs()

        self.started.append(folder.name)
        engine = Engine({}, folder)
        self.on_start()
        return engine

    def die(self, coordinator: Any, process: ProcessInfo, why: str, held: Any) -> None:
        coordinator.dying.remote(process, why, held)
        raise Ended(why)

    def candidate(self, *steps: int, examine: bool = True) -> Candidate:
        for step in steps:
            self.save(step)
        refs = [resolve(str(self.root / f"step_{step}"), None) for step in steps]
        return self.candidate_of(refs, examine=examine)

    def adapters(self, *folders: Path, examine: bool = True) -> Candidate:
        """On step 0 as their base."""
        base = resolve(str(self.save(0)), None)
        refs = [with_adapter(base, str(folder), None) for folder in folders]
        return self.candidate_of(refs, examine=examine)

    def candidate_of(self, refs: Sequence[ModelRef], *, examine: bool) -> Candidate:
        runs = [SimpleNamespace(run_id=f"run-{ref.name}", model=ref) for ref in refs]
        self.job: Any = SimpleNamespace(
            runs=tuple(runs),
            coordinator=self.handle,
            config=SimpleNamespace(stall_s=60.0),
            first=0,
            examine=examine,
        )
        return self.successor()

    def successor(self) -> Candidate:
        """Of a process that ended, or the first one."""
        begun = self.handle.coordinator.starting(WHO, self.job.first)
        assert begun is not None
        return Candidate(self.job, WHO, Clock(), begun.run)

    def save(self, step: int, *values: float) -> Path:
        return self.make(self.root / f"step_{step}", *(values or (float(step), 1.0)))

    @property
    def broken(self) -> dict[int, str]:
        runs = self.handle.coordinator.read().runs
        return {run: counts.broken for run, counts in runs.items() if counts.broken}

    @property
    def loads(self) -> dict[int, list[str]]:
        runs = self.handle.coordinator.read().runs
        return {run: [load["how"] for load in counts.loads] for run, counts in runs.items()}
