"""GGUF -> safetensors: ``python -m ace_ray.models.gguf FILE.gguf FOLDER``.

vLLM no longer reads GGUF in-tree and its plugin needs CUDA, so a GGUF file is dequantized to
bfloat16 with transformers and served as an ordinary folder. Measured for SmolLM2-135M: 23-33 s.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path


def convert(gguf: Path, folder: Path) -> None:
    """Write the model in ``gguf`` as a transformers folder (bfloat16 safetensors, tokenizer and
    chat template) at ``folder``, which appears whole or not at all."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=folder.name + ".", dir=folder.parent))
    try:
        # Without dequantize=True transformers 5 keeps the weights packed and cannot save them.
        model = AutoModelForCausalLM.from_pretrained(
            gguf.parent,
            gguf_file=gguf.name,
            dtype=torch.bfloat16,
            quantization_config=GgufConfig(dequantize=True),
        )
        model.save_pretrained(scratch)
        AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(scratch)
        scratch.chmod(0o755)
        scratch.rename(folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
