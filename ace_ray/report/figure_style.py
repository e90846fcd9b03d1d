"""What all figures share: colours, marks, and names short enough for a legend."""

from __future__ import annotations

from ace_ray.report.text import visible

# Okabe and Ito's colours, which the colour-blind tell apart.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000")
MARKERS = "osD^vPX*"


def short_label(text: str, longest: int = 44) -> str:
    """``text`` on one line, cut in the middle. An SVG with control characters is none."""
    text = visible(" ".join(text.split()))
    if len(text) > longest:
        half = (longest - 1) // 2
        text = f"{text[:half]}…{text[-half:]}"
    return text
