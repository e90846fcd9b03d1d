"""Figures as SVG elements that take their ink from the page around them, light or dark."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

from ace_ray.benchmarks.reporting import Figure
from ace_ray.report.figures import INK, draw

_SVG = "http://www.w3.org/2000/svg"
_XLINK = "http://www.w3.org/1999/xlink"
_REFERENCE = re.compile(r"url\(#([^()]*)\)")
_DROPPED = {f"{{{_SVG}}}metadata", f"{{{_SVG}}}style"}
"""Matplotlib's facts about itself, and a style that would apply to the whole page."""


def inline_svg(figure: Figure, prefix: str) -> str:
    """``figure`` as one ``<svg>`` element; ``prefix`` keeps its ids apart from other figures'."""
    ET.register_namespace("", _SVG)
    ET.register_namespace("xlink", _XLINK)
    root = ET.fromstring(draw(figure, "svg", inline=True))
    for parent in root.iter():
        for child in [c for c in parent if c.tag in _DROPPED]:
            parent.remove(child)
    for node in root.iter():
        for name, value in node.attrib.items():
            node.set(name, _own(name, value, prefix))
    # The page decides how wide it is.
    for name in ("width", "height"):
        root.attrib.pop(name, None)
    root.set("role", "img")
    root.set("aria-label", figure.title)
    return ET.tostring(root, encoding="unicode").replace(INK, "currentColor")


def _own(name: str, value: str, prefix: str) -> str:
    if name == "id":
        return f"{prefix}-{value}"
    if name == f"{{{_XLINK}}}href" and value.startswith("#"):
        return f"#{prefix}-{value[1:]}"
    return _REFERENCE.sub(rf"url(#{prefix}-\1)", value)
