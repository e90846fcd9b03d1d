"""The six groups of queries, and what their names say.

``G1`` queries need one tool, ``G2`` several tools of one category, ``G3`` several tools of one
collection. What follows is what ToolBench's training set has not seen: ``instruction`` the queries,
``tool`` the tools, ``category`` whole categories.
"""

from __future__ import annotations

BENCHMARK = "stabletoolbench"
GROUPS = (
    "G1_instruction",
    "G1_category",
    "G1_tool",
    "G2_instruction",
    "G2_category",
    "G3_instruction",
)
"""In the order in which upstream's tables list the levels."""
