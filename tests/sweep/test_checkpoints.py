"""Find checkpoints on a disk and on S3, see which are complete, and watch for new ones."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from ace_ray.config.schema import StoreConfig
from ace_ray.errors import UserError
from ace_ray.models.checkpoints import ADAPTER_CONFIG, INDEX
from ace_ray.storage.object_store import open_store
from ace_ray.sweep import checkpoints as module
from ace_ray.sweep.checkpoints import (
    Checkpoint,
    CheckpointWatch,
    find_checkpoints,
    select_checkpoints,
)
from ace_ray.sweep.config import SweepOptions

WHOLE = {"config.json": b"{}", "tokenizer.json": b"{}", "model.safetensors": b"w"}
Put = Callable[..., None]


def options(root: str, **changes: Any) -> SweepOptions:
    return SweepOptions.model_validate({"checkpoints": root, **changes})


def find(root: str, **changes: Any) -> list[Checkpoint]:
    return find_checkpoints(options(root, **changes), StoreConfig())


def steps(root: str, **changes: Any) -> list[int]:
    return [checkpoint.step for checkpoint in find(root, **changes)]


@pytest.fixture
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return an empty folder, or an empty S3 prefix."""
    if getattr(request, "param", "folder") == "folder":
        return str(tmp_path / "run")
    s3: Any = request.getfixturevalue("s3")
    return f"s3://{s3.bucket}/{tmp_path.name}"


@pytest.fixture
def put(root: str) -> Put:
    store = open_store(root)

    def files(name: str, contents: Mapping[str, bytes] = WHOLE, **more: bytes) -> None:
        for path, content in {**contents, **more}.items():
            store.put(f"{name}/{path}", content)

    return files


@pytest.mark.parametrize("root", ["folder", "s3"], indirect=True)
def test_checkpoints_are_sorted_by_the_steps_in_their_names(root: str, put: Put) -> None:
    for name in ("step_1000", "step_200", "llama3-8b-step_100-v2.5", "step_0010"):
        put(name)
    open_store(f"{root}-other").put("step_2/config.json", b"{}")
    checkpoints = find(root)
    assert [(c.step, c.name, c.lacks) for c in checkpoints] == [
        (10, "step_0010", ""),
        (100, "llama3-8b-step_100-v2.5", ""),
        (200, "step_200", ""),
        (1000, "step_1000", ""),
    ]
    assert [c.source for c in checkpoints] == [f"{root}/{c.name}" for c in checkpoints]
    assert steps(root, pattern="step_????") == [10, 1000]
    assert steps(root, pattern="*step_[12]*") == [100, 200, 1000]
    put("global_step_3/actor/huggingface")
    put("global_step_20/actor/huggingface")
    put("global_step_20/critic/huggingface")
    (first, last) = find(root, pattern="*/actor/huggingface")
    assert (first.step, last.step, last.lacks) == (3, 20, "")
    assert last.source == f"{root}/global_step_20/actor/huggingface"


@pytest.mark.parametrize(
    "name",
    [
        "step_500-w4a16", "500-fp8", "sft-500-7b-bf16", "500-int4-4bit-8-bit", "500-q8_0",
        "checkpoint-500-seed-3", "checkpoint500-w4a16", "epoch=3-step=500-loss=0.25",
        "step500-tokens2B", "qwen2.5-500", "ep0-ba500", "run-2/global_step_500/actor/huggingface",
    ],
)  # fmt: skip
def test_a_number_that_is_a_part_of_a_word_is_no_step(name: str) -> None:
    assert module.step_of(name) == 500


def test_a_link_to_a_checkpoint_is_a_checkpoint(tmp_path: Path, root: str, put: Put) -> None:
    """A link without a step and a second name of a checkpoint are left out."""
    put("step_1")
    open_store(str(tmp_path / "disk")).put("a/config.json", b"{}")
    for name, target in {
        "step_500": "../disk/a",
        "step_600": "/gone",
        "latest": "step_1",
        "best": "../disk/a",
        "last_1": "step_1",
        "step_1/loop_2": "..",
    }.items():
        Path(root, name).symlink_to(target)
    assert [(c.step, c.lacks) for c in find(root)] == [
        (1, ""),
        (500, "the tokenizer is missing"),
        (600, "step_600 is a link to /gone, which does not exist"),
    ]


