"""The tools of multi-turn and memory entries: upstream's classes out of the user's own copy, behind
a `Scenario` that parses calls and never evaluates a model's text.

Runs and checks use `limited`, where they live in a process of their own; `Toolbox` is what lives
there.
"""

from __future__ import annotations

from ace_ray.benchmarks.bfcl.tools.opening import Opening, opening_of
from ace_ray.benchmarks.bfcl.tools.sources import ToolSources, load_class, tool_sources
from ace_ray.benchmarks.bfcl.tools.toolbox import Toolbox, open_tools

__all__ = [
    "Opening",
    "ToolSources",
    "Toolbox",
    "load_class",
    "open_tools",
    "opening_of",
    "tool_sources",
]
