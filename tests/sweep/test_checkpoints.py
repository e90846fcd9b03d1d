"""Which checkpoints there are, on a disk and on S3, and which of them are whole."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from ace_ray.config.schema import StoreConfig
from ace_ray.errors import UserError
from ace_ray.models.checkpoints import INDEX
from ace_ray.storage.object_store import open_store
from ace_ray.sweep.checkpoints import Checkpoint, chosen, find_checkpoints
from ace_ray.sweep.config import SweepOptions

WHOLE = {"config.json": b"{}", "tokenizer.json": b"{}", "model.safetensors": b"w"}


def options(root: str, **changes: Any) -> SweepOptions:
    return SweepOptions.model_validate({"checkpoints": root, **changes})


def find(root: str, **changes: Any) -> list[Checkpoint]:
    return find_checkpoints(options(root, **changes), StoreConfig())


def steps(root: str, **changes: Any) -> list[int]:
    return [checkpoint.step for checkpoint in find(root, **changes)]


Put = Callable[..., None]


@pytest.fixture
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty folder; with `on_both` an empty prefix too."""
    if getattr(request, "param", "folder") == "folder":
        return str(tmp_path / "run")
    s3: Any = request.getfixturevalue("s3")
    return f"s3://{s3.bucket}/{tmp_path.name}"


on_both = pytest.mark.parametrize("root", ["folder", "s3"], indirect=True)


@pytest.fixture
def put(root: str) -> Put:
    store = open_store(root)

    def files(name: str, contents: Mapping[str, bytes] = WHOLE, **more: bytes) -> None:
        for path, content in {**contents, **more}.items():
            store.put(f"{name}/{path}", content)

    return files


class TestFind:
    @on_both
    def test_by_number_not_by_name(self, root: str, put: Put) -> None:
        for name in ("step_1000", "step_200", "step_9", "step_0010"):
            put(name)
        found = find(root)
        assert [(c.step, c.name, c.lacks) for c in found] == [
            (9, "step_9", ""),
            (10, "step_0010", ""),
            (200, "step_200", ""),
            (1000, "step_1000", ""),
        ]
        assert [c.source for c in found] == [f"{root}/{c.name}" for c in found]

    def test_the_last_number_is_the_step(self, root: str, put: Put) -> None:
        put("llama3-8b-step_200")
        put("llama3-8b-step_100-v2.5")
        assert [(c.step, c.name) for c in find(root)] == [
            (5, "llama3-8b-step_100-v2.5"),
            (200, "llama3-8b-step_200"),
        ]

    @pytest.mark.nightly
    @on_both
    def test_a_pattern(self, root: str, put: Put) -> None:
        for name in ("checkpoint-1", "checkpoint-2", "Checkpoint-3", "tmp-checkpoint-4", "step_5"):
            put(name)
        assert steps(root, pattern="checkpoint-*") == [1, 2]
        assert steps(root, pattern="*check*") == [1, 2, 4]
        assert steps(root, pattern="checkpoint-[12]") == [1, 2]
        assert steps(root, pattern="step_?") == [5]

    def test_a_looping_link_is_named_and_the_others_are_found(self, root: str, put: Put) -> None:
        for step in (1, 2, 3):
            put(f"step-{step}")
        Path(root, "step-4").symlink_to("step-4")
        weights = Path(root, "step-2/model.safetensors")
        weights.unlink()
        weights.symlink_to(weights.name)
        lacks = {checkpoint.step: checkpoint.lacks for checkpoint in find(root)}
        assert lacks == {
            1: "",
            2: "step-2/model.safetensors is a symbolic link to itself",
            3: "",
            4: "step-4 is a symbolic link to itself",
        }

    @on_both
    def test_nothing_there(self, root: str) -> None:
        with pytest.raises(UserError, match="contains no checkpoint folder that matches") as error:
            find(root, pattern="step_*")
        assert error.value.where == root
        assert "step_*" in str(error.value)

    @on_both
    def test_a_prefix_is_a_folder_not_the_start_of_names(self, root: str, put: Put) -> None:
        put("step_1")
        open_store(f"{root}-other").put("step_2/config.json", b"{}")
        assert steps(root) == [1]

    @pytest.mark.nightly
    @on_both
    def test_two_of_a_step(self, root: str, put: Put) -> None:
        put("step_10")
        put("step_7")
        put("step_010")
        with pytest.raises(UserError, match="both have step 10") as error:
            find(root)
        assert {"step_10", "step_010"} <= set(error.value.what.split())
        assert steps(root, pattern="step_?") == [7]

    @pytest.mark.parametrize("name", ["final", "best-model", "step_", "step_²"])
    def test_a_name_without_a_number(self, root: str, put: Put, name: str) -> None:
        put("step_1")
        put(name)
        with pytest.raises(UserError, match="contains no step number") as error:
            find(root)
        assert repr(name) in error.value.what
        assert steps(root, pattern="step_1") == [1]

    def test_no_bucket(self, s3: Any) -> None:
        with pytest.raises(UserError, match="bucket nowhere does not exist"):
            find("s3://nowhere/run")


