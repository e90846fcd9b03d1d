"""How large a model is by what it is called: ``Qwen2.5-7B``, ``8x7B``, ``SmolLM2-135M``."""

from __future__ import annotations

import re

# 7B, 1.5b, 135M, 8x7B; not the 5B of 1.5B, nor the A3B of 30B-A3B.
_SIZE = re.compile(
    r"(?<![A-Za-z0-9.])(?:(\d{1,3})x)?(\d{1,4}(?:\.\d{1,3})?)([BbMm])(?![A-Za-z0-9])"
)


def parameters_named(name: str) -> int | None:
    """The parameters that a model's name or size label states, None for none.

    A mixture named 8x7B counts 56: its experts share layers, so it is smaller than that.
    """
    match = _SIZE.search(name)
    if match is None:
        return None
    experts, number, unit = match.groups()
    return round(int(experts or 1) * float(number) * (1e9 if unit in "bB" else 1e6)) or None


def without_size(name: str) -> str:
    """The name without its size: that of a family."""
    return re.sub(r"([-_ ])[-_ ]+", r"\1", _SIZE.sub("", name, count=1)).strip("-_ ")
