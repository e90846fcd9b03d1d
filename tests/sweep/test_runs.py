"""One run per model: what it is called, what it weighs, and with whom it may share an engine."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ace_ray.errors import UserError
from ace_ray.models.checkpoints import INDEX
from ace_ray.pipeline import roles
from ace_ray.pipeline.planning.plan import make_manifest
from ace_ray.pipeline.summary import as_json
from ace_ray.storage.object_store import LocalStore, Unreachable
from ace_ray.sweep.checkpoints import Checkpoint
from ace_ray.sweep.config import SweepConfig, SweepModel, SweepOptions
from ace_ray.sweep.runs import SweepRun, is_finished, run_of_checkpoint, run_of_model


def sweep_of(**changes: Any) -> SweepConfig:
    run = {"benchmarks": [{"name": "acebench", "languages": ["en"]}], "backend": "fake", "limit": 2}
    return SweepConfig(SweepOptions(checkpoints="x"), {**run, **changes}, "sweep.yaml")


def of(folder: Path, **changes: Any) -> SweepRun:
    checkpoint = Checkpoint(folder.name, 7, str(folder), "state", "")
    return run_of_checkpoint(sweep_of(**changes), checkpoint, "out")


@pytest.fixture
def one(tmp_path: Path, make_checkpoint: Callable[..., Path]) -> Path:
    return make_checkpoint(tmp_path / "step_7", 1.0, 2.0, 3.0)


@pytest.fixture
def other(tmp_path: Path, make_checkpoint: Callable[..., Path]) -> Path:
    """Another checkpoint of the same training."""
    return make_checkpoint(tmp_path / "step_8", 4.0, 5.0, 6.0)


def test_checkpoints_are_told_apart_by_content(
    one: Path, make_checkpoint: Callable[..., Path]
) -> None:
    before = of(one).run_id
    make_checkpoint(one, 1.0, 2.0, 3.0)
    assert of(one).run_id == before
    make_checkpoint(one, 1.0, 2.0, 4.0)
    assert of(one).run_id != before


def test_a_model(one: Path) -> None:
    model = SweepModel(source=str(one), engine={"max_model_len": 4096})
    run = run_of_model(sweep_of(), model, "out")
    assert (run.label, run.step) == ("step_7", None)
    assert run.plan is not None
    assert run.plan.config.engine == {"max_model_len": 4096}
    named = run_of_model(sweep_of(), model.model_copy(update={"label": "mine"}), "out")
    assert (named.label, named.run_id) == ("mine", run.run_id)


def test_a_model_that_cannot_be_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist"):
        run_of_model(sweep_of(backend="vllm"), SweepModel(source=str(tmp_path / "none")), "out")


def test_gpus_of_an_engine(one: Path) -> None:
    (one / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"]}))
    engine = {"tensor_parallel_size": 4, "pipeline_parallel_size": 2}
    assert of(one, backend="vllm", engine=engine).gpus == 8


def test_what_it_holds_besides(one: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of servers only where there are episodes; of workers what was asked for."""
    monkeypatch.setattr(roles, "demand", lambda parts, *, on_gpu: [(2.0, 1), (2.0, 2)])
    agents = [{"name": "acebench", "languages": ["en"], "categories": ["agent_multi_step"]}]
    (one / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"]}))
    run = of(one, backend="vllm", benchmarks=agents, workers=2)
    assert (run.workers, run.server_gpus, run.server_cpus) == (2, 3, 4.0)
    assert run.least_gpus == 5
    plain = [{"name": "acebench", "languages": ["en"], "categories": ["normal_atom_bool"]}]
    run = of(one, backend="vllm", benchmarks=plain)
    assert (run.workers, run.server_gpus, run.least_gpus) == (None, 0, 1)


class TestRefused:
    def test_what_was_seen_to_be_lacking(self, one: Path) -> None:
        run = run_of_checkpoint(
            sweep_of(), Checkpoint("step_7", 7, str(one), "", "m-2.safetensors is missing"), "out"
        )
        assert run.refused == "the checkpoint is incomplete: m-2.safetensors is missing"
        assert (run.plan, run.run_id, run.swap_group, run.step) == (None, "", "", 7)

    def test_not_for_a_store_that_is_away(self, one: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def away(config: Any) -> Any:
            raise Unreachable("S3 cannot be reached")

        monkeypatch.setattr("ace_ray.sweep.runs.plan_run", away)
        with pytest.raises(Unreachable):
            of(one)

    def test_a_shard_that_is_missing(self, one: Path) -> None:
        (one / INDEX).write_text(json.dumps({"weight_map": {"w": "other.safetensors"}}))
        assert "other.safetensors: is missing" in of(one).refused


class TestSwapGroup:
    def test_checkpoints_of_one_training(self, one: Path, other: Path) -> None:
        assert of(one).swap_group == of(other).swap_group != ""

    @pytest.mark.parametrize("name", ["_name_or_path", "transformers_version", "use_cache"])
    def test_what_says_nothing_of_the_architecture(self, one: Path, other: Path, name: str) -> None:
        (other / "config.json").write_text(json.dumps({"model_type": "toy", name: "x"}))
        assert of(one).swap_group == of(other).swap_group

    @pytest.mark.parametrize(
        "change",
        [{"hidden_size": 8}, {"rope_theta": 1e6}, {"model_type": "other"}, {"dtype": "float16"}],
    )
    def test_another_architecture(self, one: Path, other: Path, change: dict[str, Any]) -> None:
        (other / "config.json").write_text(json.dumps({"model_type": "toy", **change}))
        assert of(one).swap_group != of(other).swap_group

    @pytest.mark.nightly
    @pytest.mark.parametrize(
        "name", ["tokenizer.json", "tekken.json", "chat_template.jinja", "generation_config.json"]
    )
    def test_another_tokenizer_or_template(self, one: Path, other: Path, name: str) -> None:
        (other / name).write_text("[1]")
        assert of(one).swap_group != of(other).swap_group
        (one / name).write_text("[1]")
        assert of(one).swap_group == of(other).swap_group

    def test_another_layout(
        self, one: Path, other: Path, make_checkpoint: Callable[..., Path]
    ) -> None:
        make_checkpoint(other, 1.0, 2.0)
        assert of(one).swap_group != of(other).swap_group

    def test_what_the_engine_was_told(self, one: Path, other: Path) -> None:
        alone = of(one).swap_group
        assert of(other, engine={"max_model_len": 4096}).swap_group != alone
        assert of(other, model={"chat_template_kwargs": {"a": 1}}).swap_group != alone
        assert of(other, model={"reasoning_parser": "none"}).swap_group != alone

    @pytest.mark.parametrize("content", ["{", "", "[]", "3", "null", "[" * 100_000, "\ud800"])
    def test_a_config_that_is_none_makes_no_swap_group(
        self, one: Path, other: Path, content: str
    ) -> None:
        for folder in (one, other):
            (folder / "config.json").write_bytes(content.encode(errors="surrogatepass"))
        assert of(one).swap_group == of(other).swap_group == ""


class TestFinished:
    @pytest.fixture
    def run(self, one: Path) -> SweepRun:
        return of(one)

    @pytest.fixture
    def store(self, tmp_path: Path, run: SweepRun) -> LocalStore:
        """A sweep's folder that holds ``run``, whole."""
        assert run.plan is not None
        store = LocalStore(str(tmp_path / "sweep"))
        store.put(f"{run.run_id}/run.json", as_json(make_manifest(run.plan, {})))
        store.put(f"{run.run_id}/_SUCCESS", b"")
        return store

    def test_it_is(self, store: LocalStore, run: SweepRun) -> None:
        assert run.plan is not None
        assert is_finished(store, run.plan)

    @pytest.mark.parametrize("name", ["_SUCCESS", "run.json"])
    def test_not_without_a_file(self, store: LocalStore, run: SweepRun, name: str) -> None:
        assert run.plan is not None
        store.delete(f"{run.run_id}/{name}")
        assert not is_finished(store, run.plan)

    @pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b'{"identity": 3}', b"\xff"])
    def test_not_with_a_manifest_that_is_none(
        self, store: LocalStore, run: SweepRun, content: bytes
    ) -> None:
        assert run.plan is not None
        store.put(f"{run.run_id}/run.json", content)
        assert not is_finished(store, run.plan)

    def test_not_another_run_of_that_name(self, store: LocalStore, run: SweepRun) -> None:
        assert run.plan is not None
        manifest = json.loads(store.get(f"{run.run_id}/run.json") or b"")
        manifest["identity"]["model"] = "another"
        store.put(f"{run.run_id}/run.json", as_json(manifest))
        assert not is_finished(store, run.plan)


