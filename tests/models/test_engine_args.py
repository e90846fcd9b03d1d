"""Arguments of engines, checked against vLLM's source without importing it."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ace_ray.config.schema import ModelConfig
from ace_ray.errors import UserError
from ace_ray.models.engine_args import check_engine_args, check_parsers


def test_without_vllm_the_fix_is_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match="vLLM is not installed; install"):
        check_engine_args({})
    # A vLLM of another layout checks its arguments itself.
    spec = SimpleNamespace(origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: spec)
    check_engine_args({"anything": 1})
    check_parsers(ModelConfig(source="m", reasoning_parser="anything"))


@pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed")
def test_unknown_arguments_are_named_with_their_place() -> None:
    check_engine_args({"dtype": "half", "max_model_len": 1, "enable_log_requests": True})
    args: dict[str, Any]
    for args, line in (
        ({"temperature": 1}, "engine argument 'temperature'; 'temperature' belongs under 'sampl"),
        (
            {"max_tokens": 3, "tool_parser": "x"},
            "2 unknown keys; .*'tool_parser' belongs under 'mo",
        ),
        ({"max_model_length": 3}, "'max_model_length'; did you mean 'max_model_len'?"),
        ({"qqqqqq": 1}, "'qqqqqq'; see vLLM's engine arguments"),
        (
            {"override_generation_config": {"max_new_tokens": 3}},
            "engine.override_generation_config: 'max_new_tokens' has no effect here",
        ),
    ):
        with pytest.raises(UserError, match=line.replace("?", r"\?")):
            check_engine_args(args)
