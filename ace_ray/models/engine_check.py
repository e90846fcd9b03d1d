"""Ask vLLM whether it accepts an engine: ``python -m ace_ray.models.engine_check < question.json``.

vLLM loads no weights for its answer, which takes seconds. The process ends with vLLM's error."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import Any

from ace_ray.config.schema import RunConfig
from ace_ray.errors import UserError
from ace_ray.models.adapters import engine_args
from ace_ray.models.engine_args import cluster_engine_args
from ace_ray.models.families import ModelFiles
from ace_ray.models.reparse_child import assume_device
from ace_ray.models.sources import ModelRef
from ace_ray.models.start_failure import first_error, tail
from ace_ray.util.subprocesses import run_module

TIMEOUT_S = 300
# Names of exceptions before vLLM's message.
_CLASSES = re.compile(r"^[\w.]+Error: (\d+ validation errors? for )?")


def ask_vllm(
    config: RunConfig, model: ModelRef, files: ModelFiles, *, gpus: int, on_gpu: bool | None
) -> str:
    """Return a line that says what vLLM has checked and accepted. ``gpus``: GPUs of an engine.
    ``on_gpu``: whether it uses them; None: unless this vLLM is the CPU build. Raises `UserError`
    if vLLM refuses the engine's arguments, or gives no answer in time."""
    arguments = {**engine_args([model], config.engine), "model": str(files.folder)}
    fused = model.adapter is not None and model.adapter.experts
    seeded = config.sampling.temperature > 0
    question = json.dumps([arguments, gpus, on_gpu, seeded, fused])
    try:
        child = run_module("ace_ray.models.engine_check", stdin=question, timeout_s=TIMEOUT_S)
        if child.returncode == 0:
            return child.stdout.splitlines()[-1]  # vLLM prints to stdout as well
    except subprocess.TimeoutExpired as error:
        problem = f"vLLM did not check this engine within {TIMEOUT_S} s"
        raise UserError(problem, where="engine", fix="try again on an idle machine") from error
    why = _CLASSES.sub("", first_error(child.stderr) or tail(child.stderr))
    fix = "change the engine's arguments, or the model"
    raise UserError(f"vLLM refuses this engine: {why}", where="engine", fix=fix)


def _ask(
    arguments: dict[str, Any], gpus: int, on_gpu: bool | None, seeded: bool, fused_experts: bool
) -> str:
    import torch
    from vllm import platforms

    if on_gpu is None:
        on_gpu = not platforms.current_platform.is_cpu()
    assume_device()
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.model_executor.models import ModelRegistry
    from vllm.platforms import current_platform

    engine = AsyncEngineArgs(**cluster_engine_args(arguments, on_gpu=on_gpu, seeded=seeded))
    is_here = not on_gpu or torch.cuda.device_count() >= gpus
    if is_here:
        model = engine.create_engine_config().model_config
    else:  # the engine's device may support more than this machine's
        type(current_platform).verify_quantization = classmethod(lambda cls, name: None)
        model = engine.create_model_config()
    if fused_experts:
        model_class, name = ModelRegistry.resolve_model_cls(model.architectures, model)
        if not getattr(model_class, "is_3d_moe_weight", False):
            raise ValueError(f"adapters of {name} need a tensor for each expert")
    unchecked = "; without its GPUs here, devices, cache and speculative decoding are not checked"
    return "vLLM accepts this engine" + unchecked * (not is_here)


if __name__ == "__main__":
    print(_ask(*json.load(sys.stdin)))
