from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from ace_ray.config.schema import ModelConfig
from ace_ray.errors import UserError
from ace_ray.models.engine_args import check_engine_args, check_parsers

needs_vllm = pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed")


@needs_vllm
def test_arguments_of_both_argument_classes_are_known() -> None:
    check_engine_args({"dtype": "half", "max_model_len": 1, "tensor_parallel_size": 1})
    check_engine_args({"enable_log_requests": True, "kv_cache_memory_bytes": 1})


@pytest.mark.nightly
@needs_vllm
def test_parsers_are_known() -> None:
    for name in ("auto", "none", "deepseek_r1", "qwen3"):
        check_parsers(ModelConfig(source="m", reasoning_parser=name))
    with pytest.raises(UserError, match="known: "):
        check_parsers(ModelConfig(source="m", reasoning_parser="zzzzzz"))


def test_without_vllm_the_fix_is_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match="vLLM is not installed; install"):
        check_engine_args({})


def test_a_vllm_of_another_layout_checks_its_arguments_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Spec:
        origin = str(tmp_path / "__init__.py")

    monkeypatch.setattr("importlib.util.find_spec", lambda name: Spec)
    check_engine_args({"anything": 1})
    check_parsers(ModelConfig(source="m", reasoning_parser="anything"))


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (
            {"temperature": 1},
            "engine argument 'temperature'; 'temperature' belongs under 'sampling'",
        ),
        (
            {"max_tokens": 3, "tool_parser": "x", "max_model_length": 3},
            "3 unknown keys; 'max_tokens' belongs under 'sampling'; 'tool_parser' belongs under "
            "'model'; 'max_model_length': did you mean 'max_model_len'?",
        ),
        ({"qqqqqq": 1}, "'qqqqqq'; see vLLM's engine arguments"),
        (
            {"override_generation_config": {"max_new_tokens": 3}},
            "engine.override_generation_config: 'max_new_tokens' has no effect here",
        ),
    ],
)
def test_what_belongs_elsewhere_is_sent_there(args: dict[str, object], line: str) -> None:
    with pytest.raises(UserError) as caught:
        check_engine_args(args)
    assert line in str(caught.value)
