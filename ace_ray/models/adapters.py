"""Check, before an engine starts, that vLLM can apply a LoRA adapter to its base model.

An adapter is a PEFT folder with ``adapter_config.json`` and ``adapter_model.safetensors``. vLLM
silently ignores some parts of an adapter, such as a chat template. Adapters with such parts are
refused, since they would be evaluated as another model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ace_ray.errors import UserError
from ace_ray.models.checkpoints import ADAPTER_CONFIG, content_sha256, tensors_of
from ace_ray.models.families import family_facts
from ace_ray.models.sources import Adapter, ModelRef, tokenizer_folder

WEIGHTS = "adapter_model.safetensors"
# Values of vLLM's ``max_lora_rank``.
RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)

# Initializations that keep the base's weights. PiSSA, OLoRA, LoftQ and CorDA change the weights.
_PLAIN_INITS = ("gaussian", "eva", "orthogonal", "mica", "lora_ga", "true", "false")
_NOT_LORA = {
    "use_dora": "is a DoRA adapter",
    "lora_bias": "has biases",
    "modules_to_save": "contains modules of its own (modules_to_save)",
    "alora_invocation_tokens": "is an activated LoRA (aLoRA)",
    "layer_replication": "replicates layers",
    "use_bdlora": "is a block-diagonal LoRA",
    "use_qalora": "is a QALoRA adapter",
    "trainable_token_indices": "contains embeddings of its own (trainable_token_indices)",
}
_SUFFIXES = (".lora_A.weight", ".lora_B.weight", ".lora_embedding_A", ".lora_embedding_B")
_PREFIX = "base_model.model."


def add_adapter(base: ModelRef, ref: ModelRef, config: Mapping[str, Any]) -> ModelRef:
    """Return a copy of ``base`` with the pinned adapter ``ref``, whose adapter_config.json is
    ``config``. Raises `UserError` if vLLM does not support this kind of adapter."""
    name, rank = str(config.get("base_model_name_or_path") or "")[:300], _rank(config, ref.source)
    return replace(base, adapter=Adapter(ref, rank, name, bool(_experts(config))))


def engine_args(models: Sequence[ModelRef], engine: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``engine`` plus LoRA arguments for ``models``. One adapter is in use at a time."""
    ranks = [model.adapter.rank for model in models if model.adapter]
    if not ranks:
        return dict(engine)
    least = next(rank for rank in RANKS if rank >= max(ranks))
    return {"enable_lora": True, "max_loras": 1, "max_lora_rank": least, **engine}


def check_weights(folder: Path, base: Path) -> bool:
    """Return True if the model in ``base`` has all modules of the adapter in ``folder``.

    Return False if the files do not show this: ``base`` is not in safetensors, or its files use
    other names for modules. Then only an engine's answers can show it: vLLM loads the adapter
    and ignores unknown modules. Raises `UserError` if the adapter belongs to another base."""
    tensors, of_base = tensors_of(folder), tensors_of(base)
    if not tensors:
        raise UserError(f"{WEIGHTS} is missing", where=str(folder), fix="save the adapter again")
    modules: dict[str, bool] = {}
    for name, tensor in tensors.items():
        suffix = next((end for end in _SUFFIXES if name.endswith(end)), "")
        if not suffix:
            raise _refusal(f"contains {name}, which is not a LoRA weight", str(folder))
        module = name.removeprefix(_PREFIX).removesuffix(suffix)
        if ".experts" in module or not of_base:
            continue  # vLLM fuses these modules under other names
        modules[module] = any(base_name.startswith(f"{module}.") for base_name in of_base)
        target = of_base.get(f"{module}.weight")
        if target is None or target.dtype not in ("F32", "F16", "BF16") or "embedding" in suffix:
            continue
        side = 1 if suffix == ".lora_A.weight" else 0
        have, need = tensor.shape[side:][:1], target.shape[side:][:1]
        if have != need:
            shapes = f"{name} has the shape {tensor.shape}, but {module} has {target.shape}"
            raise _base_error(folder, shapes)
    lacking = [module for module, is_present in modules.items() if not is_present]
    # Some model families use other names in files than in memory. Then no module is found.
    if lacking and len(lacking) < len(modules):
        raise _base_error(folder, f"{lacking[0]} is missing")
    return bool(modules) and not lacking


def _base_error(folder: Path, why: str) -> UserError:
    problem = f"the adapter belongs to another base model: {why}"
    return UserError(problem, where=str(folder), fix="name its base model as model.source")


def check_adapter(model: ModelRef, template: str | None = None) -> None:
    """Raise `UserError` if the chat template of the adapter, which vLLM would ignore, differs from
    ``template``, by default the template of the base. If model and adapter are local folders, also
    call `check_weights`; otherwise workers call it."""
    assert model.adapter is not None  # callers pass a model with an adapter
    own, adapted = (family_facts(tokenizer_folder(ref)) for ref in (model, model.adapter.ref))
    base = own.templates[-1:] if template is None else (template,)
    templates = adapted.templates[-1:]
    if templates and templates[0].strip() != "".join(base).strip():
        raise UserError(
            "the adapter has its own chat template, which would be ignored",
            where=model.adapter.ref.source,
            fix="name this template as model.chat_template, or remove it",
        )
    if model.kind == model.adapter.ref.kind == "folder":
        check_weights(Path(model.adapter.ref.location), Path(model.location))


def content_hash(folder: Path) -> str:
    """Return the hash of an adapter's configuration and weights: the adapter's name in vLLM."""
    return content_sha256([folder / ADAPTER_CONFIG, folder / WEIGHTS])[:32]


def _rank(config: Mapping[str, Any], source: str) -> int:
    """Return the largest rank in an adapter. Raises `UserError` if vLLM cannot load the adapter."""
    if (kind := config.get("peft_type", "LORA")) != "LORA":
        raise _refusal(f"is an adapter of the type {kind!r:.40}, not LORA", source)
    for key, problem in _NOT_LORA.items():
        if config.get(key):
            raise _refusal(problem, source)
    if config.get("bias", "none") != "none":
        raise _refusal("has biases", source)
    # vLLM 0.32 raises an AssertionError unless the file has the tensors of both.
    if _experts(config) not in (set(), {"gate_up_proj", "down_proj"}):
        raise _refusal("trains only some parameters of the experts (target_parameters)", source)
    init = config.get("init_lora_weights", True)
    if str(init).lower() not in _PLAIN_INITS:
        raise _refusal(f"changes the base's weights when it is loaded ({init!r:.40})", source)
    pattern = config.get("rank_pattern") or {}
    patterns = pattern.values() if isinstance(pattern, dict) else [pattern]
    ranks: list[Any] = [config.get("r"), *patterns]
    for rank in ranks:
        if not isinstance(rank, int) or isinstance(rank, bool) or not 1 <= rank <= RANKS[-1]:
            raise _refusal(f"has the rank {rank!r:.40}, but vLLM supports 1 to {RANKS[-1]}", source)
    return int(max(ranks))


def _experts(config: Mapping[str, Any]) -> set[str]:
    """Return the names of the experts' parameters that an adapter trains."""
    targets = map(str, config.get("target_parameters") or ())
    return {target.rpartition(".")[2] for target in targets if "experts" in target}


def _refusal(problem: str, location: str) -> UserError:
    fix = "merge the adapter into its base and name the result as model.source"
    return UserError(f"the adapter {problem}, which vLLM does not support", where=location, fix=fix)
