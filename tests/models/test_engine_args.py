from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from ace_ray.errors import UserError
from ace_ray.models.engine_args import check_engine_args, check_reasoning_parser

needs_vllm = pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed")


@needs_vllm
def test_arguments_of_both_argument_classes_are_known() -> None:
    check_engine_args({"dtype": "half", "max_model_len": 1, "tensor_parallel_size": 1})
    check_engine_args({"enable_log_requests": True, "kv_cache_memory_bytes": 1})


@pytest.mark.nightly
@needs_vllm
@pytest.mark.parametrize(
    ("name", "value", "takes"),
    [
        ("max_model_len", "abc", "a whole number"),
        ("max_model_len", "8k", "a whole number"),
        ("max_model_len", 1.5, "a whole number"),
        ("kv_cache_memory_bytes", "lots", "a whole number"),
        ("enforce_eager", "perhaps", "true or false"),
        ("gpu_memory_utilization", "much", "a number"),
        ("dtype", "bfloat99", "one of auto, half, float16, bfloat16"),
        ("kv_cache_dtype", "fp9", "one of auto"),
        ("runner", "generating", "one of auto, generate"),
        ("download_dir", ["x"], "a text"),
    ],
)
def test_a_value_of_another_type_is_refused(name: str, value: object, takes: str) -> None:
    with pytest.raises(UserError, match=f"'{name}' is .*, vLLM takes {takes}"):
        check_engine_args({name: value})


@pytest.mark.nightly
@needs_vllm
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_model_len", None),
        ("max_model_len", "4096"),
        ("max_model_len", -1),
        ("gpu_memory_utilization", 1),
        ("enforce_eager", "yes"),
        ("quantization", "anything"),
        ("load_format", "anything"),
        ("served_model_name", ["a", "b"]),
        ("hf_overrides", {"a": 1}),
        ("compilation_config", {"mode": 0}),
        ("limit_mm_per_prompt", {"image": 0}),
        ("attention_backend", "FLASH_ATTN"),
        ("distributed_executor_backend", "mp"),
    ],
)
def test_what_vllm_would_take_or_judges_itself_passes(name: str, value: object) -> None:
    check_engine_args({name: value})


def test_annotations_are_read_where_they_can_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "engine").mkdir()
    (tmp_path / "config").mkdir()
    (tmp_path / "engine" / "arg_utils.py").write_text(
        "class EngineArgs:\n"
        "    a: Kind = 1\n    b: Optional[int] = 1\n    c: 'int | None' = 1\n"
        "    d: Unknown | int = 1\n    e: Literal['x', Other] = 1\n    f: 'not python' = 1\n"
        "    g: Wider = 1\n"
    )
    (tmp_path / "config" / "one.py").write_text(
        "Kind: TypeAlias = Literal['p', 'q']\nWider = Literal['r', Kind]\n"
    )

    class Spec:
        origin = str(tmp_path / "__init__.py")

    monkeypatch.setattr("importlib.util.find_spec", lambda name: Spec)
    check_engine_args({"a": "p", "b": 1, "c": 1, "d": "x", "e": "y", "f": {}, "g": "q"})
    for name in "abcg":
        with pytest.raises(UserError, match=f"'{name}' is 'z'"):
            check_engine_args({name: "z"})


@needs_vllm
def test_parsers_are_known() -> None:
    for name in ("auto", "none", "deepseek_r1", "qwen3"):
        check_reasoning_parser(name)
    with pytest.raises(UserError, match="known: "):
        check_reasoning_parser("zzzzzz")


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
    check_reasoning_parser("anything")


@pytest.mark.nightly
@needs_vllm
@pytest.mark.parametrize(
    ("name", "value", "needed"),
    [
        ("gpu_memory_utilization", 1.01, "a share above 0, 1 at most"),
        ("gpu_memory_utilization", 90, "a share above 0, 1 at most"),
        ("gpu_memory_utilization", 0, "a share above 0, 1 at most"),
        ("max_model_len", 0, "1 or more, or -1 for what fits"),
        ("max_model_len", -2, "1 or more, or -1 for what fits"),
        ("max_num_seqs", 0, "1 or more"),
        ("max_num_batched_tokens", "-1", "1 or more"),
        ("tensor_parallel_size", 0, "1 or more"),
        ("pipeline_parallel_size", -1, "1 or more"),
        ("cpu_offload_gb", -0.5, "0 or more"),
    ],
)
def test_a_number_that_no_engine_starts_with_is_refused(
    name: str, value: object, needed: str
) -> None:
    with pytest.raises(UserError) as refused:
        check_engine_args({name: value})
    assert str(refused.value) == f"engine: {name!r} is {value}, it takes {needed}; correct it"


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
