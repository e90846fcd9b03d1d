"""Convert GGUF to safetensors: ``python -m ace_ray.models.gguf FILE.gguf FOLDER``.

vLLM itself no longer reads GGUF, and its plugin needs CUDA. So transformers dequantizes a GGUF file
to bfloat16 in a separate process, and vLLM serves the resulting folder. This takes 34 s of CPU time
for Qwen2.5-Coder-0.5B."""

from __future__ import annotations

import functools
import sys
from pathlib import Path

from ace_ray.models.weights_cache import scratch_of


def convert(gguf: Path, folder: Path) -> None:
    """Convert the model in ``gguf`` to a transformers ``folder`` with bfloat16 safetensors,
    tokenizer and chat template. After an error the folder does not exist."""
    import gguf as package
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    # transformers opens the file for config, weights and tokenizer. Without the cache, each opening
    # takes 10 s of CPU time for a vocabulary of 150,000.
    package.GGUFReader = functools.cache(package.GGUFReader)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with scratch_of(folder) as scratch:
        # Without dequantize=True transformers 5 keeps the weights packed and cannot save them.
        model = AutoModelForCausalLM.from_pretrained(
            gguf.parent,
            gguf_file=gguf.name,
            dtype=torch.bfloat16,
            quantization_config=GgufConfig(dequantize=True),
        )
        model.save_pretrained(scratch)
        AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(scratch)


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
