"""Round the weights of a model to few bits and store them as floats, which any engine loads.

    python infra/round_weights.py SOURCE FOLDER --bits 4 [--group 64]

Every matrix of the layers is rounded in groups of ``--group`` input columns with one scale each
(symmetric, to the nearest, as GPTQ and AWQ store weights without their calibration). Embeddings,
the output layer and norms keep their values, as they do in those formats. SOURCE is what
`model.source` of a config takes; FOLDER becomes a model folder. The answers show what rounding
costs in accuracy, not what a quantised kernel gains in speed.
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


def main() -> None:
    parser = argparse.ArgumentParser(description="Round the weights of a model to few bits.")
    parser.add_argument("source", help="a model folder, a GGUF file or a name on the hub")
    parser.add_argument("folder", type=Path, help="new model folder")
    parser.add_argument("--bits", type=int, required=True, choices=range(2, 9))
    parser.add_argument("--group", type=int, default=64, help="input columns that share a scale")
    options = parser.parse_args()
    model = materialize(resolve(options.source, revision=None))
    shutil.copytree(model, options.folder)
    matrices = 0
    for path in sorted(options.folder.glob("*.safetensors")):
        weights = load_file(path)
        for name, weight in weights.items():
            if LAYER_MATRIX.search(name):
                weights[name] = round_matrix(weight, options.bits, options.group)
                matrices += 1
        save_file(weights, path, metadata={"format": "pt"})
    if not matrices:
        raise SystemExit(f"{options.source}: no matrix layers.N.*_proj.weight; nothing to round")
    print(f"{options.folder}: {matrices} matrices rounded to {options.bits} bits")


if __name__ == "__main__":
    main()
