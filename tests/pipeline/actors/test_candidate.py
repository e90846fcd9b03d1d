"""The weights that an engine holds, with a coordinator and an engine of plain Python."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray

from ace_ray.errors import EngineDead, UserError
from ace_ray.models.adapters import check_weights, with_adapter
from ace_ray.models.cached import NoRoom
from ace_ray.models.fake import FakeEngine
from ace_ray.models.probe import CannotTell, Logprobs, Probe, ProbeFailed
from ace_ray.models.sources import ModelRef, resolve
from ace_ray.pipeline.actors import candidate as module
from ace_ray.pipeline.actors.candidate import Broken, Candidate
from ace_ray.pipeline.actors.coordinator import Coordinator
from ace_ray.pipeline.health.processes import ProcessInfo
from ace_ray.pipeline.monitoring.timing import Clock
from ace_ray.storage.object_store import Unreachable

PROCESS = ProcessInfo("engine", "a", "h", "n", 1, 0.0)


class Answer:
    def __init__(self, value: Any) -> None:
        self.value = value

    def __await__(self) -> Generator[Any, None, Any]:
        yield from ()
        return self.value


class Handle:
    """A `Coordinator` behind the interface of an actor's handle."""

    def __init__(self) -> None:
        self.coordinator = Coordinator([])

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.coordinator, name)
        return SimpleNamespace(remote=lambda *args, **kwargs: Answer(method(*args, **kwargs)))


