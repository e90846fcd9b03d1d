"""Checkpoints near a model, for sweeps: its weights with noise of growing size.

    python perf/perturbed_models.py MODEL FOLDER --noise 0.02 0.05 0.1 0.2 [--seed 0]

MODEL is whatever ``model.source`` takes. For each size a folder ``noise-SIZE`` is written that vLLM
serves: to each matrix is added normal noise with that share of the matrix's own standard
deviation; vectors (norms, biases) stay. One seed draws the same noise for all sizes, so a larger
size goes further in the same direction. What is there already is left as it is.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from ace_ray.errors import UserError
from ace_ray.models.sources import materialize, resolve


def perturb(source: Path, folder: Path, noise: float, seed: int) -> None:
    """Write a checkpoint to ``folder``, which appears once it is whole."""
    unfinished = folder.with_name(folder.name + ".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    generator = torch.Generator().manual_seed(seed)
    for file in sorted(source.iterdir()):
        if file.suffix != ".safetensors":
            if file.is_file():
                shutil.copy2(file, unfinished)
            continue
        tensors = {}
        with safe_open(str(file), framework="pt") as stored:
            for name in sorted(stored.keys()):
                tensors[name] = _noisy(stored.get_tensor(name), noise, generator)
        save_file(tensors, str(unfinished / file.name), metadata={"format": "pt"})
    unfinished.rename(folder)


def _noisy(tensor: torch.Tensor, noise: float, generator: torch.Generator) -> torch.Tensor:
    if tensor.dim() < 2:
        return tensor
    values = tensor.float()
    drawn = torch.randn(values.shape, generator=generator)
    return (values + drawn * (noise * values.std())).to(tensor.dtype)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--noise", type=float, nargs="+", required=True)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    try:
        source = materialize(resolve(args.model, None))
    except UserError as error:
        sys.exit(str(error))
    for noise in args.noise:
        folder = args.folder / f"noise-{noise:g}"
        if not folder.exists():
            perturb(source, folder, noise, args.seed)
        print(folder)


if __name__ == "__main__":
    main()
