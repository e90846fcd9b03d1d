"""LoRA adapters: checks before an engine starts."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ace_ray.errors import UserError
from ace_ray.models import adapters
from ace_ray.models.sources import ModelRef, check_unchanged, read_json, resolve

Make = Callable[..., Path]


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """Save a model of two layers, without what an engine needs."""
    names = [f"layers.{n}.self_attn.{part}_proj" for n in (0, 1) for part in ("q", "v")]
    shapes = {f"model.{name}.weight": (64, 64) for name in names}
    write(tmp_path / "base", shapes | {"lm_head.weight": (8, 64)})
    (tmp_path / "base" / "config.json").write_text("{}")
    settings = json.dumps({"chat_template": "{{ messages[0].content }}"})
    (tmp_path / "base" / "tokenizer_config.json").write_text(settings)
    return tmp_path / "base"


def adapted(base: Path, adapter: Path) -> ModelRef:
    ref = resolve(str(adapter), None, adapter=True)
    settings = read_json(Path(ref.location) / "adapter_config.json")
    return adapters.add_adapter(resolve(str(base), None), ref, settings)


def test_an_adapter_is_pinned_by_its_content(tmp_path: Path, base: Path, make_adapter: Make):
    model = adapted(base, make_adapter(tmp_path / "a", base, 1, base_model_name_or_path="x/Base"))
    second = adapted(base, make_adapter(tmp_path / "b", base, 2, base_model_name_or_path="x/Other"))
    assert model.adapter
    assert second.adapter
    assert model.revision == second.revision == resolve(str(base), None).revision
    assert model.adapter.ref.revision != second.adapter.ref.revision
    assert model.name == "base+a"
    assert model.adapter.rank == 4
    assert model.base_note == ""
    assert "names x/Other as its base" in second.base_note
    check_unchanged(model)
    adapters.check_adapter(model)
    (tmp_path / "a" / adapters.WEIGHTS).unlink()
    with pytest.raises(UserError, match=r"adapter_model\.safetensors is missing"):
        adapters.check_adapter(model)
    shutil.rmtree(tmp_path / "a")
    make_adapter(tmp_path / "a", base, 3)
    with pytest.raises(UserError, match="has changed since the run was planned"):
        check_unchanged(model)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"use_dora": True}, "is a DoRA adapter"),
    ({"bias": "lora_only"}, "has biases"),
    ({"modules_to_save": ["lm_head"]}, "contains modules of its own"),
    ({"init_lora_weights": "pissa_niter_16"}, "changes the base's weights when it is loaded"),
    ({"peft_type": "LOHA"}, "is an adapter of the type 'LOHA'"),
    ({"r": 1024}, "has the rank 1024, but vLLM supports 1 to 512"),
    ({"rank_pattern": {"q_proj": 513}}, "has the rank 513"),
    ({"target_parameters": ["7.mlp.experts.down_proj"]}, "trains only some parameters of the exp"),
]


def test_an_adapter_that_vllm_cannot_apply_is_refused(tmp_path, base, make_adapter) -> None:
    for number, (config, problem) in enumerate(REFUSED):
        with pytest.raises(UserError, match=f"the adapter {problem}.*; merge the adapter into"):
            adapted(base, make_adapter(tmp_path / f"a{number}", base, **config))
    assert adapted(base, make_adapter(tmp_path / "b", base, init_lora_weights="gaussian")).adapter


def test_a_damaged_or_misplaced_adapter_is_named(tmp_path: Path, base: Path, make_adapter: Make):
    folder = make_adapter(tmp_path / "a", base)
    with pytest.raises(UserError, match=r"no config\.json; it is an adapter: name it as model\.ad"):
        resolve(str(folder), None)
    with pytest.raises(UserError, match=r"no adapter_config\.json; name a PEFT adapter's folder"):
        adapted(base, base)
    with pytest.raises(UserError, match=r"model\.adapter: adapter 'gone' does not exist"):
        adapted(base, Path("gone"))
    for text in ("", "[]", "[" * 100_000):
        (folder / "adapter_config.json").write_text(text)
        with pytest.raises(UserError, match=r"adapter_config\.json: cannot be read.*again"):
            adapted(base, folder)


def test_an_adapter_of_another_base_is_refused(tmp_path: Path, base: Path, make_adapter: Make):
    folder = make_adapter(tmp_path / "a", base)
    assert adapters.check_weights(folder, base)
    query = "model.layers.0.self_attn.q_proj.weight"
    for shape, problem in (((64, 128), r".* has the shape .*64\), .*128\)"), ((64, 64), "is mis")):
        write(tmp_path / "other", {query: shape})
        with pytest.raises(UserError, match=rf"another base model: .*{problem}"):
            adapters.check_weights(folder, tmp_path / "other")
    write(tmp_path / "other", {f"transformer.h.{n}.attn.weight": (64, 64) for n in range(2)})
    assert not adapters.check_weights(folder, tmp_path / "other")  # an engine has to show it
    write(folder, {"base_model.model.lm_head.weight": (4, 4)}, adapters.WEIGHTS)
    with pytest.raises(UserError, match="which is not a LoRA weight"):
        adapters.check_weights(folder, base)


def test_an_adapter_with_its_own_template_is_refused(tmp_path, base, make_adapter) -> None:
    folder = make_adapter(tmp_path / "a", base)
    shutil.copy(base / "tokenizer_config.json", folder / "tokenizer_config.json")
    model = adapted(base, folder)
    adapters.check_adapter(model)
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    with pytest.raises(UserError, match="the adapter has its own chat template"):
        adapters.check_adapter(model)
    adapters.check_adapter(model, "{{ messages }}\n")  # named as model.chat_template
    with pytest.raises(UserError, match=r"name this template as model\.chat_template"):
        adapters.check_adapter(model, "{{ other }}")


def test_the_engine_allows_the_largest_rank(tmp_path: Path, base: Path, make_adapter: Make):
    low = adapted(base, make_adapter(tmp_path / "a", base, rank=4))
    high = adapted(base, make_adapter(tmp_path / "b", base, rank_pattern={"q_proj": 40}))
    plain = resolve(str(base), None)
    assert adapters.engine_args([low], {})["max_lora_rank"] == 8
    expected = {"enable_lora": True, "max_loras": 1, "max_lora_rank": 64, "dtype": "auto"}
    assert adapters.engine_args([low, high], {"dtype": "auto"}) == expected
    assert adapters.engine_args([plain], {}) == {}


def write(
    folder: Path, shapes: dict[str, tuple[int, int]], name: str = "model.safetensors"
) -> None:
    from safetensors.numpy import save_file

    folder.mkdir(exist_ok=True)
    save_file({key: np.zeros(shape, np.float32) for key, shape in shapes.items()}, folder / name)
