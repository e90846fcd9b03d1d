"""When watching ends, and that it does not miss the last checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ace_ray.config.schema import StoreConfig
from ace_ray.errors import UserError
from ace_ray.sweep import checkpoints as module
from ace_ray.sweep.checkpoints import Checkpoint, Settling, Watching, find_checkpoints
from ace_ray.sweep.config import SweepOptions

Make = Callable[..., "Watched"]


class Watched:
    """A folder, and a `Watching` of it on the test's clock: 60 s to settle, a look every 30 s."""

    def __init__(self, root: Path, make_checkpoint: Callable[..., Path], **options: Any) -> None:
        self.root, self._make = root, make_checkpoint
        self.now = 1000.0
        asked = {"checkpoints": str(root), "watch": True, "settle_s": 60}
        self.watching = Watching(
            SweepOptions.model_validate({**asked, **options}), StoreConfig(), lambda: self.now
        )

    def save(self, step: int, *values: float, whole: bool = True) -> None:
        folder = self._make(self.root / f"step_{step}", *(values or (1.0,)))
        if not whole:
            (folder / "tokenizer.json").unlink()

    def look(self) -> list[int]:
        """The steps that a sweep would take now, and it takes them."""
        found = self.watching.look()
        for checkpoint in found:
            self.watching.take(checkpoint)
        return [checkpoint.step for checkpoint in found]

    def until_the_end(self, looks: int = 10) -> list[int]:
        """The steps taken until there are no more looks."""
        taken: list[int] = []
        for _ in range(looks):
            taken += self.look()
            if not (wait := self.watching.wait_s):
                return taken
            self.now += wait
        raise AssertionError("it watches on")


@pytest.fixture
def make(tmp_path: Path, make_checkpoint: Callable[..., Path]) -> Make:
    return lambda **options: Watched(tmp_path / "run", make_checkpoint, **options)


def test_each_is_taken_once(make: Make) -> None:
    watched = make()
    assert watched.look() == []
    watched.save(1)
    assert watched.look() == []
    watched.now += 60
    assert watched.look() == [1]
    assert watched.look() == []
    watched.save(2)
    watched.look()
    watched.now += 60
    assert watched.look() == [2]


def test_and_again_when_it_has_changed(make: Make) -> None:
    watched = make(settle_s=0)
    watched.save(1, 1.0)
    assert watched.look() == [1]
    watched.save(1, 1.0, 2.0)
    assert watched.look() == [1]


def test_what_was_looked_at_and_not_taken_comes_again(make: Make) -> None:
    """The sweep could not plan it: the store was away."""
    watched = make(settle_s=0)
    watched.save(1)
    assert [c.step for c in watched.watching.look()] == [1]
    assert [c.step for c in watched.watching.look()] == [1]


def test_a_stop_file_that_comes_with_the_last_checkpoint(make: Make, tmp_path: Path) -> None:
    watched = make(stop_file=str(tmp_path / "stop"))
    watched.save(1)
    watched.look()
    watched.now += 60
    assert watched.look() == [1]
    watched.save(2)
    (tmp_path / "stop").touch()
    assert watched.until_the_end() == [2]
    assert watched.watching.unfinished() == watched.watching.torn() == []


def test_a_training_that_goes_on_holds_nobody(make: Make, tmp_path: Path) -> None:
    watched = make(stop_file=str(tmp_path / "stop"))
    watched.look()
    (tmp_path / "stop").touch()
    taken = []
    for step in range(20):
        watched.save(step)
        taken += watched.look()
        if not (wait := watched.watching.wait_s):
            break
        watched.now += wait
    assert step <= 4
    assert taken == [0]


def test_one_that_never_settles_is_left_out(make: Make, tmp_path: Path) -> None:
    watched = make(stop_file=str(tmp_path / "stop"))
    (tmp_path / "stop").touch()
    taken = []
    for step in range(20):
        watched.save(1, float(step))
        taken += watched.look()
        if not (wait := watched.watching.wait_s):
            break
        watched.now += wait
    assert taken == []
    assert [c.step for c in watched.watching.unfinished()] == [1]
    assert watched.watching.torn() == []


