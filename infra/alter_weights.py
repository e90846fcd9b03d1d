"""Round the weights of a model to few bits, or add noise, and store them as floats.

    python infra/alter_weights.py SOURCE FOLDER --bits 4 [--group 64]
    python infra/alter_weights.py SOURCE FOLDER --noise 0.05

``--bits`` rounds every matrix of the layers in groups of ``--group`` input columns with one scale
each (symmetric, to the nearest, as GPTQ and AWQ store weights without their calibration).
Embeddings, the output layer and norms keep their values, as they do in those formats. The answers
show what rounding costs in accuracy, not what a quantised kernel gains in speed. ``--noise`` adds
normal noise to every matrix, as a share of the matrix's standard deviation; it is the same noise in
every size. SOURCE is what `model.source` of a config takes; FOLDER becomes a model folder.
"""

from __future__ import annotations

import argparse
import re
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from ace_ray.models.sources import materialize, resolve

LAYER_MATRIX = re.compile(r"\.layers\.\d+\..*_proj\.weight$")


def round_matrix(weight: torch.Tensor, bits: int, group: int) -> torch.Tensor:
    """Round ``weight`` (outputs x inputs) to ``bits`` bits with a scale per ``group`` inputs."""
    largest = 2 ** (bits - 1) - 1
    groups = weight.float().reshape(weight.shape[0], -1, group)
    scale = groups.abs().amax(dim=-1, keepdim=True).clamp(min=1e-12) / largest
    steps = (groups / scale).round().clamp(-largest, largest)
    return (steps * scale).reshape(weight.shape).to(weight.dtype)


def add_noise(weight: torch.Tensor, share: float, generator: torch.Generator) -> torch.Tensor:
    """Add normal noise of ``share`` of the standard deviation to ``weight``."""
    values = weight.float()
    drawn = torch.randn(values.shape, generator=generator)
    return (values + drawn * (share * values.std())).to(weight.dtype)


def main() -> None:
    parser = argparse.ArgumentParser(description="Round the weights of a model, or add noise.")
    parser.add_argument("source", help="a model folder, a GGUF file or a name on the hub")
    parser.add_argument("folder", type=Path, help="new model folder")
    change = parser.add_mutually_exclusive_group(required=True)
    change.add_argument("--bits", type=int, choices=range(2, 9))
    change.add_argument("--noise", type=float, help="share of a matrix's standard deviation")
    parser.add_argument("--group", type=int, default=64, help="input columns that share a scale")
    options = parser.parse_args()
    model = materialize(resolve(options.source, revision=None))
    shutil.copytree(model, options.folder)
    generator = torch.Generator().manual_seed(0)
    matrices = 0
    for path in sorted(options.folder.glob("*.safetensors")):
        weights = load_file(path)
        for name, weight in sorted(weights.items()):
            if options.bits and LAYER_MATRIX.search(name):
                weights[name] = round_matrix(weight, options.bits, options.group)
            elif options.noise is not None and weight.dim() > 1:
                weights[name] = add_noise(weight, options.noise, generator)
            else:
                continue
            matrices += 1
        save_file(weights, path, metadata={"format": "pt"})
    if not matrices:
        raise SystemExit(f"{options.source}: no matrix layers.N.*_proj.weight; nothing to alter")
    print(f"{options.folder}: {matrices} matrices altered")


if __name__ == "__main__":
    main()
