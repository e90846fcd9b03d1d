"""Whose weights an engine holds, on a coordinator and an engine of plain Python."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ace_ray.errors import EngineDead, UserError
from ace_ray.models.adapters import check_weights
from ace_ray.models.cached import NoRoom
from ace_ray.models.probe import CannotTell, Logprobs, Probe, ProbeFailed
from ace_ray.pipeline.actors import candidate as module
from ace_ray.pipeline.actors.candidate import Broken, Candidate
from ace_ray.storage.object_store import Unreachable
from tests.pipeline.actors.lane_engines import Ended, Engines

NAN = float("nan")


def hold(candidate: Candidate, *runs: int) -> None:
    async def play() -> None:
        for run in runs:
            await candidate.hold(run)

    asyncio.run(play())


def hold_all_but(candidate: Candidate, broken: int) -> None:
    """Three runs one after another, of which one is broken."""
    for run in range(3):
        if run == broken:
            with pytest.raises(Broken):
                hold(candidate, run)
        else:
            hold(candidate, run)


def test_one_after_another(engines: Engines) -> None:
    hold(engines.candidate(1, 2, 3), 0, 1, 2)
    assert engines.loads == {0: ["fresh"], 1: ["swapped"], 2: ["swapped"]}
    assert engines.started == ["step_1"]
    assert engines.broken == {}


class TestChanged:
    """The sweep found one checkpoint, and hours later another one lies there."""

    def test_before_an_engine_starts(self, engines: Engines) -> None:
        engines.candidate(1, 2)
        engines.save(1, 7.0, 7.0)
        candidate = engines.successor()
        assert "has changed since it was planned" in engines.broken[0]
        assert engines.started == ["step_1", "step_2"]
        hold(candidate, 1)

    def test_while_an_engine_starts(self, engines: Engines) -> None:
        engines.on_start = lambda: void(engines.save(1, 7.0, 7.0))
        candidate = engines.candidate(1, 2)
        with pytest.raises(Broken):
            hold(candidate, 0)
        assert "has changed since it was planned" in engines.broken[0]
        # Nobody knows what it holds: the next one gets an engine of its own.
        with pytest.raises(Ended, match="nobody knows the weights"):
            hold(candidate, 1)
        engines.on_start = lambda: None
        hold(engines.successor(), 1)
        assert engines.loads[1] == ["fresh"]

    def test_before_a_swap(self, engines: Engines) -> None:
        candidate = engines.candidate(1, 2, 3)
        candidate._ahead = None
        engines.save(2, 7.0, 7.0)
        with pytest.raises(Broken):
            hold(candidate, 0, 1)
        assert list(engines.broken) == [1]
        hold(candidate, 2)
        assert engines.loads[2] == ["swapped"]

    def test_while_it_is_swapped_in(self, engines: Engines) -> None:
        candidate = engines.candidate(1, 2, 3)
        engines.on_swap = lambda folder: void(engines.save(2, 7.0, 7.0))
        # The references were those of the planned ones, or the probe would tell.
        engines.said = {"step_2": [[-5.0]] * 3}
        candidate._probe._proven = True
        with pytest.raises(Broken):
            hold(candidate, 0, 1)
        assert "has changed since it was planned" in engines.broken[1]
        assert 1 not in {run for run, loads in engines.loads.items() if loads}
        # It does not hold those of the run before any more.
        for run in (0, 2):
            with pytest.raises(Ended, match="nobody knows the weights"):
                hold(candidate, run)

    def test_only_lanes_are_examined(self, engines: Engines) -> None:
        engines.on_start = lambda: void(engines.save(1, 7.0, 7.0))
        hold(engines.candidate(1, examine=False), 0)
        assert engines.broken == {}


class TestNumbers:
    def test_an_engine_that_says_no_numbers_has_broken_weights(self, engines: Engines) -> None:
        """What is not safetensors cannot be examined on the disk."""
        engines.said = {"step_1": [[NAN]] * 3}
        with pytest.raises(Broken):
            hold(engines.candidate(1), 0)
        assert "the engine's logprobs are not finite" in engines.broken[0]

    def test_one_that_dies_of_the_probe_is_started_again(
        self, engines: Engines, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def dies(self: Any) -> Logprobs:
            raise EngineDead("no memory")

        candidate = engines.candidate(1)
        monkeypatch.setattr(candidate._loaded, "logprobs", dies.__get__(candidate._loaded))
        with pytest.raises(Ended, match="the probe failed: no memory"):
            hold(candidate, 0)
        assert engines.broken == {}


class TestFirstSwap:
    """A probe that cannot tell says nothing of the lane; one that fails does."""

    def test_neighbours_too_close_to_tell_restart_this_engine_only(
        self, engines: Engines, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def cannot(self: Probe, folder: Path) -> Any:
            raise CannotTell("it went 150 % of that way")

        with monkeypatch.context() as patch:
            patch.setattr(Probe, "swapped", cannot)
            candidate = engines.candidate(1, 2, 3)
            with pytest.raises(Ended, match="150 %"):
                hold(candidate, 0, 1)
        assert engines.handle.coordinator.unswappable() == ""
        hold(engines.successor(), 1, 2)
        assert engines.loads == {0: ["fresh"], 1: ["restarted"], 2: ["swapped"]}

    def test_a_probe_that_fails_turns_swapping_off(
        self, engines: Engines, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def fails(self: Probe, folder: Path) -> Any:
            raise ProbeFailed("it says the same as before")

        with monkeypatch.context() as patch:
            patch.setattr(Probe, "swapped", fails)
            candidate = engines.candidate(1, 2, 3)
            with pytest.raises(Ended, match="says the same"):
                hold(candidate, 0, 1)
        candidate = engines.successor()
        with pytest.raises(Ended, match="says the same"):
            hold(candidate, 1, 2)
        assert engines.loads[1] == ["restarted"]


class TestFolders:
    def test_one_that_its_trainer_removed(self, engines: Engines) -> None:
        """A trainer keeps the last few; the engine has read it long ago."""
        candidate = engines.candidate(1, 2)
        hold(candidate, 0)
        candidate._ahead = None
        shutil.rmtree(engines.root / "step_1")
        with pytest.raises(Ended, match="need an engine of their own"):
            hold(candidate, 1)
        assert engines.broken == {}

    def test_a_full_disk_condemns_nobody(
        self, engines: Engines, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        candidate = engines.candidate(1, 2)
        full = [True]

        def fetch(model: Any) -> Path:
            if full:
                raise NoRoom("14.0 GiB do not fit on this disk")
            return Path(model.location)

        monkeypatch.setattr(module, "materialized", fetch)
        candidate._prepare(1)
        with pytest.raises(Ended, match="do not fit on this disk"):
            hold(candidate, 0, 1)
        assert engines.broken == {}
        candidate._prepare(1)
        candidate._threads.shutdown()
        full.clear()
        hold(candidate, 1)
        assert engines.loads[1] == ["swapped"]

    def test_what_was_swapped_out_may_go(
        self, engines: Engines, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        released: list[str] = []
        monkeypatch.setattr(module, "release", lambda model: released.append(model.name))
        candidate = engines.candidate(1, 2, 3)
        hold(candidate, 0, 1, 2)
        assert released == ["step_1", "step_2"]

    def test_what_is_broken_may_go(self, engines: Engines, monkeypatch: pytest.MonkeyPatch) -> None:
        released: list[str] = []
        monkeypatch.setattr(module, "release", lambda model: released.append(model.name))
        engines.candidate(1, 2)
        (engines.save(1) / "model.safetensors").write_bytes(b"torn")
        candidate = engines.successor()
        assert "cannot be read as weights" in engines.broken[0]
        assert released == ["step_1"]
        hold(candidate, 1)

    def test_a_store_that_is_away_condemns_nobody(
        self, engines: Engines, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        candidate = engines.candidate(1, 2)
        hold(candidate, 0)

        def away(model: Any) -> Path:
            raise Unreachable("S3 cannot be reached")

        with monkeypatch.context() as patch:
            patch.setattr(module, "materialized", away)
            candidate._ahead = None
            with pytest.raises(Ended, match="S3 cannot be reached"):
                hold(candidate, 1)
        assert engines.broken == {}


def void(value: Any) -> None:
    """What comes of a call that is made for its effect."""


class TestAdapters:
    """They are loaded beside the base, which stays in the engine."""

    @pytest.fixture
    def three(self, engines: Engines, make_adapter: Callable[..., Path]) -> list[Path]:
        base = engines.save(0)
        folders = [engines.root / f"lora_{seed}" for seed in (1, 2, 3)]
        # Of other ranks: whole checkpoints of other shapes would need an engine of their own.
        return [make_adapter(f, base, seed, rank=2 + seed) for seed, f in enumerate(folders)]

    def test_one_after_another_on_one_base(self, engines: Engines, three: list[Path]) -> None:
        taken: list[str] = []
        engines.on_swap = lambda folder: taken.append(folder.name)
        hold(engines.adapters(*three), 0, 1, 2)
        assert engines.started == ["step_0"]
        assert taken == ["lora_1", "lora_2", "lora_3"]
        assert engines.loads == {0: ["fresh"], 1: ["swapped"], 2: ["swapped"]}

    def test_a_single_run_takes_its_own(self, engines: Engines, three: list[Path]) -> None:
        taken: list[str] = []
        engines.on_swap = lambda folder: taken.append(folder.name)
        hold(engines.adapters(three[0], examine=False), 0)
        assert (engines.started, taken) == (["step_0"], ["lora_1"])

    @pytest.mark.parametrize("refused", [0, 1])
    def test_one_that_the_engine_refuses_leaves_the_others(
        self, engines: Engines, three: list[Path], refused: int
    ) -> None:
        def refuse(folder: Path) -> None:
            if folder == three[refused]:
                raise UserError("vLLM does not accept the adapter", where=str(folder))

        engines.on_swap = refuse
        candidate = engines.adapters(*three)
        hold_all_but(candidate, refused)
        assert engines.started == ["step_0"]
        assert list(engines.broken) == [refused]
        assert "vLLM does not accept the adapter" in engines.broken[refused]

    def test_one_that_is_damaged_or_has_changed(
        self, engines: Engines, three: list[Path], make_adapter: Callable[..., Path]
    ) -> None:
        candidate = engines.adapters(*three)
        candidate._ahead = None
        weights = three[1] / "adapter_model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-1])
        shutil.rmtree(three[2])
        make_adapter(three[2], engines.root / "step_0", 9)
        hold(candidate, 0)
        for run in (1, 2):
            with pytest.raises(Broken):
                hold(candidate, run)
        assert "ends beyond the end of the file" in engines.broken[1]
        assert "has changed since it was planned" in engines.broken[2]

    def test_one_that_the_engine_does_not_heed(self, engines: Engines, three: list[Path]) -> None:
        engines.said = dict.fromkeys(("lora_1", "lora_2"), [[-5.0]] * 3)
        with pytest.raises(Ended, match="the weights changed, but the engine's logprobs did not"):
            hold(engines.adapters(*three), 0, 1)

    @pytest.mark.parametrize("foreign", [0, 1])
    def test_one_that_leaves_the_base_as_it_is(
        self,
        engines: Engines,
        three: list[Path],
        foreign: int,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """vLLM leaves out what it does not find in the base, and says nothing."""
        monkeypatch.setattr(
            module,
            "check_weights",
            lambda folder, base: check_weights(folder, base) and folder != three[foreign],
        )
        engines.said = dict.fromkeys(("step_0", three[foreign].name), [[-5.0]] * 3)
        candidate = engines.adapters(*three)
        hold_all_but(candidate, foreign)
        assert list(engines.broken) == [foreign]
        assert "the adapter changes nothing" in engines.broken[foreign]
