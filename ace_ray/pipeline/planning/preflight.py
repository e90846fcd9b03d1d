"""Check the engine arguments of a config, make its benchmarks, and pin its model."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from ace_ray.benchmarks.base import Benchmark
from ace_ray.benchmarks.registry import make_benchmark
from ace_ray.config.schema import ENDPOINT, EXTERNAL, RunConfig, validate_tree
from ace_ray.errors import UserError
from ace_ray.models import adapters
from ace_ray.models.checkpoints import ADAPTER_CONFIG
from ace_ray.models.endpoint_engine import endpoint_ref
from ace_ray.models.engine_args import check_engine_args, check_parsers
from ace_ray.models.fake import FakeScript
from ace_ray.models.families import FamilyFacts, ModelFiles, family_facts
from ace_ray.models.sampling import check_sampling
from ace_ray.models.sources import ModelRef, read_json, resolve, tokenizer_folder
from ace_ray.util.vllm_source import engine_arguments


def make_benchmarks(config: RunConfig) -> list[Benchmark]:
    """Return the benchmarks of the config. This executes local files that the config names. Raises
    `UserError` if a benchmark or its options are invalid."""
    benchmarks = [make_benchmark(b.name, b.options) for b in config.benchmarks]
    for benchmark in benchmarks:
        if benchmark.source:  # other processes cannot import this module by its name
            from ray import cloudpickle

            cloudpickle.register_pickle_by_value(sys.modules[type(benchmark).__module__])
        if benchmark.needs_logprobs and config.backend == ENDPOINT:
            raise UserError(
                "needs logprobs of given texts, which endpoints do not provide",
                where=f"benchmarks.{benchmark.name}",
                fix="omit the option that needs them (bfcl: contamination), or set backend: vllm",
            )
    return benchmarks


def check_engine(config: RunConfig) -> ModelRef | None:
    """Return the model if it is behind an endpoint and so needs no files, else None. Raises
    `UserError` if the backend or an engine argument is wrong."""
    if config.backend == EXTERNAL:
        raise UserError(
            "this run has outputs that another program generated",
            where="backend",
            fix="set backend: vllm to evaluate a model, or judge the outputs with ace-ray score",
        )
    if config.backend == ENDPOINT:
        return endpoint_ref(config)
    if config.backend == "fake":
        others = [key for key in config.engine if key not in FakeScript.model_fields]
        if others and (unused := [key for key in others if key in engine_arguments()]):
            problem = f"{', '.join(unused)}: only vLLM's engine has these, and backend is fake"
            raise UserError(problem, where="engine", fix="remove them: --set engine={}")
        validate_tree(FakeScript, config.engine, where="engine")
    else:
        check_engine_args(config.engine)
        check_parsers(config.model)
        check_sampling(config.sampling, config.model, location="sampling")
        if "reasoning_parser" in config.engine:
            raise UserError(
                "'reasoning_parser' belongs to model",
                where="engine.reasoning_parser",
                fix="use model.reasoning_parser",
            )
    return None


def resolve_model(config: RunConfig) -> tuple[ModelRef, ModelFiles]:
    """Return the config's model with a fixed revision, and its small files. Raises `UserError` if
    the model cannot be used, or if an engine argument is invalid."""
    if (model := check_engine(config)) is not None:
        return model, ModelFiles()
    source, store = config.model.source, config.store.model_dump()
    assert source is not None  # `run_config` refuses a model without a source
    if config.backend == "fake" and not Path(source).is_dir():
        model = ModelRef("fake", "fake", "fake", "fake")
    else:
        weights = config.engine.get("load_format") != "dummy"
        model = resolve(source, config.model.revision, weights=weights, **store)
    if config.model.adapter is not None:
        revision = config.model.adapter_revision
        adapter = resolve(config.model.adapter, revision, adapter=True, **store)
        settings = read_json(tokenizer_folder(adapter) / ADAPTER_CONFIG)
        model = adapters.add_adapter(model, adapter, settings)
    if model.kind == "fake":
        return model, ModelFiles()
    tokenizer_mode = str(config.engine.get("tokenizer_mode", "auto"))
    folder = tokenizer_folder(model)
    tree = read_json(folder / "config.json")
    files = ModelFiles(folder, tree, family_facts(folder, tokenizer_mode))
    if config.backend == "fake":  # its answers have no format
        return model, replace(files, facts=FamilyFacts())
    return model, files