class TestLacks:
    @pytest.mark.parametrize(
        ("gone", "said"),
        [
            ("config.json", "config.json is missing"),
            ("tokenizer.json", "the tokenizer is missing"),
            ("model.safetensors", "contains no weights"),
        ],
    )
    def test_a_file(self, root: str, put: Put, gone: str, said: str) -> None:
        put("step_1", {name: data for name, data in WHOLE.items() if name != gone})
        assert said in find(root)[0].lacks

    @pytest.mark.parametrize(
        "name", ["tokenizer.json", "tokenizer.model", "vocab.json", "tokenizer_config.json"]
    )
    def test_any_tokenizer_will_do(self, root: str, put: Put, name: str) -> None:
        files = {k: v for k, v in WHOLE.items() if k != "tokenizer.json"}
        put("step_1", {**files, name: b"{}"})
        assert find(root)[0].lacks == ""

    def test_other_formats_of_weights(self, root: str, put: Put) -> None:
        files = {k: v for k, v in WHOLE.items() if k != "model.safetensors"}
        put("step_1", {**files, "pytorch_model.bin": b"w"})
        put("step_2", {**files, "consolidated.pt": b"w"})
        put("step_3", {**files, "optimizer.pt": b"w", "training_args.bin": b"w"})
        assert [bool(c.lacks) for c in find(root)] == [False, False, True]

    @pytest.mark.nightly
    @on_both
    def test_what_lies_deeper_is_no_part(self, root: str, put: Put) -> None:
        put("step_1", {f"optimizer/{name}": data for name, data in WHOLE.items()})
        put("step_2", {**WHOLE, "optimizer/shard-0.pt": b"o", "model/config.json": b"{"})
        found = find(root)
        assert [c.step for c in found] == [2]
        before = found[0].state
        put("step_2", {"optimizer/shard-0.pt": b"another"})
        assert find(root)[0].state == before

    @pytest.mark.nightly
    @on_both
    def test_shards_of_an_index(self, root: str, put: Put) -> None:
        files = {k: v for k, v in WHOLE.items() if k != "model.safetensors"}
        index = {"weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors"}}
        files[INDEX] = json.dumps(index).encode()
        put("step_1", files)
        assert find(root)[0].lacks == "m-1.safetensors is missing"
        put("step_1", {"m-1.safetensors": b"w"})
        assert find(root)[0].lacks == "m-2.safetensors is missing"
        put("step_1", {"m-2.safetensors": b"w"})
        assert find(root)[0].lacks == ""

    def test_shards_before_their_index(self, root: str, put: Put) -> None:
        files = {k: v for k, v in WHOLE.items() if k != "model.safetensors"}
        put("step_1", {**files, "model-00001-of-00002.safetensors": b"w"})
        assert find(root)[0].lacks == "model-00002-of-00002.safetensors is missing"

    @pytest.mark.parametrize(
        "content",
        [
            b"{",
            b"[]",
            b'{"weight_map": {"a": {}}}',
            b"\xff",
            b"[" * 100_000,
        ],
    )
    def test_an_index_that_is_none(self, root: str, put: Put, content: bytes) -> None:
        put("step_1", {**WHOLE, INDEX: content})
        assert find(root)[0].lacks == f"{INDEX} cannot be read"


class TestState:
    @pytest.mark.nightly
    @on_both
    def test_it_changes_with_every_file(self, root: str, put: Put) -> None:
        put("step_1")
        put("step_2")
        seen = {find(root)[0].state}
        other = find(root)[1]
        for name, content in (("model.safetensors", b"v"), ("config.json", b"{ }"), ("new", b"")):
            put("step_1", {name: content})
            seen.add(find(root)[0].state)
        assert len(seen) == 4
        assert find(root)[1] == other


class TestChosen:
    FOUND = tuple(Checkpoint(f"s{n}", n, f"/s{n}", "", "") for n in range(0, 100, 10))

    def of(self, **changes: Any) -> list[int]:
        return [c.step for c in chosen(self.FOUND, options("x", **changes))]

    def test_every_counts_from_the_first(self) -> None:
        assert self.of(every=3) == [0, 30, 60, 90]
        assert self.of(every=100) == [0]

    def test_from_and_to_include_both_ends(self) -> None:
        assert self.of(**{"from": 20, "to": 40}) == [20, 30, 40]
        assert self.of(**{"from": 75}) == [80, 90]
        assert self.of(to=0) == [0]
        assert self.of(**{"from": 41, "to": 49}) == []

    def test_all_together(self) -> None:
        assert self.of(**{"from": 20, "to": 80, "every": 2}) == [20, 40, 60, 80]

    def test_none_of_them(self, root: str, put: Put) -> None:
        put("step_100")
        put("step_150")
        with pytest.raises(UserError, match=r"none of its 2 .* 100 to 150"):
            find(root, **{"from": 200})

    def test_while_watching_they_may_be_yet_to_come(self, root: str, put: Put) -> None:
        assert find(root, watch=True) == []
        put("step_100")
        assert find(root, watch=True, **{"from": 200}) == []
        assert steps(root, watch=True) == [100]
