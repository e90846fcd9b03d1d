"""Check the engine arguments of a config, make its benchmarks, and pin its model."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from ace_ray.benchmarks.base import Benchmark
from ace_ray.benchmarks.registry import make_benchmark
from ace_ray.config.schema import ENDPOINT, EXTERNAL, RunConfig, validated
from ace_ray.errors import UserError
from ace_ray.models import adapters
from ace_ray.models.endpoint_engine import check_endpoint, endpoint_ref
from ace_ray.models.engine_args import check_engine_args, check_parsers
from ace_ray.models.fake import FakeScript
from ace_ray.models.families import FamilyFacts, ModelFiles, of_transformers
from ace_ray.models.sampling import check_sampling
from ace_ray.models.sources import ModelRef, resolve
from ace_ray.pipeline.roles import check_size
from ace_ray.util import vllm_source
from ace_ray.util.sanitizing import few


def resolve_model(config: RunConfig) -> tuple[ModelRef, ModelFiles]:
    """Return the config's model with a fixed revision, and its small files. Raises `UserError` if
    it cannot be used."""
    if config.backend == ENDPOINT:
        return endpoint_ref(config.model), ModelFiles()
    source = config.model.source
    assert source is not None  # `run_config` refuses a model without a source
    if config.backend == "fake" and not Path(source).is_dir():
        model = ModelRef("fake", "fake", "fake", "fake")
    else:
        model = resolve(
            source,
            config.model.revision,
            **config.store.model_dump(),
            weights=config.engine.get("load_format") != "dummy",
        )
    if config.model.adapter is not None:
        model = adapters.with_adapter(
            model,
            config.model.adapter,
            config.model.adapter_revision,
            **config.store.model_dump(),
        )
    if model.kind == "fake":
        return model, ModelFiles()
    files = ModelFiles.read(model, str(config.engine.get("tokenizer_mode", "auto")))
    if config.backend == "fake":  # its answers have no format
        return model, replace(files, facts=FamilyFacts())
    if model.kind != "gguf":
        _check_architecture(config, model, files)
    return model, files


# Engine arguments with which vLLM may load another architecture than config.json names.
_DECIDE = ("hf_overrides", "model_impl", "config_format", "trust_remote_code", "speculative_config")


def _check_architecture(config: RunConfig, model: ModelRef, files: ModelFiles) -> None:
    """Raise `UserError` if vLLM does not support the model's architecture. An engine would report
    this only after minutes."""
    facts = files.facts
    if facts.tekken or vllm_source.has_plugins():
        return
    adapters.check_experts(model, facts.architectures)
    known, where = vllm_source.architectures(), f"{model.location}/config.json"
    if not known or "auto_map" in files.config or any(map(config.engine.get, _DECIDE)):
        return
    if not facts.architectures:
        raise UserError(
            "names no 'architectures'",
            where=where,
            fix="add them as in the original model, or to engine.hf_overrides",
        )
    if known.isdisjoint(facts.architectures) and not of_transformers(facts.architectures):
        names = few(f"{name:.80}" for name in facts.architectures)
        raise UserError(
            f"vLLM does not support the architecture {names}",
            where=where,
            fix="use a vLLM that supports it, or another model",
        )


def make_benchmarks(config: RunConfig) -> list[Benchmark]:
    """Return the benchmarks of the config. This executes local files that the config names. Raises
    `UserError` if a benchmark or its options are invalid."""
    made = [make_benchmark(b.name, b.options) for b in config.benchmarks]
    for benchmark in made:
        if benchmark.source:  # other processes cannot import this module by its name
            from ray import cloudpickle

            cloudpickle.register_pickle_by_value(sys.modules[type(benchmark).__module__])
        if benchmark.needs_logprobs and config.backend == ENDPOINT:
            raise UserError(
                "needs logprobs of given texts, which endpoints do not provide",
                where=f"benchmarks.{benchmark.name}",
                fix="omit the option that needs them (bfcl: contamination), or set backend: vllm",
            )
    return made


def check_engine(config: RunConfig) -> None:
    """Check the backend and the engine arguments. Raises `UserError`."""
    if config.backend == EXTERNAL:
        raise UserError(
            "this run has outputs that another program generated",
            where="backend",
            fix="set backend: vllm to evaluate a model, or judge the outputs with ace-ray score",
        )
    if config.backend == ENDPOINT:
        check_endpoint(config)
    elif config.backend == "fake":
        validated(FakeScript, config.engine, where="engine")
    else:
        check_engine_args(config.engine)
        check_sampling(config.sampling, config.model, where="sampling")
        check_parsers(config.model)
        # The plan uses these arguments, so refuse booleans, null and numbers below 1.
        for name in ("tensor_parallel_size", "pipeline_parallel_size", "max_num_seqs"):
            check_size(name, config.engine.get(name, 1))
        if "reasoning_parser" in config.engine:
            raise UserError(
                "'reasoning_parser' belongs to model",
                where="engine.reasoning_parser",
                fix="use model.reasoning_parser",
            )