@pytest.mark.parametrize("root", ["folder", "s3"], indirect=True)
def test_a_checkpoint_in_a_trainers_format_says_how_to_convert_it(root: str, put: Put) -> None:
    shard = {"model_world_size_2_rank_0.pt": b"w"}
    put("global_step_5", {"data.pt": b"d"})
    put("global_step_5/actor", shard)
    put("global_step_5/actor/huggingface", {"config.json": b"{}", "tokenizer.json": b"{}"})
    merge = f"verl.model_merger merge --backend fsdp --local_dir {root}/global_step_5/actor "
    for pattern, problem in {
        "*": "config.json is missing",
        "*/actor/huggingface": "the folder contains no weights",
    }.items():
        (checkpoint,) = find(root, pattern=pattern)
        assert checkpoint.lacks.startswith(problem)
        assert merge in checkpoint.lacks
    put("global_step_5/actor/huggingface")
    assert "(in a sweep: pattern '*/actor/huggingface')" in find(root)[0].lacks
    with pytest.raises(UserError, match="contains no checkpoint folder that matches 'x/'; name"):
        find(root, pattern="x/")


@pytest.mark.parametrize(
    ("names", "changes", "words"),
    [
        ([], {"pattern": "step_*"}, "contains no checkpoint folder that matches 'step_*'"),
        (["step_10", "step_010"], {}, "both have step 10"),
        (["step_1", "best-model"], {}, "the name 'best-model' contains no step number"),
        (["step_1", "step_²"], {}, "the name 'step_²' contains no step number"),
        (["step_100", "step_150"], {"from": 200}, "the steps are 100 to 150"),
    ],
)
def test_folders_that_cannot_be_ordered_are_refused(root, put, names, changes, words) -> None:
    for name in names:
        put(name)
    with pytest.raises(UserError) as error:
        find(root, **changes)
    assert error.value.where == root
    assert words in str(error.value)
    # A watch waits for more checkpoints.
    if changes:
        assert find(root, watch=True, **changes) == []


NO_WEIGHTS = {"model.safetensors": None}
NO_MODEL = dict.fromkeys(WHOLE)


@pytest.mark.parametrize(
    ("changes", "lacks"),
    [
        ({"config.json": None}, "config.json is missing"),
        ({"tokenizer.json": None}, "the tokenizer is missing"),
        ({"tokenizer.json": None, "vocab.json": b"{}"}, ""),
        ({**NO_WEIGHTS, "optimizer.pt": b"w"}, "the folder contains no weights (*.safetensors)"),
        ({**NO_WEIGHTS, "pytorch_model.bin": b"w"}, ""),
        ({**NO_WEIGHTS, "m-1-of-2.safetensors": b"w"}, "m-2-of-2.safetensors is missing"),
        ({INDEX: b'{"weight_map": {"a": {}}}'}, f"{INDEX} cannot be read"),
        ({**NO_MODEL, ADAPTER_CONFIG: b"{}"}, "adapter_model.safetensors is missing"),
    ],
)
def test_a_missing_part_is_named(root, put, changes, lacks) -> None:
    contents = {**WHOLE, **changes}
    put("step_1", {name: data for name, data in contents.items() if data is not None})
    assert find(root)[0].lacks == lacks


def test_an_index_names_shards_and_files_of_subfolders_do_not_count(root: str, put: Put) -> None:
    index = {"weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors"}}
    files = {name: data for name, data in WHOLE.items() if name != "model.safetensors"}
    put("step_1", {**files, INDEX: json.dumps(index).encode(), "m-1.safetensors": b"w"})
    put("step_2", {f"optimizer/{name}": data for name, data in WHOLE.items()})
    (checkpoint,) = find(root)
    assert checkpoint.lacks == "m-2.safetensors is missing"
    link = Path(root, "step_4")
    link.symlink_to("step_4")
    assert find(root)[1].lacks == "step_4 is a symbolic link to itself"
    link.unlink()
    put("step_1", {"m-2.safetensors": b"w"})
    (second,) = find(root)
    assert second.lacks == ""
    put("step_1", {"optimizer/m-2.safetensors": b"o"})
    assert find(root) == [second]
    put("step_1", {"config.json": b"{ }"})
    assert len({checkpoint.state, second.state, find(root)[0].state}) == 3