def test_one_that_lacks_something_and_stays_so_is_torn(make: Make, tmp_path: Path) -> None:
    watched = make(stop_file=str(tmp_path / "stop"))
    watched.save(1, whole=False)
    watched.save(2)
    (tmp_path / "stop").touch()
    assert watched.until_the_end() == [2]
    assert [c.step for c in watched.watching.torn()] == [1]
    assert watched.watching.unfinished() == []


def test_a_folder_that_cannot_be_looked_at(make: Make, tmp_path: Path) -> None:
    watched = make(stop_file=str(tmp_path / "stop"))
    (watched.root / "final").mkdir(parents=True)
    (watched.root / "final" / "config.json").touch()
    for _ in range(2):
        with pytest.raises(UserError, match="contains no step number"):
            watched.look()
        assert watched.watching.wait_s == 30
    (tmp_path / "stop").touch()
    for _ in range(2):
        with pytest.raises(UserError, match="contains no step number"):
            watched.look()
        assert 0 < watched.watching.wait_s <= 30
        watched.now += watched.watching.wait_s
    with pytest.raises(UserError, match="contains no step number"):
        watched.look()
    assert watched.watching.wait_s == 0
    assert watched.watching.failed


def test_the_last_checkpoint_is_not_lost_to_an_outage_at_the_end(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = make(stop_file=str(tmp_path / "stop"))
    watched.save(1)
    watched.look()
    (tmp_path / "stop").touch()
    find = find_checkpoints

    def away(*arguments: Any) -> Any:
        raise UserError("the store is away")

    monkeypatch.setattr(module, "find_checkpoints", away)
    with pytest.raises(UserError):
        watched.look()
    assert watched.watching.wait_s == 30
    watched.now += 50
    monkeypatch.setattr(module, "find_checkpoints", find)
    assert watched.until_the_end() == [1]
    assert not watched.watching.failed


def test_one_that_could_not_be_planned_at_the_end(make: Make, tmp_path: Path) -> None:
    watched = make(stop_file=str(tmp_path / "stop"))
    watched.save(1)
    watched.look()
    watched.now += 60
    (tmp_path / "stop").touch()
    assert [c.step for c in watched.watching.look()] == [1]
    assert watched.watching.wait_s == 30
    assert [c.step for c in watched.watching.left()] == [1]
    assert watched.look() == [1]
    assert watched.watching.left() == []
    assert watched.watching.wait_s == 0


def seen(state: str = "1", *, lacks: str = "", step: int = 1) -> Checkpoint:
    return Checkpoint(f"step_{step}", step, f"/run/step_{step}", state, lacks)


TORN = seen(lacks="a shard is missing")


@pytest.mark.parametrize(
    ("settle_s", "looks"),
    [
        pytest.param(
            60,
            [(0, [seen()], []), (59.9, [seen()], []), (60, [seen()], [1]), (61, [seen()], [1])],
            id="as it is for as long",
        ),
        pytest.param(
            60,
            [
                (0, [seen("1")], []),
                (50, [seen("2")], []),
                (109, [seen("2")], []),
                (110, [seen("2")], [1]),
                (111, [seen("3")], []),
                (171, [seen("3")], [1]),
            ],
            id="a change begins anew",
        ),
        pytest.param(
            60,
            [(0, [seen("1")], []), (30, [seen("2")], []), (60, [seen("1")], []),
             (120, [seen("1")], [1])],
            id="a change and back is a change",
        ),
        pytest.param(
            60,
            [(0, [TORN], []), (1000, [TORN], []), (1001, [seen("2")], []),
             (1061, [seen("2")], [1])],
            id="what lacks something never settles",
        ),
        pytest.param(
            60,
            [
                (0, [seen()], []),
                (30, [seen(), seen(step=2)], []),
                (60, [seen(), seen(step=2)], [1]),
                (90, [seen(), seen("2", step=2)], [1]),
                (150, [seen(), seen("2", step=2)], [1, 2]),
            ],
            id="each for itself",
        ),
        pytest.param(0, [(0, [seen()], [1])], id="at the first look"),
        pytest.param(0, [(0, [TORN], [])], id="not torn at the first look"),
    ],
)  # fmt: skip
def test_settling(settle_s: float, looks: list[tuple[float, list[Checkpoint], list[int]]]) -> None:
    now = 1000.0
    settling = Settling(settle_s, lambda: now)
    for seconds, found, settled in looks:
        now = 1000.0 + seconds
        assert [checkpoint.step for checkpoint in settling.look(found)] == settled