class Inline:
    """An executor that does its work at once."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def submit(self, work: Callable[..., Any], *arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(work(*arguments))
        except Exception as error:  # noqa: BLE001 - as an executor does
            future.set_exception(error)
        return future


class Ended(BaseException):
    """The process has ended itself."""


class Engines:
    """The checkpoints in ``root``, and the engines of a lane over them."""

    def __init__(self, root: Path, make: Callable[..., Path], monkeypatch: Any) -> None:
        self.root, self.make = root, make
        self.handle = Handle()
        self.on_start: Callable[[], object] = lambda: None
        self.on_swap: Callable[[Path], object] = lambda folder: None
        self.said: dict[str, Logprobs | Exception] = {}
        """Name of the folder that an engine holds -> its answer to the probe."""
        self.started: list[str] = []
        self.swapped: list[str] = []
        self.released: list[str] = []
        monkeypatch.setattr(ray, "get", lambda answer: answer.value)
        monkeypatch.setattr(module, "ThreadPoolExecutor", Inline)
        monkeypatch.setattr(module, "start_engine", self.start)
        monkeypatch.setattr(module, "die", self.die)
        monkeypatch.setattr(module, "release", lambda model: self.released.append(model.name))

    def start(self, job: Any, folder: Path, phases: Any) -> Any:
        engines = self

        class Engine(FakeEngine):
            holds = folder.name

            async def swap(self, folder: Path) -> None:
                await super().swap(folder)
                engines.swapped.append(folder.name)
                engines.on_swap(folder)
                self.holds = folder.name

            async def logprobs(self) -> Logprobs:
                said = engines.said.get(self.holds)
                if isinstance(said, Exception):
                    raise said
                return said or await super().logprobs()

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

    def adapters(self, folders: Sequence[Path]) -> list[ModelRef]:
        base = resolve(str(self.save(0)), None)
        return [with_adapter(base, str(folder), None) for folder in folders]

    def candidate_of(self, refs: Sequence[ModelRef], *, examine: bool = True) -> Candidate:
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
        """Return the candidate of the first process, or of the next one."""
        begun = self.handle.coordinator.starting(PROCESS, self.job.first)
        assert begun is not None
        return Candidate(self.job, PROCESS, Clock(), begun.run)

    def save(self, step: int, *values: float) -> Path:
        return self.make(self.root / f"step_{step}", *(values or (float(step), 1.0)))

    @property
    def broken(self) -> dict[int, str]:
        runs = self.handle.coordinator.read().runs
        return {run: counts.broken for run, counts in runs.items() if counts.broken}

    @property
    def loads(self) -> dict[int, list[str]]:
        runs = self.handle.coordinator.read().runs
        loads = {run: [load["how"] for load in counts.loads] for run, counts in runs.items()}
        return {run: how for run, how in loads.items() if how}


@pytest.fixture
def engines(
    tmp_path: Path, make_checkpoint: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> Engines:
    return Engines(tmp_path, make_checkpoint, monkeypatch)


def hold(candidate: Candidate, *runs: int) -> None:
    async def play() -> None:
        for run in runs:
            await candidate.hold(run)

    asyncio.run(play())


def hold_all_but(candidate: Candidate, broken: int) -> None:
    """Hold three runs one after another, of which one is broken."""
    for run in range(3):
        if run == broken:
            with pytest.raises(Broken):
                hold(candidate, run)
        else:
            hold(candidate, run)


def test_one_engine_swaps_checkpoints_and_releases_old_ones(engines: Engines) -> None:
    hold(engines.candidate(1, 2, 3), 0, 1, 2)
    assert engines.loads == {0: ["fresh"], 1: ["swapped"], 2: ["swapped"]}
    assert engines.started == ["step_1"]
    assert engines.released == ["step_1", "step_2"]
    assert engines.broken == {}


class TestChangedCheckpoints:
    """A checkpoint differs from the one that was planned."""

    def test_before_an_engine_starts(self, engines: Engines) -> None:
        engines.candidate(1, 2, 3)
        engines.save(1, 7.0, 7.0)
        (engines.save(2) / "model.safetensors").write_bytes(b"torn")
        candidate = engines.successor()
        assert "has changed since it was planned" in engines.broken[0]
        assert "cannot be read as weights" in engines.broken[1]
        assert engines.started == ["step_1", "step_3"]
        assert engines.released == ["step_2"]
        hold(candidate, 2)

    def test_while_an_engine_starts(self, engines: Engines) -> None:
        engines.on_start = lambda: engines.save(1, 7.0, 7.0)
        candidate = engines.candidate(1, 2)
        with pytest.raises(Broken):
            hold(candidate, 0)
        assert "has changed since it was planned" in engines.broken[0]
        # The weights in the engine are unknown, so the next run gets a new engine.
        with pytest.raises(Ended, match="nobody knows the weights"):
            hold(candidate, 1)
        engines.on_start = lambda: None
        hold(engines.successor(), 1)
        assert engines.loads[1] == ["fresh"]

    def test_during_a_swap(self, engines: Engines) -> None:
        candidate = engines.candidate(1, 2, 3)
        hold(candidate, 0, 1)
        engines.on_swap = lambda folder: engines.save(3, 7.0, 7.0)
        engines.said = {"step_3": [[-5.0]] * 3}
        with pytest.raises(Broken):
            hold(candidate, 2)
        assert "has changed since it was planned" in engines.broken[2]
        assert engines.loads.keys() == {0, 1}
        with pytest.raises(Ended, match="nobody knows the weights"):
            hold(candidate, 0)

    def test_single_runs_are_not_examined(self, engines: Engines) -> None:
        engines.on_start = lambda: engines.save(1, 7.0, 7.0)
        hold(engines.candidate(1, examine=False), 0)
        assert engines.broken == {}


class TestProbe:
    def test_weights_whose_logprobs_are_not_finite_are_broken(self, engines: Engines) -> None:
        engines.said = {"step_1": [[float("nan")]] * 3}
        with pytest.raises(Broken):
            hold(engines.candidate(1), 0)
        assert "the engine's logprobs are not finite" in engines.broken[0]

    def test_engine_that_dies_during_the_probe_is_replaced(self, engines: Engines) -> None:
        engines.said = {"step_1": EngineDead("no memory")}
        with pytest.raises(Ended, match="the probe failed: no memory"):
            hold(engines.candidate(1), 0)
        assert engines.broken == {}

    @pytest.mark.parametrize(("error", "next_swap"), [(CannotTell, True), (ProbeFailed, False)])
    def test_failed_swap_restarts_the_engine(
        self,
        engines: Engines,
        monkeypatch: pytest.MonkeyPatch,
        error: type[Exception],
        next_swap: bool,
    ) -> None:
        """After a failed probe each checkpoint gets a new engine."""

        async def fails(self: Probe, folder: Path) -> Any:
            raise error("the probe says so")

        with monkeypatch.context() as patch:
            patch.setattr(Probe, "swapped", fails)
            candidate = engines.candidate(1, 2, 3)
            with pytest.raises(Ended, match="the probe says so"):
                hold(candidate, 0, 1)
        candidate = engines.successor()
        if next_swap:
            hold(candidate, 1, 2)
            assert engines.loads == {0: ["fresh"], 1: ["restarted"], 2: ["swapped"]}
        else:
            with pytest.raises(Ended, match="the probe says so"):
                hold(candidate, 1, 2)
            hold(engines.successor(), 2)
            assert engines.loads == {0: ["fresh"], 1: ["restarted"], 2: ["restarted"]}


def test_checkpoint_whose_predecessor_was_removed_gets_a_new_engine(engines: Engines) -> None:
    """A trainer keeps only the last few checkpoints."""
    candidate = engines.candidate(1, 2)
    hold(candidate, 0)
    shutil.rmtree(engines.root / "step_1")
    with pytest.raises(Ended, match="need an engine of their own"):
        hold(candidate, 1)
    assert engines.broken == {}


@pytest.mark.parametrize("error", [NoRoom("the disk is full"), Unreachable("the store is away")])
def test_full_disk_or_unreachable_store_breaks_no_checkpoint(
    engines: Engines, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    failing = [True]

    def fetch(model: Any) -> Path:
        if failing and model.name == "step_2":
            raise error
        return Path(model.location)

    monkeypatch.setattr(module, "materialized", fetch)
    with pytest.raises(Ended, match=str(error)):
        hold(engines.candidate(1, 2), 0, 1)
    assert engines.broken == {}
    candidate = engines.successor()
    failing.clear()
    hold(candidate, 1)
    assert engines.loads[1] == ["swapped"]


class TestAdapters:
    """Adapters are loaded beside the base, which stays in the engine."""

    @pytest.fixture
    def three(self, engines: Engines, make_adapter: Callable[..., Path]) -> list[Path]:
        base = engines.save(0)
        folders = [engines.root / f"lora_{seed}" for seed in (1, 2, 3)]
        # Different ranks: checkpoints of different shapes would need an engine of their own.
        return [make_adapter(f, base, seed, rank=2 + seed) for seed, f in enumerate(folders)]

    def test_one_after_another_on_one_base(self, engines: Engines, three: list[Path]) -> None:
        hold(engines.candidate_of(engines.adapters(three)), 0, 1, 2)
        assert engines.started == ["step_0"]
        assert engines.swapped == ["lora_1", "lora_2", "lora_3"]
        assert engines.loads == {0: ["fresh"], 1: ["swapped"], 2: ["swapped"]}

    @pytest.mark.parametrize("refused", [0, 1])
    def test_adapter_that_the_engine_refuses_breaks_its_run_only(
        self, engines: Engines, three: list[Path], refused: int
    ) -> None:
        def refuse(folder: Path) -> None:
            if folder == three[refused]:
                raise UserError("vLLM does not accept the adapter", where=str(folder))

        engines.on_swap = refuse
        hold_all_but(engines.candidate_of(engines.adapters(three)), refused)
        assert engines.started == ["step_0"]
        assert list(engines.broken) == [refused]
        assert "vLLM does not accept the adapter" in engines.broken[refused]

    @pytest.mark.parametrize("foreign", [0, 1])
    def test_adapter_without_effect_on_the_base_is_broken(
        self,
        engines: Engines,
        three: list[Path],
        foreign: int,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """vLLM drops modules that it does not find in the base without an error."""
        monkeypatch.setattr(
            module,
            "check_weights",
            lambda folder, base: check_weights(folder, base) and folder != three[foreign],
        )
        engines.said = dict.fromkeys(("step_0", three[foreign].name), [[-5.0]] * 3)
        hold_all_but(engines.candidate_of(engines.adapters(three)), foreign)
        assert list(engines.broken) == [foreign]
        assert "the adapter changes nothing" in engines.broken[foreign]