@pytest.mark.parametrize(
    ("changes", "steps"),
    [
        ({"every": 3}, [0, 30, 60, 90]),
        ({"from": 20, "to": 40}, [20, 30, 40]),
        ({"to": 0}, [0]),
        ({"from": 20, "to": 80, "every": 2}, [20, 40, 60, 80]),
    ],
)
def test_every_from_and_to_choose_checkpoints(changes: dict[str, Any], steps: list[int]) -> None:
    checkpoints = [Checkpoint(f"s{n}", n, f"/s{n}", "", "") for n in range(0, 100, 10)]
    assert [
        checkpoint.step for checkpoint in select_checkpoints(checkpoints, options("x", **changes))
    ] == steps


class Watched:
    """A folder and a `CheckpointWatch` of it with the test's clock: 60 s to settle."""

    def __init__(self, folder: Path, make_checkpoint: Callable[..., Path]) -> None:
        self.root, self._make = folder / "run", make_checkpoint
        self.stop_file = folder / "stop"
        self.now_s = 1000.0
        settings = {"watch": True, "settle_s": 60, "stop_file": str(self.stop_file)}
        chosen = options(str(self.root), **settings)
        self.watching = CheckpointWatch(chosen, StoreConfig(), lambda: self.now_s)

    def save(self, step: int, *values: float) -> Path:
        return self._make(self.root / f"step_{step}", *(values or (1.0,)))

    def look(self) -> list[int]:
        """Take the checkpoints that have settled; return their steps."""
        checkpoints = self.watching.find_new()
        for checkpoint in checkpoints:
            self.watching.mark_taken(checkpoint)
        return [checkpoint.step for checkpoint in checkpoints]

    def until_the_end(self, before_each: Callable[[int], object] = lambda look: None) -> list[int]:
        """Return the steps that are taken until the watch ends."""
        steps: list[int] = []
        for look in range(10):
            before_each(look)
            steps += self.look()
            if not (wait := self.watching.wait_s):
                return steps
            self.now_s += wait
        raise AssertionError("the watch does not end")


@pytest.fixture
def watched(tmp_path: Path, make_checkpoint: Callable[..., Path]) -> Watched:
    return Watched(tmp_path, make_checkpoint)


def test_a_checkpoint_settles_when_its_files_do_not_change(watched: Watched) -> None:
    def settled(seconds: float, save: int = 0) -> list[int]:
        """Return the steps that are taken ``seconds`` later, when the step ``save`` is written."""
        watched.now_s += seconds
        if save:
            watched.save(save, watched.now_s)
        return watched.look()

    assert settled(0, save=1) == settled(30, save=2) == settled(29, save=2) == []
    assert settled(1) == [1]
    assert settled(58) == []
    assert settled(1, save=1) == [2]
    assert settled(59) == []
    assert settled(1) == [1]
    assert settled(100) == []


def test_checkpoints_that_come_with_the_stop_file_may_settle(watched: Watched) -> None:
    watched.look()
    watched.save(1)
    (watched.save(2) / "tokenizer.json").unlink()
    watched.stop_file.touch()

    def writes_on(look: int) -> None:
        watched.save(3, float(look))
        if look:
            watched.save(3 + look)  # the training goes on

    assert watched.until_the_end(writes_on) == [1]
    assert [c.step for c in watched.watching.list_incomplete()] == [2]
    assert [c.step for c in watched.watching.list_unfinished()] == [3]
    assert not watched.watching.failed


def test_an_outage_at_the_end_does_not_lose_the_last_checkpoint(watched, monkeypatch) -> None:
    watched.save(1)
    watched.look()
    watched.stop_file.touch()

    def away(*arguments: Any) -> Any:
        raise UserError("the store is away")

    with monkeypatch.context() as patch:
        patch.setattr(module, "find_checkpoints", away)
        with pytest.raises(UserError):
            watched.look()
    assert watched.watching.wait_s > 0
    watched.now_s += 50
    assert watched.until_the_end() == [1]
    assert not watched.watching.failed