class TestAdapters:
    @pytest.fixture
    def made(self, tmp_path: Path, one: Path, make_adapter: Callable[..., Path]) -> list[Path]:
        folder = tmp_path / "loras"
        return [make_adapter(folder / f"checkpoint-{n}", one, n, rank=n) for n in (4, 8)]

    def test_checkpoints_of_a_training_on_a_base(self, one: Path, made: list[Path]) -> None:
        runs = [of(folder, model={"source": str(one)}) for folder in made]
        assert [run.refused for run in runs] == ["", ""]
        assert [run.source for run in runs] == list(map(str, made))
        assert runs[0].run_id != runs[1].run_id
        assert runs[0].swap_group == runs[1].swap_group != ""
        assert runs[0].swap_group != of(one).swap_group
        plan = runs[0].plan
        assert plan is not None
        assert plan.config.model.adapter == str(made[0])
        model = make_manifest(plan, {})["model"]
        assert (model["source"], model["adapter"]["source"]) == (str(one), str(made[0]))
        assert model["adapter"]["rank"] == 4
        assert plan.identity["adapter"] == model["adapter"]["revision"]

    def test_listed_ones(self, one: Path, other: Path, made: list[Path]) -> None:
        sweep = sweep_of(model={"source": str(one)})
        a, b = (run_of_model(sweep, SweepModel(adapter=str(folder)), "out") for folder in made)
        elsewhere = SweepModel(source=str(other), adapter=str(made[0]))
        c = run_of_model(sweep, elsewhere, "out")
        assert (a.label, b.label, c.label) == (
            "step_7+checkpoint-4",
            "step_7+checkpoint-8",
            "step_8+checkpoint-4",
        )
        assert a.swap_group == b.swap_group != c.swap_group
        assert len({a.run_id, b.run_id, c.run_id}) == 3

    def test_rows_of_two_adapters_are_others(self, one: Path, made: list[Path]) -> None:
        a, b = (of(folder, model={"source": str(one)}).plan for folder in made)
        bare = of(one).plan
        assert a
        assert b
        assert bare
        assert len({*a.rows.ids.tolist(), *b.rows.ids.tolist(), *bare.rows.ids.tolist()}) == 6

    def test_lora_arguments_without_an_adapter(self, one: Path) -> None:
        said = of(one, backend="vllm", engine={"enable_lora": True}).refused
        assert "'enable_lora' without an adapter only slows" in said

    def test_a_rank_above_what_the_engine_was_told(self, one: Path, made: list[Path]) -> None:
        told = {"backend": "vllm", "engine": {"max_lora_rank": 1}, "model": {"source": str(one)}}
        assert "the adapter's rank is 4, but 'max_lora_rank' is 1" in of(made[0], **told).refused

    def test_without_its_base(self, made: list[Path]) -> None:
        assert "it is an adapter: name it as model.adapter" in of(made[0]).refused

    def test_a_model_in_place_of_an_adapter(self, one: Path) -> None:
        assert "contains no adapter_config.json" in of(one, model={"source": str(one)}).refused
