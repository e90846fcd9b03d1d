"""Hazards of a config, and vLLM's answers about engines of another machine."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ace_ray.config.schema import run_config
from ace_ray.errors import UserError
from ace_ray.models import hazards
from ace_ray.models.engine_check import ask_vllm
from ace_ray.models.families import FamilyFacts, ModelFiles
from ace_ray.models.sources import resolve

BUDGET = {"sampling": {"thinking_token_budget": 9}}
NGRAM = {"engine": {"speculative_config": {"method": "ngram"}}}
CACHE = {"engine": {"kv_cache_dtype": "fp8"}}
ROUNDING = "speculative-rounding"
SCALES = {"quantization_config": {"kv_cache_scheme": {"num_bits": 8}}}
NO_SCALES = {"quantization_config": {"kv_cache_scheme": None}}


def config(**changes: Any) -> Any:
    tree = {"model": {"source": "m"}, "benchmarks": ["b"], "backend": "vllm", **changes}
    return run_config(tree, where="x")


@pytest.mark.parametrize(
    ("changes", "files", "version", "names"),
    [
        pytest.param({}, {}, "0.32.0", [], id="none"),
        pytest.param(BUDGET, {}, "0.32.0", ["thinking-budget"], id="budget"),
        pytest.param(NGRAM, {}, "0.32.0+cpu", [ROUNDING], id="speculation"),
        pytest.param(NGRAM, {}, "0.24.0", ["speculative-grammar", ROUNDING], id="old grammar"),
        pytest.param({}, {"model_type": "gpt_oss"}, "0.28.0", ["gpt-oss-grammar"], id="gpt-oss"),
        pytest.param({}, {"model_type": "gpt_oss"}, "0.29.0", [], id="gpt-oss later"),
        pytest.param(CACHE, {"config": NO_SCALES}, "0.32.0", ["kv-cache-scales"], id="cache"),
        pytest.param(CACHE, {"config": SCALES}, "0.32.0", [], id="scales"),
        pytest.param({"engine": {"dtype": "fp8"}}, {}, "0.32.0", ["quantised-dtype"], id="dtype"),
        pytest.param({**CACHE, "backend": "fake"}, {}, "0.32.0", [], id="fake"),
    ],
)
def test_hazards_apply_by_config_and_version(
    monkeypatch: pytest.MonkeyPatch, changes: Any, files: Any, version: str, names: list[str]
) -> None:
    pytest.importorskip("packaging")
    found = SimpleNamespace(distributions=lambda name: [SimpleNamespace(version=version)])
    monkeypatch.setattr(hazards, "metadata", found)
    facts = FamilyFacts(model_type=files.get("model_type", ""))
    of_model = ModelFiles(config=files.get("config", {}), facts=facts)
    assert list(hazards.hazards_of(config(**changes), of_model, native=True)) == names
    without = hazards.hazards_of(config(**changes), of_model, native=False)
    assert list(without) == [name for name in names if not name.endswith(("budget", "grammar"))]


@pytest.mark.nightly
@pytest.mark.skipif(find_spec("vllm") is None, reason="needs vLLM")
def test_without_the_engines_gpus_only_the_model_is_checked(model_folder: Any) -> None:
    folder: Path = model_folder()
    model, files = resolve(str(folder), None), ModelFiles(folder)
    on_gpus = config(engine={"quantization": "fp8", "kv_cache_dtype": "nvfp4"})
    answer = ask_vllm(on_gpus, model, files, gpus=8, on_gpu=True)
    assert "vLLM accepts this engine; without its GPUs here" in answer
    with pytest.raises(UserError, match=r"engine: vLLM refuses this engine: .*'float32'"):
        ask_vllm(config(engine={"dtype": "float99"}), model, files, gpus=8, on_gpu=True)
