"""Plan the run of each model: its id, its GPUs, and the runs that may share its engine."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ace_ray.errors import UserError
from ace_ray.models.checkpoints import INDEX
from ace_ray.pipeline import roles
from ace_ray.pipeline.planning.manifest import make_manifest
from ace_ray.pipeline.run_folder import open_folder
from ace_ray.storage.object_store import UnreachableStore
from ace_ray.storage.stored import read_manifest
from ace_ray.sweep.checkpoints import Checkpoint
from ace_ray.sweep.config import SweepConfig, SweepModel, SweepOptions
from ace_ray.sweep.runs import SweepEntry, entry_of_checkpoint, entry_of_model, label_runs


def sweep_of(**changes: Any) -> SweepConfig:
    run = {"benchmarks": [{"name": "acebench", "languages": ["en"]}], "backend": "fake", "limit": 2}
    return SweepConfig(SweepOptions(checkpoints="x"), {**run, **changes}, "sweep.yaml")


def of(folder: Path, **changes: Any) -> SweepEntry:
    checkpoint = Checkpoint(folder.name, 7, str(folder), "state", "")
    return entry_of_checkpoint(sweep_of(**changes), checkpoint, "out")


@pytest.fixture
def checkpoint_7(tmp_path: Path, make_checkpoint: Callable[..., Path]) -> Path:
    return make_checkpoint(tmp_path / "step_7", 1.0, 2.0, 3.0)


@pytest.fixture
def checkpoint_8(tmp_path: Path, make_checkpoint: Callable[..., Path]) -> Path:
    """Make another checkpoint of the same training."""
    return make_checkpoint(tmp_path / "step_8", 4.0, 5.0, 6.0)


def test_the_run_id_changes_with_the_content_of_a_checkpoint(checkpoint_7, make_checkpoint) -> None:
    before = of(checkpoint_7).run_id
    make_checkpoint(checkpoint_7, 1.0, 2.0, 3.0)
    assert of(checkpoint_7).run_id == before
    make_checkpoint(checkpoint_7, 1.0, 2.0, 4.0)
    assert of(checkpoint_7).run_id != before


def test_a_listed_model_is_planned_with_its_label(checkpoint_7: Path, tmp_path: Path) -> None:
    model = SweepModel(source=str(checkpoint_7), engine={"max_model_len": 4096})
    run = entry_of_model(sweep_of(), model, "out")
    assert (run.label, run.step) == ("step_7", None)
    assert run.plan is not None
    assert run.plan.config.engine == {"max_model_len": 4096}
    labelled_run = entry_of_model(sweep_of(), model.model_copy(update={"label": "mine"}), "out")
    assert (labelled_run.label, labelled_run.run_id) == ("mine", run.run_id)
    with pytest.raises(UserError, match="does not exist"):
        entry_of_model(sweep_of(backend="vllm"), SweepModel(source=str(tmp_path / "none")), "out")


SHORT, LONG = ({"engine": {"tensor_parallel_size": 2, "max_model_len": n}} for n in (64, 128))
LOW: dict[str, Any] = {"reasoning_effort": "low"}


@pytest.mark.parametrize(
    ("models", "labels"),
    [
        ([{}, SHORT], ["step_7", "tensor_parallel_size=2 max_model_len=64"]),
        ([SHORT, LONG], ["max_model_len=64", "max_model_len=128"]),
        ([LOW, {"label": "x"}, {"source": 8}], ["step_7: reasoning_effort=low", "x", "step_8"]),
    ],
    ids=["settings", "only different settings", "several sources"],
)
def test_models_of_one_source_are_labelled_with_what_differs(
    models: list[dict[str, Any]], labels: list[str], checkpoint_7: Path, checkpoint_8: Path
) -> None:
    folders = {7: checkpoint_7, 8: checkpoint_8}
    listed = [SweepModel(**{**m, "source": str(folders[m.get("source", 7)])}) for m in models]
    runs = label_runs(listed, [entry_of_model(sweep_of(), model, "out") for model in listed])
    assert [run.label for run in runs] == labels


def test_gpus_are_those_of_engines_and_served_models(checkpoint_7, monkeypatch) -> None:
    monkeypatch.setattr(roles, "demand", lambda parts, *, on_gpu: [(2.0, 1), (2.0, 2)])
    (checkpoint_7 / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"]}))
    engine = {"tensor_parallel_size": 4, "pipeline_parallel_size": 2}
    agents = [{"name": "acebench", "languages": ["en"], "categories": ["agent_multi_step"]}]
    run = of(checkpoint_7, backend="vllm", benchmarks=agents, workers=2, engine=engine)
    assert (run.gpus, run.workers, run.server_gpus) == (8, 2, 3)
    assert (run.min_gpus, run.cpus) == (2 * 8 + 3, 2 * 1.0 + 1.0 + 4.0)
    plain = [{"name": "acebench", "languages": ["en"], "categories": ["normal_atom_bool"]}]
    run = of(checkpoint_7, backend="vllm", benchmarks=plain)
    assert (run.workers, run.server_gpus, run.min_gpus) == (None, 0, 1)


def test_an_incomplete_checkpoint_is_refused_and_an_outage_is_not(checkpoint_7, monkeypatch):
    lacking = Checkpoint("step_7", 7, str(checkpoint_7), "", "m-2.safetensors is missing")
    run = entry_of_checkpoint(sweep_of(), lacking, "out")
    assert run.refused == "the checkpoint is incomplete: m-2.safetensors is missing"
    assert (run.plan, run.run_id, run.swap_group, run.step) == (None, "", "", 7)
    (checkpoint_7 / INDEX).write_text(json.dumps({"weight_map": {"w": "other.safetensors"}}))
    assert "other.safetensors: is missing" in of(checkpoint_7).refused

    def away(config: Any) -> Any:
        raise UnreachableStore("S3 cannot be reached")

    monkeypatch.setattr("ace_ray.sweep.runs.plan_run", away)
    with pytest.raises(UnreachableStore):
        of(checkpoint_7)


def test_checkpoints_of_one_architecture_share_a_swap_group(
    checkpoint_7: Path, checkpoint_8: Path, make_checkpoint: Callable[..., Path]
) -> None:
    group = of(checkpoint_7).swap_group
    assert of(checkpoint_8).swap_group == group != ""
    for name in ("_name_or_path", "transformers_version", "use_cache"):
        (checkpoint_8 / "config.json").write_text(json.dumps({"model_type": "toy", name: "x"}))
        assert of(checkpoint_8).swap_group == group
    for change in ({"hidden_size": 8}, {"model_type": "other"}, {"dtype": "float16"}):
        (checkpoint_8 / "config.json").write_text(json.dumps({"model_type": "toy", **change}))
        assert of(checkpoint_8).swap_group != group
    make_checkpoint(checkpoint_8, 4.0, 5.0)
    assert of(checkpoint_8).swap_group != group, "another layout of tensors"
    assert of(checkpoint_7, engine={"max_model_len": 4096}).swap_group != group
    assert of(checkpoint_7, sampling={"max_tokens": 64}).swap_group != group
    assert of(checkpoint_7, model={"chat_template_kwargs": {"a": 1}}).swap_group != group
    for name in ("tokenizer.json", "chat_template.jinja", "generation_config.json"):
        before = of(checkpoint_7).swap_group
        (checkpoint_7 / name).write_text("[1]")
        assert of(checkpoint_7).swap_group != before
    for content in ("{", "[]", "[" * 100_000):
        (checkpoint_7 / "config.json").write_text(content)
        assert of(checkpoint_7).swap_group == "", "an invalid config"


@pytest.fixture
def adapters(tmp_path: Path, checkpoint_7: Path, make_adapter: Callable[..., Path]) -> list[Path]:
    folder = tmp_path / "loras"
    return [make_adapter(folder / f"checkpoint-{n}", checkpoint_7, n, rank=n) for n in (4, 8)]


def test_adapters_of_a_base_share_an_engine_and_have_rows_of_their_own(
    checkpoint_7: Path, checkpoint_8: Path, adapters: list[Path]
) -> None:
    runs = [of(folder, model={"source": str(checkpoint_7)}) for folder in adapters]
    assert [run.refused for run in runs] == ["", ""]
    assert [run.source for run in runs] == list(map(str, adapters))
    assert runs[0].swap_group == runs[1].swap_group != ""
    bare = of(checkpoint_7)
    assert runs[0].swap_group != bare.swap_group
    assert len({run.run_id for run in [*runs, bare]}) == 3
    rows = [row for run in [*runs, bare] if run.plan for row in run.plan.rows.ids.tolist()]
    assert len(rows) == len({*rows}) == 6
    assert runs[0].plan is not None
    model = make_manifest(runs[0].plan, {})["model"]
    assert (model["source"], model["adapter"]["source"]) == (str(checkpoint_7), str(adapters[0]))
    assert model["adapter"]["rank"] == 4

    sweep = sweep_of(model={"source": str(checkpoint_7)})
    a, b = (entry_of_model(sweep, SweepModel(adapter=str(folder)), "out") for folder in adapters)
    elsewhere = SweepModel(source=str(checkpoint_8), adapter=str(adapters[0]))
    c = entry_of_model(sweep, elsewhere, "out")
    assert [run.label for run in (a, b, c)] == [
        "step_7+checkpoint-4",
        "step_7+checkpoint-8",
        "step_8+checkpoint-4",
    ]
    assert a.swap_group == b.swap_group != c.swap_group


def test_a_run_announces_its_rows_by_benchmark_and_keeps_its_label(
    tmp_path: Path, log_lines: list[str]
) -> None:
    sweep = sweep_of(benchmarks=[{"name": "acebench"}, {"name": "bfcl"}], limit=6, samples=2)
    run = entry_of_model(sweep, SweepModel(source="toy"), str(tmp_path))
    assert run.plan is not None
    with open_folder(run.plan, fresh=False, began=0.0, label="mine") as open_run:
        assert open_run.announce() == 12
        open_run.declare({"created_at": "2026-11-27T00:00:00+00:00", "versions": {}})
    line, warning = log_lines
    assert "samples at temperature 0 are nearly equal" in warning
    assert "12 rows declared, 12 to evaluate, 0 stored rows reused (acebench 12, bfcl 0)" in line
    manifest = read_manifest(open_run.store)
    assert (manifest.label, "label" in manifest.identity.model_dump()) == ("mine", False)
